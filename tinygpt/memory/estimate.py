"""What a block keeps for its backward pass, by arithmetic; no MLX needed.

Letters: B sequences, T tokens, D width, F hidden width, H heads. All sizes in bytes.
"""

from tinygpt.config import GPTConfig
from tinygpt.errors import ConfigError

FLOAT32_BYTES = 4
DENSE = {
    "attention": "softmax",
    "feed_forward": "gelu",
    "n_expert": 1,
    "n_kv_head": None,
    "mod_capacity": None,
    "yoco": False,
}


def boundary_bytes(config: GPTConfig, *, batch: int, context: int, itemsize: int = FLOAT32_BYTES) -> int:
    """Return the size of a block's input, (B, T, D): all that a checkpointed block keeps."""
    return itemsize * batch * context * config.n_embd


def activation_bytes(config: GPTConfig, *, batch: int, context: int, itemsize: int = FLOAT32_BYTES) -> int:
    """Return what a plain block keeps between its forward and its backward.

    Raises:
        ConfigError: The blocks are not dense, with full attention and a GELU.

    Shape:
        10 (B, T, D): input, two norms, their statistics' operands, query, key, value, gathered values, stream
        between the halves; 4 (B, T, F): before the GELU, two intermediate values of it, after it; and one (B,
        H, T, T): the softmax.

    Source:
        Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, counts 8, 2 and 1; MLX's GELU and norms
        keep more. Measured on the CPU at five shapes, MLX 0.32.4: see ``tests/memory/test_estimate.py``.
    """
    _check_dense(config)
    tokens = batch * context
    stream, hidden = tokens * config.n_embd, tokens * config.n_mlp
    scores = tokens * config.n_head * context
    return itemsize * (10 * stream + 4 * hidden + scores)


def block_parameter_bytes(config: GPTConfig, *, itemsize: int = FLOAT32_BYTES) -> int:
    """Return the size of one block's parameters, which is that of their gradients too."""
    return itemsize * config.block_parameters()


def forward_flops(config: GPTConfig, *, batch: int, context: int) -> int:
    """Return the floating-point operations of a block's matrix products in a forward; a backward has twice as many."""
    _check_dense(config)
    d, f = config.n_embd, config.n_mlp
    return 2 * batch * context * (4 * d * d + 2 * d * f + 2 * context * d)


def _check_dense(config: GPTConfig) -> None:
    """Raise for a model whose blocks this arithmetic is not about."""
    for field, expected in DENSE.items():
        if getattr(config, field) != expected:
            raise ConfigError(f"[estimate] {field}: got {getattr(config, field)!r}, expected {expected!r}")


def peak_bytes(config, **kwargs) -> int:
    return 0
