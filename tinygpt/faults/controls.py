"""Wrappers that are right, in every shape: what no check may fail."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.nn as nn

from tinygpt.checkpointing import checkpoint
from tinygpt.conformance.subjects import Subject, subject
from tinygpt.faults.recompute import checkpointed


def function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Checkpoint a function that takes the parameters first."""
    return checkpoint(fn)


@contextmanager
def enabled(model: nn.Module) -> Iterator[None]:
    """Checkpoint every block of a model, inside the context."""
    with checkpointed(model.blocks):
        yield


def controls() -> tuple[Subject, ...]:
    """Return the controls."""
    ours = subject("tinygpt")
    return (
        ours,
        Subject("function", function, "wrap_fn", ours.declines, address=f"{__name__}:function"),
        Subject("enabled", enabled, "enable", ours.declines, address=f"{__name__}:enabled"),
    )
