"""The places where Python keeps a value: how to read one, and how to put another there.

Four kinds cover what a function can capture. They are plain pairs, made by the hundred for every checkpointed call.
"""

import functools
from typing import Any, NamedTuple, Protocol


class Place(Protocol):
    """Somewhere a value is kept."""

    def get(self) -> Any:
        """Return the value that is there."""

    def put(self, value: Any) -> None:
        """Put another value there."""


class Item(NamedTuple):
    """What a dict, a list or a module holds under a key."""

    container: Any
    key: Any

    def get(self) -> Any:
        """Return the item."""
        return self.container[self.key]

    def put(self, value: Any) -> None:
        """Replace the item."""
        self.container[self.key] = value


class Attribute(NamedTuple):
    """An attribute of an object, such as the contents of a closure's cell."""

    owner: Any
    name: str

    def get(self) -> Any:
        """Return the attribute; ``ValueError`` where a cell is empty."""
        return getattr(self.owner, self.name)

    def put(self, value: Any) -> None:
        """Replace the attribute."""
        setattr(self.owner, self.name, value)


class Element(NamedTuple):
    """An element of the tuple that is kept at another place, and that is replaced whole."""

    place: Place
    position: int

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

    def get(self) -> Any:
        """Return the tuple of arguments."""
        return self.function.args

    def put(self, value: Any) -> None:
        """Bind other arguments."""
        partial = self.function
        partial.__setstate__((partial.func, value, partial.keywords, vars(partial)))  # type: ignore[attr-defined]
