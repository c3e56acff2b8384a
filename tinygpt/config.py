"""The shape of a GPT, validated when it is made.

Separate from the model, so that it can be read, printed and stored without MLX.
"""

import dataclasses
import math

from tinygpt.errors import ConfigError

BYTE_VOCABULARY = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The shape of a dense GPT on bytes.

    Attributes:
        n_layer: Blocks.
        n_head: Attention heads in a block; divides ``n_embd``.
        n_embd: Width of the residual stream (D).
        n_mlp: Width of the feed-forward's hidden layer (F).
        context: Most tokens in a sequence (T), as many positions are learned.
        vocab_size: Different tokens (V).
        dropout: Probability with which an activation is dropped in training, in [0, 1).

    Raises:
        ConfigError: A value is no positive integer, ``n_head`` does not divide ``n_embd``, or ``dropout`` is
            out of range.
    """

    n_layer: int
    n_head: int
    n_embd: int
    n_mlp: int
    context: int
    vocab_size: int = BYTE_VOCABULARY
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (type(value) is not int or value < 1):
                raise ConfigError(f"[GPTConfig] {field.name}: got {value!r}, expected a positive integer")
        if self.n_embd % self.n_head:
            raise ConfigError(f"[GPTConfig] n_head: got {self.n_head}, expected a divisor of n_embd = {self.n_embd}")
        if type(self.dropout) not in (int, float) or not (0 <= self.dropout < 1 and math.isfinite(self.dropout)):
            raise ConfigError(f"[GPTConfig] dropout: got {self.dropout!r}, expected a number in [0, 1)")

    @property
    def block_parameters(self) -> int:
        """Parameters of one block: two norms, four attention projections and two layers, all with biases."""
        d, f = self.n_embd, self.n_mlp
        return 2 * 2 * d + 4 * (d * d + d) + (d * f + f) + (f * d + d)

    @property
    def parameters(self) -> int:
        """Parameters of the model; the output layer is the token embedding and adds none."""
        embeddings = (self.vocab_size + self.context) * self.n_embd
        return embeddings + self.n_layer * self.block_parameters + 2 * self.n_embd
