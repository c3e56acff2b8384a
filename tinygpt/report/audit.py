"""An audit of other people's models, as text and as Markdown. Pure: dicts in, text out."""

from collections.abc import Mapping, Sequence
from typing import Any

from tinygpt.printable import printable

Record = Mapping[str, Any]

# The worst first; a model that is right says the least.
ORDER = (
    "nan",
    "wrong",
    "error",
    "not built",
    "saves nothing",
    "not trainable plain",
    "right but for order",
    "right",
)
GOOD = ("right", "right but for order", "not trainable plain")
EXIT_GOOD, EXIT_BAD = 0, 1
LONGEST = 200  # characters of a message in a table


def exit_code(report: Record) -> int:
    """Return 0 if every model is right under every wrapper, or cannot be trained even plain; else 1."""
    return EXIT_GOOD if all(each["verdict"] in GOOD for each in report["findings"]) else EXIT_BAD


def as_text(report: Record) -> str:
    """Return what stands against each wrapper, and the counts."""
    lines = []
    for each in sorted(report["findings"], key=_rank):
        if each["verdict"] != "right":
            lines.append(
                f"{each['verdict'].upper()} {each['model']} under {each['wrapper']}{_kind(each)}{_share(each)}"
            )
            if each["message"]:
                lines.append(f"  {printable(_short(each['message']))}")
    return "\n".join([*lines, *([""] if lines else []), *_counts(report)])


def as_markdown(report: Record) -> str:
    """Return a table with a row for every model and a column for every wrapper, and what is wrong below it."""
    findings = report["findings"]
    wrappers = list(dict.fromkeys(each["wrapper"] for each in findings))
    rows: dict[tuple[str, str, str], dict[str, Record]] = {}
    for each in findings:
        rows.setdefault((each["model"], each["training"], each["mode"]), {})[each["wrapper"]] = each
    lines = [
        f"mlx-lm {report['mlx_lm'] or 'not installed'}, MLX {report['environment']['packages']['mlx']}, "
        f"{report['environment']['backend']}, {report['seconds']:.0f} s.",
        "",
        *_counts(report),
        "",
        f"| model | training | mode | blocks | {' | '.join(wrappers)} |",
        "|---" * (4 + len(wrappers)) + "|",
    ]
    for (model, training, mode), found in rows.items():
        blocks = max(each["blocks"] for each in found.values())
        cells = [_cell(found[wrapper]) if wrapper in found else "" for wrapper in wrappers]
        lines.append(f"| {model} | {training} | {mode} | {blocks or ''} | {' | '.join(cells)} |")
    told = [
        each for each in sorted(findings, key=_rank) if each["message"] and each["verdict"] != "right but for order"
    ]
    lines += ["", *(f"- **{each['model']}** under {each['wrapper']}{_kind(each)}: {_escaped(each)}" for each in told)]
    return "\n".join(lines) + "\n"


def _rank(record: Record) -> tuple[int, str, str]:
    return ORDER.index(record["verdict"]), record["wrapper"], record["model"]


def _kind(record: Record) -> str:
    kinds = [each for each in (record["training"], record["mode"]) if each not in ("full", "eager")]
    return f" ({', '.join(kinds)})" if kinds else ""


def _share(record: Record) -> str:
    return f": {record['wrong']} of {record['leaves']} leaves" if record["wrong"] else ""


def _cell(record: Record) -> str:
    """Return a verdict, how many blocks ran again if not all of them, and the peak as a share of plain's."""
    parts = [record["verdict"]]
    if record["wrong"]:
        parts.append(f"{record['wrong']}/{record['leaves']} leaves")
    if record["recomputed"] != record["blocks"]:
        parts.append(f"{record['recomputed']}/{record['blocks']} blocks")
    if record["plain_bytes"]:
        parts.append(f"peak {record['peak_bytes'] / record['plain_bytes']:.2f}")
    return ", ".join(parts)


def _counts(report: Record) -> Sequence[str]:
    lines = []
    for wrapper in dict.fromkeys(each["wrapper"] for each in report["findings"]):
        verdicts = [each["verdict"] for each in report["findings"] if each["wrapper"] == wrapper]
        counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in reversed(ORDER) if verdict in verdicts]
        lines.append(f"{wrapper}: {', '.join(counts)}")
    return lines


def _short(message: str) -> str:
    return message if len(message) <= LONGEST else message[: LONGEST - 1] + "…"


def _escaped(record: Record) -> str:
    return printable(_short(record["message"])).replace("|", "\\|").replace("<", "&lt;")
