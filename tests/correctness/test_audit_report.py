"""Audits to be read: text, Markdown, several releases side by side, and what is left out of none of them."""

import copy
import json
from pathlib import Path

import pytest

from tinygpt.cli import main
from tinygpt.errors import ReportError
from tinygpt.report.audit.markdown import as_markdown
from tinygpt.report.audit.sheet import sheet
from tinygpt.report.audit.text import as_text, exit_code

AUDITS = json.loads(Path(__file__).with_name("files").joinpath("audits.json").read_text())
NEW = AUDITS["new.json"]


def test_text_tells_the_worst_first_with_its_reason():
    """What crosses by the side stands below what is wrong, and counts come last."""
    lines = as_text(NEW).splitlines()

    assert lines[0] == "NAN lossy under mlx-lm"
    assert lines[2:6] == [
        "WRONG shares under mlx-lm: 3 of 10 leaves",
        "  step 1.layers.0.w: all zeros | <b>\\x1b",
        "  Cache.keys is left at shares.py:12 > cache.py:3 by layers.1, read by layers.2 and 1 more",
        "WRONG shares under mlx-lm (lora): 1 of 10 leaves",
    ]
    assert lines[-1] == "tinygpt: 1 right"


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["right", "right but for order", "not trainable plain"], 0),
        (["right", "wrong"], 1),
        (["saves nothing"], 1),
        (["not built"], 1),
        (["error"], 1),
    ],
    ids=str,
)
def test_exit_code_is_that_of_the_worst(verdicts, code):
    """What cannot be trained plain is not a wrapper's fault; what was not built was not judged."""
    assert exit_code({"findings": [{"verdict": verdict} for verdict in verdicts]}) == code


def test_markdown_shows_releases_and_what_changed():
    """The newest first, by number and not by letter; every reason once."""
    page = as_markdown(sheet(AUDITS))

    assert page.index("## mlx-lm 2.10.0 on MLX 9.1") < page.index("## mlx-lm 2.9.0 on MLX 9.1")
    assert page.index("### From mlx-lm 2.9.0 to 2.10.0") < page.index("## mlx-lm 2.9.0 on MLX 9.1")
    assert "- New: absent, idle, integer, lossy, refuses, rounded, shares." in page
    assert "- Gone: gone." in page
    assert "- Under mlx-lm, wrong -> right: plain." in page
    assert "| model | blocks | mlx-lm full | tinygpt full | mlx-lm lora | tinygpt lora |" in page
    assert "| shares | 4 | ✗ 3/10 leaves | ✓ 0.40 0.25 | ✗ 1/10 leaves |  |" in page
    assert "| idle | 4 | 0 0/4 blocks |  |  |  |" in page
    assert "- **integer**: not trainable plain. ValueError: indices\n" in page
    assert "all zeros \\| &lt;b>\\x1b\n  - Cache.keys is left at shares.py:12 > cache.py:3 by layers.1" in page


def test_model_that_was_examined_twice_is_refused():
    """Nobody would know which of the two to believe."""
    with pytest.raises(
        ReportError, match=r"\[audit\] z.json: got .* under mlx-lm again, expected it in new.json alone"
    ):
        sheet({**AUDITS, "z.json": copy.deepcopy(NEW)})


def test_report_of_an_older_tinygpt_is_refused():
    """It lacks what the page shows."""
    older = copy.deepcopy(NEW)
    del older["findings"][0]["slope"]

    with pytest.raises(ReportError, match="got a report of an older tinygpt"):
        sheet({"a.json": older})


def test_command_writes_page_and_markdown(tmp_path, capsys):
    """What is no audit in the folder is passed over."""
    (tmp_path / "reports").mkdir()
    for name, report in AUDITS.items():
        (tmp_path / "reports" / name).write_text(json.dumps(report))
    (tmp_path / "reports" / "other.json").write_text("[]")

    assert main(["report", "audit", str(tmp_path / "reports"), "-o", str(tmp_path / "audit.html")]) == 0

    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path / 'audit.html'}: 9 models"
    assert (tmp_path / "audit.md").read_text() == as_markdown(sheet(AUDITS))
    page = (tmp_path / "audit.html").read_text()
    assert page.count("<section ") == 2
    assert page.count('href="reports/new.json"') == len(NEW["findings"])
    assert "\x1b" not in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("content", "output", "words"),
    [
        ("{", "a.html", "expected a readable report"),
        ("{}", "a.html", "got no report, expected some of tinygpt audit --report"),
        ("{}", "a.txt", "got .txt, expected a file named .html"),
    ],
)
def test_bad_folder_is_one_line(tmp_path, capsys, content, output, words):
    """And exit code 3."""
    (tmp_path / "a.json").write_text(content)

    assert main(["report", "audit", str(tmp_path), "-o", str(tmp_path / output)]) == 3
    assert words in capsys.readouterr().err
