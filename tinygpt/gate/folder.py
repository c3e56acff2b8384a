"""The folder of a gate: a report for each subject and release, and an index of what each of them depends on."""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from tinygpt.errors import GateError, SaveError, TinyGPTError
from tinygpt.tinygpt_file.lock import sole_writer

INDEX = "index.json"
RECORD = "gate.json"

Found = TypeVar("Found")


class Folder:
    """Where reports are, each with a digest of what it depends on: of anything else, none is used again."""

    def __init__(self, path: Path, key: Mapping[str, Any]) -> None:
        """Open a folder, which is ours alone until it is closed or the process ends.

        Args:
            path: The folder.
            key: What every report depends on, beside its name.

        Raises:
            GateError: It cannot be used, or another gate uses it.
        """
        self.path = path
        self.key = dict(key)
        self._made: list[str] = []  # by this run, or found by it
        self._digest = hashlib.sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()[:16]
        self._ours = ExitStack()
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._ours.enter_context(sole_writer(path / INDEX, who="gate"))
        except SaveError as error:
            raise GateError(f"[gate] {error}; --reports names another folder") from error
        except OSError as error:
            raise _unusable(error, path, "a folder to write to") from error

    def __enter__(self) -> "Folder":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let another gate use the folder."""
        self._ours.close()

    def kept(self) -> int:
        """Return how many reports of this key are there."""
        return sum(digest == self._digest for digest in self._index().values())

    def get(self, name: str, load: Callable[[Path], Found], make: Callable[[Path], Found]) -> Found:
        """Return a report, made if there is none that depends on the same.

        Args:
            name: Of its file.
            load: Reads it.
            make: Makes it, and leaves the file behind only if it is whole.

        Raises:
            GateError: It cannot be stored.
        """
        path = self.path / name
        self._made.append(name)
        if self._index().get(name) == self._digest:
            try:
                return load(path)
            except TinyGPTError:  # somebody has touched it
                pass
        self.forget(name)
        try:
            found = make(path)
            self._write(INDEX, {**self._index(), name: self._digest})
        except OSError as error:
            raise _unusable(error, path, "room for a report") from error
        return found

    def forget(self, *names: str) -> None:
        """Use some reports not again."""
        self._write(INDEX, {name: digest for name, digest in self._index().items() if name not in names})

    def forget_all(self) -> None:
        """Use no report of this key again."""
        self._write(INDEX, {name: digest for name, digest in self._index().items() if digest != self._digest})

    def close(self, found: Mapping[str, Any]) -> None:
        """Store what came of it; the next run makes the reports of this one anew."""
        self.record(found)
        self.forget(*self._made)

    def record(self, found: Mapping[str, Any]) -> None:
        """Store what came of it, and keep the reports for the next run."""
        self._write(RECORD, {**self.key, **found})

    def _index(self) -> dict[str, str]:
        try:
            found = json.loads((self.path / INDEX).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        path = self.path / name
        partial = path.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            raise _unusable(error, path, "room for it") from error


def _unusable(error: OSError, path: Path, expected: str) -> GateError:
    return GateError(f"[gate] {error.filename or path}: got {error.strerror or error}, expected {expected}")
