"""Two reports of one subject under two releases: what became of every check. Pure: reports in, transitions out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinygpt.conformance.results import UNFINISHED, Report, Result
from tinygpt.errors import GateError
from tinygpt.gate.race import Lap

# What a transition is, and what the gate does about it; the first that applies is the exit code.
REGRESSION, COVERAGE, EXPECTATION, PEAK, TIME = "worse", "coverage lost", "expectation to edit", "peak", "time"
RERUN, INCOMPARABLE = "rerun", "incomparable"
BETTER, CHANGED, NUMBERS, SLOWER, SILENT_TOO = "better", "changed", "numbers", "slower", "not compared"
CLOSED = (REGRESSION, COVERAGE, EXPECTATION, PEAK, TIME)
UNDECIDED = (RERUN, INCOMPARABLE)
EXIT_OPEN, EXIT_CLOSED, EXIT_UNDECIDED = 0, 1, 2

PLAIN = "plain"
GOOD = ("pass", "xfail")
BAD = ("fail", "error")
SILENT = ("not_applicable", "not_run")

# What must be equal for two judgements to say anything beside each other.
MACHINE = ("backend", "device", "python", "system", "variables")


@dataclass(frozen=True)
class Limits:
    """How much more a candidate may need, as shares.

    Attributes:
        peak: Of a peak in bytes.
        time: Of the median time of a step: more is worth a warning, or fails the gate.
        fail_time: Whether it fails the gate.
    """

    peak: float = 0.02
    time: float = 0.10
    fail_time: bool = False


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Transition:
    """What changed from one release to the next.

    Attributes:
        kind: What it is: ``worse``, ``coverage lost``, ``better``, and so on.
        subject: Whom it is about.
        what: The check, or the reading.
        base: Its status or value before.
        candidate: Its status or value now.
        message: What was said now, or before if nothing is said now.
        mlx: Whether plain MLX changed in the same way: then it is MLX, and not the wrapper.
    """

    kind: str
    subject: str
    what: str
    base: str
    candidate: str
    message: str = ""
    mlx: bool = False

    @property
    def check(self) -> str:
        """The check, without what of it grew."""
        return self.what.partition(" ")[0]


def exit_code(transitions: Sequence[Transition]) -> int:
    """Return 0 where nothing stands against the candidate, 1 where something does, 2 where nothing can be said."""
    kinds = {each.kind for each in transitions}
    if kinds.intersection(CLOSED):
        return EXIT_CLOSED
    return EXIT_UNDECIDED if kinds.intersection(UNDECIDED) else EXIT_OPEN


def compare(
    base: Report, candidate: Report, *, plain: tuple[Report, Report] | None = None, limits: Limits = DEFAULT_LIMITS
) -> list[Transition]:
    """Return what changed between two reports of one subject.

    Args:
        base: The report under the release that is in use.
        candidate: That under the other.
        plain: The two reports of the subject ``plain``, to tell MLX from the wrapper.
        limits: How much more the candidate may need.
    """
    name = base.subject["name"]
    odd = incomparable(base, candidate)
    if odd:
        return [Transition(INCOMPARABLE, name, what, str(one), str(other)) for what, one, other in odd]
    before = {result.check: result for result in base.results}
    beside = [{r.check: r for r in report.results} for report in plain] if plain else [{}, {}]
    found: list[Transition] = []
    for now in candidate.results:
        old = before[now.check]
        kind = kind_of(old.status, now.status)
        if kind:
            same = name == PLAIN or _moved_alike(old, now, *(report.get(now.check) for report in beside))
            found.append(
                Transition(kind, name, now.check, old.status, now.status, now.message or old.message, mlx=same)
            )
        found += _grown(name, old, now, limits)
    return found


def compare_absent(base: Mapping[str, str], candidate: Mapping[str, str]) -> list[Transition]:
    """Return what became of subjects that one of two releases cannot judge at all.

    Args:
        base: Those under the release that is in use, each with the reason.
        candidate: Those under the other.
    """
    gone, back = ([name for name in one if name not in other] for one, other in ((candidate, base), (base, candidate)))
    return [
        *(Transition(REGRESSION, name, "all checks", "judged", "not judged", candidate[name]) for name in gone),
        *(Transition(BETTER, name, "all checks", "not judged", "judged", base[name]) for name in back),
    ]


def kind_of(before: str, now: str) -> str:
    """Return what a change of status is; empty if it is none."""
    if now == "inconclusive" or (before == now and now in UNFINISHED):
        return RERUN
    if before == now or {before, now} <= set(GOOD):
        return ""
    if now == "xpass":
        return EXPECTATION
    if now in BAD:
        return CHANGED if before in BAD else REGRESSION
    if now in SILENT:
        return CHANGED if before in SILENT else COVERAGE
    return BETTER


def incomparable(base: Report, candidate: Report) -> list[tuple[str, Any, Any]]:
    """Return what keeps two reports from being compared: its name, and what either says."""
    own = _own_versions(base, candidate)
    pairs: list[tuple[str, Any, Any]] = [
        ("subject", base.subject["name"], candidate.subject["name"]),
        ("version of the subject", own[0], own[1]),
        ("rule set", base.rule_set, candidate.rule_set),
        *((name, base.environment[name], candidate.environment[name]) for name in MACHINE),
        ("checks", len(base.expected), len(candidate.expected)),
    ]
    odd = [(what, one, other) for what, one, other in pairs if one != other]
    if not odd and set(base.expected) != set(candidate.expected):
        alone = sorted(set(base.expected) ^ set(candidate.expected))
        odd.append(("checks", f"other checks, such as {alone[0]}", "the same checks"))
    return odd


def _own_versions(*reports: Report) -> list[str]:
    """Return the versions of a subject; nothing if it comes with MLX itself."""
    versions = [str(report.subject.get("version", "")) for report in reports]
    with_mlx = [report.environment["packages"].get("mlx") for report in reports]
    return [""] * len(reports) if versions == with_mlx else versions


def compare_laps(base: Sequence[Lap], candidate: Sequence[Lap], limits: Limits) -> list[Transition]:
    """Return what changed in a race: errors, peaks, times and losses.

    Raises:
        GateError: The two did not run the same.
    """
    if [lap.name for lap in base] != [lap.name for lap in candidate]:
        raise GateError("[gate] race: got different laps, expected the same on both sides")
    plain = {lap.mode: (lap, other) for lap, other in zip(base, candidate, strict=True) if lap.subject == PLAIN}
    found: list[Transition] = []
    for old, now in zip(base, candidate, strict=True):
        found += _lap(old, now, limits)
        found += _losses(old, now, *plain.get(old.mode, (None, None)))
    moved = {(each.kind, each.what) for each in found if each.subject == PLAIN}
    return [replace(each, mlx=each.subject == PLAIN or (each.kind, each.what) in moved) for each in found]


def _lap(old: Lap, now: Lap, limits: Limits) -> Iterator[Transition]:
    """Yield what changed in memory, in time, and in whether it runs at all."""
    if old.error or now.error:
        kind = REGRESSION if not old.error else BETTER if not now.error else RERUN
        if old.error == now.error:
            kind = SILENT_TOO  # neither release can train it so, and says the same
        said = [lap.error or "trains" for lap in (old, now)]
        yield Transition(kind, old.subject, f"training [{old.mode}]", said[0], said[1])
        return
    peak, step = now.peak_bytes / old.peak_bytes, now.step_s / old.step_s
    if abs(peak - 1) > limits.peak:
        kind, (before, after) = PEAK if peak > 1 else BETTER, _bytes(old.peak_bytes, now.peak_bytes)
        yield Transition(kind, old.subject, f"peak of a step [{old.mode}]", before, after)
    if abs(step - 1) > limits.time:
        kind = BETTER if step < 1 else TIME if limits.fail_time else SLOWER
        before, after = (f"{lap.step_s * 1e3:.1f} ms" for lap in (old, now))
        yield Transition(kind, old.subject, f"time of a step [{old.mode}]", before, after, f"{step:.2f} times")


def _losses(old: Lap, now: Lap, plain_old: Lap | None, plain_now: Lap | None) -> Iterator[Transition]:
    """Yield how the losses changed: worse where plain MLX's did not, or where one is no number any more."""
    if old.error or now.error or _same(old.losses, now.losses):
        return
    pairs = list(zip(old.losses, now.losses, strict=True))
    first = next(number for number, (one, other) in enumerate(pairs) if not _same([one], [other]))
    before, after = (f"{lap.losses[first]:.9g}" for lap in (old, now))
    apart = max(abs(one - other) for one, other in pairs)
    note = f"at step {first + 1}; at most {apart:.2g} nats apart in {len(pairs)} steps"
    moved = plain_old is None or plain_now is None or not _same(plain_old.losses, plain_now.losses)
    broken = all(map(math.isfinite, old.losses)) and not all(map(math.isfinite, now.losses))
    parted = (
        plain_old is not None
        and plain_now is not None
        and _same(old.losses, plain_old.losses)
        and not _same(now.losses, plain_now.losses)
    )
    if parted:
        note += "; they were plain MLX's, and are not any more"
    kind = REGRESSION if broken or parted or not moved else NUMBERS
    yield Transition(kind, old.subject, f"losses [{old.mode}]", before, after, note)


