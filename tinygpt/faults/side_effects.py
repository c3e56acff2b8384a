"""Faults in what a step leaves behind."""

import functools
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

from tinygpt.checkpointing import checkpoint, random_state
from tinygpt.faults.breaking import Run, beside_arguments, by_hand, changing_results, run_of, running
from tinygpt.faults.fault import fault
from tinygpt.leaves import leaves

_leaked: list[mx.array] = []
_kept: list[Any] = []


@fault("S1.parameters_intact[compiled]", words="without a primitive")
def tracers_left(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation leaves its own arrays in the module."""
    return by_hand(module, fn, put_back=False)


@fault("S1.parameters_intact", words="arrays left in the module unlike plain")
def parameters_left_rounded(module: nn.Module, fn: Run | None = None) -> Run:
    """After a call the module holds its parameters in half precision."""

    def rounded(result: Any) -> Any:
        module.update(tree_map(lambda a: a.astype(mx.bfloat16).astype(a.dtype), module.trainable_parameters()))
        return result

    return changing_results(module, fn, rounded)


@fault("S2.intact_after_exceptions", words="after an exception in the forward")
def left_frozen_after_exception(module: nn.Module, fn: Run | None = None) -> Run:
    """The module is frozen while it runs, and stays so after an exception."""
    run = run_of(module, fn)

    def frozen(*args: Any, **kwargs: Any) -> Any:
        names = [name.rpartition(".")[2] for name in leaves(module.trainable_parameters())]
        module.freeze()
        result = run(*args, **kwargs)
        module.unfreeze(keys=names)
        return result

    return checkpoint(module, frozen)


@fault("S2.intact_after_exceptions", words="the next random draw")
def random_state_lost_after_exception(module: nn.Module, fn: Run | None = None) -> Run:
    """An exception takes the random state back to where the call began."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        before = random_state.read()
        try:
            return run(*args, **kwargs)
        except Exception:
            random_state.write(before)
            raise

    return broken


@fault("S3.buffers_once", words="a running mean and a counter")
def buffers_twice(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation updates buffers again: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("S4.class_untouched", words="the class of the block")
def class_patched(module: nn.Module, fn: Run | None = None) -> Run:
    """The class of the module is patched, for every instance and for ever."""
    if fn is not None:
        return checkpoint(module, fn)
    cls, plain = type(module), type(module).__call__
    if not hasattr(plain, "patched"):

        @functools.wraps(plain)
        def patched(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return checkpoint(self, functools.partial(plain, self))(*args, **kwargs)

        patched.patched = True  # type: ignore[attr-defined]
        cls.__call__ = patched  # type: ignore[method-assign]
    return module


@fault("S5.modes_kept", words="evaluation mode")
def switched_to_training(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation runs in training mode."""

    def trained(run: Run, again: bool, *args: Any, **kwargs: Any) -> Any:
        if again:
            module.train()
        return run(*args, **kwargs)

    return running(module, fn, trained)


@fault("S6.memory_flat[eager]", words="active memory after 50 steps")
def slow_leak(module: nn.Module, fn: Run | None = None) -> Run:
    """Every call leaves one number behind."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        _leaked.append(mx.array(float(len(_leaked))))
        return run(*args, **kwargs)

    return broken


@fault("S6.memory_flat[eager]", words="active memory after exceptions")
def leak_after_exception(module: nn.Module, fn: Run | None = None) -> Run:
    """Every exception leaves an array behind."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except Exception:
            _leaked.append(mx.array([1.0, 2.0]))
            raise

    return broken


@fault("S7.parameters_visible", words="got 0, expected 8")
def parameters_hidden(module: nn.Module, fn: Run | None = None) -> Run:
    """A function comes back for a module, and hides its parameters."""
    run = run_of(module, fn)
    return checkpoint(module, lambda *args, **kwargs: run(*args, **kwargs))


@fault("S8.container_once", words="a list that the block appends to")
def container_filled_twice(module: nn.Module, fn: Run | None = None) -> Run:
    """Lists among the arguments reach the function as they are, at each run: beside the arguments of MLX's own."""
    return beside_arguments(module, fn, list)


@fault("S9.python_state_once", words="calls counted in Python")
def python_counter_twice(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation counts again what is counted in Python: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("M6.nothing_left[eager]", words="active memory after the step")
def input_kept_afterwards(module: nn.Module, fn: Run | None = None) -> Run:
    """The inputs of the last calls are kept in a list."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        _kept.append(args)
        return run(*args, **kwargs)

    return broken


@fault("M6.nothing_left", words="active memory after the step")
def result_kept_in_the_module(module: nn.Module, fn: Run | None = None) -> Run:
    """The module keeps the result of its last call."""

    def kept(result: Any) -> Any:
        module._last = mx.stop_gradient(result)
        return result

    return changing_results(module, fn, kept)


@fault("S6.memory_flat[compiled]", words="active memory after 50 steps")
def history_grows(module: nn.Module, fn: Run | None = None) -> Run:
    """The module keeps one number more with each step."""

    def kept(result: Any) -> Any:
        before = module["_history"] if "_history" in module else mx.zeros((0,))
        module._history = mx.concatenate([before, mx.ones((1,))])
        return result

    return changing_results(module, fn, kept)
