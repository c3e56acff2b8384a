"""Train every variant on real text, plain and checkpointed: ``python -m tinygpt.equality.curves --report FILE``.

Two hundred steps of a small model through ``tinygpt train``, as its users run it. The loss must fall, and the two
curves must be one, auxiliary losses included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinygpt import evidence
from tinygpt.errors import TrainingError

# As options of the command.
OPTIONS: dict[str, tuple[str, ...]] = {
    "dense": (),
    "dropout": ("--dropout", "0.1"),
    "rotary": ("--position", "rotary"),
    "rms": ("--norm", "rms"),
    "swiglu": ("--feed-forward", "swiglu"),
    "grouped": ("--n-kv-head", "2"),
    "window": ("--window", "5"),
    "differential": ("--attention", "differential"),
    "experts": ("--n-expert", "4", "--top-k", "2"),
    "dense-experts": ("--n-expert", "4", "--top-k", "2", "--expert-products", "dense"),
    "switch": ("--n-expert", "4"),
    "depths": ("--mod-capacity", "0.5"),
    "yoco": ("--yoco",),
}
SMALL = ("--preset", "tiny", "--n-layer", "2", "--batch", "2", "--context", "16")


def curve(options: Sequence[str], *, steps: int) -> list[dict[str, Any]]:
    """Return the records of a run of ``tinygpt train``: every step's losses, without what depends on the clock.

    Raises:
        TrainingError: The command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        command = [
            sys.executable,
            "-m",
            "tinygpt",
            "train",
            *SMALL,
            "--steps",
            str(steps),
            "--json",
            str(log),
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TrainingError(f"[curves] {' '.join(options)}: got {done.stderr.strip()}, expected a training run")
        *records, _ = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
    return [{"loss": record["loss"], **record["auxiliary"]} for record in records]


def main(argv: Sequence[str] | None = None) -> int:
    """Train all variants, print a line for each, and return 1 if a loss does not fall or two curves differ."""
    options = evidence.parser("equality.curves", __doc__)
    options.add_argument("--steps", type=int, default=200, metavar="N", help="of each run (default: %(default)s)")
    return evidence.main(options, _train_all, argv)


def _train_all(arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    records, good = {}, True
    for variant, options in OPTIONS.items():
        plain, checkpointed = (curve([*options, *more], steps=arguments.steps) for more in ((), ("--grad-checkpoint",)))
        equal, falls = plain == checkpointed, plain[-1]["loss"] < plain[0]["loss"]
        good = good and equal and falls
        records[variant] = {"options": options, "equal": equal, "plain": plain}
        first, last = plain[0]["loss"], plain[-1]["loss"]
        print(f"{variant}: loss {first:.3f} to {last:.3f}, curves {'equal' if equal else 'DIFFER'}", flush=True)
    return good, {"steps": arguments.steps, "variants": records}


if __name__ == "__main__":
    sys.exit(main())
