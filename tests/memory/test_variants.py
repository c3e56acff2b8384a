import dataclasses

import mlx.core as mx
import pytest

from tinygpt.checkpointing import checkpoint
from tinygpt.config import GPTConfig
from tinygpt.equality.footprint import BASE, Footprint, footprint
from tinygpt.variants import combined

pytestmark = pytest.mark.memory

FOUND = Footprint(False, 10_000, 2_000, 1_000.0, 100.0, 100)

# So narrow that what a router would keep is large: 16 scores for a token of an expert's router, twice a block's input.
NARROW = GPTConfig(
    n_layer=12, n_head=1, n_embd=8, n_mlp=2, context=8, vocab_size=64, n_expert=16, mod_capacity=0.5
)  # fmt: skip
NARROW_BATCH = 256


def with_losses_outside(block):
    """Checkpoint a block, and compute its router's loss beside it, where nothing is recomputed."""
    run = checkpoint(block)
    router = getattr(block, "block", block).feed_forward.router

    def wrapped(x):
        y, losses = run(x)
        return y, losses | {"router_z": mx.logsumexp(router(x), axis=-1).square().mean()}

    return wrapped


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_further_block_costs_its_input_alone(compiled):
    """Experts, routers and a shared cache: neither losses nor cache keep activations of any block."""
    found = footprint(combined("experts", "depths", "yoco", base=BASE), compiled=compiled)

    assert found.problem == ""
    assert found.checkpointed_bytes < 0.5 * found.plain_bytes
    assert found.plain_slope_bytes > 8 * found.boundary_bytes


def test_auxiliary_losses_keep_no_scores():
    """In blocks so narrow that a router's scores are larger than the input, a further one costs its input alone."""
    assert footprint(NARROW, compiled=False, batch=NARROW_BATCH).problem == ""


def test_auxiliary_loss_beside_the_recomputation_is_caught():
    """A loss that is computed outside of the wrapper keeps its scores, and the footprint says so."""
    found = footprint(NARROW, compiled=False, batch=NARROW_BATCH, wrap=with_losses_outside)

    assert found.problem.startswith("a checkpointed block adds")
    assert found.slope_bytes > 2 * found.boundary_bytes


@pytest.mark.parametrize(("slope", "problem"), [(90.0, False), (110.0, False), (89.9, True), (110.1, True)])
def test_footprint_is_held_on_both_sides(slope, problem):
    """A slope may be off by a tenth of a block's input, and no more, in either direction."""
    found = dataclasses.replace(FOUND, slope_bytes=slope)

    assert bool(found.problem) is problem
