"""Audits as one static page: a table for every wrapper, models down, releases and ways to train across."""

from collections.abc import Sequence

from tinygpt.printable import printable
from tinygpt.report.audit.markdown import SIGNS, ratios
from tinygpt.report.audit.sheet import Column, Sheet
from tinygpt.report.audit.text import ORDER, Record, beside
from tinygpt.report.page.frame import EMPTY, cell, choice, explained, page, row, table

# The classes that the page has colours for.
CLASSES = {
    "right": "pass",
    "right but for order": "xfail",
    "wrong": "fail",
    "nan": "error",
    "error": "xpass",
    "saves nothing": "inconclusive",
    "not trainable plain": "not-applicable",
    "not built": "not-run",
}


def as_page(found: Sheet, evidence: str) -> str:
    """Return the page.

    Args:
        found: The audits.
        evidence: The folder of the reports, as a link from where the page will be.
    """
    verdicts = [each["verdict"] for each in found.findings.values()]
    known = [verdict for verdict in ORDER if verdict in verdicts]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in reversed(known))
    releases = ", ".join(release or "none" for release in found.releases)
    return page(
        "Other people's models under checkpointing",
        f"Tiny models of the architectures of mlx-lm {releases}, two steps, plain against checkpointed: {counts}. "
        "Two numbers: the peak, and what a further block costs, as shares of plain's.",
        [explained(CLASSES[verdict], SIGNS[verdict], verdict) for verdict in known],
        [
            choice("subject", "Wrapper", {wrapper: wrapper for wrapper in found.wrappers}),
            choice("verdict", "Verdict", {CLASSES[verdict]: verdict for verdict in known}),
        ],
        [_table(found, wrapper, evidence) for wrapper in found.wrappers],
    )


def _table(found: Sheet, wrapper: str, evidence: str) -> str:
    columns = [(column.release, column.label) for column in found.columns]
    rows = [_row(found, wrapper, model, found.columns, evidence) for model in found.models]
    return table(wrapper, "model by release", columns, rows)


def _row(found: Sheet, wrapper: str, model: str, columns: Sequence[Column], evidence: str) -> str:
    records = [found.findings.get((wrapper, model, column)) for column in columns]
    blocks = max((each["blocks"] for each in records if each), default=0)
    cells = [_cell(each, evidence) if each else EMPTY for each in records]
    return row("", model, f"{blocks} blocks" if blocks else "", cells)


def _cell(record: Record, evidence: str) -> str:
    verdict = record["verdict"]
    note = printable(" ".join([record["message"], *beside(record)]).strip())
    sign = " ".join([SIGNS[verdict], *ratios(record)])
    return cell(CLASSES[verdict], sign, verdict, note, evidence + record["evidence"])
