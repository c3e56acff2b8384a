"""The table of all rows, as records and as text; pure."""

from collections.abc import Sequence
from typing import Any

from tinygpt.savings.judge import RowReport
from tinygpt.units import format_bytes

HEADINGS = ("row", "as run", "plain", "checkpointed", "ratio", "threshold", "verdict")

Record = dict[str, Any]


def as_record(report: RowReport) -> Record:
    """Return a row as plain data, ready for JSON; sizes in bytes."""
    plan = report.plan
    return {
        "row": str(plan.row),
        "as_run": str(plan),
        "whole": plan.whole,
        "reason": plan.reason,
        "plain_bytes": report.plain_bytes,
        "checkpointed_bytes": report.checkpointed_bytes,
        "ratio": report.ratio,
        "threshold": report.threshold,
        "verdict": report.verdict,
        "plain_trials_bytes": [pair.plain.trials_bytes for pair in report.pairs],
        "checkpointed_trials_bytes": [pair.checkpointed.trials_bytes for pair in report.pairs],
        "schedule": report.pairs[0].plain.schedule,
    }


def as_lines(records: Sequence[Record]) -> list[str]:
    """Return the table, and a line on what was not run as it is meant."""
    rows = [HEADINGS, *(_cells(record) for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]
    projected = [record for record in records if not record["whole"]]
    if projected:
        reasons = " and ".join(sorted({record["reason"] for record in projected}))
        lines.append(
            f"~ {len(projected)} of {len(records)} rows projected from the blocks as run, for want of {reasons}"
        )
    return lines


def _cells(record: Record) -> tuple[str, ...]:
    mark = "" if record["whole"] else "~"
    return (
        record["row"],
        record["as_run"],
        mark + format_bytes(record["plain_bytes"]),
        mark + format_bytes(record["checkpointed_bytes"]),
        f"{record['ratio']:.3f}",
        f"{record['threshold']:.2f}",
        record["verdict"],
    )
