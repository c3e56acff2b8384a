"""Turn the readings of a row into a verdict: equal gradients first, then what a block keeps, then the ratio.

A row that was not run whole is projected from its readings at two depths. If these agree with the arithmetic of
a block, it holds for the blocks that were not run: every further plain one adds its activations, every further
checkpointed one its input or its gradients, and what is left grows with batch and context.
"""

from dataclasses import dataclass

from tinygpt.memory.estimate import activation_bytes, block_parameter_bytes, boundary_bytes
from tinygpt.savings.plan import Plan
from tinygpt.savings.reading import Pair

# Weights, two moments and gradients, and what the update needs beyond them; measured, tests/memory/test_step.py.
UPDATE_FACTOR = 4.2

# How far the measured activations of a block may be from the arithmetic, which fits seven shapes within 5 %;
# and besides, at either depth one score matrix more or less may be in flight when the peak is reached.
BLOCK_TOLERANCE = 0.05

# What a further checkpointed block may add, in its activations: the peak of the recomputation moves by up to
# 0.23 of them.
GROWTH_TOLERANCE = 0.30


@dataclass(frozen=True)
class RowReport:
    """A row, judged.

    Attributes:
        plan: How it was run.
        pairs: What was read.
        plain_bytes: Peak of a plain training step with weights and moments, measured or projected.
        checkpointed_bytes: The same, checkpointed.
        threshold: Largest ratio allowed.
        verdict: ``pass``, or ``fail`` and why.
    """

    plan: Plan
    pairs: tuple[Pair, ...]
    plain_bytes: int
    checkpointed_bytes: int
    threshold: float
    verdict: str

    @property
    def ratio(self) -> float:
        """Checkpointed over plain peak."""
        return self.checkpointed_bytes / self.plain_bytes

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict == "pass"


def judge(plan: Plan, pairs: tuple[Pair, ...], threshold: float) -> RowReport:
    """Return the verdict on a row.

    Args:
        plan: How the row was run.
        pairs: One reading for each of the plan's depths.
        threshold: Largest ratio allowed.
    """
    if plan.whole:
        (pair,) = pairs
        plain, checkpointed = (reading.base_bytes + reading.peak_bytes for reading in (pair.plain, pair.checkpointed))
    else:
        plain, checkpointed = _project(plan, pairs)
    verdict = _gated(pairs) or ("" if plan.whole else _blocks(plan, pairs))
    if not verdict and checkpointed > threshold * plain:
        verdict = f"fail: ratio {checkpointed / plain:.3f}, expected at most {threshold:.2f}"
    return RowReport(plan, pairs, plain, checkpointed, threshold, verdict or "pass")


def _gated(pairs: tuple[Pair, ...]) -> str:
    for pair in pairs:
        if pair.differences:
            count, first = len(pair.differences), pair.differences[0]
            return f"fail: gated, {count} gradients differ at {pair.depth} blocks, first {first}"
    return ""


def _blocks(plan: Plan, pairs: tuple[Pair, ...]) -> str:
    """Say what is wrong with the cost of a block, or nothing."""
    activations = activation_bytes(plan.row.config, batch=plan.batch, context=plan.context)
    kept, grown = _slopes(pairs)
    scores = 4 * plan.batch * plan.row.config.n_head * plan.context**2
    tolerance = BLOCK_TOLERANCE * activations + scores / (pairs[-1].depth - pairs[0].depth)
    if abs(kept - activations) > tolerance:
        return f"fail: a plain block keeps {kept:.0f} B, expected {activations} B within {tolerance:.0f} B"
    allowed = _least_growth(plan, plan.batch, plan.context) + GROWTH_TOLERANCE * activations
    if grown > allowed:
        return f"fail: a checkpointed block adds {grown:.0f} B, expected at most {allowed:.0f} B"
    return ""


def _project(plan: Plan, pairs: tuple[Pair, ...]) -> tuple[int, int]:
    """Return both peaks of the whole row, projected."""
    row, config, deep = plan.row, plan.row.config, pairs[-1]
    as_run = activation_bytes(config, batch=plan.batch, context=plan.context)
    as_meant = activation_bytes(config, batch=row.batch, context=row.context)
    scale = as_meant / as_run
    parameters = 4 * config.parameters
    # Of the checkpointed peak, what is not one block after another is the recomputation of one, which grows
    # with batch and context.
    recomputation = deep.checkpointed.peak_bytes - deep.depth * _least_growth(plan, plan.batch, plan.context)
    rest = deep.plain.peak_bytes - deep.depth * as_run
    plain = config.n_layer * as_meant + scale * rest
    checkpointed = config.n_layer * _least_growth(plan, row.batch, row.context) + scale * recomputation
    floor = UPDATE_FACTOR * parameters
    return tuple(round(max(3 * parameters + gradients, floor)) for gradients in (plain, checkpointed))  # type: ignore[return-value]


def _slopes(pairs: tuple[Pair, ...]) -> tuple[float, float]:
    """Return what a further block adds to the plain and to the checkpointed peak, in bytes."""
    shallow, deep = pairs
    blocks = deep.depth - shallow.depth
    return (
        (deep.plain.peak_bytes - shallow.plain.peak_bytes) / blocks,
        (deep.checkpointed.peak_bytes - shallow.checkpointed.peak_bytes) / blocks,
    )


def _least_growth(plan: Plan, batch: int, context: int) -> int:
    """Return what a further checkpointed block adds at the least: its input until the backward, then its gradients."""
    config = plan.row.config
    return max(boundary_bytes(config, batch=batch, context=context), block_parameter_bytes(config))
