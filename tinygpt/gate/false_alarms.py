"""Gate a release against itself, again and again: ``python -m tinygpt.gate.false_alarms --release 0.32.4``.

Whatever such a gate finds is a false alarm.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinygpt import evidence
from tinygpt.gate.compare import EXIT_OPEN
from tinygpt.gate.environments import default_cache
from tinygpt.gate.pair import pair
from tinygpt.gate.release import release
from tinygpt.gate.request import Request
from tinygpt.gate.session import Session


def main(argv: Sequence[str] | None = None) -> int:
    """Gate, print a line for each time, and return 1 if there was a false alarm."""
    options = evidence.parser("gate.false_alarms", __doc__)
    options.add_argument("--release", required=True, metavar="R", help="such as 0.32.4")
    options.add_argument("--times", type=_count, default=10, metavar="N", help="default: %(default)s")
    options.add_argument("--subject", default="tinygpt", metavar="S", help="default: %(default)s")
    return evidence.main(options, _all, argv)


def _all(arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    request = Request(subjects=[arguments.subject], cache=default_cache(), tested=False)
    itself, found = release(arguments.release), []
    for number in range(1, arguments.times + 1):
        with (
            tempfile.TemporaryDirectory() as folder,
            Session(request, Path(folder) / "reports", {}, say=lambda _: None) as session,
        ):
            outcome = pair(session, itself, itself)
        found.append(outcome.as_dict())
        told = "; ".join(f"{each.kind}: {each.subject} {each.what}" for each in outcome.transitions) or "clean"
        seconds = sum(outcome.seconds.values())
        print(f"{number}/{arguments.times}: {told}, exit code {outcome.exit_code} ({seconds:.0f} s)", flush=True)
    alarms = sum(each["exit_code"] != EXIT_OPEN for each in found)
    told_only = sum(bool(each["transitions"]) for each in found) - alarms
    print(f"{len(found)} gates, {alarms} false alarms, {told_only} that told of something and stayed open")
    return not alarms, {"release": arguments.release, "subject": arguments.subject, "gates": found}


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected a number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
