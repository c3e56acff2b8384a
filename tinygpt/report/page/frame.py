"""The frame of a page: everything but its tables."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from urllib.parse import quote


def page(title: str, about: str, legend: Sequence[str], choices: Sequence[str], tables: Sequence[str]) -> str:
    """Return a page.

    Args:
        title: Its heading.
        about: A sentence or two below it, as text.
        legend: Signs with their words, as ``explained`` returns them.
        choices: What can be chosen, as ``choice`` returns it.
        tables: As ``table`` returns them.
    """
    style, script = (
        files("tinygpt.report.page").joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    newline = "\n"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{escape(about)}</p>
<ul class="legend">{"".join(legend)}</ul>
</header>
<form id="filter" hidden>
{newline.join(choices)}
<p id="shown" role="status" aria-live="polite"></p>
</form>
<main>
{newline.join(tables)}
</main>
<script>
{script}</script>
</body>
</html>
"""


def explained(kind: str, sign: str, words: str) -> str:
    """Return an entry of the legend."""
    return f'<li><span class="sign {kind}" aria-hidden="true">{escape(sign)}</span> {escape(words)}</li>'


def choice(name: str, label: str, values: Mapping[str, str]) -> str:
    """Return a list to choose from.

    Args:
        name: ``subject``, ``level`` or ``verdict``: what of a table it is about.
        label: Said before it.
        values: What is shown, by what stands in the table.
    """
    options = "".join(f'<option value="{escape(v)}">{escape(text)}</option>' for v, text in values.items())
    return f'<label>{escape(label)} <select name="{name}"><option value="">all</option>{options}</select></label>'


def table(subject: str, about: str, columns: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    """Return a table with its heading.

    Args:
        subject: The heading.
        about: What goes down and what across: ``rule by release``.
        columns: What stands over each, in two lines.
        rows: As ``row`` returns them.
    """
    name, down = escape(subject), escape(about.partition(" ")[0])
    head = "".join(f'<th scope="col"><span>{escape(first)}</span> {escape(second)}</th>' for first, second in columns)
    newline = "\n"
    return f"""<section data-subject="{name}">
<h2>{name}</h2>
<div class="scroll" tabindex="0" role="region" aria-label="{name}: {escape(about)}">
<table>
<thead><tr><th scope="col">{down}</th>{head}</tr></thead>
<tbody>
{newline.join(rows)}
</tbody>
</table>
</div>
</section>"""


def row(level: str, name: str, about: str, cells: Sequence[str]) -> str:
    """Return a row.

    Args:
        level: What it can be chosen by.
        name: Of the row.
        about: Said after it.
        cells: As ``cell`` returns them, or empty.
    """
    words = f"{escape(name)} <small>{escape(about)}</small>"
    return f'<tr data-level="{escape(level)}"><th scope="row">{words}</th>{"".join(cells)}</tr>'


def cell(kind: str, sign: str, words: str, note: str, link: str) -> str:
    """Return a cell that can be read without seeing it.

    Args:
        kind: Class of its verdict.
        sign: What is seen.
        words: The same in words.
        note: More of it, shown where the pointer is.
        link: Where it comes from.
    """
    title = escape(f"{words}. {note}" if note else words)
    return (
        f'<td data-verdict="{kind}"><a class="sign {kind}" href="{quote(link)}" title="{title}">'
        f'<span aria-hidden="true">{escape(sign)}</span><span class="words">{escape(words)}</span></a></td>'
    )


EMPTY = "<td></td>"
