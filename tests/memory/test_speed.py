"""Step time and peak of presets, policies and wrappers: ``pytest -m benchmark --benchmark-json FILE``.

``tinygpt report benchmark`` compares two such files. An ordinary run leaves out all but the cases of the smallest row
that recompute whole blocks, see ``conftest.py``: the benchmark has to be asked for by its marker.
"""

import json
import os
from typing import NamedTuple

import mlx.core as mx
import mlx.optimizers as optim
import pytest

from tinygpt.checkpointing import POLICIES, WRAPPERS, checkpointed_blocks
from tinygpt.checkpointing import plan as plan_of
from tinygpt.environment import describe
from tinygpt.memory.estimate import estimate_peak
from tinygpt.memory.in_flight import lean_evaluation
from tinygpt.memory.measure import counters, reset_peak, settle
from tinygpt.model import GPT
from tinygpt.presets import PRESETS, Row
from tinygpt.report.benchmark import read
from tinygpt.savings import plan
from tinygpt.train import TrainStep
from tinygpt.train.data import Batches, read_corpus

pytestmark = pytest.mark.benchmark

# One row for each preset, after one that is small enough for every run.
SMALLEST = Row("tiny", 2, 128)
ROWS = (
    SMALLEST,
    Row("tiny", 8, 128),
    Row("huge", 8, 256),
    Row("mega", 2, 1024),
    Row("behemoth", 4, 1024),
    Row("titan", 1, 1024),
)
CHECKPOINTED = ("all", "every:2", "first:2", "segments:2", "sqrt", "attention", "selective", "halves")
DTYPE = "float32"
COMPILED = "MLX_DISABLE_COMPILE" not in os.environ  # conftest.py sets it where there is no compiler
ROUNDS_ASKED, ROUNDS = 5, 3
WARM_UP_ROUNDS = 1


class Case(NamedTuple):
    """A step that is timed; the plain one has policy ``none`` and wrapper ``plain``."""

    row: Row
    policy: str
    wrapper: str

    def __str__(self):
        return f"{self.row} {self.policy} {self.wrapper}"


CASES = [
    case
    for row in ROWS
    for case in (
        Case(row, "none", "plain"),  # first, because the others are compared with it
        *(Case(row, policy, wrapper) for policy in CHECKPOINTED for wrapper in WRAPPERS),
    )
]
ORDINARY = [case for case in CASES if case.row == SMALLEST and case.policy in ("none", "all")]


@pytest.fixture(scope="module")
def plain_peaks():
    """The peak of the plain step of each row, in bytes, as far as it has run."""
    return {}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=str(case), marks=() if case in ORDINARY else pytest.mark.asked) for case in CASES]
)
def test_speed_of_a_training_step(benchmark, case, machine, plain_peaks, request):
    """A step, compiled where that is possible, and clipped; compare medians and peaks of one machine."""
    benchmark.group = f"training step, {case.row}"
    as_run = plan(case.row, machine)
    if case not in ORDINARY and not as_run.whole:
        pytest.skip(f"{case.row} is too large for this machine, by {as_run.reason}; see --memory-budget")
    rounds = ROUNDS_ASKED if "benchmark" in request.config.option.markexpr else ROUNDS

    readings = timed(benchmark, case, rounds)

    peak = min(readings[-rounds:])
    if case.policy == "none":
        plain_peaks[case.row] = peak
    benchmark.extra_info.update(extra_info(case, peak, plain_peaks.get(case.row)))
    assert peak > 0
    assert benchmark.disabled or len(benchmark.stats.stats.data) == rounds


def timed(benchmark, case, rounds):
    """Time the step of a case and return the peak of each run, in bytes, warm-up first."""
    settle()
    foreign = counters().active_bytes  # what other tests have left
    mx.random.seed(0)
    model = GPT(case.row.config)
    blocks = (
        None
        if case.policy == "none"
        else checkpointed_blocks(model.blocks, case.policy, WRAPPERS[case.wrapper], cuts=model.config.cuts)
    )
    step = TrainStep(model, optim.AdamW(1e-4), blocks=blocks, clip_norm=1.0, compiled=COMPILED)
    text = Batches(read_corpus(None), batch=case.row.batch, context=case.row.context, seed=0)
    tokens = mx.array(text.at(1), mx.int32)
    mx.eval(tokens)
    peaks = []

    def before():
        mx.synchronize()
        reset_peak()

    def run():
        with lean_evaluation():
            step(tokens)
        mx.synchronize()
        peaks.append(counters().peak_bytes - foreign)  # takes microseconds

    benchmark.pedantic(run, setup=before, rounds=rounds, warmup_rounds=WARM_UP_ROUNDS)
    return peaks


def extra_info(case, peak_bytes, plain_bytes):
    """Return what a benchmark's record says beside its times; sizes in bytes."""
    row, config = case.row, case.row.config
    segments = plan_of(case.policy, config.n_layer, cuts=config.cuts)
    info = {
        "row": str(row),
        "policy": case.policy,
        "wrapper": case.wrapper,
        "compiled": COMPILED,
        "dtype": DTYPE,
        "peak_bytes": peak_bytes,
        "estimate_bytes": estimate_peak(config, segments, batch=row.batch, context=row.context).peak_bytes,
        "ratio_to_plain": None,
        "schedule": "training step",
        **describe(),
    }
    if case.policy == "none":
        return info | {"ratio_note": "null: this is the plain step that the others are compared with"}
    if plain_bytes is None:
        return info | {"ratio_note": "null: the plain step of this row was not run"}
    return info | {"ratio_to_plain": peak_bytes / plain_bytes}


def test_benchmark_covers_every_preset_and_every_kind_of_policy():
    """Nothing that the product offers by name is left out, and the ordinary run is five steps."""
    kinds = {policy.partition(":")[0] for policy in POLICIES}

    assert {row.preset for row in ROWS} == PRESETS.keys()
    assert {policy.partition(":")[0] for policy in (*CHECKPOINTED, "none")} == kinds
    assert len(CASES) == len(set(CASES)) == len(ROWS) * (1 + len(CHECKPOINTED) * len(WRAPPERS))
    assert [case.wrapper for case in ORDINARY] == ["plain", *WRAPPERS]


def test_record_is_what_the_report_reads():
    """What is written beside the times has every field that a comparison needs; ratios that are null say why."""
    infos = [extra_info(case, 3, plain) for case, plain in zip(ORDINARY[:3], (None, 4, None), strict=True)]
    records = [{"extra_info": info, "stats": {"median": 0.5}} for info in infos]

    run = read(json.dumps({"benchmarks": records}), "here")

    ending = "" if COMPILED else " eager"
    assert list(run.cases) == [f"{case}{ending}" for case in ORDINARY[:3]]
    assert [info["ratio_to_plain"] for info in infos] == [None, 0.75, None]
    assert ["ratio_note" in info for info in infos] == [True, False, True]
