"""Kill one training run again and again: ``python -m tinygpt.durability.kills --report FILE``.

The run saves after every step, and is killed by SIGKILL at a random moment, four times of five while it saves. What it
leaves is looked at, and it goes on from there. In the end it must be, to the bit, the run that nobody killed.
"""

import argparse
import collections
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tinygpt import evidence
from tinygpt.durability.runs import SMALL, command, losses, tensor_digests, train
from tinygpt.errors import TinyGPTFileError, TrainingError
from tinygpt.tinygpt_file import PREVIOUS, beside, load
from tinygpt.tinygpt_file.saving import UNFINISHED

OPTIONS = (*SMALL, "--no-compile", "--dropout", "0.1", "--grad-checkpoint")
STEPS = 1_000_000
LONGEST_S = 0.5  # from the first step to a kill anywhere
SAVING_S = 0.08  # from the beginning of a saving to a kill in it; most take about that long
SAVING_SHARE = 0.8
PATIENCE_S = 120.0


def main(argv: Sequence[str] | None = None) -> int:
    """Kill a run, print how often what was left, and return 1 if anything was lost."""
    options = evidence.parser("durability.kills", __doc__)
    options.add_argument("--kills", type=int, default=200, metavar="N", help="how often (default: %(default)s)")
    return evidence.main(options, _kill_all, argv)


def _kill_all(arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder) / "run.tinygpt", Path(folder) / "run.json"
        outcomes: collections.Counter[str] = collections.Counter()
        chance = random.Random(0)
        for number in range(arguments.kills):
            saving = chance.random() < SAVING_SHARE
            delay_s = chance.uniform(0, SAVING_S if saving else LONGEST_S)
            outcome = kill_once(path, log, delay_s, saving=saving)
            outcomes[outcome] += 1
            print(f"kill {number + 1}: {outcome}", flush=True)
        last = max(losses(log)) + 1
        train("--resume", _whole(path), "--out", path, "--steps", last, "--json", log)
        left = sorted(entry.name for entry in Path(folder).iterdir())
        alone, alone_log = Path(folder) / "alone.tinygpt", Path(folder) / "alone.json"
        train(*OPTIONS, "--steps", last, "--out", alone, "--json", alone_log)
        equal = losses(log) == losses(alone_log) and tensor_digests(path) == tensor_digests(alone)
    tidy = left == ["run.json", "run.tinygpt", "run.tinygpt.previous"]
    for outcome, count in outcomes.items():
        print(f"{outcome}: {count}")
    print(f"after {last} steps {'equal to' if equal else 'UNLIKE'} the run that nobody killed; left behind: {left}")
    return equal and tidy and "lost" not in outcomes, {
        "kills": arguments.kills,
        "outcomes": outcomes,
        "steps": last,
        "equal": equal,
        "left_behind": left,
    }


def kill_once(path: Path, log: Path, delay_s: float, *, saving: bool = True) -> str:
    """Start the run, or let it go on; kill it; return what it has left.

    Args:
        path: The file of the run.
        log: Its log.
        delay_s: How long after the beginning of a saving, or after the next step, it is killed.
        saving: Which of the two.

    Raises:
        TrainingError: The run ended by itself.
    """
    whole = _whole(path)
    begin = (*OPTIONS, "--out", path) if whole is None else ("--resume", whole, "--out", path)
    before = _size(log)
    with subprocess.Popen(
        command(*begin, "--steps", STEPS, "--save-every", 1, "--json", log),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _wait_for_step(process, log, before)
        if saving:
            _wait(process, beside(path, UNFINISHED).exists)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
    unfinished = beside(path, UNFINISHED).exists()
    if _loads(path):
        return "killed while saving, the file is whole" if unfinished else "killed elsewhere, the file is whole"
    if _loads(beside(path, PREVIOUS)):
        return "the previous file is whole"
    return "lost" if whole is not None or path.exists() else "killed before the first saving"


def _wait_for_step(process: "subprocess.Popen[str]", log: Path, before: int) -> None:
    """Wait until the log has grown by a step."""
    _wait(process, lambda: log.exists() and '"tokens_per_s"' in log.read_text(encoding="utf-8")[before:])


def _wait(process: "subprocess.Popen[str]", condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None:
            error = process.stderr.read().strip() if process.stderr else ""
            raise TrainingError(f"[kills] run: got an end by itself, {error}, expected one that goes on")
        if time.monotonic() > deadline:
            raise TrainingError(f"[kills] run: got no step in {PATIENCE_S:.0f} s, expected one")
        time.sleep(0.001)


def _whole(path: Path) -> Path | None:
    """Return which of the two files can be gone on from."""
    return next((found for found in (path, beside(path, PREVIOUS)) if _loads(found)), None)


def _loads(path: Path) -> bool:
    try:
        load(path)
    except TinyGPTFileError:
        return False
    return True


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
