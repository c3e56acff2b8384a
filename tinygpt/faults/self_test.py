"""Judge the judge: every fault against every check.

Four laws. Every check catches a fault. Every fault is caught by the checks that it names, with the words that it names.
No check fails a wrapper that is right. The whole matrix is recorded, also where a fault is caught by a check that it
does not name.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygpt.conformance.bound import BoundCheck
from tinygpt.conformance.results import Result
from tinygpt.conformance.rules import RULE_SET, select
from tinygpt.conformance.runner import JOBS, judge_all
from tinygpt.conformance.subjects import Subject
from tinygpt.faults.controls import controls
from tinygpt.faults.fault import Fault, all_faults

# What may be said of a wrapper that is right.
CLEAN = ("pass", "not_applicable")


@dataclass(frozen=True)
class Matrix:
    """What every check said about every fault and every control.

    Attributes:
        environment: Where it ran.
        statuses: By wrapper, then by run of a check.
        killed: By fault, the runs of checks that caught it, and whether they said what they had to.
        broken: What is against one of the laws, in words.
        unprovable: Runs that say nothing here, such as half precision on releases that cannot compute in it.
    """

    environment: Mapping[str, Any]
    statuses: Mapping[str, Mapping[str, str]]
    killed: Mapping[str, Sequence[str]]
    broken: Sequence[str] = ()
    unprovable: Sequence[str] = ()

    @property
    def proven(self) -> bool:
        """Whether all laws hold."""
        return not self.broken

    def as_dict(self) -> dict[str, Any]:
        """Return the matrix ready for JSON."""
        return {
            "rule_set": RULE_SET,
            "environment": dict(self.environment),
            "faults": len(self.killed),
            "broken": list(self.broken),
            "unprovable": list(self.unprovable),
            "killed": {name: list(by) for name, by in self.killed.items()},
            "statuses": {name: dict(row) for name, row in self.statuses.items()},
        }

    def as_text(self) -> str:
        """Return what a terminal shows."""
        runs = Counter(status for row in self.statuses.values() for status in row.values())
        right = len(controls())
        alive = [name for name, by in self.killed.items() if not by]
        tally = ", ".join(f"{count} {status}" for status, count in sorted(runs.items()))
        lines = [*self.broken, ""] if self.broken else []
        return "\n".join(
            [
                *lines,
                f"{len(self.killed)} faults, {right} controls, {runs.total()} verdicts: {tally}",
                f"not provable here: {', '.join(self.unprovable) or 'nothing'}",
                f"survivors: {', '.join(alive) or 'none'}; laws broken: {len(self.broken)}",
            ]
        ).replace("\\\\n", "\\n")


def cells(rules: Iterable[str], *, whole: bool = True) -> list[BoundCheck]:
    """Return the verdicts that a self-test takes.

    Args:
        rules: Patterns.
        whole: Whether every fault meets every check; if not, those that it names.
    """
    naming = {fault.name: fault for fault in all_faults()}
    subjects: list[Subject] = [*(fault.subject for fault in all_faults()), *controls()]
    # One check after another: its plain controls are computed once in each process.
    return [
        bound
        for check, mode in select(rules)
        for bound in (BoundCheck(check, mode, subject) for subject in subjects)
        if whole or bound.subject.name not in naming or naming[bound.subject.name].must_fail(bound.id)
    ]


def self_test(
    rules: Iterable[str] = ("*",),
    *,
    whole: bool = True,
    jobs: int = JOBS,
    timeout_s: float = 300.0,
    listener: Callable[[Result], object] = lambda _: None,
) -> Matrix:
    """Judge every fault and every control by every check.

    Args:
        rules: Patterns; faults of other checks are judged too, and nothing is demanded of them.
        whole: Whether every fault meets every check; if not, those that it names: what the first three laws need.
        jobs: Processes side by side.
        timeout_s: Longest time for one verdict.
        listener: Called with each result as it comes.

    Raises:
        SubjectError: There is no such rule.
    """
    planted, right = all_faults(), controls()
    subjects: list[Subject] = [*(fault.subject for fault in planted), *right]
    checks = cells(rules, whole=whole)
    found, environment = judge_all(checks, jobs=jobs, timeout_s=timeout_s, listener=listener)
    by_subject: dict[str, dict[str, Result]] = {subject.name: {} for subject in subjects}
    for check, result in found:
        by_subject[check.subject.name][check.id] = result
    broken, unprovable = _unproven(planted, by_subject, list(dict.fromkeys(bound.id for bound in checks)))
    return Matrix(
        environment=environment,
        statuses={name: {check: result.status for check, result in row.items()} for name, row in by_subject.items()},
        killed={
            fault.name: [run for run, result in row.items() if result.status == "fail"]
            for fault in planted
            if any(map(fault.must_fail, row := by_subject[fault.name]))
        },
        broken=[*broken, *_unclean(right, by_subject)],
        unprovable=unprovable,
    )


def _unproven(
    planted: Sequence[Fault], found: Mapping[str, Mapping[str, Result]], runs: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return where a fault is not caught as it says and which runs catch none; and which runs say nothing here."""
    broken, killing, silent = [], set(), set()
    for fault in planted:
        for run in (run for run in found[fault.name] if fault.must_fail(run)):
            result = found[fault.name][run]
            if result.status == "not_applicable":  # no fault declines anything: plain MLX cannot do it here
                silent.add(run)
            elif result.status != "fail":
                broken.append(f"{fault.name} survives {run}: {result.status} {result.message}".rstrip())
            elif fault.words not in result.message:
                broken.append(f"{fault.name} is caught by {run} without the words {fault.words!r}: {result.message}")
            else:
                killing.add(run)
    broken += [f"{run} catches no fault that names it" for run in runs if run not in killing | silent]
    return broken, [run for run in runs if run in silent - killing]


def _unclean(right: Sequence[Subject], found: Mapping[str, Mapping[str, Result]]) -> list[str]:
    """Return what is said against wrappers that are right."""
    return [
        f"control {subject.name} at {run}: {result.status} {result.message}"
        for subject in right
        for run, result in found[subject.name].items()
        if result.status not in CLEAN
    ]
