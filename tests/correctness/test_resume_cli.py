"""A run that is saved, stopped, damaged and gone on with from the outside, and what ``tinygpt info`` says of it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tinygpt.durability.forgery import edited
from tinygpt.durability.runs import losses, tensor_digests, train
from tinygpt.tinygpt_file import outline, sole_writer
from tinygpt.tinygpt_file.header import VERSION
from tinygpt.train.output import Output
from tinygpt.train.run import resume

CLI = ("--preset", "tiny", "--n-layer", "2", "--batch", "2", "--context", "16", "--dropout", "0.1")


def tinygpt(*arguments, **options):
    """Run the command and return what it did."""
    return subprocess.run(
        [sys.executable, "-m", "tinygpt", *map(str, arguments)], capture_output=True, text=True, timeout=300, **options
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The file and the log of a run of six steps that nobody interrupts."""
    folder = tmp_path_factory.mktemp("alone")
    train(*CLI, "--steps", 6, "--out", folder / "run.tinygpt", "--json", folder / "run.json")
    return folder / "run.tinygpt", folder / "run.json"


def test_train_resumes_from_the_command_line(tmp_path, alone):
    """Saved every second step, gone on under another policy: one log, one curve, one result, a line that says so."""
    path, log = tmp_path / "run.tinygpt", tmp_path / "run.json"

    train(*CLI, "--steps", 3, "--save-every", 2, "--out", path, "--json", log)
    printed = train("--resume", path, "--steps", 6, "--grad-checkpoint", "--json", log)

    first, *_, last = printed.splitlines()
    assert first.startswith("policy: none -> all from step 4 on, expected peak ")
    assert last == f"saved: {path} at step 6, {path.stat().st_size / 2**20:.1f} MiB"
    assert losses(log) == losses(alone[1])
    assert tensor_digests(path) == tensor_digests(alone[0])
    assert outline(path).header.config.policy == "all"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.json", "run.tinygpt", "run.tinygpt.previous"]
    resumed = [json.loads(line) for line in log.read_text().splitlines() if '"resumed"' in line]
    assert [record["step"] for record in resumed] == [3]
    assert resumed[0]["changes"][0]["after"] == "all"


