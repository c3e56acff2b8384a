"""A training run as the command line shows it: from its beginning, or from where a file has it."""

import dataclasses
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from signal import Signals
from typing import Any, TypeVar

import mlx.core as mx

from tinygpt.environment import describe
from tinygpt.errors import ConfigError, TinyGPTFileError, UsageError
from tinygpt.memory.in_flight import small_command_buffers
from tinygpt.model.products import can_multiply
from tinygpt.tinygpt_file import PREVIOUS, beside, load, outline, remove_unfinished, sole_writer, verify
from tinygpt.train.compiler import nothing_compiled, require_compiler
from tinygpt.train.log import JsonLines, StepLog, json_lines
from tinygpt.train.resume import announcement, continued
from tinygpt.train.stop import StopRequest, stop_request
from tinygpt.train.trainer import Trainer
from tinygpt.train_config import TrainConfig
from tinygpt.units import format_bytes, format_mib

T = TypeVar("T")

EXIT_SIGNAL = 128  # and the signal's number, as shells have it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Where a run leaves what it makes.

    Attributes:
        json: A file for one JSON object a step, and a last one with ``"summary": true``; sizes in bytes.
        file: The ``.tinygpt`` file.
        save_every: Steps from one saving to the next; None for the end alone.
        keep_previous: Whether what stands under ``file`` before the first saving is kept as ``.previous``.
    """

    json: Path | None = None
    file: Path | None = None
    save_every: int | None = None
    keep_previous: bool = True

    def __post_init__(self) -> None:
        """Refuse what means nothing.

        Raises:
            ConfigError: A number is out of its range.
        """
        if self.save_every is not None and self.save_every < 1:
            raise ConfigError(f"[train] save_every: got {self.save_every}, expected a positive integer")


def run(config: TrainConfig, output: Output) -> int:
    """Train from the beginning, report, and return the exit code.

    Raises:
        CompilerMissingError: MLX cannot compile here and ``config`` asks for it.
        ConfigError: MLX cannot multiply in that dtype here.
        DataError: The text cannot be used, or the JSON file not be written.
        SaveError: Another trainer writes the file, or it cannot be written.
        TrainingError: A loss is not finite.
        UsageError: The file is there already.
    """
    small_command_buffers()
    if output.file is not None:
        _expect_new(output.file)
    elif output.save_every is not None:
        raise UsageError("[train] --save-every: got no --out, expected one with it")
    with _writing(output.file), _able(config), json_lines(output.json) as lines:
        return _train(Trainer(config), output, lines)


def resume(
    path: Path,
    output: Output,
    *,
    asked: Mapping[str, Any],
    model: Mapping[str, Any],
    allow_corpus_change: bool = False,
) -> int:
    """Go on from a file as though the run had never ended, report, and return the exit code.

    Args:
        path: The file.
        output: Where to leave what is made; the file is ``path`` itself if it names none.
        asked: Fields of ``TrainConfig`` that are to be others than in the file.
        model: Fields of ``GPTConfig`` that were given; they have to be the file's.
        allow_corpus_change: Whether the text may be another.

    Raises:
        ResumeError: What cannot change would change, or there is no step left.
        TinyGPTFileError: The file is damaged, of a newer version, or none at all.
    """
    small_command_buffers()
    path = Path(os.path.realpath(path))
    _read(outline, path)  # what is no .tinygpt file is told before anything is made beside it
    output = _onto(path, output)
    with _writing(output.file):
        header, tensors = _read(load, path)
        header = continued(header, asked, model)
        with _able(header.config), json_lines(output.json, append=True) as lines:
            trainer = Trainer(header.config, saved=(header, tensors), allow_corpus_change=allow_corpus_change)
            changes = [change for change in trainer.header.changes if change.step == header.step]
            for change in changes:
                print(announcement(change, header.config), flush=True)
            lines.write({"resumed": True, "step": header.step, "changes": [*map(dataclasses.asdict, changes)]})
            return _train(trainer, output, lines)


def _read(reader: Callable[[Path], T], path: Path) -> T:
    """Read a file; if it is damaged and the one before it is not, say so."""
    try:
        return reader(path)
    except TinyGPTFileError as error:
        previous = beside(path, PREVIOUS)
        try:
            verify(previous)
        except TinyGPTFileError:
            raise error from None
        raise TinyGPTFileError(f"{error}; {previous} is whole, --resume {previous} goes on from it") from None


@contextmanager
def _writing(path: Path | None) -> Iterator[None]:
    """Be the only one that writes the file, if there is to be one; what a killed trainer left of it is removed."""
    if path is None:
        yield
        return
    with sole_writer(path):
        remove_unfinished(path)
        yield


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


def _onto(path: Path, output: Output) -> Output:
    """Return the output of a run that goes on from ``path``.

    What it goes on from is never lost: from ``FILE.previous``, the first saving replaces FILE, and keeps ``.previous``.
    """
    original = path.with_name(path.name.removesuffix(PREVIOUS))
    file = original if output.file is None else output.file
    if file not in (path, original):
        _expect_new(file)
    return dataclasses.replace(output, file=file, keep_previous=file == path)


def _expect_new(path: Path) -> None:
    for there in (path, beside(path, PREVIOUS)):
        if os.path.lexists(there):
            raise UsageError(f"[out] {path}: got {there}, which is there, expected a new name, or --resume {there}")


def _train(trainer: Trainer, output: Output, lines: JsonLines) -> int:
    config, keep_previous = trainer.config, output.keep_previous
    log = StepLog(config.steps, done=trainer.header.step)
    speeds = []
    with stop_request() if output.file else nullcontext(StopRequest()) as request, log.shown():
        for report in trainer.run():
            log.show(report)
            lines.write(dataclasses.asdict(report))
            speeds.append(report.tokens_per_s)
            stopped_by = request.by
            due = output.save_every is not None and report.step % output.save_every == 0
            if output.file is not None and (due or stopped_by or report.step == config.steps):
                trainer.save(output.file, keep_previous=keep_previous)
                keep_previous = True
            if stopped_by:
                break
    memory = trainer.memory()
    lines.write(
        {
            "summary": True,
            **dataclasses.asdict(memory),
            "loss": report.loss,
            "auxiliary": report.auxiliary,
            "tokens_per_s": statistics.median(speeds),
            "parameters": config.model.parameters,
            "config": {**dataclasses.asdict(config), "corpus": str(config.corpus) if config.corpus else None},
            "environment": describe(),
        }
    )
    peak, active, cache = map(format_mib, dataclasses.astuple(memory))
    print(f"memory: peak {peak}, active {active}, cache {cache} (training only)")
    return _end(output, stopped_by, report.step, config.steps)


def _end(output: Output, stopped_by: Signals | None, step: int, steps: int) -> int:
    """Say where the run is, and return the exit code."""
    if output.file is not None:
        print(f"saved: {_shown(output.file)} at step {step}, {format_bytes(output.file.stat().st_size)}")
    if output.file is None or stopped_by is None or step == steps:
        return 0
    print(
        f"stopped: {stopped_by.name} after step {step} of {steps}; tinygpt train --resume {_shown(output.file)} goes on"
    )
    return EXIT_SIGNAL + stopped_by


def _shown(path: Path) -> Path:
    """Return a path as one would type it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
