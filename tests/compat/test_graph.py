"""The graph tricks that the wrapper is built on, which another MLX release may break."""

import mlx.core as mx
import pytest

from tinygpt import checkpoint
from tinygpt.checkpointing.graph import after, watched
from tinygpt.memory.measure import measure


def test_after_changes_no_value_and_no_gradient():
    """Values pass through to the bit, and so do their gradients; the events' gradients are zero."""
    x, event = mx.random.normal((3, 4)), mx.random.normal((2,))

    (y,) = after([x], [event])
    gradients = mx.grad(lambda x, e: after([x * x], [e])[0].sum(), argnums=(0, 1))(x, event)

    assert mx.array_equal(y, x).item()
    assert mx.array_equal(gradients[0], 2 * x).item()
    assert mx.array_equal(gradients[1], mx.zeros((2,))).item()


def test_after_takes_integers_and_many_values():
    """Every value comes back in its place, whatever its dtype."""
    values = [mx.array([1, 2]), mx.array([True]), mx.array(0.5)]

    assert [value.tolist() for value in after(values, [mx.array(1.0)])] == [[1, 2], [True], 0.5]
    assert after([], [mx.array(1.0)]) == []


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_after_waits_for_its_events(compiled):
    """A chain whose links wait for each other holds one large array at a time, however it is evaluated."""
    count, size = 16, 1 << 16

    def sums(x):
        total, found = x.sum(), []
        for index in range(count):
            (start,) = after([x], [total])
            total = mx.exp(start + index).sum()
            found.append(total)
        return found

    run = mx.compile(sums) if compiled else sums
    x = mx.ones((size,))
    mx.eval(x)

    peak = measure(lambda: mx.eval(run(x)), schedule="all sums at once").peak_bytes

    assert peak < 4 * 4 * size  # of 16 arrays of 4 bytes an element that would be there if nothing waited


def test_after_keeps_a_recomputation_apart_in_a_compiled_function():
    """What is computed again from values that waited is computed again: the two results are not one array."""
    calls = []

    def twice(x):
        first = mx.sin(x) @ x
        (again,) = after([x], [first.sum()])
        second = mx.sin(again) @ again
        calls.append(1)
        return first, second

    x = mx.random.normal((128, 128))
    mx.eval(x)
    peak = measure(lambda: mx.eval(mx.compile(twice)(x)), schedule="both at once").peak_bytes

    assert calls
    assert peak >= 2 * 4 * 128 * 128


def test_watched_reports_a_gradient_only_where_one_is_built():
    """The notice comes for an array that the result depends on, and not for another."""
    seen = []

    def loss(x, y):
        x, y = watched(x, lambda: seen.append("x")), watched(y, lambda: seen.append("y"))
        return (x * 2).sum() + 0 * mx.stop_gradient(y).sum()

    gradient = mx.grad(loss)(mx.ones((2,)), mx.ones((2,)))

    assert gradient.tolist() == [2, 2]
    assert seen == ["x"]


def test_dead_sibling_of_a_compiled_output_does_not_crash():
    """A compiled function may return one argument's gradient and drop another's; 0.29.4 and 0.30.0 have a trap."""
    x, scale, weight = mx.ones((2, 8)), mx.ones((8,)), mx.ones((8, 8))
    layer = checkpoint(lambda x, scale, weight: (x @ weight) * scale)
    step = mx.compile(mx.value_and_grad(lambda scale, weight: layer(x, scale, weight).sum(), argnums=(0, 1)))

    for _ in range(3):
        _, (by_scale, by_weight) = step(scale, weight)
        mx.eval(by_scale, by_weight)

    assert by_scale.tolist() == [16.0] * 8
    assert by_weight.tolist() == [[2.0] * 8] * 8
