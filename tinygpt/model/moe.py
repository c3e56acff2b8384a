"""Mixture of experts: a router sends every token to a few of many feed-forwards.

Shazeer et al. 2017, "Outrageously Large Neural Networks", https://arxiv.org/abs/1701.06538; the load-balance loss of
Fedus et al. 2021, "Switch Transformers", https://arxiv.org/abs/2101.03961, equations 4 to 6; the router z-loss of Zoph
et al. 2022, "ST-MoE", https://arxiv.org/abs/2202.08906, equation 5. Both losses are returned, and summed over blocks.

Where we differ: no token is dropped, since experts have no capacity; the share of tokens in the load-balance loss
counts all ``top_k`` choices; the weights of several experts are normalised to 1 (as in Mixtral, Jiang et al. 2024,
https://arxiv.org/abs/2401.04088), that of a single one is its probability (as in Switch), or the router would have no
gradient; no noise. The router works in float32.
"""

import mlx.core as mx
import mlx.nn as nn

from tinygpt.config import GPTConfig
from tinygpt.errors import ConfigError
from tinygpt.model.feed_forward import Losses
from tinygpt.model.products import can_gather
from tinygpt.model.routing import highest


class MixtureOfExperts(nn.Module):
    """A feed-forward out of several, chosen for every token."""

    def __init__(self, config: GPTConfig) -> None:
        """Make router and experts."""
        super().__init__()
        self._top_k = config.top_k
        self.router = nn.Linear(config.n_embd, config.n_expert, bias=False)
        self.experts = Experts(config)

    def __call__(self, x: mx.array) -> tuple[mx.array, Losses]:
        """Return the transformed tokens, and the losses ``balance`` and ``router_z``, scalars in float32.

        Shape:
            (B, T, D) to (B, T, D).
        """
        logits = x.astype(mx.float32) @ self.router.weight.astype(mx.float32).T  # (B, T, E)
        probabilities = mx.softmax(logits, axis=-1)
        chosen = highest(logits, self._top_k)  # (B, T, C)
        weights = mx.take_along_axis(probabilities, chosen, axis=-1)
        if self._top_k > 1:
            weights = weights / weights.sum(axis=-1, keepdims=True)
        results = self.experts(x, chosen)  # (B, T, C, D)
        mixed = (results * weights[..., None].astype(x.dtype)).sum(axis=-2)
        return mixed, {"balance": _balance(probabilities, chosen), "router_z": _router_z(logits)}


class Experts(nn.Module):
    """Feed-forwards of one shape, their weights stacked along the first axis."""

    def __init__(self, config: GPTConfig) -> None:
        """Make the stacked layers, like those of ``FeedForward`` or ``SwiGLU``."""
        super().__init__()
        self._products = config.expert_products
        self._gated = config.feed_forward == "swiglu"
        count, width, hidden = config.n_expert, config.n_embd, config.n_mlp
        self.widen = Stacked(count, width, hidden, bias=not self._gated)
        self.narrow = Stacked(count, hidden, width, bias=not self._gated)
        if self._gated:
            self.gate = Stacked(count, width, hidden, bias=False)

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Return every token as its chosen experts transform it.

        Shape:
            (B, T, D) and (B, T, C) integers to (B, T, C, D).
        """
        if self._products == "dense" or (self._products == "auto" and not can_gather(x.dtype)):
            return self._dense(x, chosen)
        if not can_gather(x.dtype):
            raise ConfigError(
                f"[MixtureOfExperts] expert_products: got 'gather' in {x.dtype} on {mx.default_device()}, "
                "expected auto or dense: MLX cannot gather that there"
            )
        return self._gathered(x, chosen)

    def _gathered(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Multiply with the chosen experts only, the tokens of an expert side by side."""
        order = mx.argsort(chosen.flatten())
        experts = chosen.flatten()[order]
        tokens = x.reshape(-1, 1, x.shape[-1])[order // chosen.shape[-1]]  # (B T C, 1, D)
        transformed = self._transformed(tokens, experts)
        return transformed[mx.argsort(order)].reshape(*chosen.shape, -1)

    def _dense(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Multiply with every expert, and keep what was chosen."""
        # One row of tokens: with a batch axis, MLX would make the gradient of all weights for each sequence.
        everything = self._transformed(x.reshape(1, -1, x.shape[-1]), None).swapaxes(0, 1)  # (B T, E, D)
        taken = mx.take_along_axis(everything, chosen.reshape(-1, chosen.shape[-1], 1), axis=1)
        return taken.reshape(*chosen.shape, -1)

    def _transformed(self, x: mx.array, experts: mx.array | None) -> mx.array:
        hidden = self.widen(x, experts)
        return self.narrowed(experts, hidden, self.gate(x, experts)) if self._gated else self.narrowed(experts, hidden)

    def narrowed(self, experts: mx.array | None, hidden: mx.array, gate: mx.array | None = None) -> mx.array:
        """Return the activated hidden layers, gated if they are, each brought back by its expert."""
        return self.narrow(nn.gelu(hidden) if gate is None else nn.silu(gate) * hidden, experts)


class Stacked(nn.Module):
    """A linear layer for each expert."""

    def __init__(self, count: int, inputs: int, outputs: int, *, bias: bool) -> None:
        """Make the weights, zero for now."""
        super().__init__()
        self.weight = mx.zeros((count, outputs, inputs))
        if bias:
            self.bias = mx.zeros((count, outputs))

    def __call__(self, x: mx.array, experts: mx.array | None) -> mx.array:
        """Multiply each row with the weights of its expert, or all rows with those of all.

        Shape:
            (N, 1, inputs) and (N,) sorted integers to (N, 1, outputs); without integers, (1 or E, N, inputs) to
            (E, N, outputs).
        """
        weight = self.weight.swapaxes(-1, -2)
        if experts is None:
            return x @ weight + self.bias[:, None] if "bias" in self else x @ weight
        product = mx.gather_mm(x, weight, rhs_indices=experts, sorted_indices=True)
        return product + self.bias[experts][:, None] if "bias" in self else product


def _balance(probabilities: mx.array, chosen: mx.array) -> mx.array:
    """Return E times the sum over experts of share of choices times mean probability; 1 where all are equal."""
    count = probabilities.shape[-1]
    choices = (chosen[..., None] == mx.arange(count)).astype(mx.float32)  # (B, T, C, E)
    return count * (choices.mean(axis=(0, 1, 2)) * probabilities.mean(axis=(0, 1))).sum()


def _router_z(logits: mx.array) -> mx.array:
    """Return the mean square of the logarithm of the sum of the exponentials, which keeps logits small."""
    return mx.logsumexp(logits, axis=-1).square().mean()
