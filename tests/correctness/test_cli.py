"""The command line from the outside, as its users run it."""

import json
import os
import pty
import subprocess
import sys

import mlx.core as mx
import pytest

SMALL = ("--batch", "2", "--context", "16", "--steps", "3")


def tinygpt(*arguments, **options):
    """Run the command and return what it did."""
    return subprocess.run(
        [sys.executable, "-m", "tinygpt", *map(str, arguments)], capture_output=True, text=True, timeout=300, **options
    )


def steps(path):
    """Return the records of a JSON lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("options", [(), ("--no-compile",)], ids=["compiled", "eager"])
def test_train_losses_do_not_depend_on_checkpointing(tmp_path, options):
    """The losses of a real text are equal to the bit with and without --grad-checkpoint, dropout and all."""
    plain, checkpointed = tmp_path / "plain.json", tmp_path / "checkpointed.json"

    for path, more in ((plain, ()), (checkpointed, ("--grad-checkpoint",))):
        done = tinygpt("train", *SMALL, "--dropout", "0.1", "--json", path, *options, *more)
        assert (done.returncode, done.stderr) == (0, "")

    losses = [[step["loss"] for step in steps(path)] for path in (plain, checkpointed)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 4  # three steps and the summary


def test_train_tells_steps_and_memory(tmp_path):
    """A line a step, the memory last; the JSON has a record a step and a summary in bytes."""
    done = tinygpt("train", *SMALL, "--json", tmp_path / "log")

    *records, summary = steps(tmp_path / "log")
    lines = done.stdout.splitlines()
    mib = {name: f"{summary[f'{name}_bytes'] / 2**20:,.1f} MiB" for name in ("peak", "active", "cache")}
    assert [set(record) for record in records] == [{"step", "loss", "tokens_per_s", "auxiliary"}] * 3
    assert all(record["auxiliary"] == {} for record in records)
    assert [line.split()[1] for line in lines[:-1]] == ["1/3", "2/3", "3/3"]
    predicted = f"{summary['predicted_bytes'] / 2**20:,.1f} MiB"
    line = "memory: peak {peak}, active {active}, cache {cache} (training only), predicted ".format(**mib)
    assert lines[-1] == line + predicted
    assert summary["summary"] is True
    assert summary["peak_bytes"] >= summary["active_bytes"] >= 3 * 4 * summary["parameters"]
    assert (summary["config"]["batch"], summary["config"]["policy"]) == (2, "none")


def test_train_logs_auxiliary_losses_the_same_with_and_without_checkpointing(tmp_path):
    """Experts and mixture of depths: each auxiliary loss is shown, stored, and equal to the bit under checkpointing."""
    chosen = ("--n-expert", "4", "--top-k", "2", "--mod-capacity", "0.5", "--yoco", "--attention", "differential")
    plain, checkpointed = tmp_path / "plain.json", tmp_path / "checkpointed.json"

    done = tinygpt("train", *SMALL, *chosen, "--json", plain)
    tinygpt("train", *SMALL, *chosen, "--json", checkpointed, "--grad-checkpoint")

    *records, summary = steps(plain)
    assert [record["auxiliary"] for record in steps(checkpointed)] == [record["auxiliary"] for record in steps(plain)]
    assert [set(record["auxiliary"]) for record in records] == [{"balance", "router_z", "capacity"}] * 3
    assert summary["config"]["model"]["n_expert"] == 4
    assert done.stdout.startswith(
        f"step 1/3  loss {records[0]['loss']:.4f}  balance {records[0]['auxiliary']['balance']:.4f}  router_z "
    )


def test_train_shows_a_bar_on_a_terminal():
    """On a terminal the steps are a progress bar; the memory line still comes last."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tinygpt", "train", *SMALL], stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        output = b""
        try:
            while piece := os.read(leader, 4096):
                output += piece
        except OSError:  # Linux says so when the other side closes
            pass
    os.close(leader)

    text = output.decode()
    assert process.returncode == 0
    assert "━" in text
    assert "step 1/3" not in text
    assert "(training only), predicted " in text.splitlines()[-1]


