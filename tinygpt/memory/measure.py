"""Ask MLX for memory: the only file that does.

A peak is exact to the byte and the same every time on the CPU backend if it is taken with care: nothing
queued, nothing cached, no garbage, and an evaluation that waits for queued work instead of running ahead (a
memory limit of one byte makes it wait). Without that the same step reads up to ten different peaks in fifteen
trials, each of them what a run really needed; with it a crowded machine may still read a little less, see
``tinygpt.memory.dispatch``. So a reading keeps all trials and says under which schedule they were taken.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import mlx.core as mx

from tinygpt.errors import MeasureError
from tinygpt.memory.in_flight import waiting_evaluation


@dataclass(frozen=True)
class Counters:
    """MLX's own counters, in bytes.

    Attributes:
        peak_bytes: Most that was allocated at once since the last reset; without the cache.
        active_bytes: What is allocated now.
        cache_bytes: What is free and not given back to the system.
    """

    peak_bytes: int
    active_bytes: int
    cache_bytes: int


@dataclass(frozen=True)
class Reading:
    """The memory that one piece of work needs.

    Attributes:
        schedule: How the work is evaluated; a peak means nothing without it.
        base_bytes: Active before the work: what it stands on, such as weights and moments.
        trials_bytes: The peak above the base, one for each trial.
        left_bytes: Active after the work above the base, while its result was still held.
        exact: Whether evaluation waited for queued work.
    """

    schedule: str
    base_bytes: int
    trials_bytes: tuple[int, ...]
    left_bytes: int
    exact: bool

    @property
    def peak_bytes(self) -> int:
        """The least peak above the base: what the work needs when nothing runs ahead."""
        return min(self.trials_bytes)


def counters() -> Counters:
    """Return MLX's counters as they are now."""
    return Counters(mx.get_peak_memory(), mx.get_active_memory(), mx.get_cache_memory())


def device_memory_bytes() -> int:
    """Return the memory that the default device can use: the GPU's, or what the machine has."""
    if mx.default_device() != mx.Device(mx.cpu):
        tell = getattr(mx, "device_info", None) or mx.metal.device_info
        info = tell()
        for name in ("max_recommended_working_set_size", "total_memory", "memory_size"):
            if name in info:
                return int(info[name])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def settle() -> None:
    """Wait for queued work, drop garbage, and give the cache back."""
    mx.synchronize()
    gc.collect()
    mx.clear_cache()


def reset_peak() -> None:
    """Count the peak anew from here; MLX sets it to 0, not to what is active."""
    mx.reset_peak_memory()


def measure(
    work: Callable[[], Any],
    *,
    schedule: str,
    trials: int = 3,
    exact: bool = True,
    before: Callable[[int], object] | None = None,
    foreign_bytes: int = 0,
) -> Reading:
    """Run ``work`` several times and read the peak of each.

    Args:
        work: Builds and evaluates something, and returns it. What it returns unevaluated is not evaluated here.
        schedule: In which order, and in how many parts, the work is evaluated.
        trials: How often to run it; the first run also compiles.
        exact: Whether to make evaluation wait for queued work.
        before: Called with the number of each trial, from 0, before it; see ``tinygpt.memory.dispatch``.
        foreign_bytes: What somebody else in this process holds, and what the base is not to count: active
            before anything that the work stands on was made.

    Returns:
        All readings. The peak is above what was active before.

    Raises:
        MeasureError: ``trials`` is below 1, or the peak reads below what has since been allocated: somebody
            else has reset it.
    """
    if trials < 1:
        raise MeasureError(f"[measure] trials: got {trials}, expected at least 1")
    peaks, base, left = [], 0, 0
    for trial in range(trials):
        if before is not None:
            before(trial)
        settle()
        reset_peak()
        base = counters().active_bytes
        result = _run(work, exact)
        after = counters()
        if base < after.active_bytes > after.peak_bytes:
            raise MeasureError(
                f"[measure] peak: got {after.peak_bytes} B, expected at least the active {after.active_bytes} B"
            )
        peaks.append(max(after.peak_bytes - base, 0))  # the counter stays at 0 while nothing is allocated
        left = after.active_bytes - base
        del result
    return Reading(schedule, base - foreign_bytes, tuple(peaks), left, exact)


@contextmanager
def watched_memory(interval_s: float = 2e-4) -> Iterator[list[tuple[float, int]]]:
    """Look at the active memory again and again inside the context, from a thread of its own.

    Args:
        interval_s: Between two looks; what is shorter may be missed.

    Yields:
        Seconds from the beginning, and bytes; more and more of them until the context ends.
    """
    samples: list[tuple[float, int]] = []
    done = threading.Event()
    start = perf_counter()

    def look() -> None:
        while not done.wait(interval_s):
            samples.append((perf_counter() - start, mx.get_active_memory()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def _run(work: Callable[[], Any], exact: bool) -> Any:
    if not exact:
        result = work()
    else:
        with waiting_evaluation(), _no_cache():
            result = work()
    mx.synchronize()
    return result


@contextmanager
def _no_cache() -> Iterator[None]:
    """Keep no cache inside the context: a larger buffer out of it would count with its whole size."""
    limit = mx.set_cache_limit(0)
    try:
        yield
    finally:
        mx.set_cache_limit(limit)
