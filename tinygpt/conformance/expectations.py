"""Failures that are known: a TOML file that says which, where, why, and when to look again.

An expectation is strict: what passes though it was expected to fail is ``xpass`` and fails the run, so that a fix is
    noticed.
"""

import datetime
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tinygpt.conformance.results import Result
from tinygpt.errors import ExpectationError

BACKENDS = ("cpu", "metal", "cuda")


@dataclass(frozen=True)
class Expectation:
    """One failure that is known.

    Attributes:
        rule: Pattern of ids of runs: ``R1.*``, ``G7.captured_array[eager]``; a bare rule stands for all its runs.
        message: Regular expression that the failure's message must match.
        reason: Why it fails.
        link: Where it is tracked.
        review: When to look again.
        subject: Pattern of names of subjects.
        mlx: Releases, as ``>=0.30,<0.33``; all if empty.
        backend: ``cpu``, ``metal`` or ``cuda``; all if empty.
    """

    rule: str
    message: str
    reason: str
    link: str
    review: datetime.date
    subject: str = "*"
    mlx: str = ""
    backend: str = ""

    def holds(self, check_id: str, subject: str, environment: Mapping[str, Any]) -> bool:
        """Return whether it is about this run of a check, of this subject, in this environment."""
        from packaging.specifiers import SpecifierSet  # noqa: PLC0415  (only expectations need it)

        return (
            any(fnmatchcase(name, self.rule) or name == self.rule for name in (check_id, *_shorter(check_id)))
            and (fnmatchcase(subject, self.subject) or subject == self.subject)
            and SpecifierSet(self.mlx).contains(environment["packages"]["mlx"], prereleases=True)
            and self.backend in ("", environment["backend"])
        )


def read(path: Path) -> tuple[Expectation, ...]:
    """Read a file of expectations: a list of ``[[expect]]`` tables.

    Raises:
        ExpectationError: The file cannot be read, or an entry lacks something or makes no sense.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ExpectationError(f"[expectations] {path}: got {error}, expected a TOML file") from error
    entries = content.get("expect")
    if content.keys() != {"expect"} or not isinstance(entries, list) or not entries:
        raise ExpectationError(f"[expectations] {path}: got {sorted(content) or 'nothing'}, expected [[expect]] tables")
    return tuple(_entry(entry, f"{path}, entry {number}") for number, entry in enumerate(entries, start=1))


def check_known(expectations: Sequence[Expectation], ids: Sequence[str]) -> None:
    """Raise if an expectation is about no check at all: it was renamed, or mistyped.

    Raises:
        ExpectationError: Naming it.
    """
    for expectation in expectations:
        if not any(fnmatchcase(n, expectation.rule) or n == expectation.rule for i in ids for n in (i, *_shorter(i))):
            raise ExpectationError(
                f"[expectations] rule: got {expectation.rule!r}, expected a pattern that a check matches"
            )


def applied(
    result: Result, expectations: Sequence[Expectation], subject: str, environment: Mapping[str, Any]
) -> Result:
    """Return a result as expectations make it: ``xfail`` for a known failure, ``xpass`` for one that has gone."""
    about = [each for each in expectations if each.holds(result.check, subject, environment)]
    if not about:
        return result
    if result.status == "pass":
        return replace(
            result,
            status="xpass",
            message=f"passes, though it was expected to fail: {about[0].reason} ({about[0].link})",
        )
    if result.status != "fail":
        return result
    for each in about:
        if re.search(each.message, result.message):
            return replace(result, status="xfail", message=f"{result.message} [known: {each.reason}; {each.link}]")
    return replace(result, message=f"{result.message} [expected to fail in other words: {about[0].message!r}]")


def overdue(expectations: Sequence[Expectation], today: datetime.date | None = None) -> list[str]:
    """Return a line for each expectation whose review is overdue; ``today`` is the clock's if not given."""
    today = today or datetime.datetime.now(tz=datetime.UTC).date()
    return [f"{e.rule}: to be reviewed by {e.review}: {e.reason}" for e in expectations if e.review < today]


def _shorter(check_id: str) -> tuple[str, str]:
    name = check_id.partition("[")[0]
    return name, name.partition(".")[0]


def _entry(entry: Any, place: str) -> Expectation:
    known = {each.name for each in fields(Expectation)}
    needed = {"rule", "message", "reason", "link", "review"}
    if not isinstance(entry, dict) or not needed <= entry.keys() <= known:
        got = sorted(entry) if isinstance(entry, dict) else entry
        raise ExpectationError(
            f"[expectations] {place}: got the keys {got}, expected {sorted(needed)}, perhaps {sorted(known - needed)}"
        )
    if not isinstance(entry["review"], datetime.date) or isinstance(entry["review"], datetime.datetime):
        raise ExpectationError(
            f"[expectations] {place}, review: got {entry['review']!r}, expected a date such as 2027-06-30"
        )
    for name in entry.keys() - {"review"}:
        if not isinstance(entry[name], str) or (name in needed and not entry[name].strip()):
            raise ExpectationError(f"[expectations] {place}, {name}: got {entry[name]!r}, expected a text")
    if entry.get("backend", "") not in ("", *BACKENDS):
        raise ExpectationError(
            f"[expectations] {place}, backend: got {entry['backend']!r}, expected one of {', '.join(BACKENDS)}"
        )
    _check_patterns(entry, place)
    return Expectation(**entry)


def _check_patterns(entry: Mapping[str, Any], place: str) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    try:
        re.compile(entry["message"])
        SpecifierSet(entry.get("mlx", ""))
    except (re.error, InvalidSpecifier) as error:
        raise ExpectationError(f"[expectations] {place}: got {error}, expected a pattern that can be read") from error
