"""Gradients: every one that the plain run has, and no other."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.conformance.cases import SHAPE, TWO_BLOCKS, WIDTH, Block, Case, Stack, energy, fresh, in_turn, two_blocks
from tinygpt.conformance.rules import EAGER, check
from tinygpt.conformance.subjects import Wrap
from tinygpt.conformance.tolerances import HIGHER_DERIVATIVES
from tinygpt.conformance.trial import Trial
from tinygpt.errors import ConformanceError

QUANTIZED_WIDTH = 64


class _LowRank(nn.Module):
    """A frozen 4-bit layer with a trainable low-rank addition."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.QuantizedLinear(QUANTIZED_WIDTH, QUANTIZED_WIDTH, group_size=64, bits=4)
        self.down = mx.random.normal((QUANTIZED_WIDTH, 2))
        self.up = mx.random.normal((2, QUANTIZED_WIDTH))

    def __call__(self, x: mx.array) -> mx.array:
        return mx.tanh(self.base(x) + x @ self.down @ self.up)


class _WithAuxiliary(Block):
    """A block that returns an auxiliary loss and something that nobody uses, too."""

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:  # type: ignore[override]
        y = super().__call__(x)
        return y, energy(y), y * 5


class _Routed(Block):
    """A block whose router picks the width that a token is multiplied with, and returns its choice."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.experts = mx.random.normal((4, WIDTH))

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:  # type: ignore[override]
        scores = mx.softmax(self.router(x), axis=-1)
        chosen = mx.stop_gradient(mx.argmax(scores, axis=-1, keepdims=True))
        weight = mx.take_along_axis(scores, chosen, axis=-1)
        return super().__call__(x) * self.experts[chosen[..., 0]] * weight, scores, chosen


class _Root(Block):
    """A block with a result that nobody uses and whose derivative is infinite."""

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:  # type: ignore[override]
        y = super().__call__(x)
        return y, mx.sqrt(mx.zeros((3,)) * y.sum())


class _Hiding(Block):
    """A block that keeps a module aside, which is trained elsewhere and is no parameter of its own."""

    def __init__(self, hidden: nn.Module | list[nn.Module]) -> None:
        super().__init__()
        self._hidden = hidden

    def __call__(self, x: mx.array) -> mx.array:
        hidden: Any = self._hidden[0] if isinstance(self._hidden, list) else self._hidden
        y: mx.array = super().__call__(x) + hidden(x)
        return y


def _with_table() -> tuple[Stack, tuple[mx.array]]:
    model, batch = two_blocks(table=mx.random.normal(SHAPE))
    return model, batch


def _through_the_table(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    return in_turn(model, wrap, x + model.table)[0]


def _partly_frozen() -> tuple[Stack, tuple[mx.array]]:
    model, batch = _with_table()
    model.blocks[0].first.freeze()
    model.blocks[1].second.freeze()
    return model, batch


def _frozen_blocks() -> tuple[Stack, tuple[mx.array]]:
    model, batch = _with_table()
    for block in model.blocks:
        block.freeze()
    return model, batch


def _quantized() -> tuple[Stack, tuple[mx.array]]:
    block = fresh(_LowRank)
    return Stack([block(), block()]), (mx.random.normal((2, 3, QUANTIZED_WIDTH)),)


def _called_twice(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    run = wrap(model.blocks[0])
    once = run(x)
    return (once * run(once + 1)).mean()  # type: ignore[no-any-return]


def _tied(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    block = model.blocks[0]
    return energy(wrap(block)(x) @ block.second.weight)


def _hiding() -> tuple[Stack, tuple[mx.array]]:
    hidden = fresh(nn.Linear)(WIDTH, WIDTH)
    block = fresh(_Hiding)
    return Stack([block(hidden), block([hidden])], hidden=hidden), (mx.random.normal(SHAPE),)


def _two_forwards(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    runs = [wrap(block) for block in model.blocks]
    first, second = (energy(model(part, runs)) for part in (x[:1], x[1:]))
    return first + 2 * second


def _with_scale() -> tuple[Stack, tuple[mx.array]]:
    return two_blocks(scale=mx.random.normal((WIDTH,)))


def _captured(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    scale, block = model.scale, model.blocks[0]
    return energy(wrap(block, lambda x: block(x) * scale)(x))


def _late_bound(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    for factor, block in enumerate(model.blocks, start=2):
        x = wrap(block, lambda x: block(x) * factor)(x)  # noqa: B023  (what is judged)
    return energy(x)


def _with_auxiliary() -> tuple[Stack, tuple[mx.array]]:
    return Stack([fresh(_WithAuxiliary)()]), (mx.random.normal(SHAPE),)


def _stream_and_auxiliary(model: Stack, wrap: Wrap, x: mx.array) -> tuple[mx.array, mx.array]:
    stream, auxiliary, _ = wrap(model.blocks[0])(x)
    return stream.mean() + 0.01 * auxiliary, auxiliary


def _only_auxiliary(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    result: mx.array = wrap(model.blocks[0])(x)[1]
    return result


def _routed() -> tuple[Stack, tuple[mx.array]]:
    return Stack([fresh(_Routed)()]), (mx.random.normal(SHAPE),)


def _balance(model: Stack, wrap: Wrap, x: mx.array) -> tuple[mx.array, mx.array]:
    stream, scores, chosen = wrap(model.blocks[0])(x)
    used = (chosen == mx.arange(4)).astype(mx.float32).mean(axis=(0, 1))
    return energy(stream) + used @ scores.mean(axis=(0, 1)), chosen


def _root() -> tuple[Stack, tuple[mx.array]]:
    return Stack([fresh(_Root)()]), (mx.random.normal(SHAPE),)


def _without_root(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    return energy(wrap(model.blocks[0])(x)[0])


def _slope(model: Stack, wrap: Wrap, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Use the first and the second derivative along one direction as the loss; the gradient makes it one more."""
    run = wrap(model.blocks[0])

    def first(t: mx.array) -> mx.array:
        return energy(run(x * t))

    one = mx.array(1.0)
    return mx.grad(first)(one) + mx.grad(mx.grad(first))(one), mx.grad(first)(one), mx.grad(mx.grad(first))(one)


