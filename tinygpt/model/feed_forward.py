"""The position-wise feed-forward layer: two linear layers with a GELU between them.

Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", https://arxiv.org/abs/1606.08415; the exact form,
not the tanh one.
"""

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig


class FeedForward(nn.Module):
    """Every token is transformed on its own."""

    def __init__(self, config: GPTConfig) -> None:
        """Make both layers, with biases."""
        super().__init__()
        self.widen = nn.Linear(config.n_embd, config.n_mlp)
        self.narrow = nn.Linear(config.n_mlp, config.n_embd)

    def __call__(self, x: mx.array) -> mx.array:
        """Return the transformed tokens.

        Shape:
            (B, T, D) to (B, T, D), through (B, T, F).
        """
        return self.narrow(nn.gelu(self.widen(x)))
