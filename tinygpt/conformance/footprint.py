"""Footprint: what a gradient needs at its peak, in units of one block boundary, under every order of evaluation.

The case is made so that everything that is kept is a whole number of boundaries: a reading is cut to them, which takes
weights and scalars out, and is the same every time. What a wrapper may need is arithmetic: the boundaries of all blocks
but one, and what plain MLX needs for one block. A verdict counts only where value and gradients of the same run are
plain's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import mlx.core as mx

from tinygpt.conformance.cases import SoftmaxBlock, Stack, softmax_stack
from tinygpt.conformance.compare import differences
from tinygpt.conformance.rules import COMPILED, EAGER, check
from tinygpt.conformance.subjects import PLAIN, Subject
from tinygpt.conformance.trial import Measurement, Trial, plainly
from tinygpt.environment import backend
from tinygpt.errors import ConformanceError, NotApplicableError
from tinygpt.memory.dispatch import PLACES, move_to_place
from tinygpt.memory.measure import counters, measure, settle
from tinygpt.memory.schedules import SCHEDULES, Schedule, scheduled

DEPTH = 6
SLOPE_DEPTHS = (4, 8)  # from where the peak is a straight line
SLOPE_SLACK = 0.1  # of a boundary for each block: the rule's own
NEAR = 2  # boundaries: what a busy machine may add to a reading, and what is therefore read most often
SPARE = 1  # boundary: the gradient that arrives at a block; plain's one block has none as an array of its own

# A GPU holds what its command buffers use, so there a boundary has to be large beside everything else.
SIZES = {
    "cpu": {"width": 4, "tokens": 256},
    "metal": {"width": 64, "tokens": 32768},
    "cuda": {"width": 64, "tokens": 32768},
}

Loss = Callable[[Stack, list[Any], mx.array], mx.array]
Build = Callable[..., tuple[Stack, mx.array]]


class _WithAuxiliary(SoftmaxBlock):
    """A softmax block that returns an auxiliary loss too."""

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:  # type: ignore[override]
        y = super().__call__(x)
        return y, y.square().mean()


class _Adapted(SoftmaxBlock):
    """A softmax block with more layers: most are frozen, and have fewer operations in the backward."""

    LAYERS = 5


def _adapters(depth: int, **size: int) -> tuple[Stack, mx.array]:
    """Return softmax blocks of which the first layer alone is trained."""
    model, x = softmax_stack(depth, block=_Adapted, **size)
    model.freeze()
    for block in model.blocks:
        block.layers[0].unfreeze()
    return model, x


def _stream(model: Stack, runs: list[Any], x: mx.array) -> mx.array:
    return model(x, runs).square().mean()


def _stream_and_auxiliary(model: Stack, runs: list[Any], x: mx.array) -> mx.array:  # noqa: ARG001
    total = mx.array(0.0)
    for run in runs:
        x, auxiliary = run(x)
        total = total + auxiliary
    return x.square().mean() + total


@dataclass(frozen=True)
class FootprintCase:
    """Blocks of which a gradient is taken.

    Attributes:
        build: Makes model and input of a depth.
        loss: Of model, blocks as they are run, and input.
        rounds: How often trials begin at every place of a group of dispatches: once, where the peak is met every time.
    """

    build: Build
    loss: Loss
    rounds: int = 1

    def readings(self) -> "Iterator[FootprintCase]":
        """Yield the case, and then with more and more trials, before anything is held against a reading.

        On a busy machine the main thread may run ahead at every place, and the least peak is not met.
        """
        yield self
        yield replace(self, rounds=3 * self.rounds)
        yield replace(self, rounds=9 * self.rounds)


BLOCKS = FootprintCase(softmax_stack, _stream)
AUXILIARY = FootprintCase(partial(softmax_stack, block=_WithAuxiliary), _stream_and_auxiliary)
ADAPTERS = FootprintCase(_adapters, _stream, rounds=3)


@dataclass(frozen=True)
class Footprint:
    """What one gradient needs.

    Attributes:
        boundaries: Its peak above what was there, in whole block boundaries.
        unit_bytes: Size of a boundary.
        result: Value and gradients.
    """

    boundaries: int
    unit_bytes: int
    result: Any

    @property
    def peak_bytes(self) -> int:
        """The peak, without what is smaller than a boundary."""
        return self.boundaries * self.unit_bytes


def footprint(
    subject: Subject,
    case: FootprintCase,
    depth: int,
    schedule: Schedule,
    *,
    wrapped: int | None = None,
    accept: Callable[[Any], object] = lambda _: None,
) -> Footprint:
    """Take the gradient of a case several times and return the least that it needs.

    Args:
        subject: Who wraps.
        case: What to run.
        depth: Blocks.
        schedule: The order of evaluation.
        wrapped: How many blocks, from the first, are wrapped; all if not given.
        accept: Called with value and gradients before anything is measured; raises if they will not do.
    """
    model, x = case.build(depth, **SIZES[backend()])
    count = depth if wrapped is None else wrapped
    with subject.applied(model) as wrap:

        def loss(x: mx.array) -> mx.array:
            runs = [wrap(block) if place < count else block for place, block in enumerate(model.blocks)]
            return case.loss(model, runs, x)

        step = scheduled(model, loss, schedule)
        result = step(x)
        accept(result)
        if backend() == "cpu":
            trials = case.rounds * len(PLACES)
            reading = measure(lambda: step(x), schedule=schedule.name, trials=trials, before=move_to_place)
        else:
            reading = measure(lambda: step(x), schedule=schedule.name)
    return Footprint(reading.peak_bytes // x.nbytes, x.nbytes, result)


@lru_cache(maxsize=64)
def _plain(case: FootprintCase, depth: int, schedule: Schedule) -> Footprint:
    with plainly("the footprint of plain blocks"):
        return footprint(PLAIN, case, depth, schedule)


def _judged(
    trial: Trial, case: FootprintCase, depth: int, schedule: Schedule, *, wrapped: int | None = None
) -> Footprint:
    """Return the footprint under the subject, whose value and gradients must be plain's."""
    plain = _plain(case, depth, schedule)
    with trial.guarded("gated: the footprint case"):
        return footprint(trial.subject, case, depth, schedule, wrapped=wrapped, accept=partial(_gate, plain.result))


