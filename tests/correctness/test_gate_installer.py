"""An installer's complaints in one line, releases as users name them, and a folder that survives its run."""

import subprocess
import zipfile

import pytest

from tinygpt.errors import GateError, ReportError
from tinygpt.gate import installer
from tinygpt.gate.folder import JOURNAL, Folder
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


@pytest.mark.parametrize("named", ["0.32", "0.32.4", "main"])
def test_release_is_what_an_installer_understands(named):
    """Numbers are pinned; main is built from its source."""
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


def load(path):
    """Read a file, or raise what a damaged report raises."""
    text = path.read_text()
    if text != "whole":
        raise ReportError("[report] damaged")
    return text


def made(path):
    """Make a report."""
    path.write_text("whole")
    return "made"


def test_run_that_was_ended_goes_on(tmp_path):
    """What is done is used again by a run of the same request; a damaged report is made anew."""
    folder = Folder(tmp_path / "gate", {"base": "1"})
    folder.open()
    folder.get("a.json", load, made)
    folder.get("b.json", load, made)
    (folder.path / "b.json").write_text("wh")

    again = Folder(tmp_path / "gate", {"base": "1"})

    assert again.open() == 2
    assert again.get("a.json", load, made) == "whole"
    assert again.get("b.json", load, made) == "made"
    assert again.get("c.json", load, made) == "made"


@pytest.mark.parametrize("how", ["another request", "fresh", "closed", "damaged journal"])
def test_run_that_is_another_begins_anew(tmp_path, how):
    """Reports of another request, or of a run that came to its end, are not used."""
    folder = Folder(tmp_path, {"base": "1"})
    folder.open()
    folder.get("a.json", load, made)
    if how == "closed":
        folder.close({"exit_code": 0})
    if how == "damaged journal":
        (tmp_path / JOURNAL).write_text("{")

    again = Folder(tmp_path, {"base": "2" if how == "another request" else "1"})

    assert again.open(fresh=how == "fresh") == 0
    assert again.get("a.json", load, made) == "made"


def test_folder_that_cannot_be_is_an_error(tmp_path):
    """A file in its place."""
    (tmp_path / "gate").write_text("")

    with pytest.raises(GateError, match="expected a folder to write to"):
        Folder(tmp_path / "gate", {}).open()
