import itertools

import mlx.core as mx
import pytest

from tinygpt.errors import MeasureError
from tinygpt.memory import measure
from tinygpt.memory.measure import counters, reset_peak, settle

pytestmark = pytest.mark.memory

SIZE_BYTES = 4 << 20


def array():
    """Return an array that is not evaluated yet."""
    return mx.ones((SIZE_BYTES // 4,))


def work(count):
    """Return work that holds ``count`` arrays at once, and returns one."""

    def run():
        arrays = [array() for _ in range(count)]
        mx.eval(arrays)
        return arrays[0]

    return run


def test_peak_is_above_what_was_there_before():
    """Arrays that are held anyway are the base, not the peak."""
    held = [array() for _ in range(5)]
    mx.eval(held)

    reading = measure(work(2), schedule="at once")

    assert reading.base_bytes >= 5 * SIZE_BYTES
    assert 2 * SIZE_BYTES <= reading.peak_bytes < 4 * SIZE_BYTES
    assert reading.peak_bytes == min(reading.trials_bytes)
    assert SIZE_BYTES <= reading.left_bytes < 2 * SIZE_BYTES


def test_foreign_arrays_are_not_in_the_base():
    """What somebody else holds changes neither base nor peak."""
    settle()
    alone = measure(work(2), schedule="at once", foreign_bytes=counters().active_bytes)
    held = array()
    mx.eval(held)

    beside = measure(work(2), schedule="at once", foreign_bytes=counters().active_bytes)

    assert (beside.base_bytes, beside.peak_bytes) == (alone.base_bytes, alone.peak_bytes)
    assert beside.base_bytes == 0


def test_more_work_has_a_higher_peak():
    """Each array more is one more in the peak."""
    peaks = [measure(work(count), schedule="at once").peak_bytes for count in (2, 3, 4)]

    growth = [later - earlier for earlier, later in itertools.pairwise(peaks)]
    assert growth == pytest.approx([SIZE_BYTES] * 2, rel=0.001)  # a scalar or two may be in flight


def test_evaluation_that_runs_ahead_needs_no_less():
    """Without waiting, a peak holds at least what the work holds at once."""
    reading = measure(work(4), schedule="at once", exact=False)

    assert not reading.exact
    assert min(reading.trials_bytes) >= 4 * SIZE_BYTES


def test_all_trials_are_kept():
    """A reading has as many peaks as trials."""
    assert len(measure(work(1), schedule="at once", trials=4).trials_bytes) == 4


def test_work_that_allocates_nothing_has_no_peak():
    """MLX leaves its counter at 0 then, below what is active; the reading is 0 and not negative."""
    held = array()
    mx.eval(held)

    assert measure(lambda: None, schedule="nothing").peak_bytes == 0


def test_reset_in_the_middle_is_noticed():
    """If somebody resets the counter while it is read, there is an error and no wrong number."""

    def meddle():
        held = array()
        mx.eval(held)
        reset_peak()
        return held

    with pytest.raises(MeasureError, match=r"\[measure\] peak: got 0 B, expected at least the active"):
        measure(meddle, schedule="meddled")


def test_no_trial_is_refused():
    """Nothing measured is no measurement."""
    with pytest.raises(MeasureError, match=r"\[measure\] trials: got 0, expected at least 1"):
        measure(work(1), schedule="at once", trials=0)


@pytest.mark.parametrize("fails", [False, True], ids=["after success", "after an exception"])
def test_limits_are_restored(fails):
    """MLX's global limits are what they were before, also when the work fails."""
    limits = mx.set_memory_limit(123_456_789), mx.set_cache_limit(7_654_321)
    expected = 123_456_789, mx.set_cache_limit(7_654_321)  # before 0.32 the CPU has no cache, and its limit stays 0
    try:
        if fails:
            with pytest.raises(ZeroDivisionError):
                measure(lambda: 1 / 0, schedule="fails")
        else:
            measure(work(1), schedule="at once")
    finally:
        left = mx.set_memory_limit(limits[0]), mx.set_cache_limit(limits[1])

    assert left == expected


def test_settling_gives_the_cache_back():
    """After settling nothing is cached."""
    mx.eval(array())
    settle()

    assert counters().cache_bytes == 0
