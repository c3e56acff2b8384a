"""tinygpt check and tinygpt report, from the outside."""

import json
import subprocess
import sys

import pytest

WRAPPER = """
import mlx.nn as nn


def good(module, fn=None):
    return nn.utils.checkpoint(module, fn)


def bad(module, fn=None):
    return lambda *args: 2 * (fn or module)(*args)
"""


def tinygpt(*words, cwd=None):
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "tinygpt", *words], capture_output=True, text=True, check=False, cwd=cwd
    )


@pytest.fixture
def folder(tmp_path):
    """A folder with a wrapper in it."""
    (tmp_path / "theirs.py").write_text(WRAPPER)
    return tmp_path


def test_a_wrapper_of_the_folder_is_judged(folder):
    """package.module:attribute, from where one stands; 0 where it conforms."""
    done = tinygpt("check", "theirs:good", "--rules", "V1,V2", cwd=folder)

    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines()[-3:] == ["required: 3 pass", "optional: none", "theirs:good: conforms"]


def test_a_wrapper_that_does_not_conform_is_told_how(folder):
    """Exit code 1, and the line that repeats it does."""
    done = tinygpt("check", "theirs:bad", "--rules", "V1", cwd=folder)

    assert done.returncode == 1
    assert "values unlike plain: step 1.0: largest difference" in " ".join(done.stdout.split())
    assert "again: tinygpt check theirs:bad --rules 'V1.outputs[eager]'" in done.stdout


@pytest.mark.parametrize("form", ["text", "markdown", "json", "html"])
def test_a_stored_report_is_shown_in_every_form(folder, form):
    """What check prints, report prints."""
    checked = tinygpt("check", "theirs:good", "--rules", "V1", "--report", "r.json", "--format", form, cwd=folder)
    shown = tinygpt("report", "r.json", "--format", form, cwd=folder)

    assert checked.returncode == shown.returncode == 0
    assert checked.stdout == shown.stdout
    if form == "json":
        assert json.loads(shown.stdout) == json.loads((folder / "r.json").read_text())


def test_a_known_failure_is_taken_so(folder):
    """--expect makes it conform, and says why."""
    (folder / "known.toml").write_text(
        '[[expect]]\nrule = "V1"\nmessage = "values unlike"\nreason = "doubled"\nlink = "x"\nreview = 2099-01-01\n'
    )

    done = tinygpt("check", "theirs:bad", "--rules", "V1", "--expect", "known.toml", cwd=folder)

    assert done.returncode == 0
    assert "required: 2 failed as expected" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check"], "[check] SUBJECT: got none"),
        (["check", "nobody"], "[subject] name: got 'nobody'"),
        (["check", "plain", "--rules", "Z9"], "[rules] pattern: got 'Z9'"),
        (["check", "plain", "--shape", "odd"], "[subject] shape of plain: got 'odd'"),
        (["check", "plain", "--report", "no/such/file"], "[check] --report no/such/file: got no such folder"),
        (["check", "plain", "--timeout", "0"], "[check] --timeout: got 0"),
        (["check", "plain", "--expect", "none.toml"], "[expectations] none.toml: got"),
        (["check", "plain", "--format", "pdf"], "[tinygpt check] argument --format"),
        (["check", "plain", "--self-test"], "[check] --self-test: got a subject"),
        (["report", "none.json"], "[report] none.json: got"),
        (["report"], "[tinygpt report] the following arguments"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_3(folder, words, said):
    """No traceback, nothing on stdout."""
    done = tinygpt(*words, cwd=folder)

    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_self_test_proves_the_rules_that_are_asked_for():
    """One rule, all faults: none that names it survives."""
    done = tinygpt("check", "--self-test", "--rules", "V2")

    assert done.returncode == 0
    assert "laws broken: 0" in done.stdout
