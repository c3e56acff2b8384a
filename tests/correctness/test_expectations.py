"""Failures that are known: read strictly, applied strictly."""

import datetime

import pytest

from tinygpt.conformance import check_checkpoint
from tinygpt.conformance.expectations import Expectation, applied, overdue, read
from tinygpt.conformance.results import Result
from tinygpt.errors import ExpectationError

ENTRY = {
    "rule": "R1.*",
    "message": "unlike plain",
    "reason": "the mask is drawn anew",
    "link": "https://example.com/1",
    "review": "2027-06-30",
}
ENVIRONMENT = {"backend": "cpu", "packages": {"mlx": "0.32.4"}}
KNOWN = Expectation(**{**ENTRY, "review": datetime.date(2027, 6, 30)})


def toml(**changes):
    """Return a file with one entry, some of it changed; None drops a key, and dates are not quoted."""
    entry = {key: value for key, value in {**ENTRY, **changes}.items() if value is not None}
    lines = [f"{key} = {value}" if key == "review" else f"{key} = {value!r}" for key, value in entry.items()]
    return "\n".join(["[[expect]]", *lines])


def result(status, message="gradients unlike plain: x"):
    """Return a result of the rule that the entry is about."""
    return Result("R1", "R1.same_masks[eager]", "required", status, message)


def test_a_file_is_read(tmp_path):
    """Every key arrives."""
    path = tmp_path / "known.toml"
    path.write_text(toml(subject="mlx.*", mlx=">=0.30", backend="cpu"))

    (found,) = read(path)

    assert (found.rule, found.subject, found.mlx, found.backend) == ("R1.*", "mlx.*", ">=0.30", "cpu")
    assert found.review == datetime.date(2027, 6, 30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected [[expect]] tables"),
        ("[[expects]]", "expected [[expect]] tables"),
        ("expect = 3", "expected [[expect]] tables"),
        ("[[expect", "expected a TOML file"),
        (toml(reason=None), "got the keys"),
        (toml(why="x"), "got the keys"),
        (toml(review='"soon"'), "expected a date"),
        (toml(message="("), "expected a pattern that can be read"),
        (toml(mlx="new"), "expected a pattern that can be read"),
        (toml(backend="tpu"), "expected one of cpu, metal, cuda"),
        (toml(link=" "), "expected a text"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, text, words):
    """One line with the file, what it says, and what it should say."""
    path = tmp_path / "known.toml"
    path.write_text(text)

    with pytest.raises(ExpectationError) as caught:
        read(path)

    assert words in str(caught.value)
    assert str(caught.value).startswith(f"[expectations] {path}")


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        (result("fail"), "xfail", "known: the mask is drawn anew"),
        (result("fail", "something else"), "fail", "expected to fail in other words"),
        (result("pass", ""), "xpass", "passes, though it was expected to fail"),
        (result("error", "the kit broke"), "error", "the kit broke"),
        (result("not_applicable", "declined: x"), "not_applicable", "declined"),
    ],
)
def test_an_expectation_is_strict(given, status, words):
    """A failure in these words is expected, one in others is not, and none at all is news."""
    found = applied(given, [KNOWN], "mine", ENVIRONMENT)

    assert found.status == status
    assert words in found.message


@pytest.mark.parametrize(
    "elsewhere",
    [{"mlx": ">=0.33"}, {"mlx": "<0.32.4"}, {"backend": "metal"}, {"subject": "other"}, {"rule": "R2"}],
    ids=str,
)
def test_an_expectation_holds_where_it_says(elsewhere):
    """Of another release, backend, subject or rule it says nothing."""
    entry = {**ENTRY, "review": datetime.date(2027, 6, 30), **elsewhere}

    assert applied(result("fail"), [Expectation(**entry)], "mine", ENVIRONMENT) == result("fail")


def test_a_date_that_has_passed_is_reported():
    """On the day itself it has not."""
    assert overdue([KNOWN], datetime.date(2027, 6, 30)) == []
    assert overdue([KNOWN], datetime.date(2027, 7, 1)) == ["R1.*: to be reviewed by 2027-06-30: the mask is drawn anew"]


def test_an_expectation_of_a_rule_that_does_not_exist_is_refused():
    """It was renamed, or mistyped, and would never be missed."""
    unknown = Expectation(**{**ENTRY, "rule": "R17", "review": datetime.date(2027, 6, 30)})

    with pytest.raises(ExpectationError, match="expected a pattern that a check matches"):
        check_checkpoint("plain", rules="V2", expectations=[unknown])


def test_a_known_failure_conforms():
    """The judge of the whole report takes it so."""
    known = Expectation(**{**ENTRY, "rule": "R1", "review": datetime.date(2027, 6, 30)})

    report = check_checkpoint("mlx.nn", rules="R1.same_masks[eager]", expectations=[known])

    assert report.counts["required"] == {"xfail": 1}
    assert report.exit_code == 0
