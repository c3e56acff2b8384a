"""Transforms: a wrapped block inside of MLX's own function transforms."""

from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from tinygpt.conformance.cases import WIDTH, Case, Stack, energy, fresh, in_turn, two_blocks
from tinygpt.conformance.compare import differences
from tinygpt.conformance.rules import COMPILED, EAGER, check
from tinygpt.conformance.subjects import PLAIN, Subject, Wrap
from tinygpt.conformance.trial import SEED, Measurement, Trial, plainly, require_compile, value_and_grad
from tinygpt.errors import ConformanceError

LEARNING_RATE = 0.1
LENGTHS = (5, 2, 7)


def _train(subject: Subject, steps: int = 3) -> list[Any]:
    """Return the results of compiled steps between which the weights change."""
    mx.random.seed(SEED)
    model, (x,) = two_blocks()
    mx.eval(model.parameters(), x)
    found = []
    with subject.applied(model) as wrap:
        step = value_and_grad(model, lambda x: in_turn(model, wrap, x)[0], compiled=True)
        for _ in range(steps):
            loss, gradients = step(x)
            mx.eval(loss, gradients)
            found.append((loss, gradients))
            model.update(nn.utils.tree_map(lambda p, g: p - LEARNING_RATE * g, model.trainable_parameters(), gradients))
            mx.eval(model.parameters())
    return found


@check(modes=COMPILED)
def updated_weights(trial: Trial) -> None:
    """T1 (required): A compiled step sees the weights that were updated since it was compiled.

    Source: an array that is read while MLX traces becomes a constant.

    Fault: ``weights_baked_in``.
    """
    with plainly("compiled training"):
        expected = _train(PLAIN)
    with trial.guarded("compiled training"):
        found = differences(_train(trial.subject), expected)
    if found:
        raise ConformanceError(f"compiled steps with updated weights: step.result unlike plain: {found[0]}")


