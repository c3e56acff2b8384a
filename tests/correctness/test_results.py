"""Reports: whole, counted, and refused when they are not."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from packaging.version import Version

from tinygpt.conformance.results import EXIT_CONFORMS, EXIT_FAILS, EXIT_INCOMPLETE, Report, Result, load, save
from tinygpt.conformance.rules import RULE_SET, all_checks
from tinygpt.errors import ReportError
from tinygpt.report.judgement import FORMATS

ENVIRONMENT = {
    "backend": "cpu",
    "device": "x86_64",
    "packages": {"mlx": "0.32.4"},
    "python": "3.11.0",
    "system": "Linux x86_64",
    "variables": {},
}
SUBJECT = {"name": "mine", "version": "1.0", "shape": "wrap", "address": "mine:wrap", "declines": {}}


def result(check="V1.outputs[eager]", status="pass", level="required", **more):
    """Return a result that a schema accepts."""
    message = "" if status == "pass" else "seen | not as expected"
    return Result(check.partition(".")[0], check, level, status, message=message, **more)


def report(*results, expected=None):
    """Return a report of some results."""
    return Report(
        subject=SUBJECT,
        environment=ENVIRONMENT,
        rule_set="1",
        expected=[r.check for r in results] if expected is None else expected,
        results=list(results),
        untested={"D1": "needs two processes"},
    )


WHOLE = report(
    result(),
    result("R1.same_masks[compiled]", "fail"),
    result("M1.saving[eager]", measured={"peak_bytes": 4096}, bound="4096 B", schedule="forward"),
    result("G9.higher_derivatives[eager]", "not_applicable", "optional"),
)


def test_a_report_survives_being_stored(tmp_path):
    """What was saved is what is loaded."""
    save(WHOLE, tmp_path / "report.json")

    assert load(tmp_path / "report.json") == WHOLE


def test_counts_are_by_level_and_never_a_percentage():
    """The headline counts each status of each level."""
    assert WHOLE.counts == {"required": {"pass": 2, "fail": 1}, "optional": {"not_applicable": 1}}


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([("pass", "required")], EXIT_CONFORMS),
        ([("xfail", "required"), ("not_applicable", "required")], EXIT_CONFORMS),
        ([("not_applicable", "required"), ("pass", "optional")], EXIT_INCOMPLETE),
        ([("not_applicable", "optional"), ("pass", "optional")], EXIT_CONFORMS),
        ([("fail", "optional")], EXIT_CONFORMS),
        ([("fail", "required")], EXIT_FAILS),
        ([("xpass", "optional")], EXIT_FAILS),
        ([("not_run", "required")], EXIT_INCOMPLETE),
        ([("error", "optional")], EXIT_INCOMPLETE),
        ([("inconclusive", "required")], EXIT_INCOMPLETE),
        ([("fail", "required"), ("not_run", "required")], EXIT_FAILS),
    ],
)
def test_exit_code_follows_from_statuses(statuses, code):
    """0 conforms, 1 does not, 2 is not finished."""
    results = [result(f"V{n}.x[eager]", status, level) for n, (status, level) in enumerate(statuses, start=1)]

    assert report(*results).exit_code == code


@pytest.mark.parametrize("expected", [[], ["V1.outputs[eager]"] * 2, ["V1.outputs[eager]", "V2.structure[eager]"]])
def test_results_must_be_one_for_each_expected_check(expected):
    """A missing, additional or doubled result is no report."""
    with pytest.raises(ReportError, match=r"^\[report\] results: got 1, expected one for each check"):
        report(result(), expected=expected)


def edited(change):
    """Return a report's text with its body changed, and its checksum left."""
    body = WHOLE.as_dict()
    change(body)
    return json.dumps(body)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty file"),
        (" \n", "an empty file"),
        ("null", "None is not of type"),
        ("[]", "is not of type"),
        ("{}", "is a required property"),
        (json.dumps(WHOLE.as_dict())[:-40], "ends or breaks at line"),
        (edited(lambda b: b["results"].pop()), "does not fit its checksum"),
        (edited(lambda b: b["results"][1].update(status="pass")), "does not fit its checksum"),
        (edited(lambda b: b["footer"].update(exit_code=0)), "does not fit its checksum"),
        (edited(lambda b: b["results"][0].update(status="splendid")), "is not one of"),
        (edited(lambda b: b["results"][2].update(schedule="")), "at results/2"),
        (edited(lambda b: b["results"][1].update(message="")), "at results/1"),
        (edited(lambda b: b["footer"].pop("sha256")), "is a required property"),
    ],
    ids=map(str, range(13)),
)
def test_a_report_that_is_not_whole_is_refused(tmp_path, text, words):
    """Truncated, edited, empty, or of another kind: one line that says which file and what."""
    path = tmp_path / "report.json"
    path.write_text(text)

    with pytest.raises(ReportError) as caught:
        load(path)

    assert words in str(caught.value)
    assert str(caught.value).startswith(f"[report] {path}: got ")
    assert "\n" not in str(caught.value)


