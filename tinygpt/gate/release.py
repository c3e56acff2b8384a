"""An MLX release as a user names it: a number, a wheel, or MLX's main branch."""

import hashlib
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from tinygpt.errors import GateError

OLDEST = Version("0.26.5")
MAIN = "main"
REPOSITORY = "https://github.com/ml-explore/mlx"
COMMIT = re.compile(r"(?P<commit>[0-9a-f]{40})\srefs/heads/main")
BACKEND = "metal" if sys.platform == "darwin" else "cpu"
NAME = "mlx" if sys.platform == "darwin" else "mlx[cpu]"  # on Linux, MLX's own package has no backend
WHEEL = re.compile(r"mlx-(?P<version>[^-]+)(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")


@dataclass(frozen=True)
class Release:
    """One MLX that can be installed.

    Attributes:
        label: What reports and folders call it: ``0.32.4``, ``0.32.4+9f86d081``, ``main-9f86d081``.
        requirement: What an installer is given.
        version: What ``mlx.core`` must say that it is; empty for main, which is whatever it is.
    """

    label: str
    requirement: str
    version: str


def release(named: str) -> Release:
    """Return the release that a user has named.

    Args:
        named: ``0.32.4``, the path of a wheel of mlx, or ``main``.

    Raises:
        GateError: It is none of these, is older than what tinygpt supports, or there is no such wheel.
    """
    if named == MAIN:
        return _main()
    if named.endswith(".whl"):
        return _wheel(Path(named))
    return _numbered(_version(named))


def _numbered(version: Version) -> Release:
    return Release(str(version), f"{NAME}=={version}", str(version))


def _main() -> Release:
    """Return what MLX's main branch is now: the environment of another commit is another one."""
    command = ["git", "ls-remote", REPOSITORY, "refs/heads/main"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said, found = done.stderr, COMMIT.match(done.stdout)
    except OSError as error:
        said, found = str(error), None
    if found is None:
        reason = (said.strip().splitlines() or ["no answer"])[-1]
        raise GateError(f"[gate] main: got {reason}, expected the commit of {REPOSITORY}")
    commit = found["commit"]
    return Release(f"{MAIN}-{commit[:8]}", f"{NAME} @ git+{REPOSITORY}@{commit}", "")


def _wheel(path: Path) -> Release:
    matched = WHEEL.fullmatch(path.name)
    if matched is None or not path.is_file():
        raise GateError(f"[gate] release: got {path}, expected a wheel of mlx that is there")
    version = _version(matched["version"])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    return Release(f"{version}+{digest}", f"{NAME} @ {path.resolve().as_uri()}", str(version))


def _version(text: str) -> Version:
    try:
        version = Version(text)
    except InvalidVersion:
        raise GateError(
            f"[gate] release: got {text!r}, expected a number such as 0.32.4, latest, main, or a wheel"
        ) from None
    if version < OLDEST:
        raise GateError(f"[gate] release: got {text}, expected {OLDEST} or newer")
    return version
