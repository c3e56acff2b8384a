"""Nobody waits for a rank that is gone.

MLX tells the neighbours of a process that dies, on most releases; others wait for it without end, and a signal does not
reach them there. So a thread of every rank looks after the processes on its own machine, and ends it if it waits.
"""

import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from tinygpt.train.ranks import Ranks

LOOK_S = 0.5
GRACE_S = 10.0  # for a rank to come to its own end, once another has
PATIENCE_S = 300.0  # for one that was asked to stop while all others live: the first may be saving
DYING_S = 2.0
EXIT_LOST = 3

Leave = Callable[[int], object]


class Watch:
    """Looks after the other ranks, inside the context.

    Attributes:
        kept: What is left of the run if it ends now, in words.
    """

    def __init__(
        self,
        peers: Mapping[int, int],
        *,
        stopped: Callable[[], bool] = lambda: False,
        grace_s: float = GRACE_S,
        patience_s: float = PATIENCE_S,
        leave: Leave = os._exit,
    ) -> None:
        """Begin.

        Args:
            peers: The processes of other ranks on this machine, by rank.
            stopped: Whether this process was asked to stop.
            grace_s: How long it may go on without coming on once another is gone.
            patience_s: How long once it was asked to stop.
            leave: Ends the process.
        """
        self.kept = ""
        self._peers = dict(peers)
        self._stopped = stopped
        self._grace_s = grace_s
        self._patience_s = patience_s
        self._leave = leave
        self._step = 0
        self._moved = monotonic()
        self._paused = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._over.set()

    def done(self, step: int) -> None:
        """Note that a step is done."""
        self._step, self._moved = step, monotonic()

    @property
    def gone(self) -> list[int]:
        """The ranks whose processes have ended."""
        return [rank for rank, pid in self._peers.items() if not is_alive(pid)]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let this process take its time inside the context, whoever is gone."""
        self._paused = True
        try:
            yield
        finally:
            self._paused, self._moved = False, monotonic()

    def lost(self) -> str:
        """Return one line that says who is gone; a process that is just ending has a moment to do so."""
        until = monotonic() + DYING_S
        while not (gone := self.gone) and self._peers and monotonic() < until:
            sleep(LOOK_S / 10)
        who = ", ".join(f"rank {rank}" for rank in gone) or "a rank"
        what = "the end of its process" if gone else "no answer"
        kept = f"; {self.kept}" if self.kept else ""
        return f"[ranks] {who}: got {what} after step {self._step}, expected it to go on{kept}"

    def _look(self) -> None:
        since = None
        while not self._over.wait(LOOK_S):
            gone = bool(self.gone)
            if not (gone or self._stopped()):
                since = None
                continue
            since = monotonic() if since is None else since
            waits_s = self._grace_s if gone else self._patience_s
            if self._waited(since) > waits_s:
                said = self.lost()  # takes a moment, in which there may be an end after all
                if not self._over.is_set() and self._waited(since) > waits_s:
                    sys.stderr.write(f"{said}; waited {waits_s:g} s\n")
                    sys.stderr.flush()
                    self._leave(EXIT_LOST)
                    return

    def _waited(self, since: float) -> float:
        """Return for how long this process has not come on, since some moment."""
        return 0.0 if self._paused else monotonic() - max(since, self._moved)


def peers(ranks: Ranks) -> dict[int, int]:
    """Return the processes of the other ranks on this machine, by rank; all ranks have to ask."""
    here = _machine()
    said = [text.rpartition(" ") for text in ranks.gathered(f"{here} {os.getpid()}")]
    found = {rank: int(pid) for rank, (there, _, pid) in enumerate(said) if there == here and rank != ranks.rank}
    return {rank: pid for rank, pid in found.items() if is_alive(pid)}  # they have just answered


def _machine() -> str:
    """Return what tells this machine, and where its processes are numbered: containers may share a name."""
    told = [platform.node()]
    with suppress(OSError):  # no Linux
        told.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        told.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(told)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and that nobody has asked for yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:1]
    except OSError:  # no Linux, or gone in between
        return True
    return state != ["Z"]