def test_resume_keeps_the_persisted_policy_and_can_downgrade(tmp_path):
    """Without an option the policy is the file's; --no-grad-checkpoint takes it back."""
    path = tmp_path / "run.tinygpt"
    train(*CLI, "--steps", 1, "--out", path, "--grad-checkpoint")

    kept = train("--resume", path, "--steps", 2)
    after_kept = outline(path).header.config.policy
    downgraded = train("--resume", path, "--steps", 3, "--no-grad-checkpoint")

    assert "policy:" not in kept
    assert after_kept == "all"
    assert downgraded.startswith("policy: all -> none from step 3 on, expected peak ")
    assert outline(path).header.config.policy == "none"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_finishes_the_step_and_saves(tmp_path, name):
    """Stopped in the middle, the run says where it is, leaves with 128 and the signal, and goes on from there."""
    path, log = tmp_path / "run.tinygpt", tmp_path / "run.json"
    with subprocess.Popen(
        [sys.executable, "-m", "tinygpt", "train", *CLI, "--steps", "100000", "--out", path, "--json", log],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not (log.exists() and log.read_text().count("\n") >= 2):
            time.sleep(0.01)
        process.send_signal(signal.Signals[name])
        printed, errors = process.communicate(timeout=120)

    step = outline(path).header.step
    assert process.returncode == 128 + signal.Signals[name]
    assert errors == ""
    assert printed.splitlines()[-2:] == [
        f"saved: {path} at step {step}, {path.stat().st_size / 2**20:.1f} MiB",
        f"stopped: {name} after step {step} of 100000; tinygpt train --resume {path} goes on",
    ]
    assert max(losses(log)) == step
    assert train("--resume", path, "--steps", step + 1).startswith(f"step {step + 1}/{step + 1}")


def test_second_signal_does_not_wait():
    """Whoever presses Ctrl-C twice wants to leave now; handlers are put back afterwards."""
    from tinygpt.train.stop import stop_request  # noqa: PLC0415

    before = signal.getsignal(signal.SIGINT)
    with stop_request() as request:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(SystemExit) as left:
            signal.raise_signal(signal.SIGTERM)

    assert request.by == signal.SIGINT
    assert left.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is before


def test_damaged_file_names_the_one_before_it(tmp_path, alone):
    """The error says how to go on, that way works, and the good file survives it."""
    path, previous = tmp_path / "run.tinygpt", tmp_path / "run.tinygpt.previous"
    previous.write_bytes(alone[0].read_bytes())
    path.write_bytes(alone[0].read_bytes()[:-1])

    refused = tinygpt("train", "--resume", path, "--steps", 7)
    train("--resume", previous, "--steps", 7)

    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.endswith(f"; {previous} is whole, --resume {previous} goes on from it\n")
    assert outline(path).header.step == 7
    assert previous.read_bytes() == alone[0].read_bytes()


def test_whole_file_is_not_replaced_by_the_one_before_it(tmp_path, alone):
    """Whoever goes on from .previous beside a file that is whole, or none of ours, is asked for another name."""
    path, previous = tmp_path / "run.tinygpt", tmp_path / "run.tinygpt.previous"
    previous.write_bytes(alone[0].read_bytes())

    for content, words in (
        (alone[0].read_bytes(), "a file that is whole"),
        (b"precious notes", "a file that is there"),
    ):
        path.write_bytes(content)
        done = tinygpt("train", "--resume", previous, "--steps", 7)
        assert done.returncode == 2
        assert f"[out] {path}: got {words}, expected " in done.stderr
        assert path.read_bytes() == content


LISTENERS = {
    "a pipe that closes": ("--steps 200 | head -1", 141),
    "a full disk": ("--steps 3 >/dev/full", 3),
    "nobody": ("--steps 3 >&-", 0),
    "a log that is full": ("--steps 3 --json /dev/full", 3),
}


@pytest.mark.parametrize("name", LISTENERS)
def test_run_is_saved_also_when_nobody_listens(tmp_path, name):
    """Whatever becomes of what it tells, the steps that were trained are in the file, and there is no traceback."""
    if "/dev/full" in LISTENERS[name][0] and not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    listener, code = LISTENERS[name]
    command = f"{sys.executable} -m tinygpt train {' '.join(CLI)} --no-compile --out run.tinygpt {listener}"

    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )

    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == (1 if code == 3 else 0)
    assert outline(tmp_path / "run.tinygpt").header.step in {141: range(1, 200), 3: (1,), 0: (3,)}[code]


def test_resume_elsewhere_leaves_the_file_alone(tmp_path, alone):
    """With --out, what the run goes on from stays as it is."""
    before = alone[0].read_bytes()

    train("--resume", alone[0], "--steps", 7, "--out", tmp_path / "other.tinygpt")

    assert alone[0].read_bytes() == before
    assert outline(tmp_path / "other.tinygpt").header.step == 7


def test_link_is_followed(tmp_path, alone):
    """What is saved under a link goes where the link points."""
    (tmp_path / "there").mkdir()
    path, link = tmp_path / "there" / "run.tinygpt", tmp_path / "link.tinygpt"
    path.write_bytes(alone[0].read_bytes())
    link.symlink_to(path)

    train("--resume", link, "--steps", 7)

    assert link.is_symlink()
    assert outline(path).header.step == 7


