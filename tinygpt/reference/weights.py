"""The weights of the reference: tensors by the names that MLX gives them."""

from collections.abc import Mapping

import torch
from torch.nn import functional

Weights = Mapping[str, torch.Tensor]


def part(weights: Weights, name: str) -> dict[str, torch.Tensor]:
    """Return the weights of a part of the model, by their names in it."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): weight for key, weight in weights.items() if key.startswith(prefix)}


def linear(weights: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    """Return what the linear layer of that name makes of the last axis, with a bias if it has one."""
    return functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
