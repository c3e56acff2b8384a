"""The GPT of ``tinygpt.model`` in PyTorch, as a function of its weights, written from the papers.

It shares with MLX's model the configuration and the names of the weights, and no line of code: layers come from
``torch.nn.functional``, every expert sees every token and is weighted with 0 where it was not chosen, and grouped heads
are copied. The papers are named in ``tinygpt.model``, with what is done differently there.
"""

from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, noop_context_fn

from tinygpt.config import GPTConfig
from tinygpt.reference.attention import NORM_EPSILON, Cache, attend, keys_and_values
from tinygpt.reference.routing import Routes
from tinygpt.reference.weights import Weights, linear, part

Losses = dict[str, torch.Tensor]


def forward(
    config: GPTConfig,
    weights: Weights,
    tokens: torch.Tensor,
    *,
    routes: Routes,
    checkpointed: bool = False,
    saving: Callable[[], Any] = noop_context_fn,
) -> tuple[torch.Tensor, Losses]:
    """Return the logits of the token after each of the given ones, and the auxiliary losses.

    Args:
        config: The model's shape; its dropout is not looked at.
        weights: By MLX's names.
        tokens: Token ids.
        routes: Decides for the routers, and remembers.
        checkpointed: Whether every block is recomputed in the backward pass, by ``torch.utils.checkpoint``.
        saving: What of it is kept all the same: PyTorch's ``context_fn``.

    Returns:
        Logits, and each auxiliary loss by name, summed over the blocks.

    Shape:
        (B, T) integers to (B, T, V).
    """
    positions = torch.arange(tokens.shape[1])
    x = functional.embedding(tokens, weights["token_embedding.weight"])
    if config.position == "learned":
        x = x + functional.embedding(positions, weights["position_embedding.weight"])
    cache: Cache | None = None
    losses: Losses = {}
    for index in range(config.n_layer):
        if index in config.cross_blocks and cache is None:
            shared = part(weights, "cache")
            cache = keys_and_values(config, part(shared, "key_value"), norm(config, shared, "norm", x), positions[None])
        block = Block(config, part(weights, f"blocks.{index}"), index, routes)
        if checkpointed:
            x, added = checkpoint(block, x, cache, use_reentrant=False, context_fn=saving)
        else:
            x, added = block(x, cache)
        losses |= {name: losses[name] + loss if name in losses else loss for name, loss in added.items()}
    return functional.linear(norm(config, weights, "norm", x), weights["token_embedding.weight"]), losses


def training_loss(config: GPTConfig, loss: torch.Tensor, losses: Losses) -> torch.Tensor:
    """Return the loss of the text, and every auxiliary loss times its weight."""
    if config.n_expert > 1:
        loss = loss + config.balance_weight * losses["balance"] + config.router_z_weight * losses["router_z"]
    return loss + config.capacity_weight * losses["capacity"] if config.depth_routed else loss


def norm(config: GPTConfig, weights: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    """Return every token's vector, normalised in the model's way."""
    if config.norm == "rms":
        return functional.rms_norm(x, x.shape[-1:], weights[f"{name}.weight"], NORM_EPSILON)
    return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], NORM_EPSILON)


