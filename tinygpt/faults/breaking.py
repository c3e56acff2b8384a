"""Ways to break a wrapper that is right: gates on its inputs and results, and other functions to run.

Most faults are ``tinygpt.checkpoint`` with one thing wrong, so that they fail for that one reason.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from tinygpt.checkpointing import checkpoint
from tinygpt.checkpointing.graph import after
from tinygpt.leaves import leaves

Change = Callable[[mx.array], mx.array]
Run = Callable[..., Any]


def run_of(module: nn.Module, fn: Run | None) -> Run:
    """Return what a wrapper is asked to run."""
    return module if fn is None else fn


def partly_frozen(module: nn.Module) -> bool:
    """Return whether some of a module's parameters are not trained."""
    return len(leaves(module.trainable_parameters())) < len(leaves(module.parameters()))


def on_arrays(tree: Any, change: Change) -> Any:
    """Return a tree with every floating-point array changed, whatever else is in it."""

    def leaf(value: Any) -> Any:
        if isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.floating):
            return change(value)
        return value

    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(on_arrays(value, change) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(on_arrays(value, change) for value in tree)
    if isinstance(tree, dict):
        return {key: on_arrays(value, change) for key, value in tree.items()}
    return leaf(tree)


def changing_results(module: nn.Module, fn: Run | None, change: Callable[[Any], Any]) -> Run:
    """Checkpoint, and change what comes back."""
    run = checkpoint(module, fn)
    return lambda *args, **kwargs: change(run(*args, **kwargs))


def changing_arguments(module: nn.Module, fn: Run | None, change: Change) -> Run:
    """Checkpoint, and change every array that goes in."""
    run = checkpoint(module, fn)
    return lambda *args, **kwargs: run(*on_arrays(list(args), change), **on_arrays(kwargs, change))


def changing_gradients(module: nn.Module, fn: Run | None, change: Callable[[str, mx.array], mx.array]) -> Run:
    """Checkpoint, and change the gradient of each parameter, given its name."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        gated = {
            name: gate(array, functools.partial(change, name))
            for name, array in leaves(module.trainable_parameters()).items()
        }
        with holding(module, tree_unflatten(list(gated.items()))):
            return run(*args, **kwargs)

    return broken


def running(module: nn.Module, fn: Run | None, instead: Callable[..., Any]) -> Run:
    """Checkpoint a function that is called with what there was to run, whether it runs again, and its arguments."""
    run = run_of(module, fn)
    runs: list[int] = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        again = bool(runs)
        runs.append(1)
        return instead(run, again, *args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        runs.clear()
        return checkpoint(module, broken)(*args, **kwargs)

    return call


def gate(array: mx.array, change: Change) -> mx.array:
    """Return an array whose gradient is changed on its way back."""

    @mx.custom_function
    def same(array: mx.array) -> mx.array:
        return array

    @same.vjp
    def backward(_: mx.array, cotangent: mx.array, __: mx.array) -> mx.array:
        return change(cotangent)

    return cast("mx.array", same(array))


@contextmanager
def holding(module: nn.Module, parameters: Any) -> Iterator[None]:
    """Give a module other parameters inside the context."""
    before = module.trainable_parameters()
    module.update(parameters)
    try:
        yield
    finally:
        module.update(before)


def by_hand(
    module: nn.Module,
    fn: Run | None,
    *,
    remembered: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda inputs: inputs,
    returned: Callable[[list[mx.array]], list[mx.array]] = lambda gradients: gradients,
    put_back: bool = True,
) -> Run:
    """Checkpoint with a custom function written out: arrays as positional arguments, one array as result.

    Args:
        module: The module whose parameters are threaded through.
        fn: What to run.
        remembered: Returns the inputs to recompute from.
        returned: Returns the gradients to hand back.
        put_back: Whether the parameters are put back after the recomputation.
    """
    run = run_of(module, fn)

    def wrapped(*args: mx.array) -> Any:
        parameters = leaves(module.trainable_parameters())

        def forward(*inputs: mx.array) -> Any:
            values = tree_unflatten(list(zip(parameters, inputs[len(args) :], strict=True)))
            if put_back:
                with holding(module, values):
                    return run(*inputs[: len(args)])
            module.update(values)
            return run(*inputs[: len(args)])

        @mx.custom_function
        def function(*inputs: mx.array) -> Any:
            return forward(*inputs)

        @function.vjp
        def backward(inputs: Any, cotangent: Any, _: Any) -> Any:
            inputs = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
            arrived = after([*remembered(tuple(inputs))], [cotangent])
            return returned(mx.vjp(forward, arrived, [cotangent])[1])

        return function(*args, *parameters.values())

    return wrapped


def beside_arguments(module: nn.Module, fn: Run | None, kind: type) -> Run:
    """Checkpoint as MLX does, with arguments of a kind captured: they reach the function as they are, at each run."""
    run = run_of(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        held = [each for each in args if isinstance(each, kind)]
        if not held:
            return checkpoint(module, fn)(*args, **kwargs)
        arrays = [each for each in args if not isinstance(each, kind)]
        return nn.utils.checkpoint(module, lambda *arrays: run(*arrays, *held, **kwargs))(*arrays)

    return broken


def keeping(module: nn.Module, fn: Run | None, copies: int) -> Run:
    """Checkpoint, and keep some arrays of the input's size from the forward to the backward."""
    run = checkpoint(module, fn)

    def broken(x: mx.array) -> Any:
        kept = [mx.stop_gradient(mx.sin(x + place)) for place in range(copies)]
        y = run(gate(x, lambda gradient: gradient + 0 * sum(kept)))
        return after([y], kept)[0]

    return broken
