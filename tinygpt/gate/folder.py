"""The folder of a gate: a report for each subject and release, and what is known to be of this run."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tinygpt.errors import GateError, TinyGPTError

JOURNAL = "journal.json"
RECORD = "gate.json"

Found = TypeVar("Found")


@dataclass(frozen=True)
class Folder:
    """Where reports of one request are.

    Attributes:
        path: The folder.
        request: What was asked for, and with which tinygpt: reports of another request are not used.
    """

    path: Path
    request: Mapping[str, Any]

    def open(self, *, fresh: bool = False) -> int:
        """Begin, or go on where a run of the same request was ended; return how many reports are there.

        Args:
            fresh: Whether to begin anew.

        Raises:
            GateError: The folder cannot be used.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if fresh or not self._is_ours():
                self._write({**self.request, "done": []})
            return len(self._done())
        except OSError as error:
            raise GateError(
                f"[gate] {error.filename or self.path}: got {error.strerror}, expected a folder to write to"
            ) from error

    def close(self, found: Mapping[str, Any]) -> None:
        """Store what came of it, and let the next run begin anew."""
        self.record(found)
        (self.path / JOURNAL).unlink(missing_ok=True)

    def record(self, found: Mapping[str, Any]) -> None:
        """Store what came of it, and keep the reports for the next run."""
        self._replace(self.path / RECORD, json.dumps({**self.request, **found}, indent=1, ensure_ascii=False) + "\n")

    def get(self, name: str, load: Callable[[Path], Found], make: Callable[[Path], Found]) -> Found:
        """Return a report, made if this run has none yet.

        Args:
            name: Of its file.
            load: Reads it.
            make: Makes it, and leaves the file behind only if it is whole.
        """
        path = self.path / name
        if name in self._done():
            try:
                return load(path)
            except TinyGPTError:  # somebody has touched it
                pass
        try:
            found = make(path)
            self._write({**self.request, "done": sorted({*self._done(), name})})
        except OSError as error:
            raise GateError(
                f"[gate] {error.filename or path}: got {error.strerror or error}, expected room for a report"
            ) from error
        return found

    def _done(self) -> list[str]:
        found = json.loads((self.path / JOURNAL).read_text(encoding="utf-8"))["done"]
        return [str(name) for name in found]

    def _is_ours(self) -> bool:
        """Return whether a run of the same request was ended here; of another one, nothing is used."""
        try:
            found = json.loads((self.path / JOURNAL).read_text(encoding="utf-8"))
            return {**found, "done": []} == {**self.request, "done": []} and isinstance(found["done"], list)
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def _write(self, content: Mapping[str, Any]) -> None:
        self._replace(self.path / JOURNAL, json.dumps(content, indent=1) + "\n")

    def _replace(self, path: Path, text: str) -> None:
        partial = path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        shutil.move(partial, path)
