import dataclasses

import pytest

from tinygpt.equality.footprint import Footprint, footprint

pytestmark = pytest.mark.memory

FOUND = Footprint("dense", False, 10_000, 2_000, 1_000.0, 100.0, 100)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_further_block_costs_its_input_alone(compiled):
    """Experts, routers, two maps and a shared cache: their losses and their cache keep no activations of any block."""
    found = footprint("experts", "depths", "yoco", "differential", compiled=compiled)

    assert found.problem == ""
    assert found.checkpointed_bytes < 0.5 * found.plain_bytes
    assert found.plain_slope_bytes > 10 * found.boundary_bytes


@pytest.mark.parametrize(("slope", "problem"), [(90.0, False), (110.0, False), (89.9, True), (110.1, True)])
def test_footprint_is_held_on_both_sides(slope, problem):
    """A slope may be off by a tenth of a block's input, and no more, in either direction."""
    found = dataclasses.replace(FOUND, slope_bytes=slope)

    assert bool(found.problem) is problem
    if problem:
        assert found.problem.startswith("a checkpointed block adds")
