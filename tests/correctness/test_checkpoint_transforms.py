"""``tinygpt.checkpoint`` under MLX's other transforms."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from tinygpt import checkpoint
from tinygpt.conformance.cases import MLPBlock
from tinygpt.conformance.compare import differences

WIDTH = 8


def square_sum(run):
    """Return the loss of a run: the sum of squares."""
    return lambda x: run(x).square().sum()


def in_custom_function(run):
    """Return the gradient through a custom function whose own backward differentiates the run."""

    @mx.custom_function
    def outer(x):
        return run(x)

    @outer.vjp
    def outer_vjp(primal, cotangent, _):
        return mx.vjp(run, [primal], [cotangent])[1][0]

    return lambda x: mx.grad(square_sum(outer))(x)


EXACT = {
    "vmap": mx.vmap,
    "vmap of grad": lambda run: mx.vmap(mx.grad(square_sum(run))),
    "grad of vmap": lambda run: mx.grad(square_sum(mx.vmap(run))),
    "inside a custom function": in_custom_function,
    "inside mx.checkpoint": lambda run: mx.grad(square_sum(mx.checkpoint(lambda x: run(x)))),
    "inside itself": lambda run: mx.grad(square_sum(checkpoint(lambda x: run(x)))),
}


def block_and_input():
    """Return a block and a batch for it, the same every time."""
    mx.random.seed(0)
    return MLPBlock(WIDTH), mx.random.normal((4, WIDTH))


@pytest.mark.parametrize("transform", EXACT.values(), ids=EXACT)
def test_transform_of_a_checkpointed_block_equals_that_of_the_plain_one(transform):
    """The result is the same to the bit."""
    block, x = block_and_input()

    assert differences(transform(checkpoint(block))(x), transform(block)(x)) == []


def test_jvp_of_a_checkpointed_function_is_plain():
    """Forward differentiation needs no recomputation, and works."""
    x, tangent = mx.random.normal((4,)), mx.random.normal((4,))

    def curve(x):
        return mx.exp(mx.sin(x)) * x

    assert differences(mx.jvp(checkpoint(curve), [x], [tangent]), mx.jvp(curve, [x], [tangent])) == []


@pytest.mark.parametrize("order", [2, 3])
def test_higher_derivatives_are_right(order):
    """Second and third derivatives agree within 64 units in the last place: their sums have another order."""
    block, x = block_and_input()

    def derivative(run):
        function = square_sum(run)
        for _ in range(order - 1):
            inner = mx.grad(function)
            function = lambda x, inner=inner: inner(x).sum()  # noqa: E731
        return mx.grad(function)(x)

    got, expected = derivative(checkpoint(block)), derivative(block)

    assert mx.abs(got - expected).max().item() <= 64 * 1.2e-7 * mx.abs(expected).max().item()


def test_vmap_reaches_integer_arguments():
    """Token ids may be the mapped argument."""
    embedding, tokens = nn.Embedding(10, WIDTH), mx.array([[1, 2], [3, 4]])

    assert differences(mx.vmap(checkpoint(embedding))(tokens), mx.vmap(embedding)(tokens)) == []
