"""The same model in PyTorch, in float64 too: what MLX's gradients are compared with, and how far they may be off."""

from tinygpt.errors import ReferenceModelError

try:
    import torch  # noqa: F401  everything here needs it: one clear error instead of one from a line far below
except ModuleNotFoundError as error:
    raise ReferenceModelError(
        "[reference] torch: got no such module, expected PyTorch: pip install 'tinygpt[reference]'"
    ) from error

from tinygpt.reference.compare import Row, relative_differences
from tinygpt.reference.gradients import ReferenceResult, reference_gradients, weights_of
from tinygpt.reference.rounding import leaf_bounds
from tinygpt.reference.training import AdamW, reference_training, training_bounds

__all__ = [
    "AdamW",
    "ReferenceResult",
    "Row",
    "leaf_bounds",
    "reference_gradients",
    "reference_training",
    "relative_differences",
    "training_bounds",
    "weights_of",
]
