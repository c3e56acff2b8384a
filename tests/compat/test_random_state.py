"""Reading and restoring MLX's global random state, whose type changed in 0.32.1."""

from functools import partial

import mlx.core as mx
import pytest

from tinygpt.checkpointing import random_state


def test_written_key_is_drawn_from():
    """After writing a key, the draws are those that followed it."""
    mx.random.seed(1)
    key = random_state.read()
    expected = mx.random.uniform(shape=(4,)).tolist()

    random_state.write(key)

    assert mx.random.uniform(shape=(4,)).tolist() == expected


def test_key_that_was_read_does_not_change():
    """Neither draws nor writes reach a key that somebody has read, nor the array that was the state before."""
    mx.random.seed(1)
    key, before = random_state.read(), random_state.holder()

    mx.random.uniform()
    random_state.write(mx.random.key(9))

    assert key.tolist() == before.tolist() == [0, 1]


def test_replayed_goes_on_as_though_it_had_not_been_entered():
    """Draws inside do not count outside, also when an exception ends the context."""
    mx.random.seed(1)
    key = random_state.read()
    first = mx.random.uniform().item()
    expected = mx.random.uniform().item()
    mx.random.seed(1)
    mx.random.uniform()

    drawn = []

    def fail():
        with random_state.replayed(key):
            drawn.append(mx.random.uniform().item())
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert drawn == [first]
    assert mx.random.uniform().item() == expected


def test_replay_works_inside_a_compiled_function():
    """The key may be a tracer, and the state goes on from call to call."""
    compiled = partial(mx.compile, inputs=mx.random.state, outputs=mx.random.state)

    @compiled
    def draw_once():
        return mx.random.uniform(shape=(3,))

    @compiled
    def draw_twice():
        key = random_state.read()
        first = mx.random.uniform(shape=(3,))
        with random_state.replayed(key):
            second = mx.random.uniform(shape=(3,))
        return first, second

    mx.random.seed(7)
    expected = [draw_once().tolist() for _ in range(3)]
    mx.random.seed(7)

    found = [[draw.tolist() for draw in draw_twice()] for _ in range(3)]

    assert found == [[draw, draw] for draw in expected]
