"""Small models and inputs that checks and experiments share."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn


class MLPBlock(nn.Module):
    """A pre-norm feed-forward block with a residual, (..., D) to (..., D), through (..., 4 D)."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        """Make a block of width D."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def __call__(self, x: mx.array) -> mx.array:
        """Return the stream after the block."""
        return x + self.dropout(self.narrow(nn.gelu(self.widen(self.norm(x)))))


class Stack(nn.Module):
    """Blocks one after another."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        """Keep the blocks."""
        super().__init__()
        self.blocks = list(blocks)

    def __call__(self, x: mx.array, blocks: Sequence[Callable[..., Any]] | None = None) -> mx.array:
        """Run the blocks, or what is given instead of them."""
        for block in self.blocks if blocks is None else blocks:
            x = block(x)
        return x


def mlp_stack(depth: int, *, width: int = 64, tokens: int = 256) -> tuple[Stack, mx.array]:
    """Return ``depth`` MLP blocks and an input of shape (tokens, width), evaluated, the same every time."""
    mx.random.seed(0)
    model = Stack([MLPBlock(width) for _ in range(depth)])
    x = mx.random.normal((tokens, width))
    mx.eval(model.parameters(), x)
    return model, x
