"""What checkpointing saves in every variant: ``python -m tinygpt.equality.footprint --report FILE``.

The gradients of a model of 12 blocks, plain and checkpointed, and the slope of the peak from 12 blocks to 36. A further
checkpointed block may cost its input and nothing else: neither the auxiliary losses nor the shared cache keep anything.
The sizes are chosen so that a block's input is larger than its parameters, whose gradients are in the peak too, and not
much smaller than its attention map, of which one more or less may be in flight.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt import evidence
from tinygpt.checkpointing import Wrapper, checkpoint, checkpointed_blocks
from tinygpt.config import GPTConfig
from tinygpt.environment import backend
from tinygpt.memory.dispatch import PLACES, move_to_place
from tinygpt.memory.estimate import boundary_bytes
from tinygpt.memory.measure import measure
from tinygpt.model import GPT
from tinygpt.train import TrainStep
from tinygpt.variants import VARIANTS, combined

BASE = GPTConfig(n_layer=36, n_head=4, n_embd=32, n_mlp=16, context=16, vocab_size=64)
BATCH = 24
SLOPE_SLACK = 0.10  # of a boundary for each block: rule M2's own; one array more or less in flight makes 1 / 24


@dataclass(frozen=True)
class Footprint:
    """The peaks of one model, in bytes above weights and moments.

    Attributes:
        compiled: Whether the gradients are a compiled function.
        plain_bytes: Peak of the plain gradients at a third of the depth.
        checkpointed_bytes: The same with every block checkpointed.
        plain_slope_bytes: What a further plain block adds.
        slope_bytes: What a further checkpointed block adds.
        boundary_bytes: What it may add by arithmetic: its input, (B, T, D).
    """

    compiled: bool
    plain_bytes: int
    checkpointed_bytes: int
    plain_slope_bytes: float
    slope_bytes: float
    boundary_bytes: int

    @property
    def problem(self) -> str:
        """What is wrong, or nothing."""
        if abs(self.slope_bytes - self.boundary_bytes) > SLOPE_SLACK * self.boundary_bytes:
            return (
                f"a checkpointed block adds {self.slope_bytes:.0f} B, "
                f"expected {self.boundary_bytes} B within {SLOPE_SLACK:.0%}"
            )
        return ""


def footprint(config: GPTConfig, *, compiled: bool, batch: int = BATCH, wrap: Wrapper = checkpoint) -> Footprint:
    """Measure a model, at a third of its depth and at its own.

    Args:
        config: The model, of 36 blocks or another multiple of 3.
        compiled: Whether the gradients are a compiled function.
        batch: Sequences.
        wrap: The wrapper.
    """
    depths = config.n_layer // 3, config.n_layer
    plain, checkpointed = (
        [_peak_bytes(dataclasses.replace(config, n_layer=depth), policy, batch, compiled, wrap) for depth in depths]
        for policy in ("none", "all")
    )
    plain_slope, slope = ((high - low) / (depths[1] - depths[0]) for low, high in (plain, checkpointed))
    boundary = boundary_bytes(config, batch=batch, context=config.context)
    return Footprint(compiled, plain[0], checkpointed[0], plain_slope, slope, boundary)


def _peak_bytes(config: GPTConfig, policy: str, batch: int, compiled: bool, wrap: Wrapper) -> int:
    mx.random.seed(0)
    model = GPT(config)
    blocks = checkpointed_blocks(model.blocks, policy, wrap)
    step = TrainStep(model, optim.AdamW(1e-3), blocks=blocks, compiled=compiled)
    tokens = mx.random.randint(0, config.vocab_size, (batch, config.context + 1))
    mx.eval(tokens)
    return measure(
        lambda: step.gradients(tokens),
        schedule="gradients and their norm at once",
        trials=1 if policy == "none" else len(PLACES),  # what plain keeps is many times what may be in flight
        exact=backend() == "cpu",
        before=move_to_place,
    ).peak_bytes


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all variants, print a line for each, and return 1 if one keeps too much."""
    return evidence.main(evidence.parser("equality.footprint", __doc__), _measure_all, argv)


def _measure_all(_: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    records, good = [], True
    for variant in VARIANTS:
        for compiled in (False, True):
            found = footprint(combined(variant, base=BASE), compiled=compiled)
            good = good and not found.problem
            records.append({"variant": variant, **dataclasses.asdict(found)})
            print(f"{variant} {_line(found)}", flush=True)
    return good, {"footprints": records}


def _line(found: Footprint) -> str:
    ratio = found.checkpointed_bytes / found.plain_bytes
    slope = found.slope_bytes / found.boundary_bytes
    plain_slope = found.plain_slope_bytes / found.boundary_bytes
    how = "compiled" if found.compiled else "eager"
    return (
        f"{how}: checkpointed/plain {ratio:.3f}, a block adds {slope:.3f} of its input "
        f"(plain {plain_slope:.1f}){': ' + found.problem if found.problem else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())
