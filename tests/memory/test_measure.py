import gc
import itertools
import os

import mlx.core as mx
import pytest

from tinygpt.errors import MeasureError
from tinygpt.memory import measure
from tinygpt.memory.dispatch import PLACES, move_to_place
from tinygpt.memory.measure import Reading, counters, device_memory_bytes, reset_peak, settle

pytestmark = pytest.mark.memory

SIZE_BYTES = 4 << 20

# A machine of twelve bytes, and what MLX says of its GPU.
MACHINE = {"SC_PAGE_SIZE": 3, "SC_PHYS_PAGES": 4}
GPUS = {
    "Metal": ({"memory_size": 8, "max_recommended_working_set_size": 6}, 6),
    "CUDA": ({"free_memory": 5, "total_memory": 8}, 8),
    "size only": ({"memory_size": 7}, 7),
    "nothing": ({}, 12),
}


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


def chain():
    """Return an array that takes a while, and large arrays on the way there; nothing is cached before."""
    result = array()
    mx.eval(result)
    settle()
    for _ in range(8):
        result = mx.cumsum(result)
    return result


def make_garbage():
    """Leave an array that only the garbage collector can free."""
    held = [array()]
    mx.eval(held)
    held.append(held)


def active_bytes():
    """Return what is active when nothing is queued and there is no garbage."""
    settle()
    return counters().active_bytes


def limits():
    """Return MLX's limits of memory and of cache, which can be read only by setting them."""
    memory, cache = mx.set_memory_limit(1), mx.set_cache_limit(0)
    mx.set_memory_limit(memory)
    mx.set_cache_limit(cache)
    return memory, cache


@pytest.fixture
def user_limits():
    """Limits that a user has set; before 0.32 the CPU has no cache, and its limit stays 0."""
    before = mx.set_memory_limit(123_456_789), mx.set_cache_limit(7_654_321)
    yield limits()
    mx.set_memory_limit(before[0])
    mx.set_cache_limit(before[1])


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
    trials = {"trials": len(PLACES), "before": move_to_place}  # or a scalar may be in flight in every trial
    settle()
    alone = measure(work(2), schedule="at once", **trials, foreign_bytes=counters().active_bytes)
    held = array()
    mx.eval(held)

    beside = measure(work(2), schedule="at once", **trials, foreign_bytes=counters().active_bytes)

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


@pytest.mark.parametrize(("chosen", "count"), [({}, 3), ({"trials": 1}, 1), ({"trials": 4}, 4)])
def test_all_trials_are_kept(chosen, count):
    """A reading has as many peaks as trials, three if nobody chooses."""
    assert len(measure(work(1), schedule="at once", **chosen).trials_bytes) == count


@pytest.mark.parametrize("trials", [(3, 1, 2), (1, 2, 3), (2, 3, 1)], ids=["in the middle", "first", "last"])
def test_peak_is_the_least_of_the_trials(trials):
    """Whichever trial it was in."""
    assert Reading("at once", 0, trials, 0, exact=True).peak_bytes == 1


@pytest.mark.parametrize(("chosen", "exact"), [({}, True), ({"exact": True}, True), ({"exact": False}, False)])
def test_reading_says_how_it_was_taken(chosen, exact):
    """With the schedule that it was given, and whether evaluation waited, which it does if nobody chooses."""
    reading = measure(work(1), schedule="at once", **chosen)

    assert (reading.schedule, reading.exact) == ("at once", exact)


def test_each_trial_is_announced_by_its_number():
    """What comes before is called with 0, 1, and so on, each time before the work."""
    calls = []

    measure(lambda: calls.append("work"), schedule="nothing", trials=2, before=calls.append)

    assert calls == [0, "work", 1, "work"]


def test_what_comes_before_a_trial_is_not_in_its_reading():
    """Not even if it was only queued."""
    foreign = active_bytes()

    reading = measure(
        lambda: None, schedule="nothing", trials=2, before=lambda _: mx.async_eval(chain()), foreign_bytes=foreign
    )

    assert (reading.base_bytes, reading.trials_bytes) == (0, (0, 0))