BAD = {
    "unknown preset": (
        ["--preset", "big"],
        "[preset] name: got 'big', expected one of tiny, huge, mega, behemoth, titan",
    ),
    "batch 0": (["--batch", "0"], "[train] batch: got 0, expected a positive integer"),
    "context above the model's": (
        ["--context", "129"],
        "[train] context: got 129, expected at most 128, the model's positions",
    ),
    "missing corpus": (
        ["--corpus", "/nowhere/text"],
        "[corpus] /nowhere/text: got No such file or directory, expected a readable file",
    ),
    "binary corpus": (["--corpus", sys.executable], "expected UTF-8 text"),
    "empty corpus": (["--corpus", os.devnull], "[corpus] length: got 0 bytes, expected at least 129 (context + 1)"),
    "unknown policy": (
        ["--grad-checkpoint", "some"],
        "[policy] name: got 'some', expected one of none, all, every:K, first:N",
    ),
    "unknown wrapper": (
        ["--wrapper", "mine"],
        "[wrapper] name: got 'mine', expected one of tinygpt, mlx.nn, mlx.core, seed-recipe",
    ),
    "unwritable JSON": (
        ["--json", "/nowhere/log"],
        "[json] /nowhere/log: got No such file or directory, expected a file to write to",
    ),
    "a word for a number": (
        ["--steps", "many"],
        "[tinygpt train] argument --steps: invalid int value: 'many'; see tinygpt train --help",
    ),
    "a choice that means nothing": (
        ["--top-k", "2"],
        "[GPTConfig] top_k: got 2, expected at most n_expert = 1",
    ),
    "an unknown kind": (
        ["--attention", "linear"],
        "[GPTConfig] attention: got 'linear', expected one of softmax, differential",
    ),
    "unknown option": (["--fast"], "[tinygpt] unrecognized arguments: --fast; see tinygpt --help"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message):
    """Whatever is wrong, stderr has one line that says so, stdout none, and there is no traceback."""
    done = tinygpt("train", *arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_loss_that_is_not_a_number_is_exit_code_3(tmp_path):
    """Training stops at the step whose loss is NaN; the steps before it are in the file."""
    done = tinygpt("train", *SMALL, "--lr", "1e30", "--clip-norm", "0", "--json", tmp_path / "log")

    assert done.returncode == 3
    assert done.stderr == "[train] loss at step 2: got nan, expected a finite number\n"
    assert [record["step"] for record in steps(tmp_path / "log")] == [1]


def test_missing_compiler_is_told_in_one_line(tmp_path):
    """A CPU machine without a C++ compiler is told how to go on, and that way works."""
    if mx.default_device() != mx.Device(mx.cpu):
        pytest.skip("a GPU backend of MLX brings its own compiler")
    environment = {**os.environ, "PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    environment.pop("MLX_DISABLE_COMPILE", None)  # whoever switched compilation off needs no compiler

    refused = tinygpt("train", *SMALL, env=environment)
    allowed = tinygpt("train", *SMALL, "--no-compile", env=environment)

    assert refused.returncode == 2
    assert refused.stderr == (
        "[compile] C++ compiler: got none, expected g++ on the PATH, which MLX needs to compile on the CPU; "
        "install it, or go on without with --no-compile\n"
    )
    assert (allowed.returncode, allowed.stderr) == (0, "")


def test_missing_backend_is_told_in_one_line(tmp_path):
    """MLX without a backend, which is what pip installs on Linux without an extra, is told in one line."""
    package = tmp_path / "mlx"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "core.py").write_text("raise ImportError('libmlx.so: cannot open shared object file')")

    done = tinygpt("train", env={**os.environ, "PYTHONPATH": str(tmp_path)})

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "expected MLX with a backend: pip install 'mlx[cpu]' on Linux" in done.stderr


def test_closed_pipe_is_no_error():
    """``tinygpt train | head -1`` ends quietly."""
    command = f"{sys.executable} -m tinygpt train {' '.join(SMALL)} | head -1"

    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300)

    assert done.stdout.startswith("step 1/3")
    assert done.stderr == ""


def test_help_needs_no_mlx():
    """Help is quick: it does not load MLX."""
    code = (
        "import sys; from tinygpt.cli import main\n"
        "try: main(['train', '--help'])\n"
        "except SystemExit: print('mlx.core' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "False"
