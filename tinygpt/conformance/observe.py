"""What a few training steps of a case leave behind: results, gradients, module state and the next random number.

Plain and wrapped are observed in the same way from the same seed; then only a comparison is left to do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

Wrap = Callable[..., Callable[..., Any]]
Loss = Callable[..., Any]

SEED = 3
STEPS = 2


def plain(module: Callable[..., Any], fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Wrap nothing: the control that every wrapper is compared with."""
    return module if fn is None else fn


@dataclass(frozen=True)
class Case:
    """A model, a batch, and a loss that runs parts of the model under a wrapper.

    Attributes:
        name: What reports call it.
        build: Makes the model and the batch from the random state.
        loss: Called with model, wrapper and batch; returns a scalar, or a tuple whose first element is one.
    """

    name: str
    build: Callable[[], tuple[nn.Module, tuple[Any, ...]]]
    loss: Loss

    def __str__(self) -> str:
        """Return the name."""
        return self.name


def observe(case: Case, wrap: Wrap, *, compiled: bool, steps: int = STEPS) -> dict[str, Any]:
    """Take loss and gradients of a case several times, and return everything that can be seen afterwards.

    Args:
        case: What to run.
        wrap: The wrapper; ``plain`` for none.
        compiled: Whether the step is compiled.
        steps: How often; the random state and the module's buffers go on from one to the next.

    Returns:
        A tree of arrays: ``steps`` with losses and gradients, ``module`` with all arrays of the module,
        ``draw`` with the next random numbers.
    """
    mx.random.seed(SEED)
    model, batch = case.build()
    mx.eval(model.state, batch)

    value_and_grad = nn.value_and_grad(model, lambda *batch: case.loss(model, wrap, *batch))
    if compiled:
        state = [model.state, mx.random.state]
        value_and_grad = mx.compile(value_and_grad, inputs=state, outputs=state)
    results = []
    for _ in range(steps):
        results.append(value_and_grad(*batch))
        mx.eval(results[-1], model.state)
    return {"steps": results, "module": _arrays(model), "draw": mx.random.uniform(shape=(4,))}


def _arrays(model: nn.Module) -> dict[str, mx.array]:
    """Return every array that a module tree holds, private ones too, by its path."""
    return dict(_walk("", model))


def _walk(path: str, value: Any) -> Iterator[tuple[str, mx.array]]:
    if isinstance(value, mx.array):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(f"{path}.{key}", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(f"{path}.{index}", item)
