"""Does the saving survive the order of evaluation? ``python -m tinygpt.savings.orders``.

One stack of MLP blocks under every schedule and several values of ``MLX_BFS_MAX_WIDTH``, which MLX reads
once: so each value gets a process of its own.
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


def peaks(wrappers: Sequence[str], schedules: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the peaks in this process: by wrapper and by the name of the schedule, in bytes."""
    chosen = [schedule for schedule in SCHEDULES if schedule.name in schedules]
    return {wrapper: {schedule.name: peak_bytes(wrapper, schedule) for schedule in chosen} for wrapper in wrappers}


def peaks_at_width(width: str, *, wrappers: Sequence[str], schedules: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the peaks in a process with ``MLX_BFS_MAX_WIDTH`` set to ``width``, or as it is if that is empty."""
    environment = {**os.environ, "MLX_BFS_MAX_WIDTH": width} if width else dict(os.environ)
    code = f"import json, tinygpt.savings.orders as o; print(json.dumps(o.peaks({wrappers!r}, {schedules!r})))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run all widths, print a table and write the record."""
    parser = argparse.ArgumentParser(prog="python -m tinygpt.savings.orders", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    schedules = [schedule.name for schedule in SCHEDULES]
    found = {width: peaks_at_width(width, wrappers=WRAPPERS_COMPARED, schedules=schedules) for width in WIDTHS}
    for width, by_wrapper in found.items():
        print(f"MLX_BFS_MAX_WIDTH {width or 'as it is'}; MB")
        for wrapper, by_schedule in by_wrapper.items():
            cells = "  ".join(f"{name} {size / 1e6:5.1f}" for name, size in by_schedule.items())
            print(f"  {wrapper:8} {cells}")
    for wrapper in WRAPPERS_COMPARED[1:]:
        sizes = [size for by_wrapper in found.values() for size in by_wrapper[wrapper].values()]
        plain = min(size for by_wrapper in found.values() for size in by_wrapper["plain"].values())
        print(f"{wrapper}: worst/best {max(sizes) / min(sizes):.2f}, worst/plain {max(sizes) / plain:.2f}")
    if arguments.json:
        record = {"environment": describe(), "depth": DEPTH, "peaks_bytes": found}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
