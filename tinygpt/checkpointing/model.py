"""Checkpoint every block of a model that somebody else has written, where it stands, and give it back as it was.

No parameter changes its name and no class is patched: a block gets a class of its own, which runs the call of the old
one under ``checkpoint``. So adapters and weights load as before, and other models of the same classes are not touched.
"""

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mlx.nn as nn

from tinygpt.checkpointing.wrap import call
from tinygpt.errors import CheckpointError

MARK = "_recomputed"  # of a class whose calls are checkpointed


class CheckpointedModel:
    """The blocks of a model that are checkpointed, until ``undo`` is called or the context is left.

    Attributes:
        blocks: By their paths in the model.
    """

    def __init__(self, blocks: Mapping[str, nn.Module]) -> None:
        """Checkpoint these blocks, but for those that are already."""
        self.blocks = dict(blocks)
        self._before = [(block, type(block)) for block in self.blocks.values()]
        kinds = {kind: recomputing(kind) for _, kind in self._before}
        for block, kind in self._before:
            block.__class__ = kinds[kind]

    def __enter__(self) -> "CheckpointedModel":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Undo it."""
        self.undo()

    def __repr__(self) -> str:
        """Tell which blocks, by class."""
        counts: dict[str, int] = {}
        for block in self.blocks.values():
            counts[type(block).__name__] = counts.get(type(block).__name__, 0) + 1
        return f"CheckpointedModel({', '.join(f'{count} {name}' for name, count in counts.items())})"

    def undo(self) -> None:
        """Give every block its class back."""
        for block, kind in self._before:
            block.__class__ = kind


def checkpoint_model(model: nn.Module, blocks: Mapping[str, nn.Module] | None = None) -> CheckpointedModel:
    """Checkpoint every block of a model, of whatever classes they are.

    Args:
        model: The model, which stays as it is but for the classes of its blocks.
        blocks: Its blocks by path; found by ``blocks_of`` if not given.

    Returns:
        What was checkpointed. It can undo it, and is a context that does.

    Raises:
        CheckpointError: The model has no blocks that could be found.
    """
    return CheckpointedModel(blocks_of(model) if blocks is None else blocks)


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks of a model by path: modules made of modules, in the outermost lists.

    Raises:
        CheckpointError: There are none.
    """
    found = dict(_blocks("", model))
    if not found:
        raise CheckpointError(
            f"[checkpoint_model] blocks of {type(model).__name__}: got no list of modules, expected one; or name them"
        )
    return found


def recomputing(kind: type) -> type:
    """Return a class that behaves like another, and whose calls are checkpointed; itself if they are already."""
    if MARK in vars(kind):
        return kind

    def checkpointed(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(types.MethodType(kind.__call__, self), self, args, kwargs)

    found = with_call(kind, checkpointed)
    setattr(found, MARK, True)
    return found


def with_call(kind: type, function: Callable[..., Any]) -> type:
    """Return a class of the same name that behaves like another, but for its calls.

    Args:
        kind: The other class, which stays as it is.
        function: Called with an instance, and the arguments of the call.
    """
    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(kind.__name__, (kind,), {**names, "__call__": function})


def _blocks(path: str, value: Any) -> Iterator[tuple[str, nn.Module]]:
    """Yield the blocks below a value."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            if isinstance(each, nn.Module) and each.children():
                yield f"{path}.{index}".lstrip("."), each
            elif isinstance(each, list):
                yield from _blocks(f"{path}.{index}", each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _blocks(f"{path}.{name}".lstrip("."), each)
