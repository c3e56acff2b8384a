"""Training a GPT on real text."""

from tinygpt.train_config import DTYPES, TrainConfig
from tinygpt.train.step import Gradients, TrainStep
from tinygpt.train.trainer import StepReport, Trainer

__all__ = ["DTYPES", "Gradients", "StepReport", "TrainConfig", "TrainStep", "Trainer"]