class Block:
    """One block, as a function from the stream and the shared cache to the stream and its losses."""

    def __init__(self, config: GPTConfig, weights: Weights, index: int, routes: Routes) -> None:
        """Prepare the block of that index; the weights are its own."""
        self._config = config
        self._weights = weights
        self._index = index
        self._routes = routes

    def __call__(self, x: torch.Tensor, cache: Cache | None) -> tuple[torch.Tensor, Losses]:
        """Return the stream after this block, (B, T, D), and its losses."""
        if self._index in self._config.depth_routed:
            return self._some_tokens(x, cache)
        added, losses = self._added(self._weights, x, torch.arange(x.shape[1])[None], cache)
        return x + added, losses

    def _some_tokens(self, x: torch.Tensor, cache: Cache | None) -> tuple[torch.Tensor, Losses]:
        """Mixture of depths, Raposo et al. 2024, https://arxiv.org/abs/2404.02258, equation 1 and section 3.5."""
        scores = linear(self._weights, "router", x).squeeze(-1)  # (B, T)
        share = Decimal(repr(self._config.mod_capacity)) * x.shape[1]
        count = int(share.to_integral_value(ROUND_CEILING))
        chosen = self._routes.choose(f"blocks.{self._index}.router", scores, count).sort().values
        rows = chosen[..., None].expand(-1, -1, x.shape[-1])  # (B, C, D)
        added, losses = self._added(part(self._weights, "block"), x.gather(1, rows), chosen, cache)
        was_chosen = torch.zeros_like(scores).scatter(1, chosen, 1.0)
        capacity = functional.binary_cross_entropy_with_logits(scores, was_chosen)
        return x.scatter_add(1, rows, added * scores.gather(1, chosen)[..., None]), losses | {"capacity": capacity}

    def _added(
        self, weights: Weights, x: torch.Tensor, positions: torch.Tensor, cache: Cache | None
    ) -> tuple[torch.Tensor, Losses]:
        """Return what both halves add to the stream."""
        normalised = norm(self._config, weights, "attention_norm", x)
        attended = attend(
            self._config,
            part(weights, "attention"),
            normalised,
            index=self._index,
            positions=positions,
            cache=cache,
        )
        normalised = norm(self._config, weights, "feed_forward_norm", x + attended)
        transformed, losses = self._transformed(part(weights, "feed_forward"), normalised)
        return attended + transformed, losses

    def _transformed(self, weights: Weights, x: torch.Tensor) -> tuple[torch.Tensor, Losses]:
        if self._config.n_expert == 1:
            return feed_forward(self._config, weights, x), {}
        logits = linear(weights, "router", x)  # (B, T, E)
        chosen = self._routes.choose(f"blocks.{self._index}.feed_forward.router", logits, self._config.top_k)
        experts = part(weights, "experts")
        layers = zip(*(stacked.unbind() for stacked in experts.values()), strict=True)
        results = [feed_forward(self._config, dict(zip(experts, layer, strict=True)), x) for layer in layers]
        mixed = (torch.stack(results, dim=-1) * expert_shares(logits, chosen)[:, :, None]).sum(dim=-1)
        return mixed, {"balance": balance(logits, chosen), "router_z": logits.logsumexp(dim=-1).square().mean()}


def feed_forward(config: GPTConfig, weights: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return the transformed tokens: two layers with an exact GELU, or three with a gate."""
    hidden = linear(weights, "widen", x)
    gated = config.feed_forward == "swiglu"
    hidden = functional.silu(linear(weights, "gate", x)) * hidden if gated else functional.gelu(hidden)
    return linear(weights, "narrow", hidden)


def expert_shares(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return the weight of every expert, 0 where it was not chosen.

    One chosen expert is weighted with its probability (Fedus et al. 2021), several with a softmax over the chosen
    logits (Jiang et al. 2024, section 2.1), which is their probability among the chosen.

    Shape:
        (B, T, E) and (B, T, C) integers to (B, T, E).
    """
    if chosen.shape[-1] == 1:
        shares = logits.softmax(dim=-1).gather(-1, chosen)
    else:
        shares = logits.gather(-1, chosen).softmax(dim=-1)
    return torch.zeros_like(logits).scatter(-1, chosen, shares)


def balance(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return the load-balance loss, Fedus et al. 2021, https://arxiv.org/abs/2101.03961, equation 4, without alpha."""
    count = logits.shape[-1]
    fractions = torch.bincount(chosen.flatten(), minlength=count).to(logits.dtype) / chosen.numel()
    return count * (fractions * logits.softmax(dim=-1).mean(dim=(0, 1))).sum()
