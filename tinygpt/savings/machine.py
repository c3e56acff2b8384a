"""How fast this machine is and how much memory it has, for planning rows."""

from time import perf_counter

import mlx.core as mx

from tinygpt.memory.measure import device_memory_bytes
from tinygpt.savings.plan import Machine

# Of the memory that there is: the system and everything else need some too.
USABLE = 0.7


def this_machine(budget_s: float) -> Machine:
    """Return what a plan needs to know; ``budget_s`` is the longest that a training step may take."""
    return Machine(_flops_per_s(), int(USABLE * device_memory_bytes()), budget_s)


def _flops_per_s(size: int = 512, repeats: int = 5) -> float:
    """Return the speed of a float32 matrix product, the best of a few."""
    a = mx.ones((size, size))
    mx.eval(a @ a)
    best = float("inf")
    for _ in range(repeats):
        start = perf_counter()
        mx.eval(a @ a)
        best = min(best, perf_counter() - start)
    return 2 * size**3 / best
