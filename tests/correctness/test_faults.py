"""The judge is judged: four laws about planted faults."""

import json
from pathlib import Path

import pytest

from tinygpt.conformance.bound import BoundCheck
from tinygpt.conformance.rules import all_checks, select
from tinygpt.faults.controls import controls
from tinygpt.faults.fault import all_faults
from tinygpt.faults.self_test import CLEAN, Matrix, _unproven, self_test

MATRIX = Path(__file__).parents[2] / "results" / "cpu-faults.json"


@pytest.fixture(scope="module")
def matrix():
    """Every fault against the checks that it names, and every control against all; the whole matrix is in results/."""
    return self_test(whole=False)


def test_the_four_laws_hold(matrix):
    """Every check catches a fault, every fault is caught as it says, and controls are clean."""
    assert matrix.broken == []


def test_every_fault_and_every_control_is_judged(matrix):
    """Controls have a verdict of every run of a check, and no fault is without one."""
    runs = {run for entry in all_checks() for run in entry.ids()}

    assert matrix.statuses.keys() == {fault.name for fault in all_faults()} | {each.name for each in controls()}
    assert all(matrix.statuses[each.name].keys() == runs for each in controls())
    assert all(matrix.statuses[fault.name] for fault in all_faults())


def test_there_are_faults_of_every_family():
    """At least 45, each with a sentence that says what is wrong."""
    assert len(all_faults()) >= 45
    assert {fault.family for fault in all_faults()} == {entry.family for entry in all_checks()}
    assert all(fault.description.endswith((".", "wrapper.")) and fault.words for fault in all_faults())


def test_checks_and_faults_name_each_other():
    """The docstring of a check names exactly the faults that name it."""
    named = {f"{entry.rule}.{entry.name}": set(entry.faults) for entry in all_checks()}
    naming = {check: set() for check in named}
    for fault in all_faults():
        for check in fault.caught_by:
            naming[check.partition("[")[0]].add(fault.name)

    assert named == naming


def test_the_stored_matrix_is_of_these_faults_and_checks():
    """results/ holds the matrix of the rules and faults as they are."""
    stored = json.loads(MATRIX.read_text())

    assert stored["broken"] == stored["unprovable"] == []
    assert stored["killed"].keys() == {fault.name for fault in all_faults()}
    assert {run for row in stored["statuses"].values() for run in row} == {r for e in all_checks() for r in e.ids()}


@pytest.mark.parametrize(
    ("status", "message", "broken"),
    [
        ("pass", "", "survives"),
        ("error", "the kit broke", "survives"),
        ("fail", "other words", "without the words"),
        ("fail", "values unlike plain", None),
    ],
)
def test_a_fault_is_caught_by_its_check_in_its_words_alone(status, message, broken):
    """What the laws are made of: a status, and words."""
    (fault,) = [each for each in all_faults() if each.name == "output_scaled"]
    ((check, mode),) = select(["V1.outputs[eager]"])
    result = BoundCheck(check, mode, fault.subject).result(status, message)

    found, unprovable = _unproven([fault], {fault.name: {result.check: result}}, [result.check])

    assert unprovable == []
    assert [line for line in found if broken in line] if broken else found == []


def test_a_run_that_says_nothing_here_is_listed():
    """Where plain MLX cannot do it, no fault can be caught, and the matrix says so."""
    (fault,) = [each for each in all_faults() if each.name == "output_scaled"]
    ((check, mode),) = select(["V1.outputs[eager]"])
    result = BoundCheck(check, mode, fault.subject).result("not_applicable", "plain MLX cannot")

    assert _unproven([fault], {fault.name: {result.check: result}}, [result.check]) == ([], [result.check])


def test_a_matrix_with_a_broken_law_is_not_proven():
    """The exit code of the self-test follows from it."""
    assert CLEAN == ("pass", "not_applicable")
    assert Matrix({}, {}, {}).proven
    assert not Matrix({}, {}, {}, ["something"]).proven
    assert "something" in Matrix({}, {}, {}, ["something"]).as_text()
