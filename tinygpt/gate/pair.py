"""Two releases: judged, raced and compared."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial

from tinygpt.errors import UnjudgedError
from tinygpt.gate.compare import compare_laps
from tinygpt.gate.outcome import Outcome
from tinygpt.gate.race import Lap, race
from tinygpt.gate.release import Release
from tinygpt.gate.session import Session


def pair(session: Session, base: Release, candidate: Release) -> Outcome:
    """Judge and race two releases, and compare them.

    Args:
        session: Whom to judge, how, and where the reports are.
        base: The release that is in use.
        candidate: The one that may come.

    Raises:
        GateError: An environment cannot be built, or a subject cannot be judged under the release that is in use.
    """
    names = [f"base-{base.label}", f"candidate-{candidate.label}"]
    with ThreadPoolExecutor() as pool:  # to download and unpack is not to compute
        sides = list(pool.map(session.environment, (base, candidate)))
    before = session.judged(sides[0], names[0])
    for reason in before.absent.values():  # the candidate would have nothing to be compared with
        raise UnjudgedError(reason)
    now = session.judged(sides[1], names[1])
    found = session.compared(before, now)
    laps: list[list[Lap]] = []
    if session.request.raced:
        laps = session.timed("race", partial(race, sides, list(now.reports)))
        found += compare_laps(laps[0], laps[1], session.request.limits)
    unproven = {name: each.broken for name, each in zip(names, (before, now), strict=True) if each.broken}
    outcome = Outcome([base.label, candidate.label], [found], session.seconds, unproven)
    raced = {name: [asdict(lap) for lap in each] for name, each in zip(names, laps, strict=False)}
    session.folder.close({**session.about, **outcome.as_dict(), "laps": raced})
    return outcome
