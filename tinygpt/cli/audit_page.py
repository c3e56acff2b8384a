"""``tinygpt report audit``: the reports of a folder, as a page and Markdown."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from tinygpt.errors import ReportError
from tinygpt.report.audit.markdown import as_markdown
from tinygpt.report.audit.page import as_page
from tinygpt.report.audit.sheet import sheet
from tinygpt.report.audit.text import counts


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="reports of tinygpt audit --report")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE.html", help="the page; FILE.md is written beside it"
    )
    parser.set_defaults(run=_audit_page)


def _audit_page(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    if output.suffix != ".html":
        raise ReportError(f"[audit] {output}: got {output.suffix or 'no suffix'}, expected a file named .html")
    found = sheet(_read(arguments.folder))
    evidence = os.path.relpath(arguments.folder, output.parent).replace(os.sep, "/") + "/"
    for path, text in ((output, as_page(found, evidence)), (output.with_suffix(".md"), as_markdown(found))):
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ReportError(f"[audit] {path}: got {error.strerror}, expected a file to write to") from error
    print("\n".join([f"{output}: {len(found.models)} models", *counts(found.findings.values())]))
    return 0


def _read(folder: Path) -> dict[str, Any]:
    """Return the audits in a folder; what is none is passed over.

    Raises:
        ReportError: There is none, or one is damaged.
    """
    from tinygpt.audit.audit import TOOL  # noqa: PLC0415  (MLX only when it is needed)

    reports = {}
    for path in sorted(folder.rglob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ReportError(f"[audit] {path}: got {error}, expected a readable report") from error
        if isinstance(content, dict) and content.get("tool") == TOOL:
            reports[path.relative_to(folder).as_posix()] = content
    if not reports:
        raise ReportError(f"[audit] {folder}: got no report, expected some of tinygpt audit --report")
    return reports
