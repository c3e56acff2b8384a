"""Asked to stop, a run finishes its step first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_SIGNAL = 128  # and the signal's number, as shells have it


class StopRequest:
    """Whether somebody has asked the run to stop.

    Attributes:
        by: The signal, or none yet.
        patient: Whether a second one is to wait, too.
    """

    def __init__(self) -> None:
        """Begin without a request."""
        self.by: signal.Signals | None = None
        self.patient = False

    def receive(self, number: int, _: FrameType | None) -> None:
        """Take note of a signal; a second one ends the run at once."""
        if self.by is not None and not self.patient:
            raise SystemExit(EXIT_SIGNAL + number)
        self.by = signal.Signals(number)


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Take note of signals inside the context instead of ending; one that is ignored, as under nohup, stays so."""
    request = StopRequest()
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, request.receive) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
