"""How much memory and work a training step takes, by arithmetic; no MLX needed.

The peak is the largest of a few moments: the backward of each block, when weights, moments, the gradients of the blocks
after it, and what the blocks before it keep are there together; and the update.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from tinygpt.config import GPTConfig
from tinygpt.errors import ConfigError
from tinygpt.memory.activations import Activations, activations
from tinygpt.plan import Plan, Recompute, Segment
from tinygpt.units import MIB

FLOAT32_BYTES = 4
MOMENTS = 2  # of AdamW
SLACK_BYTES = 32 * MIB  # a model so small that memory is no matter never waits
IN_FLIGHT_ELEMENTS = 8 * MIB  # of small operations that are queued; in bfloat16 half as many bytes
# Gradients that are added up or averaged together: blocks smaller than this share a bucket. At 10 Gbit/s it travels for
# 3 ms, many times what a message takes to start.
BUCKET_BYTES = 4 * MIB
LOGITS = 3  # float32 copies: the logits, the loss's own, their gradient
DENSE = {
    "attention": "softmax",
    "feed_forward": "gelu",
    "n_expert": 1,
    "n_kv_head": None,
    "mod_capacity": None,
    "yoco": False,
}


@dataclass(frozen=True)
class Estimate:
    """What a training step holds at its peak, in bytes.

    Attributes:
        weights: Parameters.
        moments: The optimizer's two for each.
        gradients: Those that are there by then.
        kept: What the forward has kept for blocks whose backward is still to come.
        block: The block whose backward runs: what it kept or recomputes.
        transient: The gradients of values inside that block.
        head: Logits and their gradient, as long as they are there.
        in_flight: What a GPU has not freed yet, because the work that uses it is not done.
        floor_bytes: The largest of the moments without what is transient or in flight: no order of evaluation needs
            less.
    """

    weights: int
    moments: int
    gradients: int
    kept: int
    block: int
    transient: int
    head: int
    in_flight: int = 0
    floor_bytes: int = 0

    @property
    def parts(self) -> dict[str, int]:
        """What the peak is made of, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "floor_bytes"}

    @property
    def peak_bytes(self) -> int:
        """All of it."""
        return sum(self.parts.values())

    @property
    def least_bytes(self) -> int:
        """What is there at that moment without what is transient or in flight."""
        return self.peak_bytes - self.transient - self.in_flight

    @property
    def limit_bytes(self) -> int:
        """From where on evaluation should wait for what is queued: less would make every step wait."""
        return self.peak_bytes - self.in_flight + SLACK_BYTES


def estimate_peak(
    config: GPTConfig,
    plan: Plan,
    *,
    batch: int,
    context: int,
    itemsize: int = FLOAT32_BYTES,
    backend: str = "cpu",
    accumulates: bool = False,
    averages: bool = False,
) -> Estimate:
    """Predict the peak of a training step without running it.

    Args:
        config: The model.
        plan: What happens to each of its blocks.
        batch: Sequences.
        context: Tokens in each.
        itemsize: Bytes of an element: 4 for float32, 2 for bfloat16.
        backend: ``cpu``, ``cuda`` or ``metal``.
        accumulates: Whether it is one of several parts of a batch: the gradients of the others are there, too, and a
            bucket of its own beside them.
        averages: Whether gradients are averaged over several processes: while a bucket is, it is there twice.
    """
    weights = itemsize * config.parameters
    moments = MOMENTS * weights
    blocks = [
        activations(config, index, batch=batch, context=context, fused_norms=backend != "cpu", itemsize=itemsize)
        for index in range(config.n_layer)
    ]
    kept = [itemsize * _kept(blocks[segment.first], segment) for segment in plan]
    before = sum(kept)
    head = FLOAT32_BYTES * LOGITS * batch * context * config.vocab_size
    done = weights if accumulates else 0
    beside = _bucket_bytes(config, itemsize) if accumulates or averages else 0
    found = [
        Estimate(weights, moments, done, before, 0, 0, head),
        Estimate(weights, moments, weights + beside, 0, 0, 0, 0),
    ]
    for segment, keeps in zip(reversed(plan), reversed(kept), strict=True):
        before -= keeps
        come = 0  # to be added to what is there, when the whole segment is done
        for index in reversed(segment.blocks):  # of several blocks, all are there when the last one's turn comes
            own = itemsize * config.block_parameters(index)
            come, done = (come + own, done) if accumulates else (0, done + own)
            block = blocks[index]
            one_map, hidden = block.core // config.maps, batch * context * config.n_mlp
            inside, transient = (_on_cpu if backend == "cpu" else _on_gpu)(block, segment, one_map, hidden)
            inside += sum(blocks[other].elements for other in segment.blocks if other < index)
            there = done + max(beside, come)
            found.append(Estimate(weights, moments, there, before, itemsize * inside, itemsize * transient, 0))
    highest = max(found, key=lambda moment: moment.peak_bytes)
    floor = max(moment.least_bytes for moment in found)
    in_flight = 0 if backend == "cpu" else itemsize * _in_flight(plan, blocks)
    return replace(highest, floor_bytes=floor, in_flight=in_flight)