THROUGH_INPUT = Case("blocks behind a trainable table", _with_table, _through_the_table)
PARTLY_FROZEN = Case("blocks with frozen layers", _partly_frozen, _through_the_table)
FROZEN = Case("frozen blocks behind a trainable table", _frozen_blocks, _through_the_table)
QUANTIZED = Case("frozen 4-bit layers with adapters", _quantized, lambda *a: in_turn(*a)[0])
CALLED_TWICE = Case("a block called twice", two_blocks, _called_twice)
TIED = Case("a weight used outside of its block too", two_blocks, _tied)
HIDING = Case("blocks that keep a module under a private name", _hiding, lambda *a: in_turn(*a)[0])
TWO_FORWARDS = Case("two forwards before one backward", two_blocks, _two_forwards)
CAPTURED = Case("a captured trainable array 'scale'", _with_scale, _captured)
LATE_BOUND = Case("a closure over a loop variable", two_blocks, _late_bound)
AUXILIARY = Case("an auxiliary loss as second result", _with_auxiliary, _stream_and_auxiliary)
ONLY_AUXILIARY = Case("an auxiliary loss alone", _with_auxiliary, _only_auxiliary)
ROUTED = Case("a router that returns its choice", _routed, _balance)
ROOT = Case("an unused result with an infinite derivative", _root, _without_root)
SLOPE = Case("derivatives of derivatives", two_blocks, _slope)


@check()
def parameters(trial: Trial) -> None:
    """G1 (required): Every trainable parameter has its gradient, equal to the plain run's; a missing one is a failure.

    Source: flux-2-swift-mlx#38 and mlx#1669: a module captured by ``mx.checkpoint`` trains with gradients that are all
        zero.

    Fault: ``closure_capture``, ``gradients_scaled``, ``one_leaf_zero``, ``two_leaves_swapped``,
    ``cotangent_as_gradient``, ``gradient_not_a_number``.
    """
    trial.expect_equal(TWO_BLOCKS, "gradients")


@check()
def inputs(trial: Trial) -> None:
    """G2 (required): Arguments have their gradients too, equal to the plain run's.

    Source: without them everything below the block stands still.

    Fault: ``input_gradient_stopped``.
    """
    trial.expect_equal(THROUGH_INPUT, "gradients")


@check()
def frozen_parameters(trial: Trial) -> None:
    """G3 (required): Frozen parameters have no gradient, and the others have the right ones.

    Source: fine-tuning; gradients are paired with parameters by position in many wrappers.

    Fault: ``frozen_parameters_thawed``, ``partly_frozen_block_untrained``.
    """
    trial.expect_equal(PARTLY_FROZEN, "gradients")


