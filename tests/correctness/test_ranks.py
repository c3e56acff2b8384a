"""Training with several processes: equal to one, told when they disagree, ended when one is gone."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tinygpt.conformance.compare import differences
from tinygpt.conformance.tolerances import OTHER_ORDER
from tinygpt.durability.launched import processes, started, wait_until
from tinygpt.durability.runs import command, losses, records
from tinygpt.durability.small import trained as small_run
from tinygpt.errors import RanksError
from tinygpt.tinygpt_file import load
from tinygpt.train.agreement import agree
from tinygpt.train.ranks import Ranks

pytestmark = pytest.mark.distributed

STEPS = 20
MODEL = ("--preset", "tiny", "--n-layer", "2", "--context", "16", "--batch", "4", "--seed", "3")
DROPOUT = ("--dropout", "0.2")
EAGER = ("--no-compile",)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return a text of a few thousand bytes."""
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    return path


def alone(*words, cwd):
    """Train with one process."""
    return subprocess.run(command(*words), cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


def trained(folder, name, corpus, *words, count=1, steps=STEPS):
    """Train to the end, and return the losses, and the tensors of the file."""
    folder.mkdir(exist_ok=True)
    asked = (*words, "--steps", steps, "--out", f"{name}.tinygpt", "--json", f"{name}.json")
    if "--resume" not in words:
        asked = (*MODEL, *asked, "--corpus", corpus)
    if count == 1:
        done = alone(*asked, cwd=folder)
        said = done.stdout + done.stderr
    else:
        with started(count, *asked, cwd=folder) as process:
            said = "".join(process.communicate(timeout=300))
    assert (folder / f"{name}.tinygpt").is_file(), said
    return list(losses(folder / f"{name}.json").values()), load(folder / f"{name}.tinygpt")[1]


# All four, for two and four ranks: python -m tinygpt.durability.ranks.
@pytest.mark.parametrize(("policy", "mode"), [("all", ()), ("none", EAGER)], ids=["all-compiled", "none-eager"])
def test_two_ranks_are_one_process_with_two_parts(tmp_path, corpus, policy, mode):
    """Twenty steps with dropout: losses, weights, moments and the random key are equal to the bit."""
    words = (*DROPOUT, *mode, "--grad-checkpoint", policy)

    told, tensors = trained(tmp_path, "ranks", corpus, *words, count=2)
    expected, one = trained(tmp_path, "one", corpus, *words, "--accumulate", "2")

    assert len(told) == STEPS
    assert told == expected
    assert differences(tensors, one) == []


def test_ranks_that_average_several_buckets_are_one_process(tmp_path, corpus):
    """A model whose gradients do not travel together: equal to the bit, too."""
    words = ("--preset", "huge", "--n-layer", "4", "--batch", "2", *EAGER)

    told, tensors = trained(tmp_path, "ranks", corpus, *words, count=2, steps=2)
    expected, one = trained(tmp_path, "one", corpus, *words, "--accumulate", "2", steps=2)

    assert told == expected
    assert differences(tensors, one) == []


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_are_one_process_on_the_joined_batch(tmp_path, corpus, count):
    """The same sums in another order: first gradients within its bound, and losses that stay together."""
    told, _ = trained(tmp_path, "ranks", corpus, *EAGER, count=count)
    expected, _ = trained(tmp_path, "one", corpus, *EAGER)

    assert told[0] == pytest.approx(expected[0], rel=OTHER_ORDER.relative)
    assert told == pytest.approx(expected, rel=STEPS * OTHER_ORDER.relative)


def test_run_goes_on_with_another_number_of_ranks(tmp_path, corpus):
    """With two, then four, then one: rows and masks are a function of the step and of the part, not of who does it."""
    words = (*DROPOUT, *EAGER)
    two, _ = trained(tmp_path, "a", corpus, *words, "--accumulate", "2", count=2, steps=3)
    four, _ = trained(tmp_path, "b", corpus, "--resume", "a.tinygpt", "--accumulate", "1", count=4, steps=5)
    one, tensors = trained(tmp_path, "c", corpus, "--resume", "b.tinygpt", "--accumulate", "4", steps=7)

    expected, alone = trained(tmp_path, "alone", corpus, *words, "--accumulate", "4", steps=7)

    assert [*two, *four, *one] == pytest.approx(expected, rel=7 * OTHER_ORDER.relative)
    assert tensors["random.key"].tolist() == alone["random.key"].tolist()


def steps_done(path, count):
    """Wait until a run has told of so many steps."""
    wait_until(lambda: len(records(path)) >= count, f"{count} steps")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.skipif(not find_spec("mlx._distributed_utils"), reason="this release's mlx.launch leaves before its ranks")
@pytest.mark.parametrize(("count", "victim"), [(2, 0), (4, 2)])
def test_rank_that_dies_ends_the_run_with_its_name(tmp_path, corpus, count, victim):
    """Within thirty seconds, and what was saved goes on with fewer ranks."""
    words = (*MODEL, *DROPOUT, *EAGER, "--steps", 100000, "--corpus", corpus)
    files = ("--out", "run.tinygpt", "--save-every", "1", "--json", "run.json")
    with started(count, *words, *files, cwd=tmp_path) as process:
        steps_done(tmp_path / "run.json", 3)
        os.kill(processes(process, count)[victim], signal.SIGKILL)
        begin = time.monotonic()
        _, said = process.communicate(timeout=60)

    assert time.monotonic() - begin < 30
    assert f"[ranks] rank {victim}: got the end of its process after step" in said
    step = load(tmp_path / "run.tinygpt")[0].step
    again = alone("--resume", "run.tinygpt", "--steps", step + 2, "--out", "fewer.tinygpt", cwd=tmp_path)
    assert (again.returncode, f"saved: fewer.tinygpt at step {step + 2}" in again.stdout) == (0, True), again.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_ranks_stop_after_the_same_step(tmp_path, corpus):
    """A signal that one of them gets stops all, and the first saves."""
    words = (*MODEL, *EAGER, "--steps", 100000, "--corpus", corpus)
    with started(2, *words, "--out", "run.tinygpt", "--json", "run.json", cwd=tmp_path) as process:
        steps_done(tmp_path / "run.json", 2)
        os.kill(processes(process, 2)[1], signal.SIGTERM)
        out, said = process.communicate(timeout=60)

    step = load(tmp_path / "run.tinygpt")[0].step
    assert f"stopped: SIGTERM after step {step} of 100000" in out, said
    assert "[ranks]" not in said


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("--batch 8", "training.batch of rank 1: got 8, expected 4, as on rank 0"),
        ("--corpus other.txt", "data.sha256 of rank 1: got"),
        ("--grad-checkpoint all", "policy of rank 1: got all, expected none, as on rank 0"),
        ("--corpus none.txt", "[corpus] none.txt: got No such file or directory"),
    ],
)
def test_ranks_that_disagree_are_told_before_the_first_step(tmp_path, corpus, other, words):
    """Whatever a step depends on."""
    (tmp_path / "other.txt").write_text(corpus.read_text() + "more\n")
    own = " ".join([sys.executable, "-m", "tinygpt", "train", *MODEL, *EAGER, "--steps", "2", "--corpus", str(corpus)])
    script = ["bash", "-c", f'[ "$MLX_RANK" = 1 ] && other="{other}"; exec {own} $other']

    with started(2, cwd=tmp_path, script=script) as process:
        out, said = process.communicate(timeout=120)

    assert words in said
    assert "step 1" not in out


