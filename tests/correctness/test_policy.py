"""What a policy recomputes, how often, and that it changes no number."""

import collections
import io
import re

import mlx.core as mx
import pytest

from tinygpt.checkpointing import EXAMPLES, POLICIES, checkpoint, checkpointed_blocks, plan
from tinygpt.checkpointing.ordered import ordered
from tinygpt.checkpointing.wrappers import WRAPPERS
from tinygpt.errors import ConfigError
from tinygpt.leaves import leaves
from tinygpt.model import GPT, next_token_loss, training_loss
from tinygpt.plan import Recompute
from tinygpt.train.compiler import can_compile
from tinygpt.variants import VARIANTS, combined

COMPILED_POLICIES = ("every:2", "segments:2", "selective", "halves")  # each compiles for seconds on the CPU
COMPILED = ("dropout", "depths", "yoco")  # random numbers, losses beside the stream, and a cache beside it


def prepared(config):
    """Return a model and a function from its parameters and what runs its blocks to the training loss."""
    mx.random.seed(0)
    model = GPT(config)
    tokens = mx.random.randint(0, config.vocab_size, (2, 13))
    mx.eval(model.parameters(), tokens)

    def loss(weights, blocks):
        model.update(weights)
        logits, losses = model(tokens[:, :-1], blocks)
        return training_loss(config, next_token_loss(logits, tokens[:, 1:]), losses), losses

    return model, loss


def gradients(config, policy, *, compiled, wrap=checkpoint):
    """Return loss, gradients and the next random number, of one batch."""
    model, loss = prepared(config)
    parameters = model.trainable_parameters()
    blocks = checkpointed_blocks(model.blocks, policy, wrap, cuts=config.cuts)
    compute = mx.value_and_grad(lambda weights: loss(weights, blocks))
    state = [mx.random.state]
    (value, losses), found = (mx.compile(compute, inputs=state, outputs=state) if compiled else compute)(parameters)
    mx.eval(value, losses, found, mx.random.state)
    return {"loss": value, "next draw": mx.random.uniform(), **losses, **leaves(found)}


@pytest.mark.parametrize(
    ("variant", "compiled"),
    [
        *(pytest.param(variant, False, id=f"{variant}-eager") for variant in VARIANTS),
        *(pytest.param(variant, True, id=f"{variant}-compiled") for variant in COMPILED),
    ],
)
def test_policies_change_no_number(variant, compiled):
    """Under every policy, losses, gradients and random numbers are plain MLX's to the bit, in every variant."""
    if compiled and not can_compile():
        pytest.skip("no C++ compiler")
    config = combined(variant)
    plain = gradients(config, "none", compiled=compiled)

    for policy in COMPILED_POLICIES if compiled else EXAMPLES:
        found = gradients(config, policy, compiled=compiled)
        assert found.keys() == plain.keys()
        assert [name for name in plain if not mx.array_equal(found[name], plain[name])] == [], policy


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("policy", ["segments:2", "selective", "halves"])
def test_policies_work_with_every_wrapper(wrapper, policy):
    """A rival recomputes the same parts, so that it can be compared."""
    config = combined("dense")

    found = gradients(config, policy, compiled=False, wrap=WRAPPERS[wrapper])

    plain = gradients(config, "none", compiled=False)
    assert [name for name in plain if not mx.array_equal(found[name], plain[name])] == []


def shape(policy, depth, **cuts):
    """Return a plan in short: what is recomputed, and of how many blocks."""
    return [(segment.recompute.value, segment.length) for segment in plan(policy, depth, **cuts)]


PLANS = {
    "none": [("nothing", 1)] * 4,
    "all": [("block", 1)] * 4,
    "every:1": [("block", 1)] * 4,
    "every:2": [("block", 1), ("nothing", 1)] * 2,
    "every:3": [("block", 1), ("nothing", 1), ("nothing", 1), ("block", 1)],
    "every:9": [("block", 1)] + [("nothing", 1)] * 3,
    "first:3": [("block", 1)] * 3 + [("nothing", 1)],
    "first:9": [("block", 1)] * 4,
    "segments:1": [("block", 4)],
    "segments:3": [("block", 1), ("block", 1), ("block", 2)],
    "segments:9": [("block", 1)] * 4,
    "sqrt": [("block", 2)] * 2,
    "attention": [("attention", 1)] * 4,
    "selective": [("selective", 1)] * 4,
    "halves": [("halves", 1)] * 4,
    "first:1+selective": [("block", 1)] + [("selective", 1)] * 3,
    "every:2+halves": [("block", 1), ("halves", 1)] * 2,
}


@pytest.mark.parametrize(("policy", "expected"), PLANS.items(), ids=PLANS)
def test_policy_plans_what_its_name_says(policy, expected):
    """Which blocks, how many as one, and how much of them, at a depth of four."""
    assert shape(policy, 4) == expected


