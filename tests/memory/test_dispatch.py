"""Trials that begin at every place of a group of dispatches."""

import io

import mlx.core as mx
import pytest

from tinygpt.memory.dispatch import PLACES, move_to_place

# DISPATCHES_PER_TASK in mlx/backend/cpu/encoder.h
MLX_GROUP = 10


def operations(array):
    """Return how many operations an evaluation dispatches; a copy shares its buffer and is none."""
    graph = io.StringIO()
    mx.export_to_dot(graph, array)
    return graph.getvalue().count("label =") - graph.getvalue().count('"Copy"')


@pytest.mark.parametrize("count", range(MLX_GROUP))
def test_trials_cover_every_place_whatever_the_work_dispatches(count):
    """Work that dispatches any number of operations begins at each of the ten places at least once."""
    begun = {(trial * count + place) % MLX_GROUP for trial, place in enumerate(PLACES)}

    assert begun == set(range(MLX_GROUP))


def test_a_trial_moves_on_by_the_operations_between_the_places(monkeypatch):
    """Before a trial as many operations are dispatched as lie between its place and the one before, round and round."""
    dispatched = []
    monkeypatch.setattr(mx, "eval", lambda *arrays: dispatched.extend(arrays))

    counts = []
    for trial in range(2 * len(PLACES)):
        dispatched.clear()
        move_to_place(trial)
        counts.append(sum(operations(array) for array in dispatched))

    assert counts[0] == 0
    assert max(counts) < MLX_GROUP
    assert [sum(counts[: n + 1]) % MLX_GROUP for n in range(len(counts))] == [*PLACES, *PLACES]
