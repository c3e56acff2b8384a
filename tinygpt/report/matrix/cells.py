"""The cells of the matrix, from reports and self-tests. Pure: dicts in, cells out.

A cell is published only where the judge was proven: a self-test ran under the same release, on the same backend, under
the same rules, with no law broken, and the report holds a result for every check that it was to run. Otherwise it is a
question mark with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

UNKNOWN = "?"
# Worst first: a rule with several checks is as good as the worst of them.
VERDICTS = ("fail", "error", "xpass", "inconclusive", "not_run", "xfail", "pass", "not_applicable")
LEVELS = ("required", "optional")

Content = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One environment: a release on a backend."""

    release: str
    backend: str

    @property
    def label(self) -> str:
        """Both."""
        return f"{self.release} {self.backend}"


@dataclass(frozen=True)
class Cell:
    """What is known of a rule for a subject in an environment.

    Attributes:
        verdict: One of ``VERDICTS``, or ``?``.
        evidence: Name of the file that says so; empty if there is none.
        note: The message of the worst check; or why nothing is published.
    """

    verdict: str
    evidence: str = ""
    note: str = ""


@dataclass(frozen=True)
class Rule:
    """A row.

    Attributes:
        name: Id of the rule, with (o) where it is optional.
        level: ``required`` or ``optional``.
        about: The names of its checks, in words.
    """

    name: str
    level: str
    about: str


@dataclass(frozen=True)
class Matrix:
    """Everything that was judged.

    Attributes:
        subjects: Names, tinygpt first.
        rules: Rows, in the order of the reports.
        columns: Environments, the newest release first.
        cells: By subject, rule and environment; where nothing was judged there is none.
    """

    subjects: Sequence[str]
    rules: Sequence[Rule]
    columns: Sequence[Column]
    cells: Mapping[tuple[str, str, Column], Cell]

    def counts(self) -> dict[str, int]:
        """Return how many cells have each verdict."""
        found = [cell.verdict for cell in self.cells.values()]
        return {verdict: found.count(verdict) for verdict in (*VERDICTS, UNKNOWN) if verdict in found}


def matrix(reports: Mapping[str, Content], self_tests: Mapping[str, Content]) -> Matrix:
    """Return the cells of all reports.

    Args:
        reports: The reports of ``tinygpt check --report``, by the name of their file.
        self_tests: Those of ``tinygpt check --self-test --report``.
    """
    judges: dict[Column, list[Content]] = {}
    for content in self_tests.values():
        judges.setdefault(_column(content), []).append(content)
    files: dict[tuple[str, Column], list[str]] = {}
    for file, report in sorted(reports.items()):
        files.setdefault((report["subject"]["name"], _column(report)), []).append(file)
    cells: dict[tuple[str, str, Column], Cell] = {}
    rules: dict[str, Rule] = {}
    for (subject, column), names in files.items():
        file, report = names[0], reports[names[0]]
        unlike = [name for name in names if _statuses(reports[name]) != _statuses(report)]
        reason = f"reports that differ: {file}, {unlike[0]}" if unlike else ""
        reason = reason or _unproven(report, judges.get(column, []))
        for rule, results in _by_rule(report["results"]).items():
            rules.setdefault(rule, Rule(rule, results[0]["level"], _about(results)))
            cells[subject, rule, column] = Cell(UNKNOWN, file, reason) if reason else _worst(results, file)
    subjects = {subject for subject, _, _ in cells}
    return Matrix(
        subjects=sorted(subjects, key=lambda name: (name != "tinygpt", name == "plain", name)),
        rules=list(rules.values()),
        columns=sorted({column for _, _, column in cells}, key=_age),
        cells=cells,
    )


def _unproven(report: Content, judges: Sequence[Content]) -> str:
    """Return why nothing is published of a report; empty if all of it is."""
    if not judges:
        return "no self-test ran in this environment"
    broken = [judge for judge in judges if judge["broken"]]
    if broken:
        return f"the self-test found {len(broken[0]['broken'])} laws broken"
    if any(str(judge["rule_set"]) != str(report["rule_set"]) for judge in judges):
        return f"the self-test is of rule set {judges[0]['rule_set']}"
    checks = sorted(result["check"] for result in report["results"])
    proven = {run for judge in judges for runs in judge["killed"].values() for run in runs}
    proven |= {run for judge in judges for run in judge["unprovable"]}
    open_checks = [check for check in checks if check not in proven]
    if open_checks:
        return f"the self-test proves no {open_checks[0]}"
    whole = {run for judge in judges for row in judge["statuses"].values() for run in row}
    if sorted(report["expected"]) != checks or not whole <= set(checks):
        return "the list of results is not complete"
    return ""


def _column(content: Content) -> Column:
    environment = content["environment"]
    return Column(environment["packages"].get("mlx", "unknown"), environment["backend"])


def _statuses(report: Content) -> dict[str, str]:
    return {result["check"]: result["status"] for result in report["results"]}


def _by_rule(results: Sequence[Content]) -> dict[str, list[Content]]:
    found: dict[str, list[Content]] = {}
    for result in results:
        mark = " (o)" if result["level"] == "optional" else ""  # a rule may have checks of either level
        found.setdefault(result["rule"] + mark, []).append(result)
    return found


def _about(results: Sequence[Content]) -> str:
    names = dict.fromkeys(r["check"].partition("[")[0].partition(".")[2].replace("_", " ") for r in results)
    return ", ".join(names)


def _worst(results: Sequence[Content], file: str) -> Cell:
    worst = min(results, key=lambda result: VERDICTS.index(result["status"]))
    said = f"{worst['check']}: {worst['message']}" if worst["message"] else ""
    return Cell(worst["status"], file, said)


def _age(column: Column) -> tuple[Any, str]:
    """Return what sorts the newest release first."""
    try:
        numbers = Version(column.release).release
    except InvalidVersion:
        numbers = ()
    return tuple(-number for number in numbers), column.backend
