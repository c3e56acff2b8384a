"""Peaks and step times of rows under every wrapper: ``python -m tinygpt.savings.benchmark``.

All wrappers of a row run in one process on one model, turn by turn, because machines are noisy: compare
within a run, and ratios only.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt.checkpointing import WRAPPERS, checkpointed_blocks
from tinygpt.environment import describe
from tinygpt.memory.in_flight import lean_evaluation, small_command_buffers
from tinygpt.memory.measure import counters, reset_peak, settle
from tinygpt.model import GPT
from tinygpt.presets import ROWS, Row
from tinygpt.train import DTYPES, TrainStep
from tinygpt.train.data import Batches, read_corpus

PLAIN = "plain"
WARM_UP_ROUNDS = 2


@dataclass(frozen=True)
class Setting:
    """What a row is trained with.

    Attributes:
        clip_norm: Largest norm of the gradients; 0 for no clipping.
        compiled: Whether the step is compiled.
        dtype: Of weights, activations and moments.
    """

    clip_norm: float = 1.0
    compiled: bool = True
    dtype: str = "float32"


def benchmark_row(row: Row, setting: Setting, *, wrappers: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Train a row under several wrappers in turn.

    Args:
        row: Preset, batch and context.
        setting: What it is trained with.
        wrappers: Names, ``plain`` for none.
        rounds: Steps of each wrapper that are measured, after two that are not.

    Returns:
        One record for each wrapper: the least peak of a step in bytes, with weights, moments and gradients; the
        median step time in seconds; and all readings.
    """
    steps = _prepare(row, setting, wrappers)
    settle()  # a larger buffer in the cache, left by another row, would count with its whole size
    text = Batches(read_corpus(None), batch=row.batch, context=row.context, seed=0)
    peaks: dict[str, list[int]] = {name: [] for name in wrappers}
    seconds: dict[str, list[float]] = {name: [] for name in wrappers}
    for number in range(WARM_UP_ROUNDS + rounds):
        tokens = mx.array(text.at(number), mx.int32)
        for name, step in steps.items():
            mx.synchronize()
            reset_peak()
            start = perf_counter()
            with lean_evaluation():
                step(tokens)
            mx.synchronize()
            if number >= WARM_UP_ROUNDS:
                seconds[name].append(perf_counter() - start)
                peaks[name].append(counters().peak_bytes)
    return [
        {
            "row": str(row),
            "wrapper": name,
            **asdict(setting),
            "peak_bytes": min(peaks[name]),
            "step_s": statistics.median(seconds[name]),
            "peaks_bytes": peaks[name],
            "steps_s": seconds[name],
        }
        for name in wrappers
    ]


def _prepare(row: Row, setting: Setting, wrappers: Sequence[str]) -> dict[str, TrainStep]:
    """Return a step for each wrapper, all of one model."""
    mx.random.seed(0)
    model = GPT(row.config)
    model.set_dtype(getattr(mx, setting.dtype))
    optimizer = optim.AdamW(1e-4, bias_correction=True)
    return {
        name: TrainStep(
            model,
            optimizer,
            blocks=None if name == PLAIN else checkpointed_blocks(model.blocks, "all", WRAPPERS[name]),
            clip_norm=setting.clip_norm,
            compiled=setting.compiled,
        )
        for name in wrappers
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark, print a line for each record, and write all of them."""
    arguments = _parser().parse_args(argv)
    small_command_buffers()
    records: list[dict[str, Any]] = []
    for row in (row for row in ROWS if not arguments.rows or str(row) in arguments.rows):
        for clip_norm in arguments.clip_norm:
            setting = Setting(clip_norm, not arguments.no_compile, arguments.dtype)
            found = benchmark_row(row, setting, wrappers=arguments.wrappers, rounds=arguments.rounds)
            records += found
            for record in found:
                _print(record, found[0])
            if arguments.json:  # after every row, so that what was measured is never lost
                arguments.json.write_text(json.dumps({"environment": describe(), "records": records}, indent=1) + "\n")
    return 0


def _print(record: dict[str, Any], first: dict[str, Any]) -> None:
    peak, step = record["peak_bytes"], record["step_s"]
    print(
        f"{record['row']:16} {record['wrapper']:12} clip {record['clip_norm']:3}",
        f"{peak / 2**20:9,.0f} MiB {peak / first['peak_bytes']:.3f}",
        f"{step * 1e3:8.1f} ms {step / first['step_s']:.3f}",
        sep="  ",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tinygpt.savings.benchmark", description=__doc__)
    parser.add_argument("--rows", nargs="+", metavar="ROW", choices=list(map(str, ROWS)), help="such as 'tiny 8x128'")
    parser.add_argument("--wrappers", nargs="+", default=[PLAIN, *WRAPPERS], choices=[PLAIN, *WRAPPERS])
    parser.add_argument("--clip-norm", nargs="+", type=float, default=[1.0, 0.0], metavar="X")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
