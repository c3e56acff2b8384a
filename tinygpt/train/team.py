"""One rank of a run: the first alone prints and writes, all stop after the same step, and none waits for the dead."""

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from tinygpt.environment import backend
from tinygpt.errors import RanksError, TinyGPTError
from tinygpt.train.output import Output
from tinygpt.train.ranks import Ranks, ranks
from tinygpt.train.stop import StopRequest, stop_request
from tinygpt.train.watch import Watch, peers


@dataclass(frozen=True)
class Team:
    """This process and those that train with it.

    Attributes:
        ranks: What connects them.
        peers: The processes of the others on this machine, by rank.
        request: Whether this one was asked to stop.
        watch: Looks after the others.
    """

    ranks: Ranks
    peers: Mapping[int, int]
    request: StopRequest
    watch: Watch

    def own(self, output: Output) -> Output:
        """Return where this rank leaves what it makes: the first does, the others nowhere."""
        return output if self.ranks.rank == 0 else Output()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Take the time that a saving needs, inside the context, whoever is gone and whatever the launcher sends."""
        self.request.patient = self.ranks.size > 1
        try:
            with self.watch.paused():
                yield
        finally:
            self.request.patient = False

    def stopped_by(self, *, after: int) -> signal.Signals | None:
        """Return the signal that any of them has got, the same on all; every rank has to ask after every step."""
        self.watch.done(after)
        number = self.ranks.largest(self.request.by or 0)
        return signal.Signals(number) if number else None


@contextmanager
def together(*, saves: bool) -> Iterator[Team]:
    """Be one rank, or alone, inside the context.

    Args:
        saves: Whether a signal is to wait for the end of the step, after which the first rank saves.

    Raises:
        RanksError: Another rank is gone.
    """
    own = ranks()
    others = _peers(own)
    with stop_request() if saves else nullcontext(StopRequest()) as request:
        watch = Watch(others, stopped=lambda: request.by is not None)
        with watch if own.size > 1 else nullcontext(), _silent(own.rank > 0), _lost(own, watch):
            yield Team(own, others, request, watch)


def _peers(own: Ranks) -> dict[int, int]:
    """Meet the other ranks. On the CPU each has a folder of its own for what MLX compiles: it may be half-written.

    Raises:
        RanksError: One of them is gone.
    """
    if own.size == 1:
        return {}
    if backend() == "cpu":
        folder = Path(tempfile.gettempdir()) / f"tinygpt-rank-{own.rank}"
        folder.mkdir(exist_ok=True)
        os.environ["TMPDIR"] = str(folder)
    try:
        return peers(own)
    except RuntimeError as error:
        raise RanksError(f"[ranks] start: got {error}, expected an answer of all ranks") from error


@contextmanager
def _silent(silent: bool) -> Iterator[None]:
    if not silent:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


@contextmanager
def _lost(own: Ranks, watch: Watch) -> Iterator[None]:
    """Say who is gone where MLX says that something is."""
    try:
        yield
    except RuntimeError as error:
        if own.size == 1 or isinstance(error, TinyGPTError):
            raise
        raise RanksError(f"{watch.lost()}; MLX says: {error}") from error
