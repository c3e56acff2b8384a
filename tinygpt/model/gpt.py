"""A decoder-only transformer on bytes: learned positions, pre-norm blocks, tied embeddings.

Radford et al. 2019 (GPT-2); sizes in ``tinygpt.presets``. Weights start as in GPT-2: normal with deviation
0.02, that of the layers that write into the stream divided by sqrt(2 n_layer), biases zero.
"""

import math
from collections.abc import Callable, Sequence

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig
from tinygpt.model.block import Block

INITIAL_DEVIATION = 0.02


class GPT(nn.Module):
    """A language model: the logits of the next token at every position."""

    def __init__(self, config: GPTConfig) -> None:
        """Make the model with random weights from MLX's global random state."""
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.position_embedding = nn.Embedding(config.context, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = [Block(config) for _ in range(config.n_layer)]
        self.norm = nn.LayerNorm(config.n_embd)
        self._initialise()

    def __call__(self, tokens: mx.array, blocks: Sequence[Callable[[mx.array], mx.array]] | None = None) -> mx.array:
        """Return the logits of the token after each of the given ones.

        Args:
            tokens: Token ids, at most ``config.context`` in a sequence.
            blocks: What to run instead of the model's own blocks, for instance the same blocks under a wrapper.

        Shape:
            (B, T) integers to (B, T, V).
        """
        positions = mx.arange(tokens.shape[1])
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))  # (B, T, D)
        for block in self.blocks if blocks is None else blocks:
            x = block(x)
        logits: mx.array = self.token_embedding.as_linear(self.norm(x))
        return logits

    def _initialise(self) -> None:
        """Draw all weights, in the order of the layers."""
        into_stream = INITIAL_DEVIATION / math.sqrt(2 * len(self.blocks))
        for embedding in (self.token_embedding, self.position_embedding):
            embedding.weight = mx.random.normal(embedding.weight.shape, scale=INITIAL_DEVIATION)
        for block in self.blocks:
            for layer in (block.attention.query, block.attention.key, block.attention.value, block.feed_forward.widen):
                _draw(layer, INITIAL_DEVIATION)
            for layer in (block.attention.output, block.feed_forward.narrow):
                _draw(layer, into_stream)


def next_token_loss(logits: mx.array, targets: mx.array) -> mx.array:
    """Return the mean cross entropy in nats, a scalar in float32.

    Shape:
        Logits (B, T, V), targets (B, T) integers.
    """
    return nn.losses.cross_entropy(logits.astype(mx.float32), targets, reduction="mean")


def _draw(layer: nn.Linear, deviation: float) -> None:
    layer.weight = mx.random.normal(layer.weight.shape, scale=deviation)
    layer.bias = mx.zeros_like(layer.bias)
