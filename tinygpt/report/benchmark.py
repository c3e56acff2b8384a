"""Two files of ``pytest -m benchmark --benchmark-json``, compared case by case: a text in, a comparison out.

Pure, so that a gate runs where neither MLX nor pytest-benchmark is installed. Numbers are taken as they are written,
not as the nearest float: exactly at a threshold is then exactly that, and the next tick is above it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tinygpt.errors import ReportError, UsageError

# Beyond these a step time is a slip, and its fraction would have millions of digits.
SHORTEST_S, LONGEST_S = Decimal("1e-12"), Decimal("1e12")
LARGEST_BYTES = 1 << 62

CASE_FIELDS = {"row": str, "policy": str, "wrapper": str, "compiled": bool, "dtype": str, "peak_bytes": int}
PLACE_FIELDS = {"schedule": str, "backend": str, "device": str, "packages": dict, "system": str, "variables": dict}

# What must be the same for peaks, and for times, to mean anything. Packages may differ: releases are what one compares.
PEAK_NEEDS = ("backend", "schedule")
NEEDS = {
    "peak": PEAK_NEEDS,
    "time": (*PEAK_NEEDS, "device", "system", "variables", "cpu", "dtypes", "compiled"),
}


@dataclass(frozen=True)
class Case:
    """One benchmark.

    Attributes:
        peak_bytes: Peak of a step.
        step_s: Median time of a step, exactly as written.
    """

    peak_bytes: int
    step_s: Fraction


@dataclass(frozen=True)
class Run:
    """One file.

    Attributes:
        name: What messages call it.
        cases: By name: ``tiny 2x128 sqrt tinygpt``, and what is not compiled or not float32 says so.
        place: Where and how it was measured, by field.
    """

    name: str
    cases: Mapping[str, Case]
    place: Mapping[str, Any]


@dataclass(frozen=True)
class Limits:
    """What is allowed, as a share of the first file: 1/50 for 2 %. None for no limit."""

    peak: Fraction | None = None
    time: Fraction | None = None


@dataclass(frozen=True)
class Pair:
    """A case in both files.

    Attributes:
        name: Of the case.
        before: In the first file.
        after: In the second.
        over: Which limits it is above: ``peak``, ``time``.
    """

    name: str
    before: Case
    after: Case
    over: tuple[str, ...]

    @property
    def peak_ratio(self) -> float:
        """Second over first peak."""
        return self.after.peak_bytes / self.before.peak_bytes

    @property
    def time_ratio(self) -> float:
        """Second over first step time."""
        return float(self.after.step_s / self.before.step_s)


@dataclass(frozen=True)
class Comparison:
    """What two files have to say to each other.

    Attributes:
        before: The first.
        after: The second.
        limits: What was asked for.
        pairs: Cases in both, in the order of the first.
        lost: Cases in the first only; any is a failure.
        added: Cases in the second only.
        differing: Fields of ``place`` that differ.
    """

    before: Run
    after: Run
    limits: Limits
    pairs: tuple[Pair, ...]
    lost: tuple[str, ...]
    added: tuple[str, ...]
    differing: tuple[str, ...]

    @property
    def incomparable(self) -> tuple[str, ...]:
        """Which of ``peak`` and ``time`` mean nothing here."""
        return _incomparable(self.differing)

    @property
    def exit_code(self) -> int:
        """0 fine; 1 above a limit, or a case lost; 2 for a limit on what cannot be compared, or nothing that can."""
        limited = {what for what in NEEDS if getattr(self.limits, what) is not None}
        if limited & set(self.incomparable) or len(self.incomparable) == len(NEEDS):
            return 2
        return 1 if self.lost or any(pair.over for pair in self.pairs) else 0


def share(text: str) -> Fraction:
    """Return the share that ``2%`` or ``0.02`` means.

    Raises:
        UsageError: It is neither.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})( ?%)?", text, re.ASCII)
    # A bare 2 would be a doubling, and is more likely a percent sign forgotten.
    if match is None or (match[2] is None and Fraction(match[1]) >= 1):
        raise UsageError(f"[benchmark] threshold: got {text!r}, expected a share such as 2% or 0.02")
    return Fraction(match[1]) / (100 if match[2] else 1)


def compare(before: Run, after: Run, limits: Limits) -> Comparison:
    """Compare two runs; what cannot be compared is above no limit.

    Args:
        before: What is compared with.
        after: What is judged.
        limits: What is allowed.
    """
    differing = tuple(field for field in before.place if _differ(field, before.place[field], after.place[field]))
    allowed = {what: getattr(limits, what) for what in NEEDS if what not in _incomparable(differing)}
    pairs = tuple(
        Pair(name, case, after.cases[name], tuple(_over(case, after.cases[name], allowed)))
        for name, case in before.cases.items()
        if name in after.cases
    )
    lost = tuple(name for name in before.cases if name not in after.cases)
    added = tuple(name for name in after.cases if name not in before.cases)
    return Comparison(before, after, limits, pairs, lost, added, differing)


