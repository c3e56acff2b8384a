"""A value of a JSON file with the place where it stands, so that an error can name it."""

import json
import math
from dataclasses import dataclass
from typing import Any

from tinygpt.errors import ReportError

LONGEST_NAME = 60
_SHOWN = 60  # a whole list in an error helps nobody


@dataclass(frozen=True)
class Entry:
    """A value and its place; what is read from it is of the kind that was asked for, or an error.

    Attributes:
        place: Where it stands, as in ``records[3].peak_bytes``; empty for the whole file.
        value: What JSON has there.
    """

    place: str
    value: Any

    def has(self, name: str) -> bool:
        """Return whether an object has this entry, and it is not null."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def at(self, name: str) -> "Entry":
        """Return an entry of an object."""
        if not isinstance(self.value, dict):
            raise self.unlike("an object")
        place = f"{self.place}.{name}".lstrip(".")
        if name not in self.value:
            raise ReportError(f"[plots] {place}: got no such entry, expected one")
        return Entry(place, self.value[name])

    def items(self, least: int = 1) -> list["Entry"]:
        """Return the entries of a list that has at least so many."""
        if not isinstance(self.value, list) or len(self.value) < least:
            raise self.unlike(f"a list of {least} or more")
        return [Entry(f"{self.place}[{index}]", value) for index, value in enumerate(self.value)]

    def text(self) -> str:
        """Return a name: printable, on one line, and short enough to stand beside a point."""
        if not isinstance(self.value, str) or not self.value.isprintable() or not 0 < len(self.value) <= LONGEST_NAME:
            raise self.unlike(f"1 to {LONGEST_NAME} printable characters")
        return self.value

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.unlike("true or false")
        return self.value

    def whole(self) -> int:
        """Return a whole number above 0."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value <= 0:
            raise self.unlike("a whole number above 0")
        return self.value

    def number(self, *, above_zero: bool = False) -> float:
        """Return a finite number, at least 0."""
        value = self.value
        usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not usable or (above_zero and value == 0):
            raise self.unlike(f"a finite number {'above 0' if above_zero else 'of 0 or more'}")
        return float(value)

    def unlike(self, expected: str) -> ReportError:
        """Return the error that says what stands here and what should."""
        got = json.dumps(self.value)
        got = got if len(got) <= _SHOWN else f"{got[:_SHOWN]}…"
        return ReportError(f"[plots] {self.place or 'file'}: got {got}, expected {expected}")
