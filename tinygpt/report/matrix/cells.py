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
    proven = {_column(content): _unproven(content) for content in self_tests.values()}
    rule_sets = {_column(content): str(content["rule_set"]) for content in self_tests.values()}
    cells: dict[tuple[str, str, Column], Cell] = {}
    rules: dict[str, Rule] = {}
    for file, report in sorted(reports.items()):
        column = _column(report)
        reason = proven.get(column, "no self-test ran in this environment")
        if not reason and rule_sets[column] != str(report["rule_set"]):
            reason = f"the self-test is of rule set {rule_sets[column]}"
        if sorted(report["expected"]) != sorted(result["check"] for result in report["results"]):
            reason = "the list of results is not complete"
        for rule, results in _by_rule(report["results"]).items():
            rules.setdefault(rule, Rule(rule, results[0]["level"], _about(results)))
            key = (report["subject"]["name"], rule, column)
            cells[key] = Cell(UNKNOWN, file, reason) if reason else _worst(results, file)
    subjects = {subject for subject, _, _ in cells}
    return Matrix(
        subjects=sorted(subjects, key=lambda name: (name != "tinygpt", name == "plain", name)),
        rules=list(rules.values()),
        columns=sorted({column for _, _, column in cells}, key=_age),
        cells=cells,
    )


def _column(content: Content) -> Column:
    environment = content["environment"]
    return Column(environment["packages"].get("mlx", "unknown"), environment["backend"])


def _unproven(self_test: Content) -> str:
    """Return what a self-test has against the judge; empty if nothing."""
    broken = len(self_test["broken"])
    return f"the self-test found {broken} laws broken" if broken else ""


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
