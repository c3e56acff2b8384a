"""Asked to stop, a run finishes its step first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody has asked the run to stop.

    Attributes:
        by: The signal, or none yet.
    """

    def __init__(self) -> None:
        """Begin without a request."""
        self.by: signal.Signals | None = None

    def receive(self, number: int, _: FrameType | None) -> None:
        """Take note of a signal; a second one interrupts at once."""
        if self.by is not None:
            raise KeyboardInterrupt
        self.by = signal.Signals(number)


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Take note of SIGINT and SIGTERM inside the context instead of ending."""
    request = StopRequest()
    before = {number: signal.signal(number, request.receive) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
