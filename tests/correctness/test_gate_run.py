"""A run of a gate: reports are used again only where they say the same; walks and searches tell what they know not."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tinygpt.conformance.results import Report, Result, save
from tinygpt.errors import GateError, ReportError, UnjudgedError
from tinygpt.gate import bisect as bisect_module
from tinygpt.gate import session as session_module
from tinygpt.gate.bisect import bisect
from tinygpt.gate.compare import Transition
from tinygpt.gate.environments import Environment
from tinygpt.gate.folder import INDEX, Folder
from tinygpt.gate.judging import judge
from tinygpt.gate.race import race
from tinygpt.gate.release import Release
from tinygpt.gate.request import Request
from tinygpt.gate.session import Judged, Session
from tinygpt.gate.walk import walk

WHERE = {"backend": "cpu", "device": "", "python": "", "system": "", "variables": {}}


def load(path):
    """Read a file, or raise what a damaged report raises."""
    text = path.read_text()
    if text != "whole":
        raise ReportError("[report] damaged")
    return text


def made(path):
    """Make a report."""
    path.write_text("whole")
    return "made"


def test_run_that_was_ended_goes_on(tmp_path):
    """What is done is used again by a run that depends on the same; a damaged report is made anew."""
    with Folder(tmp_path / "gate", {"rules": []}) as folder:
        folder.get("a.json", load, made)
        folder.get("b.json", load, made)
    (tmp_path / "gate" / "b.json").write_text("wh")

    with Folder(tmp_path / "gate", {"rules": []}) as again:
        assert again.kept() == 2
        assert [again.get(f"{name}.json", load, made) for name in "abc"] == ["whole", "made", "made"]


@pytest.mark.parametrize("how", ["another key", "fresh", "closed", "damaged index"])
def test_report_that_depends_on_something_else_is_made_anew(tmp_path, how):
    """Reports of other rules or another tinygpt, or of a run that came to its end, are not used."""
    with Folder(tmp_path, {"rules": []}) as folder:
        folder.get("a.json", load, made)
        if how == "closed":
            folder.close({"exit_code": 0})
    if how == "damaged index":
        (tmp_path / INDEX).write_text("{")

    with Folder(tmp_path, {"rules": ["V2"] if how == "another key" else []}) as again:
        if how == "fresh":
            again.forget_all()
        assert again.kept() == 0
        assert again.get("a.json", load, made) == "made"


def test_another_request_takes_nothing_away(tmp_path):
    """A walk of hours is still there after a search in the same folder."""
    for rules, name in (([], "walk.json"), (["R2"], "bisect.json")):
        with Folder(tmp_path, {"rules": rules}) as folder:
            folder.get(name, load, made)

    with Folder(tmp_path, {"rules": []}) as again:
        assert again.kept() == 1


def test_report_that_cannot_be_made_is_not_used(tmp_path):
    """A report of before is no report of a judgement that failed."""

    def fails(_):
        raise GateError("[gate] no")

    with Folder(tmp_path, {}) as folder:
        folder.get("a.json", load, made)
        (tmp_path / "a.json").write_text("wh")
        with pytest.raises(GateError):
            folder.get("a.json", load, fails)
        (tmp_path / "a.json").write_text("whole")

        assert folder.kept() == 0


def test_two_gates_do_not_share_a_folder(tmp_path):
    """The second is told, at once; when the first is done, it may."""
    with Folder(tmp_path, {}), pytest.raises(GateError, match="gate: got another that writes this file"):
        Folder(tmp_path, {})

    with Folder(tmp_path, {}) as again:
        assert again.kept() == 0


def test_folder_that_cannot_be_is_an_error(tmp_path):
    """A file in its place."""
    (tmp_path / "gate").write_text("")

    with pytest.raises(GateError, match="expected a folder to write to"):
        Folder(tmp_path / "gate", {})


def test_key_changes_with_the_source_of_a_subject(tmp_path, monkeypatch):
    """An edited wrapper is another one: its old reports say nothing."""
    monkeypatch.chdir(tmp_path)
    request = Request(subjects=["mine.wrapper:wrap"], cache=tmp_path)
    keys = []
    (tmp_path / "mine").mkdir()
    for text in ("one = 1", "two = 2"):
        (tmp_path / "mine" / "wrapper.py").write_text(text)
        keys.append(request.key)

    assert keys[0] != keys[1]
    assert keys[1] == request.key


def report(status, subject="mlx.nn"):
    """Return a report with one result."""
    result = Result("R2", "R2.state[eager]", "required", status, "why")
    about = {"name": subject, "version": "", "shape": "wrap", "address": "", "declines": {}}
    return Report(about, {**WHERE, "packages": {"mlx": "1"}}, "1", [result.check], [result])


class Sessions:
    """Stands for a session whose releases have verdicts that are known; ``None`` cannot be installed."""

    def __init__(self, verdicts):
        self.verdicts, self.asked, self.said = verdicts, [], []
        self.request = SimpleNamespace(subjects=["mlx.nn"], rules=[])
        self.about, self.seconds, self.say = {}, {}, self.said.append
        self.folder = SimpleNamespace(
            get=lambda *each: each[-1](None), forget=lambda *_: None, close=lambda _: None, record=lambda _: None
        )

    def environment(self, wanted):
        self.asked.append(wanted.label)
        if self.verdicts[wanted.label] is None:
            raise GateError(f"[gate] mlx {wanted.label}: got no wheel")
        return wanted.label

    def judged(self, side, _):
        return Judged(side, {"plain": report("pass", "plain"), "mlx.nn": report(self.verdicts[side])}, [])

    def compared(self, base, candidate):
        statuses = (side.reports["mlx.nn"].results[0].status for side in (base, candidate))
        return [Transition("worse", "mlx.nn", "R2", *statuses)]


def sessions(*verdicts):
    """Return a session and its releases, numbered from 1."""
    found = {str(number): verdict for number, verdict in enumerate(verdicts, start=1)}
    return Sessions(found), [Release(label, "", label) for label in found]


@pytest.mark.parametrize(
    ("verdicts", "answer"),
    [
        (("pass", "pass", "pass", "fail", "fail", "fail"), "in mlx 4, after 3"),
        (("pass", "fail"), "in mlx 2, after 1"),
        (("pass", "pass", None, "fail", "fail"), "in mlx 4, after 2, or in 3, which gave no verdict"),
        (("pass", "pass", "pass", "inconclusive", "pass", "fail", "fail"), "in mlx 6, after 5"),
        (("pass", None, None, "fail"), "in mlx 4, after 1, or in 3 or 2, which gave no verdict"),
    ],
    ids=["middle", "two", "not installed", "inconclusive", "none between"],
)
def test_search_finds_the_release(monkeypatch, verdicts, answer):
    """It asks few, and says where it knows nothing."""
    session, releases = sessions(*verdicts)
    monkeypatch.setattr(bisect_module, "judge", lambda side, *_, **__: report(session.verdicts[side]))

    assert bisect(session, "R2", releases) == f"mlx.nn: R2.state[eager] pass -> fail {answer}"
    assert len(set(session.asked)) <= len(verdicts)


@pytest.mark.parametrize("ends", [("pass", "pass"), ("pass", None), ("inconclusive", "fail")])
def test_search_between_equal_ends_is_an_error(monkeypatch, ends):
    """There is nothing to find, or nothing is known."""
    session, releases = sessions(*ends)
    monkeypatch.setattr(bisect_module, "judge", lambda side, *_, **__: report(session.verdicts[side]))

    with pytest.raises(GateError, match="expected two verdicts that differ"):
        bisect(session, "R2", releases)


def test_walk_goes_on_where_a_release_cannot_be_judged():
    """Its neighbours are compared with each other, and the outcome says that nothing is known of it."""
    session, releases = sessions("pass", None, "fail")

    outcome = walk(session, releases)

    assert outcome.labels == ["1", "3"]
    assert outcome.steps == [[Transition("worse", "mlx.nn", "R2", "pass", "fail")]]
    assert outcome.unproven == {"2": ["[gate] mlx 2: got no wheel"]}


PEAKS = {"a noise": ([(8, 9), (8, 8)], 0), "a growth": ([(8, 9)] * 9, 1), "a lucky base": ([(7, 8), (8, 7)], 0)}


@pytest.mark.parametrize(("readings", "count"), PEAKS.values(), ids=PEAKS)
def test_peak_that_grew_is_read_again(tmp_path, monkeypatch, readings, count):
    """What a busy machine has read too high once is no regression; what stays is one."""
    ahead = iter([size for pair in readings for size in pair])

    def read(_, subject, path, rules):
        found = with_peak(next(ahead), subject)
        save(found, path)
        assert rules == ["M1.saving[eager]"]
        return found

    monkeypatch.setattr(session_module, "judge", read)
    plain = with_peak(8, "plain")
    side = Environment(Release("1", "", "1"), tmp_path, tmp_path)
    before, now = (Judged(side, {"plain": plain, "mlx.nn": with_peak(size)}, []) for size in (8, 9))

    with Session(Request(subjects=["mlx.nn"], cache=tmp_path), tmp_path, {}, say=lambda _: None) as session:
        found = session.compared(before, now)

    assert [each.kind for each in found] == ["peak"] * count


def with_peak(size, subject="mlx.nn"):
    """Return a report with a reading."""
    measured = {"whole tree": {"peak_bytes": size, "plain_bytes": 20}}
    result = Result("M1", "M1.saving[eager]", "required", "pass", measured=measured)
    return dataclasses.replace(report("pass", subject), expected=[result.check], results=[result])


def test_walk_of_nothing_is_an_error():
    """A gate that has judged no release answers nothing."""
    session, releases = sessions(None, None)

    with pytest.raises(GateError, match="got none of 2 that could be judged"):
        walk(session, releases)


def pretending(tmp_path, code):
    """Return an environment whose interpreter runs some code of the shell instead."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{code}\n")
    python.chmod(0o755)
    return Environment(Release("1", "", "1"), tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("echo 'ModuleNotFoundError: no' >&2; exit 1", "got ModuleNotFoundError: no, expected a report"),
        ("exit 9", "got exit code 9"),
    ],
    ids=["traceback", "killed"],
)
def test_report_of_before_is_no_answer(tmp_path, code, problem):
    """What a judgement that crashed left in its place is removed first."""
    save(report("pass"), tmp_path / "a.partial")

    with pytest.raises(GateError, match=problem):
        judge(pretending(tmp_path, code), "mlx.nn", tmp_path / "a.json")

    assert not (tmp_path / "a.json").exists()


