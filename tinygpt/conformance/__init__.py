"""The judge. It never imports ``tinygpt.checkpointing``: it does not know the accused."""

from tinygpt.conformance.parametrize import parametrize_with_checks
from tinygpt.conformance.runner import check_checkpoint, iter_checks
from tinygpt.conformance.subjects import Subject

__all__ = ["Subject", "check_checkpoint", "iter_checks", "parametrize_with_checks"]
