"""How often ``tinygpt.checkpoint`` runs a function, what it refuses, and what it leaves alone."""

import gc

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from tinygpt import checkpoint
from tinygpt.checkpointing import WRAPPERS
from tinygpt.conformance.cases import MLPBlock, Stack
from tinygpt.conformance.compare import differences
from tinygpt.errors import CheckpointError
from tinygpt.memory.measure import counters

WIDTH = 8


def block_and_input(dropout=0.0):
    """Return a block and a batch for it, the same every time."""
    mx.random.seed(0)
    block, x = MLPBlock(WIDTH, dropout), mx.random.normal((2, 3, WIDTH))
    mx.eval(block.parameters(), x)
    return block, x


class Counted:
    """A function that counts its calls outside of any module, and can fail or change its result on one of them."""

    def __init__(self, function, *, fail_at=0, change_at=0, change=None):
        self.function, self.fail_at, self.change_at, self.change = function, fail_at, change_at, change
        self.calls = [0]

    def __call__(self, *args):
        self.calls[0] += 1
        result = self.function(*args)
        if self.calls[0] == self.fail_at:
            raise KeyError("on purpose")
        return self.change(result) if self.calls[0] == self.change_at else result


def gradient(run, x):
    """Return the gradient of the summed result."""
    return mx.grad(lambda x: run(x).sum())(x)


def test_forward_alone_runs_once():
    """Without a gradient nothing is recomputed."""
    block, x = block_and_input()
    counted = Counted(block)

    mx.eval(checkpoint(block, counted)(x))

    assert counted.calls == [1]


def test_gradient_runs_twice():
    """Under a gradient the function runs once more."""
    block, x = block_and_input()
    counted = Counted(block)

    mx.eval(gradient(checkpoint(block, counted), x))

    assert counted.calls == [2]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_nested_wraps_run_once_more_each(depth):
    """Wrapped k deep, the function runs k + 1 times."""
    block, x = block_and_input()
    run = counted = Counted(block)
    for _ in range(depth):
        run = checkpoint(block, lambda x, inner=run: inner(x))

    mx.eval(gradient(run, x))

    assert counted.calls == [depth + 1]


def test_frozen_blocks_below_the_trainable_ones_are_not_recomputed():
    """A block that no gradient passes through runs once."""
    model = Stack([block_and_input()[0], block_and_input()[0]])
    model.blocks[0].freeze()
    counted = [Counted(block) for block in model.blocks]
    runs = [checkpoint(block, count) for block, count in zip(model.blocks, counted, strict=True)]

    mx.eval(nn.value_and_grad(model, lambda x: model(x, runs).sum())(mx.ones((2, WIDTH))))

    assert [count.calls[0] for count in counted] == [1, 2]


def test_wrapping_twice_is_wrapping_once():
    """What is checkpointed already is returned as it is."""
    block, _ = block_and_input()
    function, module = checkpoint(block, block), checkpoint(block)

    assert checkpoint(function) is function
    assert checkpoint(block, function) is function
    assert checkpoint(module) is module
    assert checkpoint(block, module) is module


def test_every_wrapper_is_chosen_by_name():
    """The four wrappers give the plain gradient of a block."""
    block, x = block_and_input()
    expected = gradient(block, x)

    assert {name: differences(gradient(wrap(block), x), expected) for name, wrap in WRAPPERS.items()} == {
        "tinygpt": [],
        "mlx.nn": [],
        "mlx.core": [],
        "seed-recipe": [],
    }


