"""Gradients of the reference, from numpy to numpy."""

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from tinygpt.config import GPTConfig
from tinygpt.errors import ReferenceModelError
from tinygpt.leaves import leaves
from tinygpt.model import GPT
from tinygpt.reference.routing import Routes
from tinygpt.reference.torch_gpt import Losses, forward, training_loss
from tinygpt.reference.weights import Weights

Array = npt.NDArray[np.floating]
Tokens = npt.NDArray[np.integer]

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class ReferenceResult:
    """What the reference says about one batch.

    Attributes:
        loss: Mean cross entropy of the next token, in nats; the auxiliary losses are not in it.
        auxiliary: Each auxiliary loss by name, summed over the blocks, before its weight.
        gradients: Gradients of the training loss, auxiliary losses included, by parameter.
        margin: How near the nearest decision of a router was: the gap between the last chosen and the first not
            chosen score, as a share of the range of that decision's scores. Equal scores do not count; infinite
            where nothing is decided.
    """

    loss: float
    auxiliary: dict[str, float]
    gradients: dict[str, Array]
    margin: float


def weights_of(model: GPT) -> dict[str, Array]:
    """Return a model's weights by name, in float32, which also holds half precision exactly."""
    return {name: np.array(weight.astype(mx.float32)) for name, weight in leaves(model.parameters()).items()}


def reference_gradients(
    config: GPTConfig,
    weights: Mapping[str, Array],
    tokens: Tokens,
    *,
    dtype: str = "float64",
    checkpointed: bool = False,
) -> ReferenceResult:
    """Compute loss and gradients of one batch in PyTorch.

    Args:
        config: The model's shape, without dropout.
        weights: By MLX's names, as ``weights_of`` returns them.
        tokens: The tokens, and after each the one to predict.
        dtype: ``float64``, or ``float32``; everything is computed in it, routers and losses too.
        checkpointed: Whether every block is recomputed in the backward pass.

    Returns:
        Loss, auxiliary losses, gradients and the margin of the routers' decisions.

    Raises:
        ReferenceModelError: The model has dropout, the dtype is another, or a weight is not of this model.

    Shape:
        (B, T + 1) integers.
    """
    routes = Routes()
    loss, auxiliary, gradients = differentiated(
        config, tensors(config, weights, dtype), token_ids(tokens), routes=routes, checkpointed=checkpointed
    )
    return ReferenceResult(
        loss.item(),
        {name: value.item() for name, value in auxiliary.items()},
        {name: gradient.numpy() for name, gradient in gradients.items()},
        routes.margin,
    )


def tensors(config: GPTConfig, weights: Mapping[str, Array], dtype: str) -> dict[str, torch.Tensor]:
    """Return copies of the weights that gradients can be asked for, or refuse what the reference cannot do."""
    if config.dropout:
        raise ReferenceModelError(
            f"[reference] dropout: got {config.dropout}, expected 0: PyTorch draws other random numbers than MLX"
        )
    if dtype not in DTYPES:
        raise ReferenceModelError(f"[reference] dtype: got {dtype!r}, expected one of {', '.join(DTYPES)}")
    count = sum(weight.size for weight in weights.values())
    if count != config.parameters:
        raise ReferenceModelError(f"[reference] weights: got {count} numbers, expected {config.parameters}")
    return {name: torch.tensor(weight, dtype=DTYPES[dtype], requires_grad=True) for name, weight in weights.items()}


def token_ids(tokens: Tokens) -> torch.Tensor:
    """Return tokens of any integer type, also in memory that is read-only, as PyTorch wants to have them."""
    return torch.tensor(tokens, dtype=torch.int64)


def differentiated(
    config: GPTConfig, weights: Weights, tokens: torch.Tensor, *, routes: Routes, checkpointed: bool = False
) -> tuple[torch.Tensor, Losses, dict[str, torch.Tensor]]:
    """Return the loss of the text, the auxiliary losses, and the gradients of the training loss by name.

    Raises:
        ReferenceModelError: A weight is missing, or the model has no use for it.
    """
    try:
        logits, losses = forward(config, weights, tokens[:, :-1], routes=routes, checkpointed=checkpointed)
    except KeyError as error:
        raise ReferenceModelError(f"[reference] weights: got none with the name {error}, expected one") from error
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    gradients = torch.autograd.grad(training_loss(config, loss, losses), tuple(weights.values()), allow_unused=True)
    by_name = dict(zip(weights, gradients, strict=True))
    unused = [name for name, gradient in by_name.items() if gradient is None]
    if unused:
        raise ReferenceModelError(f"[reference] weights: got {', '.join(unused)}, expected only what the model uses")
    return loss, losses, by_name
