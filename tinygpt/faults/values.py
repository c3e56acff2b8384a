"""Faults in what a wrapped function returns."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing import checkpoint
from tinygpt.faults.breaking import Run, changing_gradients, changing_results, on_arrays, run_of
from tinygpt.faults.fault import fault

HALF = (mx.float16, mx.bfloat16)


@fault("V1.outputs", words="values unlike plain")
def output_scaled(module: nn.Module, fn: Run | None = None) -> Run:
    """Results are a thousandth too large."""
    return changing_results(module, fn, lambda result: on_arrays(result, lambda a: a * 1.001))


@fault("V1.outputs", words="values unlike plain")
def second_sequence_zero(module: nn.Module, fn: Run | None = None) -> Run:
    """Only the first sequence of a batch is right."""

    def first(array: mx.array) -> mx.array:
        if array.ndim < 2:
            return array
        here = (mx.arange(array.shape[0]) == 0).reshape(-1, *[1] * (array.ndim - 1))
        return mx.where(here, array, mx.zeros((), array.dtype))

    return changing_results(module, fn, lambda result: on_arrays(result, first))


@fault("V1.outputs[compiled]", words="Attempting to eval")
def evaluates_its_output(module: nn.Module, fn: Run | None = None) -> Run:
    """The result is evaluated inside the wrapper, which ``mx.compile`` forbids."""

    def evaluated(result: Any) -> Any:
        mx.eval(result)
        return result

    return changing_results(module, fn, evaluated)


@fault("V2.structure", words="structure of the result")
def none_lost(module: nn.Module, fn: Run | None = None) -> Run:
    """``None`` is dropped from dicts."""

    def without(result: Any) -> Any:
        return {k: v for k, v in result.items() if v is not None} if isinstance(result, dict) else result

    return changing_results(module, fn, without)


@fault("V2.structure", words="structure of the result")
def named_tuple_flattened(module: nn.Module, fn: Run | None = None) -> Run:
    """A named tuple comes back as a tuple."""

    def flattened(result: Any) -> Any:
        if isinstance(result, dict):
            return {key: flattened(value) for key, value in result.items()}
        return tuple(result) if isinstance(result, tuple) else result

    return changing_results(module, fn, flattened)


@fault("V2.structure", words="structure of the result")
def first_result_only(module: nn.Module, fn: Run | None = None) -> Run:
    """Of several results in a dict the first comes back."""
    return changing_results(
        module, fn, lambda result: next(iter(result.values())) if isinstance(result, dict) else result
    )


@fault("V3.half_precision", words="got dtype mlx.core.float32")
def output_cast_up(module: nn.Module, fn: Run | None = None) -> Run:
    """Results in half precision come back in float32."""
    return changing_results(
        module, fn, lambda r: on_arrays(r, lambda a: a.astype(mx.float32) if a.dtype in HALF else a)
    )


@fault("V3.half_precision", words="got dtype mlx.core.float32")
def gradient_cast_up(module: nn.Module, fn: Run | None = None) -> Run:
    """Gradients of parameters in half precision come back in float32."""
    return changing_gradients(module, fn, lambda _, g: g.astype(mx.float32) if g.dtype in HALF else g)


@fault("V4.repeated_arrays", words="gradients unlike plain")
def repeated_output_counted_once(module: nn.Module, fn: Run | None = None) -> Run:
    """An array that is returned twice has the gradient of its first place alone."""
    run = run_of(module, fn)

    def once(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        if not isinstance(result, tuple):
            return result
        seen: list[int] = []
        cut = []
        for each in result:
            cut.append(mx.stop_gradient(each) if id(each) in seen else each)
            seen.append(id(each))
        return tuple(cut)

    return checkpoint(module, once)
