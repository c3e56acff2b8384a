"""The position-wise feed-forward layer: every token is transformed on its own.

Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", https://arxiv.org/abs/1606.08415; the exact form, not the tanh
one. Shazeer 2020, "GLU Variants Improve Transformer", https://arxiv.org/abs/2002.05202: SwiGLU, without biases; here
the hidden width is what the configuration says, not two thirds of it.
"""

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig

Losses = dict[str, mx.array]


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, config: GPTConfig) -> None:
        """Make both layers, with biases."""
        super().__init__()
        self.widen = nn.Linear(config.n_embd, config.n_mlp)
        self.narrow = nn.Linear(config.n_mlp, config.n_embd)

    def __call__(self, x: mx.array) -> tuple[mx.array, Losses]:
        """Return the transformed tokens, and no auxiliary losses.

        Shape:
            (B, T, D) to (B, T, D), through (B, T, F).
        """
        return self.narrowed(self.widen(x)), {}

    def narrowed(self, hidden: mx.array) -> mx.array:
        """Return the activated hidden layer, brought back to the stream's width: (B, T, F) to (B, T, D)."""
        result: mx.array = self.narrow(nn.gelu(hidden))
        return result


class SwiGLU(nn.Module):
    """Two linear layers, the hidden one gated by a third."""

    def __init__(self, config: GPTConfig) -> None:
        """Make the three layers, without biases."""
        super().__init__()
        self.gate = nn.Linear(config.n_embd, config.n_mlp, bias=False)
        self.widen = nn.Linear(config.n_embd, config.n_mlp, bias=False)
        self.narrow = nn.Linear(config.n_mlp, config.n_embd, bias=False)

    def __call__(self, x: mx.array) -> tuple[mx.array, Losses]:
        """Return the transformed tokens, and no auxiliary losses.

        Shape:
            (B, T, D) to (B, T, D), through (B, T, F).
        """
        return self.narrowed(self.gate(x), self.widen(x)), {}

    def narrowed(self, gate: mx.array, hidden: mx.array) -> mx.array:
        """Return the gated hidden layer, brought back to the stream's width: (B, T, F) twice to (B, T, D)."""
        result: mx.array = self.narrow(nn.silu(gate) * hidden)
        return result