@check(modes=COMPILED)
def no_retrace(trial: Trial) -> Measurement:
    """T2 (required): 20 steps of one shape are traced once, and a new shape once more.

    Source: unsloth-zoo#918, #940; tracing is slow, and every trace holds resources.

    Fault: ``retraced_every_step``.
    """
    traces: list[int] = []

    def loss(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
        traces.append(x.shape[1])
        return in_turn(model, wrap, x)[0]

    model, _ = two_blocks()
    with trial.wrapping(model, "compiled steps of several shapes") as wrap:
        step = value_and_grad(model, lambda x: loss(model, wrap, x), compiled=True)
        for length in [LENGTHS[0]] * 20 + list(LENGTHS) * 2:
            mx.eval(step(mx.ones((3, length, WIDTH))))
    if traces != list(LENGTHS):
        raise ConformanceError(
            f"lengths traced in 20 compiled steps of length {LENGTHS[0]} and two of each of {LENGTHS}: "
            f"got {len(traces)} ({traces[:4]} …), expected {list(LENGTHS)}"
        )
    return Measurement({"traces": len(traces)}, bound=str(len(LENGTHS)))


class _Pointwise(nn.Module):
    """A block that any shape goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = mx.array(2.0)

    def __call__(self, x: mx.array) -> mx.array:
        return mx.sin(x * self.scale)


def _pointwise() -> tuple[Stack, tuple[mx.array]]:
    block = fresh(_Pointwise)
    return Stack([block(), block()]), (mx.random.normal((4, WIDTH)),)


def _vmapped(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    runs = [wrap(block) for block in model.blocks]
    return energy(mx.vmap(lambda x: model(x, runs))(x))


def _each_gradient(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    runs = [wrap(block) for block in model.blocks]
    return mx.vmap(mx.grad(lambda x: energy(model(x, runs))))(x)  # type: ignore[no-any-return]


def _forward_derivative(model: Stack, wrap: Wrap, x: mx.array) -> Any:
    runs = [wrap(block) for block in model.blocks]
    return mx.jvp(lambda x: model(x, runs), [x], [mx.cos(x)])


def _without_shapes(model: Stack, wrap: Wrap, x: mx.array) -> list[mx.array]:
    gradient = mx.compile(mx.grad(lambda x: model(x, [wrap(block) for block in model.blocks]).sum()), shapeless=True)
    return [gradient(x), gradient(x[:, :2])]


def _function_of_parameters(model: Stack, wrap: Wrap, x: mx.array) -> Any:
    def loss(parameters: dict[str, Any], x: mx.array) -> mx.array:
        model.update(parameters)
        return in_turn(model, wrap, x)[0]

    before = model.trainable_parameters()
    try:
        return mx.value_and_grad(loss, argnums=(0, 1))(before, x)
    finally:
        model.update(before)


def _inside_custom_function(model: Stack, wrap: Wrap, x: mx.array) -> Any:
    block = model.blocks[0]

    @mx.custom_function
    def outer(x: mx.array) -> Any:
        return wrap(block)(x) * 2

    return mx.value_and_grad(lambda x: energy(cast("mx.array", outer(x))))(x)


def _inside_checkpoint(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    block = model.blocks[0]

    def outer(parameters: dict[str, Any], x: mx.array) -> Any:
        before = block.trainable_parameters()
        block.update(parameters)
        try:
            return wrap(block)(x) * 2
        finally:
            block.update(before)

    result = mx.checkpoint(outer)(block.trainable_parameters(), x)
    return energy(result)


def _inside_itself(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    block = model.blocks[0]
    inner = wrap(block)
    return energy(wrap(block, lambda x: inner(inner(x)))(x))


def _evaluated(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    block = model.blocks[0]

    def run(x: mx.array) -> mx.array:
        y = block(x)
        mx.eval(y)
        return y * y.mean().item()  # type: ignore[no-any-return]

    return wrap(block, run)(x).sum()  # type: ignore[no-any-return]


GRAD_OF_VMAP = Case("the gradient of a vmapped model", two_blocks, _vmapped)
VMAP_OF_GRAD = Case("a gradient for each sequence, by vmap", two_blocks, _each_gradient)
JVP = Case("a forward derivative", two_blocks, _forward_derivative)
SHAPELESS = Case("a gradient compiled without shapes", _pointwise, _without_shapes)
FUNCTION = Case("a function of parameters and input", two_blocks, _function_of_parameters)
IN_CUSTOM_FUNCTION = Case("inside a custom function", two_blocks, _inside_custom_function)
IN_CHECKPOINT = Case("inside mx.checkpoint", two_blocks, _inside_checkpoint)
IN_ITSELF = Case("inside the wrapper itself", two_blocks, _inside_itself)
EVALUATED = Case("a block that evaluates", two_blocks, _evaluated)


@check(modes=EAGER)
def grad_of_vmap(trial: Trial) -> None:
    """T3 (required): The gradient of a vmapped function is right.

    Source: the rules; what MLX's own checkpoint can do.

    Fault: ``first_sequence_for_all``.
    """
    trial.expect_equal(GRAD_OF_VMAP, "values", "gradients")


@check(modes=EAGER)
def vmap_of_grad(trial: Trial) -> None:
    """T3 (optional): Gradients for each sequence, by ``vmap`` of a gradient, are right.

    Source: ``mx.checkpoint`` raises "Not implemented for Depends".

    Fault: ``vmap_of_gradient_refused``.
    """
    trial.expect_same_results(VMAP_OF_GRAD)


@check(modes=EAGER)
def forward_derivative(trial: Trial) -> None:
    """T4 (optional): A forward derivative, ``mx.jvp``, is right.

    Source: the rules.

    Fault: ``forward_derivative_zero``.
    """
    trial.expect_same_results(JVP)


@check(modes=EAGER)
def shapeless_compile(trial: Trial) -> None:
    """T5 (optional): A gradient can be compiled with ``shapeless=True``.

    Source: MLX raises "CustomTransforms cannot infer output shapes", on every release.

    Fault: ``shapeless_refused``.
    """
    require_compile()
    trial.expect_same_results(SHAPELESS)


@check()
def function_of_parameters(trial: Trial) -> None:
    """T6 (required): ``mx.value_and_grad`` of a function that is not a module is right, by parameters and by input.

    Source: the rules; functional training loops.

    Fault: ``input_gradient_stopped``, ``closure_capture``.
    """
    trial.expect_same_results(FUNCTION)


@check()
def inside_custom_function(trial: Trial) -> None:
    """T7 (required): Inside a custom function the gradients are right.

    Source: the rules.

    Fault: ``input_gradient_stopped``.
    """
    trial.expect_same_results(IN_CUSTOM_FUNCTION)


@check()
def inside_checkpoint(trial: Trial) -> None:
    """T7 (required): Inside another checkpoint, MLX's or its own, the gradients are right.

    Source: the rules; chunks of a recurrent block, mlx#3539.

    Fault: ``closure_capture``.
    """
    trial.expect_equal(IN_CHECKPOINT, "values", "gradients")


@check()
def inside_itself(trial: Trial) -> None:
    """T7 (required): Inside a function wrapped by the same wrapper the gradients are right.

    Source: the rules.

    Fault: ``nested_gradient_stopped``.
    """
    trial.expect_equal(IN_ITSELF, "values", "gradients")


@check(modes=EAGER)
def evaluation_inside(trial: Trial) -> None:
    """T8 (optional): A block may evaluate an array while it is differentiated.

    Source: mlx-vlm#1584, mlx-swift-lm#571.

    Fault: ``block_vmapped``.
    """
    trial.expect_equal(EVALUATED, "values", "gradients")
