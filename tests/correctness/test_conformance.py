"""Our own wrapper is held to every rule, and so is nobody else's reputation."""

import re

import mlx.core as mx
import mlx.nn as nn
import pytest

from tinygpt.conformance import Subject, check_checkpoint, iter_checks, parametrize_with_checks
from tinygpt.conformance.compare import differences
from tinygpt.conformance.distributed import CASES, RANKS, SAME_ROWS, share
from tinygpt.conformance.rules import FAMILIES, UNTESTED, all_checks
from tinygpt.conformance.subjects import PLAIN
from tinygpt.errors import SubjectError


@parametrize_with_checks(["tinygpt"])
def test_our_wrapper_keeps_the_rules(check):
    """Every check of every rule."""
    check()


def test_every_family_has_checks():
    """No module of checks is empty, and ids are unique."""
    ids = [run for entry in all_checks() for run in entry.ids()]

    assert {entry.family for entry in all_checks()} == set(FAMILIES)
    assert len(ids) == len(set(ids)) > 80


def test_no_rule_is_silent():
    """Each rule of the promise has a check or the mark untested, and says whether it is required."""
    rules = {entry.rule for entry in all_checks()} | UNTESTED.keys()

    promised = {"V": 4, "G": 9, "A": 4, "R": 5, "C": 4, "S": 6, "T": 7, "M": 7, "D": 1}
    assert {f"{letter}{n}" for letter, count in promised.items() for n in range(1, count + 1)} <= rules
    assert {entry.level for entry in all_checks()} == {"required", "optional"}


def test_plain_fails_the_footprint_and_the_recompute_rules_alone():
    """Nothing wrapped is right, and saves nothing."""
    report = check_checkpoint("plain", rules=["V1", "G1", "C1", "M1.saving", "M3"])

    failed = {result.check for result in report.results if result.status == "fail"}
    assert {check.partition(".")[0] for check in failed} == {"C1", "M1", "M3"}
    assert report.exit_code == 1


def test_footprint_of_a_wrapper_that_loses_gradients_is_gated():
    """The best peak of all counts for nothing."""

    def loses(module, fn=None):
        run = module if fn is None else fn
        return lambda x: mx.stop_gradient(run(x)) + 0 * x

    (result,) = check_checkpoint(loses, rules="M1").results

    assert result.status == "fail"
    assert result.message.startswith("gated: value and gradients of the case differ from plain: gradients.blocks.0")


def test_a_failure_says_everything():
    """Rule, subject, expected, seen, the leaf, and the line that repeats it."""
    (check,) = iter_checks("mlx.nn", "R5.keys[eager]")
    report = check_checkpoint("mlx.nn", rules="R5.keys[eager]")

    (result,) = report.results
    assert "RandomBits" in result.message
    assert result.again == "tinygpt check mlx.nn --rules 'R5.keys[eager]'"
    assert check.id == result.check


def test_a_local_wrapper_is_judged_too():
    """What no other process can import is sent by value."""
    calls = []

    def local(module, fn=None):
        calls.append(1)
        return nn.utils.checkpoint(module, fn)

    report = check_checkpoint(local, rules="V1")

    assert report.counts["required"] == {"pass": 2}
    assert report.results[0].again.startswith("check_checkpoint(")


def test_what_is_declined_is_listed():
    """A declined rule is not applicable, with its reason."""
    subject = Subject(
        "mine", nn.utils.checkpoint, declines={"R1": "no dropout here", "G7.captured_array": "documented"}
    )

    report = check_checkpoint(subject, rules=["R1", "G7"])

    assert report.counts == {"required": {"not_applicable": 4}, "optional": {}}
    assert {result.message for result in report.results} == {"declined: no dropout here", "declined: documented"}


@pytest.mark.parametrize(
    ("declines", "words"),
    [
        ({"Z9": "x"}, "expected a rule or a check"),
        ({"R": "x"}, "expected a rule or a check"),
        ({"R1": " "}, "expected a text"),
        (["R1"], "expected a dict of reasons by rule"),
    ],
    ids=["unknown", "pattern", "no reason", "list"],
)
def test_what_is_declined_must_exist_and_have_a_reason(declines, words):
    """A mistyped rule would decline nothing."""
    with pytest.raises(SubjectError, match=words):
        list(iter_checks(Subject("mine", nn.utils.checkpoint, declines=declines)))


def test_who_declines_everything_does_not_conform():
    """Nothing was judged: that is incomplete."""
    report = check_checkpoint(Subject("mine", nn.utils.checkpoint, declines={"V1": "no"}), rules="V1")

    assert report.exit_code == 2


def test_a_failure_names_the_line_that_raised():
    """An exception of the wrapper says where it comes from."""

    def raises(*_):
        raise KeyError("no such thing")

    (result,) = check_checkpoint(Subject("raises", raises, "wrap"), rules="V2").results

    assert re.search(r"\(at .+:\d+\)", result.message)


@pytest.mark.parametrize("bad", ["Z9", "", "G1.parameters[slow]"])
def test_a_pattern_that_matches_nothing_is_refused(bad):
    """No check is no judgement."""
    with pytest.raises(SubjectError, match=r"^\[rules\] pattern: got .*, expected one that matches a rule of V1"):
        list(iter_checks("plain", bad))


def test_no_subject_is_refused():
    """A parametrization over nothing would pass."""
    with pytest.raises(SubjectError, match="expected at least one"):
        parametrize_with_checks([])


def test_ranks_draw_masks_of_their_own():
    """On the same rows the plain values of two ranks differ: a wrapper with one mask for both cannot have them."""
    one, other = (share(CASES[SAME_ROWS], PLAIN, rank, RANKS, compiled=False)["values"] for rank in range(RANKS))

    assert differences(one, other) != []
