"""Causal multi-head self-attention.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762. The scores are written out
(softmax of a T x T matrix) rather than left to ``mx.fast.scaled_dot_product_attention``: its gradient is the
same unfused computation on CPU and Metal, and written out it is the same on every backend and release, which
is what a suite that compares them needs.

Letters in shape comments, here and in all of the model: B sequences, T tokens, D width, H heads, K width of a
head, F hidden width, V vocabulary.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig


class Attention(nn.Module):
    """Every token looks at itself and at the tokens before it."""

    def __init__(self, config: GPTConfig) -> None:
        """Make the four projections, with biases."""
        super().__init__()
        self.n_head = config.n_head
        self.query = nn.Linear(config.n_embd, config.n_embd)
        self.key = nn.Linear(config.n_embd, config.n_embd)
        self.value = nn.Linear(config.n_embd, config.n_embd)
        self.output = nn.Linear(config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def __call__(self, x: mx.array) -> mx.array:
        """Return what each token gathers from those it sees.

        Shape:
            (B, T, D) to (B, T, D).
        """
        query, key, value = (self._heads(project(x)) for project in (self.query, self.key, self.value))
        scale = 1 / math.sqrt(query.shape[-1])
        scores = (query * scale) @ key.swapaxes(-1, -2)  # (B, H, T, T)
        scores = mx.where(_visible(x.shape[1]), scores, mx.array(-mx.inf, scores.dtype))
        weights = self.dropout(mx.softmax(scores, axis=-1, precise=True))
        gathered = (weights @ value).swapaxes(1, 2).flatten(-2)  # (B, T, D)
        return self.output(gathered)

    def _heads(self, x: mx.array) -> mx.array:
        return mx.unflatten(x, -1, (self.n_head, -1)).swapaxes(1, 2)  # (B, T, D) to (B, H, T, K)


def _visible(length: int) -> mx.array:
    """Return which keys (second axis) a query (first axis) may see, shape (T, T), dtype bool."""
    position = mx.arange(length)
    return position[:, None] >= position
