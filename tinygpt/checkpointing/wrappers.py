"""Every wrapper that can be chosen by name, behind one interface: ``wrap(module, fn=None) -> callable``.

Ours stands beside what MLX has and beside the recipe of the seed document, so that the cost of each can be
measured on one model.
"""

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from tinygpt.checkpointing.trees import Structure
from tinygpt.checkpointing.wrap import checkpoint
from tinygpt.errors import ConfigError
from tinygpt.leaves import leaves

Wrapper = Callable[..., Callable[..., Any]]


def mlx_core(module: nn.Module, fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Wrap with ``mx.checkpoint``, the parameters passed as an argument; captured, they would have no gradient."""
    run = mx.checkpoint(_with_parameters(module, fn))
    return lambda *args, **kwargs: run(module.trainable_parameters(), *args, **kwargs)


def seed_recipe(module: nn.Module, fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Wrap as the seed document does: a custom function whose backward runs the same forward again.

    Nothing keeps the two apart. For arrays as positional arguments, and any tree of arrays as the result.
    """
    run = _with_parameters(module, fn)

    def wrapped(*args: mx.array) -> Any:
        parameters = leaves(module.trainable_parameters())

        results: list[Structure] = []

        def forward(*inputs: mx.array) -> list[mx.array]:
            tree = tree_unflatten(list(zip(parameters, inputs[len(args) :], strict=True)))
            result = Structure(run(tree, *inputs[: len(args)]))
            results[:] = results or [result]
            arrays, result.arrays = result.arrays, []  # or they would be kept
            return arrays

        function = mx.custom_function(forward)

        @function.vjp
        def backward(primals: list[mx.array], cotangents: list[mx.array], _: list[mx.array]) -> list[mx.array]:
            return mx.vjp(forward, list(primals), list(cotangents))[1]

        arrays = cast("list[mx.array]", function(*args, *parameters.values()))
        return results[0].fill(arrays)

    return wrapped


def _with_parameters(module: nn.Module, fn: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function that takes the parameters of the module first."""
    run = module if fn is None else fn

    def with_parameters(parameters: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        module.update(parameters)
        return run(*args, **kwargs)

    return with_parameters


WRAPPERS: dict[str, Wrapper] = {
    "tinygpt": checkpoint,
    "mlx.nn": nn.utils.checkpoint,
    "mlx.core": mlx_core,
    "seed-recipe": seed_recipe,
}


def wrapper(name: str) -> Wrapper:
    """Return the wrapper of that name.

    Raises:
        ConfigError: There is no wrapper of that name.
    """
    if name not in WRAPPERS:
        raise ConfigError(f"[wrapper] name: got {name!r}, expected one of {', '.join(WRAPPERS)}")
    return WRAPPERS[name]
