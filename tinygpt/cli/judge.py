"""``tinygpt check`` and ``tinygpt report``: judge a wrapper, show a judgement that was stored."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tinygpt.errors import UsageError

FORMATS = ("text", "markdown", "json", "html")


def add_check(check: argparse.ArgumentParser) -> None:
    """Add the options of ``tinygpt check``."""
    add = check.add_argument
    add(
        "subject",
        nargs="?",
        metavar="SUBJECT",
        help="tinygpt, mlx.nn, mlx.core, mlx-lm, seed-recipe, plain, a registered name, or package.module:attribute",
    )
    add("--shape", metavar="S", help="wrap, wrap_fn or enable (default: told from the parameters)")
    add(
        "--rules",
        action="append",
        metavar="GLOB",
        help="rules, checks or families: R1, 'G*', footprint, '*[compiled]' (default: all); may be repeated",
    )
    add("--report", type=Path, metavar="FILE", help="write everything as JSON")
    add("--format", choices=FORMATS, default="text", help="what is printed (default: %(default)s)")
    add("--expect", type=Path, metavar="FILE", help="failures that are known, as TOML")
    add("--timeout", type=float, default=300.0, metavar="S", help="seconds for each check (default: %(default).0f)")
    add(
        "--self-test",
        nargs="?",
        const="whole",
        choices=("whole", "named"),
        help="judge the judge: every planted fault must be caught by its check; named: no fault meets other checks",
    )
    check.set_defaults(run=_check)


def add_report(report: argparse.ArgumentParser) -> None:
    """Add the options of ``tinygpt report``."""
    report.add_argument("file", type=Path, metavar="FILE", help="what tinygpt check --report has written")
    report.add_argument("--format", choices=FORMATS, default="text", help="what is printed (default: %(default)s)")
    report.set_defaults(run=_report)


def _check(arguments: argparse.Namespace) -> int:
    sys.path.append(str(Path.cwd()))  # package.module:attribute; a folder named mlx must not hide MLX
    if arguments.report is not None and not arguments.report.parent.is_dir():
        raise UsageError(f"[check] --report {arguments.report}: got no such folder, expected a file to write to")
    if arguments.timeout <= 0:
        raise UsageError(f"[check] --timeout: got {arguments.timeout:g}, expected seconds above 0")
    if arguments.self_test:
        return _self_test(arguments)
    if arguments.subject is None:
        raise UsageError("[check] SUBJECT: got none, expected one; see tinygpt check --help")
    from tinygpt.conformance.expectations import read  # noqa: PLC0415  (MLX only when it is needed)
    from tinygpt.conformance.results import save  # noqa: PLC0415
    from tinygpt.conformance.runner import check_checkpoint, iter_checks  # noqa: PLC0415
    from tinygpt.conformance.subjects import subject  # noqa: PLC0415

    rules = arguments.rules or ["*"]
    judged = subject(arguments.subject, shape=arguments.shape)
    total = sum(1 for _ in iter_checks(judged, rules))
    known = read(arguments.expect) if arguments.expect else ()
    with _progress(total) as listener:
        report = check_checkpoint(
            judged, rules=rules, expectations=known, timeout_s=arguments.timeout, listener=listener
        )
    if arguments.report is not None:
        save(report, arguments.report)
    _show(report.as_dict(), arguments.format)
    return report.exit_code


def _report(arguments: argparse.Namespace) -> int:
    from tinygpt.conformance.results import load  # noqa: PLC0415

    report = load(arguments.file)
    _show(report.as_dict(), arguments.format)
    return report.exit_code


def _self_test(arguments: argparse.Namespace) -> int:
    from tinygpt.faults.self_test import cells, self_test  # noqa: PLC0415

    if arguments.subject is not None or arguments.expect is not None or arguments.shape is not None:
        raise UsageError("[check] --self-test: got a subject, a shape or expectations, expected none of them")
    rules = arguments.rules or ["*"]
    whole = arguments.self_test == "whole"
    with _progress(len(cells(rules, whole=whole))) as listener:
        matrix = self_test(rules, whole=whole, timeout_s=arguments.timeout, listener=listener)
    if arguments.report is not None:
        try:
            arguments.report.write_text(json.dumps(matrix.as_dict(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"[check] --report {arguments.report}: got {error.strerror}, expected a file to write to"
            ) from error
    print(json.dumps(matrix.as_dict(), indent=1) if arguments.format == "json" else matrix.as_text())
    return 0 if matrix.proven else 1


def _show(report: dict[str, Any], form: str) -> None:
    from tinygpt.report.judgement import FORMATS as PAGES  # noqa: PLC0415

    print(json.dumps(report, indent=1, ensure_ascii=False) if form == "json" else PAGES[form](report).rstrip("\n"))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[object], None]]:
    """Yield what counts results on a bar, on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checks", total=total)
        yield lambda _: bar.advance(task)
