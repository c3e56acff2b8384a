"""``tinygpt report plots`` from the outside: the same bytes everywhere, or one line and nothing half written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tinygpt.report.plots import draw

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).with_name("files") / "plots.json"
ROW = "behemoth 4x1024"
LEFT_OUT = (
    f"records[9]: {ROW} torch full has an error and no reading",
    "frontier-tiny-8x128: fewer than 2 policies",
)


@pytest.fixture(scope="module")
def drawn():
    """Return what is drawn from everything at once."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    return draw(json.loads(EXAMPLE.read_text()), file="measured.json")


def plots(*arguments, **variables):
    """Run ``tinygpt report plots`` from the outside."""
    return subprocess.run(
        [sys.executable, "-m", "tinygpt", "report", "plots", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **variables},
    )


@pytest.fixture
def measured(tmp_path):
    """Return a file with everything."""
    path = tmp_path / "measured.json"
    path.write_bytes(EXAMPLE.read_bytes())
    return path


def test_command_draws_the_same_bytes_under_any_settings(measured, tmp_path, drawn):
    """Another process, another day and the user's own matplotlibrc give the files that the library gave."""
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nlines.linewidth: 9\n")

    done = plots(measured, "-o", tmp_path / "new" / "pictures", MATPLOTLIBRC=str(tmp_path), SOURCE_DATE_EPOCH="1")

    written = {path.name: path.read_bytes() for path in (tmp_path / "new" / "pictures").iterdir()}
    assert (done.returncode, done.stderr) == (0, "")
    assert written == drawn.files
    assert done.stdout.splitlines() == [
        *(str(tmp_path / "new" / "pictures" / name) for name in drawn.files),
        *(f"left out {reason}" for reason in LEFT_OUT),
    ]


@pytest.mark.parametrize(
    "code",
    ["raise ModuleNotFoundError(\"No module named 'matplotlib'\", name='matplotlib')", "raise ImportError('a\\nb')"],
    ids=["missing", "broken"],
)
def test_missing_matplotlib_is_one_line(measured, tmp_path, code):
    """Without matplotlib the command says how to get it, and leaves nothing behind."""
    (tmp_path / "matplotlib.py").write_text(code)

    done = plots(measured, "-o", tmp_path / "pictures", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))

    got = "none" if "Module" in code else "a"
    assert done.returncode == 3
    assert done.stderr == (f"[plots] matplotlib: got {got}, expected 3.9 or later: pip install 'tinygpt[plots]'\n")
    assert not (tmp_path / "pictures").exists()


FILES = {
    "no JSON": (b"{", "got no JSON ("),
    "no text": (b"\xff", "got no JSON ("),
    "no such file": (None, "got No such file or directory, expected a readable file"),
    "no list": (b'{"environment": {}}', "[plots] environment.device: got no such entry, expected one"),
}


@pytest.mark.parametrize(("content", "message"), FILES.values(), ids=FILES)
def test_bad_file_is_one_line_and_exit_code_3(tmp_path, content, message):
    """Whatever is wrong with the file, stderr has one line, stdout none, and there is no folder."""
    path = tmp_path / "measured.json"
    if content is not None:
        path.write_bytes(content)

    done = plots(path, "-o", tmp_path / "pictures")

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert message in done.stderr
    assert not (tmp_path / "pictures").exists()


def test_folder_that_cannot_be_written_has_nothing_half_written(measured, tmp_path):
    """One file that cannot be replaced keeps all the others from appearing."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    (tmp_path / "file").write_text("")
    blocked = tmp_path / "blocked" / "side-by-side.png"
    blocked.mkdir(parents=True)

    over_file = plots(measured, "-o", tmp_path / "file")
    over_folder = plots(measured, "-o", blocked.parent)

    assert [(done.returncode, done.stdout) for done in (over_file, over_folder)] == [(3, "")] * 2
    assert over_file.stderr == f"[plots] {tmp_path / 'file'}: got File exists, expected a folder to write to\n"
    assert over_folder.stderr == f"[plots] {blocked}: got a folder, expected a file to write to\n"
    assert list(blocked.parent.iterdir()) == [blocked]


def test_report_of_a_file_still_works(tmp_path):
    """The first word alone goes on to show a stored judgement, also of a file that is called plots."""
    stored = ROOT / "results" / "gate" / "cpu-0.32.4-plain.json"
    (tmp_path / "plots").write_bytes(stored.read_bytes())

    shown = [
        subprocess.run(
            [sys.executable, "-m", "tinygpt", "report", name],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for name in (str(stored), "./plots")
    ]

    assert shown[0].stdout == shown[1].stdout
    assert "plain" in shown[0].stdout
    assert shown[0].returncode == shown[1].returncode


def test_command_without_a_folder_is_one_line():
    """The folder is not guessed."""
    done = plots("measured.json")

    assert done.returncode == 3
    assert done.stderr == (
        "[tinygpt report plots] the following arguments are required: -o/--out; see tinygpt report plots --help\n"
    )


def test_importing_the_pictures_does_not_load_matplotlib():
    """Only who draws pays for it."""
    code = "import sys, tinygpt.report.plots, tinygpt.cli.plots; print({'matplotlib', 'mlx'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout == "set()\n"
