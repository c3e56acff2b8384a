"""Recompute: how often a wrapped function runs.

Counts mean something only where the gradients of the same run are right: a wrapper that loses them needs no
    recomputation.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar

import mlx.core as mx

from tinygpt.conformance.cases import SHAPE, Block, Stack, energy, fresh
from tinygpt.conformance.compare import differences
from tinygpt.conformance.rules import EAGER, check
from tinygpt.conformance.subjects import PLAIN, Subject, Wrap
from tinygpt.conformance.trial import SEED, Measurement, Trial, plainly, value_and_grad
from tinygpt.errors import ConformanceError

NESTED = 3


class _Counting(Block):
    """A block that counts its runs outside of the module, where no wrapper puts anything back."""

    runs: ClassVar[list[int]]

    def __init__(self, place: int = 0) -> None:
        super().__init__()
        self.place = place

    def __call__(self, x: mx.array) -> mx.array:
        self.runs.append(self.place)
        return super().__call__(x)


Loss = Callable[[Stack, Wrap, mx.array], mx.array]


def _model(depth: int, classes: int = 1) -> tuple[Stack, list[int]]:
    """Return blocks of one or more classes, in turn, and the list that they count in."""
    mx.random.seed(SEED)
    runs: list[int] = []
    kinds = [fresh(_Counting) for _ in range(classes)]
    for kind in kinds:
        kind.runs = runs
    return Stack([kinds[place % classes](place) for place in range(depth)]), runs


def _in_turn(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    return energy(model(x, [wrap(block) for block in model.blocks]))


def _step(subject: Subject, model: Stack, loss: Loss, compiled: bool, times: int = 1) -> Any:
    x = mx.random.normal(SHAPE, key=mx.random.key(1))
    with ExitStack() as contexts:
        for _ in range(times - 1):
            contexts.enter_context(subject.applied(model))
        wrap = contexts.enter_context(subject.applied(model))
        step = value_and_grad(model, lambda x: loss(model, wrap, x), compiled=compiled)
        found = step(x)
        mx.eval(found)
    return found


def _counts(trial: Trial, made: Callable[[], tuple[Stack, list[int]]], loss: Loss, times: int = 1) -> list[int]:
    """Return how often each block runs for one gradient.

    Raises:
        ConformanceError: The gradients are not plain's, so that the counts say nothing.
    """
    with plainly("blocks that count their runs"):
        model, _ = made()
        expected = _step(PLAIN, model, loss, trial.compiled)
    model, runs = made()
    with trial.guarded("gated: blocks that count their runs"):
        got = _step(trial.subject, model, loss, trial.compiled, times)
    counts = [runs.count(place) for place in range(len(model.blocks))]
    found = differences(*({"loss": value, "gradients": gradients} for value, gradients in (got, expected)))
    if found:
        raise ConformanceError(f"gated: value and gradients of the case differ from plain: {found[0]}")
    return counts


def _expect(counts: list[int], expected: list[int], what: str) -> Measurement:
    if counts != expected:
        raise ConformanceError(f"runs of each block {what}: got {counts}, expected {expected}")
    return Measurement({"runs": counts}, bound=str(expected))


@check()
def runs_twice(trial: Trial) -> Measurement:
    """C1 (required): Under a gradient a block runs exactly twice: in the forward, and once more in the backward.

    Source: the definition; a wrapper that is on and recomputes nothing, unsloth-zoo#754.

    Fault: ``identity``, ``recomputes_twice``.
    """
    return _expect(_counts(trial, lambda: _model(2), _in_turn), [2, 2], "under a gradient")


@check(modes=EAGER)
def runs_once_without_gradient(trial: Trial) -> Measurement:
    """C2 (required): Without a gradient a block runs once.

    Source: inference through a wrapped model must cost nothing.

    Fault: ``backward_in_advance``.
    """
    model, runs = _model(2)
    x = mx.random.normal(SHAPE, key=mx.random.key(1))
    with trial.wrapping(model, "a forward alone") as wrap:
        mx.eval(_in_turn(model, wrap, x))
    return _expect([runs.count(0), runs.count(1)], [1, 1], "without a gradient")


@check(modes=EAGER)
def wrapped_twice(trial: Trial) -> Measurement:
    """C3 (required): A block wrapped twice has right gradients, and runs as often as declared: 2 or 3 times.

    Source: mlx-tune: a class that is patched twice nests; mlx-lm's helper does.

    Fault: ``nested_twice``.
    """

    def twice(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
        runs = [wrap(block) for block in model.blocks]
        if trial.subject.shape != "enable":
            runs = [wrap(block, run) for block, run in zip(model.blocks, runs, strict=True)]
        return energy(model(x, runs))

    times = 2 if trial.subject.shape == "enable" else 1
    counts = _counts(trial, lambda: _model(2), twice, times)
    declared = trial.subject.runs_wrapped_twice
    if declared is not None:
        return _expect(counts, [declared, declared], "wrapped twice, as declared")
    if counts not in ([2, 2], [3, 3]):
        raise ConformanceError(f"runs of each block wrapped twice: got {counts}, expected [2, 2] or [3, 3]")
    return Measurement({"runs": counts}, bound="[2, 2] or [3, 3]")


@check(modes=EAGER)
def nested(trial: Trial) -> Measurement:
    """C4 (required): A block under k nested wraps runs k + 1 times: each level repeats it once.

    Source: counted on plain ``mx.checkpoint``; a wrapper that forgets that it is nested saves nothing inside.

    Fault: ``nested_ignored``.
    """

    def levels(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
        block = model.blocks[0]
        run = wrap(block)
        for _ in range(NESTED - 1):
            run = wrap(block, lambda x, inner=run: inner(x))
        return energy(run(x))

    return _expect(_counts(trial, lambda: _model(1), levels), [NESTED + 1], f"inside {NESTED} wrapped functions")


@check(modes=EAGER)
def nothing_to_recompute(trial: Trial) -> Measurement:
    """C5 (required): Frozen blocks below the lowest trainable one run once: no gradient reaches them.

    Source: fine-tuning the top of a model.

    Fault: ``backward_in_advance``.
    """

    def made() -> tuple[Stack, list[int]]:
        model, runs = _model(3)
        for block in model.blocks[:2]:
            block.freeze()
        return model, runs

    return _expect(_counts(trial, made, _in_turn), [1, 1, 2], "of which two are frozen")


@check(modes=EAGER)
def every_class(trial: Trial) -> Measurement:
    """C6 (required): In a model whose blocks are of several classes, every block is recomputed.

    Source: unsloth-zoo 98d6f274: only ``type(layers[0])`` was wrapped; the fix took 109 GB to 40 GB.

    Fault: ``first_class_only``, ``identity``.
    """
    return _expect(_counts(trial, lambda: _model(4, classes=2), _in_turn), [2, 2, 2, 2], "of two classes")
