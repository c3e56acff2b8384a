"""Values: what a wrapped function returns."""

import collections
from typing import Any

import mlx.core as mx

from tinygpt.conformance.cases import SHAPE, TWO_BLOCKS, Block, Case, Stack, fresh, in_turn, two_blocks
from tinygpt.conformance.rules import EAGER, check
from tinygpt.conformance.subjects import Wrap
from tinygpt.conformance.trial import Trial, plainly
from tinygpt.errors import ConformanceError

Pair = collections.namedtuple("Pair", "first second")


class _Branching(Block):
    """A block that returns its input, and one array twice."""

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:  # type: ignore[override]
        y = self.branch(x)
        return x, y, y


class _Structured(Block):
    """A block that returns everything that people return."""

    def __call__(self, x: mx.array) -> Any:
        y = super().__call__(x)
        return {"pair": Pair(y, None), "list": [y * 2, (y * 3, "word", 4)], "nothing": None, "flag": True}


def _branching() -> tuple[Stack, tuple[mx.array]]:
    return Stack([fresh(_Branching)()], x=mx.random.normal(SHAPE)), (mx.random.normal(SHAPE),)


def _sum_of_branches(model: Stack, wrap: Wrap, x: mx.array) -> tuple[mx.array, list[mx.array]]:
    same, first, second = wrap(model.blocks[0])(model.x + x)
    # Powers of two: whoever adds these gradients up, in whatever order, gets the same bits.
    return same.sum() + 2 * first.sum() + 4 * second.sum(), [same, first, second]


FLOAT16 = Case("two blocks in float16", lambda: two_blocks(dtype=mx.float16), in_turn)
BFLOAT16 = Case("two blocks in bfloat16", lambda: two_blocks(dtype=mx.bfloat16), in_turn)
BRANCHES = Case("an input returned unchanged, and one array twice", _branching, _sum_of_branches)


@check()
def outputs(trial: Trial) -> None:
    """V1 (required): Outputs and loss equal those of the plain run, to the bit.

    Source: the definition of gradient checkpointing, Chen et al. 2016, https://arxiv.org/abs/1604.06174.

    Fault: ``output_scaled``, ``second_sequence_zero``, ``evaluates_its_output``.
    """
    trial.expect_equal(TWO_BLOCKS, "values")


@check(modes=EAGER)
def structure(trial: Trial) -> None:
    """V2 (required): The structure of the result is kept: dicts, lists, tuples, named tuples, ``None``, other leaves.

    Source: blocks return caches and auxiliary values; a named tuple comes back as a tuple on MLX 0.26.5.

    Fault: ``none_lost``, ``named_tuple_flattened``, ``first_result_only``.
    """
    mx.random.seed(0)
    model, x = Stack([fresh(_Structured)()]), mx.random.normal(SHAPE)
    with plainly("a block that returns a nested result"):
        expected = _outline(model.blocks[0](x))
    with trial.wrapping(model, "a block that returns a nested result") as wrap:
        got = _outline(wrap(model.blocks[0])(x))
    if got != expected:
        raise ConformanceError(f"structure of the result: got {got}, expected {expected}")


@check()
def half_precision(trial: Trial) -> None:
    """V3 (required): Outputs, loss and gradients in float16 and bfloat16 equal plain's, in the same dtypes.

    Source: a wrapper that computes in float32 takes back the memory for which half precision was chosen; mlx#3534.

    Fault: ``output_cast_up``, ``gradient_cast_up``.
    """
    for case in (FLOAT16, BFLOAT16):
        trial.expect_equal(case, "values", "gradients")


@check()
def repeated_arrays(trial: Trial) -> None:
    """V4 (required): An output that is an input unchanged, and one array returned twice, keep value and full gradient.

    Source: ``mx.vjp`` loses a cotangent of an array that it is given twice, on MLX 0.26.5 to 0.32.4.

    Fault: ``repeated_output_counted_once``.
    """
    trial.expect_equal(BRANCHES, "values", "gradients")


def _outline(tree: Any) -> str:
    """Return the containers and other leaves of a tree, and the shape of each array."""
    if isinstance(tree, mx.array):
        return f"array{tuple(tree.shape)}"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {_outline(value)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list | tuple):
        name = "" if type(tree) in (list, tuple) else type(tree).__name__
        left, right = ("[", "]") if isinstance(tree, list) else ("(", ")")
        return f"{name}{left}{', '.join(map(_outline, tree))}{right}"
    return repr(tree)
