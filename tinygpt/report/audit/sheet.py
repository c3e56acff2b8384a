"""Several audits side by side: a row for every model, a column for every way to train it under every release."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from tinygpt.errors import ReportError
from tinygpt.report.audit.text import Record

TRAININGS, MODES = ("full", "lora", "qlora"), ("eager", "compiled")


@dataclass(frozen=True)
class Column:
    """A way to train.

    Attributes:
        release: Of mlx-lm; empty for models of somebody's own.
        training: What is trained.
        mode: Eager or compiled.
    """

    release: str
    training: str
    mode: str

    @property
    def label(self) -> str:
        """How it is trained, in words."""
        return self.training if self.mode == "eager" else f"{self.training}, {self.mode}"


@dataclass(frozen=True)
class Sheet:
    """All findings.

    Attributes:
        columns: The newest release first.
        wrappers: In the order of the reports.
        models: By name.
        findings: By wrapper, model and column: the fields of a finding, with ``evidence``, the file it is from.
        releases: Of MLX, by release of mlx-lm.
        seconds: Of the audits of a release of mlx-lm, together.
    """

    columns: Sequence[Column]
    wrappers: Sequence[str]
    models: Sequence[str]
    findings: Mapping[tuple[str, str, Column], Record]
    releases: Mapping[str, str]
    seconds: Mapping[str, float]

    def of(self, release: str) -> list[Record]:
        """Return all findings of a release of mlx-lm."""
        return [found for (_, _, column), found in self.findings.items() if column.release == release]


def sheet(reports: Mapping[str, Any]) -> Sheet:
    """Put audits side by side.

    Args:
        reports: As ``tinygpt audit --report`` writes them, by the name of their file.

    Raises:
        ReportError: A model was examined twice in the same way.
    """
    findings: dict[tuple[str, str, Column], Record] = {}
    releases: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for file, report in sorted(reports.items()):
        for each in report["findings"]:
            if not {"slope", "handovers"} <= each.keys():
                raise ReportError(f"[audit] {file}: got a report of an older tinygpt, expected to run the audit anew")
        release = report["mlx_lm"]
        releases[release] = report["environment"]["packages"]["mlx"]
        seconds[release] = seconds.get(release, 0) + report["seconds"]
        for each in report["findings"]:
            key = each["wrapper"], each["model"], Column(release, each["training"], each["mode"])
            if key in findings:
                raise ReportError(
                    f"[audit] {file}: got {each['model']} under {each['wrapper']} again, expected it in "
                    f"{findings[key]['evidence']} alone"
                )
            findings[key] = {**each, "evidence": file}
    return Sheet(
        columns=sorted({column for _, _, column in findings}, key=_age),
        wrappers=list(dict.fromkeys(wrapper for wrapper, _, _ in findings)),
        models=sorted({model for _, model, _ in findings}),
        findings=findings,
        releases=dict(sorted(releases.items(), key=lambda pair: Version(pair[0] or "0"), reverse=True)),
        seconds=seconds,
    )


def _age(column: Column) -> tuple[Any, ...]:
    """Return what sorts the newest release first, and the simplest training."""
    numbers = tuple(-number for number in Version(column.release or "0").release)
    return numbers, TRAININGS.index(column.training), MODES.index(column.mode)
