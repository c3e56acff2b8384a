"""What averaging over ranks costs: ``mlx.launch -n 2 python -m tinygpt.savings.averaging --row "tiny 8x128"``.

Every rank does the row's batch. A step with averaging, the same step without, and averaging alone take turns, all ranks
at the same time: what the ranks take from each other otherwise, such as cores, is in all three.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt import evidence
from tinygpt.checkpointing import checkpointed_blocks
from tinygpt.errors import ConfigError, RanksError
from tinygpt.leaves import leaves
from tinygpt.memory.in_flight import lean_evaluation
from tinygpt.memory.measure import counters, reset_peak, settle
from tinygpt.model import GPT
from tinygpt.presets import PRESETS, Row, row
from tinygpt.train import TrainStep
from tinygpt.train.ranks import Ranks
from tinygpt.train.team import together

POLICIES = ("none", "all")
CLIP_NORM = 1.0
MIB = 1 << 20

Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Print what averaging costs under each policy; the first rank writes the report."""
    options = evidence.parser("savings.averaging", __doc__)
    options.add_argument("--row", type=row, default=row("tiny 8x128"), metavar="ROW", help="preset, batch and context")
    options.add_argument("--rounds", type=int, default=5, metavar="N", help="of each step (default: %(default)s)")
    options.add_argument("--eager", action="store_true", help="do not compile")
    return evidence.main(options, _all, argv)


def _all(arguments: argparse.Namespace) -> tuple[bool, Record]:
    if arguments.rounds < 1:
        raise ConfigError(f"[averaging] rounds: got {arguments.rounds}, expected at least 1")
    with together(saves=False) as team:
        group = team.ranks
        if group.size == 1:
            raise RanksError("[averaging] ranks: got one, expected several: start it with mlx.launch -n 2")
        if group.rank:
            arguments.report = None
        found = [_cost(group, arguments.row, policy, arguments.rounds, not arguments.eager) for policy in POLICIES]
    return True, {"ranks": group.size, "row": str(arguments.row), "compiled": not arguments.eager, "policies": found}


def _cost(group: Ranks, row: Row, policy: str, rounds: int, compiled: bool) -> Record:
    """Return medians in seconds and every rank's peak in bytes, of the step and of what it is made of."""
    mx.random.seed(0)
    model = GPT(PRESETS[row.preset])
    blocks = checkpointed_blocks(model.blocks, policy, cuts=model.config.cuts)
    optimizer = optim.AdamW(0.0)  # so that the ranks' weights stay the same
    alone, averaged = (
        TrainStep(model, optimizer, blocks=blocks, clip_norm=CLIP_NORM, compiled=compiled, ranks=each)
        for each in (None, group)
    )
    batch = mx.random.randint(0, model.config.vocab_size, (group.size * row.batch, row.context + 1))
    share = batch[group.rank * row.batch : (group.rank + 1) * row.batch]
    mx.eval(batch, share)
    gradients = alone.gradients(share).tree
    works: dict[str, Callable[[], Any]] = {
        "alone": lambda: alone(share),
        "together": lambda: averaged(batch),
        "averaging": lambda: mx.eval(group.averaged(gradients)),
    }
    readings: dict[str, list[tuple[float, int]]] = {name: [] for name in works}
    with lean_evaluation():
        for number in range(rounds + 1):
            for name, work in works.items():
                reading = _read(group, work)
                if number:  # the first compiles
                    readings[name].append(reading)
    seconds = {name: median(each for each, _ in found) for name, found in readings.items()}
    peaks = {name: max(each for _, each in found) for name, found in readings.items() if name != "averaging"}
    record = {
        "case": f"policy {policy}",
        "seconds": seconds,
        "efficiency": seconds["alone"] / seconds["together"],
        "gradient_bytes": sum(array.nbytes for array in leaves(gradients).values()),
        "peaks_bytes": [json.loads(said) for said in group.gathered(json.dumps(peaks))],
    }
    print(_line(record), flush=True)
    return record


def _read(group: Ranks, work: Callable[[], Any]) -> tuple[float, int]:
    """Return the seconds until all ranks are done, and this one's peak, in bytes above what was there."""
    settle()
    group.largest(0)  # all begin together
    reset_peak()
    base, start = counters().active_bytes, perf_counter()
    work()
    mx.synchronize()
    peak = counters().peak_bytes - base
    group.largest(0)
    return perf_counter() - start, peak


def _line(record: Record) -> str:
    """Return a record for people."""
    seconds, peaks = record["seconds"], record["peaks_bytes"]
    highest = {name: max(each[name] for each in peaks) / MIB for name in ("alone", "together")}
    return (
        f"{record['case']}: step {seconds['together']:.3f} s, without averaging {seconds['alone']:.3f} s "
        f"(efficiency {record['efficiency']:.2f}); averaging alone {seconds['averaging']:.3f} s; peak above what was "
        f"there {highest['together']:.1f} MiB, without averaging {highest['alone']:.1f} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
