"""From a model and a policy to the functions that run its blocks; the model stays as it is, nothing is patched."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing.ordered import ordered
from tinygpt.checkpointing.parts import with_parts
from tinygpt.checkpointing.policy import plan
from tinygpt.checkpointing.wrap import checkpoint
from tinygpt.checkpointing.wrappers import Wrapper
from tinygpt.plan import Recompute, Segment

Run = Callable[..., Any]


def checkpointed_blocks(
    blocks: Sequence[nn.Module], policy: str, wrap: Wrapper = checkpoint, *, cuts: Collection[int] = ()
) -> list[Run]:
    """Return what to call instead of each block.

    Args:
        blocks: The blocks of a model, in order.
        policy: What of them is recomputed; see ``tinygpt.checkpointing.policy``.
        wrap: The wrapper for that. Beside what ours recomputes, plain blocks run ``ordered``; beside another wrapper,
            or where nothing is recomputed, they are returned as they are.
        cuts: Blocks before which a segment has to end, as in ``Policy.plan``.

    Raises:
        ConfigError: There is no such policy.
    """
    segments = plan(policy, len(blocks), cuts=cuts)
    kept = all(segment.recompute is Recompute.NOTHING for segment in segments)
    return [
        run
        for segment in segments
        for run in _runs(
            segment, [blocks[index] for index in segment.blocks], wrap, plain=kept or wrap is not checkpoint
        )
    ]


def _runs(segment: Segment, blocks: Sequence[nn.Module], wrap: Wrapper, *, plain: bool) -> list[Run]:
    """Return what to call instead of each block of a segment."""
    if segment.recompute is Recompute.BLOCK:
        return [wrap(blocks[0])] if len(blocks) == 1 else [wrap(Together(blocks)), *[_done] * (len(blocks) - 1)]
    if segment.recompute is Recompute.NOTHING:
        return [blocks[0] if plain else ordered(blocks[0])]
    return [with_parts(blocks[0], segment.recompute, wrap)]


class Together(nn.Module):
    """Several blocks as one; of every loss it returns a list."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        """Hold the blocks, which stay as they are."""
        super().__init__()
        self.blocks = list(blocks)

    def __call__(self, x: mx.array, *cache: mx.array) -> tuple[Any, ...]:
        """Run one after another."""
        losses: dict[str, list[mx.array]] = {}
        for block in self.blocks:
            x, added, *cache = block(x, *cache)
            for name, loss in added.items():
                losses.setdefault(name, []).append(loss)
        return x, losses, *cache


def _done(x: mx.array, *cache: mx.array) -> tuple[Any, ...]:
    """Stand for a block that has run already."""
    return x, {}, *cache
