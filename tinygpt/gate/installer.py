"""Ask the installer: which releases there are, and to install one. uv where it is found, else pip."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from tinygpt.errors import GateError
from tinygpt.gate.release import OLDEST, Release

RETRIES = "1"  # of a connection: an answer within seconds where there is no network
OTHER_PYTHONS = tuple(f"3.{minor}" for minor in range(9, 16))
ELSEWHERE = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_PYTHON", "UV_SYSTEM_PYTHON")
OFFLINE = re.compile(
    r"NewConnectionError|ConnectTimeout|Connection refused|connection error|name resolution|error sending request|"
    r"Network is unreachable|Could not fetch URL|connection broken|dns error",
    re.IGNORECASE,
)
FULL = re.compile(r"No space left on device|Disk quota exceeded|os error 28", re.IGNORECASE)
MISSING = re.compile(r"(No matching distribution found for|no versions? of) (?P<name>[\w.-]+)")


def releases(python: str = "") -> list[str]:
    """Return MLX's releases that can be installed here, the oldest first.

    Args:
        python: A version such as ``3.12``: those for another interpreter.

    Raises:
        GateError: The index cannot be reached, or has none.
    """
    other = ["--python-version", python, "--only-binary", ":all:"] if python else []
    # Only pip can list; what is installed is installed with uv or with pip.
    done = _run([sys.executable, "-m", "pip", "--retries", RETRIES, "index", "versions", "mlx", *other])
    listed = re.search(r"Available versions: (?P<all>.*)", done.stdout)
    if done.returncode or listed is None:
        raise _failure("the index", done.stderr, "a list of MLX's releases")
    found = sorted(Version(text) for text in listed["all"].split(", "))
    return [str(version) for version in found if version >= OLDEST and not version.is_prerelease]


def make_environment(folder: Path) -> None:
    """Create a virtual environment with this interpreter.

    Raises:
        GateError: It cannot be created.
    """
    uv = shutil.which("uv")
    if uv:
        command = [uv, "venv", "--quiet", "--python", sys.executable, str(folder)]
    else:
        command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    done = _run(command)
    if done.returncode:
        raise _failure("environment", done.stderr or done.stdout, "a virtual environment")


def install(wanted: Release, others: Sequence[str], python: Path) -> None:
    """Install a release, and packages that go with it, for an interpreter.

    Args:
        wanted: The release.
        others: Requirements.
        python: The interpreter of an environment.

    Raises:
        GateError: No network, no such release, no wheel for this interpreter, a full disk, or what the installer says.
    """
    uv = shutil.which("uv")
    if uv:
        command = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        command = [sys.executable, "-m", "pip", "--python", str(python), "--retries", RETRIES, "install", "--quiet"]
    done = _run([*command, wanted.requirement, *others])
    if done.returncode:
        place = f"mlx {wanted.label}"
        missing = MISSING.search(done.stderr)
        if missing and missing["name"] in ("mlx", "mlx-cpu") and not OFFLINE.search(done.stderr):
            raise GateError(f"[gate] {place}: {_why_missing(wanted)}")
        raise _failure(place, done.stderr, "an installation")


def _why_missing(wanted: Release) -> str:
    """Return why an index does not give a release: it has none of that number, or none for this interpreter."""
    here = f"Python {sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"
    own = f"3.{sys.version_info.minor}"
    fitting = [python for python in OTHER_PYTHONS if python != own and wanted.version in _for(python)]
    if fitting:
        return f"got no wheel for {here}, expected one of Python {', '.join(fitting)}"
    known = _for("")
    if not known:
        return f"got nothing from the index for {here}, expected MLX's releases"
    return f"got no such release in the index, expected one of {', '.join(known[-5:])} or older"


def _for(python: str) -> list[str]:
    try:
        return releases(python)
    except GateError:
        return []


def _failure(place: str, said: str, expected: str) -> GateError:
    if FULL.search(said):
        return GateError(f"[gate] {place}: got a full disk, expected room for {expected}")
    if OFFLINE.search(said):
        return GateError(f"[gate] {place}: got no connection to the index, expected {expected}")
    lines = [line for line in said.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    reason = (errors or lines or ["no reason"])[-1].strip()
    return GateError(f"[gate] {place}: got {reason}, expected {expected}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run an installer, without what would let it find packages, or put them, somewhere else."""
    variables = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
