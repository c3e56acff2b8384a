"""What a call leaves outside of its result: arrays that go from block to block by the side.

A cache that is filled, a dict that is passed along, a hook's list, a variable of the function around: what a block
writes there carries gradient, and MLX's custom functions know nothing of it. A checkpointed call treats such an array
as one more result. It is named by a place that was there before the call, and by the way from there into what the call
has made.
"""

import argparse
import functools
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing.places import Attribute, Place
from tinygpt.checkpointing.trees import is_differentiable
from tinygpt.errors import CheckpointError

Steps = tuple[Any, ...]  # keys, indices, and names of attributes

# Objects of these packages hold no array of a model's, but for the two that are made to hold anything.
FOREIGN = frozenset(sys.stdlib_module_names) - {"__main__"} | {"mlx", "numpy"}
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)

_written: dict[int, "weakref.ref[mx.array]"] = {}


class Crossing(NamedTuple):
    """Where an array was left.

    Attributes:
        place: Something that was there before the call.
        steps: From there, in what the call has put there.
    """

    place: Place
    steps: Steps

    def get(self) -> mx.array:
        """Return the array.

        Raises:
            CheckpointError: There is none.
        """
        value: Any = None
        try:
            value = self.place.get()
            for step in self.steps:
                value = _held(value)[step]
        except (LookupError, AttributeError, TypeError, ValueError):
            value = None
        if not isinstance(value, mx.array):
            raise CheckpointError(
                f"[checkpoint] {self} after the recomputation: got {type(value).__name__}, expected an array as the "
                "forward has left there"
            )
        return value

    def put(self, array: mx.array) -> None:
        """Replace the array."""
        self.place.put(_replaced(self.place.get(), self.steps, array))

    def __str__(self) -> str:
        """Return its name."""
        return f"{self.place}" + "".join(f"[{step!r}]" for step in self.steps)


def crossings(place: Place) -> Iterator[Crossing]:
    """Yield every floating-point array at a place that a call has written to."""
    for steps, array in arrays_in(place.get()):
        if is_differentiable(array):
            yield Crossing(place, steps)


def arrays_in(value: Any) -> Iterator[tuple[Steps, mx.array]]:
    """Yield the arrays in a value with the way to each. Modules are not looked into: what they hold are parameters."""
    ahead: list[tuple[Steps, Any]] = [((), value)]
    seen: set[int] = set()
    while ahead:
        steps, held = ahead.pop()
        if isinstance(held, mx.array):
            yield steps, held
            continue
        inside = None if id(held) in seen else _held(held)
        if inside is not None:
            seen.add(id(held))
            items = inside.items() if isinstance(inside, dict) else enumerate(inside)
            ahead += [((*steps, key), each) for key, each in items]


def note_written(array: mx.array) -> None:
    """Note that an array carries gradient, wherever it is kept, for as long as it lives."""
    identity = id(array)
    _written[identity] = weakref.ref(array, lambda _: _written.pop(identity, None))


def is_written(value: object) -> bool:
    """Return whether a value is an array that a checkpointed call has left outside of its result."""
    return id(value) in _written


def is_object(value: object) -> bool:
    """Return whether a value is an object of somebody's own, whose attributes are what it holds."""
    kind: Any = type(value)
    return not isinstance(value, (nn.Module, Enum, type)) and is_own(kind)


@functools.lru_cache(maxsize=4096)
def is_own(kind: type) -> bool:
    """Return whether a class is neither Python's nor MLX's."""
    return kind.__module__.partition(".")[0] not in FOREIGN or kind in _NAMESPACES


def slots(value: object) -> Iterator[Attribute]:
    """Yield the slots of an object that hold something."""
    kind: Any = type(value)
    return (Attribute(value, name) for name in _slot_names(kind) if hasattr(value, name))


@functools.lru_cache(maxsize=4096)
def _slot_names(kind: type) -> tuple[str, ...]:
    stated = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    names = [name for each in stated for name in ((each,) if isinstance(each, str) else each)]
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


class _Slots(dict[str, Any]):
    """The slots of an object; what is put here is put there."""

    def __init__(self, owner: Any) -> None:
        super().__init__({place.name: place.get() for place in slots(owner)})
        self._owner = owner

    def __setitem__(self, name: str, value: Any) -> None:
        Attribute(self._owner, name).put(value)


def _held(value: Any) -> Any:
    """Return what a value holds, as something with keys; nothing if it holds nothing."""
    if isinstance(value, (dict, list, tuple, deque)):
        return None if isinstance(value, nn.Module) else value
    if not is_object(value):
        return None
    return vars(value) if hasattr(value, "__dict__") else _Slots(value)


def _replaced(value: Any, steps: Steps, array: mx.array) -> Any:
    """Return a value with another array at the end of the way; only tuples are made anew."""
    if not steps:
        return array
    step, *rest = steps
    held = _held(value)
    inner = _replaced(held[step], tuple(rest), array)
    if isinstance(value, tuple):
        elements = [*value[:step], inner, *value[step + 1 :]]
        return value._make(elements) if hasattr(value, "_make") else tuple(elements)
    held[step] = inner
    return value
