"""Run the whole equality suite and store what it found: ``python -m tinygpt.equality --report FILE``."""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from tinygpt.environment import backend, describe
from tinygpt.equality.case import Case, Verdict, cases, compare
from tinygpt.errors import UsageError


def main() -> int:
    """Run every case and return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tinygpt.equality", description=__doc__)
    parser.add_argument("--report", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--only", default="", metavar="WORDS", help="only cases whose name has all these words")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="begin no case after these")
    arguments = parser.parse_args()
    words = arguments.only.split()
    chosen = [
        (name, case) for name, case in cases(distinct=backend() != "cpu") if all(word in name.split() for word in words)
    ]
    if not chosen:
        raise UsageError(f"[equality] --only: got {arguments.only!r}, expected words of some case's name")
    records = []
    start = perf_counter()
    for number, (name, case) in enumerate(chosen, 1):
        late = perf_counter() - start > arguments.seconds
        records.append({"case": name, "verdict": "not run"} if late else _run(name, case))
        if records[-1]["verdict"].startswith("fail") or number % 100 == 0 or number == len(chosen):
            print(f"{number}/{len(chosen)}  {name}: {records[-1]['verdict']}", flush=True)
    counts = Counter(record["verdict"].split(":")[0] for record in records)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    if arguments.report is not None:
        report = {"environment": describe(), "counts": counts, "cases": records}
        arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if set(counts) <= {"equal", "equal but for atomics", "not applicable"} else 1


def _run(name: str, case: Case) -> dict[str, Any]:
    start = perf_counter()
    try:
        found = compare(case)
    except RuntimeError as error:
        if "only supports float32" not in str(error):
            raise
        found = Verdict(0, ())
        verdict = f"not applicable: plain MLX cannot run it: {error}"
    else:
        verdict = _words(found)
    return {
        "case": name,
        "verdict": verdict,
        "leaves": found.leaves,
        "loose": found.loose,
        "seconds": round(perf_counter() - start, 3),
    }


def _words(found: Verdict) -> str:
    if found.differences:
        return f"fail: {len(found.differences)} of {found.leaves} leaves differ, first {found.differences[0]}"
    if found.loose:
        return f"equal but for atomics: {len(found.loose)} leaves differ between plain runs too, first {found.loose[0]}"
    return "equal"


if __name__ == "__main__":
    sys.exit(main())
