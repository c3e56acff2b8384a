"""What became of every check from one release to the next, and whose doing it is."""

import dataclasses
import math

import pytest

from tinygpt.conformance.results import Report, Result
from tinygpt.errors import GateError
from tinygpt.gate.compare import (
    BETTER,
    CHANGED,
    COVERAGE,
    EXPECTATION,
    INCOMPARABLE,
    NUMBERS,
    PEAK,
    REGRESSION,
    RERUN,
    SLOWER,
    TIME,
    Limits,
    compare,
    compare_laps,
    exit_code,
    kind_of,
)
from tinygpt.gate.race import Lap
from tinygpt.report.transitions import ORDER, Told, as_markdown, as_text

HERE = {"backend": "cpu", "device": "a CPU", "python": "3.11.7", "system": "Linux", "variables": {}}
STATUSES = ("pass", "fail", "error", "xfail", "xpass", "not_applicable", "inconclusive", "not_run")


def report(statuses, *, name="mlx.nn", measured=None, **environment):
    """Return a report with one result for each status, by check."""
    results = [
        Result(check.partition(".")[0], check, "required", status, f"{check} is {status}", measured or {})
        for check, status in statuses.items()
    ]
    return Report({"name": name}, {**HERE, "packages": {"mlx": "1"}, **environment}, "1", list(statuses), results)


TRANSITIONS = {
    ("pass", "fail"): (REGRESSION, 1),
    ("pass", "error"): (REGRESSION, 1),
    ("xfail", "fail"): (REGRESSION, 1),
    ("not_applicable", "fail"): (REGRESSION, 1),
    ("pass", "not_applicable"): (COVERAGE, 1),
    ("pass", "not_run"): (COVERAGE, 1),
    ("fail", "not_applicable"): (COVERAGE, 1),
    ("xfail", "xpass"): (EXPECTATION, 1),
    ("pass", "xpass"): (EXPECTATION, 1),
    ("pass", "inconclusive"): (RERUN, 2),
    ("fail", "inconclusive"): (RERUN, 2),
    ("fail", "error"): (CHANGED, 0),
    ("fail", "pass"): (BETTER, 0),
    ("not_applicable", "pass"): (BETTER, 0),
    ("pass", "xfail"): ("", 0),
}


@pytest.mark.parametrize(("statuses", "expected"), TRANSITIONS.items(), ids=lambda each: "-".join(map(str, each)))
def test_change_of_a_status_is_what_it_is(statuses, expected):
    """Worse and lost coverage close the gate, what is inconclusive asks for a rerun, better opens it."""
    before, now = ({"G1.parameters[eager]": status} for status in statuses)

    found = compare(report(before), report(now))

    assert ([each.kind for each in found], exit_code(found)) == ([expected[0]] if expected[0] else [], expected[1])


def test_every_pair_of_statuses_has_an_answer():
    """No change is passed over in silence but between a pass and a failure that is known."""
    silent = {(one, other) for one in STATUSES for other in STATUSES if one != other and not kind_of(one, other)}
    same = {status: kind_of(status, status) for status in STATUSES}

    assert silent == {("pass", "xfail"), ("xfail", "pass")}
    assert {status for status, kind in same.items() if kind == RERUN} == {"error", "inconclusive", "not_run"}
    assert {kind for status, kind in same.items()} == {RERUN, ""}
    assert {kind_of(one, other) for one in STATUSES for other in STATUSES} - {""} <= set(ORDER)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"backend": "cuda"}, "backend"),
        ({"device": "another CPU"}, "device"),
        ({"python": "3.12.3"}, "python"),
        ({"variables": {"MLX_BFS_MAX_WIDTH": "1"}}, "variables"),
    ],
)
def test_other_machine_is_not_compared(change, what):
    """Nothing is diffed in silence where the machines differ: exit code 2, and what is different."""
    checks = {"G1.parameters[eager]": "pass"}

    found = compare(report(checks), report({"G1.parameters[eager]": "fail"}, **change))

    assert [(each.kind, each.what) for each in found] == [(INCOMPARABLE, what)]
    assert exit_code(found) == 2


def test_other_rules_or_checks_are_not_compared():
    """A rule set of another number, or a list of other checks, says nothing beside this one."""
    one = report({"G1.parameters[eager]": "pass"})
    renamed = report({"G1.weights[eager]": "pass"})
    newer = dataclasses.replace(one, rule_set="2")

    assert [each.what for each in compare(one, newer)] == ["rule set"]
    assert [(each.what, each.base) for each in compare(one, renamed)] == [
        ("checks", "other checks, such as G1.parameters[eager]")
    ]


def test_change_of_plain_mlx_is_named():
    """What plain MLX does too is MLX itself; what it does not is the wrapper's."""
    before, now = (
        {"V3.half[eager]": "pass", "G1.all[eager]": "pass"},
        {"V3.half[eager]": "error", "G1.all[eager]": "fail"},
    )
    plain = (report(before, name="plain"), report({**now, "G1.all[eager]": "pass"}, name="plain"))

    found = {each.what: each.mlx for each in compare(report(before), report(now), plain=plain)}

    assert found == {"V3.half[eager]": True, "G1.all[eager]": False}


