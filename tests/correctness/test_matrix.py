"""A cell is published where the judge was proven, and says what the report says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tinygpt.conformance.results import Report, Result, save
from tinygpt.report.matrix.cells import UNKNOWN, Cell, Column, matrix
from tinygpt.report.matrix.markdown import as_badge, as_markdown, as_record
from tinygpt.report.matrix.page import as_page

NEW, OLD = Column("0.32.4", "cpu"), Column("0.26.5", "cpu")
RESULTS = Path(__file__).parents[2] / "results"


def environment(column):
    """Return what a report says of an environment."""
    return {"backend": column.backend, "packages": {"mlx": column.release}, "device": "", "python": "", "system": ""}


def report(column, *, subject="mlx.nn", statuses=(("G1", "required", "pass"),)):
    """Return a report with one check for each status."""
    results = [
        {"rule": rule, "check": f"{rule}.check_{number}[eager]", "level": level, "status": status, "message": "a <b>"}
        for number, (rule, level, status) in enumerate(statuses)
    ]
    return {
        "subject": {"name": subject},
        "environment": environment(column),
        "rule_set": "1",
        "expected": [result["check"] for result in results],
        "results": results,
    }


def proof(column, *, broken=(), rule_set="1", checks=3, rules=("G1", "G2", "G9")):
    """Return the report of a self-test that proves the first checks of some rules."""
    runs = [f"{rule}.check_{number}[eager]" for rule in rules for number in range(checks)]
    return {
        "environment": environment(column),
        "rule_set": rule_set,
        "broken": list(broken),
        "unprovable": [],
        "killed": {"a_fault": runs},
        "statuses": {},
    }


def cell_of(found, rule="G1", column=NEW):
    """Return the cell of mlx.nn."""
    return found.cells["mlx.nn", rule, column]


def test_cell_is_the_worst_of_its_checks():
    """A rule with several checks fails if one does; an optional check has a row of its own."""
    statuses = (("G1", "required", "pass"), ("G1", "required", "fail"), ("G1", "optional", "xfail"))

    found = matrix({"a.json": report(NEW, statuses=statuses)}, {"s.json": proof(NEW)})

    assert cell_of(found) == Cell("fail", "a.json", "G1.check_1[eager]: a <b>")
    assert cell_of(found, "G1 (o)").verdict == "xfail"
    assert [(rule.name, rule.level, rule.about) for rule in found.rules] == [
        ("G1", "required", "check 0, check 1"),
        ("G1 (o)", "optional", "check 2"),
    ]


UNPUBLISHED = {
    "no self-test": ({}, "no self-test ran in this environment"),
    "self-test elsewhere": ({"s.json": proof(OLD)}, "no self-test ran in this environment"),
    "laws broken": ({"s.json": proof(NEW, broken=["a law"])}, "the self-test found 1 laws broken"),
    "narrow self-test": ({"s.json": proof(NEW, rules=["V1"])}, "the self-test proves no G1.check_0[eager]"),
    "another is broken": (
        {"a.json": proof(NEW), "b.json": proof(NEW, broken=["a law"])},
        "the self-test found 1 laws broken",
    ),
    "other rules": ({"s.json": proof(NEW, rule_set="2")}, "the self-test is of rule set 2"),
}


@pytest.mark.parametrize(("self_tests", "reason"), UNPUBLISHED.values(), ids=UNPUBLISHED)
def test_cell_of_an_unproven_judge_is_a_question_mark(self_tests, reason):
    """With the reason, and with its evidence."""
    found = matrix({"a.json": report(NEW)}, self_tests)

    assert cell_of(found) == Cell(UNKNOWN, "a.json", reason)
    assert reason in as_markdown(found)


def test_cell_of_a_report_that_is_not_whole_is_a_question_mark():
    """A check that was to run and is not in the list may have failed."""
    short = report(NEW)
    short["expected"].append("G2.inputs[eager]")

    found = matrix({"a.json": short}, {"s.json": proof(NEW)})

    assert cell_of(found) == Cell(UNKNOWN, "a.json", "the list of results is not complete")


def test_cell_of_a_report_of_some_rules_is_a_question_mark():
    """A judgement by a few rules is no judgement, and one of two reports may be the better one."""
    whole = {**proof(NEW), "statuses": {"plain": {"G1.check_0[eager]": "pass", "G2.check_0[eager]": "pass"}}}
    failing = report(NEW, statuses=(("G1", "required", "fail"),))

    narrow = matrix({"a.json": report(NEW)}, {"s.json": whole})
    double = matrix({"a.json": failing, "b.json": report(NEW)}, {"s.json": proof(NEW)})
    twice = matrix({"a.json": failing, "b.json": failing}, {"s.json": proof(NEW)})

    assert cell_of(narrow).note == "the list of results is not complete"
    assert cell_of(double).note == "reports that differ: a.json, b.json"
    assert cell_of(twice).verdict == "fail"
    assert "not judged" in as_badge(double, "mlx.nn")


def test_newest_release_comes_first_and_tinygpt_too():
    """0.100 is newer than 0.32, and 0.32.10 than 0.32.4."""
    releases = ("0.32.4", "0.100.0", "0.32.10", "0.26.5")
    reports = {f"{r}.json": report(Column(r, "cpu"), subject=s) for r, s in zip(releases, "dcba", strict=True)}
    reports["t.json"] = report(NEW, subject="tinygpt")

    found = matrix(reports, {})

    assert [column.release for column in found.columns] == ["0.100.0", "0.32.10", "0.32.4", "0.26.5"]
    assert found.subjects == ["tinygpt", "a", "b", "c", "d"]


def test_every_form_tells_every_cell():
    """Page, Markdown and JSON have the same verdicts; what a report says cannot become markup."""
    statuses = (("G1", "required", "fail"), ("G2", "required", "pass"))
    found = matrix({"a.json": report(NEW, statuses=statuses), "b.json": report(OLD)}, {"s.json": proof(NEW)})

    page, record = as_page(found, "../results/"), as_record(found)

    assert record["counts"] == {"fail": 1, "pass": 1, UNKNOWN: 1}
    assert page.count("data-verdict=") == len(record["cells"]) == 3
    assert page.count('href="../results/a.json"') == 2
    assert 'href="../results/a%23b%20c.json"' in as_page(matrix({"a#b c.json": report(NEW)}, {}), "../results/")
    assert "<b>" not in page
    assert "| G1 | required | ✗ | ? |" in as_markdown(found)


@pytest.mark.parametrize(
    ("statuses", "said"), [(("pass", "not_applicable"), "1 of 1"), (("pass", "fail"), "0 of 1")], ids=["good", "bad"]
)
def test_badge_counts_environments(statuses, said):
    """In which every required rule is kept; an optional one does not count."""
    rows = [*(("G1", "required", status) for status in statuses), ("G9", "optional", "fail")]
    found = matrix({"a.json": report(NEW, subject="tinygpt", statuses=rows)}, {"s.json": proof(NEW)})

    assert f"{said} environments" in as_badge(found)


def run(*words):
    """Run the command."""
    command = [sys.executable, "-m", "tinygpt", "report", "matrix", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_writes_four_files(tmp_path):
    """The links of the page lead from where it is to the reports."""
    (tmp_path / "results" / "deep").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    result = Result("G1", "G1.parameters[eager]", "required", "pass")
    where = {**environment(NEW), "variables": {}}
    about = {"name": "mlx.nn", "version": "", "shape": "wrap", "address": "", "declines": {}}
    save(Report(about, where, "1", [result.check], [result]), tmp_path / "results" / "deep" / "a.json")
    (tmp_path / "results" / "self-test.json").write_text(
        json.dumps({**proof(NEW), "killed": {"a_fault": ["G1.parameters[eager]"]}})
    )
    (tmp_path / "results" / "other.json").write_text("[1]")

    done = run(tmp_path / "results", "-o", tmp_path / "docs" / "matrix.html")

    assert (done.returncode, done.stderr) == (0, "")
    assert "1 subjects, 1 environments, 1 pass" in done.stdout
    assert 'href="../results/deep/a.json"' in (tmp_path / "docs" / "matrix.html").read_text()
    assert sorted(path.suffix for path in (tmp_path / "docs").iterdir()) == [".html", ".json", ".md", ".svg"]


def test_command_overwrites_no_evidence(tmp_path):
    """A page that is called like a report would replace it."""
    path = tmp_path / "a.json"
    result = Result("G1", "G1.parameters[eager]", "required", "pass")
    about = {"name": "mlx.nn", "version": "", "shape": "wrap", "address": "", "declines": {}}
    save(Report(about, {**environment(NEW), "variables": {}}, "1", [result.check], [result]), path)
    before = path.read_text()

    done = run(tmp_path, "-o", tmp_path / "a.html")

    assert done.returncode == 3
    assert "got the name of a report" in done.stderr
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("content", "output", "problem"),
    [
        ("[]", "m.html", "got no report"),
        ("{", "m.html", "expected a readable report"),
        ("[]", "m.txt", "expected a file named .html"),
    ],
    ids=["empty", "damaged", "no page"],
)
def test_command_refuses_what_is_no_folder_of_reports(tmp_path, content, output, problem):
    """One line and exit code 3."""
    (tmp_path / "a.json").write_text(content)

    done = run(tmp_path, "-o", tmp_path / output)

    assert done.returncode == 3
    assert done.stderr.startswith("[matrix]")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
