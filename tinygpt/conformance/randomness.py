"""Randomness: the recomputation sees the random numbers of the forward, and nobody else notices it."""

import itertools

import mlx.core as mx

from tinygpt.conformance.cases import SHAPE, Block, Case, Stack, energy, fresh, in_turn, two_blocks
from tinygpt.conformance.rules import COMPILED, check
from tinygpt.conformance.subjects import Wrap
from tinygpt.conformance.trial import Trial, value_and_grad
from tinygpt.errors import ConformanceError

DROPOUT = Case("dropout", lambda: two_blocks(dropout=0.3), in_turn)


class _KeyedDropout(Block):
    """A block whose mask is drawn with the key that it is given."""

    def __call__(self, x: mx.array, key: mx.array) -> mx.array:  # type: ignore[override]
        y = super().__call__(x)
        return y * mx.random.bernoulli(0.5, y.shape, key=key)


def _keyed() -> tuple[Stack, tuple[mx.array, mx.array]]:
    block = fresh(_KeyedDropout)
    return Stack([block(), block()]), (mx.random.normal(SHAPE), mx.random.key(7))


def _with_keys(model: Stack, wrap: Wrap, x: mx.array, key: mx.array) -> mx.array:
    for block, part in zip(model.blocks, mx.random.split(key), strict=True):
        x = wrap(block)(x, part)
    return energy(x)


KEYS = Case("keys as arguments", _keyed, _with_keys)


@check()
def same_masks(trial: Trial) -> None:
    """R1 (required): With dropout inside, the gradient belongs to the forward's mask: it equals plain's of that seed.

    Source: MLX's own wrappers recompute with another mask, on every release from 0.26.5 to 0.32.4; OLMo-core#828.

    Fault: ``new_mask_in_recompute``.
    """
    trial.expect_equal(DROPOUT, "gradients", "values")


@check()
def state_afterwards(trial: Trial) -> None:
    """R2 (required): The random state after the steps is the plain run's.

    Source: a recomputation that draws on moves every later mask; unsloth-zoo#1081.

    Fault: ``recompute_draws_on``, ``random_state_rewound``.
    """
    trial.expect_equal(DROPOUT, "draw")


@check(modes=COMPILED)
def fresh_masks_when_compiled(trial: Trial) -> None:
    """R3 (required): Inside ``mx.compile`` masks and state are those of the plain compiled run, step after step.

    Source: a key that is read while MLX traces becomes a constant of the compiled function.

    Fault: ``key_baked_in``.
    """
    trial.expect_equal(DROPOUT, "gradients", "values", "draw")


@check()
def different_masks(trial: Trial) -> None:
    """R4 (required): Consecutive steps, and blocks side by side, draw different masks.

    Source: a wrapper that seeds in order to repeat makes every mask the same.

    Fault: ``one_mask_for_all``.
    """
    mx.random.seed(0)
    model, (x,) = two_blocks(dropout=0.5)
    dropped = []
    with trial.wrapping(model, "dropout") as wrap:

        def masks(x: mx.array) -> tuple[mx.array, list[mx.array]]:
            """Return a loss, and of each block where its branch was dropped."""
            found = []
            for block in model.blocks:
                y = wrap(block)(x)
                found.append(y == x)
                x = y
            return x.sum(), found

        step = value_and_grad(model, masks, compiled=trial.compiled)
        for number in (1, 2):
            (_, found), _ = step(x)
            dropped += [(f"step {number} block {place}", mask) for place, mask in enumerate(found)]
    same = [
        f"{name} and {other}" for (name, a), (other, b) in itertools.combinations(dropped, 2) if mx.array_equal(a, b)
    ]
    if same:
        raise ConformanceError(f"dropout: got the same mask in {'; '.join(same)}, expected different ones")


@check()
def keys(trial: Trial) -> None:
    """R5 (required): Explicit keys as arguments are taken, and the recomputation uses them again.

    Source: ``mx.checkpoint`` raises "vjp Not implemented for RandomBits" on MLX 0.26.5 to 0.32.4.

    Fault: ``keys_differentiated``.
    """
    trial.expect_equal(KEYS, "values", "gradients")
