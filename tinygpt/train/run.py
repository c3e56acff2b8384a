"""A training run as the command line shows it: from its beginning, or from where a file has it."""

import dataclasses
import json
import os
import shlex
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from signal import Signals
from typing import Any, TypeVar

import mlx.core as mx

from tinygpt.environment import backend, describe
from tinygpt.errors import ConfigError, TinyGPTError, TinyGPTFileError, UsageError
from tinygpt.memory.in_flight import small_command_buffers
from tinygpt.memory.measure import Counters, device_memory_bytes
from tinygpt.model.products import can_multiply
from tinygpt.tinygpt_file import PREVIOUS, beside, load, outline, remove_unfinished, sole_writer, verify
from tinygpt.train.choice import cannot_help, check, chosen
from tinygpt.train.compiler import nothing_compiled, require_compiler
from tinygpt.train.expected import expected
from tinygpt.train.log import JsonLines, StepLog, json_lines
from tinygpt.train.output import Output, expect_apart, expect_new, onto
from tinygpt.train.parts import Parts
from tinygpt.train.resume import announcement, continued
from tinygpt.train.stop import EXIT_SIGNAL
from tinygpt.train.team import Team, together
from tinygpt.train.trainer import Trainer
from tinygpt.train_config import TrainConfig
from tinygpt.units import format_bytes, format_mib

T = TypeVar("T")

ENDING = ".tinygpt"


@dataclasses.dataclass(frozen=True)
class Limit:
    """How much memory a run may take.

    Attributes:
        size_bytes: None for what the device has.
        force: Whether to go on where the estimate is above it.
    """

    size_bytes: int | None = None
    force: bool = False

    def applied(self, config: TrainConfig, team: Team) -> TrainConfig:
        """Return the run with its policy chosen, if it is to be, and refuse it if it does not fit.

        Args:
            config: The run.
            team: The ranks; those on one machine share what it has, but for graphics cards.

        Raises:
            ConfigError: The batch cannot be divided among them.
            GuardError: It does not fit, or no policy would.
        """
        size = self.size_bytes
        if size is None:
            size = device_memory_bytes() // (1 if backend() == "cuda" else 1 + len(team.peers))
        share = Parts(ranks=team.ranks.size, accumulate=config.accumulate).share(config)
        share = chosen(share, size, backend=backend(), ranks=team.ranks.size)
        if not self.force:
            check(share, size, backend=backend(), ranks=team.ranks.size)
        if reason := cannot_help(share, backend=backend(), ranks=team.ranks.size):
            print(reason, flush=True)
        return dataclasses.replace(config, policy=share.policy)


def run(config: TrainConfig, output: Output, limit: Limit | None = None) -> int:
    """Train from the beginning, report, and return the exit code.

    Raises:
        CompilerMissingError: MLX cannot compile here and ``config`` asks for it.
        ConfigError: MLX cannot multiply in that dtype here.
        DataError: The text cannot be used, or the JSON file not be written.
        GuardError: It would not fit into the limit.
        OutputError: What the run tells cannot be written any more.
        SaveError: Another trainer writes the file, or it cannot be written.
        TrainingError: A loss is not finite.
        UsageError: The file is there already.
    """
    small_command_buffers()
    if output.file is None and output.save_every is not None:
        raise UsageError("[train] --save-every: got no --out, expected one with it")
    with together(saves=output.file is not None) as team, _writing(output := team.own(output)), _able(config):
        expect_apart(output, config.corpus)
        config = (limit or Limit()).applied(config, team)
        trainer = Trainer(config, ranks=team.ranks)
        with _reporting(trainer, output) as lines:
            return _train(trainer, output, lines, team)


def resume(
    path: Path,
    output: Output,
    *,
    asked: Mapping[str, Any],
    model: Mapping[str, Any],
    limit: Limit | None = None,
    allow_corpus_change: bool = False,
) -> int:
    """Go on from a file as though the run had never ended, report, and return the exit code.

    Args:
        path: The file.
        output: Where to leave what is made; the file is ``path`` itself if it names none.
        asked: Fields of ``TrainConfig`` that are to be others than in the file.
        model: Fields of ``GPTConfig`` that were given; they have to be the file's.
        limit: How much memory it may take.
        allow_corpus_change: Whether the text may be another.

    Raises:
        ResumeError: What cannot change would change, or there is no step left.
        TinyGPTFileError: The file is damaged, of a newer version, or none at all.
    """
    small_command_buffers()
    path = Path(os.path.realpath(path))
    _read(outline, path)  # what is no .tinygpt file is told before anything is made beside it
    output = onto(path, output)
    with together(saves=True) as team, _writing(output := team.own(output)):
        before, tensors = _read(load, path)
        header = continued(before, asked, model, choose=lambda config: (limit or Limit()).applied(config, team))
        expect_apart(output, header.config.corpus)
        with _able(header.config):
            trainer = Trainer(
                header.config, saved=(header, tensors), allow_corpus_change=allow_corpus_change, ranks=team.ranks
            )
            changes = trainer.header.changes[len(before.changes) :]
            with _reporting(trainer, output, append=True) as lines:
                for change in changes:
                    print(announcement(change, trainer.share, ranks=team.ranks.size), flush=True)
                lines.write({"resumed": True, "step": header.step, "changes": [*map(dataclasses.asdict, changes)]})
                return _train(trainer, output, lines, team)


