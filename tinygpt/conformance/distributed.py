"""Data parallel: processes that each have some rows of a batch, and average their gradients with MLX's own layer."""

from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from tinygpt.conformance.cases import SHAPE, Block, Case, Stack, fresh, in_turn
from tinygpt.conformance.compare import differences
from tinygpt.conformance.rank import averaged
from tinygpt.conformance.rules import EAGER, check
from tinygpt.conformance.subjects import PLAIN, Subject
from tinygpt.conformance.tolerances import ATOMIC_ADDITIONS
from tinygpt.conformance.trial import SEED, SHOWN, STEPS, Everything, Trial, plainly, value_and_grad
from tinygpt.environment import backend
from tinygpt.errors import ConformanceError
from tinygpt.leaves import leaves

RANKS = 2  # for whom the sum has one order: with two numbers there is no other


def _rows(dropout: float, *, alike: bool) -> tuple[Stack, tuple[mx.array]]:
    """Return two blocks and a batch with three rows for each rank; alike, every rank has the same."""
    block = fresh(Block)
    model = Stack([block(dropout), block(dropout)])
    rows = mx.random.normal(SHAPE)
    return model, (mx.concatenate([rows, rows if alike else mx.random.normal(SHAPE)]),)


DIFFERENT_ROWS = "two blocks on the rows of two ranks"
SAME_ROWS = "two blocks with dropout on the same rows on two ranks"
CASES = {
    DIFFERENT_ROWS: Case(DIFFERENT_ROWS, lambda: _rows(0.0, alike=False), in_turn),
    SAME_ROWS: Case(SAME_ROWS, lambda: _rows(0.5, alike=True), in_turn),
}


@check()
def averaged_gradients(trial: Trial) -> None:
    """D1 (required): Two ranks that average gradients have those of one process on the joined batch.

    Source: ``mlx.nn.average_gradients``, which pairs the gradients of all ranks by their position.

    Fault: ``gradients_summed``, ``second_rank_dropped``, ``cotangents_averaged``, ``trees_that_differ``.
    """
    _expect_joined(trial, DIFFERENT_ROWS)


@check(modes=EAGER)
def masks_of_each_rank(trial: Trial) -> None:
    """D1 (required): Each rank drops what its own random state says, also where both have the same rows.

    Source: equal masks make two ranks one, and the batch half of what it is said to be.

    Fault: ``masks_equal_on_all_ranks``.
    """
    _expect_joined(trial, SAME_ROWS)


def _expect_joined(trial: Trial, name: str) -> None:
    """Raise unless each rank has plain's values on its rows, with its masks, and the mean of plain's gradients."""
    case = CASES[name]
    with plainly(f"case '{case}'"):
        shares = [share(case, PLAIN, rank, RANKS, compiled=trial.compiled) for rank in range(RANKS)]
    mean = tree_map(lambda *each: sum(each[1:], start=each[0]) / RANKS, *(found["gradients"] for found in shares))
    with trial.guarded(f"case '{case}'"):
        got = averaged(trial.subject, name, compiled=trial.compiled, count=RANKS)
    for rank, (seen, plain) in enumerate(zip(got, shares, strict=True)):
        for part, expected in (("values", plain["values"]), ("gradients", mean)):
            unlike = _differences({key: mx.array(each) for key, each in seen[part].items()}, leaves(expected))
            if unlike:
                raise ConformanceError(
                    f"case '{case}': {part} of rank {rank} unlike the joined batch's: "
                    f"{'; '.join(map(str, unlike[:SHOWN]))}"
                )


def _differences(got: Any, expected: Any) -> list[Any]:
    if backend() == "cuda":
        return differences(got, expected, loose=Everything(), tolerance=ATOMIC_ADDITIONS)
    return differences(got, expected)


def share(case: Case, subject: Subject, rank: int, count: int, *, compiled: bool) -> dict[str, Any]:
    """Return values and gradients of two steps on the rows of one rank, with a random state of its own; evaluated.

    Args:
        case: What to run; its batch is one array, whose rows are divided.
        subject: Who wraps.
        rank: Whose rows.
        count: How many ranks there are.
        compiled: Whether the step is compiled.
    """
    mx.random.seed(SEED)
    model, (rows,) = case.build()
    mx.eval(model.state, rows)
    size = len(rows) // count
    own = rows[rank * size : (rank + 1) * size]
    mx.random.seed(SEED + 1 + rank)
    with subject.applied(model) as wrap:
        step = value_and_grad(model, lambda batch: case.loss(model, wrap, batch), compiled=compiled)
        results = []
        for _ in range(STEPS):
            results.append(step(own))
            mx.eval(results[-1], model.state)
    return {
        "values": {f"step {number}": value for number, (value, _) in enumerate(results, start=1)},
        "gradients": {f"step {number}": gradients for number, (_, gradients) in enumerate(results, start=1)},
    }