@pytest.mark.parametrize(("now", "kinds"), [(1020, []), (1021, [PEAK])])
def test_peak_is_held_to_its_slack(now, kinds):
    """At two per cent more nothing is said, one byte beyond is a failure."""
    checks = {"M1.saving[eager]": "pass"}
    base, candidate = (
        report(checks, measured={"whole tree": {"peak_bytes": size, "plain_bytes": 3000}}) for size in (1000, now)
    )

    assert [each.kind for each in compare(base, candidate)] == kinds


def lap(subject="mlx.nn", *, losses=(5.0, 4.0), peak=1000, seconds=0.1, error=""):
    """Return what a release did in a race."""
    return Lap(subject, "eager", {}, losses, [peak, peak + 5], [seconds] * 3, error)


@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [
        ({"peak": 1200}, PEAK, 1),
        ({"seconds": 0.2}, SLOWER, 0),
        ({"losses": (5.0, 4.5)}, REGRESSION, 1),
        ({"losses": (5.0, math.nan)}, REGRESSION, 1),
        ({"error": "ValueError: no"}, REGRESSION, 1),
        ({"peak": 500}, BETTER, 0),
    ],
    ids=lambda each: str(each),
)
def test_race_tells_what_changed(change, kind, code):
    """A higher peak and an error close the gate; time and other numbers are told."""
    found = compare_laps([lap("plain"), lap()], [lap("plain"), lap(**change)], Limits())

    assert [(each.kind, each.subject, each.mlx) for each in found] == [(kind, "mlx.nn", False)]
    assert exit_code(found) == code


def test_numbers_of_plain_mlx_may_change():
    """Where plain MLX computes other numbers and the wrapper still its numbers, it is told, and the gate is open."""
    base = [lap("plain"), lap()]
    moved = [lap("plain", losses=(5.0, 4.5)), lap(losses=(5.0, 4.5))]
    parted = [lap("plain", losses=(5.0, 4.5)), lap(losses=(5.0, 4.6))]
    nothing = [lap("plain", losses=(5.0, math.nan)), lap(losses=(5.0, math.nan))]

    assert [(each.kind, each.mlx) for each in compare_laps(base, moved, Limits())] == [(NUMBERS, True)] * 2
    assert [each.kind for each in compare_laps(base, parted, Limits())] == [NUMBERS, REGRESSION]
    assert exit_code(compare_laps(base, nothing, Limits())) == 1
    assert compare_laps(nothing, nothing, Limits()) == []


def test_side_that_does_not_run_is_never_silence():
    """The same error on both sides is told; two different ones ask for a rerun."""
    same = compare_laps([lap(error="a")], [lap(error="a")], Limits())
    other = compare_laps([lap(error="a")], [lap(error="b")], Limits())

    assert ([each.kind for each in same], exit_code(same)) == (["not compared"], 0)
    assert ([each.kind for each in other], exit_code(other)) == ([RERUN], 2)


def test_other_version_of_a_subject_is_not_compared():
    """Where the wrapper changed too, nothing can be laid on MLX; MLX's own wrappers change with it."""
    checks = {"G1.parameters[eager]": "pass"}
    one, other = (report(checks, packages={"mlx": number}) for number in "12")
    foreign, newer = (dataclasses.replace(one, subject={"name": "mlx-lm", "version": number}) for number in "34")
    own = [dataclasses.replace(r, subject={"name": "mlx.nn", "version": v}) for r, v in ((one, "1"), (other, "2"))]

    assert [each.what for each in compare(foreign, newer)] == ["version of the subject"]
    assert compare(*own) == []


def test_time_fails_where_it_is_asked_for():
    """With a limit of its own, a slower step closes the gate."""
    found = compare_laps([lap()], [lap(seconds=0.2)], Limits(fail_time=True))

    assert [each.kind for each in found] == [TIME]
    assert exit_code(found) == 1


def test_race_names_mlx_where_plain_goes_along():
    """If the plain step needs as much more, it is MLX."""
    found = compare_laps([lap("plain"), lap()], [lap("plain", peak=1200), lap(peak=1300)], Limits())

    assert [(each.subject, each.mlx) for each in found] == [("plain", True), ("mlx.nn", True)]


def test_laps_that_do_not_fit_are_refused():
    """A side without a lap is an error, not an equal one."""
    with pytest.raises(GateError, match="race: got different laps"):
        compare_laps([lap()], [], Limits())


def test_texts_tell_every_transition():
    """Both texts name the check, both statuses, the message and whose doing it is; lines fit a terminal."""
    found = compare(report({"V1.x[eager]": "pass"}), report({"V1.x[eager]": "fail"}))
    step = [{**dataclasses.asdict(each), "mlx": True} for each in found]

    told = Told(["1", "2"], [step], {"2": ["a law"]}, 1)

    for text in (as_text(told), as_markdown(told)):
        assert all(
            word in text for word in ("V1.x[eager]", "pass", "fail", "V1.x[eager] is fail", "MLX itself", "a law")
        )
    assert max(map(len, as_text(told).splitlines())) <= 80
    assert as_text(told).endswith("no: what is listed as worse, lost, or above its limit stands against it")
