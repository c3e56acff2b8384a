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


Copies = dict[int, tuple[Any, Any]]


class _Hole:
    """The place of an array."""


_HOLE = _Hole()


class Structure:
    """A tree whose arrays have been taken out, and that can be built again around others.

    Attributes:
        arrays: The arrays, in the order of a depth-first walk. Later in-place writes to the originals are not
            seen here.
        others: The leaves that are not arrays, in the same order.
        containers: The dicts and lists themselves, in the order of the walk; one that is there twice, once.
    """

    def __init__(self, tree: Any) -> None:
        """Copy the containers of ``tree``, so that later changes to them are not seen."""
        self.arrays: list[mx.array] = []
        self.others: list[Any] = []
        copies: Copies = {}
        self._skeleton = _rebuild(tree, self._take, copies)
        self.containers = [container for container, _ in copies.values()]

    def fill(self, arrays: Sequence[mx.array]) -> Any:
        """Return a new tree with ``arrays`` in the places of the original ones."""
        return self.filled(arrays)[0]

    def filled(self, arrays: Sequence[mx.array]) -> tuple[Any, list[Any]]:
        """Return a new tree with ``arrays`` in the places of the original ones, and its dicts and lists."""
        remaining = iter(arrays)
        copies: Copies = {}
        tree = _rebuild(self._skeleton, lambda leaf: next(remaining) if leaf is _HOLE else leaf, copies)
        return tree, [copy for _, copy in copies.values()]

    def _take(self, leaf: Any) -> Any:
        if isinstance(leaf, mx.array):
            self.arrays.append(copy.copy(leaf))
            return _HOLE
        self.others.append(leaf)
        return leaf


def _rebuild(tree: Any, leaf: Callable[[Any], Any], copies: Copies) -> Any:
    """Return ``tree`` with new containers of the same types and ``leaf`` applied to everything else.

    Args:
        tree: Containers and leaves.
        leaf: What becomes of a leaf.
        copies: The dicts and lists met so far with their copies, by the id of the first.
    """
    if id(tree) in copies:
        return copies[id(tree)][1]
    if isinstance(tree, nn.Module):  # a dict too, but what it holds are parameters
        return leaf(tree)
    if isinstance(tree, dict):
        mapping = copy.copy(tree)  # a defaultdict keeps its default
        copies[id(tree)] = tree, mapping
        mapping.update({key: _rebuild(value, leaf, copies) for key, value in tree.items()})
        return mapping
    if isinstance(tree, list):
        items = copy.copy(tree)
        copies[id(tree)] = tree, items
        items[:] = [_rebuild(value, leaf, copies) for value in tree]
        return items
    if isinstance(tree, tuple) and hasattr(tree, "_make"):
        return tree._make(_rebuild(value, leaf, copies) for value in tree)
    if type(tree) is tuple:
        return tuple(_rebuild(value, leaf, copies) for value in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        instance = copy.copy(tree)
        for field in dataclasses.fields(tree):
            value = _rebuild(getattr(tree, field.name), leaf, copies)
            object.__setattr__(instance, field.name, value)  # also where it is frozen
        return instance
    return leaf(tree)
