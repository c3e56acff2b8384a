"""A comparison of two benchmarks as text for 80 columns, and as plain data; pure."""

import textwrap
from collections.abc import Iterator
from typing import Any

from tinygpt.report.benchmark import Comparison, Pair
from tinygpt.units import MIB

COLUMNS = 80
NAME = 40
INCOMPARABLE = 2
VERDICTS = {0: "fine", 1: "failed", INCOMPARABLE: "incomparable"}


def as_lines(found: Comparison) -> list[str]:
    """Return what differs, the table, what is in one file only, and the verdict."""
    lines = [*_place_lines(found), f"{'':{NAME}}{'MiB':>10}{'ratio':>8}{'ms':>12}{'ratio':>8}"]
    for pair in found.pairs:
        lines += _pair_lines(pair, found)
    for kind, cases in (("missing", found.lost), ("added", found.added)):
        lines += [line for name in cases for line in _wrapped(f"{kind}: {name}")]
    return [_printable(line) for line in [*lines, *_wrapped(verdict(found))]]


def verdict(found: Comparison) -> str:
    """Return the verdict in one line."""
    said = [f"{len(found.pairs)} cases", *_held(found)]
    if found.lost:
        said.append(f"{len(found.lost)} missing")
    if found.exit_code == INCOMPARABLE:
        said[0] = f"{' and '.join(found.incomparable)}; {said[0]}"
    return f"verdict: {VERDICTS[found.exit_code]}: {', '.join(said)}"


def _held(found: Comparison) -> Iterator[str]:
    """Yield for each threshold how many cases are above it."""
    limits = {"peak": found.limits.peak, "time": found.limits.time}
    for what, limit in limits.items():
        if limit is not None and what not in found.incomparable:
            over = sum(what in pair.over for pair in found.pairs)
            yield f"{what} {f'{over} above' if over else 'within'} +{float(100 * limit):g}%"
    if limits == {"peak": None, "time": None}:
        yield "no threshold"


def as_record(found: Comparison) -> dict[str, Any]:
    """Return the comparison, ready for JSON; sizes in bytes, times in seconds."""
    limits = {"peak": found.limits.peak, "time": found.limits.time}
    return {
        "before": found.before.name,
        "after": found.after.name,
        "thresholds": {what: None if limit is None else float(limit) for what, limit in limits.items()},
        "differing": {field: [found.before.place[field], found.after.place[field]] for field in found.differing},
        "incomparable": list(found.incomparable),
        "cases": [
            {
                "case": pair.name,
                "before": {"peak_bytes": pair.before.peak_bytes, "step_s": float(pair.before.step_s)},
                "after": {"peak_bytes": pair.after.peak_bytes, "step_s": float(pair.after.step_s)},
                "peak_ratio": pair.peak_ratio,
                "time_ratio": pair.time_ratio,
                "over": list(pair.over),
            }
            for pair in found.pairs
        ],
        "missing": list(found.lost),
        "added": list(found.added),
        "exit_code": found.exit_code,
        "verdict": verdict(found),
    }


def _place_lines(found: Comparison) -> list[str]:
    """Return one line on what differs and what that means, and the values below it."""
    if not found.differing:
        return []
    means = f"{' and '.join(found.incomparable)} not comparable" if found.incomparable else "both comparable"
    line = f"differing: {', '.join(found.differing)}; {means}"
    lines = [line if len(line) <= COLUMNS else f"differing: {len(found.differing)} conditions; {means}"]
    for field in found.differing:
        before, after = (_value(run.place[field]) for run in (found.before, found.after))
        lines += _wrapped(f"  {field}: {before} -> {after}")
    return lines


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {entry}" for name, entry in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _pair_lines(pair: Pair, found: Comparison) -> list[str]:
    """Return the second file's numbers and their ratios to the first's; a name that is too long has its own line."""
    peak = f"{pair.after.peak_bytes / MIB:10,.1f}{pair.peak_ratio:7.3f}{'!' if 'peak' in pair.over else ' '}"
    time = f"{float(1000 * pair.after.step_s):12,.1f}{pair.time_ratio:7.3f}{'!' if 'time' in pair.over else ' '}"
    if "peak" in found.incomparable:
        peak = f"{peak[:10]}{'-':>7} "
    if "time" in found.incomparable:
        time = f"{time[:12]}{'-':>7} "
    if len(pair.name) < NAME:
        return [f"{pair.name:{NAME}}{peak}{time}".rstrip()]
    return [*_wrapped(pair.name), f"{'':{NAME}}{peak}{time}".rstrip()]


def _printable(line: str) -> str:
    """Return a line that cannot do anything to a terminal, whatever the names in a file are."""
    return "".join(sign if sign.isprintable() else "?" for sign in line)


def _wrapped(text: str) -> list[str]:
    """Return lines of at most 80 columns, indented like the first and then some."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(text, COLUMNS, subsequent_indent=indent, break_on_hyphens=False) or [""]
