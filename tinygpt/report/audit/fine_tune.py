"""A fine-tune with mlx-lm's own trainer under every wrapper, as a table: from ``results/fine-tune.json``."""

from collections.abc import Sequence
from typing import Any

MIB = 1 << 20
SHOWN = (1, 2, 3, 5, 10, 50, 100)  # steps

Record = dict[str, Any]


def fine_tune_table(runs: Sequence[Record]) -> list[str]:
    """Return losses at some steps, how far a curve is from the plain one, and the peak."""
    steps = [step for step in SHOWN if step <= len(runs[0]["losses"])]
    lines = [f"| run | {' | '.join(f'loss {step}' for step in steps)} | furthest from plain | peak, MiB | over plain |"]
    lines.append("|---" * (4 + len(steps)) + "|")
    plain = {run["training"]: run for run in runs if run["wrapper"] == "plain"}
    for run in runs:
        beside = plain[run["training"]]
        furthest = max(abs(one - other) for one, other in zip(run["losses"], beside["losses"], strict=True))
        cells = [
            run["case"],
            *(f"{run['losses'][step - 1]:.3f}" for step in steps),
            f"{furthest:.2g}" if furthest else "equal",
            f"{run['peak_bytes'] / MIB:.1f}",
            f"{run['peak_bytes'] / beside['peak_bytes']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
