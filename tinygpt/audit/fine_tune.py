"""Fine-tune a small model with mlx-lm's own trainer: ``python -m tinygpt.audit.fine_tune --report FILE``.

A llama with random weights on the source of Python's standard library, byte by byte, for a hundred steps: all weights,
and mlx-lm's adapters with dropout; plain, under mlx-lm's own checkpointing, and under ours. All begin alike and see the
same batches. Where a curve leaves the plain one, the gradients were others.
"""

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np

from tinygpt import evidence
from tinygpt.audit.configurations import build
from tinygpt.audit.specimen import SEED, with_adapters
from tinygpt.audit.wrapping import wrapped
from tinygpt.memory.measure import counters, reset_peak, settle
from tinygpt.train.data import read_corpus

WRAPPERS = ("plain", "mlx-lm", "tinygpt")
TRAININGS = ("full", "lora")
BATCH, LENGTH, VOCABULARY = 4, 129, 256
WINDOWS = 512
LEARNING_RATE = {"full": 1e-3, "lora": 1e-2}

Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Train under every wrapper, print curves and peaks, and return 1 if ours leaves the plain run."""
    options = evidence.parser("audit.fine_tune", __doc__)
    options.add_argument("--steps", type=int, default=100, metavar="N", help="how many (default: %(default)s)")
    return evidence.main(options, _all, argv)


def _all(arguments: argparse.Namespace) -> tuple[bool, Record]:
    runs = []
    for training in TRAININGS:
        for wrapper in WRAPPERS:
            runs.append(fine_tuned(training, wrapper, arguments.steps))
            print(_line(runs[-1], runs[-1 - WRAPPERS.index(wrapper)]), flush=True)
    good = all(_losses(runs, training, "tinygpt") == _losses(runs, training, "plain") for training in TRAININGS)
    return good, {"mlx_lm": importlib.metadata.version("mlx-lm"), "runs": runs}


def fine_tuned(training: str, wrapper: str, steps: int) -> Record:
    """Return the losses and the peak of one run.

    Args:
        training: ``full`` or ``lora``.
        wrapper: Of ``tinygpt.audit.wrapping.WRAPPERS``.
        steps: Of the optimizer.
    """
    trainer = importlib.import_module("mlx_lm.tuner.trainer")
    mx.random.seed(SEED)
    model = build("llama", times=2, fields={"vocab_size": VOCABULARY})
    if training == "lora":
        with_adapters(model, bits=None)
    optimizer = optim.Adam(LEARNING_RATE[training])
    callback = _Losses()
    np.random.seed(SEED)  # mlx-lm shuffles with it
    mx.random.seed(SEED)
    with tempfile.TemporaryDirectory() as folder, wrapped(model, wrapper):
        asked = trainer.TrainingArgs(
            batch_size=BATCH,
            iters=steps,
            steps_per_report=1,
            steps_per_save=steps + 1,
            max_seq_length=LENGTH,
            adapter_file=str(Path(folder) / "adapters.safetensors"),
        )
        mx.eval(model.state)
        settle()
        reset_peak()
        before = counters().active_bytes
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            trainer.train(model, optimizer, _windows(), args=asked, training_callback=callback)
        peak = counters().peak_bytes - before
    return {
        "case": f"{training}, {wrapper}",
        "training": training,
        "wrapper": wrapper,
        "losses": callback.losses,
        "peak_bytes": peak,
    }


class _Losses:
    """What mlx-lm's trainer tells."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_loss_report(self, told: Record) -> None:
        self.losses.append(told["train_loss"])

    def on_val_loss_report(self, told: Record) -> None:
        """Nothing is validated."""


def _windows() -> list[tuple[list[int], int]]:
    """Return a text cut into windows, each with the place where its answer begins, as mlx-lm takes them."""
    text = read_corpus(None)[: WINDOWS * LENGTH].reshape(WINDOWS, LENGTH)
    return [(window.tolist(), 0) for window in text]


def _losses(runs: Sequence[Record], training: str, wrapper: str) -> list[float]:
    (found,) = (each["losses"] for each in runs if (each["training"], each["wrapper"]) == (training, wrapper))
    losses: list[float] = found
    return losses


def _line(run: Record, plain: Record) -> str:
    furthest = max(abs(one - other) for one, other in zip(run["losses"], plain["losses"], strict=True))
    return (
        f"{run['case']}: loss {run['losses'][0]:.4f} to {run['losses'][-1]:.4f}, furthest from plain {furthest:.2g}, "
        f"peak {run['peak_bytes'] / 2**20:.1f} MiB, {run['peak_bytes'] / plain['peak_bytes']:.2f} of plain's"
    )


if __name__ == "__main__":
    sys.exit(main())
