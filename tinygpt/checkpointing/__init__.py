"""Gradient checkpointing on MLX: the wrapper, its rivals, and which blocks to wrap."""

from tinygpt.checkpointing.apply import checkpointed_blocks
from tinygpt.checkpointing.model import CheckpointedModel, blocks_of, checkpoint_model, with_call
from tinygpt.checkpointing.policy import EXAMPLES, POLICIES, plan
from tinygpt.checkpointing.wrap import checkpoint
from tinygpt.checkpointing.wrappers import WRAPPERS, Wrapper, wrapper

__all__ = [
    "EXAMPLES",
    "POLICIES",
    "WRAPPERS",
    "CheckpointedModel",
    "Wrapper",
    "blocks_of",
    "checkpoint",
    "checkpoint_model",
    "checkpointed_blocks",
    "plan",
    "with_call",
    "wrapper",
]
