"""Judge in the environment of a release: a subject, or the judge itself."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from tinygpt.conformance.results import EXIT_USAGE, Report, load
from tinygpt.errors import GateError, UnjudgedError
from tinygpt.gate.environments import Environment


def judge(where: Environment, subject: str, path: Path, rules: Sequence[str] = ()) -> Report:
    """Judge a subject in an environment, and store the report.

    Args:
        where: The environment.
        subject: A name, or ``package.module:attribute``.
        path: Of the report; it is whole, or not there.
        rules: Patterns; all if not given.

    Raises:
        UnjudgedError: The subject is not there, or cannot be imported.
        GateError: The judge failed, or was of another release than the one asked for.
    """
    chosen = [word for rule in rules for word in ("--rules", rule)]
    place = f"{subject} under mlx {where.release.label}"
    partial = _check(where, [subject, *chosen, "--format", "json"], path, place)
    found = judged(partial)
    if subject not in (found.subject["name"], found.subject["address"]):
        raise GateError(f"[gate] {place}: got a report of {found.subject['name']}, expected one of {subject}")
    partial.replace(path)
    return found


def self_test(where: Environment, path: Path, *, rules: Sequence[str] = ()) -> dict[str, Any]:
    """Judge the judge in an environment: every fault by the checks that it names, every control by all.

    Args:
        where: The environment.
        path: Of the report; it is whole, or not there.
        rules: Patterns; all if not given.

    Returns:
        The matrix of faults and checks, as ``tinygpt.faults.self_test`` gives it.

    Raises:
        GateError: It cannot run there.
    """
    chosen = [word for rule in rules for word in ("--rules", rule)]
    place = f"self-test under mlx {where.release.label}"
    partial = _check(where, ["--self-test", "named", *chosen], path, place)
    found = tested(partial)
    partial.replace(path)
    return found


def judged(path: Path) -> Report:
    """Return a report that ``judge`` has stored."""
    return load(path)


def tested(path: Path) -> dict[str, Any]:
    """Return a matrix that ``self_test`` has stored.

    Raises:
        GateError: The file is not what was stored.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = (found["rule_set"], found["environment"]["packages"], list(found["broken"]), found["killed"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GateError(f"[gate] {path}: got {error!r}, expected the report of a self-test") from error
    return found


def _check(where: Environment, words: Sequence[str], path: Path, place: str) -> Path:
    """Run ``tinygpt check`` in an environment; return its report, which is not in its place yet."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    command = where.command("tinygpt", "check", *words, "--report", str(partial))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=where.variables)
    if done.returncode not in range(EXIT_USAGE) or not partial.is_file():
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        refused = UnjudgedError if done.returncode == EXIT_USAGE else GateError
        raise refused(f"[gate] {place}: got {lines[-1]}, expected a report")
    try:
        got = json.loads(partial.read_text(encoding="utf-8"))["environment"]["packages"]["mlx"]
    except (ValueError, KeyError, TypeError) as error:
        raise GateError(f"[gate] {place}: got {error!r}, expected a whole report") from error
    version = where.release.version
    if version and Version(got).release != Version(version).release:
        raise GateError(f"[gate] {place}: got a report of mlx {got}, expected {version}")
    return partial