ABSENT = {
    "gone": ({}, {"mlx-lm": "no"}, ("worse", "judged", "not judged")),
    "back": ({"mlx-lm": "no"}, {}, ("better", "not judged", "judged")),
}


@pytest.mark.parametrize(("before", "now", "told"), ABSENT.values(), ids=ABSENT)
def test_subject_that_a_release_cannot_judge_is_told(tmp_path, before, now, told):
    """It does not keep the others from being compared."""
    reports = {"plain": report("pass", "plain"), "mlx-lm": report("pass", "mlx-lm"), "mlx.nn": report("pass")}
    sides = [
        Judged(None, {name: each for name, each in reports.items() if name not in absent}, [], absent)
        for absent in (before, now)
    ]

    with Session(Request(subjects=["mlx-lm", "mlx.nn"], cache=tmp_path), tmp_path, {}, say=lambda _: None) as session:
        found = session.compared(*sides)

    assert found == [Transition(told[0], "mlx-lm", "all checks", *told[1:], "no")]


@pytest.mark.parametrize("absent", ["mlx-lm", "plain"])
def test_subject_that_is_refused_is_noted(tmp_path, monkeypatch, absent):
    """The others are judged all the same; without plain MLX nothing can be."""

    def judge_or_refuse(_, subject, path, **__):
        if subject == absent:
            raise UnjudgedError("no")
        found = report("pass", subject)
        save(found, path)
        return found

    monkeypatch.setattr(session_module, "judge", judge_or_refuse)
    request = Request(subjects=["mlx-lm", "mlx.nn"], cache=tmp_path, tested=False)

    with Session(request, tmp_path, {}, say=lambda _: None) as session:
        if absent == "plain":
            with pytest.raises(UnjudgedError):
                session.judged(None, "one")
            return
        found = session.judged(None, "one")

    assert (list(found.reports), found.absent) == (["plain", "mlx.nn"], {"mlx-lm": "no"})


