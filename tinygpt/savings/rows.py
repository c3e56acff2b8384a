"""What every preset must save: a threshold on checkpointed over plain peak for each row of the seed's table.

A ratio means something for one depth, batch and context only, so each row has its own.
"""

from tinygpt.presets import ROWS, Row

# The peak of a training step (compiled, float32, gradients clipped; weights, moments and gradients included),
# checkpointed over plain. Each is 5 % above what results/h200-rows.json reached on CUDA.
THRESHOLDS: dict[Row, float] = dict(zip(ROWS, (1.00, 0.54, 0.35, 0.40, 0.66, 0.48, 0.38, 0.32), strict=True))

# On the CPU nothing is rounded up to pages and nothing is in flight, so the small preset has to show its saving too.
CPU_THRESHOLDS: dict[Row, float] = {Row("tiny", 8, 128): 0.62}

# The table that this project grew from: MLX-Swift 0.25 on an M5 Pro, naive custom function.
SEED_RATIOS: dict[Row, float] = dict(zip(ROWS, (1.17, 0.89, 0.82, 0.74, 0.79, 0.70, 0.67, 0.64), strict=True))


def threshold(row: Row, backend: str) -> float:
    """Return the largest ratio that a row may show on a backend (``cpu``, ``metal`` or ``cuda``)."""
    return CPU_THRESHOLDS.get(row, THRESHOLDS[row]) if backend == "cpu" else THRESHOLDS[row]
