"""One side of a race: ``python -m tinygpt.gate.racer SUBJECT MODE``, which trains a small GPT when it is told to.

A line on stdin is one training step: ``peak`` to measure what it needs, ``time`` to measure how long it takes. Its
answer is a line of JSON. The process runs in the environment of a release, so that two releases take turns within the
same seconds.
"""

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt.config import GPTConfig
from tinygpt.conformance.subjects import Subject, subject
from tinygpt.environment import backend, describe
from tinygpt.memory.measure import measure
from tinygpt.model import GPT
from tinygpt.train import TrainStep
from tinygpt.train.data import Batches, read_corpus

# Narrow, so that the peak is in the activations and not in the update: what a wrapper keeps is seen.
MODEL = GPTConfig(n_layer=6, n_head=2, n_embd=32, n_mlp=128, context=128)
BATCH = {"cpu": 4, "metal": 32, "cuda": 32}
CLIP_NORM = 1.0
SCHEDULE = "gradients whole, then clipped update"


class Runner:
    """A model that is trained step by step."""

    def __init__(self, judged: Subject, *, compiled: bool) -> None:
        """Prepare the model, its blocks wrapped by the subject from now on."""
        self._text = Batches(read_corpus(None), batch=BATCH[backend()], context=MODEL.context, seed=0)
        mx.random.seed(0)
        model = GPT(MODEL)
        self._applied = judged.applied(model)
        wrap = self._applied.__enter__()
        blocks = [wrap(block) for block in model.blocks]
        optimizer = optim.AdamW(1e-3, bias_correction=True)
        self._step = TrainStep(model, optimizer, blocks=blocks, clip_norm=CLIP_NORM, compiled=compiled)
        self._number = 0

    def run(self, what: str) -> dict[str, Any]:
        """Train one step; return its loss, and its peak in bytes or its seconds."""
        self._number += 1
        tokens = mx.array(self._text.at(self._number), mx.int32)
        mx.eval(tokens)
        losses: list[mx.array] = []
        start = perf_counter()
        if what == "time":
            losses.append(self._step(tokens))
            return {"loss": float(losses[0]), "seconds": perf_counter() - start}
        reading = measure(
            lambda: losses.append(self._step(tokens)), schedule=SCHEDULE, trials=1, exact=backend() == "cpu"
        )
        return {"loss": float(losses[0]), "peak_bytes": reading.peak_bytes}


def main() -> int:
    """Answer until there are no more lines."""
    name, mode = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a wrapper prints is no answer

    def say(work: Callable[[], dict[str, Any]]) -> bool:
        try:
            answer = work()
        except Exception as error:
            answer = {"error": (f"{type(error).__name__}: {error}".splitlines() or ["an error"])[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        return "error" not in answer

    runners: list[Runner] = []

    def prepare() -> dict[str, Any]:
        runners.append(Runner(subject(name), compiled=mode == "compiled"))
        return {"environment": describe()}

    if say(prepare):
        for line in sys.stdin:
            what = line.strip()
            if not say(lambda what=what: runners[0].run(what)):  # type: ignore[misc]
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())
