"""Causal multi-head attention, to the tokens themselves or to a cache that several blocks share.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762. Fewer key and value heads than
query heads: Ainslie et al. 2023, "GQA", https://arxiv.org/abs/2305.13245. A window: Beltagy et al. 2020, "Longformer",
https://arxiv.org/abs/2004.05150; here the token itself counts as one of the window.

The scores are written out (softmax of a T x S matrix) rather than left to ``mx.fast.scaled_dot_product_attention``: its
gradient is the same unfused computation on CPU and Metal, and written out it is the same on every backend and
release, which is what a suite that compares them needs.

Letters in shape comments, here and in all of the model: B sequences, T tokens, S tokens that are looked at, D width,
H heads, G key and value heads, K width of a query, F hidden width, E experts, C chosen, V vocabulary.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig
from tinygpt.model.rotary import rotate

Cache = tuple[mx.array, ...]


class KeyValue(nn.Module):
    """Turns tokens into what can be looked at: keys and values."""

    def __init__(self, config: GPTConfig) -> None:
        """Make both projections, with biases."""
        super().__init__()
        self._heads = config.kv_heads
        self._maps = config.maps
        self._rotary = config.position == "rotary"
        width = config.kv_heads * config.maps * config.head_width
        self.key = nn.Linear(config.n_embd, width)
        self.value = nn.Linear(config.n_embd, width)

    def __call__(self, x: mx.array, positions: mx.array) -> Cache:
        """Return keys and values.

        Shape:
            (B, S, D), positions (B or 1, S), to (B, G x maps, S, K) and (B, G, S, K x maps).
        """
        key = split_heads(self.key(x), self._heads * self._maps)
        if self._rotary:
            key = rotate(key, positions)
        return key, split_heads(self.value(x), self._heads)


class Attention(nn.Module):
    """Every token looks at itself and at the tokens before it."""

    def __init__(self, config: GPTConfig, *, cross: bool = False) -> None:
        """Make the projections, with biases; those of keys and values only if they are not read from a cache."""
        super().__init__()
        self._heads = config.n_head * config.maps
        self._rotary = config.position == "rotary"
        self._window = None if cross else config.window
        self.query = nn.Linear(config.n_embd, config.n_embd)
        if not cross:
            self.key_value = KeyValue(config)
        self.output = nn.Linear(config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def __call__(self, x: mx.array, positions: mx.array, cache: Cache = ()) -> mx.array:
        """Return what each token gathers from those it sees.

        Args:
            x: The tokens that look.
            positions: Theirs in the sequence.
            cache: Keys and values of the whole sequence. Without it, the tokens look at one another.

        Shape:
            (B, T, D), positions (B or 1, T), to (B, T, D).
        """
        query = split_heads(self.query(x), self._heads)
        if self._rotary:
            query = rotate(query, positions)
        if cache:
            key, value = cache
            seen = mx.arange(key.shape[2])[None]
        else:
            key, value = self.key_value(x, positions)
            seen = positions
        gathered = self.core(query, key, value, positions, seen)
        return self.output(gathered.swapaxes(1, 2).flatten(-2))

    def core(self, query: mx.array, key: mx.array, value: mx.array, *places: mx.array) -> mx.array:
        """Return the values, weighted by how well their keys fit, (B, H, T, K).

        Args:
            query: (B, H, T, K).
            key: (B, G, S, K).
            value: (B, G, S, K).
            places: Positions of the queries, (B or 1, T), and of the keys, (B or 1, S).
        """
        mask = visible(*places, window=self._window)
        return gather(self.dropout(attention_map(query, key, mask)), value)


def split_heads(x: mx.array, heads: int) -> mx.array:
    """Return (B, T, D) as (B, heads, T, D / heads)."""
    return mx.unflatten(x, -1, (heads, -1)).swapaxes(1, 2)


def visible(positions: mx.array, seen: mx.array, *, window: int | None) -> mx.array:
    """Return which keys a query may see.

    Shape:
        Positions of the queries (B or 1, T) and of the keys (B or 1, S), to (B or 1, 1, T, S) booleans.
    """
    # Compared, not subtracted: indices that MLX has sorted are unsigned, and their difference is never negative.
    query, key = positions[:, None, :, None], seen[:, None, None, :]
    return query >= key if window is None else (query >= key) & (query < key + window)


def attention_map(query: mx.array, key: mx.array, mask: mx.array) -> mx.array:
    """Return the share of each key in what a query gathers.

    Shape:
        (B, H, T, K) and (B, G, S, K), neighbouring heads sharing a key head, to (B, H, T, S).
    """
    scale = 1 / math.sqrt(query.shape[-1])
    scores = _by_group(query * scale, key.swapaxes(-1, -2))
    return mx.softmax(mx.where(mask, scores, mx.array(-mx.inf, scores.dtype)), axis=-1, precise=True)


def gather(weights: mx.array, value: mx.array) -> mx.array:
    """Return the weighted values: (B, H, T, S) and (B, G, S, K) to (B, H, T, K)."""
    return _by_group(weights, value)


def _by_group(of_heads: mx.array, of_groups: mx.array) -> mx.array:
    """Multiply matrices of H heads with those of G groups of heads; nothing is copied."""
    batch, heads, length, inner = of_heads.shape
    groups = of_groups.shape[1]
    together = of_heads.reshape(batch, groups, heads // groups * length, inner)
    return (together @ of_groups).reshape(batch, heads, length, -1)
