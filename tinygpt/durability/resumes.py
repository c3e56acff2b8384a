"""Change the policy on a resume, in every way: ``python -m tinygpt.durability.resumes --report FILE``.

A run of twenty steps that nobody interrupts, and runs that end after ten under one policy and go on under another: the
ten losses that follow, and weights, moments and random key in the end, must be equal to the bit. The peak of the part
that goes on shows that the policy took effect. And one run that changes its policy every four steps.
"""

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinygpt import evidence
from tinygpt.durability.runs import losses, peak_bytes, tensor_digests, train
from tinygpt.tinygpt_file import outline
from tinygpt.units import format_mib

POLICIES = ("none", "all", "every:2")
SHAPE = ("--preset", "tiny", "--batch", "4", "--context", "64")
HALF, STEPS = 10, 20
CHAIN = ("none", "all", "every:2", "none", "all")
CHAIN_STEPS = 4


@dataclass(frozen=True)
class Mode:
    """How the runs of one part of the matrix are made."""

    compiled: bool
    dropout: float

    @property
    def options(self) -> tuple[object, ...]:
        """The options of the command."""
        return (*SHAPE, "--compile" if self.compiled else "--no-compile", "--dropout", self.dropout)


@dataclass(frozen=True)
class Resume:
    """One run that went on under another policy.

    Attributes:
        before: The policy of its first half.
        after: That of the second.
        losses_equal: Whether the losses after the resume are those of the run that nobody interrupted.
        tensors_equal: Whether weights, moments and random key are so in the end.
        peak_bytes: Peak of the second half.
    """

    before: str
    after: str
    losses_equal: bool
    tensors_equal: bool
    peak_bytes: int

    @property
    def equal(self) -> bool:
        """Whether nothing tells it from the run that nobody interrupted."""
        return self.losses_equal and self.tensors_equal


def resumes(mode: Mode, folder: Path, *, half: int = HALF, steps: int = STEPS) -> Iterator[Resume]:
    """Yield what came of every pair of policies.

    Args:
        mode: Compiled or not, and with what dropout.
        folder: An empty one, for the files.
        half: Steps before the resume.
        steps: Steps in all.
    """
    alone, alone_log = folder / "alone.tinygpt", folder / "alone.json"
    train(*mode.options, "--steps", steps, "--out", alone, "--json", alone_log)
    expected = {step: loss for step, loss in losses(alone_log).items() if step > half}
    for before in POLICIES:
        path = folder / f"{before}.tinygpt"
        train(*mode.options, "--steps", half, "--out", path, "--grad-checkpoint", before)
        for after in POLICIES:
            target, log = folder / "resumed.tinygpt", folder / f"{before} {after}.json"
            shutil.copy(path, target)
            train("--resume", target, "--steps", steps, "--json", log, *(_asking(after) if after != before else ()))
            yield Resume(
                before,
                after,
                losses(log) == expected,
                tensor_digests(target) == tensor_digests(alone),
                peak_bytes(log),
            )


def chained(mode: Mode, folder: Path) -> tuple[bool, list[str]]:
    """Change the policy of one run several times.

    Returns:
        Whether it ends as the run that nobody interrupted, and what its header says of the changes.
    """
    steps = CHAIN_STEPS * len(CHAIN)
    alone, path, log = folder / "alone.tinygpt", folder / "run.tinygpt", folder / "run.json"
    train(*mode.options, "--steps", steps, "--out", alone, "--json", folder / "alone.json")
    for number, policy in enumerate(CHAIN):
        begin = (*mode.options, "--out", path) if number == 0 else ("--resume", path)
        train(*begin, "--steps", CHAIN_STEPS * (number + 1), "--json", log, *_asking(policy))
    changes = [f"{change.before} -> {change.after} after {change.step}" for change in outline(path).header.changes]
    equal = losses(log) == losses(folder / "alone.json") and tensor_digests(path) == tensor_digests(alone)
    return equal, changes


def _asking(policy: str) -> tuple[str, ...]:
    return ("--no-grad-checkpoint",) if policy == "none" else ("--grad-checkpoint", policy)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the matrix, print a line for each cell, and return 1 if one differs."""
    return evidence.main(evidence.parser("durability.resumes", __doc__), _run_all, argv)


def _run_all(_: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    cells, chains, good = [], [], True
    for compiled, dropout in itertools.product((False, True), (0.0, 0.1)):
        mode = Mode(compiled, dropout)
        title = f"{'compiled' if compiled else 'eager'}, dropout {dropout:g}"
        with tempfile.TemporaryDirectory() as folder:
            for cell in resumes(mode, Path(folder)):
                cells.append({**asdict(mode), **asdict(cell)})
                good = good and cell.equal
                said = "equal" if cell.equal else "UNLIKE"
                print(f"{title}: {cell.before} -> {cell.after}: {said}, peak {format_mib(cell.peak_bytes)}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            equal, changes = chained(mode, Path(folder))
        chains.append({**asdict(mode), "equal": equal, "changes": changes})
        good = good and equal
        print(f"{title}: {len(changes)} changes in one run: {'equal' if equal else 'UNLIKE'}", flush=True)
    return good, {"steps_after_resume": STEPS - HALF, "resumes": cells, "chains": chains}


if __name__ == "__main__":
    sys.exit(main())
