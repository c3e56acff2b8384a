"""``tinygpt report benchmark``: compare two benchmarks; exit code 0 fine, 1 failed, 2 incomparable, 3 bad input."""

import argparse
import json
from pathlib import Path

from tinygpt.errors import ReportError, UsageError
from tinygpt.report.benchmark import Limits, Run, compare, read, share
from tinygpt.report.benchmark_table import as_lines, as_record


def add(benchmark: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = benchmark.add_argument
    add(
        "before", type=Path, metavar="A.json", help="what is compared with: pytest -m benchmark --benchmark-json A.json"
    )
    add("after", type=Path, metavar="B.json", help="what is judged")
    add("--fail-peak", metavar="SHARE", help="how much more a step's peak may be, such as 2%% or 0.02")
    add("--fail-time", metavar="SHARE", help="how much longer a step's median may take")
    add("--json", type=Path, metavar="FILE", help="write the comparison as JSON")
    benchmark.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    limits = Limits(*(None if text is None else share(text) for text in (arguments.fail_peak, arguments.fail_time)))
    found = compare(_read(arguments.before), _read(arguments.after), limits)
    if arguments.json is not None:
        try:
            arguments.json.write_text(json.dumps(as_record(found), indent=1, default=str) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"[benchmark] --json {arguments.json}: got {error.strerror}, expected a file to write to"
            ) from error
    print("\n".join(as_lines(found)), flush=True)
    return found.exit_code


def _read(path: Path) -> Run:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise ReportError(f"[benchmark] {path}: got {what}, expected the JSON of pytest-benchmark") from error
    return read(text, str(path))
