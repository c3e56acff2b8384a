"""``tinygpt gate``: may we bump MLX? Exit code 0 yes, 1 no, 2 nothing can be said, 3 bad input or no environment."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tinygpt.errors import ReportError, UsageError
from tinygpt.report.benchmark import share
from tinygpt.report.transitions import Told, as_markdown, as_text

if TYPE_CHECKING:
    from tinygpt.gate.release import Release
    from tinygpt.gate.request import Request
    from tinygpt.gate.session import Session

BUILT_IN = "all"
LATEST = "latest"
PAIR = 2


def add(gate: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = gate.add_argument
    what = gate.add_mutually_exclusive_group(required=True)
    what.add_argument("--base", metavar="RELEASE", help="the release in use, such as 0.31.2")
    what.add_argument("--all", action="store_true", help="every release that can be installed, against the one before")
    what.add_argument("--bisect", metavar="RULE", help="find the release in which a verdict changed")
    add("--candidate", metavar="RELEASE", help="the one that may come: a number, latest, main, or a wheel of mlx")
    add("between", nargs="*", metavar="RELEASE", help="where --all or --bisect begin and end (default: all releases)")
    add(
        "--subject",
        action="append",
        metavar="S",
        help="whom to judge, as for tinygpt check; all for the built-in ones (default: tinygpt); may be repeated",
    )
    add("--rules", action="append", metavar="GLOB", help="rules, checks or families (default: all); may be repeated")
    add("--with", dest="packages", action="append", metavar="REQUIREMENT", help="a package that a subject needs")
    add("--fail-peak", default="2%", metavar="SHARE", help="how much higher a peak may be (default: 2%%)")
    add("--fail-time", metavar="SHARE", help="fail where a step takes this much longer (default: warn from 10%%)")
    add(
        "--self-test",
        action=argparse.BooleanOptionalAction,
        help="judge the judge in every environment, too; the matrix shows nothing without (default: with --all)",
    )
    add("--no-race", action="store_true", help="do not train side by side: verdicts and footprints only")
    add("--reports", type=Path, default=Path("gate"), metavar="DIR", help="where reports go (default: %(default)s)")
    add("--cache", type=Path, metavar="DIR", help="where environments are kept (default: ~/.cache/tinygpt/gate)")
    add("--fresh", action="store_true", help="use no report of a run that was ended half-way")
    add("--markdown", type=Path, metavar="FILE", help="write the table of what changed, for a job summary")
    gate.set_defaults(run=_gate)


def add_compare(compare: argparse.ArgumentParser) -> None:
    """Add the options of ``tinygpt gate compare``."""
    add = compare.add_argument
    add("base", type=Path, metavar="BASE.json", help="what tinygpt check --report has written under one release")
    add("candidate", type=Path, metavar="CANDIDATE.json", help="and under the other")
    add("--fail-peak", default="2%", metavar="SHARE", help="how much higher a peak may be (default: 2%%)")
    add("--markdown", type=Path, metavar="FILE", help="write the table of what changed")
    compare.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    from tinygpt.conformance.results import load  # noqa: PLC0415  (what it imports is slow)
    from tinygpt.gate.compare import Limits, compare, exit_code  # noqa: PLC0415

    base, candidate = load(arguments.base), load(arguments.candidate)
    found = compare(base, candidate, limits=Limits(peak=_share(arguments.fail_peak)))
    labels = [report.environment["packages"].get("mlx", "unknown") for report in (base, candidate)]
    _show(Told(labels, [[asdict(each) for each in found]], {}, exit_code(found)), arguments.markdown)
    return exit_code(found)


def _gate(arguments: argparse.Namespace) -> int:
    from tinygpt.gate.bisect import bisect  # noqa: PLC0415  (MLX only when it is needed)
    from tinygpt.gate.pair import pair  # noqa: PLC0415
    from tinygpt.gate.walk import walk  # noqa: PLC0415

    if arguments.markdown is not None and not arguments.markdown.parent.is_dir():
        raise UsageError(f"[gate] --markdown {arguments.markdown}: got no such folder, expected a file to write to")
    request = _request(arguments)
    if arguments.bisect:
        if len(request.subjects) != 1:
            raise UsageError(f"[gate] --bisect: got {len(request.subjects)} subjects, expected one")
        about = {"bisect": arguments.bisect, "subject": request.subjects[0]}
        releases = _range(arguments)
        with _session(arguments, request, about) as session:
            print(bisect(session, arguments.bisect, releases))
        return 0
    if arguments.all:
        if arguments.fail_time is not None:
            raise UsageError("[gate] --fail-time: got it with --all, which races nothing, expected it with --base")
        releases = _range(arguments)
        with _session(arguments, request, {}) as session:
            outcome = walk(session, releases)
    else:
        if arguments.candidate is None:
            raise UsageError("[gate] --candidate: got none, expected the release that may come")
        if arguments.between:
            raise UsageError(f"[gate] RELEASE: got {arguments.between[0]}, expected none beside --base")
        base, candidate = (_named(text) for text in (arguments.base, arguments.candidate))
        about = {"base": base.label, "candidate": candidate.label}
        with _session(arguments, request, about) as session:
            outcome = pair(session, base, candidate)
    steps = [[asdict(each) for each in step] for step in outcome.steps]
    _show(Told(outcome.labels, steps, outcome.unproven, outcome.exit_code), arguments.markdown)
    return outcome.exit_code


def _session(arguments: argparse.Namespace, request: "Request", about: dict[str, str]) -> "Session":
    from tinygpt.gate.session import Session  # noqa: PLC0415

    return Session(request, arguments.reports, about, say=_say, fresh=arguments.fresh)


def _request(arguments: argparse.Namespace) -> "Request":
    from tinygpt.conformance.subjects import BUILT_IN as SUBJECTS  # noqa: PLC0415
    from tinygpt.gate.compare import DEFAULT_LIMITS, Limits  # noqa: PLC0415
    from tinygpt.gate.environments import default_cache  # noqa: PLC0415
    from tinygpt.gate.request import Request  # noqa: PLC0415

    time = DEFAULT_LIMITS.time if arguments.fail_time is None else _share(arguments.fail_time)
    return Request(
        subjects=[n for each in arguments.subject or ["tinygpt"] for n in (SUBJECTS if each == BUILT_IN else [each])],
        cache=arguments.cache or default_cache(),
        rules=arguments.rules or [],
        limits=Limits(_share(arguments.fail_peak), time, fail_time=arguments.fail_time is not None),
        packages=arguments.packages or [],
        raced=not arguments.no_race,
        tested=arguments.all if arguments.self_test is None else arguments.self_test,
    )


def _named(text: str) -> "Release":
    from tinygpt.gate.installer import releases  # noqa: PLC0415
    from tinygpt.gate.release import release  # noqa: PLC0415

    return release(releases()[-1] if text == LATEST else text)


def _range(arguments: argparse.Namespace) -> "list[Release]":
    """Return the releases between the two that are named, or all that can be installed here."""
    from packaging.version import Version  # noqa: PLC0415

    from tinygpt.gate.installer import releases  # noqa: PLC0415
    from tinygpt.gate.release import release  # noqa: PLC0415

    known = [release(text) for text in releases()]
    if not known:
        raise UsageError("[gate] releases: got none from the index, expected MLX's releases")
    between = arguments.between or [known[0].label, known[-1].label]
    if len(between) != PAIR:
        raise UsageError(f"[gate] releases: got {' '.join(between)}, expected where to begin and where to end")
    low, high = (_named(text) for text in between)
    for text, each in zip(between, (low, high), strict=True):
        if each.label != each.version:
            raise UsageError(f"[gate] releases: got {text}, expected a number to begin or end with")
    chosen = [each for each in known if Version(low.version) <= Version(each.version) <= Version(high.version)]
    if len(chosen) < PAIR:
        raise UsageError(f"[gate] releases: got {len(chosen)} from {low.label} to {high.label}, expected at least two")
    return chosen


def _share(text: str) -> float:
    return float(share(text))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show(told: Told, path: Path | None) -> None:
    print(as_text(told))
    if path is not None:
        try:
            path.write_text(as_markdown(told), encoding="utf-8")
        except OSError as error:
            raise ReportError(f"[gate] {path}: got {error.strerror}, expected a file to write to") from error
