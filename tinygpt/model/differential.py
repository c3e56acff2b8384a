"""Differential attention: two attention maps, the second subtracted, so that what both see by accident cancels.

Ye et al. 2024, "Differential Transformer", https://arxiv.org/abs/2410.05258: lambda is re-parametrized (equation 2)
and starts at 0.8 - 0.6 exp(-0.3 l) in block l, counted from 0; each head is normalised on its own and scaled by what
the initial lambda leaves. Where we differ: a head is as wide as an ordinary one, its two maps share the width;
projections have biases; dropout, if any, acts on the difference of the maps.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig
from tinygpt.model.attention import Attention, attention_map, gather, visible


class DifferentialAttention(Attention):
    """Every token looks twice at itself and at the tokens before it, and keeps the difference."""

    def __init__(self, config: GPTConfig, *, index: int, cross: bool = False) -> None:
        """Make the projections, lambda's four vectors, and the norm of a head, for the block of that index."""
        super().__init__(config, cross=cross)
        self._initial = 0.8 - 0.6 * math.exp(-0.3 * index)
        for name in ("query_1", "key_1", "query_2", "key_2"):
            self[f"lambda_{name}"] = mx.zeros(config.head_width)
        self.head_norm = nn.RMSNorm(2 * config.head_width)

    def core(self, query: mx.array, key: mx.array, value: mx.array, *places: mx.array) -> mx.array:
        """Return the values, weighted by the difference of both maps, (B, H, T, 2 K); arguments as in ``Attention``."""
        mask = visible(*places, window=self._window)
        groups = value.shape[1]
        # The first map of every head of a group looks at the group's first key, the second map at its second.
        by_map = mx.unflatten(query, 1, (groups, -1, 2)).swapaxes(2, 3)  # (B, G, 2, H / G, T, K)
        maps = mx.unflatten(attention_map(by_map.flatten(1, 3), key, mask), 1, (groups, 2, -1))
        weights = (maps[:, :, 0] - self.subtracted().astype(maps.dtype) * maps[:, :, 1]).flatten(1, 2)  # (B, H, T, S)
        normalised: mx.array = self.head_norm(gather(self.dropout(weights), value))
        return normalised * (1 - self._initial)

    def subtracted(self) -> mx.array:
        """Return lambda, the share of the second map that is subtracted; a scalar in float32."""
        first, second = (
            mx.exp((self[f"lambda_query_{number}"].astype(mx.float32) * self[f"lambda_key_{number}"]).sum())
            for number in (1, 2)
        )
        return first - second + self._initial