def _differ(field: str, before: Any, after: Any) -> bool:
    # Of settings a run may have several; a further one is a further case, and no other place.
    return not set(before) & set(after) if field in ("dtypes", "compiled") else bool(before != after)


def _incomparable(differing: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(what for what, fields in NEEDS.items() if set(fields) & set(differing))


def _over(before: Case, after: Case, allowed: Mapping[str, Fraction | None]) -> Iterator[str]:
    values: dict[str, tuple[Fraction | int, Fraction | int]] = {
        "peak": (before.peak_bytes, after.peak_bytes),
        "time": (before.step_s, after.step_s),
    }
    for what, limit in allowed.items():
        old, new = values[what]
        if limit is not None and new > old * (1 + limit):
            yield what


def read(text: str, name: str) -> Run:
    """Read what pytest-benchmark has written.

    Args:
        text: Of the file.
        name: What messages call it.

    Raises:
        ReportError: It is cut off, has no benchmarks, or one of them lacks what ``tests/memory/test_speed.py`` writes,
            or has a number that is none.
    """
    try:
        stored = json.loads(text, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"[benchmark] {name}: got {error}, expected the JSON of pytest-benchmark") from error
    benchmarks = stored.get("benchmarks") if isinstance(stored, dict) else None
    if not isinstance(benchmarks, list) or not benchmarks:
        raise ReportError(f"[benchmark] {name}: got no benchmarks, expected those of pytest -m benchmark")
    cases: dict[str, Case] = {}
    infos = []
    for index, benchmark in enumerate(benchmarks):
        case, info = _case(benchmark, f"{name}: benchmark {index}")
        called = _called(info)
        if called in cases:
            raise ReportError(f"[benchmark] {name}: got {called!r} twice, expected every case once")
        cases[called] = case
        infos.append(info)
    return Run(name, cases, _place(stored, infos, name))


def _case(benchmark: Any, where: str) -> tuple[Case, dict[str, Any]]:
    """Return the numbers of a benchmark, and its extra information."""
    benchmark = benchmark if isinstance(benchmark, dict) else {}
    if isinstance(benchmark.get("name"), str):
        where += f" {benchmark['name']!r}"
    info = benchmark.get("extra_info")
    if not isinstance(info, dict) or not info:
        raise ReportError(f"[benchmark] {where}, extra_info: got none, expected {', '.join(CASE_FIELDS)}")
    for field, kind in {**CASE_FIELDS, **PLACE_FIELDS}.items():
        if field not in info:
            raise ReportError(f"[benchmark] {where}, extra_info: got no {field}, expected one")
        if type(info[field]) is not kind:  # a bool is an int, too
            raise ReportError(f"[benchmark] {where}, {field}: got {_shown(info[field])}, expected {kind.__name__}")
    if not 0 < info["peak_bytes"] <= LARGEST_BYTES:
        raise ReportError(f"[benchmark] {where}, peak_bytes: got {info['peak_bytes']}, expected bytes above 0")
    return Case(info["peak_bytes"], _median(benchmark.get("stats"), where)), info


def _median(stats: Any, where: str) -> Fraction:
    median = stats.get("median") if isinstance(stats, dict) else None
    if isinstance(median, bool) or not isinstance(median, int | Decimal):
        raise ReportError(f"[benchmark] {where}, median: got {_shown(median)}, expected seconds")
    seconds = Decimal(median)
    if not seconds.is_finite() or not SHORTEST_S <= seconds <= LONGEST_S:
        raise ReportError(f"[benchmark] {where}, median: got {median}, expected seconds above 0")
    return Fraction(seconds)


def _shown(value: Any) -> str:
    """Return a value for a message: numbers as they are, the rest without control characters, and not too long."""
    shown = str(value) if isinstance(value, int | Decimal) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def _called(info: Mapping[str, Any]) -> str:
    """Return the name of a case: what it is, not what its test is called."""
    name = f"{info['row']} {info['policy']} {info['wrapper']}"
    return name + ("" if info["compiled"] else " eager") + ("" if info["dtype"] == "float32" else f" {info['dtype']}")


def _place(stored: Mapping[str, Any], infos: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return where and how all cases of a file were measured."""
    place = {field: infos[0][field] for field in PLACE_FIELDS}
    for field, value in place.items():
        if any(info[field] != value for info in infos):
            raise ReportError(f"[benchmark] {name}, {field}: got more than one, expected those of one run")
    machine = stored.get("machine_info")
    cpu = machine.get("cpu") if isinstance(machine, dict) else None
    cpu = cpu if isinstance(cpu, dict) else {}
    # The model and its cores, not the host's name: every container has another one.
    place["cpu"] = f"{cpu.get('brand_raw', 'unknown')} x {cpu.get('count', 'unknown')}"
    place["dtypes"] = sorted({info["dtype"] for info in infos})
    place["compiled"] = sorted({info["compiled"] for info in infos})
    return place