def test_plans_cover_every_block_once():
    """At every depth, every policy says what happens to every block, in order."""
    for policy in (*PLANS, *EXAMPLES):
        for depth in range(1, 30):
            indices = [index for segment in plan(policy, depth, cuts=(depth // 2,)) for index in segment.blocks]
            assert indices == list(range(depth)), (policy, depth)


def test_segments_end_where_they_must():
    """A cut is never inside a segment."""
    assert shape("segments:1", 5, cuts=(3,)) == [("block", 3), ("block", 2)]


BAD = ("some", "", "every", "every:0", "every:-1", "every:\u0661", "first:1.0", "all:2", "all ", "all+selective")


@pytest.mark.parametrize("policy", [*BAD, "none+attention", "first:2+all", "segments:2+halves", "selective+first:2"])
def test_policy_refuses_an_unknown_name(policy):
    """The error lists the policies that there are."""
    with pytest.raises(ConfigError, match=r"\[policy\] name: got .*, expected one of none, all, every:K, first:N"):
        plan(policy, 3)


def test_every_policy_that_is_listed_is_tested():
    """A new name without a case would pass unseen."""
    tested = {re.split(r"[:+]", name)[0] for name in (*EXAMPLES, "none")}

    assert tested == {re.split(r"[:+]", name)[0] for name in POLICIES}


# Matrix products of a dense block: query, key, value, scores, gathered, output, widen, narrow; and twice that backward.
PLAIN_PRODUCTS = 8 + 16
# What no backward asks for is not computed again: narrow, and within the half the output, and gathered in the core.
AGAIN = {"all": 7, "halves": 5 + 1, "attention": 1, "selective": 1}
HEAD_PRODUCTS = 3


@pytest.mark.parametrize("policy", EXAMPLES)
def test_policies_cost_exactly_these_matrix_products(policy):
    """The graph of loss and gradients has the plain products, and those that the policy computes again."""
    config = combined("dense")
    per_block = {
        Recompute.NOTHING: 0,
        Recompute.BLOCK: AGAIN["all"],
        Recompute.HALVES: AGAIN["halves"],
        Recompute.ATTENTION: AGAIN["attention"],
        Recompute.SELECTIVE: AGAIN["selective"],
    }
    again = sum(
        # Inside a segment a block's result is the next one's input, so that narrow is computed too.
        segment.length * per_block[segment.recompute] + segment.length - 1
        for segment in plan(policy, config.n_layer)
    )

    expected = config.n_layer * PLAIN_PRODUCTS + HEAD_PRODUCTS + again

    assert products(config, "none") == config.n_layer * PLAIN_PRODUCTS + HEAD_PRODUCTS
    assert products(config, policy) == expected


def products(config, policy):
    """Count the matrix products of a step's gradients in MLX's own graph, which has what is computed and no more."""
    model, loss = prepared(config)
    blocks = checkpointed_blocks(model.blocks, policy, cuts=config.cuts)
    (value, _), found = mx.value_and_grad(lambda weights: loss(weights, blocks))(model.trainable_parameters())
    graph = io.StringIO()
    mx.export_to_dot(graph, value, *leaves(found).values())
    names = re.findall(r'label ?="(\w+)"', graph.getvalue())
    return sum(count for name, count in collections.Counter(names).items() if name in ("Matmul", "AddMM"))


@pytest.mark.parametrize("policy", EXAMPLES)
def test_policies_call_blocks_exactly_as_often_as_they_say(policy):
    """A block that is recomputed as a whole runs twice, any other once; attention once more if its core does not."""
    config = combined("dense")
    model, loss = prepared(config)
    calls = collections.Counter()

    class Counting(type(model.blocks[0])):
        def __call__(self, *args):
            calls[self.place] += 1
            return super().__call__(*args)

    for place, block in enumerate(model.blocks):
        block.__class__ = Counting
        vars(block)["place"] = place
    blocks = checkpointed_blocks(model.blocks, policy)
    mx.eval(mx.grad(lambda weights: loss(weights, blocks)[0])(model.trainable_parameters()))

    expected = {
        index: 2 if segment.recompute is Recompute.BLOCK else 1
        for segment in plan(policy, config.n_layer)
        for index in segment.blocks
    }
    assert calls == expected


def test_plain_blocks_are_ordered_beside_recomputed_ones_only():
    """Where nothing is recomputed, or another wrapper recomputes, a plain block is the block itself."""
    blocks = GPT(combined("dense")).blocks

    assert checkpointed_blocks(blocks, "none") == list(blocks)
    assert checkpointed_blocks(blocks, "first:1", wrap=lambda _: "wrapped")[1:] == list(blocks)[1:]
    mixed = checkpointed_blocks(blocks, "first:1")
    assert type(mixed[0]) is type(checkpoint(blocks[0]))
    assert all(run is not block for run, block in zip(mixed[1:], list(blocks)[1:], strict=True))


@pytest.mark.parametrize("policy", [*EXAMPLES, "none"])
def test_blocks_are_left_as_they_were(policy):
    """Parameters, methods and modules are what they were, after a gradient and after an exception inside one."""
    model, _ = prepared(combined("dropout"))
    before = described(model)
    blocks = checkpointed_blocks(model.blocks, policy)

    mx.eval(mx.grad(lambda x: blocks[0](x)[0].sum())(mx.ones((1, 3, 16))))
    with pytest.raises(ValueError, match="layer_norm"):
        mx.grad(lambda x: blocks[0](x)[0].sum())(mx.ones((1, 3, 5)))

    assert described(model) == before


def described(module):
    """Return the ids of everything that a module tree holds."""
    found = [(name, id(array)) for name, array in leaves(module.parameters()).items()]
    return found + [(name, type(child), sorted(vars(child))) for name, child in module.named_modules()]


def test_ordered_block_runs_another_function():
    """The parameters are the module's, the function any."""
    block, x = GPT(combined("dense")).blocks[0], mx.ones((1, 3, 16))

    twice = ordered(block, lambda x: block(x)[0] * 2)

    assert mx.array_equal(twice(x), block(x)[0] * 2)
