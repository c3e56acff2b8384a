"""Faults in gradients."""

import itertools
from contextlib import ExitStack
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map, tree_unflatten

from tinygpt.checkpointing import checkpoint
from tinygpt.checkpointing.graph import after
from tinygpt.faults.breaking import (
    Run,
    by_hand,
    changing_arguments,
    changing_gradients,
    changing_results,
    gate,
    holding,
    on_arrays,
    partly_frozen,
    run_of,
)
from tinygpt.faults.fault import fault
from tinygpt.leaves import leaves


def _first(module: nn.Module) -> str:
    """Return the name of the first trainable parameter."""
    return next(iter(leaves(module.trainable_parameters())), "")


@fault("G1.parameters", "T6.function_of_parameters", "T7.inside_checkpoint", words="all zeros")
def closure_capture(module: nn.Module, fn: Run | None = None) -> Run:
    """The module is captured, so its parameters are constants and their gradients silently zero."""
    run = run_of(module, fn)
    return mx.checkpoint(lambda *args, **kwargs: run(*args, **kwargs))


@fault("G1.parameters", words="largest difference")
def gradients_scaled(module: nn.Module, fn: Run | None = None) -> Run:
    """Gradients are a thousandth too large."""
    return changing_gradients(module, fn, lambda _, gradient: gradient * 1.001)


@fault("G1.parameters", words="all zeros")
def one_leaf_zero(module: nn.Module, fn: Run | None = None) -> Run:
    """The first parameter has no gradient."""
    first = _first(module)
    return changing_gradients(module, fn, lambda name, g: mx.zeros_like(g) if name == first else g)


@fault("G1.parameters", words="blocks.0.first.weight")
def two_leaves_swapped(module: nn.Module, fn: Run | None = None) -> Run:
    """The first two parameters of one shape have each other's gradient."""
    run = checkpoint(module, fn)

    @mx.custom_function
    def pair(one: mx.array, other: mx.array) -> list[mx.array]:
        return [one, other]

    @pair.vjp
    def backward(_: Any, cotangents: list[mx.array], __: Any) -> list[mx.array]:
        return cotangents[::-1]

    def broken(*args: Any, **kwargs: Any) -> Any:
        parameters = leaves(module.trainable_parameters())
        for (name, one), (other_name, other) in itertools.combinations(parameters.items(), 2):
            if one.shape == other.shape:
                swapped = zip((name, other_name), cast("list[mx.array]", pair(one, other)), strict=True)
                with holding(module, tree_unflatten(list(swapped))):
                    return run(*args, **kwargs)
        return run(*args, **kwargs)

    return broken


@fault("G1.parameters", words="got shape")
def cotangent_as_gradient(module: nn.Module, fn: Run | None = None) -> Run:
    """Every parameter gets an array of the result's shape: what MLX hands out for gradients that are not returned."""
    return by_hand(module, fn, returned=lambda gradients: [gradients[0]] * len(gradients))


@fault("G1.parameters", words="not finite")
def gradient_not_a_number(module: nn.Module, fn: Run | None = None) -> Run:
    """The gradient of the first parameter is not a number, which compares with nothing."""
    first = _first(module)
    # No constant: MLX up to 0.31.2 writes C++ for it that does not compile.
    return changing_gradients(module, fn, lambda name, g: mx.sqrt(-1 - g * g) if name == first else g)


@fault("G2.inputs", "T6.function_of_parameters", "T7.inside_custom_function", words="all zeros")
def input_gradient_stopped(module: nn.Module, fn: Run | None = None) -> Run:
    """Arguments are cut off."""
    return changing_arguments(module, fn, mx.stop_gradient)


@fault("G3.frozen_parameters[eager]", words="got a leaf, expected none")
def frozen_parameters_thawed(module: nn.Module, fn: Run | None = None) -> Run:
    """What was frozen is trained."""
    module.unfreeze()
    return checkpoint(module, fn)


@fault("G3.frozen_parameters", words="all zeros")
def partly_frozen_block_untrained(module: nn.Module, fn: Run | None = None) -> Run:
    """Where some parameters are frozen, the others have no gradient either."""
    frozen = partly_frozen(module)
    return changing_gradients(module, fn, lambda _, g: mx.zeros_like(g) if frozen else g)


@fault("G4.frozen_block", words="all zeros")
def frozen_block_cut_off(module: nn.Module, fn: Run | None = None) -> Run:
    """A block without trainable parameters is taken for one that needs no gradient."""
    if _first(module):
        return checkpoint(module, fn)
    return changing_results(module, fn, lambda result: on_arrays(result, mx.stop_gradient))


