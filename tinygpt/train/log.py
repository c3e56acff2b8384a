"""What a run tells: a line for each step or a progress bar, and JSON lines in a file."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tinygpt.errors import DataError, OutputError
from tinygpt.train.trainer import StepReport


class StepLog:
    """Shows steps on stdout: a bar on a terminal, otherwise a line each."""

    def __init__(self, steps: int, *, done: int = 0) -> None:
        """Prepare for the reports of a run of ``steps``, some of which are done."""
        self._steps = steps
        self._done = done
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[losses]}"),
            TextColumn("{task.fields[speed]:,.0f} tokens/s"),
            TimeRemainingColumn(),
            console=Console(),
            disable=not sys.stdout.isatty(),
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the bar on the terminal inside the context."""
        with self._bar:
            self._task = self._bar.add_task("", total=self._steps, completed=self._done, losses="", speed=0.0)
            yield

    def show(self, report: StepReport) -> None:
        """Show one step."""
        losses = {"loss": report.loss, **report.auxiliary}
        shown = "  ".join(f"{name} {value:.4f}" for name, value in losses.items())
        if self._bar.disable:
            print(f"step {report.step}/{self._steps}  {shown}  {report.tokens_per_s:,.0f} tokens/s", flush=True)
        else:
            self._bar.update(self._task, completed=report.step, losses=shown, speed=report.tokens_per_s)


@contextmanager
def json_lines(path: Path | None, *, append: bool = False) -> Iterator["JsonLines"]:
    """Open a file for JSON lines, after those that are there if so asked; nothing is written where ``path`` is None.

    Raises:
        DataError: The file cannot be written.
    """
    if path is None:
        yield JsonLines(None)
        return
    try:
        file = path.open("a" if append else "w", encoding="utf-8")
    except OSError as error:
        raise DataError(f"[json] {path}: got {error.strerror or error}, expected a file to write to") from None
    with file:
        yield JsonLines(file)


class JsonLines:
    """A file of one JSON object a line, complete up to the last line whenever it is read."""

    def __init__(self, file: TextIO | None) -> None:
        """Write to an open file, or to nothing."""
        self._file = file

    def write(self, record: dict[str, Any]) -> None:
        """Write one line and hand it to the system.

        Raises:
            OutputError: The file cannot be written any more.
        """
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(f"[json] {self._file.name}: got {reason}, expected a file to write to") from None
