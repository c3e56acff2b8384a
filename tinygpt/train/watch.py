"""Nobody waits for a rank that is gone.

MLX tells the neighbours of a process that dies, on most releases; others wait for it without end, and a signal does not
reach them there. So a thread of every rank looks after the processes on its own machine, and ends it if it waits.
"""

import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from tinygpt.train.ranks import Ranks

LOOK_S = 0.5
GRACE_S = 10.0  # for a rank to come to its own end, once another has
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
        leave: Leave = os._exit,
    ) -> None:
        """Begin.

        Args:
            peers: The processes of other ranks on this machine, by rank.
            stopped: Whether this process was asked to stop.
            grace_s: How long it may go on then without coming on, beside two of its longest steps.
            leave: Ends the process.
        """
        self.kept = ""
        self._peers = dict(peers)
        self._stopped = stopped
        self._grace_s = grace_s
        self._leave = leave
        self._step = 0
        self._moved = monotonic()
        self._longest_s = 0.0
        self._paused = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        """Begin to look."""
        if self._peers:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._over.set()

    def done(self, step: int) -> None:
        """Note that a step is done."""
        now = monotonic()
        self._longest_s = max(self._longest_s, now - self._moved) if self._step else 0.0  # the first one compiles
        self._step, self._moved = step, now

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
            if not (self.gone or self._stopped()):
                since = None
                continue
            since = monotonic() if since is None else since
            if not self._paused and monotonic() - max(since, self._moved) > self._grace_s + 2 * self._longest_s:
                sys.stderr.write(f"{self.lost()}; waited {self._grace_s:g} s\n")
                sys.stderr.flush()
                self._leave(EXIT_LOST)
                return


def peers(ranks: Ranks) -> dict[int, int]:
    """Return the processes of the other ranks on this machine, by rank; all ranks have to ask."""
    own = f"{platform.node()} {os.getpid()}"
    said = [text.rpartition(" ") for text in ranks.gathered(own)]
    here = platform.node()
    return {rank: int(pid) for rank, (host, _, pid) in enumerate(said) if host == here and rank != ranks.rank}


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
