"""Run the whole equality suite and store what it found: ``python -m tinygpt.equality --report FILE``."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import mlx.core as mx

from tinygpt import evidence
from tinygpt.environment import backend
from tinygpt.equality.case import Case, Verdict, cases, compare
from tinygpt.errors import UsageError
from tinygpt.model.products import can_multiply


def main(argv: Sequence[str] | None = None) -> int:
    """Run every case and return 1 if one failed."""
    options = evidence.parser("equality", __doc__)
    options.add_argument("--only", default="", metavar="WORDS", help="only cases whose name has all these words")
    options.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="begin no case after these")
    return evidence.main(options, _suite, argv)


def _suite(arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    words = arguments.only.split()
    everything = cases(distinct=backend() != "cpu")
    chosen = [(name, case) for name, case in everything if all(word in name.split() for word in words)]
    if not chosen:
        raise UsageError(f"[equality] --only: got {arguments.only!r}, expected words of some case's name")
    records: list[dict[str, Any]] = []
    start = perf_counter()
    for number, (name, case) in enumerate(chosen, 1):
        late = perf_counter() - start > arguments.seconds
        records.append({"case": name, "verdict": "not run"} if late else _run(name, case))
        if records[-1]["verdict"].startswith("fail") or number % 100 == 0 or number == len(chosen):
            print(f"{number}/{len(chosen)}  {name}: {records[-1]['verdict']}", flush=True)
    counts = Counter(record["verdict"].split(":")[0] for record in records)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    good = set(counts) <= {"equal", "equal but for atomics", "not applicable"}
    return good, {"counts": counts, "cases": records}


def _run(name: str, case: Case) -> dict[str, Any]:
    start = perf_counter()
    if can_multiply(getattr(mx, case.dtype)):
        found = compare(case)
        verdict = _words(found)
    else:
        found, verdict = Verdict(0, ()), "not applicable: MLX cannot multiply in that dtype here"
    seconds = round(perf_counter() - start, 3)
    return {"case": name, "verdict": verdict, "leaves": found.leaves, "loose": found.loose, "seconds": seconds}


def _words(found: Verdict) -> str:
    if found.differences:
        return f"fail: {len(found.differences)} of {found.leaves} leaves differ, first {found.differences[0]}"
    if found.loose:
        return f"equal but for atomics: {len(found.loose)} leaves differ between plain runs too, first {found.loose[0]}"
    return "equal"


if __name__ == "__main__":
    sys.exit(main())
