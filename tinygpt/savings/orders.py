"""Does the saving survive the order of evaluation? ``python -m tinygpt.savings.orders``.

One stack of MLP blocks under every schedule and several values of ``MLX_BFS_MAX_WIDTH``, which MLX reads once: so each value gets a
process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tinygpt.checkpointing import WRAPPERS
from tinygpt.conformance.cases import mlp_stack
from tinygpt.environment import describe
from tinygpt.memory.measure import measure
from tinygpt.memory.schedules import SCHEDULES, Schedule, scheduled

DEPTH = 24
WIDTHS = ("", "1", "20", "100")  # "": as the user has it
WRAPPERS_COMPARED = ("plain", "tinygpt", "mlx.nn")


def peak_bytes(wrapper: str, schedule: Schedule, *, depth: int = DEPTH) -> int:
    """Return the exact peak of loss and gradients of a stack of MLP blocks under a wrapper, evaluated by a schedule."""
    model, x = mlp_stack(depth)
    wrap: Callable[..., Any] = WRAPPERS.get(wrapper, lambda block: block)
    blocks = [wrap(block) for block in model.blocks]

    def loss(x: mx.array) -> mx.array:
        return model(x, blocks).square().mean()

    run = scheduled(model, loss, schedule)
    return measure(lambda: run(x), schedule=schedule.name).peak_bytes


def peaks() -> dict[str, dict[str, int]]:
    """Return the peaks in this process: by wrapper and schedule, in bytes."""
    return {
        wrapper: {schedule.name: peak_bytes(wrapper, schedule) for schedule in SCHEDULES}
        for wrapper in WRAPPERS_COMPARED
    }


def peaks_at_width(width: str) -> dict[str, dict[str, int]]:
    """Return the peaks in a process with ``MLX_BFS_MAX_WIDTH`` set to ``width``; as it is if that is empty."""
    environment = {**os.environ, "MLX_BFS_MAX_WIDTH": width} if width else dict(os.environ)
    command = [sys.executable, "-c", "import json; from tinygpt.savings.orders import peaks; print(json.dumps(peaks()))"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run all widths, print a table and write the record."""
    parser = argparse.ArgumentParser(prog="python -m tinygpt.savings.orders", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    found = {width: peaks_at_width(width) for width in WIDTHS}
    for width, by_wrapper in found.items():
        print(f"MLX_BFS_MAX_WIDTH {width or 'as it is'}; MB")  # noqa: T201  (this is a command)
        for wrapper, by_schedule in by_wrapper.items():
            cells = "  ".join(f"{name} {size / 1e6:5.1f}" for name, size in by_schedule.items())
            print(f"  {wrapper:8} {cells}")  # noqa: T201
    for wrapper in WRAPPERS_COMPARED[1:]:
        sizes = [size for by_wrapper in found.values() for size in by_wrapper[wrapper].values()]
        plain = min(size for by_wrapper in found.values() for size in by_wrapper["plain"].values())
        print(f"{wrapper}: worst/best {max(sizes) / min(sizes):.2f}, worst/plain {max(sizes) / plain:.2f}")  # noqa: T201
    if arguments.json:
        record = {"environment": describe(), "depth": DEPTH, "peaks_bytes": found}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
