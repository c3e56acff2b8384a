"""The pytest door: one test for each run of a check."""

import atexit
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from tinygpt.conformance.bound import BoundCheck
from tinygpt.conformance.expectations import Expectation, applied, overdue, read
from tinygpt.conformance.results import AGAINST, Report, Result, save
from tinygpt.conformance.rules import RULE_SET
from tinygpt.conformance.runner import described, iter_checks, judged_by, not_run, untested
from tinygpt.conformance.worker import Worker
from tinygpt.errors import ConformanceError, InconclusiveError, NotApplicableError, SubjectError


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

    found = calls(subjects, rules, expectations)
    return pytest.mark.parametrize("check", [pytest.param(call, id=call.id) for call in found])


def calls(
    subjects: Iterable[Any], rules: str | Iterable[str] = "*", expectations: Path | str | None = None
) -> list["CheckCall"]:
    """Return every run of every check of some subjects; see ``parametrize_with_checks``."""
    known = read(Path(expectations)) if expectations is not None else ()
    rules = [rules] if isinstance(rules, str) else list(rules)
    found = [CheckCall(check, known) for each in subjects for check in iter_checks(each, rules)]
    if not found:
        raise SubjectError("[parametrize_with_checks] subjects: got none, expected at least one")
    return found


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

    def expected(self) -> dict[str, Any]:
        """Return what a report says if it does not run, ready for JSON."""
        return {
            "subject": described(self.check.subject),
            "result": asdict(not_run(self.check)),
            "overdue": overdue(self.expectations),
        }

    def found(self) -> dict[str, Any]:
        """Return what was found, and where, ready for JSON; nothing if it has not run."""
        if self.result is None:
            return {}
        return {"id": self.id, "result": asdict(self.result), "environment": _shared_worker().environment}

    def __call__(self) -> None:
        """Run the check in a process of its own.

        Raises:
            ConformanceError: The wrapper breaks a required rule, or passes where it was expected to fail.
            NotApplicableError: The rule says nothing here; pytest shows a skipped test.
            InconclusiveError: Nothing can be said.
        """
        __tracebackhide__ = True
        worker = _shared_worker()
        found = judged_by(worker, self.check)
        if self.expectations:
            worker.start()
            found = applied(found, self.expectations, self.check.subject.name, worker.environment)
        self.result = found
        conclude(self.check, found)


def conclude(check: BoundCheck, found: Result) -> None:
    """Raise what a result means to a test; an optional rule that is not kept is an expected failure."""
    __tracebackhide__ = True
    if found.status == "pass":
        return
    if found.status == "not_applicable":
        raise NotApplicableError(found.message)
    text = explained(check, found)
    if found.status == "xfail" or (found.status == "fail" and found.level == "optional"):
        import pytest  # noqa: PLC0415

        pytest.xfail(text)
    raise (ConformanceError if found.status in AGAINST else InconclusiveError)(text)


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


@cache
def _shared_worker() -> Worker:
    """Return the one worker of this process; it goes when the process goes."""
    worker = Worker()
    atexit.register(worker.stop)
    return worker


def write_reports(path: Path, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Write one report for each subject: to ``path``, or for several to files beside it that bear their names.

    Args:
        path: A JSON file.
        expected: What ``CheckCall.expected`` returned, by id.
        found: What ``CheckCall.found`` returned in whatever process ran it, by id.

    Raises:
        ReportError: The file cannot be written.
    """
    names = list(dict.fromkeys(each["subject"]["name"] for each in expected.values()))
    for name in names:
        about = {i: each for i, each in expected.items() if each["subject"]["name"] == name}
        results = [Result(**found.get(i, each)["result"]) for i, each in about.items()]
        report = Report(
            subject=next(iter(about.values()))["subject"],
            environment=next((found[i]["environment"] for i in about if i in found), {}) or _environment(),
            rule_set=RULE_SET,
            expected=[result.check for result in results],
            results=results,
            untested=untested(),
            overdue=list(dict.fromkeys(line for each in about.values() for line in each["overdue"])),
        )
        stem = path.stem if len(names) == 1 else f"{path.stem}-{re.sub('[^A-Za-z0-9_.-]+', '-', name)}"
        save(report, path.with_stem(stem))


def _environment() -> dict[str, Any]:
    """Return where checks would have run."""
    worker = _shared_worker()
    worker.start()
    return worker.environment