def _read(reader: Callable[[Path], T], path: Path) -> T:
    """Read a file; if it is damaged and the one before it is not, say so."""
    try:
        return reader(path)
    except TinyGPTFileError as error:
        damage = str(error)  # and not the error, which holds all that was read
    previous = beside(path, PREVIOUS)
    try:
        verify(previous)
    except TinyGPTFileError:
        raise TinyGPTFileError(damage) from None
    raise TinyGPTFileError(f"{damage}; {previous} is whole, --resume {shlex.quote(str(previous))} goes on from it")


@contextmanager
def _writing(output: Output) -> Iterator[None]:
    """Be the only one that writes the file, if there is to be one; what a killed trainer left of it is removed."""
    if output.file is None:
        yield
        return
    if output.file.suffix != ENDING:
        raise UsageError(f"[out] {output.file}: got the ending {output.file.suffix!r}, expected {ENDING}")
    with sole_writer(output.file):
        if not output.replaces:
            expect_new(output.file)
        remove_unfinished(output.file)
        yield


@contextmanager
def _reporting(trainer: Trainer, output: Output, *, append: bool = False) -> Iterator[JsonLines]:
    """Open what the run is told to, once it is certain that it can be trained and saved."""
    if output.file is not None:
        trainer.check_savable(output.file)
    with json_lines(output.json, append=append) as lines:
        yield lines


@contextmanager
def _able(config: TrainConfig) -> Iterator[None]:
    """Make sure that MLX can train this here, compiled or not, inside the context."""
    if not can_multiply(getattr(mx, config.dtype)):
        raise ConfigError(
            f"[train] dtype: got {config.dtype}, expected float32: this release of MLX cannot multiply it on "
            f"{mx.default_device()}"
        )
    if config.compile:
        require_compiler()
    with nullcontext() if config.compile else nothing_compiled():
        yield


def _train(trainer: Trainer, output: Output, lines: JsonLines, team: Team) -> int:
    config, keep_previous = trainer.config, output.keep_previous
    log = StepLog(config.steps, done=trainer.header.step)
    speeds, saved = [], trainer.header.step
    with log.shown(), _interrupted(team):
        for report in trainer.run():
            stopped_by = team.stopped_by(after=report.step)
            due = output.save_every is not None and report.step % output.save_every == 0
            if output.file is not None and (due or stopped_by or report.step == config.steps):
                with team.saving():
                    trainer.save(output.file, keep_previous=keep_previous)
                keep_previous, saved = True, report.step
                team.watch.kept = f"{_shown(output.file)} has step {saved}"
            try:
                log.show(report)
                lines.write(dataclasses.asdict(report))
            except OSError:  # nobody listens any more; what was trained is not lost for that
                if output.file is not None and saved < report.step:
                    trainer.save(output.file, keep_previous=keep_previous)
                raise
            speeds.append(report.tokens_per_s)
            if stopped_by:
                break
    own = json.dumps(dataclasses.asdict(trainer.memory()))
    memory = [Counters(**json.loads(each)) for each in team.ranks.gathered(own)]
    predicted = expected(trainer.share, backend=backend(), ranks=team.ranks.size).peak_bytes
    lines.write(
        {
            "summary": True,
            **dataclasses.asdict(memory[0]),
            "predicted_bytes": predicted,
            "loss": report.loss,
            "auxiliary": report.auxiliary,
            "tokens_per_s": statistics.median(speeds),
            "parameters": config.model.parameters,
            "ranks": [dataclasses.asdict(each) for each in memory],
            "config": {**dataclasses.asdict(config), "corpus": str(config.corpus) if config.corpus else None},
            "environment": describe(),
        }
    )
    _tell_memory(memory, predicted)
    return _end(output.file, stopped_by, report.step, config.steps)


def _tell_memory(memory: Sequence[Counters], predicted_bytes: int) -> None:
    """Say what training took, of every rank."""
    for rank, each in enumerate(memory):
        peak, active, cache = map(format_mib, dataclasses.astuple(each))
        who = f"memory of rank {rank}" if len(memory) > 1 else "memory"
        predicted = format_mib(predicted_bytes)
        print(f"{who}: peak {peak}, active {active}, cache {cache} (training only), predicted {predicted}")


@contextmanager
def _interrupted(team: Team) -> Iterator[None]:
    """Tell a failure from what a Ctrl-C has done: it reaches the C++ compiler too, and MLX finds no result."""
    try:
        yield
    except RuntimeError as error:
        if team.request.by is None or team.ranks.size > 1 or isinstance(error, TinyGPTError):
            raise
        raise KeyboardInterrupt from None


def _end(file: Path | None, stopped_by: Signals | None, step: int, steps: int) -> int:
    """Say where the run is, and return the exit code."""
    code = 0 if stopped_by is None or step == steps else EXIT_SIGNAL + stopped_by
    if file is None:
        return code
    print(f"saved: {_shown(file)} at step {step}, {format_bytes(file.stat().st_size)}")
    if stopped_by is not None and code:
        again = f"tinygpt train --resume {shlex.quote(str(_shown(file)))}"
        print(f"stopped: {stopped_by.name} after step {step} of {steps}; {again} goes on")
    return code


def _shown(path: Path) -> Path:
    """Return a path as one would type it here."""
    try:
        return path.relative_to(Path.cwd())
    except (OSError, ValueError):  # the folder is gone, or the path is elsewhere
        return path
