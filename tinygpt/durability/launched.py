"""Runs of ``tinygpt train`` with several ranks on this machine, as MLX's own launcher starts them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tinygpt.conformance.rank import free_ports
from tinygpt.durability.runs import command
from tinygpt.errors import TrainingError

# mlx.launch, in whichever module this release of MLX keeps it.
LAUNCH = (
    "from importlib.metadata import entry_points\n"
    "(launch,) = entry_points(group='console_scripts', name='mlx.launch')\n"
    "launch.load()()"
)
EXEC = ("bash", "-c", 'exec "$0" "$@"')  # older releases of it take a file, such as an interpreter, for a script
PATIENCE_S = 120.0


def start(count: int, *options: object, cwd: Path, script: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """Start a run with several ranks, connected by MLX's ring over this machine's own network.

    Args:
        count: How many.
        options: Of ``tinygpt train``.
        cwd: Where.
        script: What every rank runs instead.
    """
    port = free_ports(count)[0]  # a run takes as many as it has ranks, from there on
    launcher = [sys.executable, "-c", LAUNCH, "-n", str(count), "--backend", "ring", "--starting-port", str(port)]
    return subprocess.Popen(
        [*launcher, *(script or [*EXEC, *command(*options)])],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that it ends whole
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )


@contextmanager
def started(count: int, *options: object, cwd: Path, script: Sequence[str] = ()) -> "Iterator[subprocess.Popen[str]]":
    """Start a run as ``start`` does, and end what is left of it on leaving."""
    launcher = start(count, *options, cwd=cwd, script=script)
    try:
        yield launcher
    finally:
        with suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.communicate()


def processes(launcher: "subprocess.Popen[str]", count: int) -> dict[int, int]:
    """Return the processes of the ranks below a launcher, by rank, once all are there. They are found in /proc.

    Raises:
        TrainingError: They do not come.
    """
    found: dict[int, int] = {}

    def there() -> bool:
        for folder in Path("/proc").glob("[0-9]*"):
            rank = _rank(folder, launcher.pid)
            if rank is not None:
                found[rank] = int(folder.name)
        return len(found) == count

    wait_until(there, f"{count} ranks")
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so.

    Raises:
        TrainingError: It takes too long.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TrainingError(f"[run] {what}: got none in {PATIENCE_S:.0f} s, expected them")
        time.sleep(0.02)


def _rank(folder: Path, launcher: int) -> int | None:
    """Return the rank of a process, if it is one below a launcher."""
    try:
        session = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[3]
        variables = (folder / "environ").read_bytes().split(b"\0")
        words = (folder / "cmdline").read_bytes()
    except OSError:
        return None
    named = [each for each in variables if each.startswith(b"MLX_RANK=")]
    return int(named[0].partition(b"=")[2]) if named and int(session) == launcher and b"tinygpt" in words else None
