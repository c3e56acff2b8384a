"""A transformer block, the unit of recomputation: normalise, attend, add; normalise, transform, add.

Pre-norm residuals as in Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2). Whatever a
block shares with others comes as an argument or leaves as a result: the shared cache, the auxiliary losses.
"""

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig
from tinygpt.model.attention import Attention
from tinygpt.model.differential import DifferentialAttention
from tinygpt.model.feed_forward import FeedForward, Losses, SwiGLU
from tinygpt.model.moe import MixtureOfExperts
from tinygpt.model.node import own_node
from tinygpt.model.norm import make_norm

# The stream, the auxiliary losses by name, and the shared cache if there is one. The cache goes from block to block: so
# its gradient is added up on the way back, block by block, and a checkpointed block leaves no part of it behind.
Result = tuple[mx.array, Losses, *tuple[mx.array, ...]]


class Block(nn.Module):
    """Attention and feed-forward, each on a normalised copy of the stream and added back to it."""

    def __init__(self, config: GPTConfig, *, index: int = 0) -> None:
        """Make both halves and their norms, for the block of that index."""
        super().__init__()
        cross = index in config.cross_blocks
        self.attention_norm = make_norm(config)
        self.attention = (
            DifferentialAttention(config, index=index, cross=cross)
            if config.attention == "differential"
            else Attention(config, cross=cross)
        )
        self.feed_forward_norm = make_norm(config)
        self.feed_forward = _feed_forward(config)
        self.dropout = nn.Dropout(config.dropout)

    def __call__(self, x: mx.array, *cache: mx.array) -> Result:
        """Return the stream after this block, the block's auxiliary losses by name, and the cache for the next block.

        Args:
            x: The stream.
            cache: Keys and values, for a block that reads the shared cache.

        Shape:
            (B, T, D) to (B, T, D).
        """
        x = x + self.attended(x, mx.arange(x.shape[1])[None], *cache)
        transformed, losses = self.transformed(x)
        return x + transformed, losses, *cache

    def attended(self, x: mx.array, positions: mx.array, *cache: mx.array) -> mx.array:
        """Return what the attention adds to the stream: (B, T, D), positions (B or 1, T), to (B, T, D)."""
        return self.dropout(self.attention(self.attention_norm(own_node(x)), positions, cache))

    def transformed(self, x: mx.array) -> tuple[mx.array, Losses]:
        """Return what the feed-forward adds to the stream, and its losses: (B, T, D) to (B, T, D)."""
        transformed, losses = self.feed_forward(self.feed_forward_norm(own_node(x)))
        return self.dropout(transformed), losses


def _feed_forward(config: GPTConfig) -> FeedForward | SwiGLU | MixtureOfExperts:
    if config.n_expert > 1:
        return MixtureOfExperts(config)
    return SwiGLU(config) if config.feed_forward == "swiglu" else FeedForward(config)
