"""Gradient checkpointing: forget a block's activations after the forward, and recompute them in the backward.

``checkpoint`` is a drop-in for ``mlx.nn.utils.checkpoint``: a custom function whose backward runs the block
again. What it adds are the promises in ``docs/rules.md``, above all these three.

* The recomputation starts no earlier than the gradient arrives, and ``mx.compile`` cannot merge it into the forward.
* No earlier block's backward starts before this block's parameter gradients exist ("ordered"), so that the
saving does not depend
  on the order in which MLX evaluates.
* It repeats the forward, with the same random numbers, buffers, modes, caches and variables, and leaves no trace in
any of them.
"""

import copy
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing.graph import after, watched
from tinygpt.checkpointing.recording import Recording
from tinygpt.checkpointing.trees import Structure, is_differentiable
from tinygpt.errors import CheckpointError

_made: "weakref.WeakSet[Callable[..., Any]]" = weakref.WeakSet()


def checkpoint(module: Callable[..., Any], fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a callable that computes what ``fn`` computes, and keeps none of its activations for the backward pass.

    Arrays that ``fn`` captures get their gradients too, and so do those that it leaves in an object, a dict, a list or
    a variable for others to use. Whatever holds such arrays is changed once; a counter outside of the modules counts
    the recomputation too.

    Args:
        module: The module whose parameters ``fn`` uses; or, without ``fn``, any function.
        fn: What to run; ``module`` itself if not given.

    Returns:
        A module around ``module`` if no ``fn`` is given, so that its parameters stay visible where it is
        stored (under the name ``module``); otherwise a function. What is checkpointed already is returned as
        it is.

    Raises:
        CheckpointError: When called: the result has no array in it, or the recomputed one differs in number,
            shape or dtype, or leaves no array where the forward has left one.

    Source:
        Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", https://arxiv.org/abs/1604.06174;
        here every call is a segment of its own.
    """
    target = module if fn is None else fn
    if isinstance(target, Checkpointed) or (not isinstance(target, nn.Module) and target in _made):
        return target
    if isinstance(target, nn.Module) and target is module:
        return Checkpointed(target)
    owner = module if isinstance(module, nn.Module) else getattr(module, "__self__", None)

    @functools.wraps(target)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return call(target, owner, args, kwargs)

    _made.add(checkpointed)
    return checkpointed


class Checkpointed(nn.Module):
    """A module whose calls are checkpointed; it has the parameters and the attributes of the module inside."""

    def __init__(self, module: nn.Module) -> None:
        """Wrap ``module``, which stays as it is."""
        super().__init__()
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module inside."""
        return call(self.module, self.module, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """Look for ``name`` here, then in the module inside."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "module" not in self:  # not there yet
                raise
            return getattr(self["module"], name)


def call(fn: Callable[..., Any], module: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``fn`` once now, and once more for each backward pass through its result.

    Args:
        fn: What to run.
        module: Whose parameters it uses, if it is known.
        args: Its arguments.
        kwargs: Its arguments by name.

    Raises:
        CheckpointError: As ``checkpoint`` says.
    """
    recording = Recording(fn, module, args, kwargs)
    result = Structure(recording.forward(args, kwargs))
    if not result.arrays:
        name = getattr(fn, "__qualname__", type(fn).__name__)
        raise CheckpointError(f"[checkpoint] result of {name}: got no array, expected at least one")
    computed = [*result.arrays, *(copy.copy(crossing.get()) for crossing in recording.crossings)]
    outputs = [mx.stop_gradient(array) for array in computed]
    floats = [place for place, array in enumerate(outputs) if is_differentiable(array)]
    if floats:
        forgetful = _forget(recording, computed, floats)
        for place, array in zip(floats, forgetful, strict=True):
            outputs[place] = array
    recording.hand_over(outputs[len(result.arrays) :])
    return result.fill(outputs[: len(result.arrays)])


def _forget(recording: Recording, results: Sequence[mx.array], floats: Sequence[int]) -> list[mx.array]:
    """Return the floating-point results, cut off from what they were computed by; a gradient recomputes them."""
    expected = [(array.shape, array.dtype) for array in results]
    wanted: set[int] = set()
    computed = [[results[place] for place in floats]]

    def recompute(inputs: Sequence[mx.array], constants: Sequence[mx.array]) -> list[mx.array]:
        result, left = recording.replay(inputs, constants)
        again = [*Structure(result).arrays, *left]
        _check_equal([(array.shape, array.dtype) for array in again], expected)
        return [again[place] for place in floats]

    @mx.custom_function
    def forward(inputs: list[mx.array]) -> list[mx.array]:
        # MLX calls this now, when the results are there already, and again when it is vmapped or
        # differentiated forward.
        return computed.pop() if computed else recompute(inputs, recording.constants)

    @forward.vjp
    def backward(inputs: list[mx.array], cotangents: list[mx.array], _: list[mx.array]) -> list[mx.array]:
        return _gradients(recording, recompute, inputs, {place: cotangents[place] for place in sorted(wanted)})

    # Integers have no gradient, and yet they have to be inputs, for vmap to reach them.
    inputs = [a if is_differentiable(a) else mx.stop_gradient(a) for a in recording.inputs]
    outputs = cast("list[mx.array]", forward(inputs))
    return [watched(output, functools.partial(wanted.add, place)) for place, output in enumerate(outputs)]


def _gradients(
    recording: Recording,
    recompute: Callable[[Sequence[mx.array], Sequence[mx.array]], list[mx.array]],
    inputs: Sequence[mx.array],
    cotangents: dict[int, mx.array],
) -> list[mx.array]:
    """Recompute, and return the gradient of every input, that of an argument not before those of all parameters.

    Args:
        recording: The call.
        recompute: Gives the floating-point results for other inputs and constants.
        inputs: One array for each of ``recording.inputs``.
        cotangents: The gradients that have arrived, by the position of the result. A result that nothing
            depends on has none.
    """
    count = recording.argument_count
    arrived = after([*inputs, *recording.constants], list(cotangents.values()))
    inputs, constants = arrived[: len(inputs)], arrived[len(inputs) :]
    variables = [place for place, array in enumerate(inputs) if is_differentiable(array)]
    used = set(variables).difference(recording.foreign)

    def results(*values: mx.array) -> list[mx.array]:
        again = dict(enumerate(inputs))
        again.update(zip(variables, values, strict=True))
        for place in recording.foreign:
            again[place] = watched(again[place], functools.partial(used.add, place))
        outputs = recompute(list(again.values()), constants)
        # mx.vjp loses the gradient of an array that is returned twice, and miscounts behind one that is cut
        # off by stop_gradient. A new axis makes a node of its own out of each.
        return [mx.expand_dims(outputs[place], 0) for place in cotangents]

    _, found = mx.vjp(
        results,
        [inputs[place] for place in variables],
        [mx.expand_dims(cotangent, 0) for cotangent in cotangents.values()],
    )
    gradients = dict(zip(variables, found, strict=True))
    released = [gradients[place] for place in variables if place < count or place in used]
    for place in (place for place in variables if place < count):
        # One node for each: MLX 0.29.4 and 0.30.0 crash where a compiled function returns one of several
        # results of a node.
        (gradients[place],) = after([gradients[place]], released)
    return [gradients[place] if place in used else _zeros(array) for place, array in enumerate(inputs)]


def _zeros(array: mx.array) -> mx.array:
    """Return zeros like ``array`` that take no memory."""
    return mx.broadcast_to(mx.zeros((), array.dtype), array.shape)


def _check_equal(recomputed: list[tuple[Any, Any]], expected: list[tuple[Any, Any]]) -> None:
    """Raise if the recomputed results are others than the forward's, as far as one can see without evaluating them."""
    if len(recomputed) != len(expected):
        raise CheckpointError(
            f"[checkpoint] arrays in the recomputed result: got {len(recomputed)}, expected {len(expected)}"
        )
    for place, (again, first) in enumerate(zip(recomputed, expected, strict=True)):
        for what, got, want in zip(("shape", "dtype"), again, first, strict=True):
            if got != want:
                raise CheckpointError(f"[checkpoint] {what} of recomputed result {place}: got {got}, expected {want}")
