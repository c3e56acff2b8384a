"""A transformer block, the unit of recomputation: normalise, attend, add; normalise, transform, add.

Pre-norm residuals as in Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2).
"""

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig
from tinygpt.model.attention import Attention
from tinygpt.model.feed_forward import FeedForward


class Block(nn.Module):
    """Attention and feed-forward, each on a normalised copy of the stream and added back to it."""

    def __init__(self, config: GPTConfig) -> None:
        """Make both halves and their norms."""
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.n_embd)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.n_embd)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def __call__(self, x: mx.array) -> mx.array:
        """Return the stream after this block.

        Shape:
            (B, T, D) to (B, T, D).
        """
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
