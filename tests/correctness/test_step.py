import math

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_flatten, tree_map

from tinygpt.checkpointing import checkpoint, checkpointed_blocks
from tinygpt.config import GPTConfig
from tinygpt.conformance.compare import differences
from tinygpt.errors import TrainingError
from tinygpt.model import GPT, next_token_loss
from tinygpt.model.products import can_multiply
from tinygpt.train import Gradients, TrainStep

CONFIG = GPTConfig(n_layer=3, n_head=2, n_embd=8, n_mlp=16, context=6, vocab_size=11, dropout=0.1)


def prepared(policy="none", *, clip_norm=0.1, compiled=False, dtype=mx.float32, steps=0, wrap=checkpoint):
    """Return a step on a model that is the same every time, after some steps."""
    mx.random.seed(0)
    model = GPT(CONFIG)
    model.set_dtype(dtype)
    optimizer = optim.AdamW(1e-2, bias_correction=True)
    blocks = checkpointed_blocks(model.blocks, policy, wrap)
    step = TrainStep(model, optimizer, blocks=blocks, clip_norm=clip_norm, compiled=compiled)
    losses = [step(batch(number)) for number in range(steps)]
    return step, model, optimizer, losses


def batch(number):
    """Return a batch of tokens, another for each number."""
    return (mx.arange(3 * 7).reshape(3, 7) * (number + 3)) % 11


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["float32", "bfloat16"])
def test_checkpointed_training_is_plain_training(compiled, dtype):
    """Losses, weights and moments after four steps with dropout and clipping are equal to the bit."""
    if not can_multiply(dtype):
        pytest.skip("this release of MLX cannot multiply in bfloat16 on the CPU")
    _, plain, plain_optimizer, expected = prepared(compiled=compiled, dtype=dtype, steps=4)

    _, model, optimizer, losses = prepared("all", compiled=compiled, dtype=dtype, steps=4)

    assert differences(losses, expected) == []
    assert differences(model.parameters(), plain.parameters()) == []
    assert differences(optimizer.state, plain_optimizer.state) == []
    assert {weight.dtype for _, weight in tree_flatten(model.parameters())} == {dtype}


def test_step_is_what_mlx_documents():
    """Gradients, clipping and update are those of the usual eager loop."""
    step, model, _, _ = prepared()
    _, usual, _, _ = prepared()
    optimizer = optim.AdamW(1e-2, bias_correction=True)
    mx.random.seed(5)
    expected = []
    for number in range(3):
        tokens = batch(number)
        loss, gradients = nn.value_and_grad(usual, lambda t: next_token_loss(usual(t[:, :-1])[0], t[:, 1:]))(tokens)
        gradients, _ = optim.clip_grad_norm(gradients, 0.1)
        optimizer.update(usual, gradients)
        mx.eval(usual.state, optimizer.state)
        expected.append(loss)

    mx.random.seed(5)
    losses = [step(batch(number)) for number in range(3)]

    assert differences(losses, expected) == []
    assert differences(model.parameters(), usual.parameters()) == []


def test_gradients_leave_the_model_as_it_is():
    """The first half of a step changes no weight, and its norm is that of the gradients before clipping."""
    step, model, _, _ = prepared(compiled=True)
    before = tree_map(lambda weight: weight + 0, model.parameters())

    gradients = step.gradients(batch(0))

    squares = sum(gradient.square().sum().item() for _, gradient in tree_flatten(gradients.tree))
    assert differences(model.parameters(), before) == []
    assert gradients.norm.item() == pytest.approx(math.sqrt(squares), rel=1e-6)


def test_clipping_bounds_the_update():
    """A tiny largest norm shrinks the gradient that the moments see; none leaves it."""
    moments = {}
    for clip_norm in (0.0, 1e-3):
        _, _, optimizer, _ = prepared(clip_norm=clip_norm, steps=1)
        first = [moment for name, moment in tree_flatten(optimizer.state) if name.endswith(".m")]
        moments[clip_norm] = math.sqrt(sum(moment.square().sum().item() for moment in first))

    assert moments[1e-3] == pytest.approx(0.1 * 1e-3, rel=1e-2)  # beta_1 = 0.9 leaves a tenth of the gradient
    assert moments[0.0] > 100 * moments[1e-3]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_exception_in_the_model_leaves_its_weights(compiled):
    """A block that fails leaves no tracer in the model, and the next step works."""
    failures = [KeyError("on purpose")]

    def failing_once(block):
        def run(x):
            result = block(x)
            if failures:
                raise failures.pop()
            return result

        return run

    step, model, _, _ = prepared("all", compiled=compiled, wrap=failing_once)
    weights = {name: id(weight) for name, weight in tree_flatten(model.parameters())}

    with pytest.raises(KeyError, match="on purpose"):
        step(batch(0))

    assert {name: id(weight) for name, weight in tree_flatten(model.parameters())} == weights
    assert mx.isfinite(step(batch(0))).item()


def test_update_that_changes_a_dtype_is_refused():
    """A float32 array among the gradients would turn bfloat16 weights and moments into float32 without a word."""
    step, *_ = prepared(dtype=mx.bfloat16, clip_norm=0.0)
    wrong = tree_map(lambda weight: mx.ones(weight.shape), step._model.parameters())

    with pytest.raises(TrainingError, match=r"\[train\] dtype of .*: got mlx.core.float32, expected mlx.core.bfloat16"):
        step.update(Gradients(mx.array(0.0), mx.array(1.0), wrong))
