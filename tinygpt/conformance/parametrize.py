"""The pytest door: one test for each run of a check."""

import atexit
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tinygpt.conformance.bound import BoundCheck
from tinygpt.conformance.expectations import Expectation, applied, read
from tinygpt.conformance.results import Result
from tinygpt.conformance.runner import iter_checks, judged_by
from tinygpt.conformance.worker import Worker
from tinygpt.errors import ConformanceError, InconclusiveError, NotApplicableError


def parametrize_with_checks(
    subjects: Iterable[Any], *, rules: str | Iterable[str] = "*", expectations: Path | str | None = None
) -> Any:
    """Parametrize a test with every run of every check; its argument is ``check``, to be called without arguments.

    Args:
        subjects: Wrappers, ``Subject``s, or names of subjects.
        rules: Patterns of rules, checks or families.
        expectations: A file of failures that are known.

    Raises:
        SubjectError: There are no subjects, no such subject, or no such rule.
        ExpectationError: The file of expectations makes no sense.
    """
    import pytest  # noqa: PLC0415  (the other doors do without)

    known = read(Path(expectations)) if expectations is not None else ()
    calls = [CheckCall(check, known) for each in _non_empty(subjects) for check in iter_checks(each, rules)]
    return pytest.mark.parametrize("check", [pytest.param(call, id=call.id) for call in calls])


class CheckCall:
    """A run of a check that a test calls: it returns, raises, skips, or fails as expected.

    Attributes:
        check: The run.
        result: What it found, once it was called.
    """

    def __init__(self, check: BoundCheck, expectations: tuple[Expectation, ...] = ()) -> None:
        """Wait to be called."""
        self.check = check
        self.expectations = expectations
        self.result: Result | None = None

    @property
    def id(self) -> str:
        """What pytest calls it."""
        return f"{self.check.subject.name}-{self.check.id}"

    def __call__(self) -> None:
        """Run the check in a process of its own.

        Raises:
            ConformanceError: The wrapper breaks the rule, or passes where it was expected to fail.
            NotApplicableError: The rule says nothing here; pytest shows a skipped test.
            InconclusiveError: Nothing can be said.
        """
        worker = _shared_worker()
        found = judged_by(worker, self.check)
        if self.expectations:
            worker.start()
            found = applied(found, self.expectations, self.check.subject.name, worker.environment)
        self.result = found
        conclude(self.check, found)


def conclude(check: BoundCheck, found: Result) -> None:
    """Raise what a result means to a test."""
    if found.status == "pass":
        return
    if found.status == "xfail":
        import pytest  # noqa: PLC0415

        pytest.xfail(found.message)
    if found.status == "not_applicable":
        raise NotApplicableError(found.message)
    text = explained(check, found)
    raise (ConformanceError if found.status in ("fail", "xpass") else InconclusiveError)(text)


def explained(check: BoundCheck, found: Result) -> str:
    """Return everything that a failure has to say."""
    return "\n".join(
        (
            f"[{found.check}] {found.status}: {check.subject.name} ({found.level})",
            f"  rule:  {check.check.statement}",
            f"  seen:  {found.message}",
            f"  again: {found.again}",
        )
    )


def _non_empty(subjects: Iterable[Any]) -> Iterable[Any]:
    from tinygpt.errors import SubjectError  # noqa: PLC0415

    found = list(subjects) if not isinstance(subjects, str) else [subjects]
    if not found:
        raise SubjectError("[parametrize_with_checks] subjects: got none, expected at least one")
    return found


@cache
def _shared_worker() -> Worker:
    """Return the one worker of this process; it goes when the process goes."""
    worker = Worker()
    atexit.register(worker.stop)
    return worker


