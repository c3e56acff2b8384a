"""One cache of keys and values for the second half of the blocks: you only cache once.

Sun et al. 2024, "You Only Cache Once", https://arxiv.org/abs/2405.05254: the first half attends to itself (with a
window, if one is chosen), the cache is made of its normalised result, and every block of the second half only asks it.
Where we differ: the first half has ordinary or windowed attention, not gated retention.
"""

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig
from tinygpt.model.attention import Cache, KeyValue
from tinygpt.model.norm import make_norm


class SharedCache(nn.Module):
    """Makes the keys and values that the second half of the blocks reads."""

    def __init__(self, config: GPTConfig) -> None:
        """Make norm and projections."""
        super().__init__()
        self.norm = make_norm(config)
        self.key_value = KeyValue(config)

    def __call__(self, x: mx.array) -> Cache:
        """Return keys and values of the whole sequence, as ``KeyValue`` does.

        Shape:
            (B, T, D) to (B, G x maps, T, K) and (B, G, T, K x maps).
        """
        return self.key_value(self.norm(x), mx.arange(x.shape[1])[None])
