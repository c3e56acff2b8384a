"""What dicts and lists hold at one moment, those of a module tree above all; and how to go back to it.

A recomputation must start from what the forward started from and leave no trace: BatchNorm's statistics are
to be updated once, a cache is to be filled once, and no array of the recomputation may stay in either.
"""

import operator
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing.crossings import arrays_in
from tinygpt.checkpointing.places import Item

Storage = Any  # a dict, a list or a deque

_LEAVES = (mx.array, str, int, float, type(None), ModuleType)  # looked at most often, and hold nothing


class State:
    """The contents of some dicts, lists and deques.

    Attributes:
        arrays: The arrays in them, in a fixed order.
    """

    def __init__(self, storages: Iterable[Storage], *, known: Container[int] = ()) -> None:
        """Copy what the storages hold now, but for arrays whose ids are ``known``."""
        self._saved: list[tuple[Storage, Storage]] = [(storage, _copied(storage)) for storage in storages]
        self._places: list[tuple[Storage, Any]] = []
        self.arrays: list[mx.array] = []
        for storage, contents in self._saved:
            for key, value in _items(contents):
                if isinstance(value, mx.array) and id(value) not in known:
                    self._places.append((storage, key))
                    self.arrays.append(value.__copy__())  # in-place writes to the original are not seen in it

    def settle(self, *, arrays_only: bool = False) -> None:
        """Forget the storages that hold what they held: there is nothing to go back to.

        Args:
            arrays_only: Forget those, too, that neither hold an array nor held one. Outside of modules a counter
                is to count both runs.
        """
        changed = [(storage, contents) for storage, contents in self._saved if not _same(storage, contents)]
        if arrays_only:
            changed = [pair for pair in changed if any(_holds_array(each) for each in pair)]
        self._saved = changed
        kept_ids = {id(storage) for storage, _ in changed}
        kept = [pair for pair in zip(self._places, self.arrays, strict=True) if id(pair[0][0]) in kept_ids]
        self._places, self.arrays = [place for place, _ in kept], [array for _, array in kept]

    def changes(self) -> Iterator[Item]:
        """Yield the places in the storages that hold something else than they held."""
        for storage, contents in self._saved:
            if _same(storage, contents):
                continue
            before = dict(_items(contents))
            for key, value in _items(storage):
                if key not in before or before[key] is not value:
                    yield Item(storage, key)

    @contextmanager
    def installed(self, arrays: Sequence[mx.array]) -> Iterator[None]:
        """Take the storages back to this state, with others for its arrays, and on leaving to where they are now."""
        present = [(storage, _copied(storage)) for storage, _ in self._saved]
        try:
            _install(self._saved)
            for (storage, key), array in zip(self._places, arrays, strict=True):
                storage[key] = array
            yield
        finally:
            _install(present)


def _copied(storage: Storage) -> Storage:
    return dict(storage) if isinstance(storage, dict) else storage.copy()


def _items(contents: Storage) -> Iterable[tuple[Any, Any]]:
    return dict.items(contents) if isinstance(contents, dict) else enumerate(contents)


def _holds_array(contents: Storage) -> bool:
    return any(True for _, value in _items(contents) for _ in arrays_in(value))


def _same(storage: Storage, contents: Storage) -> bool:
    """Return whether a storage holds the very objects that its copy holds."""
    if len(storage) != len(contents):
        return False
    if not isinstance(contents, dict):
        return all(map(operator.is_, storage, contents))
    missing = object()
    return all(dict.get(storage, key, missing) is value for key, value in contents.items())


def _install(saved: Iterable[tuple[Storage, Storage]]) -> None:
    for storage, contents in saved:
        if isinstance(storage, dict):  # a module's own update() does something else
            dict.clear(storage)
            dict.update(storage, contents)
        else:
            storage.clear()
            storage.extend(contents)


def storages_of(modules: Iterable[nn.Module], seen: set[int]) -> Iterator[Storage]:
    """Yield the dicts and lists that hold what the modules lead to; of a plain object, its attributes alone.

    Args:
        modules: Where to begin.
        seen: The ids of what was met before, and is not yielded again; those that are met now are added.
    """
    ahead: list[Any] = list(modules)
    while ahead:
        value = ahead.pop()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module):
            attributes = vars(value)
            seen.add(id(attributes))
            yield value
            yield attributes
            ahead += value.values()
            ahead += attributes.values()
        elif isinstance(value, dict):
            yield value
            ahead += value.values()
        elif isinstance(value, (list, deque)):
            yield value
            ahead += value
        elif isinstance(value, tuple):
            ahead += value
        elif hasattr(value, "__dict__") and not callable(value) and id(vars(value)) not in seen:
            seen.add(id(vars(value)))
            yield vars(value)
