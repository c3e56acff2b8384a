"""What a planted fault is, and the list of all."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tinygpt.conformance.rules import FAMILIES
from tinygpt.conformance.subjects import Subject, Wrap


@dataclass(frozen=True)
class Fault:
    """A wrapper that is wrong in one way, and what must notice it.

    Attributes:
        subject: The wrapper.
        family: The module it stands in; one of the families of rules.
        description: What is wrong.
        caught_by: Patterns of ids of checks: ``G1.parameters``, or one mode of it, ``G1.parameters[eager]``.
        words: What the failure must say.
    """

    subject: Subject
    family: str
    description: str
    caught_by: tuple[str, ...]
    words: str

    @property
    def name(self) -> str:
        """The name of the wrapper."""
        return self.subject.name

    def must_fail(self, check_id: str) -> bool:
        """Return whether a run of a check has to notice it."""
        return check_id in self.caught_by or check_id.partition("[")[0] in self.caught_by


_FAULTS: list[Fault] = []


def fault(
    *caught_by: str, words: str, shape: str = "wrap", runs_wrapped_twice: int | None = None
) -> Callable[[Wrap], Wrap]:
    """Plant a function as a fault; its docstring says what is wrong with it."""

    def plant(function: Any) -> Wrap:
        family = function.__module__.rpartition(".")[2]
        address = f"{function.__module__}:{function.__qualname__}"
        subject = Subject(function.__name__, function, shape, address=address, runs_wrapped_twice=runs_wrapped_twice)
        _FAULTS.append(Fault(subject, family, inspect.getdoc(function) or "", caught_by, words))
        return function

    return plant


def all_faults() -> tuple[Fault, ...]:
    """Return every fault, family by family."""
    for family in FAMILIES:
        import_module(f"tinygpt.faults.{family}")
    return tuple(sorted(_FAULTS, key=lambda planted: FAMILIES.index(planted.family)))
