"""``tinygpt.checkpoint`` and what blocks hand to each other by the side: in objects, dicts, lists, variables."""

import collections
import gc
import logging
import threading
from types import SimpleNamespace
from typing import ClassVar

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from tinygpt.checkpointing import checkpoint
from tinygpt.checkpointing.crossings import Crossing, arrays_in, is_object, is_written, note_written
from tinygpt.checkpointing.places import Attribute, Item, Variable
from tinygpt.checkpointing.recording import Recording
from tinygpt.conformance.cases import Case, Stack, in_turn
from tinygpt.conformance.compare import differences
from tinygpt.conformance.subjects import PLAIN, Subject
from tinygpt.conformance.trial import observe, value_and_grad
from tinygpt.errors import CheckpointError

OURS = Subject("tinygpt", checkpoint)
WIDTH = 8


class Block(nn.Module):
    """Two layers; what is between them may go elsewhere."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def __call__(self, x, hand_over=lambda _: None):
        keys = self.first(x)
        found = hand_over(keys)
        y = self.second(mx.softmax(keys, axis=-1))
        return y if found is None else y * found


class Private(Block):
    """Keeps its keys in a private attribute, where the next block finds them."""

    def __init__(self, before=None):
        super().__init__()
        self.before = [before] * (before is not None)

    def __call__(self, x):
        def hand_over(keys):
            self._keys = keys
            return self.before[0]._keys if self.before else None

        return super().__call__(x, hand_over)


class OfTheClass(Block):
    """Keeps its keys on the class."""

    keys: ClassVar[mx.array | None] = None

    def __call__(self, x):
        def hand_over(keys):
            found, type(self).keys = type(self).keys, keys
            return found

        return super().__call__(x, hand_over)


GLOBAL_KEYS = None


def through_global(block, x):
    """Keep the keys in a global variable."""

    def hand_over(keys):
        global GLOBAL_KEYS
        found, GLOBAL_KEYS = GLOBAL_KEYS, keys
        return found

    return block(x, hand_over)


def exchange(put, get):
    """Return what hands over by a way to put and a way to get."""

    def hand_over(keys):
        found = get()
        put(keys)
        return found

    return hand_over


def run_private(model, wrap, x):
    """Run blocks that read each other's private attribute."""
    for block in model.blocks:
        x = wrap(block)(x)
    return x.square().sum()


def run_class(model, wrap, x):
    """Run blocks that share an attribute of their class."""
    OfTheClass.keys = None
    x = run_private(model, wrap, x)
    OfTheClass.keys = None
    return x


def run_global(model, wrap, x):
    """Run blocks that share a global variable."""
    global GLOBAL_KEYS
    GLOBAL_KEYS = None
    for block in model.blocks:
        x = wrap(block, lambda x, block=block: through_global(block, x))(x)
    GLOBAL_KEYS = None
    return x.square().sum()


def run_nested(model, wrap, x):
    """Hand over in a new list in a new dict in a tuple in an object."""
    store = SimpleNamespace(state=None)
    hand_over = exchange(
        lambda keys: setattr(store, "state", ({"all": [keys]}, 1)),
        lambda: None if store.state is None else store.state[0]["all"][0],
    )
    for block in model.blocks:
        x = wrap(block, lambda x, block=block: block(x, hand_over))(x)
    return x.square().sum()


def run_deque(model, wrap, x):
    """Hand over in a deque of bounded length."""
    store = collections.deque(maxlen=2)
    hand_over = exchange(store.append, lambda: store[-1] if store else None)
    for block in model.blocks:
        x = wrap(block, lambda x, block=block: block(x, hand_over))(x)
    return x.square().sum()


def run_twice_in_the_arguments(model, wrap, x):
    """Pass one dict under two names: what is put into one is found in the other."""

    def run(block):
        return lambda x, one, other: block(x, exchange(lambda k: one.update(keys=k), lambda: other.get("keys")))

    store = {}
    for block in model.blocks:
        x = wrap(block, run(block))(x, store, other=store)
    return x.square().sum()


