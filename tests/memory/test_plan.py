"""What the memory table makes of readings: pure arithmetic, with readings made up here."""

import pytest

from tinygpt.conformance.compare import Difference
from tinygpt.memory.estimate import activation_bytes, block_parameter_bytes
from tinygpt.memory.measure import Reading
from tinygpt.presets import ROWS, Row
from tinygpt.savings import Machine, judge, plan, threshold
from tinygpt.savings.plan import Plan
from tinygpt.savings.reading import Pair
from tinygpt.savings.table import as_lines, as_record

FAST = Machine(flops_per_s=1e15, memory_bytes=1 << 40, budget_s=15)
SLOW = Machine(flops_per_s=6e9, memory_bytes=1 << 40, budget_s=15)
SMALL = Machine(flops_per_s=1e15, memory_bytes=8 << 30, budget_s=15)

TINY = Row("tiny", 8, 128)
MEGA = Row("mega", 2, 1024)


def reading(peak_bytes, base_bytes=0):
    """Return a reading with that peak."""
    return Reading("made up", base_bytes, (peak_bytes,), 0, exact=True)


def whole(plain, checkpointed, differences=()):
    """Return the readings of a row that ran whole."""
    return (Pair(4, tuple(differences), reading(plain, 1000), reading(checkpointed, 1000)),)


def projected(*, kept=1.0, grown=0.0):
    """Return a plan of mega, and readings in which a block keeps and adds those shares of its activations."""
    as_run = Plan(MEGA, (1, 3), 1, 512, "time")
    activations = activation_bytes(MEGA.config, batch=1, context=512)
    gradients = block_parameter_bytes(MEGA.config)
    return as_run, tuple(
        Pair(
            depth,
            (),
            reading(int(activations * (0.8 + kept * depth))),
            reading(int(activations * (1.6 + grown * depth) + gradients * depth)),
        )
        for depth in as_run.depths
    )


def test_fast_machine_runs_every_row_as_it_is_meant():
    """Where time and memory suffice, nothing is reduced."""
    plans = [plan(row, FAST) for row in ROWS]

    assert [(p.whole, p.depths, p.batch, p.context, p.reason) for p in plans] == [
        (True, (row.config.n_layer,), row.batch, row.context, "") for row in ROWS
    ]


def test_slow_machine_runs_tiny_whole_and_blocks_of_the_others():
    """On 6 GFLOP/s only tiny is whole; the reason is named, and activations still outweigh gradients."""
    plans = [plan(row, SLOW) for row in ROWS]

    assert [p.whole for p in plans] == [row == TINY for row in ROWS]
    for reduced in plans[1:]:
        assert (reduced.depths, reduced.batch, reduced.reason) == ((1, 3), 1, "time")
        assert activation_bytes(reduced.row.config, batch=1, context=reduced.context) > block_parameter_bytes(
            reduced.row.config
        )


def test_small_machine_runs_blocks_of_what_does_not_fit():
    """A row that would not fit into memory is reduced for that reason."""
    assert {str(row): plan(row, SMALL).reason for row in ROWS} == {
        "tiny 8x128": "",
        "huge 8x256": "",
        "huge 4x1024": "",
        "mega 2x1024": "",
        "behemoth 1x1024": "memory",
        "behemoth 2x1024": "memory",
        "behemoth 3x1024": "memory",
        "behemoth 4x1024": "memory",
    }


@pytest.mark.parametrize(
    ("checkpointed", "verdict"), [(5200, "pass"), (5201, "fail: ratio 0.620, expected at most 0.62")]
)
def test_threshold_is_the_largest_ratio_that_passes(checkpointed, verdict):
    """Exactly at the threshold passes, one byte above fails."""
    report = judge(plan(TINY, FAST), whole(9000, checkpointed), 0.62)

    assert (report.plain_bytes, report.checkpointed_bytes) == (10000, checkpointed + 1000)
    assert report.verdict == verdict


def test_unequal_gradients_gate_the_verdict():
    """A wrapper that loses gradients has the best peak, and fails before it is looked at."""
    report = judge(plan(TINY, FAST), whole(9000, 10, [Difference("w", "largest difference 1, expected 0")]), 0.62)

    assert report.verdict == "fail: gated, 1 gradients differ at 4 blocks, first w: largest difference 1, expected 0"
    assert not report.passed


def test_projection_of_blocks_passes():
    """What a right wrapper reads at one and three blocks passes at full depth."""
    report = judge(*projected(), threshold(MEGA, "cpu"))

    assert report.verdict == "pass"
    assert 0.2 < report.ratio < 0.4


def test_projection_fails_where_a_checkpointed_block_keeps_its_activations():
    """A wrapper that saves nothing fails however few blocks were run."""
    report = judge(*projected(grown=1.0), threshold(MEGA, "cpu"))

    assert report.verdict.startswith("fail: a checkpointed block adds ")


def test_projection_fails_where_the_arithmetic_does_not_hold():
    """If a plain block keeps something else than computed, the projection means nothing, and says so."""
    report = judge(*projected(kept=1.5), threshold(MEGA, "cpu"))

    assert report.verdict.startswith("fail: a plain block keeps ")


def test_thresholds_cover_every_row_on_every_backend():
    """No row is without a threshold, and none of them allows more than plain training needs."""
    assert [
        threshold(row, backend)
        for row in ROWS
        for backend in ("cpu", "metal", "cuda")
        if not 0 < threshold(row, backend) <= 1
    ] == []


def test_table_marks_what_was_projected():
    """The table has a line for each row, in columns, and says what was projected and why."""
    reports = [judge(plan(TINY, FAST), whole(9000 << 10, 3000 << 10), 0.62), judge(*projected(), 0.4)]

    lines = as_lines([as_record(report) for report in reports])

    assert len(lines) == 4
    assert lines[0].split() == ["row", "as", "run", "plain", "checkpointed", "ratio", "threshold", "verdict"]
    assert lines[1].split() == [
        "tiny",
        "8x128",
        "4",
        "blocks,",
        "8x128",
        "8.8",
        "MiB",
        "2.9",
        "MiB",
        "0.333",
        "0.62",
        "pass",
    ]
    assert "1 and 3 blocks, 1x512" in lines[2]
    assert "~" in lines[2]
    assert lines[3] == "~ 1 of 2 rows projected from the blocks as run, for want of time"
