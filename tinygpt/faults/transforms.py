"""Faults inside of function transforms."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing import checkpoint
from tinygpt.faults.breaking import Change, Run, changing_results, holding, on_arrays, run_of
from tinygpt.faults.fault import fault
from tinygpt.faults.recompute import checkpointed

_lengths = itertools.count(1)
_depth = threading.local()


@fault("T1.updated_weights", words="compiled steps with updated weights", shape="enable")
@contextmanager
def weights_baked_in(model: nn.Module) -> Iterator[None]:
    """The recomputation uses the weights that were there when the model was enabled."""
    before = {id(block): nn.utils.tree_map(lambda a: a * 1, block.trainable_parameters()) for block in model.blocks}
    mx.eval(before)

    def wrap(module: nn.Module, fn: Run) -> Run:
        runs: list[int] = []

        def old(*args: Any, **kwargs: Any) -> Any:
            runs.append(1)
            if len(runs) == 1:
                return fn(*args, **kwargs)
            now = module.trainable_parameters()
            values = nn.utils.tree_map(lambda a, b: a + (b - mx.stop_gradient(b)), before[id(module)], now)
            with holding(module, values):
                return fn(*args, **kwargs)

        return checkpoint(module, old)

    with checkpointed(model.blocks, wrap):
        yield


@fault("T2.no_retrace", words="lengths traced")
def retraced_every_step(module: nn.Module, fn: Run | None = None) -> Run:
    """Every trace changes the shape of something that the module holds."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        module._history = mx.zeros((next(_lengths),))
        return run(*args, **kwargs)

    return broken


@fault("T3.grad_of_vmap", words="the gradient of a vmapped model")
def first_sequence_for_all(module: nn.Module, fn: Run | None = None) -> Run:
    """Under ``vmap`` every sequence is taken for the first."""

    @mx.custom_function
    def same(x: mx.array) -> mx.array:
        return x * 1

    @same.vmap
    def first(x: Any, axis: Any) -> Any:
        where = axis[0] if isinstance(axis, list | tuple) else axis
        array = x[0] if isinstance(x, list | tuple) else x
        one = mx.take(array, mx.array([0]), axis=where)
        return mx.broadcast_to(one, array.shape), where

    return changing_results(module, fn, lambda result: on_arrays(result, cast("Change", same)))


@fault("T3.vmap_of_grad", words="Not implemented")
def vmap_of_gradient_refused(module: nn.Module, fn: Run | None = None) -> Run:
    """The barrier cannot be vmapped: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("T4.forward_derivative", words="a forward derivative")
def forward_derivative_zero(module: nn.Module, fn: Run | None = None) -> Run:
    """A forward derivative is zero."""

    @mx.custom_function
    def same(x: mx.array) -> mx.array:
        return x * 1

    @same.jvp
    def zero(_: Any, tangent: Any, *__: Any) -> Any:
        return mx.zeros_like(tangent[0] if isinstance(tangent, list | tuple) else tangent)

    return changing_results(module, fn, lambda result: on_arrays(result, cast("Change", same)))


@fault("T5.shapeless_compile", words="CustomTransforms")
def shapeless_refused(module: nn.Module, fn: Run | None = None) -> Run:
    """It is a custom function, whose shapes MLX cannot infer."""
    return checkpoint(module, fn)


@fault("T7.inside_itself", words="gradients unlike plain")
def nested_gradient_stopped(module: nn.Module, fn: Run | None = None) -> Run:
    """Inside of a wrapped function the result of a wrapped function is cut off."""
    run = run_of(module, fn)

    def inside(*args: Any, **kwargs: Any) -> Any:
        before = getattr(_depth, "now", 0)
        _depth.now = before + 1
        try:
            return run(*args, **kwargs)
        finally:
            _depth.now = before

    wrapped = checkpoint(module, inside)

    def broken(*args: Any, **kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        return on_arrays(result, mx.stop_gradient) if getattr(_depth, "now", 0) else result

    return broken


@fault("T8.evaluation_inside", words="a block that evaluates")
def block_vmapped(module: nn.Module, fn: Run | None = None) -> Run:
    """The block runs inside of ``mx.vmap``, where nothing can be evaluated."""
    vmapped = checkpoint(module, mx.vmap(run_of(module, fn)))
    return lambda x: vmapped(x[None])[0]
