"""Two releases take turns at the same training steps: peaks, times and losses that mean something beside each other."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tinygpt.errors import GateError
from tinygpt.gate.environments import Environment

MODES = ("eager", "compiled")
PEAK_ROUNDS = 3
TIME_ROUNDS = 9  # the first is dropped
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Lap:
    """What one release did with one subject.

    Attributes:
        subject: Who wraps the blocks.
        mode: ``eager`` or ``compiled``.
        environment: Where it ran.
        losses: Of all steps, in nats, in order.
        peaks_bytes: Of the steps that were measured, above what was there.
        seconds: Of the steps that were timed.
        error: What ended it; empty if nothing did.
    """

    subject: str
    mode: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    losses: Sequence[float] = ()
    peaks_bytes: Sequence[int] = ()
    seconds: Sequence[float] = ()
    error: str = ""

    @property
    def name(self) -> str:
        """Subject and mode."""
        return f"{self.subject} [{self.mode}]"

    @property
    def peak_bytes(self) -> int:
        """The least peak, in bytes."""
        return min(self.peaks_bytes)

    @property
    def step_s(self) -> float:
        """The median time of a step."""
        return median(self.seconds)


def race(sides: Sequence[Environment], subjects: Sequence[str]) -> list[list[Lap]]:
    """Let releases take turns at every step of every subject, eager and compiled.

    Args:
        sides: The environments.
        subjects: Names.

    Returns:
        For each environment its laps, in the order of subjects and modes.

    Raises:
        GateError: A process does not answer.
    """
    found: list[list[Lap]] = [[] for _ in sides]
    for subject in subjects:
        for mode in MODES:
            for laps, lap in zip(found, _raced(sides, subject, mode), strict=True):
                laps.append(lap)
    return found


def _raced(sides: Sequence[Environment], subject: str, mode: str) -> list[Lap]:
    racers: list[_Racer] = []
    try:
        for side in sides:
            racers.append(_Racer(side, subject, mode))  # noqa: PERF401  (each is stopped, also if the next fails)
        for what in ["peak"] * PEAK_ROUNDS + ["time"] * TIME_ROUNDS:
            for racer in racers:
                racer.step(what)
        return [racer.lap() for racer in racers]
    finally:
        for racer in racers:
            racer.stop()


class _Racer:
    """A process that trains when it is told to."""

    def __init__(self, side: Environment, subject: str, mode: str) -> None:
        self._place = f"{subject} [{mode}] under mlx {side.release.label}"
        self._subject, self._mode = subject, mode
        self._answers: list[dict[str, Any]] = []
        self._error = ""
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (until stop)
        self._process = subprocess.Popen(
            side.command("tinygpt.gate.racer", subject, mode),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=side.variables,
            text=True,
        )
        self._environment = self._answer().get("environment", {})

    def step(self, what: str) -> None:
        """Train one step, unless an error has ended it."""
        if self._error or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._error = "the interpreter died"
            return
        answer = self._answer()
        if not self._error:
            self._answers.append(answer)

    def lap(self) -> Lap:
        """Return what came of it."""
        every = self._answers
        return Lap(
            self._subject,
            self._mode,
            self._environment,
            [answer["loss"] for answer in every],
            [answer["peak_bytes"] for answer in every if "peak_bytes" in answer],
            [answer["seconds"] for answer in every if "seconds" in answer][1:],
            self._error,
        )

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def _answer(self) -> dict[str, Any]:
        """Return the next line, or note what ended the process."""
        if self._process.stdout is None:
            raise GateError(f"[gate] {self._place}: got no pipe, expected one")
        late = threading.Timer(TIMEOUT_S, self._process.kill)
        late.daemon = True
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            self._error = f"the interpreter died: {self._last_words()}"
            return {}
        self._error = answer.get("error", "")
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return f"{lines[-1]} (exit code {code})" if lines else f"exit code {code}, or no answer in {TIMEOUT_S:g} s"
