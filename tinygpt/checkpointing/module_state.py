"""What a module tree holds at one moment: parameters, buffers, counters, modes; and how to go back to it.

A recomputation must start from what the forward started from and leave no trace: BatchNorm's statistics are
to be updated once, and no array of the recomputation may stay in the module.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

Storage = dict[Any, Any] | list[Any]

_LEAVES = (mx.array, str, int, float, type(None), ModuleType)  # looked at most often, and hold nothing


class ModuleState:
    """The contents of every dict and list that a module tree is made of."""

    def __init__(self, modules: Sequence[nn.Module], *, others: Iterable[Storage] = ()) -> None:
        """Copy what ``modules`` hold now, and the contents of ``others``."""
        self._modules = modules
        storages = {id(storage): storage for storage in (*_storages(modules), *others)}
        self._saved = [(s, s.copy() if isinstance(s, list) else dict(s)) for s in storages.values()]
        self._places = [
            (storage, key, value.__copy__())  # in-place writes to the original are not seen in the copy
            for storage, contents in self._saved
            for key, value in (enumerate(contents) if isinstance(contents, list) else contents.items())
            if isinstance(value, mx.array)
        ]

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays that the module held, in a fixed order."""
        return [array for _, _, array in self._places]

    @contextmanager
    def installed(self, arrays: Sequence[mx.array]) -> Iterator[None]:
        """Take the modules back to this state, with others for its arrays, and on leaving to where they are now."""
        present = ModuleState(self._modules, others=(storage for storage, _ in self._saved))
        try:
            self._install()
            for (storage, key, _), array in zip(self._places, arrays, strict=True):
                storage[key] = array
            yield
        finally:
            present._install()

    def _install(self) -> None:
        for storage, contents in self._saved:
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
