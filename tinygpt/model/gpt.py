"""A decoder-only transformer on bytes: pre-norm blocks, tied embeddings, and what the configuration chooses.

Radford et al. 2019 (GPT-2); sizes in ``tinygpt.presets``. Weights start as in GPT-2: normal with deviation 0.02, that
of the layers that write into the stream divided by sqrt(2 n_layer), biases zero.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path

from tinygpt.config import GPTConfig
from tinygpt.errors import ConfigError
from tinygpt.model.block import Block, Result
from tinygpt.model.feed_forward import Losses
from tinygpt.model.mod import MixtureOfDepths
from tinygpt.model.node import own_node
from tinygpt.model.norm import make_norm
from tinygpt.model.yoco import SharedCache

INITIAL_DEVIATION = 0.02
LAMBDA_DEVIATION = 0.1  # as in the code of Ye et al. 2024, microsoft/unilm Diff-Transformer
INTO_STREAM = ("output.weight", "narrow.weight")

BlockFunction = Callable[..., Result]


class GPT(nn.Module):
    """A language model: the logits of the next token at every position."""

    def __init__(self, config: GPTConfig) -> None:
        """Make the model with random weights from MLX's global random state."""
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        if config.position == "learned":
            self.position_embedding = nn.Embedding(config.context, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = [
            (MixtureOfDepths if index in config.depth_routed else Block)(config, index=index)
            for index in range(config.n_layer)
        ]
        if config.yoco:
            self.cache = SharedCache(config)
        self.norm = make_norm(config)
        self._initialise()

    def __call__(self, tokens: mx.array, blocks: Sequence[BlockFunction] | None = None) -> tuple[mx.array, Losses]:
        """Return the logits of the token after each of the given ones, and the auxiliary losses.

        Args:
            tokens: Token ids, at most ``config.context`` in a sequence.
            blocks: What to run instead of the model's own blocks, for instance the same blocks under a wrapper. One
                that stands for several returns a list of each loss, one of each block.

        Returns:
            Logits, and each auxiliary loss by name, summed over the blocks; a dense model has none.

        Shape:
            (B, T) integers to (B, T, V).

        Raises:
            ConfigError: The sequences are longer than the context.
        """
        if tokens.shape[1] > self.config.context:
            raise ConfigError(
                f"[GPT] tokens: got {tokens.shape[1]} a sequence, expected at most the context, {self.config.context}"
            )
        x = self.token_embedding(tokens)
        if self.config.position == "learned":
            x = x + self.position_embedding(mx.arange(tokens.shape[1]))
        x = self.dropout(x)  # (B, T, D)
        cache: Sequence[mx.array] = ()
        losses: Losses = {}
        for index, block in enumerate(self.blocks if blocks is None else blocks):
            if index in self.config.cross_blocks and not cache:
                cache, x = self.cache(x), own_node(x)
            x, added, *cache = block(x, *cache)
            _add(losses, added)
        logits: mx.array = self.token_embedding.as_linear(self.norm(x))
        return logits, losses

    def _initialise(self) -> None:
        """Draw all weights, in the order in which they were made; norms start at 1."""
        into_stream = INITIAL_DEVIATION / math.sqrt(2 * len(self.blocks))

        def drawn(name: str, weight: mx.array) -> mx.array:
            if name.endswith("bias"):
                return mx.zeros_like(weight)
            if "lambda" in name:
                return mx.random.normal(weight.shape, scale=LAMBDA_DEVIATION)
            if weight.ndim == 1:
                return weight
            return mx.random.normal(
                weight.shape, scale=into_stream if name.endswith(INTO_STREAM) else INITIAL_DEVIATION
            )

        self.update(tree_map_with_path(drawn, self.parameters()))


def _add(losses: Losses, added: Mapping[str, mx.array | list[mx.array]]) -> None:
    """Add the losses of a block, or of several one by one: a sum of sums would be rounded otherwise."""
    for name, found in added.items():
        for loss in found if isinstance(found, list) else [found]:
            losses[name] = losses[name] + loss if name in losses else loss


def next_token_loss(logits: mx.array, targets: mx.array) -> mx.array:
    """Return the mean cross entropy in nats, a scalar in float32.

    Shape:
        Logits (B, T, V), targets (B, T) integers.
    """
    return nn.losses.cross_entropy(logits.astype(mx.float32), targets, reduction="mean")


def training_loss(config: GPTConfig, loss: mx.array, losses: Losses) -> mx.array:
    """Return what training minimises: the loss of the text, and every auxiliary loss times its weight."""
    for name, auxiliary in losses.items():
        loss = loss + getattr(config, f"{name}_weight") * auxiliary
    return loss
