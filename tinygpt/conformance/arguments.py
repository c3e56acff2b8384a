"""Arguments: whatever people pass, and whatever comes back."""

import enum
import re
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.conformance.cases import SHAPE, WIDTH, Block, Case, Stack, energy, fresh, in_turn, two_blocks
from tinygpt.conformance.rules import EAGER, check
from tinygpt.conformance.subjects import Wrap
from tinygpt.conformance.trial import Trial, plainly
from tinygpt.errors import ConformanceError

VOCABULARY = 10


class _Mode(enum.Enum):
    SCALED = 3


class _Demanding(Block):
    """A block with arguments of every kind."""

    def __call__(  # type: ignore[override]
        self, x: mx.array, mode: _Mode, power: int, *, tree: dict[str, Any], word: str, mask: None, negate: bool = False
    ) -> mx.array:
        y = super().__call__(x) * tree["scales"][0] + tree["shift"]
        return y**power * (-1 if negate else 1) * mode.value * len(word) + (0 if mask is None else mask)  # type: ignore[no-any-return]


class _Embedding(nn.Module):
    """A block that looks tokens up, with positions and a Boolean mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.block = Block()

    def __call__(self, tokens: mx.array, positions: mx.array, mask: mx.array) -> mx.array:
        y = self.table(tokens) + mx.take(self.table.weight, positions, axis=0)
        return mx.where(mask[..., None], self.block(y), 0)


class _InPlace(Block):
    """A block that writes into its argument."""

    def __call__(self, x: mx.array) -> mx.array:
        x += 1
        return super().__call__(x)


def _demanding() -> tuple[Stack, tuple[mx.array]]:
    model = Stack([fresh(_Demanding)()], scale=mx.random.normal((WIDTH,)))
    return model, (mx.random.normal(SHAPE),)


def _with_all_arguments(model: Stack, wrap: Wrap, x: mx.array) -> tuple[mx.array, mx.array]:
    tree = {"scales": [model.scale, (x, None)], "shift": x}
    y: mx.array = wrap(model.blocks[0])(x, _Mode.SCALED, 2, tree=tree, word="word", mask=None, negate=True)
    return energy(y), y


def _tokens() -> tuple[Stack, tuple[mx.array, ...]]:
    tokens = mx.random.randint(0, VOCABULARY, (3, 5))
    return Stack([fresh(_Embedding)()]), (tokens, mx.arange(5).astype(mx.uint32), tokens > 3)


def _look_up(model: Stack, wrap: Wrap, *batch: mx.array) -> mx.array:
    return energy(wrap(model.blocks[0])(*batch))


def _in_place() -> tuple[Stack, tuple[mx.array]]:
    return Stack([fresh(_InPlace)()]), (mx.random.normal(SHAPE),)


def _write_in_place(model: Stack, wrap: Wrap, x: mx.array) -> tuple[mx.array, mx.array]:
    x = x * 1  # the batch itself stays as it is
    return in_turn(model, wrap, x)[0], x


EVERY_ARGUMENT = Case("arguments of every kind", _demanding, _with_all_arguments)
TOKENS = Case("token ids, positions and a mask", _tokens, _look_up)
IN_PLACE = Case("a block that writes into its argument", _in_place, _write_in_place)

CHANGES: dict[str, tuple[Callable[[mx.array], Any], str]] = {
    "shape": (lambda y: y[:, :1], r"shape"),
    "dtype": (lambda y: y.astype(mx.float16), r"d?type"),
    "number": (lambda y: [y, y], r"number|arrays|outputs|results|count|length"),
}


@check()
def any_kind(trial: Trial) -> None:
    """A1 (required): Arguments may be keywords, ``None``, strings, numbers, Booleans, enums and nested trees.

    Source: the calls of mlx-lm's blocks: masks that are ``None`` or a string, caches, flags.

    Fault: ``keywords_dropped``, ``constants_refused``, ``nested_arrays_detached``.
    """
    trial.expect_equal(EVERY_ARGUMENT, "values", "gradients")


@check()
def integers(trial: Trial) -> None:
    """A2 (required): Integer and Boolean arrays are taken: token ids for an embedding inside, indices, masks.

    Source: nothing can be differentiated by them, and MLX raises where one asks.

    Fault: ``integers_as_floats``.
    """
    trial.expect_equal(TOKENS, "values", "gradients")


@check(modes=EAGER)
def no_array(trial: Trial) -> None:
    """A3 (required): A function that returns no array gives an error or its result, and the interpreter lives.

    Source: a segmentation fault of ``mx.checkpoint`` on MLX 0.32.4.

    Fault: ``dies_of_no_array``, ``no_array_replaced``.
    """
    model, (x,) = two_blocks()
    with trial.wrapping(model, "a function that returns None") as wrap:
        run = wrap(model.blocks[0], lambda x: None)  # noqa: ARG005
        try:
            got = run(x)
        except Exception as error:
            if not str(error):
                raise ConformanceError("a function that returns None: got an error without words") from error
            return
    if got is not None:
        raise ConformanceError(f"a function that returns None: got {got!r}, expected None or an error")


@check(modes=EAGER)
def changed_recompute(trial: Trial) -> None:
    """A4 (required): A recomputation with other shapes, dtypes or number of results is an error that says which.

    Source: the backward would go on with arrays that do not fit; PyTorch's ``CheckpointError``.

    Fault: ``change_unnoticed``, ``change_without_words``.
    """
    for what, (change, words) in CHANGES.items():
        model, (x,) = two_blocks()
        block = model.blocks[0]
        runs: list[int] = []

        def function(x: mx.array, block: nn.Module = block, change: Any = change, runs: list[int] = runs) -> Any:
            runs.append(1)
            return block(x) if len(runs) == 1 else change(block(x))

        with trial.wrapping(model, f"a recomputation with another {what}") as wrap:
            run = wrap(block, function)
            try:
                mx.eval(nn.value_and_grad(model, lambda x, run=run: run(x).sum())(x))
            except Exception as error:
                if not re.search(words, str(error), re.IGNORECASE):
                    raise ConformanceError(
                        f"a recomputation with another {what}: got {str(error)!r}, expected words about the {what}"
                    ) from error
                continue
        if len(runs) < 2:
            raise ConformanceError("gated: the function ran once, nothing was recomputed")
        raise ConformanceError(f"a recomputation with another {what}: got gradients, expected an error that says so")


@check(modes=EAGER)
def written_in_place(trial: Trial) -> None:
    """A5 (optional): A block that writes into its argument does so once, as in the plain run.

    Source: ``x += y`` changes the caller's array on MLX.

    Fault: ``argument_written_twice``.
    """
    with plainly(f"case '{IN_PLACE}'"):
        trial.expect_equal(IN_PLACE, "values", "gradients")
