"""Train with several ranks, and kill some of them: ``python -m tinygpt.durability.ranks --report FILE``.

Twenty steps of two and four ranks beside one process on the joined batch; the peak of each rank beside a process alone
with its share; the peak of one, four and sixteen parts of one size; and a rank killed at a random moment, again and
again, after which fewer ranks go on.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from os import kill
from pathlib import Path
from typing import Any

from tinygpt import evidence
from tinygpt.config import GPTConfig
from tinygpt.conformance.tolerances import OTHER_ORDER
from tinygpt.durability.launched import processes, started, wait_until
from tinygpt.durability.runs import losses, peak_bytes, records, tensor_digests, train
from tinygpt.errors import TinyGPTFileError
from tinygpt.tinygpt_file import load
from tinygpt.train import TrainConfig, Trainer

MODEL = ("--preset", "tiny", "--n-layer", "2", "--context", "32", "--seed", "3")
DROPOUT = ("--dropout", "0.2")
STEPS = 20
COUNTS = (2, 4)
POLICIES = ("none", "all")
PARTS = (1, 4, 16)
ROWS = 4  # of a part
# Activations of a part are more than a hundred times the gradients, of which several parts add up one sum.
NARROW = GPTConfig(n_layer=4, n_head=8, n_embd=32, n_mlp=64, context=256)
LONGEST_S = 1.0
WITHIN_S = 30.0

Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Print every comparison and every kill; return 1 if one is not as it should be."""
    options = evidence.parser("durability.ranks", __doc__)
    options.add_argument("--kills", type=int, default=20, metavar="N", help="how many ranks (default: %(default)s)")
    return evidence.main(options, _all, argv)


def _all(arguments: argparse.Namespace) -> tuple[bool, Record]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        runs = [
            compared(place, count, policy, mode, dropout)
            for count in COUNTS
            for policy in POLICIES
            for mode in ("eager", "compiled")
            for dropout in ((), DROPOUT)
        ]
        parts = [of_parts(policy) for policy in POLICIES]
        chance = random.Random(0)
        kills = [killed(place, number, chance) for number in range(arguments.kills)]
    good = all(each["good"] for each in (*runs, *parts, *kills))
    print(f"{len(runs)} runs, {len(kills)} kills: {'all as they should be' if good else 'NOT as they should be'}")
    return good, {"runs": runs, "parts": parts, "kills": kills}


def compared(place: Path, count: int, policy: str, mode: str, dropout: Sequence[str]) -> Record:
    """Train with several ranks, with one process in as many parts, and with one on the whole batch."""
    batch = ROWS * count
    words = (*MODEL, *dropout, "--batch", batch, "--steps", STEPS, "--grad-checkpoint", policy)
    words = (*words, *(("--no-compile",) if mode == "eager" else ()))
    name = f"{count}-{policy}-{mode}-{len(dropout)}"
    ranks, parts, share = (place / f"{kind}-{name}" for kind in ("ranks", "parts", "share"))
    _together(count, *words, "--out", f"{ranks}.tinygpt", "--json", f"{ranks}.json", cwd=place)
    train(*words, "--accumulate", count, "--out", f"{parts}.tinygpt", "--json", f"{parts}.json")
    train(*words, "--batch", ROWS, "--json", f"{share}.json")
    several, divided = losses(_log(ranks)), losses(_log(parts))
    equal = several == divided and tensor_digests(_file(ranks)) == tensor_digests(_file(parts))
    record: Record = {
        "case": f"{count} ranks, policy {policy}, {mode}, dropout {'on' if dropout else 'off'}",
        "equal_to_parts": equal,
        "furthest_from_parts": _furthest(several, divided),
        "peaks_bytes": [each["peak_bytes"] for each in records(_log(ranks))[-1]["ranks"]],
        "share_peak_bytes": peak_bytes(_log(share)),
    }
    if not dropout:
        whole = place / f"whole-{name}"
        train(*words, "--json", f"{whole}.json")
        record["furthest_from_whole"] = _furthest(several, losses(_log(whole)))
    apart = max(record["furthest_from_parts"], record.get("furthest_from_whole", 0.0))
    # Of more than two numbers, MLX's ring chooses the order of the sum.
    record["good"] = apart <= STEPS * OTHER_ORDER.relative and (equal or count > 2)
    print(record, flush=True)
    return record


def of_parts(policy: str) -> Record:
    """Train with batches of one, four and sixteen parts of one size, and return their peaks."""
    peaks = {count: _peak(policy, count) for count in PARTS}
    ratio = max(peaks.values()) / min(peaks.values())
    record = {"case": f"parts, policy {policy}", "peaks_bytes": peaks, "ratio": ratio, "good": ratio <= 1.02}
    print(record, flush=True)
    return record


def _peak(policy: str, count: int) -> int:
    config = TrainConfig(
        model=NARROW,
        steps=2,
        batch=ROWS * count,
        context=NARROW.context,
        policy=policy,
        accumulate=count,
        compile=False,
    )
    trainer = Trainer(config)
    for _ in trainer.run():
        pass
    return trainer.memory().peak_bytes


def killed(place: Path, number: int, chance: random.Random) -> Record:
    """Kill one rank of a run at a random moment, and go on with fewer."""
    count = chance.choice(COUNTS)
    victim, delay_s = chance.randrange(count), chance.uniform(0, LONGEST_S)
    path, log = place / f"kill-{number}.tinygpt", place / f"kill-{number}.json"
    words = (*MODEL, *DROPOUT, "--no-compile", "--batch", 4, "--steps", 1_000_000, "--save-every", 1)
    with started(count, *words, "--out", path, "--json", log, cwd=place) as launcher:
        wait_until(lambda: bool(records(log)), "steps")
        found = processes(launcher, count)
        time.sleep(delay_s)
        begin = time.monotonic()
        kill(found[victim], signal.SIGKILL)
        _, said = launcher.communicate(timeout=10 * WITHIN_S)
        seconds = time.monotonic() - begin
    named = f"[ranks] rank {victim}: got the end of its process after step" in said
    step = _step(path)
    fewer = count // 2
    goes_on = _together(fewer, "--resume", path, "--steps", step + 2, cwd=place) if step else False
    record = {
        "case": f"rank {victim} of {count}, {delay_s:.2f} s after a step",
        "seconds": round(seconds, 2),
        "named": named,
        "step": step,
        "goes_on_with": fewer,
        "good": bool(seconds < WITHIN_S and named and goes_on and _step(path) == step + 2),
    }
    print(f"kill {number + 1}: {record}", flush=True)
    return record


def _together(count: int, *options: object, cwd: Path) -> bool:
    """Train with ranks to the end; MLX's launcher returns 0 whatever becomes of them, so the output tells."""
    if count == 1:
        return "saved: " in train(*options)
    with started(count, *options, cwd=cwd) as launcher:
        out, _ = launcher.communicate(timeout=600)
    return "memory of rank 0: " in out


def _step(path: Path) -> int:
    try:
        return load(path)[0].step
    except TinyGPTFileError:
        return 0


def _log(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _file(path: Path) -> Path:
    return path.with_name(path.name + ".tinygpt")


def _furthest(some: dict[int, float], others: dict[int, float]) -> float:
    """Return the largest relative difference of the losses of a step."""
    return max(abs(some[step] - others[step]) / abs(others[step]) for step in others)


if __name__ == "__main__":
    sys.exit(main())
