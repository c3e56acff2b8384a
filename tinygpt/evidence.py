"""What the commands that gather evidence share: options, errors in one line, a report written at the end."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tinygpt.environment import describe
from tinygpt.errors import TinyGPTError

EXIT_USAGE = 2

Run = Callable[[argparse.Namespace], tuple[bool, dict[str, Any]]]


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option that all commands have."""
    made = argparse.ArgumentParser(prog=f"python -m tinygpt.{name}", description=description)
    made.add_argument("--report", type=_writable, metavar="FILE", help="write everything as JSON")
    return made


def main(options: argparse.ArgumentParser, run: Run, argv: Sequence[str] | None) -> int:
    """Run a command, store its record and where it took place; return 0 if all is well, 1 if not, 2 for bad input."""
    arguments = options.parse_args(argv)
    try:
        good, record = run(arguments)
    except TinyGPTError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    if arguments.report is not None:
        lines = json.dumps({"environment": describe(), **record}).replace('{"case"', '\n{"case"')
        arguments.report.write_text(lines + "\n", encoding="utf-8")
    return 0 if good else 1


def _writable(text: str) -> Path:
    """Return a path in a folder that is there, before hours are spent on what goes into it."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"got {text}, expected a file in a folder that is there")
    return path