def test_ranks_that_cannot_be_reached_are_one_line(tmp_path, corpus, monkeypatch):
    """A list of addresses that is none."""
    (tmp_path / "hosts.json").write_text("{")
    monkeypatch.setenv("MLX_RANK", "0")
    monkeypatch.setenv("MLX_HOSTFILE", str(tmp_path / "hosts.json"))

    done = alone(*MODEL, *EAGER, "--steps", 1, "--corpus", corpus, cwd=tmp_path)

    assert done.returncode == 3
    assert done.stderr.startswith("[ranks] start: got ")
    assert len(done.stderr.splitlines()) == 1


def test_one_rank_is_a_process_alone(tmp_path, corpus):
    """MLX's launcher gives it an empty list of addresses."""
    with started(1, *MODEL, *EAGER, "--steps", 1, "--corpus", corpus, cwd=tmp_path) as process:
        out, said = process.communicate(timeout=120)

    assert "memory: peak" in out, said


@pytest.mark.parametrize("variables", [{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, {"PMI_RANK": "0"}])
def test_rank_that_finds_nobody_does_not_train_alone(tmp_path, corpus, monkeypatch, variables):
    """A launcher that this build of MLX has no backend for: every rank would take itself for the first."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    done = alone(*MODEL, *EAGER, "--steps", 1, "--corpus", corpus, cwd=tmp_path)

    assert (done.returncode, "step 1" in done.stdout) == (3, False)
    assert f"got a rank alone, expected {variables.get('OMPI_COMM_WORLD_SIZE', 'several')}" in done.stderr


class Pair(Ranks):
    """Two ranks in one process: this one, and another that has said what it says."""

    def __init__(self, other):
        super().__init__()
        self.size, self.other = 2, other

    def gathered(self, text):
        return [text, self.other(text)]


@pytest.mark.parametrize("name", ["weights", "written_by.mlx", "step", "seed"])
def test_every_difference_between_ranks_is_named(name):
    """Also those that no command line can make: other weights, another release, another step."""
    trainer = small_run()

    def other(text):
        said = json.loads(text)
        (path,) = [each for each in said if each == name or each.endswith(f".{name}")]
        return json.dumps({**said, path: "another"})

    with pytest.raises(RanksError, match=rf"\[ranks\] \S*{name} of rank 1: got another, expected"):
        agree(Pair(other), trainer.header, trainer.model)
