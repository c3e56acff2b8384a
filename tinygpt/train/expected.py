"""The memory that a training run is expected to take, before it takes any."""

import dataclasses

from tinygpt.checkpointing import plan
from tinygpt.memory.estimate import Estimate, estimate_peak
from tinygpt.train_config import ITEMSIZE, TrainConfig


def expected(config: TrainConfig, *, backend: str, policy: str | None = None, ranks: int = 1) -> Estimate:
    """Return the estimated peak of a step of a run.

    Args:
        config: The run; of several ranks, the share of one.
        backend: ``cpu``, ``cuda`` or ``metal``.
        policy: Another than the run's.
        ranks: How many train together.

    Raises:
        ConfigError: There is no such policy.
    """
    config = config if policy is None else dataclasses.replace(config, policy=policy)
    return estimate_peak(
        config.model,
        plan(config.policy, config.model.n_layer, cuts=config.model.cuts),
        batch=config.batch // config.accumulate,
        context=config.context,
        itemsize=ITEMSIZE[config.dtype],
        backend=backend,
        accumulates=config.accumulate > 1,
        averages=ranks > 1,
    )
