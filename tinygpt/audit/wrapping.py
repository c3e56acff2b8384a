"""How a wrapper is put around the blocks of a whole model, what they do then, and how all of it is taken off again."""

import importlib
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.nn as nn

from tinygpt.checkpointing import blocks_of, checkpoint_model, with_call

Put = Callable[[nn.Module], None]


def put_plain(model: nn.Module) -> None:
    """Wrap nothing."""


def put_tinygpt(model: nn.Module) -> None:
    """Wrap as ``tinygpt.checkpoint_model`` does: every block."""
    checkpoint_model(model)


def put_mlx_lm(model: nn.Module) -> None:
    """Wrap as mlx-lm's trainer does: all instances of the class of the first block."""
    wrap = importlib.import_module("mlx_lm.tuner.trainer").grad_checkpoint
    wrap((getattr(model, "layers", None) or list(blocks_of(model).values()))[0])


def put_mlx_nn(model: nn.Module) -> None:
    """Wrap every block with ``mlx.nn.utils.checkpoint``."""
    for block in blocks_of(model).values():
        block.__class__ = _with_mlx_nn(type(block))


def _with_mlx_nn(kind: type) -> type:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return nn.utils.checkpoint(self, types.MethodType(kind.__call__, self))(*args, **kwargs)

    return with_call(kind, call)


WRAPPERS: dict[str, Put] = {"plain": put_plain, "mlx-lm": put_mlx_lm, "tinygpt": put_tinygpt, "mlx.nn": put_mlx_nn}


@contextmanager
def wrapped(model: nn.Module, wrapper: str) -> Iterator[Sequence[list[int]]]:
    """Wrap the blocks of a model, inside the context; afterwards they have the classes that they had.

    Every class of block is another one here, for this model alone: what patches a class does not reach the next model.

    Yields:
        For each block the list of its runs.
    """
    blocks = blocks_of(model)
    before = {path: type(block) for path, block in blocks.items()}
    runs: dict[int, list[int]] = {id(block): [] for block in blocks.values()}
    kinds = {kind: _counting(kind, runs) for kind in before.values()}
    for path, block in blocks.items():  # one block may have several
        block.__class__ = kinds[before[path]]
    try:
        WRAPPERS[wrapper](model)
        yield list(runs.values())
    finally:
        for path, block in blocks.items():
            block.__class__ = before[path]


def _counting(kind: type, runs: dict[int, list[int]]) -> type:
    """Return a class whose calls are counted outside of its instances."""

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        runs[id(self)].append(1)
        return kind.__call__(self, *args, **kwargs)

    return with_call(kind, counted)
