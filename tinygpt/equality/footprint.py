"""What checkpointing saves in every variant: ``python -m tinygpt.equality.footprint --report FILE``.

The gradients of a model of 12 blocks, plain and checkpointed, and the slope of the peak from 12 blocks to 36. A further
checkpointed block may cost its input and nothing else: neither the auxiliary losses nor the shared cache keep anything.
The sizes are chosen so that a block's input is larger than its parameters, whose gradients are in the peak too, and not
much smaller than its attention map, of which one more or less may be in flight.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt.checkpointing import checkpointed_blocks
from tinygpt.config import GPTConfig
from tinygpt.environment import backend, describe
from tinygpt.memory.dispatch import PLACES, move_to_place
from tinygpt.memory.estimate import boundary_bytes
from tinygpt.memory.measure import measure
from tinygpt.model import GPT
from tinygpt.train import TrainStep
from tinygpt.variants import VARIANTS, combined

BASE = GPTConfig(n_layer=12, n_head=4, n_embd=32, n_mlp=16, context=16, vocab_size=64)
BATCH = 24
DEPTHS = (12, 36)
SLOPE_SLACK = 0.10  # of a boundary for each block: rule M2's own; one array more or less in flight makes 1 / 24


@dataclass(frozen=True)
class Footprint:
    """The peaks of one variant, in bytes above weights and moments.

    Attributes:
        variant: Its name.
        compiled: Whether the gradients are a compiled function.
        plain_bytes: Peak of the plain gradients at 12 blocks.
        checkpointed_bytes: Peak with every block checkpointed.
        plain_slope_bytes: What a further plain block adds.
        slope_bytes: What a further checkpointed block adds.
        boundary_bytes: What it may add by arithmetic: its input, (B, T, D).
    """

    variant: str
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


def footprint(*variants: str, compiled: bool) -> Footprint:
    """Measure a variant, or several together."""
    shallow, deep = DEPTHS
    plain, checkpointed = (
        {depth: _peak_bytes(variants, policy, depth, compiled) for depth in DEPTHS} for policy in ("none", "all")
    )
    plain_slope, slope = ((peaks[deep] - peaks[shallow]) / (deep - shallow) for peaks in (plain, checkpointed))
    boundary = boundary_bytes(BASE, batch=BATCH, context=BASE.context)
    return Footprint("+".join(variants), compiled, plain[shallow], checkpointed[shallow], plain_slope, slope, boundary)


def _peak_bytes(variants: Sequence[str], policy: str, depth: int, compiled: bool) -> int:
    config = combined(*variants, base=dataclasses.replace(BASE, n_layer=depth))
    mx.random.seed(0)
    model = GPT(config)
    step = TrainStep(model, optim.AdamW(1e-3), blocks=checkpointed_blocks(model.blocks, policy), compiled=compiled)
    tokens = mx.random.randint(0, config.vocab_size, (BATCH, config.context + 1))
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
    parser = argparse.ArgumentParser(prog="python -m tinygpt.equality.footprint", description=__doc__)
    parser.add_argument("--report", type=Path, metavar="FILE", help="write everything as JSON")
    arguments = parser.parse_args(argv)
    found = []
    for variant in VARIANTS:
        for compiled in (False, True):
            found.append(footprint(variant, compiled=compiled))
            print(_line(found[-1]), flush=True)
    if arguments.report is not None:
        record: dict[str, Any] = {"environment": describe(), "footprints": [dataclasses.asdict(f) for f in found]}
        arguments.report.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(f.problem for f in found) else 0


def _line(found: Footprint) -> str:
    ratio = found.checkpointed_bytes / found.plain_bytes
    slope = found.slope_bytes / found.boundary_bytes
    plain_slope = found.plain_slope_bytes / found.boundary_bytes
    how = "compiled" if found.compiled else "eager"
    return (
        f"{found.variant} {how}: checkpointed/plain {ratio:.3f}, a block adds {slope:.3f} of its input "
        f"(plain {plain_slope:.1f}){': ' + found.problem if found.problem else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())
