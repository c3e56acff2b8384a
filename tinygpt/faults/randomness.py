"""Faults in random numbers."""

import itertools
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing import checkpoint, random_state
from tinygpt.faults.breaking import Run, running
from tinygpt.faults.fault import fault

_seeds = itertools.count(1)


@fault("R1.same_masks", words="gradients unlike plain")
def new_mask_in_recompute(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation draws another mask."""

    def redrawn(run: Run, again: bool, *args: Any, **kwargs: Any) -> Any:
        if again:
            mx.random.uniform(shape=())
        return run(*args, **kwargs)

    return running(module, fn, redrawn)


@fault("R2.state_afterwards", words="the next random draw")
def recompute_draws_on(module: nn.Module, fn: Run | None = None) -> Run:
    """The recomputation moves the random state on: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("R2.state_afterwards", words="the next random draw")
def random_state_rewound(module: nn.Module, fn: Run | None = None) -> Run:
    """After a call the random state is what it was before."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        before = random_state.read()
        result = run(*args, **kwargs)
        random_state.write(before)
        return result

    return broken


@fault("R3.fresh_masks_when_compiled", words="case 'dropout'")
def key_baked_in(module: nn.Module, fn: Run | None = None) -> Run:
    """The key is a number of Python's, and so a constant of the compiled function."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        random_state.write(mx.random.key(next(_seeds)))
        return run(*args, **kwargs)

    return broken


@fault("R4.different_masks", words="got the same mask in step 1 block 0 and step 1 block 1")
def one_mask_for_all(module: nn.Module, fn: Run | None = None) -> Run:
    """Every call starts from the same key."""
    run = checkpoint(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        random_state.write(mx.random.key(0))
        return run(*args, **kwargs)

    return broken


@fault("R5.keys", words="RandomBits")
def keys_differentiated(module: nn.Module, fn: Run | None = None) -> Run:
    """MLX is asked for the gradient of a key: its own wrapper."""
    return nn.utils.checkpoint(module, fn)
