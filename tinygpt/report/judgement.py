"""A conformance report as text, Markdown or HTML. Pure: a dict in, text out."""

import html
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]

AGAINST = ("fail", "xpass", "error", "inconclusive", "not_run")
WORDS = {
    "not_applicable": "not applicable",
    "not_run": "not run",
    "xfail": "failed as expected",
    "xpass": "passed unexpectedly",
}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222;
background: #fff } table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top;
padding: .3rem .6rem; border-bottom: 1px solid #ddd } td.status { white-space: nowrap; font-weight: 600 } code {
font-size: .9em; overflow-wrap: anywhere } .pass { color: #17692f } .xfail, .not_applicable { color: #555 } .fail,
.error, .xpass, .inconclusive, .not_run { color: #a4161a } @media (prefers-color-scheme: dark) { body { color: #ddd;
background: #181818 } th, td { border-color: #444 } .pass { color: #6fcf8a } .xfail, .not_applicable { color: #aaa }
.fail, .error, .xpass, .inconclusive, .not_run { color: #ff8a80 } }
"""


def as_text(report: Report) -> str:
    """Return the report for a terminal: what did not pass, in full, then the counts."""
    lines = [_title(report)]
    for result in _noteworthy(report):
        lines += ["", f"{_word(result['status']).upper()} {result['check']} ({result['level']})"]
        lines += [f"  {line}" for line in _wrapped(result["message"])]
        if result["status"] in AGAINST:
            lines.append(f"  again: {result['again']}")
    notes = [*(f"untested {rule}: {why}" for rule, why in report["untested"].items())]
    notes += [f"overdue {line}" for line in report["overdue"]]
    lines += ["", *(line for note in notes for line in _wrapped(note))]
    return "\n".join([*lines, *headline(report)]) + "\n"


def headline(report: Report) -> list[str]:
    """Return the counts of each level, and what they mean."""
    counts = report["footer"]["counts"]
    verdict = {0: "conforms", 1: "does not conform", 2: "inconclusive or incomplete"}[report["footer"]["exit_code"]]
    return [
        *(f"{level}: {', '.join(f'{n} {_word(s)}' for s, n in counts[level].items()) or 'none'}" for level in counts),
        f"{report['subject']['name']}: {verdict}",
    ]


def as_markdown(report: Report) -> str:
    """Return the report as a page of Markdown: a table of everything."""
    rows = [f"| {r['check']} | {r['level']} | {_word(r['status'])} | {_cell(_detail(r))} |" for r in report["results"]]
    table = ["| check | level | verdict | |", "|---|---|---|---|", *rows]
    untested = [f"- untested: {rule}. {why}" for rule, why in report["untested"].items()]
    overdue = [f"- overdue: {line}" for line in report["overdue"]]
    return (
        "\n".join(
            [f"# {_title(report)}", "", *(f"- {line}" for line in headline(report)), *untested, *overdue, "", *table]
        )
        + "\n"
    )


def as_html(report: Report) -> str:
    """Return the report as one HTML file that needs nothing else."""
    title = html.escape(_title(report))
    items = [*headline(report), *(f"untested {r}: {w}" for r, w in report["untested"].items()), *report["overdue"]]
    rows = "\n".join(
        f"<tr><td><code>{html.escape(r['check'])}</code></td><td>{r['level']}</td>"
        f'<td class="status {r["status"]}">{_word(r["status"])}</td><td>{html.escape(_detail(r))}</td></tr>'
        for r in report["results"]
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in items)}</ul>\n"
        "<table><thead><tr><th>check</th><th>level</th><th>verdict</th><th></th></tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table></body></html>\n"
    )


FORMATS: dict[str, Callable[[Report], str]] = {"text": as_text, "markdown": as_markdown, "html": as_html}


def _title(report: Report) -> str:
    subject, environment = report["subject"], report["environment"]
    version = f" {subject['version']}" if subject["version"] else ""
    packages = ", ".join(f"{name} {number}" for name, number in environment["packages"].items())
    return f"{subject['name']}{version} under {packages} on {environment['backend']}, rule set {report['rule_set']}"


def _noteworthy(report: Report) -> Sequence[Mapping[str, Any]]:
    return [result for result in report["results"] if result["status"] != "pass"]


def _detail(result: Mapping[str, Any]) -> str:
    """Return the message, or what was measured."""
    if result["message"] or not result["measured"]:
        return str(result["message"])
    bound = f"; bound {result['bound']}" if result["bound"] else ""
    return ", ".join(f"{name}: {_value(value)}" for name, value in result["measured"].items()) + bound


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {_value(each)}" for name, each in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _word(status: str) -> str:
    return WORDS.get(status, status)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _wrapped(text: str, width: int = 76) -> list[str]:
    """Return lines that fit an 80-column terminal after their indent; words are never cut."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
