"""Every tolerance that a comparison may use, by name and with its reason. The default is none.

A tolerance is relative to the largest value of a leaf, so that it does not vanish beside a small element.
"""

import math
from dataclasses import dataclass

# The distance from 1 to the next number.
FLOAT32_EPSILON = 2.0**-23
BFLOAT16_EPSILON = 2.0**-7


@dataclass(frozen=True)
class Tolerance:
    """How far a leaf may be from what is expected.

    Attributes:
        relative: Largest difference over largest value.
        reason: Why it cannot be less.
    """

    relative: float
    reason: str


EXACT = Tolerance(0.0, "the checkpointed run performs the operations of the plain one")

OTHER_ORDER = Tolerance(
    1e-5,
    "one value computed in two ways: the same terms added in another order, a few dozen times one after another, "
    "with a rounding of 1.2e-7 each time",
)


def atomic_additions(rows: int, epsilon: float = FLOAT32_EPSILON) -> Tolerance:
    """Return the tolerance for a sum of ``rows`` numbers of a precision, in an order that changes from run to run."""
    return Tolerance(
        math.sqrt(rows) * epsilon,
        "the gradient of an embedding, or of any array that is indexed, is summed by atomic additions on CUDA, in an "
        f"order that changes from run to run: the sum of {rows} rows wanders by sqrt({rows}) roundings; for leaves in "
        "which two plain runs differ",
    )


ATOMIC_ADDITIONS = atomic_additions(4096)  # the largest batch of a preset's row: behemoth 4x1024

HIGHER_DERIVATIVES = Tolerance(
    8 * FLOAT32_EPSILON,
    "a derivative of a derivative adds up the same terms, but plain MLX adds them in the order of its own graph",
)