def test_left_and_base_are_those_of_the_last_trial():
    """Work that keeps something once leaves nothing the second time, and stands on what it kept."""
    kept = []

    def keep():
        if not kept:
            kept.append(work(1)())

    reading = measure(keep, schedule="at once", trials=2, foreign_bytes=active_bytes())

    assert (reading.base_bytes, reading.left_bytes) == (SIZE_BYTES, 0)


def test_garbage_is_not_in_the_base():
    """A reading starts when everything that nobody holds is gone."""
    foreign = active_bytes()
    gc.disable()
    try:
        make_garbage()
        reading = measure(lambda: None, schedule="nothing", trials=1, foreign_bytes=foreign)
    finally:
        gc.enable()

    assert reading.base_bytes == 0


def test_queued_work_is_waited_for():
    """Work that only queues an evaluation leaves its result and nothing on the way there."""

    def queue():
        result = chain()
        mx.async_eval(result)
        return result

    reading = measure(queue, schedule="queued", exact=False)

    assert SIZE_BYTES <= reading.left_bytes < 2 * SIZE_BYTES


def test_work_that_allocates_nothing_has_no_peak():
    """MLX leaves its counter at 0 then, below what is active; the reading is 0 and not negative."""
    held = array()
    mx.eval(held)

    assert measure(lambda: None, schedule="nothing").peak_bytes == 0


def test_work_whose_result_is_its_peak_is_measured():
    """An array that is allocated at once leaves the counter at what is active, which is no reset."""
    reading = measure(lambda: mx.array(bytes(SIZE_BYTES)), schedule="at once")

    assert reading.peak_bytes == reading.left_bytes >= SIZE_BYTES


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


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "not exact"])
def test_limits_make_exact_evaluation_wait(exact, user_limits):
    """Work that holds more than a byte waits then, and nothing is cached; otherwise the limits are the user's."""
    inside = []

    measure(lambda: inside.append(limits()), schedule="nothing", trials=1, exact=exact)

    assert inside == [(1, 0) if exact else user_limits]


@pytest.mark.parametrize("fails", [False, True], ids=["after success", "after an exception"])
def test_limits_are_restored(fails, user_limits):
    """MLX's global limits are what they were before, also when the work fails."""
    if fails:
        with pytest.raises(ZeroDivisionError):
            measure(lambda: 1 / 0, schedule="fails")
    else:
        measure(work(1), schedule="at once")

    assert limits() == user_limits


def test_settling_gives_the_cache_back():
    """After settling nothing is cached."""
    mx.eval(array())
    settle()

    assert counters().cache_bytes == 0


def test_settling_waits_for_queued_work(monkeypatch):
    """What is queued is done after settling, and its buffers are not cached later."""
    monkeypatch.setattr(gc, "collect", lambda: 0)  # to look for garbage takes as long as the work
    result = chain()
    mx.async_eval(result)

    settle()

    settled = counters()
    mx.synchronize()
    assert counters() == settled
    assert settled.cache_bytes == 0


@pytest.mark.parametrize("place", [mx, mx.metal], ids=["mx", "mx.metal"])
@pytest.mark.parametrize(("info", "expected"), GPUS.values(), ids=GPUS)
def test_memory_of_a_gpu_is_what_mlx_says(info, expected, place, monkeypatch):
    """The best of what it says, in whichever place the MLX version has it; or else what the machine has."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    monkeypatch.delattr(mx, "device_info", raising=False)
    monkeypatch.setattr(place, "device_info", lambda: info, raising=False)
    monkeypatch.setattr(os, "sysconf", MACHINE.__getitem__)

    assert device_memory_bytes() == expected


def test_memory_of_the_cpu_is_what_the_machine_has(monkeypatch):
    """Its pages times their size."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu))
    monkeypatch.setattr(os, "sysconf", MACHINE.__getitem__)

    assert device_memory_bytes() == 12
