"""The two normalisations of a token's vector.

Ba et al. 2016, "Layer Normalization", https://arxiv.org/abs/1607.06450, and Zhang and Sennrich 2019, "Root Mean
Square Layer Normalization", https://arxiv.org/abs/1910.07467, which leaves out mean and bias.
"""

import mlx.nn as nn

from tinygpt.config import GPTConfig


def make_norm(config: GPTConfig) -> nn.LayerNorm | nn.RMSNorm:
    """Return a new norm of the model's kind and width."""
    return (nn.RMSNorm if config.norm == "rms" else nn.LayerNorm)(config.n_embd)
