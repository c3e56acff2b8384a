"""Write under one MLX release, go on under another: ``python -m tinygpt.durability.releases --other 0.30.6``.

The other release is installed with pip into a temporary folder. In both directions, eager and compiled, with dropout:
the state must cross to the bit; the losses that follow must be the same under every policy; and where both releases
compute alike, they must be those of the run that stayed under the first. Where MLX itself computes otherwise, the
report says by how much, and the first loss after the crossing may differ by its rounding only: another dropout mask
would be a thousand times that.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tinygpt
from tinygpt import evidence
from tinygpt.durability.runs import losses, tensor_digests, train
from tinygpt.errors import InconclusiveError
from tinygpt.tinygpt_file import outline

SHAPE = ("--preset", "tiny", "--n-layer", "2", "--batch", "2", "--context", "32", "--dropout", "0.1")
STEPS = 20
POLICIES = ("none", "all")
ROUNDING = 1e-5  # 16 units in the last place of a loss of 5 nats, which is a mean of 64 sums
# Read a file and write it again, as it is but for the releases that it names.
COPY = """
import dataclasses, sys
from pathlib import Path
from tinygpt.environment import written_by
from tinygpt.tinygpt_file import load, save

header, tensors = load(Path(sys.argv[1]))
save(Path(sys.argv[2]), dataclasses.replace(header, written_by=written_by()), tensors)
"""
BACKEND = ("mlx[cpu]" if sys.platform == "linux" else "mlx",)

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Crossing:
    """A run whose halves were under two releases.

    Attributes:
        written_by: The MLX release of the first half, as the file says it.
        resumed_by: That of the second.
        compiled: Whether the step was compiled.
        state_equal: Whether the second release reads and writes the first one's file to the bit.
        policies_equal: Whether the second half is the same plain and checkpointed.
        losses_equal: Whether its losses are those of the run that stayed under the first release.
        releases_equal: Whether whole runs under the two releases have equal losses.
        first_difference: Of the first loss after the crossing to that run's, in nats.
        largest_difference: Of any loss after the crossing.
    """

    written_by: str
    resumed_by: str
    compiled: bool
    state_equal: bool
    policies_equal: bool
    losses_equal: bool
    releases_equal: bool
    first_difference: float
    largest_difference: float

    @property
    def problem(self) -> str:
        """What is wrong, or nothing."""
        if not self.state_equal:
            return "the state is another"
        if not self.policies_equal:
            return "plain and checkpointed differ"
        if self.releases_equal and not self.losses_equal:
            return "the releases compute alike, and the losses differ"
        if self.first_difference > ROUNDING:
            return f"the first loss differs by {self.first_difference:.3g}, expected at most {ROUNDING:.3g}"
        return ""


def environment(release: str, folder: Path) -> Environment:
    """Install an MLX release into a folder, and return the environment in which Python finds it first.

    Raises:
        InconclusiveError: pip cannot install it: no network, no wheel for this machine.
    """
    requirements = [f"{name}=={release}" for name in BACKEND]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise InconclusiveError(f"[releases] mlx {release}: got {reason}, expected an installation")
    project = Path(tinygpt.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(project)))}


def crossing(first: Environment, second: Environment, *, compiled: bool, steps: int = STEPS) -> Crossing:
    """Train the first half under one release and the second under another.

    Args:
        first: Where the first release is found.
        second: Where the second is.
        compiled: Whether the step is compiled.
        steps: In all.
    """
    options = (*SHAPE, "--steps", steps, "--compile" if compiled else "--no-compile")
    half = steps // 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for release, env in (("first", first), ("second", second)):
            train(*options, "--json", folder / f"{release}.json", env=env)
        path = folder / "half.tinygpt"
        train(*options, "--steps", half, "--out", path, env=first)
        written = [tensor_digests(path)]
        again = folder / "again.tinygpt"
        subprocess.run([sys.executable, "-c", COPY, path, again], check=True, env=second)
        written.append(tensor_digests(again))
        for policy in POLICIES:
            asked = ("--resume", path, "--out", folder / f"{policy}.tinygpt", "--grad-checkpoint", policy)
            train(*asked, "--steps", steps, "--json", folder / f"{policy}.json", env=second)
        alone, other, *found = (losses(folder / f"{run}.json") for run in ("first", "second", *POLICIES))
        ends = [tensor_digests(folder / f"{policy}.tinygpt") for policy in POLICIES]
        return Crossing(
            outline(path).header.written_by["mlx"],
            outline(again).header.written_by["mlx"],
            compiled,
            state_equal=written[0] == written[1],
            policies_equal=found[0] == found[1] and ends[0] == ends[1],
            losses_equal=all(found[0][step] == alone[step] for step in found[0]),
            releases_equal=alone == other,
            first_difference=abs(found[0][half + 1] - alone[half + 1]),
            largest_difference=max(abs(found[0][step] - alone[step]) for step in found[0]),
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Cross in both directions, print a line for each, and return 1 if one is not as it should be."""
    options = evidence.parser("durability.releases", __doc__)
    options.add_argument("--other", required=True, metavar="RELEASE", help="an MLX release")
    return evidence.main(options, _cross_all, argv)


def _cross_all(arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        here, there = dict(os.environ), environment(arguments.other, Path(folder))
        for compiled in (False, True):
            for first, second in ((here, there), (there, here)):
                cell = crossing(first, second, compiled=compiled)
                found.append(cell)
                said = cell.problem or f"as it should be, losses within {cell.largest_difference:.3g}"
                mode = "compiled" if compiled else "eager"
                print(f"{cell.written_by} -> {cell.resumed_by}, {mode}: {said}", flush=True)
    good = not any(cell.problem for cell in found)
    return good, {"other": arguments.other, "crossings": [asdict(cell) for cell in found]}


if __name__ == "__main__":
    sys.exit(main())
