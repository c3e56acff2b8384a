"""Faults in what is passed on."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing import checkpoint
from tinygpt.errors import CheckpointError
from tinygpt.faults.breaking import Run, on_arrays, run_of, running
from tinygpt.faults.fault import fault


@fault("A1.any_kind", words="values unlike plain")
def keywords_dropped(module: nn.Module, fn: Run | None = None) -> Run:
    """Keywords that are flags are not passed on."""
    run = checkpoint(module, fn)
    return lambda *args, **kwargs: run(*args, **{k: v for k, v in kwargs.items() if not isinstance(v, bool)})


@fault("A1.any_kind", words="TypeError: only arrays")
def constants_refused(module: nn.Module, fn: Run | None = None) -> Run:
    """Arguments that are no arrays are refused."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        if not all(isinstance(value, mx.array) for value in (*args, *kwargs.values())):
            raise TypeError("only arrays can be passed")
        return run(*args, **kwargs)

    return broken


@fault("A1.any_kind", words="gradients unlike plain: step 1.scale")
def nested_arrays_detached(module: nn.Module, fn: Run | None = None) -> Run:
    """Arrays inside of containers have no gradient."""
    run = checkpoint(module, fn)

    def cut(value: Any) -> Any:
        return value if isinstance(value, mx.array) else on_arrays(value, mx.stop_gradient)

    return lambda *args, **kwargs: run(*map(cut, args), **{key: cut(value) for key, value in kwargs.items()})


@fault("A2.integers", words="got ValueError")
def integers_as_floats(module: nn.Module, fn: Run | None = None) -> Run:
    """Token ids arrive as floating-point numbers, so that they can be differentiated."""
    run = checkpoint(module, fn)

    def as_float(value: Any) -> Any:
        whole = isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.integer)
        return value.astype(mx.float32) if whole else value

    return lambda *args, **kwargs: run(*map(as_float, args), **{key: as_float(each) for key, each in kwargs.items()})


@fault("A3.no_array", words="died")
def dies_of_no_array(module: nn.Module, fn: Run | None = None) -> Run:
    """A result without an array takes the interpreter down: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("A3.no_array", words="expected None or an error")
def no_array_replaced(module: nn.Module, fn: Run | None = None) -> Run:
    """A result without an array is replaced by a zero."""
    run = run_of(module, fn)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        return mx.zeros(()) if result is None else result

    return checkpoint(module, replaced)


@fault("A4.changed_recompute", words="got gradients")
def change_unnoticed(module: nn.Module, fn: Run | None = None) -> Run:
    """A recomputed result that differs in shape, dtype or number is replaced by zeros."""
    first: list[Any] = []

    def replaced(run: Run, again: bool, *args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        outline = (result.shape, result.dtype) if isinstance(result, mx.array) else None
        if not again:
            first[:] = [outline]
        elif first[0] and outline != first[0]:
            return mx.zeros(*first[0])
        return result

    return running(module, fn, replaced)


@fault("A4.changed_recompute", words="expected words about")
def change_without_words(module: nn.Module, fn: Run | None = None) -> Run:
    """A recomputed result that differs is an error that does not say in what."""
    shapes: list[Any] = []

    def refused(run: Run, again: bool, *args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        outline = (result.shape, result.dtype) if isinstance(result, mx.array) else type(result)
        if again and outline != shapes[-1]:
            raise CheckpointError("the recomputation went wrong")
        shapes[:] = [outline]
        return result

    return running(module, fn, refused)


@fault("A5.written_in_place", words="values unlike plain")
def argument_written_twice(module: nn.Module, fn: Run | None = None) -> Run:
    """The function runs on the caller's own array once more."""
    run, target = checkpoint(module, fn), run_of(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        target(*args, **kwargs)
        return result

    return broken
