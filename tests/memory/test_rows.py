import pytest

from tinygpt.environment import backend
from tinygpt.presets import PRESETS, ROWS
from tinygpt.savings import judge, plan, read_row, threshold
from tinygpt.savings.table import as_record

pytestmark = pytest.mark.memory


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row_saves_what_its_threshold_says(row, machine, record_row):
    """A checkpointed training step of the row has equal gradients and a peak below its share of the plain one's."""
    as_run = plan(row, machine)

    report = judge(as_run, read_row(as_run, compiled=True), threshold(row, backend()))

    record_row(as_record(report))
    assert report.passed, report.verdict


def test_rows_cover_every_preset_but_titan():
    """Every preset of the seed's table has a row; titan is beyond it and has none."""
    assert {row.preset for row in ROWS} == PRESETS.keys() - {"titan"}
