"""Mixture of depths: a block processes only the tokens that its router scores highest; the others pass by.

Raposo et al. 2024, "Mixture-of-Depths", https://arxiv.org/abs/2404.02258, equation 1: the router's score multiplies
what the block adds, and so has a gradient. The choice looks at the whole sequence, also at later tokens, and so is not
causal; the loss ``capacity`` (section 3.5 there, the first method) teaches each score to say by its sign alone whether
it is chosen, which is what a sampler would go by.

Where we differ: "what the block adds" is attention and feed-forward without the stream itself; chosen tokens keep
their positions, and see one another only, or the whole shared cache.
"""

import math
from fractions import Fraction

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig
from tinygpt.model.attention import Cache
from tinygpt.model.block import Block, Result
from tinygpt.model.feed_forward import Losses
from tinygpt.model.routing import highest


class MixtureOfDepths(nn.Module):
    """A block for some of the tokens."""

    def __init__(self, config: GPTConfig, *, index: int) -> None:
        """Make the router and the block of that index."""
        super().__init__()
        self._capacity = config.mod_capacity or 1.0
        self.router = nn.Linear(config.n_embd, 1, bias=False)
        self.block = Block(config, index=index)

    def __call__(self, x: mx.array, *cache: mx.array) -> Result:
        """Return the stream after this block, its losses with ``capacity``, scalars in float32, and the cache.

        Shape:
            (B, T, D) to (B, T, D), through (B, C, D).
        """
        scores = (x.astype(mx.float32) @ self.router.weight.astype(mx.float32).T).squeeze(-1)  # (B, T)
        chosen = mx.sort(highest(scores, chosen_count(self._capacity, x.shape[1])), axis=-1)  # (B, C)
        added, losses = self._added(mx.take_along_axis(x, chosen[..., None], axis=1), chosen, cache)
        weights = mx.take_along_axis(scores, chosen, axis=1)[..., None]
        places = mx.arange(x.shape[0])[:, None]
        stream = x.at[places, chosen].add(added * weights.astype(x.dtype))
        return stream, losses | {"capacity": _capacity(scores, chosen)}, *cache

    def _added(self, x: mx.array, positions: mx.array, cache: Cache) -> tuple[mx.array, Losses]:
        attended = self.block.attended(x, positions, *cache)
        transformed, losses = self.block.transformed(x + attended)
        return attended + transformed, losses


def chosen_count(capacity: float, length: int) -> int:
    """Return how many of ``length`` tokens a block processes: the share, as it is written, rounded up."""
    return math.ceil(Fraction(str(capacity)) * length)  # as a float, 0.07 of 100 is above 7


def _capacity(scores: mx.array, chosen: mx.array) -> mx.array:
    """Return the mean binary cross entropy of the scores against having been chosen."""
    signs = mx.put_along_axis(mx.ones_like(scores), chosen, mx.array(-1.0), axis=1)  # (B, T)
    return mx.logaddexp(0, signs * scores).mean()
