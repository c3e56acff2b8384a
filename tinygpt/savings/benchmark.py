"""Peaks and step times of rows under wrappers and policies: ``python -m tinygpt.savings.benchmark``.

All wrappers of a row run in one process on one model, turn by turn, because machines are noisy: compare
within a run, and ratios only.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt.checkpointing import WRAPPERS, checkpointed_blocks, plan
from tinygpt.environment import backend, describe
from tinygpt.memory.estimate import estimate_peak
from tinygpt.memory.in_flight import lean_evaluation, small_command_buffers, waiting_evaluation
from tinygpt.memory.measure import counters, reset_peak, settle
from tinygpt.model import GPT
from tinygpt.presets import ROWS, Row, row
from tinygpt.train import DTYPES, TrainStep
from tinygpt.train.data import Batches, read_corpus
from tinygpt.train_config import ITEMSIZE

PLAIN = "plain"
OURS = (PLAIN, "tinygpt")  # the estimate, and so the limit, is about these
# From where on evaluation waits for what is queued: as the trainer does, always, at the estimate, or never.
LIMITS: dict[str, Callable[[int], AbstractContextManager[None]]] = {
    "default": lean_evaluation,
    "always": lambda _: waiting_evaluation(1),
    "estimate": waiting_evaluation,
    "never": lambda _: nullcontext(),
}
WARM_UP_ROUNDS = 2


@dataclass(frozen=True)
class Setting:
    """What a row is trained with.

    Attributes:
        clip_norm: Largest norm of the gradients; 0 for no clipping.
        compiled: Whether the step is compiled.
        dtype: Of weights, activations and moments.
        limit: From where on evaluation waits for what is queued: see ``LIMITS``.
    """

    clip_norm: float = 1.0
    compiled: bool = True
    dtype: str = "float32"
    limit: str = "default"


class Contestant(NamedTuple):
    """A wrapper and a policy; the plain model is the wrapper ``plain`` and the policy ``none``."""

    wrapper: str
    policy: str


def benchmark_row(
    row: Row, setting: Setting, *, contestants: Sequence[Contestant], rounds: int
) -> list[dict[str, Any]]:
    """Train a row under several wrappers and policies in turn.

    Args:
        row: Preset, batch and context.
        setting: What it is trained with.
        contestants: Under what.
        rounds: Steps of each that are measured, after two that are not.

    Returns:
        One record for each: the least peak of a step in bytes, with weights, moments and gradients; what it is by
        arithmetic; the median step time in seconds; and all readings.
    """
    steps = _prepare(row, setting, contestants)
    settle()  # a larger buffer in the cache, left by another row, would count with its whole size
    text = Batches(read_corpus(None), batch=row.batch, context=row.context, seed=0)
    expected = {name: _expected(row, setting, name.policy) for name in contestants}
    peaks: dict[Contestant, list[int]] = {name: [] for name in contestants}
    seconds: dict[Contestant, list[float]] = {name: [] for name in contestants}
    for number in range(WARM_UP_ROUNDS + rounds):
        tokens = mx.array(text.at(number), mx.int32)
        for name, step in steps.items():
            mx.synchronize()
            reset_peak()
            start = perf_counter()
            with LIMITS[setting.limit if name.wrapper in OURS else "never"](expected[name]["limit_bytes"]):
                step(tokens)
            mx.synchronize()
            if number >= WARM_UP_ROUNDS:
                seconds[name].append(perf_counter() - start)
                peaks[name].append(counters().peak_bytes)
    return [
        {
            "row": str(row),
            "framework": "mlx",
            **name._asdict(),
            **asdict(setting),
            "peak_bytes": min(peaks[name]),
            **expected[name],
            "step_s": statistics.median(seconds[name]),
            "peaks_bytes": peaks[name],
            "steps_s": seconds[name],
        }
        for name in contestants
    ]


def _expected(row: Row, setting: Setting, policy: str) -> dict[str, int]:
    """Return what arithmetic says of a peak: the estimate, and the least that any implementation needs."""
    config = row.config
    estimate = estimate_peak(
        config,
        plan(policy, config.n_layer, cuts=config.cuts),
        batch=row.batch,
        context=row.context,
        itemsize=ITEMSIZE[setting.dtype],
        backend=backend(),
    )
    return {
        "estimate_bytes": estimate.peak_bytes,
        "floor_bytes": estimate.floor_bytes,
        "limit_bytes": estimate.limit_bytes,
    }


def _prepare(row: Row, setting: Setting, contestants: Sequence[Contestant]) -> dict[Contestant, TrainStep]:
    """Return a step for each contestant, all of one model."""
    mx.random.seed(0)
    model = GPT(row.config)
    model.set_dtype(getattr(mx, setting.dtype))
    optimizer = optim.AdamW(1e-4, bias_correction=True)
    return {
        name: TrainStep(
            model,
            optimizer,
            blocks=None
            if name.wrapper == PLAIN
            else checkpointed_blocks(model.blocks, name.policy, WRAPPERS[name.wrapper], cuts=row.config.cuts),
            clip_norm=setting.clip_norm,
            compiled=setting.compiled,
        )
        for name in contestants
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark, print a line for each record, and write all of them."""
    arguments = _parser().parse_args(argv)
    small_command_buffers()
    records: list[dict[str, Any]] = []
    contestants = [
        *([Contestant(PLAIN, "none")] if PLAIN in arguments.wrappers else []),
        *(Contestant(name, policy) for name in arguments.wrappers if name != PLAIN for policy in arguments.policies),
    ]
    for chosen in arguments.rows:
        for clip_norm in arguments.clip_norm:
            setting = Setting(clip_norm, not arguments.no_compile, arguments.dtype, arguments.limit)
            found = benchmark_row(chosen, setting, contestants=contestants, rounds=arguments.rounds)
            records += found
            for record in found:
                _print(record, found[0])
            if arguments.json:  # after every row, so that what was measured is never lost
                arguments.json.write_text(json.dumps({"environment": describe(), "records": records}, indent=1) + "\n")
    return 0


def _print(record: dict[str, Any], first: dict[str, Any]) -> None:
    peak, step = record["peak_bytes"], record["step_s"]
    print(
        f"{record['row']:16} {record['wrapper']:12} {record['policy']:18} clip {record['clip_norm']:3}",
        f"{peak / 2**20:9,.0f} MiB {peak / first['peak_bytes']:.3f} est {record['estimate_bytes'] / peak:.3f}",
        f"{step * 1e3:8.1f} ms {step / first['step_s']:.3f}",
        sep="  ",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tinygpt.savings.benchmark", description=__doc__)
    parser.add_argument("--rows", nargs="+", type=row, default=list(ROWS), metavar="ROW", help="such as 'tiny 8x128'")
    parser.add_argument("--wrappers", nargs="+", default=[PLAIN, *WRAPPERS], choices=[PLAIN, *WRAPPERS])
    parser.add_argument("--policies", nargs="+", default=["all"], metavar="POLICY")
    parser.add_argument("--clip-norm", nargs="+", type=float, default=[1.0, 0.0], metavar="X")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--limit", choices=list(LIMITS), default="default", help="where to wait for what is queued")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
