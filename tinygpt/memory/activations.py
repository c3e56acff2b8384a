"""What a block keeps for its backward pass, by arithmetic; no MLX needed.

Letters: B sequences, T tokens, D width, F hidden width, H heads, G key and value heads, E experts, C chosen. The
counts are those of MLX 0.32.4, part by part, and ``tests/memory/test_estimate.py`` holds them to readings.
Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, count 8 (B, T, D), 2 (B, T, F) and one (B, H, T, T): MLX's
GELU keeps more, and on the CPU its norms do, which are fused on a GPU (results/h200-course.json: a plain block of
behemoth 4x1024 adds 641.0 MiB there, by this count 641).
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from tinygpt.config import GPTConfig


@dataclass(frozen=True)
class Activations:
    """Elements that one plain block keeps between its forward and its backward.

    Attributes:
        boundary: Its input, (B, T, D): all that a checkpointed block keeps.
        attention: Norm, queries, keys, values, what was gathered, and the stream after it.
        core: The attention maps, (B, H, T, T) each.
        feed_forward: Norm, hidden layer, and what routers and experts need.
        activation: What the activation function keeps of the hidden layer.
    """

    boundary: int
    attention: int
    core: int
    feed_forward: int
    activation: int

    @property
    def elements(self) -> int:
        """All of them."""
        return self.boundary + self.attention + self.core + self.feed_forward + self.activation


def activations(
    config: GPTConfig, index: int = 0, *, batch: int, context: int, fused_norms: bool = False, itemsize: int = 4
) -> Activations:
    """Count what the block of that index keeps.

    Args:
        config: The model.
        index: Of the block: some differ from others.
        batch: Sequences.
        context: Tokens in each.
        fused_norms: Whether a norm is one operation, as on a GPU, which keeps its input alone.
        itemsize: Bytes of an element: where it is not one operation, a norm computes in float32 whatever comes in
            (results/cpu-policies.json).
    """
    seen = context if index in config.cross_blocks else None
    norm = 1 if fused_norms else 2 * FLOAT32_BYTES // itemsize
    if index not in config.depth_routed:
        return _of_tokens(config, index, (batch, context, seen or context), norm)
    chosen = math.ceil(Fraction(str(config.mod_capacity)) * context)
    inside = _of_tokens(config, index, (batch, chosen, seen or chosen), norm)
    stream = batch * context * config.n_embd
    # The whole stream comes in and leaves, and the block works on a copy of the chosen tokens.
    return Activations(
        stream, stream + inside.boundary + inside.attention, inside.core, inside.feed_forward, inside.activation
    )


def _of_tokens(config: GPTConfig, index: int, shape: tuple[int, int, int], norm: int) -> Activations:
    """Count for a block that works on some tokens of each sequence, each of which may see some.

    Args:
        config: The model.
        index: Of the block.
        shape: Sequences, tokens in each, tokens that each may see.
        norm: (B, T, D) that a norm keeps.
    """
    batch, tokens, seen = shape
    stream = batch * tokens * config.n_embd
    share = 0 if index in config.cross_blocks else Fraction(config.kv_heads, config.n_head)
    attention = (3 + norm) * stream + int(2 * share * stream)  # norm, query, gathered, stream; key, value
    maps = config.maps
    dropped = 1 if config.dropout else 0
    if maps == 2:
        attention += 3 * stream  # the norm of the heads
        maps += 1  # and the difference
    core = (maps + 2 * dropped) * batch * config.n_head * tokens * seen + tokens * seen // 4  # the mask has bytes
    attention += dropped * stream
    feed_forward, activation = _feed_forward(config, batch * tokens)
    return Activations(stream, attention, core, feed_forward + (norm + dropped) * stream, activation)


def _feed_forward(config: GPTConfig, tokens: int) -> tuple[int, int]:
    """Count the hidden layer with all that leads to it, and what the activation function adds."""
    d, f = config.n_embd, config.n_mlp
    visits = config.n_expert if config.expert_products == "dense" else config.top_k
    hidden, activation = (2, 3) if config.feed_forward == "swiglu" else (1, 3)
    extra = 0
    if config.n_expert > 1:
        rows = 1 if config.expert_products == "dense" else 2  # copies of the tokens, by expert and in order
        extra = rows * config.top_k * tokens * d + ROUTER * tokens * config.n_expert
    return visits * hidden * tokens * f + extra, visits * activation * tokens * f


FLOAT32_BYTES = 4
ROUTER = 5  # (B, T, E) in float32: logits, probabilities, choices and the losses' own
