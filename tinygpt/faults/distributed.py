"""Faults of a wrapper among several ranks."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing import checkpoint
from tinygpt.faults.breaking import Run, changing_gradients, changing_results, gate, on_arrays, run_of
from tinygpt.faults.fault import fault


@fault("D1.averaged_gradients", words="gradients of rank 0 unlike the joined batch's")
def gradients_summed(module: nn.Module, fn: Run | None = None) -> Run:
    """Gradients are as large as though the ranks were added up, not averaged."""
    return changing_gradients(module, fn, lambda _, gradient: gradient * mx.distributed.init().size())


@fault("D1.averaged_gradients", words="gradients of rank 0 unlike the joined batch's")
def second_rank_dropped(module: nn.Module, fn: Run | None = None) -> Run:
    """What the second rank has found is dropped."""
    kept = 0.0 if mx.distributed.init().rank() == 1 else 1.0
    return changing_gradients(module, fn, lambda _, gradient: gradient * kept)


@fault("D1.averaged_gradients", words="gradients of rank 0 unlike the joined batch's")
def cotangents_averaged(module: nn.Module, fn: Run | None = None) -> Run:
    """The ranks average before the recomputation, not after it: what arrives, not what comes of it."""
    group = mx.distributed.init()

    def average(cotangent: mx.array) -> mx.array:
        return mx.distributed.all_sum(cotangent, group=group) / group.size()

    return changing_results(module, fn, lambda result: on_arrays(result, lambda array: gate(array, average)))


@fault("D1.averaged_gradients[eager]", words="unlike rank 0 in")
def trees_that_differ(module: nn.Module, fn: Run | None = None) -> Run:
    """On the second rank a layer is frozen, so that gradients are paired with others."""
    if mx.distributed.init().rank() == 1:
        next(iter(module.children().values())).freeze()
    return checkpoint(module, fn)


@fault("D1.masks_of_each_rank", words="values of rank 0 unlike the joined batch's")
def masks_equal_on_all_ranks(module: nn.Module, fn: Run | None = None) -> Run:
    """Every call draws from one seed, the same on all ranks."""
    run = run_of(module, fn)

    def seeded(*args: Any, **kwargs: Any) -> Any:
        mx.random.seed(0)
        return run(*args, **kwargs)

    return checkpoint(module, seeded)
