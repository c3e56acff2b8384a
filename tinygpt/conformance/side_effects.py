"""Side effects: what a step leaves behind in modules, classes, random state and memory."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from tinygpt.conformance.cases import SHAPE, TWO_BLOCKS, WIDTH, Block, Case, Stack, energy, fresh, in_turn, two_blocks
from tinygpt.conformance.compare import differences
from tinygpt.conformance.rules import EAGER, check
from tinygpt.conformance.subjects import PLAIN, Subject, Wrap
from tinygpt.conformance.trial import (
    SEED,
    Measurement,
    Trial,
    held_arrays,
    plainly,
    value_and_grad,
)
from tinygpt.errors import ConformanceError, NotApplicableError
from tinygpt.leaves import leaves
from tinygpt.memory.measure import counters, settle

LEAK_STEPS = 50
WARM_UP_STEPS = 3
DRAW = "the next random draw"


class _Planned(Exception):  # noqa: N818  (no error of the kit)
    """What a block raises on purpose."""


class _Normalized(nn.Module):
    """A block with MLX's own running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def __call__(self, x: mx.array) -> mx.array:
        return self.linear(self.norm(x))


class _Buffered(nn.Module):
    """A block with a running mean and a private counter, both arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.mean = mx.zeros((WIDTH,))
        self._calls = mx.array(0.0)
        self.freeze(recurse=False)

    def __call__(self, x: mx.array) -> mx.array:
        self._calls = self._calls + 1
        self.mean = self.mean + mx.stop_gradient(x.mean(axis=0))
        return self.linear(x) * self.mean * self._calls


class _Tallying(Block):
    """A block that counts its calls in Python, and uses the count."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __call__(self, x: mx.array) -> mx.array:
        self.calls += 1
        return super().__call__(x) * self.calls


class _Failing(Block):
    """A block that raises in one of its runs; runs are counted outside of the module."""

    runs: ClassVar[list[int]]
    fails_at: ClassVar[int]

    def __init__(self) -> None:
        super().__init__(dropout=0.3)

    def __call__(self, x: mx.array) -> mx.array:
        self.runs.append(1)
        y = super().__call__(x)
        if len(self.runs) == self.fails_at:
            raise _Planned
        return y


class _Remembering(Block):
    """A block that appends what it computed to a list that it is given, as a cache does."""

    def __call__(self, x: mx.array, cache: list[mx.array]) -> mx.array:  # type: ignore[override]
        y = super().__call__(x)
        cache.append(mx.stop_gradient(y))
        return y * len(cache)


