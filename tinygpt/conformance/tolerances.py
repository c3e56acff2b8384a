"""Every tolerance that a comparison may use, by name and with its reason. The default is none.

A tolerance is relative to the largest value of a leaf, so that it does not vanish beside a small element.
"""

from dataclasses import dataclass

# The distance from 1 to the next number.
FLOAT32_EPSILON = 2.0**-23


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

ATOMIC_ADDITIONS = Tolerance(
    64 * FLOAT32_EPSILON,
    "the gradient of an embedding is summed by atomic additions on CUDA, in an order that changes from run to run: "
    "the sum of the 4096 rows of a batch wanders by sqrt(4096) roundings; for leaves in which two plain runs differ",
)

HIGHER_DERIVATIVES = Tolerance(
    8 * FLOAT32_EPSILON,
    "a derivative of a derivative adds up the same terms, but plain MLX adds them in the order of its own graph",
)
