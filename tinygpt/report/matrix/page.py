"""The matrix as one static page: whole without JavaScript, filtered with it, readable on a phone."""

import html
from importlib.resources import files
from urllib.parse import quote

from tinygpt.report.matrix.cells import LEVELS, UNKNOWN, VERDICTS, Cell, Column, Matrix, Rule
from tinygpt.report.matrix.markdown import SIGNS, WORDS

CLASSES = {UNKNOWN: "unknown", **{verdict: verdict.replace("_", "-") for verdict in VERDICTS}}


def as_page(found: Matrix, evidence: str) -> str:
    """Return the page.

    Args:
        found: The matrix.
        evidence: The folder of the reports, as a link from where the page will be.
    """
    own = files("tinygpt.report.matrix")
    style, script = (own.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    counts = ", ".join(f"{count} {WORDS[verdict]}" for verdict, count in found.counts().items())
    tables = "\n".join(_table(found, subject, evidence) for subject in found.subjects)
    legend = "".join(
        f'<li><span class="sign {CLASSES[verdict]}" aria-hidden="true">{SIGNS[verdict]}</span> {WORDS[verdict]}</li>'
        for verdict in found.counts()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Checkpointing on MLX: rules by subject and release</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<h1>Checkpointing on MLX</h1>
<p>Which wrapper keeps which rule, under which MLX release: {html.escape(counts)}. Each cell links to its report.</p>
<ul class="legend">{legend}</ul>
</header>
<form id="filter" hidden>
{_choice("subject", "Subject", {name: name for name in found.subjects})}
{_choice("level", "Level", dict.fromkeys(LEVELS, "") | {level: level for level in LEVELS})}
{_choice("verdict", "Verdict", {CLASSES[v]: WORDS[v] for v in (*VERDICTS, UNKNOWN) if v in found.counts()})}
<p id="shown" role="status" aria-live="polite"></p>
</form>
<main>
{tables}
</main>
<script>
{script}</script>
</body>
</html>
"""


def _choice(name: str, label: str, values: dict[str, str]) -> str:
    options = "".join(f'<option value="{html.escape(v)}">{html.escape(text)}</option>' for v, text in values.items())
    return f'<label>{label} <select name="{name}"><option value="">all</option>{options}</select></label>'


def _table(found: Matrix, subject: str, evidence: str) -> str:
    columns = [c for c in found.columns if any((subject, rule.name, c) in found.cells for rule in found.rules)]
    head = "".join(
        f'<th scope="col"><span>{html.escape(c.release)}</span> {html.escape(c.backend)}</th>' for c in columns
    )
    rows = "\n".join(_row(found, subject, rule, columns, evidence) for rule in found.rules)
    name = html.escape(subject)
    return f"""<section data-subject="{name}">
<h2>{name}</h2>
<div class="scroll" tabindex="0" role="region" aria-label="{name}: rules by release">
<table>
<thead><tr><th scope="col">rule</th>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</section>"""


def _row(found: Matrix, subject: str, rule: Rule, columns: list[Column], evidence: str) -> str:
    cells = "".join(_cell(found.cells.get((subject, rule.name, column)), evidence) for column in columns)
    name = f"{html.escape(rule.name)} <small>{html.escape(rule.about)}</small>"
    return f'<tr data-level="{rule.level}"><th scope="row">{name}</th>{cells}</tr>'


def _cell(cell: Cell | None, evidence: str) -> str:
    if cell is None:
        return "<td></td>"
    kind, said = CLASSES[cell.verdict], WORDS[cell.verdict]
    note = html.escape(f"{said}. {cell.note}" if cell.note else said, quote=True)
    return (
        f'<td data-verdict="{kind}"><a class="sign {kind}" href="{quote(evidence + cell.evidence)}" '
        f'title="{note}"><span aria-hidden="true">{SIGNS[cell.verdict]}</span>'
        f'<span class="words">{said}</span></a></td>'
    )
