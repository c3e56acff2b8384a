"""What blocks hand to each other by the side does not keep their activations."""

import pytest

from tinygpt.checkpointing import checkpoint
from tinygpt.conformance.cases import softmax_stack
from tinygpt.memory.measure import measure
from tinygpt.memory.schedules import SCHEDULES, scheduled

pytestmark = pytest.mark.memory

DEPTH = 12
WHOLE = next(each for each in SCHEDULES if each.name == "whole tree")


def test_what_is_hooked_does_not_keep_the_block():
    """A mean over each block's output, left in a list, costs a checkpointed model at most a block's input a block."""

    def peak(depth, wrap):
        model, x = softmax_stack(depth)

        def loss(x):
            hooked = []

            def run(block):
                def hooking(x):
                    x = block(x)
                    hooked.append((x * x).mean())
                    return x

                return hooking

            for block in model.blocks:
                x = wrap(block, run(block))(x)
            return x.mean() + sum(hooked)

        step = scheduled(model, loss, WHOLE)
        return measure(lambda: step(x), schedule=WHOLE.name).peak_bytes, x.nbytes

    def slope(wrap):
        (low, size), (high, _) = (peak(depth, wrap) for depth in (DEPTH, 2 * DEPTH))
        return (high - low) / DEPTH / size

    assert slope(checkpoint) <= 1.1
    assert slope(lambda _, fn: fn) > 2 * slope(checkpoint)  # or there was nothing to save
