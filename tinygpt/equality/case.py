"""One model, run plain and checkpointed, its losses and gradients compared leaf by leaf."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
from mlx.utils import tree_map_with_path

from tinygpt.checkpointing import WRAPPERS, checkpointed_blocks, wrapper
from tinygpt.config import GPTConfig
from tinygpt.conformance.compare import Difference, differences
from tinygpt.conformance.tolerances import BFLOAT16_EPSILON, FLOAT32_EPSILON, atomic_additions
from tinygpt.leaves import leaves
from tinygpt.model import GPT
from tinygpt.train import TrainStep
from tinygpt.variants import SMALL, VARIANTS, combined, pairs

BATCH = 2
LENGTH = 32


@dataclass(frozen=True)
class Case:
    """What is compared.

    Attributes:
        config: The model.
        length: Tokens in a sequence (T).
        batch: Sequences (B).
        dtype: Of the weights.
        compiled: Whether both runs are compiled.
        wrapper: Name of the wrapper.
        seed: Of the weights, the tokens and the dropout.
        ties: Whether all tokens are the same and all routers zero, so that every choice is a tie.
        distinct: Whether no token is read twice, so that a GPU need not add up rows of the embedding's gradient, which
            it does in an order that changes from run to run.
    """

    config: GPTConfig
    length: int = LENGTH
    batch: int = BATCH
    dtype: str = "float32"
    compiled: bool = False
    wrapper: str = "tinygpt"
    seed: int = 0
    ties: bool = False
    distinct: bool = False

    def model(self) -> GPT:
        """Return the model, with weights that depend on the seed alone."""
        mx.random.seed(self.seed)
        model = GPT(self.config)
        # No bias is zero and no scale one, or a wrong one would not show.
        model.update(tree_map_with_path(self._moved, model.parameters()))
        model.set_dtype(getattr(mx, self.dtype))
        return model

    def _moved(self, name: str, weight: mx.array) -> mx.array:
        return weight * 0 if self.ties and "router" in name else weight + 0.1 * mx.random.normal(weight.shape)

    def tokens(self) -> mx.array:
        """Return the batch, (B, T + 1) integers."""
        shape = (self.batch, self.length + 1)
        size, key = self.config.vocab_size, mx.random.key(self.seed)
        if self.ties:
            return mx.full(shape, 7 % size)
        if self.distinct:
            return mx.random.permutation(size, key=key)[: math.prod(shape)].reshape(shape)
        return mx.random.randint(0, size, shape, key=key)


@dataclass(frozen=True)
class Verdict:
    """What a comparison found.

    Attributes:
        leaves: How many arrays were compared: the losses, the norm, every gradient, the next random number.
        differences: Those that are not equal.
        loose: Names of those in which two plain runs differ as well, and that were held to a tolerance.
    """

    leaves: int
    differences: tuple[Difference, ...]
    loose: tuple[str, ...] = ()


def compare(case: Case) -> Verdict:
    """Run a case plain and checkpointed, and compare to the bit.

    Where that fails, plain is run again: leaves in which plain runs differ among themselves (sums by atomic
    additions on a GPU) are held to a tolerance instead.
    """
    model, tokens = case.model(), case.tokens()
    blocks = checkpointed_blocks(model.blocks, "all", wrapper(case.wrapper))
    expected = results(model, tokens, case, None)
    got = results(model, tokens, case, blocks)
    found = differences(got, expected)
    loose: tuple[str, ...] = ()
    if found:
        again = results(case.model(), tokens, case, None)  # the model may not be what it was
        loose = tuple(difference.leaf for difference in differences(again, expected))
        epsilon = {"float32": FLOAT32_EPSILON, "bfloat16": BFLOAT16_EPSILON}[case.dtype]
        tolerance = atomic_additions(case.batch * case.length, epsilon)
        found = differences(got, expected, loose=loose, tolerance=tolerance)
    return Verdict(len(leaves(expected)), tuple(found), loose)


def cases(*, distinct: bool = False) -> Iterator[tuple[str, Case]]:
    """Yield all variants and all pairs, eager and compiled, in both dtypes, under every wrapper that promises it.

    Dropout is for the wrappers that replay random numbers, which is ours alone.

    Args:
        distinct: Whether every token of a batch is another one, as a GPU needs it; the vocabulary is as large as that.
    """
    base = dataclasses.replace(SMALL, vocab_size=BATCH * (LENGTH + 1)) if distinct else SMALL
    chosen = [(name,) for name in VARIANTS] + pairs()
    ways = itertools.product(chosen, WRAPPERS, ("float32", "bfloat16"), (False, True))
    for names, by, dtype, compiled in ways:
        if "dropout" not in names or by == "tinygpt":
            words = ["+".join(names), by, dtype, "compiled" if compiled else "eager"]
            config = combined(*names, base=base)
            yield " ".join(words), Case(config, dtype=dtype, compiled=compiled, wrapper=by, distinct=distinct)


def results(model: GPT, tokens: mx.array, case: Case, blocks: Any) -> dict[str, Any]:
    """Return everything that a run of the model computes, as a tree of arrays, evaluated.

    Args:
        model: Of the case.
        tokens: Of the case.
        case: Says whether to compile, and the seed of the dropout.
        blocks: What to run instead of the model's blocks; None for themselves.
    """
    step = TrainStep(model, optim.AdamW(1e-3), blocks=blocks, compiled=case.compiled)
    mx.random.seed(case.seed + 1)
    found = step.gradients(tokens)
    drawn = mx.random.uniform()
    mx.eval(drawn)
    return {
        "loss": found.loss,
        "auxiliary": found.auxiliary,
        "norm": found.norm,
        "gradients": found.tree,
        "next draw": drawn,
    }
