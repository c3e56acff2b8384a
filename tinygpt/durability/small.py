"""The smallest run that has everything that a file holds."""

from dataclasses import replace
from pathlib import Path

from tinygpt.config import GPTConfig
from tinygpt.train import TrainConfig, Trainer

CONFIG = TrainConfig(
    model=GPTConfig(n_layer=1, n_head=1, n_embd=2, n_mlp=1, context=2, vocab_size=256, dropout=0.1),
    steps=100,
    batch=1,
    context=2,
    compile=False,
)


def trained(**changes: object) -> Trainer:
    """Return a trainer of it after two steps; ``changes`` are fields of its configuration."""
    trainer = Trainer(replace(CONFIG, **changes))  # type: ignore[arg-type]
    run = trainer.run()
    next(run), next(run)
    return trainer


def write_small_file(path: Path) -> None:
    """Train for two steps and save."""
    trained().save(path)
