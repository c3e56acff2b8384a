"""What a function uses without being given it: its closure, its defaults, its globals, its ``self``.

To MLX an array that a custom function captures is a constant, and its gradient is silently zero. So those
arrays are found here, passed in as inputs by ``wrap``, and put back into their places for the recomputation.
A closure variable that has changed since the forward (the ``block`` of a loop that went on) gets the value
back that the forward saw.

Objects are followed as deep as they go, but for those of Python's own library; of globals, the functions of the same
file. Not seen: what hides inside compiled code, such as a function that ``mx.compile`` made; and a module's buffer that
somebody else writes between two calls, since nothing tells it from a constant.
"""

import collections
import functools
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing.crossings import arrays_in, is_object, is_own, is_written, slots
from tinygpt.checkpointing.places import Attribute, Element, Item, PartialArguments, Place, Variable
from tinygpt.checkpointing.trees import is_differentiable

_LEAVES = (str, int, float, type(None), type, types.ModuleType)  # looked at most often, and hold nothing
_ALONE = (mx.array, *_LEAVES)


class Captures:
    """The places of all floating-point arrays, and of all variables, that some roots lead to.

    Attributes:
        arrays: Every place that holds a floating-point array, with that array.
        variables: Every variable of a function, slot, and attribute of a class that holds anything else, with its
            value.
        modules: Every module that was met.
        storages: Every dict, list and deque that was met, and the attributes of every object.
        owners: Whose attributes a storage holds, by the id of the storage.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.arrays: list[tuple[Place, mx.array]] = []
        self.variables: list[tuple[Place, Any]] = []
        self.modules: list[nn.Module] = []
        self.storages: list[Any] = []
        self.owners: dict[int, Any] = {}
        self._array_variables: list[tuple[Place, mx.array]] = []
        self._seen: set[int] = set()
        self._ahead: list[Any] = []
        self._aside: list[Place] = []

    def follow(self, roots: Iterable[Any], *, aside: bool = True) -> None:
        """Walk from ``roots`` to what has not been reached before.

        Args:
            roots: Where to begin.
            aside: Whether to look at what modules keep aside, too; if not, the next walk does.
        """
        self._ahead += roots
        while self._ahead or (aside and self._aside):
            if not self._ahead:
                self._look_behind(self._aside.pop())
                continue
            value = self._ahead.pop()
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self._enter(value)

    def changes(self) -> list[Place]:
        """Return the variables that hold something else than they held."""
        held = [*self.variables, *self._array_variables]
        return [place for place, value in held if place.get() is not value]

    def settle(self) -> None:
        """Forget the variables that the function itself has changed, but for those in which it keeps arrays.

        They are its results, not its inputs: a counter counts both runs.
        """
        self.variables = [
            (place, value)
            for place, value in self.variables
            if place.get() is value or any(True for each in (value, place.get()) for _ in arrays_in(each))
        ]

    @contextmanager
    def installed(self, arrays: Sequence[mx.array]) -> Iterator[None]:
        """Put every variable back to its value, and ``arrays`` into the places of the arrays, inside the context."""
        values = [*self.variables, *((place, array) for (place, _), array in zip(self.arrays, arrays, strict=True))]
        present = [(place, place.get()) for place, _ in values]
        try:
            for place, value in values:
                place.put(value)
            yield
        finally:
            for place, value in present:
                place.put(value)

    def _enter(self, value: Any) -> None:
        """Look at everything that ``value`` holds."""
        match value:
            case nn.Module():
                self.modules.append(value)
                self.owners[id(value)] = value
                for key, held in value.items():
                    if nn.Module.trainable_parameter_filter(value, key, held) or is_written(held):
                        self._look(Item(value, key))
                    elif not isinstance(held, _ALONE):
                        self._aside.append(Item(value, key))
                self._enter_object(value)
            case dict() | list() | collections.deque():
                self.storages.append(value)
                for key in list(value) if isinstance(value, dict) else range(len(value)):
                    self._look(Item(value, key))
            case types.FunctionType():
                self._enter_function(value)
            case types.MethodType():
                self._ahead += [value.__self__, value.__func__]
            case functools.partial():
                self._ahead += [value.func, value.keywords]
                self._look(PartialArguments(value))
            case _ if is_object(value):
                self._enter_object(value)

    def _enter_object(self, value: Any) -> None:
        """Look at the attributes of an object, and at the functions and attributes of its class."""
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            self.storages.append(attributes)
            self.owners[id(attributes)] = value
            for name in attributes:
                self._look(Item(attributes, name))
        for base in type(value).__mro__:
            if id(base) not in self._seen and is_own(base):
                self._seen.add(id(base))
                self._enter_class(base)
        for place in slots(value):
            self._look_at_variable(place)

    def _enter_class(self, kind: type) -> None:
        for name, held in vars(kind).items():
            if isinstance(held, types.FunctionType):
                self._ahead.append(held)
            elif not name.startswith("__") and not hasattr(held, "__get__"):
                self._look_at_variable(Attribute(kind, name))

    def _enter_function(self, function: types.FunctionType) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # a variable that has no value yet
                self._look_at_variable(Variable(cell, name))
        if function.__defaults__:
            self._look(Attribute(function, "__defaults__"))
        self._ahead += [function.__kwdefaults__, function.__dict__]
        scope = function.__globals__
        for name in _global_names(function.__code__):
            if name in scope and getattr(scope[name], "__globals__", scope) is scope:
                self._look_at_variable(Item(scope, name))

    def _look_at_variable(self, place: Place) -> None:
        """Look at a place that is in none of the storages."""
        self._look(place)
        value = place.get()
        (self._array_variables if isinstance(value, mx.array) else self.variables).append((place, value))

    def _look_behind(self, place: Place) -> None:
        """Look at what a module keeps aside, under a private name or frozen.

        Arrays there are constants, but for those that a call has written. Modules and objects may well be trained
        elsewhere: an embedding that is hidden from the parameters of a block.
        """
        ahead: list[Place] = [place]
        seen: set[int] = set()
        while ahead:
            place = ahead.pop()
            value = place.get()
            if isinstance(value, mx.array):
                if is_written(value):
                    self._look(place)
            elif isinstance(value, nn.Module) or not isinstance(value, (dict, list, tuple, collections.deque)):
                self._ahead.append(value)
            elif id(value) not in seen:
                seen.add(id(value))
                keys = list(value) if isinstance(value, dict) else range(len(value))
                ahead += [Element(place, key) if isinstance(value, tuple) else Item(value, key) for key in keys]

    def _look(self, place: Place) -> None:
        """Note an array, open a tuple, and leave everything else for later."""
        value = place.get()
        if isinstance(value, mx.array):
            if is_differentiable(value):
                self.arrays.append((place, value))
        elif isinstance(value, tuple):
            for index in range(len(value)):
                self._look(Element(place, index))
        elif not isinstance(value, _LEAVES):
            self._ahead.append(value)


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> frozenset[str]:
    """Return the names that ``code`` and the functions inside of it may take from their globals."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(code.co_names).union(*map(_global_names, inner))