def _gate(expected: Any, result: Any) -> None:
    """Raise unless value and gradients are plain's: a wrapper that loses gradients has the best peak."""
    unlike = differences(*({"loss": value, "gradients": gradients} for value, gradients in (result, expected)))
    if unlike:
        raise ConformanceError(f"gated: value and gradients of the case differ from plain: {unlike[0]}")


def _schedules(trial: Trial, *names: str) -> list[Schedule]:
    """Return the orders of evaluation of the trial's mode; only some of them if named."""
    return [s for s in SCHEDULES if s.compiled == trial.compiled and (not names or s.name in names)]


def _expect_saving(trial: Trial, case: FootprintCase, schedules: list[Schedule]) -> Measurement:
    """Hold every order to the boundaries of all blocks but one, and the peak of one plain block."""
    measured, over, bound = {}, [], 0
    for schedule in schedules:
        plain, one = _plain(case, DEPTH, schedule), _plain(case, 1, schedule)
        allowed = DEPTH - 1 + one.boundaries + SPARE
        for reading in case.readings():
            found = _judged(trial, reading, DEPTH, schedule)
            over_by = found.boundaries - allowed
            if over_by <= 0 or (over_by > NEAR and reading is not case):
                break
        bound = max(bound, allowed * one.unit_bytes)
        measured[schedule.name] = {"peak_bytes": found.peak_bytes, "plain_bytes": plain.peak_bytes}
        if found.boundaries > allowed:
            over.append(f"{schedule.name} {found.boundaries} of at most {allowed} (plain {plain.boundaries})")
    if over:
        raise ConformanceError(f"peak of {DEPTH} blocks, in block boundaries: got {'; '.join(over)}, expected no more")
    return Measurement(measured, f"{bound} B", ", ".join(measured))


def _expect_slope(trial: Trial, schedules: list[Schedule]) -> Measurement:
    """Hold every order to one boundary for each further block."""
    few, many = SLOPE_DEPTHS
    measured, off = {}, []
    for schedule in schedules:
        for reading in BLOCKS.readings():
            low, high = (_judged(trial, reading, depth, schedule) for depth in SLOPE_DEPTHS)
            slope = (high.boundaries - low.boundaries) / (many - few)
            good = abs(slope - 1) <= SLOPE_SLACK
            if good or (abs(slope - 1) * (many - few) > NEAR and reading is not BLOCKS):
                break
        measured[schedule.name] = {"low_bytes": low.peak_bytes, "high_bytes": high.peak_bytes, "slope": slope}
        if not good:
            off.append(f"{schedule.name} {slope:.2f}")
    if off:
        raise ConformanceError(
            f"slope of the peak in boundaries a block: got {'; '.join(off)}, expected 1 ± {SLOPE_SLACK}"
        )
    return Measurement(measured, f"1 ± {SLOPE_SLACK} boundaries for each block", ", ".join(measured))


@check(modes=EAGER)
def saving(trial: Trial) -> Measurement:
    """M1 (required): Under every order of evaluation the peak is at most the boundaries and one plain block's need.

    Source: Chen et al. 2016; under MLX's own wrappers the saving is gone where gradients are clipped, or evaluated from
    the first block on: unsloth-zoo 29d47e9f, mflux#711.

    Fault: ``identity``, ``no_order``, ``saves_every_other_call``.
    """
    return _expect_saving(trial, BLOCKS, _schedules(trial))


