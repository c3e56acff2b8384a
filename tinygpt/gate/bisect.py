"""Find the release in which a verdict changed."""

from collections.abc import Sequence
from functools import partial

from packaging.version import Version

from tinygpt.conformance.results import UNFINISHED
from tinygpt.errors import GateError
from tinygpt.gate.judging import judge, judged
from tinygpt.gate.release import Release
from tinygpt.gate.session import Session, file_name

Verdict = tuple[str, ...]
TRIES = 2
PAIR = 2


def bisect(session: Session, rule: str, releases: Sequence[Release]) -> str:
    """Find the release from which on a rule says something else of the one subject of a session.

    Args:
        session: Whom to judge, and where the reports are.
        rule: A rule, or a check.
        releases: From the oldest; the verdicts of the first and the last must differ.

    Returns:
        What changed, in which release, in words.

    Raises:
        GateError: The verdicts at the two ends are the same, or an environment cannot be built.
    """
    ahead = list(releases)
    first, last = (_verdict(session, rule, ahead[place]) for place in (0, -1))
    if first is None or last is None or first == last:
        ends = f"{ahead[0].label} and {ahead[-1].label}"
        said = " and ".join(", ".join(each) if each else "no verdict" for each in (first, last))
        raise GateError(f"[gate] bisect {rule}: got {said} at {ends}, expected two verdicts that differ")
    unknown: list[str] = []
    while len(ahead) > PAIR:
        middle = len(ahead) // 2
        found = _verdict(session, rule, ahead[middle])
        if found is None:
            unknown.append(ahead.pop(middle).label)
        elif found == first:
            ahead = ahead[middle:]
        else:
            ahead, last = ahead[: middle + 1], found
    changed = [f"{one} -> {other.rpartition(' ')[2]}" for one, other in zip(first, last, strict=True) if one != other]
    between = [label for label in unknown if _is_between(label, ahead)]
    doubt = f", or in {' or '.join(between)}, which gave no verdict" if between else ""
    session.folder.close(
        {**session.about, "changed": changed, "in": ahead[1].label, "after": ahead[0].label, "unknown": between}
    )
    (subject,) = session.request.subjects
    return f"{subject}: {', '.join(changed)} in mlx {ahead[1].label}, after {ahead[0].label}{doubt}"


def _is_between(label: str, ends: Sequence[Release]) -> bool:
    return Version(ends[0].label) < Version(label) < Version(ends[1].label)


def _verdict(session: Session, rule: str, release: Release) -> Verdict | None:
    """Return what is said of a rule under a release; nothing if it cannot be judged, or not for certain."""
    (subject,) = session.request.subjects
    for _ in range(TRIES):
        try:
            make = partial(judge, session.environment(release), subject, rules=[rule])
            report = session.folder.get(file_name(f"bisect-{release.label}", f"{subject}-{rule}"), judged, make)
        except GateError as error:
            session.say(str(error))
            return None
        found = tuple(f"{result.check} {result.status}" for result in report.results)
        session.say(f"mlx {release.label}: {', '.join(found)}")
        if not {result.status for result in report.results}.intersection(UNFINISHED):
            return found
        session.folder.forget(file_name(f"bisect-{release.label}", f"{subject}-{rule}"))
    return None
