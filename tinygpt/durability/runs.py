"""Runs of ``tinygpt train`` as its users start them, and what they leave behind."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinygpt.errors import TrainingError
from tinygpt.tinygpt_file import outline
from tinygpt.tinygpt_file.checksum import tensor_digest

SMALL = ("--preset", "tiny", "--n-layer", "4", "--batch", "2", "--context", "32")


def command(*options: object) -> list[str]:
    """Return the command line of a training run in this environment."""
    return [sys.executable, "-m", "tinygpt", "train", *map(str, options)]


def train(*options: object, env: Mapping[str, str] | None = None) -> str:
    """Run the command to its end and return what it prints.

    Raises:
        TrainingError: It failed.
    """
    done = subprocess.run(command(*options), capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        words = " ".join(map(str, options))
        raise TrainingError(f"[run] tinygpt train {words}: got {done.stderr.strip()}, expected a run to its end")
    return done.stdout


def records(log: Path) -> list[dict[str, Any]]:
    """Return the objects of a log, without a last line that was never finished."""
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def losses(log: Path) -> dict[int, float]:
    """Return the loss of every step in a log by its number.

    Raises:
        TrainingError: A step is there twice, with two losses.
    """
    found: dict[int, float] = {}
    for record in records(log):
        if "tokens_per_s" in record and "step" in record:
            step, loss = record["step"], record["loss"]
            if found.setdefault(step, loss) != loss:
                raise TrainingError(f"[run] loss of step {step}: got {loss}, expected {found[step]}, as the first time")
    return found


def peak_bytes(log: Path) -> int:
    """Return the peak of the last run in a log."""
    return int(records(log)[-1]["peak_bytes"])


def tensor_digests(path: Path) -> dict[str, str]:
    """Return the digest of each tensor of a file: equal if the tensors are equal to the bit."""
    found = outline(path)
    data = path.read_bytes()[len(found.beginning) :]
    return {name: tensor_digest(data[tensor.start : tensor.end]).hex() for name, tensor in found.layout.items()}
