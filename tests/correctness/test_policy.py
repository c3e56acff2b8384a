"""What a policy recomputes, and that it changes no number."""

import mlx.core as mx
import pytest

from tinygpt.checkpointing import checkpoint, checkpointed_blocks
from tinygpt.checkpointing.ordered import ordered
from tinygpt.leaves import leaves
from tinygpt.model import GPT, next_token_loss, training_loss
from tinygpt.train.compiler import can_compile
from tinygpt.variants import VARIANTS, combined

MIXED = ("every:2", "first:2")
COMPILED = ("dropout", "depths", "yoco")  # random numbers, losses beside the stream, and a cache beside it


def gradients(config, policy, *, compiled):
    """Return loss, gradients and the random state afterwards, of one batch."""
    mx.random.seed(0)
    model = GPT(config)
    parameters = model.trainable_parameters()
    blocks = checkpointed_blocks(model.blocks, policy)
    tokens = mx.random.randint(0, config.vocab_size, (2, 13))

    def loss(weights):
        model.update(weights)
        logits, losses = model(tokens[:, :-1], blocks)
        return training_loss(config, next_token_loss(logits, tokens[:, 1:]), losses)

    mx.eval(parameters, tokens)
    compute = mx.value_and_grad(loss)
    state = [mx.random.state]
    value, found = (mx.compile(compute, inputs=state, outputs=state) if compiled else compute)(parameters)
    mx.eval(value, found, mx.random.state)
    return {"loss": value, "next draw": mx.random.uniform(), **leaves(found)}


@pytest.mark.parametrize(
    ("variant", "compiled"),
    [
        *(pytest.param(variant, False, id=f"{variant}-eager") for variant in VARIANTS),
        *(pytest.param(variant, True, id=f"{variant}-compiled") for variant in COMPILED),
    ],
)
def test_mixed_policies_change_no_number(variant, compiled):
    """Recomputed and ordered blocks side by side give the plain gradients to the bit, in every variant."""
    if compiled and not can_compile():
        pytest.skip("no C++ compiler")
    config = combined(variant)
    plain = gradients(config, "none", compiled=compiled)

    for policy in MIXED:
        found = gradients(config, policy, compiled=compiled)
        assert found.keys() == plain.keys()
        assert [name for name in plain if not mx.array_equal(found[name], plain[name])] == [], policy


def test_plain_blocks_are_ordered_beside_recomputed_ones_only():
    """Where nothing is recomputed, or another wrapper recomputes, a plain block is the block itself."""
    blocks = GPT(combined("dense")).blocks

    assert checkpointed_blocks(blocks, "none") == list(blocks)
    assert checkpointed_blocks(blocks, "first:1", wrap=lambda _: "wrapped")[1:] == list(blocks)[1:]
    mixed = checkpointed_blocks(blocks, "first:1")
    assert type(mixed[0]) is type(checkpoint(blocks[0]))
    assert all(run is not block for run, block in zip(mixed[1:], list(blocks)[1:], strict=True))


def test_ordered_block_is_left_as_it_was():
    """Its parameters are its own afterwards, also after an exception, and also inside a gradient."""
    block = GPT(combined("dense")).blocks[0]
    before = {name: id(array) for name, array in leaves(block.parameters()).items()}

    with pytest.raises(ValueError, match="layer_norm"):
        ordered(block)(mx.ones((1, 3, 5)))
    mx.eval(mx.grad(lambda x: ordered(block)(x)[0].sum())(mx.ones((1, 3, 16))))

    assert {name: id(array) for name, array in leaves(block.parameters()).items()} == before
