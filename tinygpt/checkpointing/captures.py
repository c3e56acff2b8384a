"""What a function uses without being given it: its closure, its defaults, its globals, its ``self``.

To MLX an array that a custom function captures is a constant, and its gradient is silently zero. So those
arrays are found here, passed in as inputs by ``wrap``, and put back into their places for the recomputation.
A closure variable that has changed since the forward (the ``block`` of a loop that went on) gets the value
back that the forward saw.

Of a plain object the attributes are read, but not the objects among them; of globals, the functions of the
same file. Not seen: what hides inside compiled code, such as a function that ``mx.compile`` made.
"""

import functools
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing.places import Attribute, Element, Item, PartialArguments, Place
from tinygpt.checkpointing.trees import is_differentiable

_LEAVES = (str, int, float, type(None), type, types.ModuleType)  # looked at most often, and hold nothing


class Captures:
    """The places of all floating-point arrays, and of all closure variables, that some roots lead to.

    Attributes:
        arrays: Every place that holds a floating-point array, with that array.
        variables: Every closure variable that holds anything else, with its value.
        modules: Every module that was met.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.arrays: list[tuple[Place, mx.array]] = []
        self.variables: list[tuple[Place, Any]] = []
        self.modules: list[nn.Module] = []
        self._seen: set[int] = set()
        self._ahead: list[tuple[Any, bool]] = []

    def follow(self, roots: Iterable[Any]) -> None:
        """Walk from ``roots`` to what has not been reached before."""
        self._ahead += [(root, False) for root in roots]
        while self._ahead:
            value, in_object = self._ahead.pop()
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self._enter(value, in_object)

    def settle(self) -> None:
        """Forget the closure variables that the function itself has changed: they are its results, not its inputs."""
        self.variables = [(place, value) for place, value in self.variables if place.get() is value]

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

    def _enter(self, value: Any, in_object: bool) -> None:
        """Look at everything that ``value`` holds."""
        match value:
            case nn.Module():
                self.modules.append(value)
                for key, held in value.items():
                    if nn.Module.trainable_parameter_filter(value, key, held):
                        self._look(Item(value, key), in_object)
                self._enter_object(value)
            case dict():
                for key in value:
                    self._look(Item(value, key), in_object)
            case list():
                for index in range(len(value)):
                    self._look(Item(value, index), in_object)
            case types.FunctionType():
                self._enter_function(value)
            case types.MethodType():
                self._ahead += [(value.__self__, False), (value.__func__, False)]
            case functools.partial():
                self._ahead += [(value.func, False), (value.keywords, False)]
                self._look(PartialArguments(value), in_object)
            case object(__dict__=_) if not in_object:
                self._enter_object(value)

    def _enter_object(self, value: Any) -> None:
        """Look at the attributes of an object, and at the functions of its class."""
        attributes = vars(value)
        for name in attributes:
            self._look(Item(attributes, name), in_object=True)
        for base in type(value).__mro__:
            if id(base) not in self._seen and not base.__module__.startswith(("mlx.", "builtins")):
                self._seen.add(id(base))
                self._ahead += [(f, False) for f in vars(base).values() if isinstance(f, types.FunctionType)]

    def _enter_function(self, function: types.FunctionType) -> None:
        for cell in function.__closure__ or ():
            place = Attribute(cell, "cell_contents")
            try:
                value = place.get()
            except ValueError:  # a variable that has no value yet
                continue
            self._look(place, in_object=False)
            if not isinstance(value, mx.array):
                self.variables.append((place, value))
        if function.__defaults__:
            self._look(Attribute(function, "__defaults__"), in_object=False)
        self._ahead.append((function.__kwdefaults__, False))
        scope = function.__globals__
        for name in _global_names(function.__code__):
            if name in scope and getattr(scope[name], "__globals__", scope) is scope:
                self._look(Item(scope, name), in_object=False)

    def _look(self, place: Place, in_object: bool) -> None:
        """Note an array, open a tuple, and leave everything else for later."""
        value = place.get()
        if isinstance(value, mx.array):
            if is_differentiable(value):
                self.arrays.append((place, value))
        elif isinstance(value, tuple):
            for index in range(len(value)):
                self._look(Element(place, index), in_object)
        elif not isinstance(value, _LEAVES):
            self._ahead.append((value, in_object))


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> frozenset[str]:
    """Return the names that ``code`` and the functions inside of it may take from their globals."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(code.co_names).union(*map(_global_names, inner))
