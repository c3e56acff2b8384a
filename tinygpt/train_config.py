"""What a training run is to do, validated when it is made.

Separate from the trainer, because a ``.tinygpt`` file has it in its header, and is read without one.
"""

import dataclasses
from pathlib import Path
from typing import Any

from tinygpt.config import BYTE_VOCABULARY, MOST, GPTConfig
from tinygpt.errors import ConfigError

ITEMSIZE = {"float32": 4, "bfloat16": 2}  # bytes of an element
DTYPES = tuple(ITEMSIZE)

LARGEST = 3.4e38  # of float32, in which they are computed

# MLX's own defaults, but for the correction of the first steps.
OPTIMIZER: dict[str, Any] = {
    "name": "AdamW",
    "betas": [0.9, 0.999],
    "eps": 1e-8,
    "weight_decay": 0.01,
    "bias_correction": True,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run.

    Attributes:
        model: The model's shape.
        steps: Optimizer steps.
        batch: Sequences in a step (B), of all ranks together.
        context: Tokens in a sequence (T), at most those of the model.
        corpus: A UTF-8 text; ``None`` for the source of Python's standard library.
        policy: Which blocks are recomputed.
        wrapper: By which wrapper.
        compile: Whether to compile the step.
        dtype: Of weights, activations and moments: ``float32`` or ``bfloat16``.
        accumulate: Parts that each rank divides its share of a batch into, and does one after another.
        clip_norm: Largest global norm of the gradients; 0 for no clipping.
        learning_rate: Of AdamW.
        seed: Of the weights, the dropout and the choice of text.

    Raises:
        ConfigError: A value is out of its range.
    """

    model: GPTConfig
    steps: int
    batch: int
    context: int
    corpus: Path | None = None
    policy: str = "none"
    wrapper: str = "tinygpt"
    compile: bool = True
    dtype: str = "float32"
    accumulate: int = 1
    clip_norm: float = 1.0
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        for name in ("steps", "batch", "context", "accumulate"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"[train] {name}: got {value!r}, expected a positive integer")
        if self.batch % self.accumulate:
            raise ConfigError(f"[train] batch: got {self.batch}, expected a multiple of {self.accumulate}, its parts")
        if self.batch * self.context >= MOST:
            raise ConfigError(
                f"[train] batch: got {self.batch} x {self.context} tokens, expected fewer than {MOST}, MLX's limit"
            )
        if self.model.vocab_size < BYTE_VOCABULARY:
            raise ConfigError(
                f"[train] vocab_size: got {self.model.vocab_size}, expected at least {BYTE_VOCABULARY}, one a byte"
            )
        if self.context > self.model.context:
            raise ConfigError(
                f"[train] context: got {self.context}, expected at most {self.model.context}, the model's positions"
            )
        if self.dtype not in DTYPES:
            raise ConfigError(f"[train] dtype: got {self.dtype!r}, expected one of {', '.join(DTYPES)}")
        if type(self.compile) is not bool:
            raise ConfigError(f"[train] compile: got {self.compile!r}, expected True or False")
        if not (_is_finite(self.clip_norm) and self.clip_norm >= 0):
            raise ConfigError(f"[train] clip_norm: got {self.clip_norm!r}, expected a number of at least 0")
        if not (_is_finite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigError(f"[train] learning_rate: got {self.learning_rate!r}, expected a positive number")
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise ConfigError(f"[train] seed: got {self.seed!r}, expected an integer in [0, 2^63)")


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST
