"""The pytest doors of the judge, in pytest runs of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tinygpt.conformance.results import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_wrapper"

TWO_TESTS = """
import mlx.nn as nn
from tinygpt.conformance import parametrize_with_checks


@parametrize_with_checks(["plain", nn.utils.checkpoint], rules=["V2", "C2", "R2.*[[]eager]", "G11"])
def test_wrapper(check):
    check()
"""


def run(folder, *words):
    """Run pytest in a folder, with nothing of this project's settings."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def test_the_example_judges_a_wrapper_in_six_lines(tmp_path):
    """The example runs as it stands: many rules hold, and those that the text names do not."""
    lines = [line for line in (EXAMPLE / "test_own_wrapper.py").read_text().splitlines() if line.strip()]
    for name in ("own_wrapper.py", "test_own_wrapper.py"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text())

    run(tmp_path, "--conformance-report", "report.json")

    report = load(tmp_path / "report.json")
    failed = {result.check.partition(".")[0] for result in report.results if result.status == "fail"}
    assert len(lines) <= 6
    assert report.counts["required"]["pass"] > 40
    assert {"R1", "A2", "M1"} <= failed
    assert not {"G1", "G2", "V1", "C1"} & failed


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_report_is_written_for_each_subject(tmp_path, workers):
    """Also where other processes ran the tests."""
    (tmp_path / "test_two.py").write_text(TWO_TESTS)

    done = run(tmp_path, "--conformance-report", "r.json", *workers)

    plain, theirs = load(tmp_path / "r-plain.json"), load(tmp_path / "r-checkpoint.json")
    assert done.returncode == 1
    assert [result.status for result in plain.results] == ["pass"] * 4
    assert {result.rule: result.status for result in theirs.results} == {
        "V2": "pass", "G11": "fail", "R2": "fail", "C2": "pass",
    }  # fmt: skip
    assert "1 failed" in done.stdout
    assert "1 xfailed" in done.stdout  # an optional rule


def test_a_subject_needs_no_test_file(tmp_path):
    """--subject adds the tests itself, and a failure is text without code."""
    done = run(tmp_path, "--subject", "plain", "--rules", "C1", "--conformance-report", "r.json")

    assert load(tmp_path / "r.json").counts == {"required": {"fail": 2}, "optional": {}}
    assert "seen:  runs of each block under a gradient: got [1, 1], expected [2, 2]" in done.stdout
    assert "def conclude" not in done.stdout


def test_what_did_not_run_is_in_the_report(tmp_path):
    """A run that was cut short is incomplete, not shorter."""
    run(tmp_path, "--subject", "plain", "--rules", "C*", "-x", "--conformance-report", "r.json")

    report = load(tmp_path / "r.json")
    assert len(report.results) == 7
    assert report.counts["required"]["not_run"] == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--subject", "nobody"], "[subject] name: got 'nobody'"),
        (["--subject", "plain", "--rules", "Z9"], "[rules] pattern: got 'Z9'"),
        (["--rules", "V1"], "[--rules] got no --subject"),
        (["--conformance-report", "no/such/file"], "[--conformance-report] no/such/file: got no such folder"),
    ],
    ids=["subject", "rules", "alone", "folder"],
)
def test_bad_options_are_usage_errors(tmp_path, words, said):
    """One line, and pytest's exit code for it."""
    done = run(tmp_path, *words)

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr + done.stdout
