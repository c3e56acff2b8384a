"""A batch in parts: each with masks of its own, all together the batch, and averaged as they should be."""

import dataclasses

import mlx.core as mx
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_map

from tinygpt.checkpointing import checkpoint, checkpointed_blocks
from tinygpt.config import GPTConfig
from tinygpt.conformance.compare import differences
from tinygpt.conformance.tolerances import OTHER_ORDER
from tinygpt.conformance.trial import Everything
from tinygpt.durability.small import trained as small_run
from tinygpt.errors import ConfigError
from tinygpt.leaves import leaves
from tinygpt.model import GPT
from tinygpt.train import buckets
from tinygpt.train.parts import Parts
from tinygpt.train.ranks import Ranks
from tinygpt.train.step import TrainStep

pytestmark = pytest.mark.distributed


def test_batch_that_cannot_be_divided_is_refused():
    """Both numbers are named."""
    with pytest.raises(ConfigError, match="got 1, expected a multiple of 6: 2 ranks, 3 parts each"):
        Parts(ranks=2, accumulate=3).share(small_run().config)


SHAPE = GPTConfig(n_layer=2, n_head=2, n_embd=8, n_mlp=16, context=6, vocab_size=11, dropout=0.5)


def step(tokens, ranks=None, accumulate=1, key=0, policy="none"):
    """Return the gradients of one step of a small model with dropout."""
    mx.random.seed(0)
    model = GPT(SHAPE)
    blocks = checkpointed_blocks(model.blocks, policy, checkpoint)
    found = TrainStep(model, optim.AdamW(1e-2), blocks=blocks, compiled=False, ranks=ranks, accumulate=accumulate)
    mx.random.seed(key)
    return found.gradients(tokens)


def test_every_part_has_masks_of_its_own():
    """Equal rows in both parts: with equal masks the mean would be each of the two."""
    row = mx.arange(7)[None]
    both = step(mx.concatenate([row, row]), accumulate=2)
    alone = Recorded(0)
    step(mx.concatenate([row, row]), ranks=alone)

    assert both.loss.item() != alone.seen[1][0].item()


def test_gradients_are_averaged_as_the_backward_pass_goes(monkeypatch):
    """Block by block from the last one on, then what is no block's, then the losses; and each of them once."""
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 1)
    rank = Recorded(0)

    found = step(mx.arange(14).reshape(2, 7) % 11, ranks=rank)

    names = [
        [name for name, array in leaves(found.tree).items() if any(array is each for each in bucket)]
        for bucket in rank.seen[:-1]
    ]
    assert [{name.rpartition(".")[0][:8] for name in bucket} for bucket in names] == [
        {"blocks.1"},
        {"blocks.0"},
        {"norm", "token_em", "position"},
    ]
    assert sorted(name for bucket in names for name in bucket) == sorted(leaves(found.tree))
    assert len(rank.seen[-1]) == 1


@pytest.mark.parametrize(("least", "expected"), [(1, [1, 1, 1, 1]), (8, [2, 2]), (9, [3, 1]), (100, [4])])
def test_small_blocks_share_a_bucket(monkeypatch, least, expected):
    """Until it is full; a block is never divided."""
    monkeypatch.setattr(buckets, "BUCKET_BYTES", least)
    gradients = {f"blocks.{index}.{name}": mx.zeros(1, mx.float16) for index in (9, 10, 11) for name in "ab"}

    found = buckets.buckets(gradients | {"norm.weight": mx.zeros(2, mx.float16)})

    assert [len({name.rpartition(".")[0] for name in names}) for names in found] == expected
    assert found[0][0].startswith("blocks.11.")
    assert found[-1][-1] == "norm.weight"


class Recorded(Ranks):
    """A rank of two that keeps what it was to average, and is given back the same."""

    def __init__(self, rank, averaging=lambda tree: tree):
        super().__init__()
        self.rank, self.size, self.seen, self.averaging = rank, 2, [], averaging

    def averaged(self, tree):
        self.seen.append(tree)
        return self.averaging(tree)


def with_other(tokens, average, *, rank=1):
    """Return a step of the first of two ranks, which average with what the other one has found."""
    other = Recorded(rank)
    step(tokens, ranks=other, policy="all")
    seen = iter(other.seen)
    return step(tokens, ranks=Recorded(0, lambda tree: tree_map(average, tree, next(seen))), policy="all")


FAULTS = {
    "no averaging": lambda tokens: with_other(tokens, lambda one, _: one),
    "sum instead of mean": lambda tokens: with_other(tokens, lambda one, other: one + other),
    "one rank dropped": lambda tokens: with_other(tokens, lambda one, _: one / 2),
    "equal rows and masks": lambda tokens: with_other(tokens, lambda one, other: (one + other) / 2, rank=0),
}


def test_mean_of_two_ranks_is_a_step_of_two_parts():
    """What the planted faults below are without a fault."""
    tokens = mx.arange(4 * 7).reshape(4, 7) % 11
    expected = step(tokens, accumulate=2)

    found = with_other(tokens, lambda one, other: (one + other) / 2)

    assert differences([found.tree, found.loss, found.norm], [expected.tree, expected.loss, expected.norm]) == []


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_planted_averaging_is_seen(fault):
    """Each fault of averaging leaves other gradients than one process with two parts."""
    tokens = mx.arange(4 * 7).reshape(4, 7) % 11

    assert differences(fault(tokens).tree, step(tokens, accumulate=2).tree, loose=Everything(), tolerance=OTHER_ORDER)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_parts_are_the_whole_batch(accumulate):
    """Without dropout, the mean over the parts is that over the batch, but for the order of the sum."""
    tokens = mx.arange(4 * 7).reshape(4, 7) % 11
    config = dataclasses.replace(SHAPE, dropout=0.0)
    found = []
    for parts in (1, accumulate):
        mx.random.seed(0)
        found.append(TrainStep(GPT(config), optim.AdamW(1e-2), compiled=False, accumulate=parts).gradients(tokens))

    whole, divided = (leaves([each.tree, each.loss]) for each in found)
    # Of the whole tree: the gradient of a key's bias is nothing but rounding.
    largest = max(mx.abs(each).max().item() for each in whole.values())
    furthest = max(mx.abs(divided[name] - each).max().item() for name, each in whole.items())
    assert whole.keys() == divided.keys()
    assert furthest <= OTHER_ORDER.relative * largest