@fault("G5.quantized_base", words="uantized")
def packed_weights_differentiated(module: nn.Module, fn: Run | None = None) -> Run:
    """All parameters are threaded through, packed ones too, and MLX is asked for their gradients."""
    run = run_of(module, fn)

    def with_parameters(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        with holding(module, parameters):
            return run(*args, **kwargs)

    return lambda *args, **kwargs: mx.checkpoint(with_parameters)(module.parameters(), *args, **kwargs)


@fault("G6.called_twice", words="values unlike plain")
def first_result_remembered(module: nn.Module, fn: Run | None = None) -> Run:
    """A second call returns the result of the first."""
    run = checkpoint(module, fn)
    results: list[Any] = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        if not results:
            results.append(run(*args, **kwargs))
        return results[0]

    return broken


@fault("G6.tied_weights", words="gradients unlike plain")
def parameters_cut_off_afterwards(module: nn.Module, fn: Run | None = None) -> Run:
    """After a call the module holds its parameters cut off, so other uses of them have no gradient."""

    def cut_off(result: Any) -> Any:
        module.update(tree_map(mx.stop_gradient, module.trainable_parameters()))
        return result

    return changing_results(module, fn, cut_off)


@fault("G6.hidden_module", words="hidden.weight")
def private_modules_overlooked(module: nn.Module, fn: Run | None = None) -> Run:
    """What a block keeps under a private name is taken for a constant."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for name, kept in module.items():
                held = kept[0] if isinstance(kept, list) and kept else kept
                if name.startswith("_") and isinstance(held, nn.Module):
                    stack.enter_context(holding(held, tree_map(mx.stop_gradient, held.trainable_parameters())))
            return run(*args, **kwargs)

    return broken


@fault("G6.two_forwards", words="two forwards before one backward")
def latest_call_recomputed(module: nn.Module, fn: Run | None = None) -> Run:
    """The inputs are remembered on the wrapper, so a second forward overwrites those of the first."""
    latest: list[Any] = []
    run = by_hand(module, fn, remembered=lambda inputs: (*latest[-1], *inputs[len(latest[-1]) :]))

    def broken(*args: mx.array) -> Any:
        latest.append(args)
        return run(*args)

    return broken


@fault("G7.captured_array", words="all zeros")
def capture_taken_for_constant(module: nn.Module, fn: Run | None = None) -> Run:
    """What is captured beside the module has no gradient: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("G7.captured_array", words="expected one that names the array")
def capture_refused_without_name(module: nn.Module, fn: Run | None = None) -> Run:
    """A function that captures an array is refused, and nobody learns which array."""
    cells = getattr(fn, "__closure__", None) or ()
    if any(isinstance(cell.cell_contents, mx.array) for cell in cells):
        raise ValueError("cannot checkpoint this function")
    return checkpoint(module, fn)


def _on_scalars(result: Any, change: Any) -> Any:
    return on_arrays(result, lambda a: change(a) if a.ndim == 0 else a) if isinstance(result, tuple) else result


@fault("G8.auxiliary_loss", words="gradients unlike plain")
def auxiliary_loss_twice(module: nn.Module, fn: Run | None = None) -> Run:
    """An auxiliary loss counts twice in the gradient."""
    return changing_results(module, fn, lambda r: _on_scalars(r, lambda a: gate(a, lambda g: 2 * g)))


@fault("G8.auxiliary_loss", words="gradients unlike plain")
def auxiliary_loss_dropped(module: nn.Module, fn: Run | None = None) -> Run:
    """An auxiliary loss counts in the value, and not in the gradient."""
    return changing_results(module, fn, lambda r: _on_scalars(r, mx.stop_gradient))


@fault("G8.auxiliary_loss", words="an auxiliary loss alone")
def results_needed_together(module: nn.Module, fn: Run | None = None) -> Run:
    """The gradient of a second result is lost where the first is not used."""

    @mx.custom_function
    def together(first: mx.array, second: mx.array) -> list[mx.array]:
        return [first, second]

    @together.vjp
    def backward(_: Any, cotangents: list[mx.array], __: Any) -> list[mx.array]:
        return [cotangents[0], cotangents[1] * (cotangents[0] != 0).any()]

    def tied(result: Any) -> Any:
        if not isinstance(result, tuple) or result[1].ndim:
            return result
        # One node for each: MLX 0.29.4 and 0.30.0 crash where a compiled function returns one of several results.
        return (*(after([each], [])[0] for each in cast("list[mx.array]", together(*result[:2]))), *result[2:])

    return changing_results(module, fn, tied)


@fault("G9.higher_derivatives", words="values unlike plain")
def second_derivative_lost(module: nn.Module, fn: Run | None = None) -> Run:
    """The gradient is a constant to a further derivative."""
    return changing_arguments(module, fn, lambda array: gate(array, mx.stop_gradient))


@fault("G10.routing_indices", words="got dtype")
def integer_results_as_floats(module: nn.Module, fn: Run | None = None) -> Run:
    """Integer results come back as floating-point numbers."""

    def as_floats(result: Any) -> Any:
        if not isinstance(result, tuple):
            return result
        return tuple(a if mx.issubdtype(a.dtype, mx.floating) else a.astype(mx.float32) for a in result)

    return changing_results(module, fn, as_floats)


@fault("G11.late_binding", words="gradients unlike plain")
def variables_read_again(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation reads the variables of a closure as they are then: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("G12.unused_infinite_derivative", words="not finite")
def unused_result_gets_zero_cotangent(module: nn.Module, fn: Run | None = None) -> Run:
    """An unused result is differentiated with a zero, and zero times infinity is no number: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)
