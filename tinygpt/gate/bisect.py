"""Find the release in which a verdict changed."""

from collections.abc import Sequence
from functools import partial

from tinygpt.errors import GateError
from tinygpt.gate.judging import judge, judged
from tinygpt.gate.release import Release
from tinygpt.gate.session import Session, file_name

Verdict = tuple[str, ...]


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
    (subject,) = session.request.subjects
    low, high = 0, len(releases) - 1
    first, last = (_verdict(session, rule, releases[place]) for place in (low, high))
    if first == last:
        ends = f"{releases[low].label} and {releases[high].label}"
        raise GateError(f"[gate] bisect {rule}: got {', '.join(first)} at {ends}, expected two verdicts that differ")
    while high - low > 1:
        middle = (low + high) // 2
        found = _verdict(session, rule, releases[middle])
        if found == first:
            low = middle
        else:
            high, last = middle, found
    changed = [f"{one} -> {other.rpartition(' ')[2]}" for one, other in zip(first, last, strict=True) if one != other]
    session.folder.close({"changed": changed, "in": releases[high].label, "after": releases[low].label})
    return f"{subject}: {', '.join(changed)} in mlx {releases[high].label}, after {releases[low].label}"


def _verdict(session: Session, rule: str, release: Release) -> Verdict:
    (subject,) = session.request.subjects
    make = partial(judge, session.environment(release), subject, rules=[rule])
    report = session.folder.get(file_name(release.label, subject), judged, make)
    found = tuple(f"{result.check} {result.status}" for result in report.results)
    session.say(f"mlx {release.label}: {', '.join(found)}")
    return found
