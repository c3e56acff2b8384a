"""All releases, each compared with the one before it."""

from collections.abc import Sequence

from tinygpt.errors import GateError, TinyGPTError
from tinygpt.gate.compare import Transition
from tinygpt.gate.outcome import Outcome
from tinygpt.gate.release import BACKEND, Release
from tinygpt.gate.session import Judged, Session


def walk(session: Session, releases: Sequence[Release]) -> Outcome:
    """Judge every release, and compare each with the one before it.

    A release that cannot be judged is told, and the others go on: its neighbours are compared with each other, and
    the outcome says that nothing is known of it. The reports stay, for the next walk and for the matrix.

    Args:
        session: Whom to judge, how, and where the reports are.
        releases: From the oldest.

    Raises:
        GateError: No release can be judged.
    """
    labels: list[str] = []
    found: list[Judged] = []
    steps: list[list[Transition]] = []
    unproven: dict[str, Sequence[str]] = {}
    for number, each in enumerate(releases, start=1):
        session.say(f"[{number}/{len(releases)}] mlx {each.label}")
        try:
            now = session.judged(session.environment(each), f"{BACKEND}-{each.label}")
        except TinyGPTError as error:
            session.say(str(error))
            unproven[each.label] = [str(error)]
            continue
        if found:
            steps.append(session.compared(found[-1], now))
        labels.append(each.label)
        found.append(now)
        if now.broken or now.absent:
            unproven[each.label] = [*now.broken, *now.absent.values()]
    if not labels:
        raise GateError(f"[gate] releases: got none of {len(releases)} that could be judged, expected at least one")
    outcome = Outcome(labels, steps, session.seconds, unproven)
    session.folder.record({**session.about, **outcome.as_dict()})
    return outcome