BAD = {
    "no such file": (["--resume", "nowhere.tinygpt"], 2, "file: got No such file or directory, expected a readable"),
    "a folder": (["--resume", "/"], 2, "file: got a directory, expected a .tinygpt file"),
    "no .tinygpt file": (["--resume", "text"], 2, "got 'utf-8' codec", "header"),
    "a file that is there": (
        [*CLI, "--out", "text.tinygpt"],
        2,
        "got a file that is there, expected a new name",
    ),
    "no such folder": ([*CLI, "--out", "nowhere/run.tinygpt"], 3, "lock: got No such file or directory, expected a"),
    "another ending": ([*CLI, "--out", "run.previous"], 2, "got the ending '.previous', expected .tinygpt"),
    "--json is --out": ([*CLI, "--out", "a.tinygpt", "--json", "a.tinygpt"], 2, "which belongs to --out, expected"),
    "--json beside --out": ([*CLI, "--out", "a.tinygpt", "--json", "a.tinygpt.lock"], 2, "which belongs to --out"),
    "--json is --corpus": (
        [*CLI, "--corpus", "text", "--json", "text", "--out", "a.tinygpt"],
        2,
        "belongs to --corpus",
    ),
    "a name of two lines": ([*CLI, "--corpus", "no\nsuch"], 2, r"[corpus] no\nsuch: got No such file"),
    "an unknown wrapper": ([*CLI, "--wrapper", "mine", "--json", "text"], 2, "[wrapper] name: got 'mine'"),
    "a batch that MLX cannot count": ([*CLI, "--batch", "9999999999"], 2, "batch: got 9999999999 x 16 tokens"),
    "--save-every 0": (
        [*CLI, "--out", "new.tinygpt", "--save-every", "0"],
        2,
        "save_every: got 0, expected",
    ),
    "--save-every without --out": ([*CLI, "--save-every", "2"], 2, "--save-every: got no --out, expected one with it"),
    "--allow-corpus-change alone": ([*CLI, "--allow-corpus-change"], 2, "got no --resume, expected one with it"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(tmp_path, name):
    """Whatever is wrong is one line on stderr, and nothing is left behind."""
    arguments, code, *words = BAD[name]
    for file in ("text", "text.tinygpt"):
        (tmp_path / file).write_text("no file of ours")

    done = tinygpt("train", *arguments, cwd=tmp_path)

    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1
    assert words[-1] in done.stderr
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {
        "text": "no file of ours",
        "text.tinygpt": "no file of ours",
    }


def test_second_trainer_is_refused(tmp_path, alone):
    """While one writes a file, another is told so and leaves it alone."""
    path = tmp_path / "run.tinygpt"
    path.write_bytes(alone[0].read_bytes())

    with sole_writer(path):
        done = tinygpt("train", "--resume", path, "--steps", 7)

    assert done.returncode == 3
    assert done.stderr == f"[{path}] trainer: got another that writes this file, expected none\n"
    assert outline(path).header.step == 6


def test_read_only_file_can_go_on_elsewhere(tmp_path, alone, capsys):
    """A file in a folder that cannot be written is read all the same."""
    code = resume(alone[0], Output(file=tmp_path / "run.tinygpt"), asked={"steps": 7}, model={})

    assert code == 0
    assert "step 7/7" in capsys.readouterr().out


def test_info_shows_the_header_and_the_checksum(alone):
    """A line for each entry, the sizes, and that every byte is as it was written."""
    done = tinygpt("info", alone[0])

    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(": ", 1) for line in done.stdout.replace("\n  ", " ").splitlines())
    assert (lines["version"], lines["step"], lines["policy"], lines["changes"]) == (str(VERSION), "6", "none", "none")
    assert lines["tensors"].startswith("111 (model 1.7 MiB, optimizer 3.4 MiB, random 8 B), file ")
    assert lines["checksum"].endswith("… agrees with every byte")


def test_info_tells_damage_after_what_can_be_read(tmp_path, alone):
    """The header of a file with a flipped weight is shown; the verdict is one line on stderr and exit code 2."""
    whole = alone[0].read_bytes()
    path = tmp_path / "run.tinygpt"
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    done = tinygpt("info", path)

    assert done.returncode == 2
    assert "step: 6" in done.stdout.splitlines()
    assert done.stderr.startswith(f"[{path}] checksum: got ")
    assert done.stderr.count("\n") == 1


def test_info_shows_no_escapes(tmp_path, alone):
    """What a file says of itself cannot forge a line, nor colour one."""
    path = tmp_path / "run.tinygpt"
    written_by = {"x\x1b[31m\nchecksum": "fine"}
    path.write_bytes(edited(alone[0].read_bytes(), lambda parts: parts.header.update(written_by=written_by)))

    done = tinygpt("info", path)

    assert done.returncode == 0
    assert r"written_by: x\x1b[31m\nchecksum fine" in done.stdout.splitlines()
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_info_as_json_has_the_whole_header(alone):
    """What scripts read is the header itself, and sizes in bytes."""
    found = json.loads(tinygpt("info", alone[0], "--json").stdout)

    assert found["header"] == outline(alone[0]).header.as_dict()
    assert found["sizes_bytes"]["optimizer"] == 2 * found["sizes_bytes"]["model"] + 8 + 4
