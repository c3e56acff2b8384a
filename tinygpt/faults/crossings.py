"""Faults in what crosses a wrapper by the side."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing import checkpoint
from tinygpt.conformance.crossings import NAME
from tinygpt.faults.breaking import Run, beside_arguments
from tinygpt.faults.fault import fault


def _stores(args: tuple[Any, ...]) -> list[Any]:
    """Return the arguments that can hold what crosses."""
    return [each for each in args if isinstance(each, dict | list) or hasattr(each, NAME)]


def _get(store: Any) -> Any:
    if isinstance(store, list):
        return store[-1] if store else None
    return store.get(NAME) if isinstance(store, dict) else getattr(store, NAME)


def _put(store: Any, value: Any) -> None:
    if isinstance(store, list):
        store[-1:] = [value]
    elif isinstance(store, dict):
        store[NAME] = value
    else:
        setattr(store, NAME, value)


@fault("H1.through_object", words="gradients unlike plain")
def crossing_taken_for_constant(module: nn.Module, fn: Run | None = None) -> Run:
    """What is read from an object is a constant: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("H1.through_object", words=f"expected one that names '{NAME}'")
def crossing_refused_without_name(module: nn.Module, fn: Run | None = None) -> Run:
    """A block that is given an object is refused, and nobody learns what is wrong with it."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        if any(hasattr(each, NAME) for each in args):
            raise TypeError("cannot checkpoint this call")
        return run(*args, **kwargs)

    return broken


def _cutting(module: nn.Module, fn: Run | None, kinds: Any) -> Run:
    """Checkpoint, and cut off what is left in stores of some kinds."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        for store in _stores(args):
            if isinstance(store, kinds):
                _put(store, mx.stop_gradient(_get(store)))
        return result

    return broken


@fault("H1.through_object", words="gradients unlike plain")
def crossing_cut_off(module: nn.Module, fn: Run | None = None) -> Run:
    """What a block leaves for another is cut off from its gradient."""
    return _cutting(module, fn, object)


@fault("H3.through_container", words="losses in a list")
def hooked_losses_cut_off(module: nn.Module, fn: Run | None = None) -> Run:
    """What a block appends to a list is cut off from its gradient."""
    return _cutting(module, fn, list)


@fault("H2.through_growing_object", words="unlike plain")
def object_left_filled(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation finds in an object what the forward has left there: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("H3.through_container", words="gradients unlike plain")
def container_left_as_recomputed(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation finds a dict as it is by then: beside the arguments of MLX's own wrapper."""
    return beside_arguments(module, fn, dict)


@fault("H4.through_variable", words="gradients unlike plain")
def variable_taken_for_constant(module: nn.Module, fn: Run | None = None) -> Run:
    """What is read from a variable is a constant: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("H5.left_behind", words="left behind unlike plain")
def recomputation_left_behind(module: nn.Module, fn: Run | None = None) -> Run:
    """An array of the recomputation takes the place of the forward's: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)
