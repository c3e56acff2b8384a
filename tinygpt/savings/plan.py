"""What of a row this machine can run: all of it, or one and three blocks of it.

A step of behemoth takes minutes on a CPU and more memory than most machines have. Its blocks are all the
same, so one and three of them, on one sequence, show what a block costs, and arithmetic does the rest. Pure
data, without MLX.
"""

from dataclasses import dataclass

from tinygpt.memory.estimate import activation_bytes, block_parameter_bytes, forward_flops
from tinygpt.presets import Row

# A step's time beyond its matrix products, measured on the CPU backend with preset tiny.
OTHER_WORK = 2.0

# Two apart: where the peak falls changes with every other block, by a third of a block's activations.
PROJECTED_FROM = (1, 3)


@dataclass(frozen=True)
class Machine:
    """What a plan needs to know.

    Attributes:
        flops_per_s: Speed of a large float32 matrix product.
        memory_bytes: What a run may take.
        budget_s: Longest that one training step may take.
    """

    flops_per_s: float
    memory_bytes: int
    budget_s: float


@dataclass(frozen=True)
class Plan:
    """A row as it is run.

    Attributes:
        row: The row that is meant.
        depths: Blocks; one number for the whole row, two for a row that is projected from them.
        batch: Sequences.
        context: Tokens in a sequence.
        reason: Why not the whole row; empty if it is.
    """

    row: Row
    depths: tuple[int, ...]
    batch: int
    context: int
    reason: str = ""

    @property
    def whole(self) -> bool:
        """Whether the row runs as it is meant."""
        return len(self.depths) == 1

    def __str__(self) -> str:
        """Return how the row is run: ``4 blocks, 8x128``."""
        return f"{' and '.join(map(str, self.depths))} blocks, {self.batch}x{self.context}"


def plan(row: Row, machine: Machine) -> Plan:
    """Return the largest part of a row that fits the machine.

    Args:
        row: Preset, batch and context.
        machine: Speed and limits.
    """
    config = row.config
    step_s = OTHER_WORK * 4 * config.n_layer * _block_s(row, row.batch, row.context, machine)
    need_bytes = 16 * config.parameters + (config.n_layer + 2) * activation_bytes(
        config, batch=row.batch, context=row.context
    )
    if step_s <= machine.budget_s and need_bytes <= machine.memory_bytes:
        return Plan(row, (config.n_layer,), row.batch, row.context)
    reason = "time" if step_s > machine.budget_s else "memory"
    return Plan(row, PROJECTED_FROM, 1, _context(row, machine), reason)


def _context(row: Row, machine: Machine) -> int:
    """Return the longest context of which the blocks fit the time, but no shorter than the arithmetic can stand.

    Below the limit the gradients of a block outweigh its activations, and the peak moves to the end of the
    backward pass.
    """
    context = row.context
    while context % 2 == 0:
        shorter = context // 2
        if OTHER_WORK * 4 * sum(PROJECTED_FROM) * _block_s(row, 1, context, machine) <= machine.budget_s:
            break
        if activation_bytes(row.config, batch=1, context=shorter) < 1.3 * block_parameter_bytes(row.config):
            break
        context = shorter
    return context


def _block_s(row: Row, batch: int, context: int, machine: Machine) -> float:
    return forward_flops(row.config, batch=batch, context=context) / machine.flops_per_s
