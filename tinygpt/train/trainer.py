"""A training run: make the model, step through the text, report every step and at the end what memory it took."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import cast

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt.checkpointing import checkpointed_blocks, wrapper
from tinygpt.errors import TrainingError
from tinygpt.memory.in_flight import lean_evaluation
from tinygpt.memory.measure import Counters, counters, reset_peak, settle
from tinygpt.model import GPT
from tinygpt.train.config import TrainConfig
from tinygpt.train.data import batches, read_corpus
from tinygpt.train.step import TrainStep


@dataclass(frozen=True)
class StepReport:
    """What one step did.

    Attributes:
        step: Its number, from 1.
        loss: Mean cross entropy of its batch before the update, in nats.
        tokens_per_s: Predicted tokens by the second; the first step also compiles.
        auxiliary: Each auxiliary loss by name, summed over the blocks, before its weight.
    """

    step: int
    loss: float
    tokens_per_s: float
    auxiliary: dict[str, float]


class Trainer:
    """Trains one model on one text."""

    def __init__(self, config: TrainConfig) -> None:
        """Read the text and make the model and the optimizer.

        Raises:
            ConfigError: There is no such policy or wrapper.
            DataError: The text cannot be used.
        """
        self.config = config
        wrap = wrapper(config.wrapper)
        corpus = read_corpus(config.corpus)
        self._batches = batches(corpus, batch=config.batch, context=config.context, seed=config.seed)
        mx.random.seed(config.seed)
        self.model = GPT(config.model)
        self.model.set_dtype(getattr(mx, config.dtype))
        self.step = TrainStep(
            self.model,
            optim.AdamW(config.learning_rate, bias_correction=True),
            blocks=checkpointed_blocks(self.model.blocks, config.policy, wrap),
            clip_norm=config.clip_norm,
            compiled=config.compile,
        )

    def run(self) -> Iterator[StepReport]:
        """Train, and yield a report after every step; the peak is counted from here.

        Raises:
            TrainingError: A loss is not finite.
        """
        settle()
        reset_peak()
        for number in range(1, self.config.steps + 1):
            start = perf_counter()
            with lean_evaluation():
                gradients = self.step.gradients(mx.array(next(self._batches), mx.int32))
                self.step.update(gradients)
            seconds = perf_counter() - start
            losses = {name: cast("float", loss.item()) for name, loss in gradients.auxiliary.items()}
            loss = cast("float", gradients.loss.item())
            for name, value in {"loss": loss, **losses}.items():
                if not math.isfinite(value):
                    raise TrainingError(f"[train] {name} at step {number}: got {value}, expected a finite number")
            yield StepReport(number, loss, self.config.batch * self.config.context / seconds, losses)

    def memory(self) -> Counters:
        """Return MLX's counters now; after ``run``, the peak is that of training only."""
        return counters()
