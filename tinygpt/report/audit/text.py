"""An audit in lines: what stands against each wrapper, and the counts."""

from collections.abc import Iterable, Mapping, Sequence
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
LONGEST = 200  # characters of a message


def exit_code(report: Record) -> int:
    """Return 0 if every model is right under every wrapper, or cannot be trained even plain; else 1."""
    return EXIT_GOOD if all(each["verdict"] in GOOD for each in report["findings"]) else EXIT_BAD


def as_text(report: Record) -> str:
    """Return what stands against each wrapper, with what blocks leave beside their results, and the counts."""
    lines = []
    for each in sorted(report["findings"], key=rank):
        if each["verdict"] != "right":
            lines.append(f"{each['verdict'].upper()} {each['model']} under {each['wrapper']}{kind(each)}{share(each)}")
            lines += [f"  {said}" for said in (short(each["message"]), *beside(each)) if said]
    return "\n".join([*lines, *([""] if lines else []), *counts(report["findings"])])


def counts(findings: Iterable[Record]) -> Sequence[str]:
    """Return a line for each wrapper: how many findings have which verdict."""
    verdicts: dict[str, list[str]] = {}
    for each in findings:
        verdicts.setdefault(each["wrapper"], []).append(each["verdict"])
    return [
        f"{wrapper}: {', '.join(f'{found.count(each)} {each}' for each in reversed(ORDER) if each in found)}"
        for wrapper, found in verdicts.items()
    ]


def rank(record: Record) -> tuple[int, str, str]:
    """Return what sorts the worst first."""
    return ORDER.index(record["verdict"]), record["wrapper"], record["model"]


def kind(record: Record) -> str:
    """Return how a model was trained, in brackets, where it is not full and eager."""
    kinds = [each for each in (record["training"], record["mode"]) if each not in ("full", "eager")]
    return f" ({', '.join(kinds)})" if kinds else ""


def share(record: Record) -> str:
    """Return how many leaves are wrong."""
    return f": {record['wrong']} of {record['leaves']} leaves" if record["wrong"] else ""


def beside(record: Record) -> Sequence[str]:
    """Return a line for each array that blocks leave beside their results, if the verdict asks for a reason."""
    if record["verdict"] in GOOD:
        return []
    return [
        printable(
            f"{each['name']} is left at {each['line']} by {_blocks(each['left_by'])}, "
            f"read by {_blocks(each['read_by'])}"
        )
        for each in record["handovers"]
    ]


def _blocks(paths: Sequence[str]) -> str:
    return "none" if not paths else paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def short(message: str) -> str:
    """Return as much of a message as a line holds, and nothing that a terminal would act on."""
    return printable(message if len(message) <= LONGEST else message[: LONGEST - 1] + "…")