def stack(kind):
    """Return three blocks; private ones know the one before."""
    blocks = []
    for _ in range(3):
        blocks.append(kind(blocks[-1] if blocks else None) if kind is Private else kind())
    model = nn.Module()
    model.blocks = blocks
    return model


CASES = {
    "private attribute": (Private, run_private),
    "attribute of a class": (OfTheClass, run_class),
    "global variable": (Block, run_global),
    "nested containers": (Block, run_nested),
    "deque": (Block, run_deque),
    "one dict twice": (Block, run_twice_in_the_arguments),
}


def step(kind, run, wrap, *, compiled):
    """Return the loss and gradients of one step."""
    mx.random.seed(0)
    model, x = stack(kind), mx.random.normal((2, 5, WIDTH))
    mx.eval(model.parameters(), x)
    loss, gradients = value_and_grad(model, lambda x: run(model, wrap, x), compiled=compiled)(x)
    mx.eval(loss, gradients)
    return loss, dict(tree_flatten(gradients))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("kind", "run"), CASES.values(), ids=CASES)
def test_gradient_crosses(kind, run, compiled):
    """Losses and gradients are plain's, to the bit, and something crosses at all."""
    plain, expected = step(kind, run, lambda module, fn=None: fn or module, compiled=compiled)
    loss, gradients = step(kind, run, checkpoint, compiled=compiled)
    _, without = step(kind, run, nn.utils.checkpoint, compiled=False)

    assert loss.item() == plain.item()
    assert {name: mx.array_equal(gradients[name], each).item() for name, each in expected.items()} == dict.fromkeys(
        expected, True
    )
    assert not all(mx.allclose(without[name], each).item() for name, each in expected.items())


def test_counter_beside_an_array_is_changed_once():
    """An object that holds an array goes back to what it was for the recomputation, its numbers too."""
    cache = SimpleNamespace(keys=None, offset=0)
    block, x = Block(), mx.ones((2, WIDTH))

    def run(x):
        def hand_over(keys):
            cache.keys, cache.offset = keys, cache.offset + 1
            return mx.array(float(cache.offset))

        return block(x, hand_over)

    gradient = mx.grad(lambda x: checkpoint(block, run)(x).sum())(x)
    mx.eval(gradient)

    assert cache.offset == 1
    assert mx.isfinite(cache.keys).all().item()


def test_nothing_left_where_the_forward_left_something_is_an_error():
    """The error names the place."""
    store, runs = {}, []

    def run(x):
        runs.append(1)
        if len(runs) == 1:
            store["keys"] = x * 2
        return x * 3

    with pytest.raises(CheckpointError, match=r"\[checkpoint\] dict\['keys'\] after the recomputation: got NoneType"):
        mx.eval(mx.grad(lambda x: checkpoint(run)(x).sum() + store["keys"].sum())(mx.ones((2,))))


def test_arrays_are_found_wherever_they_are():
    """In tuples, dicts, lists, objects and slots; not in modules, whose arrays are parameters."""

    class Slotted:
        __slots__ = ("held",)

    slotted, one = Slotted(), mx.array(1)
    slotted.held = one

    found = dict(arrays_in({"a": (one, [one]), "b": SimpleNamespace(c=one), "d": slotted, "e": nn.Linear(1, 1)}))

    assert set(found) == {("a", 0), ("a", 1, 0), ("b", "c"), ("d", "held")}


def test_circle_of_objects_ends():
    """An object that holds itself is looked into once."""
    circle = SimpleNamespace(array=mx.array(1.0))
    circle.itself = [circle]

    assert [steps for steps, _ in arrays_in(circle)] == [("array",)]
    assert checkpoint(lambda x: x * circle.array)(mx.ones((2,))).tolist() == [1, 1]


def test_crossing_is_replaced_in_place():
    """Only tuples are made anew; slots and frozen classes take it, too."""

    class Slotted:
        __slots__ = ("held",)

    slotted = Slotted()
    slotted.held = (mx.array(1), [mx.array(2)])
    storage = {"a": slotted}
    crossing = Crossing(Item(storage, "a"), ("held", 1, 0))

    crossing.put(mx.array(3))

    assert storage["a"] is slotted
    assert crossing.get().item() == 3
    assert str(crossing) == "dict['a']['held'][1][0]"