def test_every_cut_of_a_report_is_refused(tmp_path):
    """Wherever a file is cut, it is no report."""
    path = tmp_path / "report.json"
    save(WHOLE, path)
    whole = path.read_bytes().rstrip()

    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(ReportError):
            load(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    """A missing file is an error of ours."""
    with pytest.raises(ReportError, match="expected a readable report"):
        load(tmp_path / "none.json")


def test_a_file_that_cannot_be_written_is_an_error_of_ours(tmp_path):
    """Nothing is lost silently."""
    with pytest.raises(ReportError, match="expected a file to write to"):
        save(WHOLE, tmp_path / "none" / "report.json")


@pytest.mark.parametrize("form", FORMATS)
def test_every_page_says_what_failed_and_how_much_was_judged(form):
    """Name, failure, counts and untested rules stand on each."""
    page = FORMATS[form](WHOLE.as_dict())

    for words in ("mine 1.0", "R1.same_masks[compiled]", "required: 2 pass, 1 fail", "does not conform", "D1"):
        assert words in page
    assert "%" not in page.replace("100%", "")


def test_a_page_escapes_what_a_subject_says():
    """A message is text, not markup."""
    bad = dataclasses.replace(result(status="fail"), message="<script>alert(1)</script> a|b")

    assert "<script>" not in FORMATS["html"](report(bad).as_dict())
    assert "a\\|b" in FORMATS["markdown"](report(bad).as_dict())


def test_a_terminal_page_fits_80_columns():
    """Messages are wrapped."""
    long = dataclasses.replace(result(status="fail"), message="word " * 100)

    assert max(map(len, FORMATS["text"](report(long).as_dict()).splitlines())) <= 80


RESULTS = Path(__file__).parents[2] / "results"
ADDMM_IN_HALF = Version("0.29.3")  # before it, plain MLX cannot run V3 on the CPU
RELEASES = re.findall(r"^ +mlx(0[\d.]+):", (RESULTS.parent / "tox.ini").read_text(), re.MULTILINE)
# Judged by the rules as they are; the walk over the releases between them takes a machine with more cores.
OF_TODAY = (RELEASES[0], RELEASES[-1])
WALKED = sorted(path for path in RESULTS.glob("gate*/cpu-*.json") if "self-test" not in path.name)
STORED = [path for path in WALKED if path.name.split("-")[1] in OF_TODAY]
OLDER = sorted({*RESULTS.glob("conformance/*.json"), *WALKED} - {*STORED})


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_judgement_is_whole_and_of_these_rules(path):
    """results/ holds judgements of every check as it is now, and ours conform."""
    stored = load(path)

    assert set(stored.expected) == {run for entry in all_checks() for run in entry.ids()}
    assert stored.rule_set == RULE_SET
    assert (stored.exit_code == 0) == (stored.subject["name"] == "tinygpt")


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_a_stored_judgement_of_older_rules_says_so(path):
    """What ran on a machine that is not at hand is of the rules of its day, whole, and ours conform."""
    stored = load(path)

    assert int(stored.rule_set) <= int(RULE_SET)
    assert set(stored.expected) <= {run for entry in all_checks() for run in entry.ids()}
    assert (stored.exit_code == 0) == (stored.subject["name"] == "tinygpt")


def test_judgements_are_stored_of_every_release_and_of_several_backends():
    """The claims of the README have a report each."""
    subjects = ("tinygpt", "mlx.nn", "mlx.core", "seed-recipe", "plain")

    assert {path.stem for path in WALKED} >= {f"cpu-{each}-{name}" for each in RELEASES for name in subjects}
    assert {path.stem for path in OLDER if path not in WALKED} == {
        f"cuda-0.32.4-{name}" for name in ("tinygpt", "mlx.nn", "plain")
    }


@pytest.mark.parametrize("release", RELEASES)
def test_the_judge_is_proven_under_every_release(release):
    """results/ holds a self-test of each, of the rules of its reports, without a broken law."""
    stored = json.loads((RESULTS / "gate" / f"cpu-{release}-self-test.json").read_text())
    reports = {load(path).rule_set for path in WALKED if path.name.split("-")[1] == release}

    half = [f"V3.half_precision[{mode}]" for mode in ("eager", "compiled")] if Version(release) < ADDMM_IN_HALF else []

    assert (stored["broken"], stored["unprovable"]) == ([], half)
    assert reports == {str(stored["rule_set"])}
    assert reports == {RULE_SET} or release not in OF_TODAY
