"""Take the arrays out of nested arguments and results, and put others in their places.

MLX's own tree functions see lists, tuples and dicts. A block's arguments are richer: named tuples,
dataclasses, ``None``, strings, enums and objects of any kind. Containers are rebuilt with their type; every
other leaf is passed on as it is.
"""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn


def is_differentiable(array: mx.array) -> bool:
    """Say whether an array can have a gradient: integers, booleans and packed weights cannot."""
    return mx.issubdtype(array.dtype, mx.inexact)


class _Hole:
    """The place of an array."""


_HOLE = _Hole()


class Structure:
    """A tree whose arrays have been taken out, and that can be built again around others.

    Attributes:
        arrays: The arrays, in the order of a depth-first walk. Later in-place writes to the originals are not
            seen here.
        others: The leaves that are not arrays, in the same order.
    """

    def __init__(self, tree: Any) -> None:
        """Copy the containers of ``tree``, so that later changes to them are not seen."""
        self.arrays: list[mx.array] = []
        self.others: list[Any] = []
        self._skeleton = _rebuild(tree, self._take)

    def fill(self, arrays: Sequence[mx.array]) -> Any:
        """Return a new tree with ``arrays`` in the places of the original ones."""
        remaining = iter(arrays)
        return _rebuild(self._skeleton, lambda leaf: next(remaining) if leaf is _HOLE else leaf)

    def _take(self, leaf: Any) -> Any:
        if isinstance(leaf, mx.array):
            self.arrays.append(copy.copy(leaf))
            return _HOLE
        self.others.append(leaf)
        return leaf


def _rebuild(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return ``tree`` with new containers of the same types and ``leaf`` applied to everything else."""
    if isinstance(tree, nn.Module):  # a dict too, but what it holds are parameters
        return leaf(tree)
    if isinstance(tree, dict):
        mapping = copy.copy(tree)  # a defaultdict keeps its default
        mapping.update({key: _rebuild(value, leaf) for key, value in tree.items()})
        return mapping
    if isinstance(tree, list):
        items = copy.copy(tree)
        items[:] = [_rebuild(value, leaf) for value in tree]
        return items
    if isinstance(tree, tuple) and hasattr(tree, "_make"):
        return tree._make(_rebuild(value, leaf) for value in tree)
    if type(tree) is tuple:
        return tuple(_rebuild(value, leaf) for value in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        instance = copy.copy(tree)
        for field in dataclasses.fields(tree):
            value = _rebuild(getattr(tree, field.name), leaf)
            object.__setattr__(instance, field.name, value)  # also where it is frozen
        return instance
    return leaf(tree)
