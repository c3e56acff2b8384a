"""Gradient checkpointing on MLX: a GPT, a checkpoint wrapper that is right, and checks for anybody's.

Names are loaded when they are first used; importing this package does not import MLX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinygpt.checkpointing import checkpoint, checkpoint_model, checkpointed_blocks
    from tinygpt.config import GPTConfig
    from tinygpt.conformance import check_checkpoint, iter_checks, parametrize_with_checks
    from tinygpt.memory import measure
    from tinygpt.model import GPT
    from tinygpt.presets import PRESETS

__version__ = "0.1.0"

_HOMES = {
    "GPT": "tinygpt.model",
    "GPTConfig": "tinygpt.config",
    "PRESETS": "tinygpt.presets",
    "check_checkpoint": "tinygpt.conformance",
    "checkpoint": "tinygpt.checkpointing",
    "checkpoint_model": "tinygpt.checkpointing",
    "checkpointed_blocks": "tinygpt.checkpointing",
    "iter_checks": "tinygpt.conformance",
    "measure": "tinygpt.memory",
    "parametrize_with_checks": "tinygpt.conformance",
}

__all__ = [
    "GPT",
    "PRESETS",
    "GPTConfig",
    "__version__",
    "check_checkpoint",
    "checkpoint",
    "checkpoint_model",
    "checkpointed_blocks",
    "iter_checks",
    "measure",
    "parametrize_with_checks",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
