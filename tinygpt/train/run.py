"""A training run as the command line shows it."""

import dataclasses
import statistics
from contextlib import nullcontext
from pathlib import Path

import mlx.core as mx

from tinygpt.environment import describe
from tinygpt.errors import ConfigError
from tinygpt.memory.in_flight import small_command_buffers
from tinygpt.model.products import can_multiply
from tinygpt.train.compiler import nothing_compiled, require_compiler
from tinygpt.train.config import TrainConfig
from tinygpt.train.log import StepLog, json_lines
from tinygpt.train.trainer import Trainer
from tinygpt.units import format_mib


def run(config: TrainConfig, json_path: Path | None = None) -> None:
    """Train and report.

    Args:
        config: What to train.
        json_path: A file for one JSON object a step, and a last one with ``"summary": true``; sizes in bytes.

    Raises:
        CompilerMissingError: MLX cannot compile here and ``config`` asks for it.
        ConfigError: MLX cannot multiply in that dtype here.
        DataError: The text cannot be used, or the JSON file not be written.
        TrainingError: A loss is not finite.
    """
    small_command_buffers()
    if not can_multiply(getattr(mx, config.dtype)):
        raise ConfigError(
            f"[train] dtype: got {config.dtype}, expected float32: this release of MLX cannot multiply it on "
            f"{mx.default_device()}"
        )
    if config.compile:
        require_compiler()
    with json_lines(json_path) as lines, nullcontext() if config.compile else nothing_compiled():
        trainer = Trainer(config)
        log = StepLog(config.steps)
        speeds = []
        with log.shown():
            for report in trainer.run():
                log.show(report)
                lines.write(dataclasses.asdict(report))
                speeds.append(report.tokens_per_s)
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
