"""One run of a gate: it builds environments, judges in them, keeps the reports, and tells each step of the way."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tinygpt.conformance.results import Report
from tinygpt.errors import UnjudgedError
from tinygpt.gate.compare import PEAK, PLAIN, Transition, compare, compare_absent, peaks
from tinygpt.gate.environments import Environment, environment
from tinygpt.gate.folder import Folder
from tinygpt.gate.judging import judge, judged, self_test, tested
from tinygpt.gate.release import Release
from tinygpt.gate.request import Request

Say = Callable[[str], object]
READINGS = 3  # of a peak that grew


@dataclass(frozen=True)
class Judged:
    """What is known of one release.

    Attributes:
        side: Its environment.
        reports: By subject.
        broken: What its self-test has against the judge; empty if it did not run.
        absent: Subjects that cannot be judged there, each with the reason.
    """

    side: Environment
    reports: Mapping[str, Report]
    broken: Sequence[str]
    absent: Mapping[str, str] = field(default_factory=dict)


class Session:
    """A run of a gate.

    Attributes:
        request: What it was asked.
        folder: Where its reports are.
        about: What this run is about.
        seconds: How long each step took.
    """

    def __init__(
        self, request: Request, reports: Path, about: Mapping[str, str], *, say: Say, fresh: bool = False
    ) -> None:
        """Open the folder of the reports.

        Args:
            request: What is asked.
            reports: The folder.
            about: What this run is about; it stands in the record.
            say: Called with a line for each step.
            fresh: Whether to begin anew where a run was ended half-way.

        Raises:
            GateError: The folder cannot be used.
        """
        self.request = request
        self.folder = Folder(reports, request.key)
        self.about = dict(about)
        self.seconds: dict[str, float] = {}
        self.say = say
        if fresh:
            self.folder.forget_all()
        kept = self.folder.kept()
        if kept:
            say(f"{kept} reports in {reports} are of this request, and are used again; --fresh to begin anew")

    def __enter__(self) -> "Session":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let another gate use the folder."""
        self.folder.__exit__()

    def environment(self, wanted: Release) -> Environment:
        """Return the environment of a release.

        Raises:
            GateError: It cannot be built.
        """
        build = partial(environment, wanted, cache=self.request.cache, packages=self.request.installed)
        return self.timed(f"environment of mlx {wanted.label}", build)  # type: ignore[no-any-return]

    def judged(self, side: Environment, name: str) -> Judged:
        """Judge every subject in an environment, and the judge itself if that was asked for.

        Args:
            side: The environment.
            name: With which the files of its reports begin.

        Raises:
            GateError: The judge failed there, or has nothing to compare with: plain MLX cannot be judged.
        """
        rules = self.request.rules
        reports: dict[str, Report] = {}
        absent: dict[str, str] = {}
        for subject in self.request.everybody:
            make = partial(judge, side, subject, rules=rules)
            stored = partial(self.folder.get, file_name(name, subject), judged, make)
            try:
                reports[subject] = self.timed(f"{subject}, {name}", stored, _said)
            except UnjudgedError as error:
                if subject == PLAIN:
                    raise
                self.say(str(error))
                absent[subject] = str(error)
        broken: list[str] = []
        if self.request.tested:
            matrix = self.timed(f"self-test, {name}", partial(self._self_tested, side, name))
            broken = matrix["broken"]
        return Judged(side, reports, broken, absent)

    def compared(self, base: Judged, candidate: Judged) -> list[Transition]:
        """Return what changed between two releases; a peak that grew is read again on both sides before it counts."""
        beside = (base.reports[PLAIN], candidate.reports[PLAIN])
        found = compare_absent(base.absent, candidate.absent)
        for subject, before in base.reports.items():
            if subject not in candidate.reports:
                continue
            changed = compare(before, candidate.reports[subject], plain=beside, limits=self.request.limits)
            grown = dict.fromkeys(each.check for each in changed if each.kind == PEAK)
            gone = {check for check in grown if not self._grown_again(base.side, candidate.side, subject, check)}
            found += [each for each in changed if each.kind != PEAK or each.check not in gone]
        return found

    def _grown_again(self, base: Environment, candidate: Environment, subject: str, check: str) -> bool:
        """Return whether a check's peaks are above the limit in every further reading: a busy machine misses the least.

        A side's peak is the least that was read.
        """
        least: list[dict[str, int]] = [{}, {}]
        for _ in range(READINGS):
            for place, side in enumerate((base, candidate)):
                path = self.folder.path / file_name("again", subject)
                work = partial(judge, side, subject, path, [check])
                report: Report = self.timed(f"{check} again, {subject}, {side.release.label}", work, _said)
                for where, size in peaks(report.results[0].measured).items():
                    least[place][where] = min(size, least[place].get(where, size))
                path.unlink()
            before, now = least
            limit = 1 + self.request.limits.peak
            if before and before.keys() == now.keys() and all(now[where] <= before[where] * limit for where in now):
                return False
        return True

    def timed(self, what: str, work: Callable[[], Any], told: Callable[[Any], str] = lambda _: "done") -> Any:
        """Do something, tell it, and note how long it took."""
        start = perf_counter()
        found = work()
        took = perf_counter() - start
        self.seconds[what] = self.seconds.get(what, 0) + round(took, 3)
        self.say(f"  {what}: {told(found)} ({took:.1f} s)")
        return found

    def _self_tested(self, side: Environment, name: str) -> dict[str, Any]:
        prove = partial(self_test, side, rules=self.request.rules)
        return self.folder.get(file_name(name, "self-test"), tested, prove)


def file_name(name: str, subject: str) -> str:
    """Return the file of a report; a subject of the user's has characters that files do not."""
    safe = "".join(sign if sign.isalnum() or sign in ".-_" else "_" for sign in subject)
    return f"{name}-{safe}.json"


def _said(report: Report) -> str:
    counts: dict[str, int] = {}
    for result in report.results:
        counts[result.status] = counts.get(result.status, 0) + 1
    return ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items())