@pytest.mark.parametrize("result", [None, 3, "word", [], {}], ids=repr)
def test_result_without_an_array_is_refused(result):
    """Where MLX's own wrapper ends the interpreter, there is an error that says why."""
    with pytest.raises(CheckpointError, match=r"\[checkpoint\] result of .*: got no array, expected at least one"):
        checkpoint(lambda _: result)(mx.array(1.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y[:1], "shape of recomputed result 0: got (1, 3, 8), expected (2, 3, 8)"),
        (
            lambda y: y.astype(mx.float16),
            "dtype of recomputed result 0: got mlx.core.float16, expected mlx.core.float32",
        ),
        (lambda y: (y, y), "arrays in the recomputed result: got 2, expected 1"),
    ],
    ids=["shape", "dtype", "number"],
)
def test_recomputation_that_differs_is_refused(change, message):
    """A function that does something else the second time is an error that says what."""
    block, x = block_and_input()
    run = checkpoint(block, Counted(block, change_at=2, change=change))

    with pytest.raises(CheckpointError) as caught:
        gradient(run, x)

    assert message in str(caught.value)


@pytest.mark.parametrize("fail_at", [1, 2], ids=["forward", "recomputation"])
def test_exception_leaves_module_and_random_state_as_a_plain_one_does(fail_at):
    """After an exception the module holds its arrays, the random state is the plain run's, and the next step works."""
    block, x = block_and_input(dropout=0.5)
    arrays = {name: id(array) for name, array in tree_flatten(block.parameters())}
    mx.random.seed(1)
    block(x)
    expected = mx.random.uniform().item()

    mx.random.seed(1)
    with pytest.raises(KeyError, match="on purpose"):
        gradient(checkpoint(block, Counted(block, fail_at=fail_at)), x)

    assert mx.random.uniform().item() == expected
    assert {name: id(array) for name, array in tree_flatten(block.parameters())} == arrays
    mx.eval(gradient(checkpoint(block), x))


def test_python_state_of_a_module_is_updated_once():
    """Numbers and lists of a module are, after a step, what a plain step leaves."""

    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.seen = 0, []

        def __call__(self, x):
            self.calls += 1
            self.seen.append(self.calls)
            return x * self.calls

    module = Remembering()
    seen = module.seen

    mx.eval(gradient(checkpoint(module), mx.ones((2,))))

    assert (module.calls, module.seen) == (1, [1])
    assert module.seen is seen


def test_variables_that_the_function_writes_are_left_alone():
    """A counter in a closure counts both runs: it is outside of the module."""
    block, x = block_and_input()
    calls = 0

    def run(x):
        nonlocal calls
        calls += 1
        return block(x)

    mx.eval(gradient(checkpoint(block, run), x))

    assert calls == 2


def test_array_summed_in_a_closure_has_its_gradient():
    """What a function adds to a variable outside is summed once, and differentiated."""
    block, x = block_and_input()

    def total_gradient(wrap):
        def loss(x):
            total = mx.array(0.0)

            def run(x):
                nonlocal total
                stream = block(x)
                total = total + stream.mean()
                return stream

            return wrap(block, run)(x).mean() * 0 + total

        return nn.value_and_grad(block, loss)(x)

    # Through two ways at once the gradients add up in another order, so this one is compared by value alone.
    assert differences(total_gradient(checkpoint)[0], total_gradient(lambda _, fn: fn)[0]) == []
    gradients = dict(tree_flatten(total_gradient(checkpoint)[1]))
    expected = dict(tree_flatten(total_gradient(lambda _, fn: fn)[1]))
    assert all(mx.allclose(gradients[name], expected[name], rtol=1e-5, atol=1e-7).item() for name in expected)


def test_class_and_other_instances_are_untouched():
    """Only what is wrapped is checkpointed; nothing is patched."""
    block, x = block_and_input()
    methods = dict(vars(MLPBlock))

    mx.eval(gradient(checkpoint(block), x))

    assert dict(vars(MLPBlock)) == methods


def test_wrapped_modules_keep_their_parameters_in_a_list():
    """A model whose layers are wrapped in place still has, and trains, all of its parameters."""
    model = Stack([checkpoint(nn.Linear(WIDTH, WIDTH)) for _ in range(3)])

    _, gradients = nn.value_and_grad(model, lambda x: model(x).sum())(mx.ones((2, WIDTH)))

    assert len(tree_flatten(model.parameters())) == 6
    assert [name for name, leaf in tree_flatten(gradients) if not mx.abs(leaf).sum().item() > 0] == []
    assert model.blocks[0].weight is model.blocks[0].module.weight
    with pytest.raises(AttributeError, match="nothing"):
        _ = model.blocks[0].nothing


