"""How far MLX is from PyTorch in float64, beside what rounding explains: ``python -m tinygpt.equality.precision``.

Checkpointed gradients are plain's to the bit, so one comparison speaks for both.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
import numpy.typing as npt

from tinygpt import evidence
from tinygpt.checkpointing import checkpointed_blocks
from tinygpt.equality.case import Case, results
from tinygpt.leaves import leaves
from tinygpt.reference import (
    AdamW,
    Row,
    leaf_bounds,
    reference_gradients,
    reference_training,
    relative_differences,
    training_bounds,
    weights_of,
)
from tinygpt.train import TrainStep
from tinygpt.variants import VARIANTS, combined

Tokens = npt.NDArray[np.integer]

LENGTHS = (7, 31, 32, 33)
STEPS = 20
UPDATE = AdamW(learning_rate=1e-3, clip_norm=1.0)

# A decision nearer than this may turn around in float32, and then says nothing about rounding: scores are sums of a
# hundred roundings or so, relative to their range.
LEAST_MARGIN = 1e-5


@dataclass(frozen=True)
class Precision:
    """One variant beside the reference.

    Attributes:
        variant: Its name.
        leaves: Results compared, over all lengths: losses and gradients.
        outside: Names of those beyond their bound.
        near_ties: Lengths that were not compared, for a router's decision that rounding could turn around.
        difference: Largest difference of a leaf, relative to its largest value.
        leaf: That leaf.
        bound: Its bound, in the same unit.
        share: Largest share of its bound that any leaf reaches.
        curve_share: Largest share of its bound that a loss reaches in twenty steps of training.
    """

    variant: str
    leaves: int
    outside: tuple[str, ...]
    near_ties: int
    difference: float
    leaf: str
    bound: float
    share: float
    curve_share: float


def precision(variant: str, *, lengths: Sequence[int] = LENGTHS) -> Precision:
    """Compare one variant at several lengths, and twenty steps of training."""
    found = [compared(Case(combined(variant), length=length)) for length in lengths]
    rows = [row for some in found if some is not None for row in some]
    largest = max((row for row in rows if row.leaf != "loss"), key=lambda row: row.difference)
    return Precision(
        variant,
        len(rows),
        tuple(row.leaf for row in rows if not row.within),
        found.count(None),
        largest.difference,
        largest.leaf,
        largest.bound,
        max(row.difference / row.bound for row in rows if row.bound),
        max(curve_shares(variant)),
    )


def compared(case: Case) -> list[Row] | None:
    """Return every loss and gradient of a case beside the reference's; None where a router's decision is too near."""
    model, tokens = case.model(), case.tokens()
    weights, ids = weights_of(model), np.array(tokens)
    expected = reference_gradients(case.config, weights, ids)
    if expected.margin < LEAST_MARGIN:
        return None
    run = results(model, tokens, case, checkpointed_blocks(model.blocks, "all"))
    got = {"loss": run["loss"]} | run["auxiliary"] | leaves(run["gradients"])
    return relative_differences(
        {name: np.array(array) for name, array in got.items()},
        {"loss": expected.loss, **expected.auxiliary, **expected.gradients},
        leaf_bounds(case.config, weights, ids),
    )


def curve_shares(variant: str, **changes: Any) -> list[float]:
    """Return by how much of its bound each loss of twenty checkpointed steps differs from the reference's.

    Args:
        variant: Its name.
        changes: Of MLX's optimizer, against which the comparison is to prove itself.
    """
    case = Case(dataclasses.replace(combined(variant), n_layer=2), length=16)
    model = case.model()
    batches, expected, bounds = _reference_curve(case)
    step = TrainStep(
        model,
        optim.AdamW(UPDATE.learning_rate, bias_correction=True, **changes),
        blocks=checkpointed_blocks(model.blocks, "all"),
        clip_norm=UPDATE.clip_norm,
        compiled=case.compiled,
    )
    losses = [cast("float", step(mx.array(batch)).item()) for batch in batches]
    return [abs(loss - want) / bound for loss, want, bound in zip(losses, expected, bounds, strict=True)]


@functools.lru_cache(maxsize=16)
def _reference_curve(case: Case) -> tuple[list[Tokens], list[float], list[float]]:
    """Return the batches of a training, the reference's losses, and their bounds."""
    weights = weights_of(case.model())
    shape = (STEPS, case.batch, case.length + 1)
    batches = list(np.random.default_rng(0).integers(0, case.config.vocab_size, shape))
    expected, _ = reference_training(
        case.config, weights, batches, learning_rate=UPDATE.learning_rate, clip_norm=UPDATE.clip_norm
    )
    return batches, expected, training_bounds(case.config, weights, batches, UPDATE)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all variants, print a line for each, and return 1 if one is beyond what rounding explains."""
    return evidence.main(evidence.parser("equality.precision", __doc__), _compare_all, argv)


def _compare_all(_: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    found = []
    for variant in (name for name, changes in VARIANTS.items() if "dropout" not in changes):
        found.append(precision(variant))
        print(_line(found[-1]), flush=True)
    good = not any(each.outside or each.near_ties or each.curve_share > 1 for each in found)
    return good, {"precision": [dataclasses.asdict(each) for each in found]}


def _line(found: Precision) -> str:
    outside = f", OUTSIDE: {', '.join(found.outside)}" if found.outside else ""
    return (
        f"{found.variant}: {found.leaves} results, largest difference {found.difference:.1e} of {found.leaf} "
        f"(bound {found.bound:.1e}), {found.share:.2f} of a bound at most, {found.curve_share:.2f} in training{outside}"
    )


if __name__ == "__main__":
    sys.exit(main())
