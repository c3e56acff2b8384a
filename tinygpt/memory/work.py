"""How long a step takes under a plan, relative to keeping everything: by arithmetic.

A block's forward is its matrix products and its passes over memory, and a backward twice that. What is computed again
comes on top. Good enough to put policies in an order; a benchmark says what they cost.
"""

from tinygpt.config import GPTConfig
from tinygpt.memory.activations import activations
from tinygpt.plan import Plan, Recompute, Segment

# What one kept element costs beside the products, in floating-point operations: at this number, behemoth 4x1024 costs
# 1.26 of the plain step under ``all`` and 1.06 under ``selective``, where an H200 took 1.23 and 1.08
# (results/h200-policies.json).
TRAFFIC = 170
PASSES = 3  # a forward and a backward


def relative_time(config: GPTConfig, plan: Plan, *, batch: int, context: int) -> float:
    """Return the time of a step under a plan over that of the plain one; 1 for no recomputation.

    Args:
        config: The model.
        plan: What happens to each of its blocks.
        batch: Sequences.
        context: Tokens in each.
    """
    shape = (batch, context)
    plain = sum(sum(_forward(config, index, shape)) for index in range(config.n_layer))
    again = sum(_again(config, segment, shape) for segment in plan)
    head = 2 * batch * context * config.n_embd * config.vocab_size
    return 1 + again / (PASSES * (plain + head))


def _again(config: GPTConfig, segment: Segment, shape: tuple[int, int]) -> float:
    """Return the work that a segment repeats, in floating-point operations."""
    if segment.recompute is Recompute.NOTHING:
        return 0
    work = 0.0
    for index in segment.blocks:
        block = activations(config, index, batch=shape[0], context=shape[1])
        scores = 2 * block.core // max(1, config.maps) * config.head_width
        if segment.recompute in (Recompute.BLOCK, Recompute.HALVES):
            projection = 2 * shape[0] * shape[1] * config.n_mlp * config.n_embd  # the last product, which nobody needs
            work += sum(_forward(config, index, shape)) - (projection if index == segment.blocks[-1] else 0)
        elif segment.recompute is Recompute.ATTENTION:
            work += scores + TRAFFIC * block.core
        else:
            work += scores + TRAFFIC * (block.core + block.activation)
    return work


def _forward(config: GPTConfig, index: int, shape: tuple[int, int]) -> tuple[float, float]:
    """Return the work of a block's forward: its products, and its passes over memory."""
    batch, context = shape
    block = activations(config, index, batch=batch, context=context)
    experts = config.top_k if config.expert_products != "dense" else config.n_expert
    idle = (config.n_expert - experts) * config.n_mlp * config.n_embd * (3 if config.feed_forward == "swiglu" else 2)
    share = (config.mod_capacity or 1.0) if index in config.depth_routed else 1.0
    projections = 2 * batch * context * share * (config.block_parameters(index) - idle)
    attention = 2 * 2 * block.core // max(1, config.maps) * config.head_width
    return projections + attention, TRAFFIC * block.elements
