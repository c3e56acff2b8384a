"""The places where Python keeps a value: how to read one, and how to put another there.

Five kinds cover what a function can use. They are plain pairs, made by the hundred for every checkpointed call.
"""

import functools
import types
from typing import Any, NamedTuple, Protocol


class Place(Protocol):
    """Somewhere a value is kept."""

    def get(self) -> Any:
        """Return the value that is there."""

    def put(self, value: Any) -> None:
        """Put another value there."""


class Item(NamedTuple):
    """What a dict, a list, a module or the attributes of an object hold under a key.

    Attributes:
        container: The dict or list itself.
        key: In it.
        owner: Whose attributes it holds, if it is known.
    """

    container: Any
    key: Any
    owner: Any = None

    def __str__(self) -> str:
        """Return its name."""
        if self.owner is not None:
            return f"{type(self.owner).__qualname__}.{self.key}"
        return f"{type(self.container).__name__}[{self.key!r}]"

    def get(self) -> Any:
        """Return the item."""
        return self.container[self.key]

    def put(self, value: Any) -> None:
        """Replace the item."""
        self.container[self.key] = value


class Variable(NamedTuple):
    """A variable of the function around another one."""

    cell: types.CellType
    name: str

    def __str__(self) -> str:
        """Return its name."""
        return f"variable {self.name!r}"

    def get(self) -> Any:
        """Return its value; ``ValueError`` if it has none yet."""
        return self.cell.cell_contents

    def put(self, value: Any) -> None:
        """Replace its value."""
        self.cell.cell_contents = value


class Attribute(NamedTuple):
    """An attribute that is in no dict: of a function, of a class, or in a slot."""

    owner: Any
    name: str

    def __str__(self) -> str:
        """Return its name."""
        return f"{getattr(self.owner, '__qualname__', type(self.owner).__qualname__)}.{self.name}"

    def get(self) -> Any:
        """Return the attribute; ``AttributeError`` where a slot is empty."""
        return getattr(self.owner, self.name)

    def put(self, value: Any) -> None:
        """Replace the attribute, also of what is frozen."""
        put = type.__setattr__ if isinstance(self.owner, type) else object.__setattr__
        put(self.owner, self.name, value)


class Element(NamedTuple):
    """An element of the tuple that is kept at another place, and that is replaced whole."""

    place: Place
    position: int

    def __str__(self) -> str:
        """Return its name."""
        return f"{self.place}[{self.position}]"

    def get(self) -> Any:
        """Return the element."""
        return self.place.get()[self.position]

    def put(self, value: Any) -> None:
        """Replace the tuple by one with another element here."""
        whole = self.place.get()
        elements = [*whole[: self.position], value, *whole[self.position + 1 :]]
        self.place.put(whole._make(elements) if hasattr(whole, "_make") else tuple(elements))


class PartialArguments(NamedTuple):
    """The positional arguments that a ``functools.partial`` binds."""

    function: "functools.partial[Any]"

    def __str__(self) -> str:
        """Return its name."""
        return f"arguments of {self.function.func!r}"

    def get(self) -> Any:
        """Return the tuple of arguments."""
        return self.function.args

    def put(self, value: Any) -> None:
        """Bind other arguments."""
        partial = self.function
        partial.__setstate__((partial.func, value, partial.keywords, vars(partial)))  # type: ignore[attr-defined]
