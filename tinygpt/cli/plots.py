"""``tinygpt report plots``: pictures of what was measured."""

import argparse
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tinygpt.errors import ReportError


def add(plots: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    plots.add_argument("file", type=Path, metavar="FILE", help="JSON with records, depths or timelines")
    plots.add_argument("-o", "--out", type=Path, metavar="FOLDER", required=True, help="where the pictures go")
    plots.set_defaults(run=_plots)


def _plots(arguments: argparse.Namespace) -> int:
    from tinygpt.report.plots import draw  # noqa: PLC0415  (a command loads only its own)

    drawn = draw(_read(arguments.file), file=arguments.file.name)
    _write(drawn.files, arguments.out)
    for name in drawn.files:
        print(arguments.out / name)
    for reason in drawn.left_out:
        print(f"left out {reason}")
    return 0


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"[plots] {path}: got {error.strerror}, expected a readable file") from error
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or nested without end
        raise ReportError(f"[plots] {path}: got no JSON ({error}), expected a JSON file") from error


def _write(files: dict[str, bytes], folder: Path) -> None:
    """Write all files, or none: each appears under its name only when all of them are on disk."""
    blocked = [name for name in files if (folder / name).is_dir()]
    if blocked:
        raise ReportError(f"[plots] {folder / blocked[0]}: got a folder, expected a file to write to")
    waiting = {folder / f".{name}.{os.getpid()}": folder / name for name in files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in zip(waiting, files.values(), strict=True):
            path.write_bytes(data)
        for path, final in waiting.items():
            path.replace(final)
    except OSError as error:
        _remove(waiting)
        raise ReportError(f"[plots] {folder}: got {error.strerror}, expected a folder to write to") from error


def _remove(paths: Iterable[Path]) -> None:
    """Remove what is there of them; the error that led here is the one to tell."""
    for path in paths:
        with suppress(OSError):
            path.unlink()