def _loss(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    return in_turn(model, wrap, x)[0]


def _buffered() -> tuple[Stack, tuple[mx.array]]:
    block = fresh(_Buffered)
    return Stack([block(), block()]), (mx.random.normal((6, WIDTH)),)


def _normalized() -> tuple[Stack, tuple[mx.array]]:
    block = fresh(_Normalized)
    return Stack([block(), block()]), (mx.random.normal((6, WIDTH)),)


def _tallying() -> tuple[Stack, tuple[mx.array]]:
    block = fresh(_Tallying)
    return Stack([block(), block()]), (mx.random.normal(SHAPE),)


def _remembering() -> tuple[Stack, tuple[mx.array]]:
    return Stack([fresh(_Remembering)()]), (mx.random.normal(SHAPE),)


def _with_cache(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    return energy(wrap(model.blocks[0])(x, []))


def _evaluating() -> tuple[Stack, tuple[mx.array]]:
    model, batch = two_blocks(dropout=0.5)
    model.eval()
    model.blocks[1].first.train()  # one module unlike the others, in which nothing is drawn
    return model, batch


def _modes(model: Stack, wrap: Wrap, x: mx.array) -> tuple[mx.array, list[bool]]:
    loss, _ = in_turn(model, wrap, x)
    return loss, [module.training for module in model.modules()]


BATCH_NORM = Case("running statistics of a BatchNorm", _normalized, lambda *a: in_turn(*a)[0])
BUFFERS = Case("a running mean and a counter", _buffered, lambda *a: in_turn(*a)[0])
TALLY = Case("calls counted in Python", _tallying, lambda *a: in_turn(*a)[0])
CACHE = Case("a list that the block appends to", _remembering, _with_cache)
MODES = Case("evaluation mode", _evaluating, _modes)


@check()
def parameters_intact(trial: Trial) -> None:
    """S1 (required): After a gradient the module holds the parameters that it held, as arrays that can be evaluated.

    Source: a module that was given tracers cannot be evaluated any more: "eval an array without a primitive".

    Fault: ``tracers_left``, ``parameters_left_rounded``.
    """
    trial.expect_equal(TWO_BLOCKS, "module")
    mx.random.seed(SEED)
    model, (x,) = two_blocks()
    mx.eval(model.parameters())
    before = held_arrays(model)

    def input_gradient(subject: Subject) -> None:
        with subject.applied(model) as wrap:
            step: Callable[..., Any] = mx.grad(partial(_loss, model, wrap))
            mx.eval((mx.compile(step) if trial.compiled else step)(x))
        mx.eval(model.parameters())

    with plainly("the gradient of an input"):
        input_gradient(PLAIN)
    with trial.guarded("parameters after the gradient of an input"):
        input_gradient(trial.subject)
        found = differences(held_arrays(model), before)
    if found:
        raise ConformanceError(f"parameters after the gradient of an input: {found[0]}")


@check(modes=EAGER)
def intact_after_exceptions(trial: Trial) -> None:
    """S2 (required): The same after an exception in forward or recomputation; the random state is as without a wrapper.

    Source: an interrupted step is repeated with a smaller batch; restoring belongs into ``finally``.

    Fault: ``left_frozen_after_exception``, ``random_state_lost_after_exception``.
    """
    with plainly("an exception in the forward"):
        plain = _after_exception(PLAIN, 1)
    with trial.guarded("steps without an exception"):
        # The subject's own, so that other rules that it may break do not count here again.
        calm = _after_exception(trial.subject, 0)
    for fails_at, where in ((1, "forward"), (2, "recomputation")):
        expected = calm | ({DRAW: plain[DRAW]} if fails_at == 1 else {})
        with trial.guarded(f"the steps after an exception in the {where}"):
            got = _after_exception(trial.subject, fails_at)
        if got["runs"] >= fails_at and not got["raised"]:
            raise ConformanceError(f"an exception in the {where}: got none, expected it to arrive")
        for what in ("parameters", DRAW, "the next step"):
            found = differences(got[what], expected[what])
            if found:
                raise ConformanceError(f"after an exception in the {where}: {what} unlike without one: {found[0]}")


def _after_exception(subject: Subject, fails_at: int) -> dict[str, Any]:
    """Take a step that may raise, and return what can be seen afterwards; ``fails_at`` 0 for no exception."""
    block = fresh(_Failing)
    block.runs, block.fails_at = [], fails_at
    mx.random.seed(SEED)
    model, x = Stack([block()]), mx.random.normal(SHAPE)
    mx.eval(model.parameters(), x)
    raised = False
    with subject.applied(model) as wrap:
        try:
            mx.eval(nn.value_and_grad(model, lambda x: in_turn(model, wrap, x)[0])(x))
        except _Planned:
            raised = True
        runs, block.fails_at = len(block.runs), 0
        mx.eval(model.parameters())
        parameters = dict(leaves(model.parameters()))
        draw = mx.random.uniform(shape=(4,))
        mx.random.seed(SEED + 1)
        again = nn.value_and_grad(model, lambda x: in_turn(model, wrap, x)[0])(x)
        mx.eval(draw, again)
    return {
        "raised": raised,
        "runs": runs,
        "parameters": parameters,
        DRAW: draw,
        "the next step": again,
    }


@check()
def buffers_once(trial: Trial) -> None:
    """S3 (required): Buffers, such as running statistics and counters, are updated once a step.

    Source: under MLX's wrappers the running mean of a BatchNorm goes 1.9 times as far, on every release.

    Fault: ``buffers_twice``.
    """
    trial.expect_equal(BUFFERS, "values", "gradients", "module")
    if not trial.compiled:
        trial.expect_equal(BATCH_NORM, "values", "gradients", "module")


@check(modes=EAGER)
def class_untouched(trial: Trial) -> None:
    """S4 (required): Other instances of a block's class run as ever, and the class itself is what it was.

    Source: mlx-lm's trainer patches the class, for the whole process and for ever.

    Fault: ``class_patched``.
    """
    model, (x,) = two_blocks()
    block = type(model.blocks[0])
    other = block()
    runs: list[int] = []
    before = dict(vars(block))
    with trial.wrapping(model, "a model beside another") as wrap:
        mx.eval(nn.value_and_grad(model, lambda x: in_turn(model, wrap, x)[0])(x))
        other.first = _Counted(other.first, runs)
        mx.eval(nn.value_and_grad(other, lambda x: other(x).sum())(x))
    changed = sorted(key for key in before.keys() | vars(block).keys() if before.get(key) is not vars(block).get(key))
    if changed:
        raise ConformanceError(f"the class of the block: got other attributes {changed} afterwards, expected none")
    if type(model.blocks[0]) is not block:
        raise ConformanceError("the class of the block: got another one afterwards, expected the same")
    if len(runs) != 1:
        raise ConformanceError(f"runs of another instance of the class: got {len(runs)}, expected 1")


class _Counted(nn.Module):
    """A layer that counts its runs outside of itself."""

    def __init__(self, layer: nn.Module, runs: list[int]) -> None:
        super().__init__()
        self.layer = layer
        self._count = runs.append  # no list: a module takes lists for its own

    def __call__(self, x: mx.array) -> mx.array:
        self._count(1)
        return self.layer(x)  # type: ignore[no-any-return]


@check(modes=EAGER)
def modes_kept(trial: Trial) -> None:
    """S5 (required): Training and evaluation mode of every module are kept, in the recomputation too.

    Source: dropout in a block that is in evaluation mode would change the gradient.

    Fault: ``switched_to_training``.
    """
    trial.expect_equal(MODES, "values", "gradients", "draw")


@check()
def memory_flat(trial: Trial) -> Measurement:
    """S6 (required): Active memory is flat over 50 steps, and after exceptions.

    Source: mlx#1271, mlx#1274; mlx-examples#1262: memory rose until the crash.

    Fault: ``slow_leak``, ``leak_after_exception``, ``history_grows``.
    """
    block = fresh(_Failing)
    block.runs, block.fails_at = [], 0
    model, x = Stack([block(), block()]), mx.random.normal(SHAPE)
    with trial.wrapping(model, f"{LEAK_STEPS} steps") as wrap:
        step = value_and_grad(model, lambda x: in_turn(model, wrap, x)[0], compiled=trial.compiled)

        def steps(count: int) -> int:
            for _ in range(count):
                mx.eval(step(x), model.state, mx.random.state)
            return _active_bytes(block)

        steps(WARM_UP_STEPS)
        measured = {"steps_bytes": -steps(WARM_UP_STEPS) + steps(LEAK_STEPS)}
        if not trial.compiled:  # MLX itself leaves tracers behind where a function that it compiles raises
            before = _active_bytes(block)
            for fails_at in (1, 2, 3, 4) * 4:
                _fail(step, x, block, fails_at)
            measured["exceptions_bytes"] = _active_bytes(block) - before
    for what, grown in measured.items():
        if grown:
            name = f"{LEAK_STEPS} steps" if what == "steps_bytes" else "exceptions"
            raise ConformanceError(f"active memory after {name}: got {grown:+} B, expected no change")
    return Measurement(measured, bound="0 B", schedule="whole tree")


def _fail(step: Callable[..., Any], x: mx.array, block: type[_Failing], fails_at: int) -> None:
    block.runs, block.fails_at = [], fails_at
    try:
        mx.eval(step(x))
    except _Planned:
        pass
    finally:
        block.fails_at = 0


def _active_bytes(block: type[_Failing]) -> int:
    block.runs = []
    settle()
    return counters().active_bytes


@check(modes=EAGER)
def parameters_visible(trial: Trial) -> None:
    """S7 (optional): What the wrapper returns for a module can be stored in its place, and the parameters stay visible.

    Source: mlx#788: layers wrapped in a list comprehension disappear from ``model.parameters()``, without an error.

    Fault: ``parameters_hidden``.
    """
    if trial.subject.shape == "wrap_fn":
        raise NotApplicableError("wraps functions, not modules")
    model, _ = two_blocks()
    expected = len(leaves(model.trainable_parameters()))
    with trial.wrapping(model, "wrapped blocks in a list") as wrap:
        stored: list[Any] = [wrap(block) for block in model.blocks]
        model.blocks = stored
        got = len(leaves(model.trainable_parameters()))
    if got != expected:
        raise ConformanceError(f"parameters of a model with wrapped blocks in its list: got {got}, expected {expected}")


@check(modes=EAGER)
def container_once(trial: Trial) -> None:
    """S8 (optional): A list or dict among the arguments that the block adds to is added to once.

    Source: caches of keys and values are handed to blocks and filled by them.

    Fault: ``container_filled_twice``.
    """
    trial.expect_equal(CACHE, "values", "gradients")


@check(modes=EAGER)
def python_state_once(trial: Trial) -> None:
    """S9 (optional): What a block counts in Python is counted once, and the recomputation sees the forward's count.

    Source: step counters that are plain integers.

    Fault: ``python_counter_twice``.
    """
    trial.expect_equal(TALLY, "values", "gradients")
