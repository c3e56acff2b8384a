"""An installer's complaints in one line, and releases as users name them."""

import subprocess
import zipfile

import pytest

from tinygpt.errors import GateError
from tinygpt.gate import installer
from tinygpt.gate.release import NAME, release

HERE_ONLY = "Available versions: 0.32.4, 0.32.3, 0.26.5, 0.26.1, 0.33.0rc1"


def answering(monkeypatch, answers):
    """Let the installer answer to a word of its command line with an exit code, stdout and stderr."""

    def run(command):
        code, out, err = next(answer for word, answer in answers.items() if word in " ".join(command))
        return subprocess.CompletedProcess(command, code, out, err)

    monkeypatch.setattr(installer, "_run", run)


def test_releases_are_those_that_tinygpt_supports(monkeypatch):
    """From the oldest supported one, in order, none that is not final."""
    answering(monkeypatch, {"index": (0, HERE_ONLY, "")})

    assert installer.releases() == ["0.26.5", "0.32.3", "0.32.4"]


MISSING = "ERROR: No matching distribution found for mlx"
COMPLAINTS = {
    "no network": ("WARNING: Retrying after NewConnectionError\n" + MISSING, "got no connection to the index"),
    "full disk": ("ERROR: Could not install: [Errno 28] No space left on device", "got a full disk"),
    "unknown release": (MISSING, "got no such release in the index, expected one of 0.26.5, 0.32.3, 0.32.4 or older"),
    "anything else": ("a line\nERROR: a broken wheel\n", "got ERROR: a broken wheel"),
    "nothing": ("", "got no reason"),
}


@pytest.mark.parametrize(("said", "expected"), COMPLAINTS.values(), ids=COMPLAINTS)
def test_complaint_is_one_line(monkeypatch, tmp_path, said, expected):
    """Whatever an installer says, the error names the release and what is wrong."""
    answering(monkeypatch, {"index": (0, HERE_ONLY, ""), "install": (1, "", said)})

    with pytest.raises(GateError, match=r"^\[gate\] mlx 0.31.7: ") as caught:
        installer.install(release("0.31.7"), [], tmp_path / "python")

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wheels_of_other_interpreters_are_named(monkeypatch, tmp_path):
    """A release that is there, but not for this Python, says for which."""
    answering(
        monkeypatch,
        {
            "--python-version 3.9": (0, "Available versions: 0.31.7", ""),
            "index": (0, HERE_ONLY, ""),
            "install": (1, "", MISSING),
        },
    )

    with pytest.raises(GateError, match=r"got no wheel for Python .*, expected one of Python 3\.9"):
        installer.install(release("0.31.7"), [], tmp_path / "python")


def test_package_that_is_missing_is_named(monkeypatch, tmp_path):
    """What a subject needs and the index lacks is not said to be a release of MLX."""
    answering(monkeypatch, {"install": (1, "", "ERROR: No matching distribution found for nosuchpackage")})

    with pytest.raises(GateError, match="distribution found for nosuchpackage"):
        installer.install(release("0.31.7"), ["nosuchpackage"], tmp_path / "python")


def test_installer_sees_nothing_of_the_users_path(monkeypatch):
    """A package on PYTHONPATH would count as installed, and be missing later."""
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")

    done = installer._run(["env"])

    assert "PATH=" in done.stdout
    assert "somewhere" not in done.stdout
    assert "elsewhere" not in done.stdout


def test_main_is_a_commit(monkeypatch):
    """Next month's main is another release, with an environment of its own."""
    for commit in ("a" * 40, "b" * 40):
        answer = subprocess.CompletedProcess([], 0, f"{commit}\trefs/heads/main\n", "")
        monkeypatch.setattr(subprocess, "run", lambda *_, answer=answer, **__: answer)

        found = release("main")

        assert found.label == f"main-{commit[:8]}"
        assert found.requirement.endswith(f"@{commit}")


def test_main_without_network_is_one_line(monkeypatch):
    """What git says last."""
    answer = subprocess.CompletedProcess([], 128, "", "fatal: a\nfatal: could not resolve host\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)

    with pytest.raises(GateError, match=r"^\[gate\] main: got fatal: could not resolve host, expected the commit"):
        release("main")


@pytest.mark.parametrize("named", ["0.32", "0.32.4"])
def test_release_is_what_an_installer_understands(named):
    """A number is pinned."""
    found = release(named)

    assert found.label == named
    assert found.requirement.startswith(NAME)


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("0.26.1", "got 0.26.1, expected 0.26.5 or newer"),
        ("newest", "got 'newest', expected a number"),
        ("../mlx-0.32.4.whl", "expected a wheel of mlx that is there"),
        ("", "expected a number"),
    ],
)
def test_what_is_no_release_is_refused(named, problem):
    """One line, with what was given."""
    with pytest.raises(GateError, match=r"^\[gate\] release: got") as caught:
        release(named)

    assert problem in str(caught.value)


def test_two_wheels_of_one_number_are_two_releases(tmp_path):
    """A patched wheel has its own environment."""
    path = tmp_path / "mlx-0.32.4-cp311-cp311-manylinux_2_35_x86_64.whl"
    labels = []
    for content in ("one", "two"):
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("mlx/nn/utils.py", content)
        labels.append(release(str(path)).label)

    assert labels[0] != labels[1]
    assert release(str(path)).version == "0.32.4"
