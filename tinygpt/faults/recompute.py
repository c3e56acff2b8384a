"""Faults in how often a function runs."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.nn as nn

from tinygpt.checkpointing import checkpoint
from tinygpt.faults.breaking import Run, run_of, running
from tinygpt.faults.fault import fault

_inside = threading.local()


@fault("C1.runs_twice", "C6.every_class", "M1.saving", words="got")
def identity(module: nn.Module, fn: Run | None = None) -> Run:
    """Nothing is wrapped."""
    return run_of(module, fn)


@fault("C1.runs_twice", words="got [3, 3]")
def recomputes_twice(module: nn.Module, fn: Run | None = None) -> Run:
    """The backward runs the function two times."""

    def twice(run: Run, again: bool, *args: Any, **kwargs: Any) -> Any:
        if again:
            run(*args, **kwargs)
        return run(*args, **kwargs)

    return running(module, fn, twice)


@fault("C2.runs_once_without_gradient", "C5.nothing_to_recompute", words="got [2, 2")
def backward_in_advance(module: nn.Module, fn: Run | None = None) -> Run:
    """The forward runs the function a second time, for a backward that may never come."""
    run = run_of(module, fn)

    def broken(*args: Any, **kwargs: Any) -> Any:
        run(*args, **kwargs)
        return run(*args, **kwargs)

    return broken


@fault("C3.wrapped_twice", words="as declared: got [3, 3]", runs_wrapped_twice=2)
def nested_twice(module: nn.Module, fn: Run | None = None) -> Run:
    """What is wrapped is wrapped again, though the wrapper declares that it is not."""
    run = run_of(module, fn)
    return checkpoint(module, lambda *args, **kwargs: run(*args, **kwargs))


@fault("C4.nested", words="got [2]")
def nested_ignored(module: nn.Module, fn: Run | None = None) -> Run:
    """Inside of a wrapped function nothing is wrapped."""
    run = run_of(module, fn)

    def inside(*args: Any, **kwargs: Any) -> Any:
        before, _inside.yes = getattr(_inside, "yes", False), True
        try:
            return run(*args, **kwargs)
        finally:
            _inside.yes = before

    wrapped = checkpoint(module, inside)
    return lambda *args, **kwargs: (inside if getattr(_inside, "yes", False) else wrapped)(*args, **kwargs)


@fault("C6.every_class", words="got [2, 1, 2, 1]", shape="enable")
@contextmanager
def first_class_only(model: nn.Module) -> Iterator[None]:
    """Only blocks of the first block's class are checkpointed."""
    first = type(model.blocks[0])
    with checkpointed([block for block in model.blocks if type(block) is first]):
        yield


@contextmanager
def checkpointed(blocks: list[nn.Module], wrap: Any = checkpoint) -> Iterator[None]:
    """Checkpoint modules where they are, inside the context, by giving each a class of its own."""
    classes = [type(block) for block in blocks]

    def call(self: nn.Module, cls: type[nn.Module], *args: Any, **kwargs: Any) -> Any:
        return wrap(self, functools.partial(cls.__call__, self))(*args, **kwargs)

    try:
        for block, cls in zip(blocks, classes, strict=True):
            made = functools.partialmethod(call, cls)
            block.__class__ = type(cls.__name__, (cls,), {"__call__": made})
        yield
    finally:
        for block, cls in zip(blocks, classes, strict=True):
            block.__class__ = cls
