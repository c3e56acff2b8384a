"""Which policy to take: the fastest one that fits. Of several ranks that train together, each does a share."""

import dataclasses
from collections.abc import Iterator

from tinygpt.checkpointing import plan
from tinygpt.errors import GuardError
from tinygpt.memory.estimate import Estimate
from tinygpt.memory.guard import guard
from tinygpt.memory.work import relative_time
from tinygpt.train.expected import expected
from tinygpt.train_config import TrainConfig
from tinygpt.units import format_bytes

AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A policy for a run.

    Attributes:
        policy: Its name.
        estimate: What a step takes under it.
        time: Its step time over that of the plain one, by arithmetic.
    """

    policy: str
    estimate: Estimate
    time: float


def candidates(config: TrainConfig, *, backend: str, ranks: int = 1) -> list[Candidate]:
    """Return every kind of policy for a run, the fastest first."""
    found = [_candidate(config, policy, backend, ranks) for policy in _policies(config.model.n_layer)]
    return sorted(found, key=lambda candidate: (candidate.time, candidate.estimate.peak_bytes))


def chosen(config: TrainConfig, limit_bytes: int, *, backend: str, ranks: int = 1) -> TrainConfig:
    """Return a run with the fastest policy that fits where it asks for ``auto``, and any other as it is.

    Raises:
        GuardError: None fits.
    """
    if config.policy != AUTO:
        return config
    found = candidates(config, backend=backend, ranks=ranks)
    for candidate in found:
        if candidate.estimate.peak_bytes <= limit_bytes:
            return dataclasses.replace(config, policy=candidate.policy)
    least = min(found, key=lambda candidate: candidate.estimate.peak_bytes)
    raise GuardError(
        f"[guard] auto: got a limit of {format_bytes(limit_bytes)}, expected at least "
        f"{format_bytes(least.estimate.peak_bytes)}, which {least.policy} needs"
    )


def check(config: TrainConfig, limit_bytes: int, *, backend: str, ranks: int = 1) -> None:
    """Refuse a run that would not fit, and say what would.

    Raises:
        GuardError: The estimated peak is above the limit.
    """
    estimate = expected(config, backend=backend, ranks=ranks)
    if estimate.peak_bytes <= limit_bytes:
        return
    fitting = [
        f"{candidate.policy} ({format_bytes(candidate.estimate.peak_bytes)}, time {candidate.time:.2f})"
        for candidate in candidates(config, backend=backend, ranks=ranks)
        if candidate.estimate.peak_bytes <= limit_bytes
    ]
    would = f"--grad-checkpoint {' or '.join(fitting)} would fit" if fitting else ""
    guard(estimate, limit_bytes, fitting=would)


def cannot_help(config: TrainConfig, *, backend: str, ranks: int = 1) -> str:
    """Say why a policy of segments is no help where ``all`` needs less memory and no more work, or nothing.

    Recomputing runs of k blocks keeps L / k inputs and needs k blocks at once: that wins for deep models of blocks that
    keep little (Chen et al. 2016), and a transformer's keep forty times their input.
    """
    if not config.policy.startswith(("sqrt", "segments")):
        return ""
    own, other = (_candidate(config, policy, backend, ranks) for policy in (config.policy, "all"))
    if own.estimate.peak_bytes <= other.estimate.peak_bytes:
        return ""
    needs = (format_bytes(candidate.estimate.peak_bytes) for candidate in (own, other))
    return "policy {} cannot help at this depth: expected peak {}, and {} under all".format(config.policy, *needs)


def _candidate(config: TrainConfig, policy: str, backend: str, ranks: int) -> Candidate:
    model = config.model
    segments = plan(policy, model.n_layer, cuts=model.cuts)
    time = relative_time(model, segments, batch=config.batch, context=config.context)
    return Candidate(policy, expected(config, backend=backend, policy=policy, ranks=ranks), time)


def _policies(n_layer: int) -> Iterator[str]:
    yield from ("none", "attention", "selective", "halves", "all")
    for number in sorted({n_layer * eighths // 8 for eighths in range(1, 8)} - {0}):
        yield f"first:{number}+selective"
    if n_layer > 1:
        yield from ("every:2", "sqrt")
