"""The matrix as Markdown, JSON and a badge."""

from typing import Any

from tinygpt.report.matrix.cells import UNKNOWN, VERDICTS, Cell, Matrix

SIGNS = {
    "pass": "✓",
    "fail": "✗",
    "error": "!",
    "xfail": "(✗)",
    "xpass": "(✓)",
    "inconclusive": "~",
    "not_run": "0",
    "not_applicable": "-",
    UNKNOWN: "?",
}
WORDS = {UNKNOWN: "not published", **{verdict: verdict.replace("_", " ") for verdict in VERDICTS}}
WORDS |= {"xfail": "failed as expected", "xpass": "passed unexpectedly"}
GREEN, RED, GREY = "#17692f", "#a4161a", "#555"


def as_markdown(found: Matrix) -> str:
    """Return a table for each subject: rules down, environments across."""
    legend = ", ".join(f"{SIGNS[verdict]} {WORDS[verdict]}" for verdict in found.counts())
    lines = ["# Rules by subject, release and backend", "", f"{legend}."]
    for subject in found.subjects:
        columns = [c for c in found.columns if any((subject, rule.name, c) in found.cells for rule in found.rules)]
        lines += ["", f"## {subject}", "", f"| rule | level | {' | '.join(c.label for c in columns)} |"]
        lines.append("|---" * (2 + len(columns)) + "|")
        for rule in found.rules:
            cells = [found.cells.get((subject, rule.name, column)) for column in columns]
            lines.append(f"| {rule.name} | {rule.level} | {' | '.join(map(_sign, cells))} |")
        reasons = {
            f"- {c.label}: {cell.note}"
            for c in columns
            for rule in found.rules
            if (cell := found.cells.get((subject, rule.name, c))) and cell.verdict == UNKNOWN
        }
        lines += ["", *sorted(reasons)] if reasons else []
    return "\n".join(lines) + "\n"


def as_record(found: Matrix) -> dict[str, Any]:
    """Return the matrix ready for JSON."""
    return {
        "counts": found.counts(),
        "cells": [
            {
                "subject": subject,
                "rule": rule,
                "mlx": column.release,
                "backend": column.backend,
                "verdict": cell.verdict,
                "evidence": cell.evidence,
                "note": cell.note,
            }
            for (subject, rule, column), cell in found.cells.items()
        ],
    }


def as_badge(found: Matrix, subject: str = "tinygpt") -> str:
    """Return an SVG that says in how many environments a subject keeps every required rule."""
    required = {rule.name for rule in found.rules if rule.level == "required"}
    kept, judged = 0, 0
    for column in found.columns:
        verdicts = {found.cells[key].verdict for rule in required if (key := (subject, rule, column)) in found.cells}
        judged += bool(verdicts - {UNKNOWN})
        kept += bool(verdicts) and verdicts <= {"pass", "not_applicable"}
    value = f"{kept} of {judged} environments" if judged else "not judged"
    colour = GREY if not judged else GREEN if kept == judged else RED
    name, width = f"{subject} conforms", 7
    left, right = 12 + width * len(name), 12 + width * len(value)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{name}: {value}"><title>{name}: {value}</title>'
        f'<rect width="{left}" height="20" fill="#333"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14">{name}</text><text x="{left + right / 2}" y="14">{value}</text></g></svg>\n'
    )


def _sign(cell: Cell | None) -> str:
    return "" if cell is None else SIGNS[cell.verdict]
