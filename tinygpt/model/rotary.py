"""Rotary positions: a query and a key are rotated by angles that grow with their positions.

Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", https://arxiv.org/abs/2104.09864. Where
we differ: the two coordinates of a rotated pair are half a vector apart, as in LLaMA, not neighbours. Written out
rather than left to ``mx.fast.rope``, which takes no list of positions; mixture of depths has gaps in it.
"""

import math

import mlx.core as mx

BASE = 10_000.0


def rotate(x: mx.array, positions: mx.array) -> mx.array:
    """Return queries or keys, rotated.

    Shape:
        (B, H, T, K) with K even, and positions (B or 1, T), to (B, H, T, K).
    """
    half = x.shape[-1] // 2
    frequencies = mx.exp(mx.arange(half) * (-math.log(BASE) / half))
    angles = positions[:, None, :, None] * frequencies  # (B, 1, T, K / 2)
    cosine, sine = mx.cos(angles).astype(x.dtype), mx.sin(angles).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return mx.concatenate([first * cosine - second * sine, first * sine + second * cosine], axis=-1)
