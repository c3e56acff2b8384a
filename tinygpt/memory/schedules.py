"""The orders in which people evaluate a gradient, by name. A peak means nothing without one.

MLX computes what it is asked for when it is asked: the whole tree at once, block by block, after clipping, in
one compiled function. A checkpointed block may save nearly everything under one of them and nothing under
another.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

# Large enough that no gradient is changed: clipping is here for what it does to the order of evaluation.
CLIP_NORM = 1e6


@dataclass(frozen=True)
class Schedule:
    """A way to evaluate the gradients of a model that has ``blocks``.

    Attributes:
        name: What reports call it.
        order: ``whole`` for all at once, ``forward`` or ``reversed`` for one block after another.
        clipped: Whether the gradients go through ``clip_grad_norm`` first, which needs all of them.
        compiled: Whether they are computed by a compiled function.
    """

    name: str
    order: str = "whole"
    clipped: bool = False
    compiled: bool = False


SCHEDULES = (
    Schedule("whole tree"),
    Schedule("reversed", order="reversed"),
    Schedule("forward", order="forward"),
    Schedule("clipped", clipped=True),
    Schedule("compiled", compiled=True),
    Schedule("compiled, clipped", compiled=True, clipped=True),
)


def scheduled(model: nn.Module, loss: Callable[..., mx.array], schedule: Schedule) -> Callable[..., Any]:
    """Return a function that computes and evaluates loss and gradients in the order of a schedule.

    Args:
        model: A module with a list ``blocks``.
        loss: A function of the batch that uses the model and returns a scalar.
        schedule: The order.

    Returns:
        A function of the batch; its result is the loss and the gradients by parameter, all evaluated.
    """
    value_and_grad = nn.value_and_grad(model, loss)

    def compute(*batch: Any) -> Any:
        value, gradients = value_and_grad(*batch)
        if schedule.clipped:
            gradients, _ = optim.clip_grad_norm(gradients, CLIP_NORM)
        return value, gradients

    if schedule.compiled:
        state = [model.state, mx.random.state]
        compute = mx.compile(compute, inputs=state, outputs=state)

    def run(*batch: Any) -> Any:
        result = compute(*batch)
        for part in _parts(result[1], schedule.order):
            mx.eval(part)
        mx.eval(result)
        return result

    return run


def _parts(gradients: dict[str, Any], order: str) -> Iterator[Any]:
    """Yield the gradients of one block after another; nothing where all are evaluated at once."""
    if order == "forward":
        yield from gradients["blocks"]
    elif order == "reversed":
        yield from reversed(gradients["blocks"])