def _bucket_bytes(config: GPTConfig, itemsize: int) -> int:
    """Return what a bucket of gradients takes at most: it ends with the block that fills it."""
    largest = max(config.block_parameters(index) for index in range(config.n_layer))
    return min(itemsize * config.parameters, BUCKET_BYTES + itemsize * largest)


def _on_cpu(block: Activations, segment: Segment, one_map: int, hidden: int) -> tuple[int, int]:
    """Count what a block holds when most is there, and the gradients beside it: on the CPU, three attention maps.

    Source:
        ``tests/memory/test_policies.py``; 2.5 to 3.4 maps at three shapes, MLX 0.32.4.
    """
    if segment.recompute is Recompute.HALVES:
        attention = (block.boundary + block.attention + block.core, 3 * one_map)
        return max(attention, (2 * block.boundary + block.feed_forward + block.activation, 2 * hidden), key=sum)
    away = block.activation if segment.recompute is Recompute.SELECTIVE else 0  # not computed again yet
    return block.elements, max(2 * hidden, 3 * one_map - away)


def _on_gpu(block: Activations, segment: Segment, one_map: int, hidden: int) -> tuple[int, int]:
    """Count the same on a GPU, where the feed-forward is let go of before the attention's turn.

    Source:
        results/h200-policies.json, results/h200-policy-rows.json: every row within 4 %.
    """
    del segment
    return block.elements, max(2 * hidden, 2 * one_map - 4 * hidden)


def _in_flight(plan: Plan, blocks: Sequence[Activations]) -> int:
    """Count what a GPU has allocated and not freed yet: small operations, and an attention map or half of one.

    Source:
        results/h200-in-flight.json, the rows that wait at the estimate: 0.92 to 1.13 maps where blocks are recomputed,
        0.2 to 0.9 where not; results/h200-grid.json: in bfloat16 half as much.
    """
    largest = max(block.core for block in blocks)
    ways = {segment.recompute for segment in plan} - {Recompute.NOTHING}
    return IN_FLIGHT_ELEMENTS + (largest if ways == {Recompute.BLOCK} else largest // 2)


def _kept(block: Activations, segment: Segment) -> int:
    """Count the elements that a segment keeps from its forward to its backward; several blocks keep one input."""
    if segment.recompute is Recompute.BLOCK:
        return block.boundary
    return {
        Recompute.NOTHING: block.elements,
        Recompute.ATTENTION: block.elements - block.core,
        Recompute.SELECTIVE: block.elements - block.core - block.activation,
        Recompute.HALVES: 2 * block.boundary,
    }[segment.recompute]


def boundary_bytes(config: GPTConfig, *, batch: int, context: int, itemsize: int = FLOAT32_BYTES) -> int:
    """Return the size of a block's input, (B, T, D): all that a checkpointed block keeps."""
    return itemsize * batch * context * config.n_embd


def activation_bytes(config: GPTConfig, *, batch: int, context: int, itemsize: int = FLOAT32_BYTES) -> int:
    """Return what the first block keeps between its forward and its backward if it is plain."""
    return itemsize * activations(config, batch=batch, context=context).elements


def block_parameter_bytes(config: GPTConfig, *, itemsize: int = FLOAT32_BYTES) -> int:
    """Return the size of one block's parameters, which is that of their gradients too."""
    return itemsize * config.block_parameters()


def forward_flops(config: GPTConfig, *, batch: int, context: int) -> int:
    """Return the floating-point operations of a block's matrix products in a forward; a backward has twice as many.

    Raises:
        ConfigError: The blocks are not dense, with full attention and a GELU.
    """
    for field, expected in DENSE.items():
        if getattr(config, field) != expected:
            raise ConfigError(f"[estimate] {field}: got {getattr(config, field)!r}, expected {expected!r}")
    d, f = config.n_embd, config.n_mlp
    return 2 * batch * context * (4 * d * d + 2 * d * f + 2 * context * d)
