"""One MLX release, one virtual environment: built once, kept, and whole or not there at all."""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

import tinygpt
from tinygpt.errors import GateError
from tinygpt.gate.installer import install, make_environment
from tinygpt.gate.release import Release

ASK = "import mlx.core as mx; print(mx.__version__)"
BUILDING = "building-"  # such a folder was left by a build that was killed


@dataclass(frozen=True)
class Environment:
    """Where one release is installed.

    Attributes:
        release: Which.
        folder: The virtual environment.
        source: A folder with nothing but the package tinygpt, the one that runs now.
    """

    release: Release
    folder: Path
    source: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """The variables with which its interpreter finds tinygpt, and modules of the user in the working folder."""
        own = [str(self.source), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(Path.cwd())]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(own)}


def default_cache() -> Path:
    """Return where environments are kept: ``$XDG_CACHE_HOME/tinygpt/gate``, or ``~/.cache/tinygpt/gate``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinygpt" / "gate"


def environment(wanted: Release, *, cache: Path, packages: Sequence[str] = ()) -> Environment:
    """Return the environment of a release, built if it is not there.

    Args:
        wanted: The release.
        cache: Where environments are kept.
        packages: Requirements beside MLX and what tinygpt needs.

    Raises:
        GateError: It cannot be built, or another release than the one asked for is imported in it.
    """
    others = [*_needs(), *packages]
    made = f"{sys.implementation.cache_tag}-{wanted.label}-{_digest(wanted.requirement, *others)}"
    folder = cache / made
    try:
        cache.mkdir(parents=True, exist_ok=True)
        source = _source(cache)
        if not (folder / "bin" / "python").exists():
            _build(wanted, others, folder)
    except OSError as error:
        said = "a full disk" if error.errno == 28 else (error.strerror or str(error))  # ENOSPC
        raise GateError(f"[gate] {error.filename or cache}: got {said}, expected room for an environment") from error
    found = Environment(wanted, folder, source)
    _check_release(found)
    return found


def _build(wanted: Release, others: Sequence[str], folder: Path) -> None:
    """Build an environment beside its place, and move it there when it is whole."""
    for left in folder.parent.glob(f"{BUILDING}{folder.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    building = Path(tempfile.mkdtemp(prefix=f"{BUILDING}{folder.name}-", dir=folder.parent))
    try:
        make_environment(building)
        install(wanted, others, building / "bin" / "python")
        building.replace(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _check_release(found: Environment) -> None:
    """Raise unless the release that is imported is the one that was asked for."""
    done = subprocess.run([found.python, "-c", ASK], capture_output=True, text=True, check=False, env=found.variables)
    got = done.stdout.strip()
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["nothing"]
        raise GateError(f"[gate] mlx {found.release.label}: got {lines[-1]}, expected to import it")
    if found.release.version and got.partition("+")[0] != found.release.version.partition("+")[0]:
        raise GateError(f"[gate] mlx {found.release.label}: got {got} when imported, expected {found.release.version}")


def _source(cache: Path) -> Path:
    """Return a folder in which there is only a link to the package that runs now.

    Its own folder cannot be on a path: where tinygpt is installed, another MLX is beside it.
    """
    package = Path(tinygpt.__file__).parent
    folder = cache / f"source-{_digest(str(package))}"
    link = folder / "tinygpt"
    folder.mkdir(exist_ok=True)
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(package, target_is_directory=True)
    return folder


def _needs() -> list[str]:
    """Return what tinygpt needs beside MLX."""
    try:
        stated = importlib.metadata.requires("tinygpt") or []
    except importlib.metadata.PackageNotFoundError:
        raise GateError("[gate] tinygpt: got a copy that is not installed, expected pip install tinygpt") from None
    found = [Requirement(text) for text in stated]
    return [str(each) for each in found if each.marker is None and each.name != "mlx"]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
