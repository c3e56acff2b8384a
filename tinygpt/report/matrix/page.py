"""The matrix as one static page."""

from tinygpt.report.matrix.cells import LEVELS, UNKNOWN, VERDICTS, Column, Matrix, Rule
from tinygpt.report.matrix.markdown import SIGNS, WORDS
from tinygpt.report.page.frame import EMPTY, cell, choice, explained, page, row, table

CLASSES = {UNKNOWN: "unknown", **{verdict: verdict.replace("_", "-") for verdict in VERDICTS}}


def as_page(found: Matrix, evidence: str) -> str:
    """Return the page.

    Args:
        found: The matrix.
        evidence: The folder of the reports, as a link from where the page will be.
    """
    verdicts = [verdict for verdict in (*VERDICTS, UNKNOWN) if verdict in found.counts()]
    counts = ", ".join(f"{count} {WORDS[verdict]}" for verdict, count in found.counts().items())
    return page(
        "Checkpointing on MLX: rules by subject and release",
        f"Which wrapper keeps which rule, under which MLX release: {counts}. Each cell links to its report.",
        [explained(CLASSES[verdict], SIGNS[verdict], WORDS[verdict]) for verdict in found.counts()],
        [
            choice("subject", "Subject", {name: name for name in found.subjects}),
            choice("level", "Level", {level: level for level in LEVELS}),
            choice("verdict", "Verdict", {CLASSES[verdict]: WORDS[verdict] for verdict in verdicts}),
        ],
        [_table(found, subject, evidence) for subject in found.subjects],
    )


def _table(found: Matrix, subject: str, evidence: str) -> str:
    columns = [c for c in found.columns if any((subject, rule.name, c) in found.cells for rule in found.rules)]
    rows = [_row(found, subject, rule, columns, evidence) for rule in found.rules]
    return table(subject, "rule by release", [(c.release, c.backend) for c in columns], rows)


def _row(found: Matrix, subject: str, rule: Rule, columns: list[Column], evidence: str) -> str:
    cells = []
    for column in columns:
        known = found.cells.get((subject, rule.name, column))
        if known is None:
            cells.append(EMPTY)
            continue
        said = WORDS[known.verdict]
        cells.append(cell(CLASSES[known.verdict], SIGNS[known.verdict], said, known.note, evidence + known.evidence))
    return row(rule.level, rule.name, rule.about, cells)
