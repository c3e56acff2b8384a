"""The smallest run that has everything that a file holds."""

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


def write_small_file(path: Path) -> None:
    """Train for two steps and save."""
    trainer = Trainer(CONFIG)
    run = trainer.run()
    next(run), next(run)
    trainer.save(path)
