"""The memory over the course of one step, and the peak over depth: ``python -m tinygpt.savings.course``.

One row under several policies. Active memory is looked at from a thread while a step runs; the peak is read at several
depths, beside what arithmetic says.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt.checkpointing import checkpointed_blocks, plan
from tinygpt.config import GPTConfig
from tinygpt.environment import backend, describe
from tinygpt.memory.estimate import Estimate, estimate_peak
from tinygpt.memory.in_flight import lean_evaluation, small_command_buffers
from tinygpt.memory.measure import counters, reset_peak, settle, watched_memory
from tinygpt.model import GPT
from tinygpt.presets import Row, row
from tinygpt.train import TrainStep
from tinygpt.train.data import Batches, read_corpus

POLICIES = ("none", "all", "attention", "selective", "halves", "first:16+selective", "sqrt")
MOST_SAMPLES = 2000


def course(chosen: Row, policy: str) -> list[tuple[float, int]]:
    """Return seconds and active bytes of one step of a row, after two that are not looked at."""
    step, tokens = _prepared(chosen, chosen.config, policy)
    limit = _estimate(chosen, chosen.config, policy).limit_bytes
    for _ in range(2):
        _run(step, tokens, limit)
    settle()
    with watched_memory() as samples:
        _run(step, tokens, limit)
    size = max(1, len(samples) // MOST_SAMPLES)
    parts = (samples[start : start + size] for start in range(0, len(samples), size))
    return [max(part, key=lambda sample: sample[1]) for part in parts]


def peak_at_depth(chosen: Row, policy: str, depth: int) -> dict[str, Any]:
    """Return the least peak of two steps of a row with another depth, beside its estimate."""
    config = dataclasses.replace(chosen.config, n_layer=depth)
    step, tokens = _prepared(chosen, config, policy)
    estimate = _estimate(chosen, config, policy)
    peaks = []
    for number in range(3):
        settle()
        reset_peak()
        _run(step, tokens, estimate.limit_bytes)
        if number:
            peaks.append(counters().peak_bytes)
    return {"policy": policy, "n_layer": depth, "peak_bytes": min(peaks), "estimate_bytes": estimate.peak_bytes}


def _estimate(chosen: Row, config: GPTConfig, policy: str) -> Estimate:
    segments = plan(policy, config.n_layer, cuts=config.cuts)
    return estimate_peak(config, segments, batch=chosen.batch, context=chosen.context, backend=backend())


def _prepared(chosen: Row, config: GPTConfig, policy: str) -> tuple[TrainStep, mx.array]:
    settle()
    mx.random.seed(0)
    model = GPT(config)
    blocks = checkpointed_blocks(model.blocks, policy, cuts=config.cuts)
    step = TrainStep(model, optim.AdamW(1e-4, bias_correction=True), blocks=blocks, clip_norm=1.0, compiled=True)
    tokens = Batches(read_corpus(None), batch=chosen.batch, context=chosen.context, seed=0).at(1)
    return step, mx.array(tokens, mx.int32)


def _run(step: TrainStep, tokens: mx.array, limit_bytes: int) -> None:
    with lean_evaluation(limit_bytes):
        step(tokens)
    mx.synchronize()


def main(argv: Sequence[str] | None = None) -> int:
    """Read both, and write them after every policy."""
    parser = argparse.ArgumentParser(prog="python -m tinygpt.savings.course", description=__doc__)
    parser.add_argument("--row", type=row, default=row("behemoth 4x1024"))
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), metavar="POLICY")
    parser.add_argument("--depths", nargs="+", type=int, default=[4, 8, 16, 32], metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", required=True)
    arguments = parser.parse_args(argv)
    small_command_buffers()
    found: dict[str, Any] = {"environment": describe(), "row": str(arguments.row), "timelines": [], "depths": []}
    for policy in arguments.policies:
        found["timelines"].append({"policy": policy, "samples": course(arguments.row, policy)})
        for depth in arguments.depths:
            found["depths"].append(peak_at_depth(arguments.row, policy, depth))
            print(found["depths"][-1], flush=True)
        arguments.json.write_text(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
