"""What changed from one MLX release to the next, as text and as Markdown. Pure: dicts in, text out."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygpt.printable import printable

Row = Mapping[str, Any]

VERDICTS = {
    0: "yes: nothing stands against it",
    1: "no: what is listed as worse, lost, or above its limit stands against it",
    2: "nothing can be said: run it again, or make the two comparable",
}
# What a reader should see first.
ORDER = (
    "worse",
    "coverage lost",
    "expectation to edit",
    "peak",
    "time",
    "incomparable",
    "rerun",
    "changed",
    "numbers",
    "slower",
    "not compared",
    "better",
)
MLX = "MLX itself: plain MLX went the same way"


@dataclass(frozen=True)
class Told:
    """What a gate found, ready to be shown.

    Attributes:
        labels: The releases, from the oldest.
        steps: For each neighbouring pair the transitions, as dicts.
        unproven: What stands against the judge itself, by release.
        code: The exit code.
    """

    labels: Sequence[str]
    steps: Sequence[Sequence[Row]]
    unproven: Mapping[str, Sequence[str]]
    code: int

    @property
    def pairs(self) -> list[tuple[str, str, list[Row]]]:
        """Each neighbouring pair, and what changed between them, the worst first."""
        steps = [sorted(step, key=lambda row: ORDER.index(row["kind"])) for step in self.steps]
        return list(zip(self.labels, self.labels[1:], steps, strict=False))


def as_text(told: Told) -> str:
    """Return what changed, for a terminal of 80 columns."""
    lines: list[str] = []
    for old, new, step in told.pairs:
        lines += ["", f"mlx {old} -> {new}: {_tally(step)}"]
        for row in step:
            head = f"{row['kind'].upper()} {row['subject']} {row['what']}: {row['base']} -> {row['candidate']}"
            said = "; ".join(filter(None, [MLX if row["mlx"] else "", row["message"]]))
            lines += [*_wrapped(head, "  "), *_wrapped(said, "    ")]
    for label, broken in told.unproven.items():
        lines += ["", f"not proven, {label}:", *(part for line in broken for part in _wrapped(line, "  "))]
    return "\n".join([*lines, "", VERDICTS[told.code]]).lstrip("\n")


def as_markdown(told: Told) -> str:
    """Return what changed as Markdown: a job summary."""
    lines = [f"# May we bump MLX? {VERDICTS[told.code].capitalize()}."]
    for old, new, step in told.pairs:
        lines += ["", f"## mlx {old} → {new}", "", _tally(step).capitalize() + "."]
        if step:
            lines += ["", "| | subject | what | before | now | |", "|---|---|---|---|---|---|"]
        for row in step:
            said = "; ".join(filter(None, [MLX if row["mlx"] else "", row["message"]]))
            cells = [row["kind"], row["subject"], row["what"], row["base"], row["candidate"], said]
            lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    for label, broken in told.unproven.items():
        lines += ["", f"Not proven, {label}:", "", *(f"- {_cell(line)}" for line in broken)]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(printable(text), 78, initial_indent=indent, subsequent_indent=indent + "  ")


def _tally(step: Sequence[Row]) -> str:
    counts = {kind: sum(row["kind"] == kind for row in step) for kind in ORDER}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "nothing changed"


def _cell(text: object) -> str:
    """Return a text as a cell of a table: nothing in it is markup."""
    plain = printable(text).replace("\\", "\\\\").replace("|", "\\|")
    return plain.replace("&", "&amp;").replace("<", "&lt;")