def test_method_can_be_decorated():
    """As a decorator the wrapper finds the module in the arguments."""

    class Decorated(MLPBlock):
        @checkpoint
        def __call__(self, x):
            return super().__call__(x)

    block, x = block_and_input()
    decorated = Decorated(WIDTH)
    decorated.update(block.parameters())

    got = nn.value_and_grad(decorated, lambda x: decorated(x).sum())(x)

    assert differences(got, nn.value_and_grad(block, lambda x: block(x).sum())(x)) == []


def test_function_of_parameters_needs_no_module():
    """A function whose parameters are arguments is checkpointed as it is."""
    parameters = {"weight": mx.random.normal((WIDTH, WIDTH)), "bias": mx.random.normal((WIDTH,))}
    x = mx.random.normal((3, WIDTH))

    def layer(parameters, x):
        return mx.tanh(x @ parameters["weight"] + parameters["bias"])

    def both(run):
        return mx.value_and_grad(lambda p, x: run(p, run(p, x)).sum(), argnums=(0, 1))(parameters, x)

    assert differences(both(checkpoint(layer)), both(layer)) == []


def test_explicit_random_key_is_an_argument():
    """A key that is passed in gives the same mask twice, and is not differentiated."""
    key, x = mx.random.key(3), mx.ones((64,))

    def drop(x, key):
        return x * mx.random.bernoulli(0.5, x.shape, key=key)

    wrapped = checkpoint(drop)

    assert differences(mx.grad(lambda x: wrapped(x, key).sum())(x), mx.grad(lambda x: drop(x, key).sum())(x)) == []


def test_sibling_blocks_and_steps_draw_different_masks():
    """Replaying the random state does not make everybody draw the same numbers."""
    dropout = nn.Dropout(0.5)
    run = checkpoint(dropout)
    x = mx.ones((256,))

    masks = [gradient(run, x) for _ in range(2)] + [gradient(lambda x: run(x) + 0 * run(x), x)]

    assert not mx.array_equal(masks[0], masks[1]).item()
    assert not mx.array_equal(masks[1], masks[2]).item()


@pytest.mark.parametrize("collecting", [True, False], ids=["gc", "no gc"])
def test_active_memory_is_flat(collecting):
    """Fifty steps leave no byte behind, with the garbage collector or without."""
    block, x = MLPBlock(64, 0.1), mx.ones((64, 64))
    step = nn.value_and_grad(block, lambda x: checkpoint(block, lambda x: (block(x), block(x)))(x)[0].sum())

    def active(steps):
        for _ in range(steps):
            mx.eval(step(x), block.state)
        mx.synchronize()
        return counters().active_bytes

    if not collecting:
        gc.disable()
    try:
        before = active(5)
        after = active(50)
    finally:
        gc.enable()

    assert after == before


def test_compiled_step_is_traced_once_and_sees_new_weights():
    """Twenty steps of one shape trace once; the twentieth uses the weights of then."""
    block, x = block_and_input()
    traces = []

    def loss(x):
        traces.append(1)
        return checkpoint(block)(x).sum()

    step = mx.compile(nn.value_and_grad(block, loss), inputs=block.state, outputs=block.state)
    for _ in range(20):
        block.update(nn.utils.tree_map(lambda weight: weight * 0.9, block.parameters()))
        value, _ = step(x)

    assert len(traces) == (20 if _compile_is_off() else 1)
    assert mx.allclose(value, block(x).sum()).item()


def _compile_is_off():
    traces = []
    run = mx.compile(lambda x: traces.append(1) or x + 1)
    mx.eval(run(mx.array(1.0)), run(mx.array(2.0)))
    return len(traces) > 1
