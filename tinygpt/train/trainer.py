"""A training run: make the model, step through the text, report every step and at the end what memory it took."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import cast

import mlx.core as mx
import mlx.optimizers as optim

from tinygpt.checkpointing import checkpointed_blocks, wrapper
from tinygpt.environment import backend, written_by
from tinygpt.errors import TrainingError
from tinygpt.memory.in_flight import lean_evaluation
from tinygpt.memory.measure import Counters, counters, reset_peak, settle
from tinygpt.model import GPT
from tinygpt.tinygpt_file import Header, check_savable, save
from tinygpt.train import state
from tinygpt.train.agreement import agree
from tinygpt.train.data import Batches, fingerprint, read_corpus
from tinygpt.train.expected import expected
from tinygpt.train.parts import Parts
from tinygpt.train.ranks import Ranks
from tinygpt.train.resume import with_corpus
from tinygpt.train.step import TrainStep
from tinygpt.train_config import OPTIMIZER, TrainConfig


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
    """Trains one model on one text.

    Attributes:
        config: What it is to do.
        ranks: Who trains together.
        share: What this process does of it, as a run of its own.
        header: What its file would say now.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        saved: tuple[Header, dict[str, mx.array]] | None = None,
        allow_corpus_change: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        """Read the text and make the model and the optimizer.

        Args:
            config: What to train.
            saved: The header and the tensors of the file that the run goes on from, of that configuration. The
                tensors are taken out of the dict, so that nobody else holds them.
            allow_corpus_change: Whether the text may be another than that of ``saved``.
            ranks: Who trains together; this process alone if not given. All of them have to make a trainer.

        Raises:
            ConfigError: There is no such policy or wrapper, or the batch cannot be divided among the ranks.
            DataError: The text cannot be used.
            RanksError: The ranks disagree.
            ResumeError: The text is another.
        """
        self.config = config
        self.ranks = Ranks() if ranks is None else ranks
        self.share = Parts(ranks=self.ranks.size, accumulate=config.accumulate).share(config)
        wrap = wrapper(config.wrapper)
        corpus = read_corpus(config.corpus)
        self._batches = Batches(corpus, batch=config.batch, context=config.context, seed=config.seed)
        self.header = Header(config=config, step=0, corpus=fingerprint(corpus))
        tensors: dict[str, mx.array] = {}
        if saved is not None:
            self.header = with_corpus(saved[0], self.header.corpus, allow_change=allow_corpus_change)
            tensors = saved[1]
        mx.random.seed(config.seed)
        self.model = GPT(config.model)
        self.model.set_dtype(getattr(mx, config.dtype))
        self._optimizer = optim.AdamW(
            config.learning_rate, **{name: value for name, value in OPTIMIZER.items() if name != "name"}
        )
        if tensors:  # before anything is computed, so that the weights that were just drawn never are
            state.restore(self.model, self._optimizer, tensors)
            self._optimizer.learning_rate = config.learning_rate
        self.step = TrainStep(
            self.model,
            self._optimizer,
            blocks=checkpointed_blocks(self.model.blocks, config.policy, wrap, cuts=config.model.cuts),
            clip_norm=config.clip_norm,
            compiled=config.compile,
            ranks=self.ranks,
            accumulate=config.accumulate,
        )
        agree(self.ranks, self.header, self.model)

    def save(self, path: Path, *, keep_previous: bool = True) -> None:
        """Write the run as it is now; ``keep_previous`` as in ``tinygpt_file.save``.

        Raises:
            SaveError: The file cannot be written; what was there is as it was.
            TrainingError: A weight or a moment is not finite: from there no run could go on.
        """
        arrays = state.tensors(self.model, self._optimizer)
        for name, array in arrays.items():
            if mx.issubdtype(array.dtype, mx.floating) and not mx.isfinite(array).all().item():
                raise TrainingError(
                    f"[train] {name} after step {self.header.step}: got a number that is not finite, expected none"
                )
        save(path, self._header(), arrays, keep_previous=keep_previous)

    def check_savable(self, path: Path) -> None:
        """Raise now what ``save`` would raise after hours, as far as it can be known.

        Raises:
            SaveError: The file cannot be written there, or is too large to be read again.
        """
        check_savable(path, self._header(), state.tensors(self.model, self._optimizer))

    def _header(self) -> Header:
        return dataclasses.replace(self.header, written_by=written_by())

    def run(self) -> Iterator[StepReport]:
        """Train up to the last step, and yield a report after every one; the peak is counted from here.

        Raises:
            TrainingError: A loss is not finite.
        """
        estimate = expected(self.share, backend=backend(), ranks=self.ranks.size)
        limit = estimate.limit_bytes if self.config.wrapper == "tinygpt" else 0
        settle()
        reset_peak()
        for number in range(self.header.step + 1, self.config.steps + 1):
            start = perf_counter()
            with lean_evaluation(limit):
                gradients = self.step.gradients(mx.array(self._batches.at(number), mx.int32))
                self.step.update(gradients)
            seconds = perf_counter() - start
            losses = {name: cast("float", loss.item()) for name, loss in gradients.auxiliary.items()}
            loss = cast("float", gradients.loss.item())
            for name, value in {"loss": loss, **losses}.items():
                if not math.isfinite(value):
                    raise TrainingError(f"[train] {name} at step {number}: got {value}, expected a finite number")
            self.header = dataclasses.replace(self.header, step=number)
            yield StepReport(number, loss, self.config.batch * self.config.context / seconds, losses)

    def memory(self) -> Counters:
        """Return MLX's counters now; after ``run``, the peak is that of training only."""
        return counters()
