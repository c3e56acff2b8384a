"""The memory that a training run is expected to take, before it takes any."""

import dataclasses

from tinygpt.checkpointing import plan
from tinygpt.memory.estimate import Estimate, estimate_peak
from tinygpt.train_config import ITEMSIZE, TrainConfig


def expected(config: TrainConfig, *, backend: str, policy: str | None = None) -> Estimate:
    """Return the estimated peak of a step of a run.

    Args:
        config: The run.
        backend: ``cpu``, ``cuda`` or ``metal``.
        policy: Another than the run's.

    Raises:
        ConfigError: There is no such policy.
    """
    config = config if policy is None else dataclasses.replace(config, policy=policy)
    return estimate_peak(
        config.model,
        plan(config.policy, config.model.n_layer, cuts=config.model.cuts),
        batch=config.batch,
        context=config.context,
        itemsize=ITEMSIZE[config.dtype],
        backend=backend,
    )