def test_places_have_names():
    """As an error tells them."""
    variable = 1
    cell = (lambda: variable).__closure__[0]

    assert str(Variable(cell, "variable")) == "variable 'variable'"
    assert str(Attribute(SimpleNamespace, "keys")) == "SimpleNamespace.keys"
    assert str(Item({}, "keys")) == "dict['keys']"
    assert str(Item({}, "keys", owner=SimpleNamespace())) == "SimpleNamespace.keys"


def test_objects_of_pythons_library_are_not_looked_into():
    """A logger or a thread holds no array of a model's; a namespace may."""
    foreign = [logging.getLogger(), threading.current_thread(), gc, 1, "a", nn.Linear(1, 1), mx.array(1)]

    assert is_object(SimpleNamespace())
    assert [each for each in foreign if is_object(each)] == []


def test_written_arrays_are_forgotten_with_the_array():
    """Nothing is kept alive, and another array with the same id is not taken for it."""
    array = mx.array(1.0)
    note_written(array)
    assert is_written(array)

    identity = id(array)
    del array
    gc.collect()

    others = [mx.array(float(number)) for number in range(1000)]
    assert not any(is_written(each) for each in others), identity


class Hiding(nn.Module):
    """A block that keeps something aside, under a private name."""

    def __init__(self, kept, find):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self._kept = kept
        self.find = find

    def __call__(self, x):
        return x + self.find(self._kept)(self.linear(x))


KEPT = {
    "itself": (lambda m: m, lambda kept: kept),
    "list": (lambda m: [m], lambda kept: kept[0]),
    "dict": (lambda m: {"a": m}, lambda kept: kept["a"]),
    "tuple": (lambda m: (m,), lambda kept: kept[0]),
    "object": (lambda m: [SimpleNamespace(held=m)], lambda kept: kept[0].held),
    "deep": (lambda m: [{"a": (m,)}], lambda kept: kept[0]["a"][0]),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("keep", "find"), KEPT.values(), ids=KEPT)
def test_module_under_a_private_name_has_its_gradient(keep, find, compiled):
    """A module that is trained elsewhere and hidden from the parameters of the block is one of its inputs."""

    def build():
        shared = nn.Linear(WIDTH, WIDTH)
        return Stack([Hiding(keep(shared), find) for _ in range(2)], shared=shared), (mx.random.normal((2, 3, WIDTH)),)

    case = Case("hidden", build, lambda *a: in_turn(*a)[0])

    assert differences(*(observe(case, each, compiled=compiled) for each in (OURS, PLAIN))) == []


def test_array_that_is_kept_aside_is_a_constant():
    """As in plain MLX: a table under a private name, or in a list under one, is no parameter."""
    block = Hiding([mx.ones((WIDTH,)), [mx.ones((WIDTH,))]], lambda kept: lambda x: x * kept[0] * kept[1][0])
    block._kept.append(block._kept)  # a circle ends

    recording = Recording(block, block, (mx.ones((2, WIDTH)),), {})

    assert {id(array) for array in recording.captured} == {id(block.linear.weight), id(block.linear.bias)}


def test_model_behind_a_private_name_is_no_parameter_of_the_block():
    """A block that knows its model by a private name recomputes with what it uses of it alone."""
    model = nn.Sequential(*(Hiding(None, lambda _: lambda x: x) for _ in range(3)))
    for block in model.layers:
        block._kept = [model]
    first = model.layers[0]

    recording = Recording(first, first, (mx.ones((2, WIDTH)),), {})

    own = {id(first.linear.weight), id(first.linear.bias)}
    captured = list({id(array): array for array in recording.captured})
    foreign = {captured[place - recording.argument_count] for place in recording.foreign}
    assert own & foreign == set()
    assert foreign == {id(each) for block in model.layers[1:] for each in (block.linear.weight, block.linear.bias)}
