"""What every preset must save: a threshold on checkpointed over plain peak for each row of the seed's table.

A ratio means something for one depth, batch and context only, so each row has its own.
"""

from tinygpt.checkpointing import plan
from tinygpt.memory.estimate import estimate_peak
from tinygpt.presets import ROWS, Row

# The peak of a training step (compiled, float32, gradients clipped; weights, moments and gradients included),
# checkpointed over plain. What is asked everywhere; nothing here was measured on Metal.
THRESHOLDS: dict[Row, float] = dict(zip(ROWS, (1.00, 0.54, 0.35, 0.40, 0.66, 0.48, 0.38, 0.32), strict=True))

# 5 % above the larger of what results/h200-rows.json and results/h200-memory.json reached, and nowhere above
# the former.
CUDA_THRESHOLDS: dict[Row, float] = dict(zip(ROWS, (0.71, 0.30, 0.31, 0.32, 0.66, 0.47, 0.37, 0.31), strict=True))

# On the CPU tiny runs whole: nothing is rounded up to pages there and little is in flight. 5 % above
# results/cpu-memory.json.
CPU_THRESHOLDS: dict[Row, float] = CUDA_THRESHOLDS | {Row("tiny", 8, 128): 0.48}


# Above the ratio that arithmetic gives, for every policy. The estimate was within 4 % of every reading on an H200
# (results/h200-policy-rows.json), and within 5 % of tiny on the CPU; on Metal nothing was measured.
MARGINS = {"cpu": 1.08, "cuda": 1.05, "metal": 1.15}


def threshold(row: Row, backend: str, policy: str = "all") -> float:
    """Return the largest ratio to the plain peak that a row may show under a policy.

    Args:
        row: Preset, batch and context.
        backend: ``cpu``, ``metal`` or ``cuda``.
        policy: Its name. For ``all`` the ratio also stays below what was reached before there were others.
    """
    config = row.config
    plain, checkpointed = (
        estimate_peak(
            config,
            plan(name, config.n_layer, cuts=config.cuts),
            batch=row.batch,
            context=row.context,
            backend=backend,
        ).peak_bytes
        for name in ("none", policy)
    )
    derived = MARGINS[backend] * checkpointed / plain
    declared = {"cpu": CPU_THRESHOLDS, "cuda": CUDA_THRESHOLDS}.get(backend, THRESHOLDS)
    return min(derived, declared.get(row, derived)) if policy == "all" else derived