def _same(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two lists hold the same numbers, or no numbers, at the same places."""
    return [repr(value) for value in one] == [repr(value) for value in other]


def _grown(name: str, old: Result, now: Result, limits: Limits) -> Iterator[Transition]:
    """Yield the peaks of a check that are larger than they may be."""
    for where, size in peaks(now.measured).items():
        before = peaks(old.measured).get(where)
        if before and size > before * (1 + limits.peak):
            plain = [_at(each.measured, where, "plain_bytes") for each in (old, now)]
            same = name == PLAIN or (bool(plain[0]) and bool(plain[1]) and plain[1] > plain[0] * (1 + limits.peak))
            was, is_now = _bytes(before, size)
            yield Transition(PEAK, name, f"{now.check} {where}".strip(), was, is_now, mlx=same)


def peaks(measured: Mapping[str, Any]) -> dict[str, int]:
    """Return the peaks that a check has measured, in bytes, by what they are of."""
    found = {
        key: value["peak_bytes"]
        for key, value in measured.items()
        if isinstance(value, Mapping) and "peak_bytes" in value
    }
    return found | ({"": measured["peak_bytes"]} if "peak_bytes" in measured else {})


def _at(measured: Mapping[str, Any], where: str, key: str) -> int:
    return int((measured.get(where, {}) if where else measured).get(key, 0))


def _bytes(old: int, now: int) -> tuple[str, str]:
    return f"{old:,} B", f"{now:,} B"


def _moved_alike(old: Result, now: Result, plain_old: Result | None, plain_now: Result | None) -> bool:
    """Return whether plain MLX went the same way."""
    if plain_old is None or plain_now is None:
        return False
    return (plain_old.status, plain_now.status) == (old.status, now.status)
