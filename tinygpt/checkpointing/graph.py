"""Identity functions on arrays that change when a value is ready, and who hears of a gradient.

MLX runs a graph in whatever order its traversal meets the nodes, and ``mx.compile`` merges two subgraphs that
compute the same thing from the same arrays. Both undo a recomputation. A node that takes other arrays as
inputs too, and gives its values back as they are, stops both. ``mx.depends`` is such a node from MLX 0.29.2
on, but cannot be vmapped; ``mx.custom_function`` makes one on every release from 0.26.5. It evaluates all its
inputs, then shares the buffers of its results: nothing is copied.
"""

from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx


def after(values: Sequence[mx.array], events: Sequence[mx.array]) -> list[mx.array]:
    """Return the values unchanged, such that none is ready before all of them, and all events, have been computed.

    Args:
        values: Arrays of any shapes and dtypes.
        events: Other arrays, for which the values are to wait.

    Returns:
        Arrays bitwise equal to the values, and differentiable with respect to them.

    Source:
        ``CustomTransforms::eval`` in MLX's ``primitives.cpp``; ``tests/compat/test_graph.py`` holds every
        release to it.
    """
    count = len(values)
    if not values:
        return []

    @mx.custom_function
    def identity(arrays: list[mx.array]) -> list[mx.array]:
        return arrays[:count]

    @identity.vjp
    def identity_vjp(arrays: list[mx.array], cotangents: list[mx.array], _: list[mx.array]) -> list[mx.array]:
        return [*cotangents, *map(mx.zeros_like, arrays[count:])]

    return cast("list[mx.array]", identity([*values, *events]))


def watched(array: mx.array, notice: Callable[[], None]) -> mx.array:
    """Return the array unchanged, such that ``notice`` is called when a gradient with respect to it is being built."""

    @mx.custom_function
    def identity(value: mx.array) -> mx.array:
        return value

    @identity.vjp
    def identity_vjp(_value: mx.array, cotangent: mx.array, _: mx.array) -> mx.array:
        notice()
        return cotangent

    return cast("mx.array", identity(array))
