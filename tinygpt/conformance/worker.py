"""Judge in a process of its own, which a wrapper may take down.

Requests and answers are one line of JSON each. Whatever the wrapper prints goes to stderr, so that it cannot be taken
for an answer.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tinygpt.conformance.packing import packed, unpacked
from tinygpt.conformance.results import Result
from tinygpt.conformance.subjects import PLAIN, Subject
from tinygpt.conformance.trial import HALF_WRITTEN, WAITS_S
from tinygpt.errors import InconclusiveError

# On a GPU: commit every operation, since a buffer is freed when the command buffer that uses it has completed; and
# multiply in float32, since products in TF32 are three digits apart where they are computed in another order.
SETTINGS = {"MLX_MAX_OPS_PER_BUFFER": "1", "MLX_MAX_MB_PER_BUFFER": "1", "MLX_ENABLE_TF32": "0"}

TIMEOUT_S = 300.0
START_S = 120.0


class Worker:
    """A process that judges one check at a time, and is started anew when it dies.

    Attributes:
        environment: Where it runs; known once it has started.
        started: How many processes there have been.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        """Start with no process; ``timeout_s`` is for each check."""
        self.environment: dict[str, Any] = {}
        self.started = 0
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> "Worker":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the process."""
        self.stop()

    def judge(self, subject: Subject, check_id: str) -> dict[str, Any]:
        """Return the fields of the result of one run of a check; at least its status and message.

        Raises:
            InconclusiveError: The process cannot be started.
            SubjectError: The subject cannot be sent to another process.
        """
        for wait_s in WAITS_S:
            time.sleep(wait_s)
            answer = self._ask(subject, check_id)
            if not any(words in answer.get("message", "") for words in HALF_WRITTEN):
                break
        if "death" not in answer:
            return answer
        alone = self._ask(PLAIN, check_id)
        if "death" in alone:
            status = "inconclusive" if alone.get("late") else "not_applicable"
            return {"status": status, "message": f"so it is with plain MLX: {alone['death']}"}
        return {"status": "fail", "message": f"{answer['death']}, expected a result or an exception"}

    def start(self) -> None:
        """Start the process, if there is none, and learn where it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        environment = {**SETTINGS, **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tinygpt.conformance.worker import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._buffer = b""
        self.started += 1
        hello = self._answer(START_S)
        if "death" in hello:
            raise InconclusiveError(f"[worker] start: got {hello['death']}, expected a process that judges")
        self.environment = hello["environment"]

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def _ask(self, subject: Subject, check_id: str) -> dict[str, Any]:
        request = json.dumps({"subject": packed(subject), "check": check_id}).encode() + b"\n"
        self.start()
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(request)
                self._process.stdin.flush()
        return self._answer(self._timeout_s)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        """Return the next line of the process, or how it died."""
        process = self._process
        if process is None or process.stdout is None:
            return {"death": "the interpreter never ran"}
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    self.stop()
                    return {"death": f"no answer came in {timeout_s:g} s", "late": True}
                part = os.read(process.stdout.fileno(), 65536)
                if not part:
                    code = process.wait()
                    self.stop()
                    return {"death": f"the interpreter died ({_cause(code)})"}
                self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)  # type: ignore[no-any-return]


def _cause(code: int) -> str:
    """Return what ended a process, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def serve() -> None:
    """Answer requests until there are no more."""
    from tinygpt.conformance.bound import BoundCheck  # noqa: PLC0415  (MLX, after the settings)
    from tinygpt.conformance.rules import all_checks, select  # noqa: PLC0415
    from tinygpt.environment import describe  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    all_checks()
    say({"environment": describe()})
    for request in _requests():
        gc.collect()
        gc.freeze()  # readings collect garbage often, and need not look at what has stayed until now
        (chosen,) = select([request["check"]])
        try:
            subject = unpacked(request["subject"])
        except Exception as error:
            say({"status": "error", "message": f"the subject cannot be unpacked: {type(error).__name__}: {error}"})
            continue
        result: Result = BoundCheck(*chosen, subject).judge()
        say(asdict(result))


def _requests() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)
