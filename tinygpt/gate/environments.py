"""One MLX release, one virtual environment: built once, kept, and whole or not there at all."""

import errno
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

import tinygpt
from tinygpt.errors import GateError
from tinygpt.gate.installer import install, make_environment
from tinygpt.gate.release import Release

# Prints what is imported, and from where.
ASK = """
import json, mlx.core, mlx.nn, tinygpt
files = [mlx.core.__file__, mlx.nn.__file__, tinygpt.__file__]
print(json.dumps({"version": mlx.core.__version__, "files": files}))
"""
# What is on the user's path comes last: another mlx there must not be the one that is judged.
START = """
import runpy, sys
sys.path += {path!r}
sys.argv[0] = {module!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
BUILDING = "building-"  # such a folder was left by a build that was killed
LOCKS = "locks"


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

    def command(self, module: str, *words: str) -> list[str]:
        """Return the command that runs a module in it; modules of the user are found, after everything else."""
        user = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(Path.cwd())]
        return [str(self.python), "-P", "-c", START.format(path=user, module=module), *words]

    @property
    def variables(self) -> dict[str, str]:
        """The variables with which its interpreter finds the tinygpt that runs now, and no other."""
        return {**os.environ, "PYTHONPATH": str(self.source)}


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
    interpreter = f"{sys.version} {sys.base_prefix}"
    made = f"{sys.implementation.cache_tag}-{wanted.label}-{_digest(wanted.requirement, interpreter, *others)}"
    folder = cache / made
    try:
        (cache / LOCKS).mkdir(parents=True, exist_ok=True)
        source = _source(cache)
        with locked(cache / LOCKS / made):
            if not (folder / "bin" / "python").exists():
                _build(wanted, others, folder)
    except OSError as error:
        said = "a full disk" if error.errno == errno.ENOSPC else (error.strerror or str(error))
        raise GateError(f"[gate] {error.filename or cache}: got {said}, expected room for an environment") from error
    found = Environment(wanted, folder, source)
    _check_release(found)
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file inside the context; wait for whoever holds it."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(wanted: Release, others: Sequence[str], folder: Path) -> None:
    """Build an environment beside its place, and move it there when it is whole. Nobody else builds it now."""
    for left in folder.parent.glob(f"{BUILDING}{folder.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)  # its interpreter is gone
    building = Path(tempfile.mkdtemp(prefix=f"{BUILDING}{folder.name}-", dir=folder.parent))
    try:
        make_environment(building)
        install(wanted, others, building / "bin" / "python")
        building.replace(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _check_release(found: Environment) -> None:
    """Raise unless what is imported is the release that was asked for, from this environment, and our own tinygpt."""
    place = f"[gate] mlx {found.release.label}"
    command = [str(found.python), "-P", "-c", ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=found.variables)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["nothing"]
        raise GateError(f"{place}: got {lines[-1]}, expected to import it")
    got = json.loads(done.stdout)
    *mlx, own = map(Path, got["files"])
    for path, folder in [*((each, found.folder) for each in mlx), (own, found.source)]:
        if not path.is_relative_to(folder):
            raise GateError(f"{place}: got {path}, expected what is imported to be in {folder}")
    if found.release.version and Version(got["version"]).release != Version(found.release.version).release:
        raise GateError(f"{place}: got {got['version']} when imported, expected {found.release.version}")


def _source(cache: Path) -> Path:
    """Return a folder in which there is only a link to the package that runs now.

    Its own folder cannot be on a path: where tinygpt is installed, another MLX is beside it.
    """
    package = Path(tinygpt.__file__).parent
    folder = cache / f"source-{_digest(str(package))}"
    link = folder / "tinygpt"
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError):
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
