"""What a model does with the activations of each of its blocks: pure data, without MLX.

Separate from the policies that make plans and from the estimate that counts their bytes, which do not know each other.
"""

from enum import StrEnum
from typing import NamedTuple


class Recompute(StrEnum):
    """What of a block is not kept, and computed again in the backward."""

    NOTHING = "nothing"
    BLOCK = "block"  # everything but its input
    ATTENTION = "attention"  # the attention core: maps and what they gather
    SELECTIVE = "selective"  # the core, and the activation function
    HALVES = "halves"  # attention and feed-forward, one after the other


class Segment(NamedTuple):
    """Neighbouring blocks that are treated together.

    Attributes:
        first: Index of the first.
        length: How many.
        recompute: What is computed again. Several blocks are one recomputation; otherwise there is one block.
    """

    first: int
    length: int
    recompute: Recompute

    @property
    def blocks(self) -> range:
        """The indices of its blocks."""
        return range(self.first, self.first + self.length)


Plan = tuple[Segment, ...]
