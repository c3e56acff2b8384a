"""Trials that begin at every place of a group of dispatches."""

import mlx.core as mx
import pytest

from tinygpt.memory.dispatch import GROUP, PLACES, move_to_place


@pytest.mark.parametrize("operations", range(GROUP))
def test_trials_cover_every_place_whatever_the_work_dispatches(operations):
    """Work that dispatches any number of operations begins at each of the ten places at least once."""
    begun = {(trial * operations + place) % GROUP for trial, place in enumerate(PLACES)}

    assert begun == set(range(GROUP))


def test_a_trial_moves_on_by_the_operations_between_the_places(monkeypatch):
    """Before a trial as many operations are dispatched as lie between its place and the one before."""
    dispatched = []
    monkeypatch.setattr(mx, "eval", lambda *arrays: dispatched.append(arrays))

    counts = []
    for trial in range(len(PLACES)):
        dispatched.clear()
        move_to_place(trial)
        counts.append(len(dispatched))

    assert counts[0] == 0
    assert [sum(counts[: n + 1]) % GROUP for n in range(len(PLACES))] == [place % GROUP for place in PLACES]
