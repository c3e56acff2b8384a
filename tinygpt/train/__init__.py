"""Training a GPT on real text."""

from tinygpt.train.step import Gradients, TrainStep
from tinygpt.train.trainer import StepReport, Trainer
from tinygpt.train_config import DTYPES, TrainConfig

__all__ = ["DTYPES", "Gradients", "StepReport", "TrainConfig", "TrainStep", "Trainer"]
