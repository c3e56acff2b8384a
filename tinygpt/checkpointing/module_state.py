"""What a module tree holds at one moment: parameters, buffers, counters, modes; and how to go back to it.

A recomputation must start from what the forward started from and leave no trace: BatchNorm's statistics are
to be updated once, and no array of the recomputation may stay in the module.
"""

import operator
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

Storage = dict[Any, Any] | list[Any]

_LEAVES = (mx.array, str, int, float, type(None), ModuleType)  # looked at most often, and hold nothing


class ModuleState:
    """The contents of every dict and list that some modules are made of.

    Attributes:
        arrays: The arrays in them, in a fixed order.
    """

    def __init__(
        self, modules: Sequence[nn.Module], *, known: Container[int] = (), beside: "ModuleState | None" = None
    ) -> None:
        """Copy what ``modules`` hold now, but for what ``beside`` holds and arrays whose ids are ``known``."""
        there = {id(storage) for storage, _ in beside._saved} if beside else set()
        self._saved: list[tuple[Storage, Storage]] = [(s, _copied(s)) for s in _storages(modules) if id(s) not in there]
        self._places: list[tuple[Storage, Any]] = []
        self.arrays: list[mx.array] = []
        for storage, contents in self._saved:
            for key, value in enumerate(contents) if isinstance(contents, list) else contents.items():
                if isinstance(value, mx.array) and id(value) not in known:
                    self._places.append((storage, key))
                    self.arrays.append(value.__copy__())  # in-place writes to the original are not seen in it

    def settle(self) -> None:
        """Forget the dicts and lists that hold what they held: there is nothing to go back to."""
        self._saved = [(storage, contents) for storage, contents in self._saved if not _same(storage, contents)]
        changed = {id(storage) for storage, _ in self._saved}
        kept = [pair for pair in zip(self._places, self.arrays, strict=True) if id(pair[0][0]) in changed]
        self._places, self.arrays = [place for place, _ in kept], [array for _, array in kept]

    @contextmanager
    def installed(self, arrays: Sequence[mx.array]) -> Iterator[None]:
        """Take the modules back to this state, with others for its arrays, and on leaving to where they are now."""
        present = [(storage, _copied(storage)) for storage, _ in self._saved]
        try:
            _install(self._saved)
            for (storage, key), array in zip(self._places, arrays, strict=True):
                storage[key] = array
            yield
        finally:
            _install(present)


def _copied(storage: Storage) -> Storage:
    return storage.copy() if isinstance(storage, list) else dict(storage)


def _same(storage: Storage, contents: Storage) -> bool:
    """Return whether a dict or list holds the very objects that its copy holds."""
    if len(storage) != len(contents):
        return False
    if isinstance(contents, list):
        return all(map(operator.is_, storage, contents))
    missing = object()
    return all(dict.get(storage, key, missing) is value for key, value in contents.items())  # type: ignore[arg-type]


def _install(saved: Iterable[tuple[Storage, Storage]]) -> None:
    for storage, contents in saved:
        if isinstance(storage, list):
            storage[:] = contents
        else:  # a module's own update() does something else
            dict.clear(storage)
            dict.update(storage, contents)


def _storages(modules: Iterable[nn.Module]) -> Iterator[Storage]:
    """Yield the dicts and lists that hold what the modules lead to; of a plain object, its attributes alone."""
    seen: set[int] = set()
    ahead: list[Any] = list(modules)
    while ahead:
        value = ahead.pop()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module):
            attributes = vars(value)
            yield value
            yield attributes
            ahead += value.values()
            ahead += attributes.values()
        elif isinstance(value, dict):
            yield value
            ahead += value.values()
        elif isinstance(value, list):
            yield value
            ahead += value
        elif isinstance(value, tuple):
            ahead += value
        elif hasattr(value, "__dict__") and not callable(value):
            yield vars(value)
