"""Training steps of the reference, and how far a correct float32 training may be from them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch

from tinygpt.config import GPTConfig
from tinygpt.reference.gradients import Array, Tokens, differentiated, tensors, token_ids
from tinygpt.reference.rounding import DRAWS, SPREADS, Rounding, one_thread
from tinygpt.reference.routing import Routes


class AdamW(NamedTuple):
    """What an update depends on.

    Attributes:
        learning_rate: The same in all steps.
        clip_norm: Largest global norm of the gradients; 0 for no clipping.
    """

    learning_rate: float
    clip_norm: float = 0.0


def reference_training(
    config: GPTConfig,
    weights: Mapping[str, Array],
    batches: Sequence[Tokens],
    *,
    dtype: str = "float64",
    learning_rate: float,
    clip_norm: float = 0.0,
    checkpointed: bool = False,
) -> tuple[list[float], dict[str, Array]]:
    """Train in PyTorch, one step a batch, with AdamW.

    The rest of AdamW is as in ``mlx.optimizers.AdamW(learning_rate, bias_correction=True)``, and named here because the
    two disagree: MLX does not correct the bias unless it is told to, PyTorch always does.

    Args:
        config: The model's shape, without dropout.
        weights: Where training starts; they stay as they are.
        batches: Tokens of each step, and after each the one to predict.
        dtype: ``float64`` or ``float32``.
        learning_rate: The same in all steps.
        clip_norm: Largest global norm of the gradients; 0 for no clipping.
        checkpointed: Whether every block is recomputed in the backward pass.

    Returns:
        The loss of each batch before its step, auxiliary losses not included, and the weights after the last.

    Raises:
        ReferenceModelError: As in ``reference_gradients``.

    Shape:
        Each batch (B, T + 1) integers.
    """
    trained = tensors(config, weights, dtype)
    routes = [Routes() for _ in batches]
    steps = _steps(config, trained, batches, routes, AdamW(learning_rate, clip_norm), checkpointed=checkpointed)
    losses = list(steps)
    return losses, {name: weight.detach().numpy() for name, weight in trained.items()}


@one_thread()
def training_bounds(
    config: GPTConfig, weights: Mapping[str, Array], batches: Sequence[Tokens], update: AdamW, *, seed: int = 0
) -> list[float]:
    """Return how far each loss of a correct float32 training may be from the float64 one, in nats.

    As ``leaf_bounds``, over all steps: gradients err as float32 does, and so does every weight when it is stored. The
    roundings inside the update are smaller than those by the learning rate.

    Args:
        config: The model's shape, without dropout.
        weights: Where training starts.
        batches: Tokens of each step, and after each the one to predict.
        update: How the gradients are applied.
        seed: Of the random errors.

    Raises:
        ReferenceModelError: As in ``reference_gradients``.

    Shape:
        Each batch (B, T + 1) integers.
    """
    routes = [Routes() for _ in batches]
    exact = list(_steps(config, tensors(config, weights, "float64"), batches, routes, update))
    squares = [0.0] * len(batches)
    for draw in range(DRAWS):
        again = [Routes(route.chosen) for route in routes]
        trained = tensors(config, weights, "float64")
        for step, loss in enumerate(
            _steps(config, trained, batches, again, update, rounding=Rounding(seed * DRAWS + draw))
        ):
            squares[step] += (loss - exact[step]) ** 2
    return [SPREADS * math.sqrt(square / DRAWS) for square in squares]


def _steps(
    config: GPTConfig,
    trained: dict[str, torch.Tensor],
    batches: Sequence[Tokens],
    routes: Sequence[Routes],
    update: AdamW,
    *,
    checkpointed: bool = False,
    rounding: Rounding | None = None,
) -> Iterator[float]:
    """Train in place, with the errors of float32 if there are some, and yield the loss before each update."""
    optimizer = torch.optim.AdamW(
        trained.values(), lr=update.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )
    for tokens, route in zip(batches, routes, strict=True):
        with rounding or nullcontext():
            loss, _, gradients = differentiated(
                config, trained, token_ids(tokens), routes=route, checkpointed=checkpointed
            )
        for name, weight in trained.items():
            weight.grad = gradients[name]
        if update.clip_norm:
            # Divides by norm + 1e-6, as TrainStep does.
            torch.nn.utils.clip_grad_norm_(trained.values(), update.clip_norm)
        optimizer.step()
        if rounding:
            with torch.no_grad(), rounding:
                for weight in trained.values():
                    weight.mul_(1.0)  # stored, and so rounded
        yield loss.item()
