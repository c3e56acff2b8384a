"""Recompute parts of a block instead of the whole: what is large and cheap to compute again.

A part is a method of the block or of a module in it. Every call makes shallow copies of the modules on the way to the
part, in which the method is another; the modules themselves stay as they are, and share their arrays with the copies.
"""

import copy
from collections.abc import Callable
from typing import Any

import mlx.nn as nn

from tinygpt.checkpointing.ordered import ordered
from tinygpt.checkpointing.wrap import checkpoint
from tinygpt.checkpointing.wrappers import Wrapper
from tinygpt.plan import Recompute

# ``narrowed`` ends in a matrix product that no backward asks for: what is computed again is the activation alone.
METHODS = {
    Recompute.ATTENTION: ("core",),
    Recompute.SELECTIVE: ("core", "narrowed"),
    Recompute.HALVES: ("attended", "transformed"),
}


def with_parts(block: nn.Module, recompute: Recompute, wrap: Wrapper = checkpoint) -> Callable[..., Any]:
    """Return what to call instead of a block, to have parts of it recomputed.

    Args:
        block: A block of the model.
        recompute: Which parts.
        wrap: The wrapper for them.
    """

    def run(*args: Any) -> Any:
        return _copied(block, METHODS[recompute], wrap)(*args)

    return ordered(block, run) if wrap is checkpoint else run


def _copied(module: nn.Module, methods: tuple[str, ...], wrap: Wrapper) -> nn.Module:
    """Return a module that has these methods wrapped, wherever they are in it."""
    copied = copy.copy(module)
    for name in methods:
        if hasattr(type(module), name):
            vars(copied)[name] = _wrapped(module, getattr(module, name), wrap)
    for name, child in module.items():
        if isinstance(child, nn.Module):
            dict.__setitem__(copied, name, _copied(child, methods, wrap))
    return copied


def _wrapped(module: nn.Module, method: Callable[..., Any], wrap: Wrapper) -> Callable[..., Any]:
    if wrap is not checkpoint:
        return wrap(module, method)
    # Captured, and not its owner's: then an array that the method does not use is not an input of the recomputation.
    return checkpoint(lambda *args: method(*args))
