"""Attention in PyTorch, written from the papers: full, windowed, grouped, differential, rotary, and to a shared cache.

Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2; Ainslie et al. 2023, https://arxiv.org/abs/2305.13245
(neighbouring query heads share a key head); Ye et al. 2024, https://arxiv.org/abs/2410.05258, equations 1 to 3; Su et
al. 2021, https://arxiv.org/abs/2104.09864, equation 34 with pairs half a vector apart. Letters in shape comments are
those of ``tinygpt.model.attention``; M is the number of attention maps of a head.
"""

import math

import torch
from torch.nn import functional

from tinygpt.config import GPTConfig
from tinygpt.reference.weights import Weights, linear, part

ROTARY_BASE = 10_000.0
NORM_EPSILON = 1e-5  # the default of mlx.nn.LayerNorm and mlx.nn.RMSNorm

Cache = tuple[torch.Tensor, torch.Tensor]


def attend(
    config: GPTConfig, weights: Weights, x: torch.Tensor, *, index: int, positions: torch.Tensor, cache: Cache | None
) -> torch.Tensor:
    """Return what each token gathers from those it sees, in the block of that index.

    Shape:
        (B, T, D), positions (B or 1, T), to (B, T, D).
    """
    query = _rotated(config, _maps_of_heads(linear(weights, "query", x), config.n_head, config.maps), positions)
    if cache is None:
        key, value = keys_and_values(config, part(weights, "key_value"), x, positions)
        seen, window = positions, config.window
    else:
        key, value = cache
        seen, window = torch.arange(key.shape[-2])[None], None
    key, value = _for_each_query_head(config, key), _for_each_query_head(config, value)
    scores = query @ key.transpose(-1, -2) / math.sqrt(config.head_width)
    scores = scores.masked_fill(_hidden(positions, seen, window), -math.inf)
    shares = scores.softmax(dim=-1)  # (B, H, M, T, S)
    if config.attention == "differential":
        gathered = _difference(weights, shares, value, index)
    else:
        gathered = shares[:, :, 0] @ value[:, :, 0]
    return linear(weights, "output", gathered.transpose(1, 2).flatten(-2))


def keys_and_values(config: GPTConfig, weights: Weights, x: torch.Tensor, positions: torch.Tensor) -> Cache:
    """Return the keys, (B, G, M, S, K), and the values, (B, G, 1, S, M K); all maps of a head share its values."""
    key = _maps_of_heads(linear(weights, "key", x), config.kv_heads, config.maps)
    return _rotated(config, key, positions), _maps_of_heads(linear(weights, "value", x), config.kv_heads, 1)


def _maps_of_heads(x: torch.Tensor, heads: int, maps: int) -> torch.Tensor:
    """Return (B, T, heads maps K) as (B, heads, maps, T, K)."""
    batch, length, _ = x.shape
    return x.view(batch, length, heads, maps, -1).permute(0, 2, 3, 1, 4)


def _for_each_query_head(config: GPTConfig, x: torch.Tensor) -> torch.Tensor:
    """Return what G heads have, once for each of the H query heads: neighbours share."""
    return x.repeat_interleave(config.n_head // config.kv_heads, dim=1)


def _hidden(positions: torch.Tensor, seen: torch.Tensor, window: int | None) -> torch.Tensor:
    """Return which keys a query may not see, (B or 1, 1, 1, T, S): later ones, and those that left the window."""
    distance = (positions[:, :, None] - seen[:, None, :])[:, None, None]
    return distance < 0 if window is None else (distance < 0) | (distance >= window)


def _rotated(config: GPTConfig, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return queries or keys, (B, heads, maps, T, K), rotated if positions are rotary."""
    if config.position != "rotary":
        return x
    angles = _angles(positions, x.shape[-1] // 2, x.dtype)[:, None, None]
    real, imaginary = x.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([real * cosine - imaginary * sine, imaginary * cosine + real * sine], dim=-1)


def _angles(positions: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the angle of each position and pair, (B or 1, T, count)."""
    # As exp of a product, like MLX: then the rounding mode also finds how far float32 angles are off.
    frequencies = torch.exp(torch.arange(count, dtype=dtype) * (-math.log(ROTARY_BASE) / count))
    return positions.to(dtype)[..., None] * frequencies


def _difference(weights: Weights, shares: torch.Tensor, value: torch.Tensor, index: int) -> torch.Tensor:
    """Return what the difference of both maps gathers, each head normalised, (B, H, T, 2 K)."""
    first, second = (
        torch.exp((weights[f"lambda_query_{number}"] * weights[f"lambda_key_{number}"]).sum()) for number in (1, 2)
    )
    initial = _initial_lambda(index)
    gathered = (shares[:, :, 0] - (first - second + initial) * shares[:, :, 1]) @ value[:, :, 0]
    normalised = functional.rms_norm(gathered, gathered.shape[-1:], weights["head_norm.weight"], NORM_EPSILON)
    return normalised * _remaining(initial)


def _initial_lambda(index: int) -> float:
    """Return where lambda starts in a block; the paper counts blocks from 1, here they count from 0."""
    return 0.8 - 0.6 * math.exp(-0.3 * index)


def _remaining(initial: float) -> float:
    """Return the factor that gives the difference the size of an ordinary head's result."""
    return 1 - initial
