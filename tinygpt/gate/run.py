"""Run a gate: two releases, all of them, or as many as it takes to find where a verdict changed."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tinygpt.conformance.results import Report
from tinygpt.errors import GateError, TinyGPTError
from tinygpt.gate.compare import (
    DEFAULT_LIMITS,
    EXIT_UNDECIDED,
    INCOMPARABLE,
    Limits,
    Transition,
    compare,
    compare_laps,
    exit_code,
)
from tinygpt.gate.environments import Environment, environment
from tinygpt.gate.fingerprint import fingerprint
from tinygpt.gate.folder import Folder
from tinygpt.gate.judging import judge, judged, self_test, tested
from tinygpt.gate.race import Lap, race
from tinygpt.gate.release import BACKEND, Release

PLAIN = "plain"
PACKAGES = {"mlx-lm": ("mlx-lm",)}  # what a subject comes from, if not from MLX or tinygpt

Say = Callable[[str], object]


@dataclass(frozen=True)
class Request:
    """What a gate is asked.

    Attributes:
        subjects: Whom to judge.
        rules: Patterns of rules; all if empty.
        limits: How much more a candidate may need.
        packages: Requirements that go into every environment.
        cache: Where environments are kept.
        raced: Whether training steps are raced.
        tested: Whether the judge is judged in every environment.
    """

    subjects: Sequence[str]
    cache: Path
    rules: Sequence[str] = ()
    limits: Limits = DEFAULT_LIMITS
    packages: Sequence[str] = ()
    raced: bool = True
    tested: bool = True

    @property
    def everybody(self) -> list[str]:
        """The subjects, and plain MLX, which tells what is MLX's from what is the wrapper's."""
        return list(dict.fromkeys([PLAIN, *self.subjects]))

    @property
    def key(self) -> dict[str, Any]:
        """What a report depends on, beside the release."""
        return {"rules": list(self.rules), "packages": list(self.packages), "tinygpt": fingerprint()}


@dataclass(frozen=True)
class Outcome:
    """What a gate found.

    Attributes:
        labels: The releases, from the oldest.
        steps: For each neighbouring pair, what changed.
        seconds: How long each part took.
        unproven: What the self-test of an environment has against the judge there.
    """

    labels: Sequence[str]
    steps: Sequence[Sequence[Transition]]
    seconds: dict[str, float]
    unproven: dict[str, list[str]]

    @property
    def transitions(self) -> list[Transition]:
        """All of them."""
        return [each for step in self.steps for each in step]

    @property
    def exit_code(self) -> int:
        """0 where the candidate may come, 1 where something stands against it, 2 where nothing can be said."""
        found = exit_code(self.transitions)
        return EXIT_UNDECIDED if not found and any(self.unproven.values()) else found

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {
            "releases": list(self.labels),
            "transitions": [
                {"from": old, "to": new, **asdict(each)}
                for old, new, step in zip(self.labels, self.labels[1:], self.steps, strict=False)
                for each in step
            ],
            "unproven": self.unproven,
            "seconds": self.seconds,
            "exit_code": self.exit_code,
        }


def pair(base: Release, candidate: Release, request: Request, reports: Path, say: Say, *, fresh: bool) -> Outcome:
    """Judge and race two releases, and compare them.

    Args:
        base: The release that is in use.
        candidate: The one that may come.
        request: Whom to judge, and how.
        reports: The folder of the reports.
        say: Called with a line for each step of the way.
        fresh: Whether to begin anew, where a run was ended half-way.

    Raises:
        GateError: An environment cannot be built, or a subject cannot be judged.
    """
    folder = Folder(reports, {"base": base.label, "candidate": candidate.label, **request.key})
    _begin(folder, say, fresh=fresh)
    clock = _Clock(say)
    sides = [_built(each, request, clock) for each in (base, candidate)]
    names = [f"base-{base.label}", f"candidate-{candidate.label}"]
    everything = [_judged(folder, side, request, name, clock) for side, name in zip(sides, names, strict=True)]
    found = _compared(everything[0].reports, everything[1].reports, request)
    if request.raced:
        laps: list[list[Lap]] = clock.timed("race", partial(race, sides, request.everybody))
        found += compare_laps(laps[0], laps[1], request.limits)
    else:
        laps = []
    unproven = {name: each.broken for name, each in zip(names, everything, strict=True) if each.broken}
    outcome = Outcome([base.label, candidate.label], [found], clock.seconds, unproven)
    folder.close({**outcome.as_dict(), "laps": _laps(names, laps)})
    return outcome


def walk(releases: Sequence[Release], request: Request, reports: Path, say: Say, *, fresh: bool) -> Outcome:
    """Judge every release, and compare each with the one before it.

    A release that cannot be judged is told, and the others go on; neighbours of it are compared with each other.

    Args:
        releases: From the oldest.
        request: Whom to judge, and how.
        reports: The folder of the reports: those that are there, of the same tinygpt, are used.
        say: Called with a line for each step of the way.
        fresh: Whether to judge all of them anew.

    Raises:
        GateError: No release can be judged.
    """
    folder = Folder(reports, request.key)
    _begin(folder, say, fresh=fresh)
    clock = _Clock(say)
    labels: list[str] = []
    found: list[_Judged] = []
    steps: list[list[Transition]] = []
    unproven: dict[str, list[str]] = {}
    for number, each in enumerate(releases, start=1):
        say(f"[{number}/{len(releases)}] mlx {each.label}")
        try:
            side = _built(each, request, clock)
            now = _judged(folder, side, request, f"{BACKEND}-{each.label}", clock)
        except TinyGPTError as error:
            say(str(error))
            unproven[each.label] = [str(error)]
            continue
        if found:
            steps.append(_compared(found[-1].reports, now.reports, request))
        labels.append(each.label)
        found.append(now)
        if now.broken:
            unproven[each.label] = now.broken
    if not labels:
        raise GateError(f"[gate] releases: got none of {len(releases)} that could be judged, expected at least one")
    return Outcome(labels, steps, clock.seconds, unproven)


def bisect(rule: str, subject: str, releases: Sequence[Release], request: Request, reports: Path, say: Say) -> str:
    """Find the release from which on a check of a subject says something else.

    Args:
        rule: A rule, or a check.
        subject: Whom to judge.
        releases: From the oldest; the verdicts of the first and the last must differ.
        request: How to judge.
        reports: The folder of the reports.
        say: Called with a line for each release.

    Returns:
        What changed, in which release, in words.

    Raises:
        GateError: The verdicts at the two ends are the same, or an environment cannot be built.
    """
    folder = Folder(reports, {"bisect": rule, **request.key})
    folder.open()
    clock = _Clock(lambda _: None)

    def verdict(number: int) -> tuple[str, ...]:
        side = _built(releases[number], request, clock)
        name = _file(releases[number].label, subject)
        report = folder.get(name, judged, partial(judge, side, subject, rules=[rule]))
        found = tuple(f"{result.check} {result.status}" for result in report.results)
        say(f"mlx {releases[number].label}: {', '.join(found)}")
        return found

    low, high = 0, len(releases) - 1
    first, last = verdict(low), verdict(high)
    if first == last:
        ends = f"{releases[low].label} and {releases[high].label}"
        raise GateError(f"[gate] bisect {rule}: got {', '.join(first)} at {ends}, expected two verdicts that differ")
    while high - low > 1:
        middle = (low + high) // 2
        if (found := verdict(middle)) == first:
            low = middle
        else:
            high, last = middle, found
    changed = [f"{one} -> {other.rpartition(' ')[2]}" for one, other in zip(first, last, strict=True) if one != other]
    return f"{subject}: {', '.join(changed)} in mlx {releases[high].label}, after {releases[low].label}"


@dataclass(frozen=True)
class _Judged:
    """All reports of one release, and what its self-test has against the judge."""

    reports: dict[str, Report]
    broken: list[str]


def _begin(folder: Folder, say: Say, *, fresh: bool) -> None:
    kept = folder.open(fresh=fresh)
    if kept:
        say(f"goes on with {kept} reports in {folder.path}; --fresh to begin anew")


def _built(each: Release, request: Request, clock: "_Clock") -> Environment:
    packages = [name for subject in request.subjects for name in PACKAGES.get(subject, ())]
    build = partial(environment, each, cache=request.cache, packages=[*packages, *request.packages])
    found: Environment = clock.timed(f"environment of mlx {each.label}", build)
    return found


def _judged(folder: Folder, side: Environment, request: Request, name: str, clock: "_Clock") -> _Judged:
    reports: dict[str, Report] = {}
    for subject in request.everybody:
        make = partial(judge, side, subject, rules=request.rules)
        stored = partial(folder.get, _file(name, subject), judged, make)
        reports[subject] = clock.timed(f"{subject} under mlx {side.release.label}", stored, _said)
    if not request.tested:
        return _Judged(reports, [])
    matrix = clock.timed(f"self-test under mlx {side.release.label}", partial(_proven, folder, side, request, name))
    return _Judged(reports, list(matrix["broken"]))


def _proven(folder: Folder, side: Environment, request: Request, name: str) -> dict[str, Any]:
    return folder.get(_file(name, "self-test"), tested, partial(self_test, side, rules=request.rules))


def _compared(base: dict[str, Report], candidate: dict[str, Report], request: Request) -> list[Transition]:
    beside = (base[PLAIN], candidate[PLAIN])
    found: list[Transition] = []
    for subject, before in base.items():
        found += compare(before, candidate[subject], plain=beside, limits=request.limits)
    if any(each.kind == INCOMPARABLE for each in found):
        return [each for each in found if each.kind == INCOMPARABLE]
    return found


def _said(report: Report) -> str:
    counts: dict[str, int] = {}
    for result in report.results:
        counts[result.status] = counts.get(result.status, 0) + 1
    return ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items())


def _file(name: str, subject: str) -> str:
    """Return the file of a report; a subject of the user's has characters that files do not."""
    safe = "".join(sign if sign.isalnum() or sign in ".-_" else "_" for sign in subject)
    return f"{name}-{safe}.json"


def _laps(names: Sequence[str], laps: Sequence[Sequence[Lap]]) -> dict[str, Any]:
    return {name: [asdict(lap) for lap in each] for name, each in zip(names, laps, strict=False)}


class _Clock:
    """Tell what is done and how long it took."""

    def __init__(self, say: Say) -> None:
        self.seconds: dict[str, float] = {}
        self._say = say

    def timed(self, what: str, work: Callable[[], Any], told: Callable[[Any], str] = lambda _: "ready") -> Any:
        start = perf_counter()
        found = work()
        took = perf_counter() - start
        self.seconds[what] = round(took, 3)
        self._say(f"  {what}: {told(found)} ({took:.1f} s)")
        return found