@check()
def frozen_block(trial: Trial) -> None:
    """G4 (required): With all of a block frozen, the gradient of its input is right.

    Source: what adapters below a frozen base need.

    Fault: ``frozen_block_cut_off``.
    """
    trial.expect_equal(FROZEN, "gradients")


@check()
def quantized_base(trial: Trial) -> None:
    """G5 (required): A 4-bit quantized frozen base with trainable adapters has the adapters' gradients.

    Source: mlx#349, mlx#2129, mlx#2555: packed weights have no gradient, and asking for it is an error.

    Fault: ``packed_weights_differentiated``.
    """
    trial.expect_equal(QUANTIZED, "gradients")


@check()
def called_twice(trial: Trial) -> None:
    """G6 (required): A block called twice in one forward has the sum of both gradients.

    Source: recurrent depth, and the shared blocks of many models.

    Fault: ``first_result_remembered``.
    """
    trial.expect_equal(CALLED_TWICE, "values", "gradients")


@check()
def tied_weights(trial: Trial) -> None:
    """G6 (required): A weight that is used outside of the block too has both parts of its gradient.

    Source: tied embeddings.

    Fault: ``parameters_cut_off_afterwards``.
    """
    trial.expect_equal(TIED, "gradients")


@check()
def hidden_module(trial: Trial) -> None:
    """G6 (required): A module that a block keeps under a private name, and that is trained elsewhere, has its gradient.

    Source: an embedding or a projection that every block shares, hidden so that it is a parameter once.

    Fault: ``private_modules_overlooked``.
    """
    trial.expect_equal(HIDING, "gradients")


@check()
def two_forwards(trial: Trial) -> None:
    """G6 (required): Several forwards before one backward each keep their own inputs.

    Source: gradient accumulation, mlx#2840; siamese losses.

    Fault: ``latest_call_recomputed``.
    """
    trial.expect_equal(TWO_FORWARDS, "gradients")


@check()
def captured_array(trial: Trial) -> None:
    """G7 (required): A captured trainable array has its gradient, or is refused by name; never a silent zero.

    Source: mlx#1669; ``mx.checkpoint`` takes a captured array for a constant.

    Fault: ``capture_taken_for_constant``, ``capture_refused_without_name``.
    """
    try:
        trial.expect_equal(CAPTURED, "gradients")
    except ConformanceError as error:
        refusal = error.__cause__
        if refusal is None:
            raise
        if "scale" not in str(refusal):
            raise ConformanceError(
                f"case '{CAPTURED}': got the refusal {str(refusal)!r}, expected one that names the array"
            ) from error


@check()
def auxiliary_loss(trial: Trial) -> None:
    """G8 (required): Some of several results may be unused, and an auxiliary loss counts once, in value and gradient.

    Source: mixture of experts; the seed document's fear.

    Fault: ``auxiliary_loss_twice``, ``auxiliary_loss_dropped``, ``results_needed_together``.
    """
    trial.expect_equal(AUXILIARY, "values", "gradients")
    trial.expect_equal(ONLY_AUXILIARY, "values", "gradients")


@check(modes=EAGER)
def higher_derivatives(trial: Trial) -> None:
    """G9 (optional): Second and third derivatives are the plain run's.

    Source: mlx#3220; gradient penalties.

    Fault: ``second_derivative_lost``.
    """
    trial.expect_equal(SLOPE, "values", "gradients", tolerance=HIGHER_DERIVATIVES)


@check()
def routing_indices(trial: Trial) -> None:
    """G10 (required): Integer results, such as a router's choice, stay integers, and what they gathered is right.

    Source: mlx-lm#1786, mlx-lm#1814, unsloth-zoo#1120.

    Fault: ``integer_results_as_floats``.
    """
    trial.expect_equal(ROUTED, "values", "gradients")


@check(modes=EAGER)
def late_binding(trial: Trial) -> None:
    """G11 (optional): A recomputation sees the variables of a closure as the forward did, though a loop went on.

    Source: blocks are wrapped in loops, and Python binds names late.

    Fault: ``variables_read_again``.
    """
    trial.expect_equal(LATE_BOUND, "gradients")


@check(modes=EAGER)
def unused_infinite_derivative(trial: Trial) -> None:
    """G12 (optional): A result that nobody uses adds nothing to a gradient, though its derivative is infinite.

    Source: zero times infinity; plain MLX never multiplies them.

    Fault: ``unused_result_gets_zero_cotangent``.
    """
    trial.expect_equal(ROOT, "gradients")
