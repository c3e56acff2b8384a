"""A process that examines one model after another: one that takes it down does not take the others along."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Any

from tinygpt.errors import AuditError

TIMEOUT_S = 300.0
START = "from tinygpt.audit.worker import serve; serve()"


class Worker:
    """The process; it is started anew when it has died."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        """Start nothing yet.

        Args:
            timeout_s: For one model.
        """
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def examine(self, name: str, wrappers: Sequence[str], training: str, mode: str) -> list[dict[str, Any]]:
        """Return the fields of what was found of a model under each wrapper.

        Raises:
            AuditError: The process died of it, or did not come to an end.
        """
        process = self._started()
        if process.stdin is None or process.stdout is None:
            raise AuditError(f"[audit] {name}: got a process without pipes, expected to talk to it")
        process.stdin.write(json.dumps([name, list(wrappers), training, mode]) + "\n")
        process.stdin.flush()
        line = self._line(process.stdout)
        if line:
            found: list[dict[str, Any]] = json.loads(line)
            return found
        died = process.poll() if line is None else process.wait()
        self.stop()
        said = f"no answer within {self._timeout_s:g} s" if died is None else f"an interpreter that died, {died}"
        raise AuditError(f"[audit] {name}: got {said}, expected an answer")

    def close(self) -> None:
        """End the process, and start none any more."""
        self._closed = True
        self.stop()

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()  # closes the pipes, too
            self._process = None

    def _started(self) -> "subprocess.Popen[str]":
        if self._closed:
            raise AuditError("[audit] worker: got closed, expected to examine")
        if self._process is None or self._process.poll() is not None:
            path = os.pathsep.join(each for each in sys.path if each)
            self._process = subprocess.Popen(
                [sys.executable, "-c", START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": path, "MLX_ENABLE_TF32": "0"},
            )
        return self._process

    def _line(self, stream: IO[str]) -> str | None:
        """Return the next line: empty where the process has died, none where it says nothing in time."""
        with DefaultSelector() as selector:
            selector.register(stream, EVENT_READ)
            if not selector.select(self._timeout_s):
                return None
        return stream.readline()


def serve() -> None:
    """Examine what is asked for on standard input, and answer on standard output, until there is nothing more."""
    from tinygpt.audit.examination import examine  # noqa: PLC0415  (MLX in this process only)

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what models print goes nowhere
    for line in sys.stdin:
        name, wrappers, training, mode = json.loads(line)
        found = examine(name, wrappers, training=training, mode=mode)
        answers.write(json.dumps([each.as_dict() for each in found]) + "\n")
        answers.flush()