def test_refusal_of_the_judge_is_told_from_its_failure(tmp_path):
    """Exit code 3 is bad input: there is no such subject under this release."""
    with pytest.raises(UnjudgedError, match="got no wrapper, expected a report"):
        judge(pretending(tmp_path, "echo no wrapper >&2; exit 3"), "mlx.nn", tmp_path / "a.json")


def test_report_of_somebody_else_is_refused(tmp_path):
    """A report must be about the subject that was asked for."""
    save(report("pass", "tinygpt"), tmp_path / "other")
    code = f"while [ $# -gt 1 ]; do shift; done; cp {tmp_path}/other $1"

    with pytest.raises(GateError, match=r"got a report of tinygpt, expected one of mlx\.nn"):
        judge(pretending(tmp_path, code), "mlx.nn", tmp_path / "a.json")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("echo 'ImportError: no mlx' >&2; exit 1", "ImportError: no mlx (exit code 1)"),
        ('echo \'{"loss": 5.0, "pea\'', "the interpreter died"),
    ],
    ids=["at once", "in the middle of a line"],
)
def test_racer_that_dies_is_told(tmp_path, code, words):
    """With what it said last; the other side goes on."""
    laps = race([pretending(tmp_path, code)], ["plain"])

    assert [words in lap.error for lap in laps[0]] == [True, True]


def test_environment_finds_what_it_should_first(tmp_path, monkeypatch):
    """A folder named mlx in the working folder hides nothing, and modules on the user's path can be imported."""
    (tmp_path / "work" / "mlx" / "nn").mkdir(parents=True)
    (tmp_path / "work" / "mlx" / "nn" / "__init__.py").write_text("raise SystemExit('the wrong mlx')")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "mine.py").write_text("import mlx.nn, sys\nprint('right', sys.argv[1:])\n")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    side = Environment(Release("1", "", "1"), Path(sys.prefix), Path(__file__).parents[2])

    command = side.command("mine", "a word")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=side.variables)

    assert (done.stdout, done.returncode) == ("right ['a word']\n", 0), done.stderr
