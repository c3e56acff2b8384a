"""``tinygpt.checkpoint_model``: every block of a model, where it stands, and back."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from tinygpt import checkpoint_model
from tinygpt.checkpointing import blocks_of
from tinygpt.conformance.cases import MLPBlock
from tinygpt.errors import CheckpointError

WIDTH = 8


class Wide(MLPBlock):
    """A block of another class."""


class Model(nn.Module):
    """Two lists of blocks, a list of layers that are none, and a hole."""

    def __init__(self):
        super().__init__()
        self.first = [MLPBlock(WIDTH, 0.3), None, Wide(WIDTH, 0.3)]
        self.inner = nn.Module()
        self.inner.blocks = [[MLPBlock(WIDTH)], [Wide(WIDTH)]]
        self.heads = [nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]

    def __call__(self, x):
        for block in [*self.first, *(each for row in self.inner.blocks for each in row), *self.heads]:
            x = x if block is None else block(x)
        return x


def step(model, x):
    """Return loss and gradients."""
    mx.random.seed(1)
    loss, gradients = nn.value_and_grad(model, lambda x: model(x).square().sum())(x)
    mx.eval(loss, gradients)
    return loss.item(), dict(tree_flatten(gradients))


def test_every_block_is_found():
    """In every outermost list, whatever its class; a list of layers that hold no modules has none."""
    assert list(blocks_of(Model())) == ["first.0", "first.2", "inner.blocks.0.0", "inner.blocks.1.0"]


def test_blocks_are_checkpointed_in_place_and_given_back():
    """Gradients and names are plain's; other instances and the classes know nothing; afterwards all is as before."""
    model, other, x = Model(), Model(), mx.random.normal((3, WIDTH))
    mx.eval(model.parameters(), x)
    expected_loss, expected = step(model, x)
    runs = []
    methods = dict(vars(MLPBlock))

    with checkpoint_model(model) as found:
        assert repr(found) == "CheckpointedModel(2 MLPBlock, 2 Wide)"
        assert [isinstance(model.first[0], MLPBlock), type(model.first[0]) is MLPBlock] == [True, False]
        assert type(other.first[0]) is MLPBlock
        model.first[0].dropout = Counting(0.3, runs)
        loss, gradients = step(model, x)

    assert loss == expected_loss
    assert {name: mx.array_equal(gradients[name], each).item() for name, each in expected.items()} == dict.fromkeys(
        expected, True
    )
    assert len(runs) == 2
    assert [type(block) for block in (model.first[0], model.first[2])] == [MLPBlock, Wide]
    assert dict(vars(MLPBlock)) == methods


class Counting(nn.Dropout):
    """Dropout that counts its runs in a list of numbers."""

    def __init__(self, share, runs):
        super().__init__(share)
        self.runs = lambda: runs

    def __call__(self, x):
        self.runs().append(1)
        return super().__call__(x)


def test_block_is_not_checkpointed_twice():
    """What is checkpointed stays so, and is given back by whom it was checkpointed first."""
    model = Model()

    with checkpoint_model(model):
        kinds = [type(block) for block in blocks_of(model).values()]
        with checkpoint_model(model):
            assert [type(block) for block in blocks_of(model).values()] == kinds
        assert [type(block) for block in blocks_of(model).values()] == kinds


def test_blocks_can_be_named():
    """Some blocks only."""
    model = Model()

    with checkpoint_model(model, {"first.2": model.first[2]}):
        assert [type(block) is kind for block, kind in ((model.first[0], MLPBlock), (model.first[2], Wide))] == [
            True,
            False,
        ]


def test_model_without_blocks_is_refused():
    """A single layer has none."""
    with pytest.raises(CheckpointError, match=r"\[checkpoint_model\] blocks of Linear: got no list of modules"):
        checkpoint_model(nn.Linear(1, 1))
