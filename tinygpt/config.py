"""The shape of a GPT, validated when it is made.

Separate from the model, so that it can be read, printed and stored without MLX. Every kind of block is a choice
here; choices combine freely, and what means nothing together is refused by name.
"""

import dataclasses
from typing import Any

from tinygpt.errors import ConfigError

BYTE_VOCABULARY = 256
MOST = 1 << 31  # MLX counts the elements of an axis in 32 bits

CHOICES = {
    "position": ("learned", "rotary"),
    "norm": ("layer", "rms"),
    "attention": ("softmax", "differential"),
    "feed_forward": ("gelu", "swiglu"),
    "expert_products": ("auto", "gather", "dense"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The shape of a GPT on bytes; dense, with learned positions and full attention unless chosen otherwise.

    Attributes:
        n_layer: Blocks.
        n_head: Attention heads in a block; divides ``n_embd``.
        n_embd: Width of the residual stream (D).
        n_mlp: Width of the feed-forward's hidden layer (F), of each expert where there are several.
        context: Most tokens in a sequence (T), as many positions are learned.
        vocab_size: Different tokens (V).
        dropout: Probability with which an activation is dropped in training, in [0, 1).
        position: ``learned`` embeddings, or ``rotary``.
        norm: ``layer`` or ``rms``.
        attention: ``softmax``, or ``differential``: two maps, the second subtracted.
        n_kv_head: Key and value heads, which divide ``n_head``: grouped queries. None for ``n_head``.
        window: How many tokens a token sees, itself included. None for all before it.
        feed_forward: ``gelu`` or ``swiglu``.
        n_expert: Feed-forwards of a block (E), among which a router chooses; 1 for no choice.
        top_k: How many of them a token visits.
        expert_products: How the experts are run: ``gather`` multiplies what was chosen only, ``dense`` everything,
            ``auto`` gathers where the backend can.
        balance_weight: Weight of the load-balance loss in the training loss.
        router_z_weight: Weight of the router z-loss.
        mod_capacity: Share of the tokens that every second block processes, in (0, 1]: mixture of depths. None for
            all tokens everywhere.
        capacity_weight: Weight of the loss that teaches a router's sign which tokens those are.
        yoco: Whether the second half of the blocks reads one shared cache of keys and values.

    Raises:
        ConfigError: A value is out of its range, or means nothing beside another.
    """

    n_layer: int
    n_head: int
    n_embd: int
    n_mlp: int
    context: int
    vocab_size: int = BYTE_VOCABULARY
    dropout: float = 0.0
    position: str = "learned"
    norm: str = "layer"
    attention: str = "softmax"
    n_kv_head: int | None = None
    window: int | None = None
    feed_forward: str = "gelu"
    n_expert: int = 1
    top_k: int = 1
    expert_products: str = "auto"
    balance_weight: float = 0.01
    router_z_weight: float = 0.001
    mod_capacity: float | None = None
    capacity_weight: float = 0.01
    yoco: bool = False

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        self._check_heads()
        self._check_routers()
        if self.yoco and self.n_layer < 2:
            raise _error("yoco", "True with n_layer = 1", "at least 2 blocks, half of them to fill the cache")

    def _check_heads(self) -> None:
        if self.n_embd % self.n_head:
            raise _error("n_head", self.n_head, f"a divisor of n_embd = {self.n_embd}")
        if self.n_head % self.kv_heads:
            raise _error("n_kv_head", self.kv_heads, f"a divisor of n_head = {self.n_head}")
        width = self.n_embd // self.n_head
        if width % self.maps:
            raise _error("attention", f"{self.attention!r} with heads of width {width}", "an even width")
        if self.position == "rotary" and self.head_width % 2:
            raise _error("position", f"'rotary' with rotated vectors of width {self.head_width}", "an even width")

    def _check_routers(self) -> None:
        if self.top_k > self.n_expert:
            raise _error("top_k", self.top_k, f"at most n_expert = {self.n_expert}")
        if self.mod_capacity is not None and self.n_layer < 2:
            raise _error(
                "mod_capacity", f"{self.mod_capacity} with n_layer = 1", "at least 2 blocks, of which one routes"
            )
        if self.n_expert == 1:
            self._check_unused("with n_expert = 1", "expert_products", "balance_weight", "router_z_weight")
        if self.mod_capacity is None:
            self._check_unused("without mod_capacity", "capacity_weight")

    def _check_unused(self, why: str, *names: str) -> None:
        """Raise if a choice was made that nothing would follow."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in names and value != field.default:
                raise _error(field.name, f"{value!r} {why}", "the default, since it would have no effect")

    @property
    def kv_heads(self) -> int:
        """Key and value heads, also where the choice is left open."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def maps(self) -> int:
        """Attention maps of a head: differential attention has two, over half of the head's width each."""
        return 2 if self.attention == "differential" else 1

    @property
    def head_width(self) -> int:
        """Width of a query and a key (K)."""
        return self.n_embd // self.n_head // self.maps

    @property
    def depth_routed(self) -> frozenset[int]:
        """The blocks that process only a share of the tokens: every second one, as the paper found best."""
        return frozenset() if self.mod_capacity is None else frozenset(range(1, self.n_layer, 2))

    @property
    def cross_blocks(self) -> frozenset[int]:
        """The blocks that read the shared cache."""
        return frozenset(range((self.n_layer + 1) // 2, self.n_layer)) if self.yoco else frozenset()

    @property
    def cuts(self) -> frozenset[int]:
        """The blocks before which something happens that is no block's: the shared cache is made."""
        return frozenset({min(self.cross_blocks)}) if self.yoco else frozenset()

    @property
    def parameters(self) -> int:
        """Parameters of the model; the output layer is the token embedding and adds none."""
        positions = self.context if self.position == "learned" else 0
        cache = self._norm_parameters + self._key_value_parameters if self.yoco else 0
        blocks = sum(self.block_parameters(index) for index in range(self.n_layer))
        return (self.vocab_size + positions) * self.n_embd + blocks + cache + self._norm_parameters

    def block_parameters(self, index: int = 0) -> int:
        """Parameters of one block: two norms, the attention's projections, the feed-forward, and its routers."""
        d, f, e = self.n_embd, self.n_mlp, self.n_expert
        attention = 2 * (d * d + d) + (0 if index in self.cross_blocks else self._key_value_parameters)
        if self.attention == "differential":
            attention += 4 * self.head_width + 2 * self.head_width  # four vectors behind lambda, one norm
        feed_forward = 3 * d * f if self.feed_forward == "swiglu" else (d * f + f) + (f * d + d)
        routers = (e * d if e > 1 else 0) + (d if index in self.depth_routed else 0)
        return 2 * self._norm_parameters + attention + e * feed_forward + routers

    @property
    def _key_value_parameters(self) -> int:
        width = self.kv_heads * self.maps * self.head_width
        return 2 * (self.n_embd * width + width)

    @property
    def _norm_parameters(self) -> int:
        return self.n_embd if self.norm == "rms" else 2 * self.n_embd


_RANGES = {
    "dropout": ("a number in [0, 1)", lambda value: 0 <= value < 1),
    "mod_capacity": ("a number in (0, 1]", lambda value: 0 < value <= 1),
    **dict.fromkeys(
        ("balance_weight", "router_z_weight", "capacity_weight"),
        ("a number in [0, 1e6]", lambda value: 0 <= value <= 1e6),  # a loss beyond float32 would be no number
    ),
}


def _check_type(field: "dataclasses.Field[Any]", value: Any) -> None:
    """Raise if a value is not of its field's type, or out of the range that it has on its own."""
    if field.name in CHOICES:
        if type(value) is not str or value not in CHOICES[field.name]:
            raise _error(field.name, repr(value), f"one of {', '.join(CHOICES[field.name])}")
    elif field.name in _RANGES:
        expected, in_range = _RANGES[field.name]
        if value is None and field.default is None:
            return
        if type(value) not in (int, float) or not in_range(value):  # nan is in no range
            raise _error(field.name, repr(value), expected)
    elif field.type is bool:
        if type(value) is not bool:
            raise _error(field.name, repr(value), "True or False")
    elif not (value is None and field.default is None) and not (type(value) is int and 1 <= value < MOST):
        got = repr(value) if type(value) in (int, float, bool, str) else f"{value!r} of {type(value)}"
        raise _error(field.name, got, "a positive integer" if type(value) is not int or value < 1 else f"below {MOST}")


def _error(field: str, got: object, expected: str) -> ConfigError:
    return ConfigError(f"[GPTConfig] {field}: got {got}, expected {expected}")
