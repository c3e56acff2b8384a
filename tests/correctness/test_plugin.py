"""The pytest plugin, run by pytest on tests of its own."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest_plugins = ["pytester"]

ROW = {
    "row": "tiny 8x128",
    "as_run": "4 blocks, 8x128",
    "whole": True,
    "reason": "",
    "plain_bytes": 3 << 20,
    "checkpointed_bytes": 1 << 20,
    "ratio": 1 / 3,
    "threshold": 0.62,
    "verdict": "pass",
}

TESTS = f"""
    import pytest

    @pytest.mark.memory
    @pytest.mark.parametrize("number", range(4))
    def test_row(record_row, number):
        record_row({ROW!r})

    def test_other():
        pass
"""


@pytest.fixture
def run(pytester):
    """Run pytest in a process of its own on the tests above."""
    pytester.makepyfile(TESTS)
    return lambda *arguments: pytester.runpytest_subprocess("-p", "tinygpt.pytest_plugin", *arguments)


def test_marker_selects_and_the_table_comes_last(run):
    """``-m memory`` runs the marked tests, and their rows are a table in the summary."""
    result = run("-m", "memory", "--strict-markers")

    result.assert_outcomes(passed=4, deselected=1)
    result.stdout.fnmatch_lines(["*memory of a training step*", "row *verdict", "tiny 8x128  4 blocks*pass"])


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_report_has_every_row(run, tmp_path, workers):
    """The JSON has the rows of all workers, and the environment."""
    if workers:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    report = tmp_path / "report.json"

    run("--memory-report", report, *workers).assert_outcomes(passed=5)

    content = json.loads(report.read_text())
    assert content["rows"] == [ROW] * 4
    assert "mlx" in content["environment"]["packages"]


def test_report_is_written_when_nothing_ran(run, tmp_path):
    """A report that was asked for is there, with no rows in it."""
    report = tmp_path / "report.json"

    run("--memory-report", report, "-k", "absent")

    assert json.loads(report.read_text())["rows"] == []


def test_without_rows_there_is_no_table(run):
    """Other people's runs are not disturbed."""
    assert "memory of a training step" not in run("-k", "other").stdout.str()


def test_unwritable_report_is_a_usage_error(run):
    """A report that cannot be written is refused before anything runs."""
    result = run("--memory-report", "/nowhere/report.json")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*memory-report] /nowhere/report.json: got no such folder, expected a file to write to*"]
    )


def test_tests_of_a_file_stay_in_one_process():
    """What measures memory must be alone: pytest and pytest-xdist have to agree on where the name of a group stands."""
    if importlib.util.find_spec("xdist") is None:
        pytest.skip("pytest-xdist is not installed")
    files = [f"tests/correctness/{name}.py" for name in ("test_trees", "test_plots_labels")]
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-v", "-p", "no:cacheprovider", *files]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    ran = re.findall(r"\[(gw\d)\].*(test_trees|test_plots_labels)\.py", done.stdout)

    assert done.returncode == 0, done.stdout
    assert {file for _, file in ran} == {"test_trees", "test_plots_labels"}
    assert len(set(ran)) == 2, "the tests of a file ran in several processes: --dist loadgroup groups nothing"
