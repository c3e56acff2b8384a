"""A plain block among recomputed ones: it keeps its activations, but lets go of them in time.

MLX may compute a block's parameter gradients long after the gradient has gone on to the block before it, and all that
they need stays alive until then. Beside a recomputation, that is the difference between two blocks' activations and
one's.
"""

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from tinygpt.checkpointing.graph import after
from tinygpt.leaves import leaves


def ordered(module: nn.Module, fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a callable that runs a module as it is; no argument's gradient is ready before those of all parameters.

    Args:
        module: The module whose parameters are used, with arrays of floating-point numbers as positional arguments.
        fn: What to run; ``module`` itself if not given.
    """
    target = module if fn is None else fn

    def run(*args: mx.array) -> Any:
        parameters = module.trainable_parameters()
        named = leaves(parameters)
        tied = _tied([*args, *named.values()], len(args))
        module.update(tree_unflatten(list(zip(named, tied[len(args) :], strict=True))))
        try:
            return target(*tied[: len(args)])
        finally:
            module.update(parameters)

    return run


def _tied(arrays: list[mx.array], arguments: int) -> list[mx.array]:
    """Return arrays unchanged; the gradients of the first few are not ready before those of all."""

    @mx.custom_function
    def identity(values: list[mx.array]) -> list[mx.array]:
        return values

    @identity.vjp
    def identity_vjp(_values: list[mx.array], cotangents: list[mx.array], _: list[mx.array]) -> list[mx.array]:
        # One node for each result, as in wrap.py.
        waiting = [after([cotangent], cotangents)[0] for cotangent in cotangents[:arguments]]
        return [*waiting, *cotangents[arguments:]]

    return cast("list[mx.array]", identity(arrays))
