"""What a judgement found: one result for each run of a check, and the report that holds them all."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tinygpt.errors import ReportError

STATUSES = ("pass", "fail", "error", "xfail", "xpass", "not_applicable", "inconclusive", "not_run")
LEVELS = ("required", "optional")

# What stands against a verdict, and for whom: a wrapper that does not conform, or a judgement that is not finished.
AGAINST = ("fail", "xpass")
UNFINISHED = ("error", "inconclusive", "not_run")

EXIT_CONFORMS, EXIT_FAILS, EXIT_INCOMPLETE, EXIT_USAGE = 0, 1, 2, 3

TOOL = "tinygpt"
FORMAT = 1


@dataclass(frozen=True)
class Result:
    """What one run of a check found.

    Attributes:
        rule: Id of the rule.
        check: Id of the run: ``G1.parameters[eager]``.
        level: ``required`` or ``optional``.
        status: One of ``STATUSES``.
        message: What was expected and what was seen, where; or why there is no verdict.
        measured: Numbers by name; sizes end in ``_bytes``.
        bound: What they had to keep.
        schedule: In which order it was evaluated.
        again: The command that repeats it.
        seconds: How long it took.
    """

    rule: str
    check: str
    level: str
    status: str
    message: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)
    bound: str = ""
    schedule: str = ""
    again: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """All results of a judgement.

    Attributes:
        subject: ``name``, ``version``, ``shape``, ``address`` and ``declines`` of the subject.
        environment: Where it ran; see ``tinygpt.environment.describe``.
        rule_set: Which rules it was held to.
        expected: The ids of all checks that were to run, computed before the first.
        results: One result for each of them.
        untested: Rules without a check, and why.
        overdue: Expectations whose date of review has passed.
    """

    subject: Mapping[str, Any]
    environment: Mapping[str, Any]
    rule_set: str
    expected: Sequence[str]
    results: Sequence[Result]
    untested: Mapping[str, str] = field(default_factory=dict)
    overdue: Sequence[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse a report that does not hold one result for each expected check."""
        found = Counter(result.check for result in self.results)
        expected = Counter(self.expected)
        if found != expected:
            odd = sorted((found - expected) + (expected - found))
            raise ReportError(
                f"[report] results: got {len(self.results)}, expected one for each check; see {', '.join(odd[:3])}"
            )

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How many results of each level have each status; statuses without any are left out."""
        tally = {level: Counter(r.status for r in self.results if r.level == level) for level in LEVELS}
        return {
            level: {status: tally[level][status] for status in STATUSES if tally[level][status]} for level in LEVELS
        }

    @property
    def exit_code(self) -> int:
        """0: conforms; 1: does not; 2: inconclusive or incomplete. An optional rule that fails does not count."""
        required = {result.status for result in self.results if result.level == "required"}
        everything = {result.status for result in self.results}
        if required.intersection(AGAINST) or "xpass" in everything:
            return EXIT_FAILS
        if required == {"not_applicable"}:  # nothing that is required was judged
            return EXIT_INCOMPLETE
        return EXIT_INCOMPLETE if everything.intersection(UNFINISHED) else EXIT_CONFORMS

    def as_dict(self) -> dict[str, Any]:
        """Return the report ready for JSON, with counts and checksum at its foot."""
        body = {"tool": TOOL, "format": FORMAT, **asdict(self)}
        body["expected"], body["overdue"] = list(self.expected), list(self.overdue)
        body["footer"] = {"counts": self.counts, "exit_code": self.exit_code}
        body["footer"]["sha256"] = _checksum(body)
        return body


def save(report: Report, path: Path) -> None:
    """Write a report as JSON.

    Raises:
        ReportError: The file cannot be written.
    """
    try:
        path.write_text(json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ReportError(f"[report] {path}: got {error.strerror}, expected a file to write to") from error


def load(path: Path) -> Report:
    """Read a report.

    Raises:
        ReportError: The file cannot be read, is empty, cut off, no report, or was edited.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"[report] {path}: got {error}, expected a readable report") from error
    if not text.strip():
        raise ReportError(f"[report] {path}: got an empty file, expected a report")
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReportError(
            f"[report] {path}: got JSON that ends or breaks at line {error.lineno}, expected a whole report"
        ) from error
    return _from_dict(body, str(path))


def _from_dict(body: Any, place: str) -> Report:
    import jsonschema  # noqa: PLC0415  (slow to import, and only reports need it)

    try:
        jsonschema.validate(body, schema())
    except jsonschema.ValidationError as error:
        where = "/".join(map(str, error.absolute_path)) or "the top"
        raise ReportError(
            f"[report] {place}: got {error.message[:200]} at {where}, expected a report of format {FORMAT}"
        ) from error
    stated = body["footer"].pop("sha256")
    if stated != _checksum(body):
        raise ReportError(
            f"[report] {place}: got a text that does not fit its checksum, expected one that nobody has edited"
        )
    names = ("subject", "environment", "rule_set", "expected", "untested", "overdue")
    report = Report(results=[Result(**result) for result in body["results"]], **{name: body[name] for name in names})
    if body["footer"] != {"counts": report.counts, "exit_code": report.exit_code}:
        raise ReportError(f"[report] {place}: got the counts {body['footer']['counts']}, expected {report.counts}")
    return report


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of a report."""
    text = files("tinygpt.conformance").joinpath("report.schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def _checksum(body: Mapping[str, Any]) -> str:
    """Return the checksum of a report, over everything but the checksum."""
    footer = {key: value for key, value in body["footer"].items() if key != "sha256"}
    canonical = json.dumps({**body, "footer": footer}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
