"""``tinygpt report matrix``: rule by subject by release by backend, as a page, Markdown, JSON and a badge."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from tinygpt.errors import ReportError
from tinygpt.report.matrix.cells import matrix
from tinygpt.report.matrix.markdown import as_badge, as_markdown, as_record
from tinygpt.report.matrix.page import as_page


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="reports of tinygpt gate and tinygpt check --report")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE.html",
        help="the page; FILE.md, FILE.json and FILE.svg, a badge, are written beside it",
    )
    parser.set_defaults(run=_matrix)


def _matrix(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    if output.suffix != ".html":
        raise ReportError(f"[matrix] {output}: got {output.suffix or 'no suffix'}, expected a file named .html")
    reports, self_tests = _read(arguments.folder)
    found = matrix(reports, self_tests)
    evidence = os.path.relpath(arguments.folder, output.parent).replace(os.sep, "/") + "/"
    contents = {
        ".html": as_page(found, evidence),
        ".md": as_markdown(found),
        ".json": json.dumps(as_record(found), indent=1, ensure_ascii=False) + "\n",
        ".svg": as_badge(found),
    }
    if output.with_suffix(".json").resolve() in {
        (arguments.folder / name).resolve() for name in (*reports, *self_tests)
    }:
        raise ReportError(f"[matrix] {output}: got the name of a report, expected another one")
    for suffix, text in contents.items():
        try:
            output.with_suffix(suffix).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ReportError(
                f"[matrix] {error.filename}: got {error.strerror}, expected a file to write to"
            ) from error
    counts = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in found.counts().items())
    print(f"{output}: {len(found.subjects)} subjects, {len(found.columns)} environments, {counts}")
    return 0


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the reports and the self-tests of a folder and the folders in it; what is neither is passed over.

    Raises:
        ReportError: There is no report, or one is damaged.
    """
    from tinygpt.conformance.results import TOOL, load  # noqa: PLC0415

    reports: dict[str, Any] = {}
    self_tests: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ReportError(f"[matrix] {path}: got {error}, expected a readable report") from error
        if not isinstance(content, dict):
            continue
        if content.get("tool") == TOOL:
            reports[name] = load(path).as_dict()
        elif {"rule_set", "broken", "killed", "environment"} <= content.keys():
            self_tests[name] = content
    if not reports:
        raise ReportError(f"[matrix] {folder}: got no report, expected some of tinygpt gate or tinygpt check --report")
    return reports, self_tests
