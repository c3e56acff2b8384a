"""From a model and a policy to the functions that run its blocks; the model stays as it is, nothing is patched."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.nn as nn

from tinygpt.checkpointing.ordered import ordered
from tinygpt.checkpointing.policy import recomputed_blocks
from tinygpt.checkpointing.wrap import checkpoint
from tinygpt.checkpointing.wrappers import Wrapper


def checkpointed_blocks(
    blocks: Sequence[nn.Module], policy: str, wrap: Wrapper = checkpoint
) -> list[Callable[..., Any]]:
    """Return what to call instead of each block.

    Args:
        blocks: The blocks of a model, in order.
        policy: Which of them are recomputed; see ``recomputed_blocks``.
        wrap: The wrapper for those. Beside blocks that ours recomputes, the others run ``ordered``; beside those of
            another wrapper, or where nothing is recomputed, they are returned as they are.

    Raises:
        ConfigError: There is no such policy.
    """
    recomputed = recomputed_blocks(policy, len(blocks))
    plain = ordered if recomputed and wrap is checkpoint else _as_it_is
    return [wrap(block) if index in recomputed else plain(block) for index, block in enumerate(blocks)]


def _as_it_is(block: nn.Module) -> Callable[..., Any]:
    return block
