"""What the pages say is true: their code runs, their commands exist, their tables come from files."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tinygpt.cli import parser
from tinygpt.environment import backend
from tinygpt.faults.rules_page import page as rules_page
from tinygpt.report.results_page import PAGES, TABLES, rendered

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(path, language):
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(path):
    """Return the commands of a page with the output that it shows for each."""
    for block in blocks(path, "console"):
        for part in block.split("$ ")[1:]:
            command, _, output = part.partition("\n")
            yield command.partition("  #")[0].strip(), output


PYTHON = [path for path in DOCUMENTS if blocks(path, "python")]
COMMANDS = [(path.name, *command) for path in DOCUMENTS for command in commands(path)]


def test_pages_are_found():
    """There are pages with code, with commands and with tables to check."""
    assert {path.name for path in DOCUMENTS} >= {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results.md"}
    assert PYTHON
    assert COMMANDS
    assert TABLES


def needs_what_was_measured():
    """Skip where the findings say nothing: they are of MLX on the CPU, compiled, from 0.29.2 on."""
    release = tuple(int(part) for part in version("mlx").split(".")[:3])
    if backend() != "cpu" or "MLX_DISABLE_COMPILE" in os.environ or release < (0, 29, 2):
        pytest.skip("the findings were measured on the CPU, compiled, with MLX 0.29.2 and later")


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.name)
def test_python_blocks_run(path, tmp_path):
    """The blocks of a page run one after another, as a reader would type them, in a process that ends with them."""
    if path.name == "findings.md":
        needs_what_was_measured()
    if "tinygpt.reference" in path.read_text():
        pytest.importorskip("torch", reason="the page compares with PyTorch")
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(blocks(path, "python")))

    done = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", dict.fromkeys(page for page, _, _ in COMMANDS))
def test_commands_print_what_the_page_shows(page, tmp_path):
    """The tinygpt commands of a page, one after another, print its lines, numbers aside; others are installations."""
    for command, output in [(command, output) for name, command, output in COMMANDS if name == page]:
        if not command.startswith("tinygpt "):
            assert re.fullmatch(
                r"python3 -m (pip install tox|tox -e \w+)( && python3 -m tox -e \w+)?|pip install [\w'\[\] ]+|pytest",
                command,
            )
            continue
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == (1 if "does not conform" in output else 0), done.stderr
        assert without_numbers(done.stdout) == without_numbers(output)


def without_numbers(text):
    """Return a text with every number replaced by one sign."""
    return re.sub(r"[\d.,]*\d", "#", text)


def test_ci_runs_the_command_of_the_readme():
    """.ci/run, the workflow and the README agree on what to run."""
    readme = [command for page, command, _ in COMMANDS if page == "README.md"]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()

    assert "python3 -m pip install tox && python3 -m tox -e tests" in readme
    assert "python3 -m pip install tox && python3 -m tox -e tests" in (ROOT / ".ci/run").read_text()
    assert "python3 -m pip install tox && python3 -m tox -e ${{ matrix.command }}" in workflow


@pytest.mark.parametrize("page", PAGES)
def test_tables_come_from_the_results(page):
    """Each table of a page is the rendering of its file; python -m tinygpt.report.results_page mends it."""
    text = (ROOT / page).read_text()

    assert "<!-- table: " in text
    assert rendered(text, ROOT / "results") == text


def test_every_option_of_train_is_in_its_help():
    """Help describes every option, and fits a terminal of 80 columns."""
    help_text = subprocess.run(
        [sys.executable, "-m", "tinygpt", "train", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "80", "PATH": ""},
    ).stdout

    assert max(map(len, help_text.splitlines())) <= 80
    assert set(re.findall(r"--[\w-]+", help_text)) >= {"--preset", "--grad-checkpoint", "--no-compile", "--json"}
    assert parser().prog == "tinygpt"


def test_the_page_of_rules_is_what_the_docstrings_say():
    """docs/rules.md is generated and not edited."""
    assert (ROOT / "docs" / "rules.md").read_text() == rules_page()


def test_the_matrix_is_what_the_reports_say(tmp_path):
    """docs/matrix.* are made of results/: tinygpt report matrix results -o docs/matrix.html."""
    command = [sys.executable, "-m", "tinygpt", "report", "matrix", ROOT / "results", "-o", tmp_path / "matrix.html"]
    subprocess.run(command, capture_output=True, check=True)

    for suffix in ("md", "json", "svg"):
        assert (ROOT / "docs" / f"matrix.{suffix}").read_text() == (tmp_path / f"matrix.{suffix}").read_text()
    page, again = (folder.joinpath("matrix.html").read_text() for folder in (ROOT / "docs", tmp_path))
    assert re.findall(r'data-verdict="[\w-]+"', page) == re.findall(r'data-verdict="[\w-]+"', again) != []
    assert all((ROOT / "docs" / link).is_file() for link in re.findall(r'href="(\.\./[^"]+)"', page))


def test_the_audit_is_what_the_reports_say(tmp_path):
    """docs/audit.* are made of results/audit: tinygpt report audit results/audit -o docs/audit.html."""
    command = [
        sys.executable,
        "-m",
        "tinygpt",
        "report",
        "audit",
        ROOT / "results/audit",
        "-o",
        tmp_path / "audit.html",
    ]
    subprocess.run(command, capture_output=True, check=True)

    assert (ROOT / "docs" / "audit.md").read_text() == (tmp_path / "audit.md").read_text()
    page, again = (folder.joinpath("audit.html").read_text() for folder in (ROOT / "docs", tmp_path))
    assert re.findall(r'data-verdict="[\w-]+"', page) == re.findall(r'data-verdict="[\w-]+"', again) != []
    assert all((ROOT / "docs" / link).is_file() for link in re.findall(r'href="(\.\./[^"]+)"', page))


SCRIPTS = sorted((ROOT / "docs" / "mlx-lm").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_shows_its_fault_without_our_code(script):
    """What is wrong under mlx-lm's own wrapper, ready to be reported."""
    if subprocess.run([sys.executable, "-c", "import mlx_lm"], capture_output=True, check=False).returncode:
        pytest.skip("mlx-lm cannot be imported here")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr
    assert "tinygpt" not in script.read_text()


def test_every_wrong_architecture_has_a_script():
    """Of the newest mlx-lm, trained whole; adapters with dropout are wrong in all of them, and have one together."""
    report = json.loads((ROOT / "results" / "audit" / "0.32.2-full.json").read_text())
    wrong = {each["model"] for each in report["findings"] if each["verdict"] in ("wrong", "nan", "error")}

    assert wrong
    assert wrong <= {script.stem for script in SCRIPTS}