@check(modes=EAGER)
def slope(trial: Trial) -> Measurement:
    """M2 (required): Each further block adds one boundary to the peak, within 10 %, under every order of evaluation.

    Source: arithmetic; a fixed ratio means something for one depth alone.

    Fault: ``keeps_two_boundaries``.
    """
    return _expect_slope(trial, _schedules(trial))


@check(modes=COMPILED)
def saving_when_compiled(trial: Trial) -> Measurement:
    """M3 (required): M1 holds inside ``mx.compile``, which must not merge the recomputation into the forward.

    Source: mlx#2606; equal operations are merged, so that a recomputation without a barrier saves nothing.

    Fault: ``no_barrier``.
    """
    return _expect_saving(trial, BLOCKS, _schedules(trial))


@check(modes=COMPILED)
def slope_when_compiled(trial: Trial) -> Measurement:
    """M3 (required): M2 holds inside ``mx.compile``.

    Source: mlx#2606.

    Fault: ``no_barrier``, ``keeps_two_boundaries``.
    """
    return _expect_slope(trial, _schedules(trial))


@check()
def more_recomputed(trial: Trial) -> Measurement:
    """M4 (required): To recompute more blocks never raises the peak.

    Source: the rules.

    Fault: ``keeps_more_than_it_saves``.
    """
    if trial.subject.shape == "enable":
        raise NotApplicableError("enabled for whole models; the number of blocks cannot be chosen")
    (schedule,) = _schedules(trial, "whole tree", "compiled")
    counts = range(0, DEPTH + 1, DEPTH // 2)
    for case in BLOCKS.readings():
        found = [_plain(case, DEPTH, schedule)]
        found += [_judged(trial, case, DEPTH, schedule, wrapped=count) for count in counts[1:]]
        peaks = [each.boundaries for each in found]
        if peaks == sorted(peaks, reverse=True):
            break
    else:
        raise ConformanceError(
            f"boundaries at {', '.join(map(str, counts))} of {DEPTH} blocks recomputed: got {peaks}, expected no rise"
        )
    measured = {
        f"{count} recomputed": {"peak_bytes": each.peak_bytes} for count, each in zip(counts, found, strict=True)
    }
    return Measurement(measured, "no rise", schedule.name)


@check()
def auxiliary_loss(trial: Trial) -> Measurement:
    """M5 (required): An auxiliary loss as a second result does not keep the block's activations.

    Source: mixture of experts; a scalar that is not part of the recomputed function holds all that it was made of.

    Fault: ``several_results_not_recomputed``.
    """
    return _expect_saving(trial, AUXILIARY, _schedules(trial, "forward", "compiled, clipped"))


@check()
def nothing_left(trial: Trial) -> Measurement:
    """M6 (required): After the step, active memory is what the results hold.

    Source: a list in a closure, a hook or a cache that outlives the step.

    Fault: ``input_kept_afterwards``, ``result_kept_in_the_module``.
    """
    (schedule,) = _schedules(trial, "whole tree", "compiled")
    plain = _plain(BLOCKS, DEPTH, schedule)
    with plainly("a step of plain blocks"):
        allowed, _ = _left(PLAIN, schedule)
    with trial.guarded("a step"):
        left, result = _left(trial.subject, schedule)
    _gate(plain.result, result)
    if left - allowed >= plain.unit_bytes:  # a compiled function may hold a constant, and nothing so large
        raise ConformanceError(f"active memory after the step: got {left:,} B more than before, expected {allowed:,} B")
    return Measurement({"left_bytes": left}, f"less than {allowed + plain.unit_bytes} B", schedule.name)


def _left(subject: Subject, schedule: Schedule) -> tuple[int, Any]:
    """Return how many bytes the first step of a model leaves allocated while its result is held, and that result."""
    model, x = BLOCKS.build(DEPTH, **SIZES[backend()])
    with subject.applied(model) as wrap:
        step = scheduled(model, lambda x: _stream(model, [wrap(block) for block in model.blocks], x), schedule)
        settle()
        before = counters().active_bytes
        result = step(x)
        settle()
        return counters().active_bytes - before, result


@check()
def frozen_base(trial: Trial) -> Measurement:
    """M8 (required): Blocks of which few parameters are trained are recomputed too: the peak falls as in M1.

    Source: LoRA is how most people meet checkpointing on MLX.

    Fault: ``partly_frozen_blocks_skipped``.
    """
    return _expect_saving(trial, ADAPTERS, _schedules(trial, "forward", "compiled, clipped"))
