"""Run a row plain and checkpointed: the gradients, which must be equal, and the peaks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt.checkpointing import checkpointed_blocks
from tinygpt.config import GPTConfig
from tinygpt.conformance.compare import Difference, differences
from tinygpt.conformance.tolerances import ATOMIC_ADDITIONS
from tinygpt.environment import backend
from tinygpt.memory.measure import Reading, counters, measure, settle
from tinygpt.model import GPT
from tinygpt.savings.plan import Plan
from tinygpt.train import TrainStep
from tinygpt.train.data import Batches, read_corpus

CLIP_NORM = 1.0
TRIALS = 3


@dataclass(frozen=True)
class Pair:
    """One model, measured plain and checkpointed.

    Attributes:
        depth: Blocks.
        differences: Gradients that are not equal; the peaks count only if there are none.
        plain: Peak of one training step, or of its gradients alone, above weights and moments.
        checkpointed: The same with every block checkpointed.
    """

    depth: int
    differences: tuple[Difference, ...]
    plain: Reading
    checkpointed: Reading


def read_row(plan: Plan, *, compiled: bool) -> tuple[Pair, ...]:
    """Return a reading for each depth of a plan; rows that run the same share it.

    Of a row that runs as it is meant, whole training steps are measured, the least of three; of one that is
    projected, the gradients alone, once.

    Args:
        plan: The row as it is run.
        compiled: Whether the step is compiled.
    """
    config = plan.row.config
    return tuple(
        _read_pair(replace(config, n_layer=depth), plan.batch, plan.context, whole=plan.whole, compiled=compiled)
        for depth in plan.depths
    )


@cache
def _read_pair(config: GPTConfig, batch: int, context: int, *, whole: bool, compiled: bool) -> Pair:
    """Compare the gradients of a model and measure its peaks."""
    settle()
    foreign = counters().active_bytes
    mx.random.seed(0)
    model = GPT(config)
    optimizer = optim.AdamW(1e-4, bias_correction=True)
    plain, checkpointed = (
        TrainStep(model, optimizer, blocks=blocks, clip_norm=CLIP_NORM, compiled=compiled)
        for blocks in (None, checkpointed_blocks(model.blocks, "all"))
    )
    tokens = mx.array(Batches(read_corpus(None), batch=batch, context=context, seed=0).at(1), mx.int32)
    mx.eval(tokens)

    first, expected = _read_gradients(plain, tokens)
    second, got = _read_gradients(checkpointed, tokens)
    found = differences(got, expected)
    if found:  # perhaps plain runs differ among themselves in those leaves
        _, control = _read_gradients(plain, tokens)
        loose = {difference.leaf for difference in differences(control, expected)}
        found = differences(got, expected, loose=loose, tolerance=ATOMIC_ADDITIONS)
        del control
    if whole:
        del expected, got
        first = _read(lambda: plain(tokens), TRIALS, foreign)
        second = _read(lambda: checkpointed(tokens), TRIALS, foreign)
    return Pair(config.n_layer, tuple(found), first, second)


def _read_gradients(step: TrainStep, tokens: mx.array) -> tuple[Reading, Any]:
    trees: list[Any] = []
    reading = _read(lambda: trees.append(step.gradients(tokens).tree), trials=1)
    return reading, trees[0]


def _read(work: Callable[[], Any], trials: int, foreign_bytes: int = 0) -> Reading:
    # On a GPU what is in flight belongs to the peak, and waiting after every operation would hide it.
    return measure(
        work,
        schedule="gradients whole, then clipped update",
        trials=trials,
        exact=backend() == "cpu",
        foreign_bytes=foreign_bytes,
    )
