"""Faults in what a step needs."""

import itertools
from typing import Any

import mlx.nn as nn

from tinygpt.checkpointing import checkpoint
from tinygpt.checkpointing.wrappers import seed_recipe
from tinygpt.faults.breaking import Run, keeping, partly_frozen, run_of
from tinygpt.faults.fault import fault

_calls = itertools.count()


@fault("M1.saving", words="forward")
def no_order(module: nn.Module, fn: Run | None = None) -> Run:
    """Nothing holds earlier blocks back, so the saving depends on the order of evaluation: MLX's own wrapper."""
    return nn.utils.checkpoint(module, fn)


@fault("M1.saving", words="of at most")
def saves_every_other_call(module: nn.Module, fn: Run | None = None) -> Run:
    """Every other block is not wrapped."""
    return checkpoint(module, fn) if next(_calls) % 2 else run_of(module, fn)


@fault("M3.saving_when_compiled", "M3.slope_when_compiled", words="compiled")
def no_barrier(module: nn.Module, fn: Run | None = None) -> Run:
    """Nothing keeps the recomputation apart from the forward, so ``mx.compile`` merges them: the seed's recipe."""
    return seed_recipe(module, fn)


@fault("M2.slope", "M3.slope_when_compiled", words="2.00")
def keeps_two_boundaries(module: nn.Module, fn: Run | None = None) -> Run:
    """Beside its input a block keeps one more array of that size."""
    return keeping(module, fn, copies=1)


@fault("M4.more_recomputed", words="expected no rise")
def keeps_more_than_it_saves(module: nn.Module, fn: Run | None = None) -> Run:
    """A wrapped block keeps more than a plain one."""
    return keeping(module, fn, copies=8)


@fault("M5.auxiliary_loss", words="of at most")
def several_results_not_recomputed(module: nn.Module, fn: Run | None = None) -> Run:
    """A function with several results is run as it is."""
    run, wrapped = run_of(module, fn), checkpoint(module, fn)
    several: list[bool] = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        if not several:
            several.append(isinstance(run(*args, **kwargs), tuple))
        return (run if several[0] else wrapped)(*args, **kwargs)

    return broken


@fault("M8.frozen_base", words="of at most")
def partly_frozen_blocks_skipped(module: nn.Module, fn: Run | None = None) -> Run:
    """A block with frozen parameters is not wrapped."""
    return run_of(module, fn) if partly_frozen(module) else checkpoint(module, fn)
