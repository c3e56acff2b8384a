"""The memory of several ranks: each takes what its share takes alone, and the log says so rank by rank."""

import json
import subprocess
import sys

import pytest

from tinygpt.durability.launched import EXEC, started
from tinygpt.durability.runs import peak_bytes, records, train
from tinygpt.presets import PRESETS

pytestmark = [pytest.mark.memory, pytest.mark.distributed]

RUN = ("--preset", "tiny", "--n-layer", "2", "--context", "64", "--steps", "2", "--no-compile")
ROWS = 4


@pytest.mark.parametrize("policy", ["none", "all"])
def test_rank_takes_what_its_share_takes_alone(tmp_path, policy):
    """Within two percent, where activations outweigh the gradients that are averaged."""
    words = (*RUN, "--grad-checkpoint", policy)
    with started(2, *words, "--batch", 2 * ROWS, "--json", tmp_path / "ranks.json", cwd=tmp_path) as process:
        out, said = process.communicate(timeout=300)
    train(*words, "--batch", ROWS, "--json", tmp_path / "alone.json")

    peaks = [each["peak_bytes"] for each in records(tmp_path / "ranks.json")[-1]["ranks"]]
    alone = peak_bytes(tmp_path / "alone.json")

    assert [line.split(":")[0] for line in out.splitlines()[-2:]] == ["memory of rank 0", "memory of rank 1"], said
    assert len(peaks) == 2
    assert max(peaks) <= 1.02 * alone
    assert min(peaks) >= 0.98 * alone


AVERAGING = (sys.executable, "-m", "tinygpt.savings.averaging")


def test_cost_of_averaging_is_told_by_the_first_rank(tmp_path):
    """Times of a step with and without it, all ranks' peaks, and nothing said twice."""
    words = ("--row", "tiny 1x16", "--rounds", "1", "--eager", "--report", "report.json")
    with started(2, cwd=tmp_path, script=[*EXEC, *AVERAGING, *words]) as process:
        out, said = process.communicate(timeout=300)

    found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [line.split(":")[0] for line in out.splitlines() if "step" in line] == ["policy none", "policy all"], said
    assert found["ranks"] == 2
    for each in found["policies"]:
        seconds = each["seconds"]
        assert each["efficiency"] == pytest.approx(seconds["alone"] / seconds["together"])
        assert min(seconds.values()) > 0
        assert each["gradient_bytes"] == 4 * PRESETS["tiny"].parameters
        # Every rank holds its gradients, and beside them at most as much again.
        assert len(each["peaks_bytes"]) == 2
        for peaks in each["peaks_bytes"]:
            assert each["gradient_bytes"] < peaks["together"] < peaks["alone"] + 1.1 * each["gradient_bytes"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "[averaging] ranks: got one, expected several: start it with mlx.launch -n 2\n"),
        (("--rounds", "0"), "[averaging] rounds: got 0, expected at least 1\n"),
    ],
)
def test_cost_of_averaging_takes_several_ranks_and_rounds(words, expected):
    """Or one line says so."""
    done = subprocess.run([*AVERAGING, *words], capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
