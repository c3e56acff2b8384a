"""The gate as its users run it: environments are built, an interrupted run goes on, and what cannot be is told."""

import json
import os
import signal
import subprocess
import sys
import time

import mlx.core as mx
import pytest
from packaging.version import Version

RELEASE = Version(mx.__version__).base_version
# Nobody listens there; what pip was configured with is put aside.
OFFLINE = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "UV_INDEX_URL": "http://127.0.0.1:9/simple",
}


def gate(*words, **variables):
    """Run the command to its end."""
    command = [sys.executable, "-m", "tinygpt", "gate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Return a folder for environments, which is removed with what is in it."""
    return tmp_path_factory.mktemp("cache")


def options(cache, reports):
    """Return the options of a gate of this release against itself that takes little time."""
    return (
        "--base",
        RELEASE,
        "--candidate",
        RELEASE,
        "--rules",
        "V2",
        "--no-race",
        "--cache",
        cache,
        "--reports",
        reports,
    )


def test_gate_that_is_interrupted_goes_on(cache, tmp_path):
    """Ctrl-C ends it at once; the second run uses what is there, and the release is clean against itself."""
    words = [str(word) for word in options(cache, tmp_path / "gate")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tinygpt", "gate", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    index, first = tmp_path / "gate" / "index.json", f"base-{RELEASE}-plain.json"
    while process.poll() is None and not (index.exists() and first in index.read_text()):
        time.sleep(0.1)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    if "no connection" in said:
        pytest.skip("no network: the environment of a release cannot be built")
    assert process.returncode == 130, said
    assert said.endswith("interrupted\n")

    done = gate(*words)

    assert (done.returncode, done.stdout) == (
        0,
        f"mlx {RELEASE} -> {RELEASE}: nothing changed\n\nyes: nothing stands against it\n",
    ), done.stderr
    assert "are used again" in done.stderr
    record = json.loads((tmp_path / "gate" / "gate.json").read_text())
    assert (record["exit_code"], record["transitions"]) == (0, [])
    assert json.loads(index.read_text()) == {}
    assert not list(cache.glob("building-*"))


def test_gate_without_network_is_one_line(tmp_path):
    """No traceback, no environment left half-built, exit code 3."""
    done = gate(*options(tmp_path / "cache", tmp_path / "gate"), **OFFLINE)

    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith(f"[gate] mlx {RELEASE}: got no connection")
    assert "Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith(("cpython", "building"))] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--base", "0.32.4"), "[gate] --candidate: got none"),
        (("--base", "0.1", "--candidate", "0.32.4"), "[gate] release: got 0.1, expected 0.26.5 or newer"),
        (("--base", "x", "--candidate", "0.32.4"), "[gate] release: got 'x'"),
        (("--all", "0.31.0"), "[gate] releases: got 0.31.0, expected where to begin and where to end"),
        (("--all", "0.31.0", "0.30.6"), "[gate] releases: got 0 from 0.31.0 to 0.30.6, expected at least two"),
        (("0.30.6", "--base", "0.31.0", "--candidate", "0.32.4"), "[gate] RELEASE: got 0.30.6, expected none"),
        (("--bisect", "R1", "--subject", "all"), "[gate] --bisect: got 6 subjects, expected one"),
        (("--base", "0.32.4", "--candidate", "0.32.4", "--fail-peak", "much"), "expected"),
        ((), "one of the arguments --base --all --bisect is required"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_bad_input_is_one_line(words, problem):
    """Before anything is installed."""
    done = gate(*words)

    assert done.returncode == 3
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_two_reports_are_compared_without_network(tmp_path):
    """What changed between two files, in words, with the exit code of the gate."""
    paths = []
    for subject in ("plain", "mlx.nn"):
        paths.append(tmp_path / f"{subject}.json")
        words = ["check", subject, "--rules", "C1", "--report", str(paths[-1])]
        subprocess.run([sys.executable, "-m", "tinygpt", *words], capture_output=True, check=False)
    same = gate("compare", paths[0], paths[0], **OFFLINE)
    other = gate("compare", *paths, **OFFLINE)

    assert (same.returncode, other.returncode) == (0, 2)
    assert "INCOMPARABLE plain subject: plain -> mlx.nn" in other.stdout
