"""What a checkpoint wrapper promises, and the checks that hold it to it.

A check is a function whose docstring is its rule: ``G1 (required): statement``, then ``Source:`` and ``Fault:``.
Reports and ``docs/rules.md`` are made of these docstrings, so the sentence that is published is the one beside the
code.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING

from tinygpt.errors import SubjectError

if TYPE_CHECKING:
    from tinygpt.conformance.trial import Measurement, Trial

# Changes whenever a check is added or becomes stricter: a report says which set it was made with.
RULE_SET = "3"

FAMILIES = (
    "values",
    "gradients",
    "arguments",
    "randomness",
    "recompute",
    "side_effects",
    "transforms",
    "crossings",
    "distributed",
    "footprint",
)

BOTH = ("eager", "compiled")
EAGER = ("eager",)
COMPILED = ("compiled",)

# Rules without a check, which a report lists too.
UNTESTED = {
    "M7": (
        "required",
        "Each statement about memory names its evaluation schedule.",
        "A promise of the judge: every footprint result carries its schedule, and the schema of a report demands it.",
    ),
}

CheckFunction = Callable[["Trial"], "Measurement | None"]


@dataclass(frozen=True)
class Check:
    """One check of one rule.

    Attributes:
        name: Of the function.
        family: The module it stands in.
        rule: The rule's id, such as ``G1``.
        level: ``required`` or ``optional``.
        statement: What the wrapper promises.
        source: Where the promise comes from.
        faults: The planted faults that it must catch.
        modes: In which it runs: ``eager``, ``compiled``.
        run: The function: returns what it measured, if anything, or raises.
    """

    name: str
    family: str
    rule: str
    level: str
    statement: str
    source: str
    faults: tuple[str, ...]
    modes: tuple[str, ...]
    run: CheckFunction

    def ids(self) -> list[str]:
        """Return the id of each of its runs: ``G1.parameters[eager]``."""
        return [check_id(self, mode) for mode in self.modes]


def check_id(check: Check, mode: str) -> str:
    """Return the id of one run of a check."""
    return f"{check.rule}.{check.name}[{mode}]"


def check(*, modes: tuple[str, ...] = BOTH) -> Callable[[CheckFunction], CheckFunction]:
    """Make a function a check; its docstring is its rule."""

    def register(function: CheckFunction) -> CheckFunction:
        _CHECKS.append(_parsed(function, modes))
        return function

    return register


def all_checks() -> tuple[Check, ...]:
    """Return every check, family by family and in the order of the rules."""
    for family in FAMILIES:
        import_module(f"tinygpt.conformance.{family}")
    return tuple(sorted(_CHECKS, key=lambda c: (FAMILIES.index(c.family), c.rule[0], int(c.rule[1:]))))


def select(patterns: Iterable[str]) -> list[tuple[Check, str]]:
    """Return the checks, each with a mode, whose id, rule or family matches one of the patterns.

    Args:
        patterns: Shell-style: ``G*``, ``R1``, ``footprint``, ``*[compiled]``. Several may stand in one, with commas
            between.

    Raises:
        SubjectError: Nothing matches.
    """
    wanted = [part.strip() for pattern in patterns for part in pattern.split(",")]
    chosen = [
        (entry, mode)
        for entry in all_checks()
        for mode in entry.modes
        if any(
            fnmatchcase(name, part) or name == part
            for part in wanted
            for name in (check_id(entry, mode), f"{entry.rule}.{entry.name}", entry.rule, entry.family)
        )
    ]
    if not chosen:
        rules = ", ".join(dict.fromkeys(entry.rule for entry in all_checks()))
        raise SubjectError(f"[rules] pattern: got {', '.join(wanted)!r}, expected one that matches a rule of {rules}")
    return chosen


_CHECKS: list[Check] = []

_HEAD = re.compile(r"(?P<rule>[A-Z]\d+) \((?P<level>required|optional)\): (?P<statement>.+)", re.DOTALL)


def _parsed(function: CheckFunction, modes: tuple[str, ...]) -> Check:
    paragraphs = [" ".join(p.split()) for p in (inspect.getdoc(function) or "").split("\n\n")]
    head = _HEAD.fullmatch(paragraphs[0])
    sections = dict(part.split(": ", 1) for part in paragraphs[1:] if part.startswith(("Source: ", "Fault: ")))
    if head is None or sections.keys() != {"Source", "Fault"}:
        raise SubjectError(
            f"[{function.__name__}] docstring: got {paragraphs!r}, expected a rule, a source and a fault"
        )
    return Check(
        name=function.__name__,
        family=function.__module__.rpartition(".")[2],
        rule=head["rule"],
        level=head["level"],
        statement=head["statement"],
        source=sections["Source"],
        faults=tuple(re.findall(r"``(\w+)``", sections["Fault"])),
        modes=modes,
        run=function,
    )
