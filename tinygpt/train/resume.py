"""What a run that goes on may change, and what it may not.

Checkpointing changes no numbers, so its policy is free. What the weights stand for, the dtype and the text are not;
all else is another training from here on, which is allowed, announced and recorded.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tinygpt.environment import backend
from tinygpt.errors import ResumeError
from tinygpt.tinygpt_file import Change, Fingerprint, Header
from tinygpt.train.expected import expected
from tinygpt.train_config import TrainConfig
from tinygpt.units import format_bytes

FIXED = ("dtype", "seed")
RECORDED = ("policy", "wrapper", "compile", "batch", "context", "accumulate", "clip_norm", "learning_rate")


def continued(
    header: Header,
    asked: Mapping[str, Any],
    model: Mapping[str, Any],
    *,
    choose: Callable[[TrainConfig], TrainConfig] = lambda config: config,
) -> Header:
    """Return the header of a run that goes on, with what was asked for and a record of it.

    Args:
        header: Of the file.
        asked: Fields of ``TrainConfig`` and their values, as far as they were given.
        model: Fields of ``GPTConfig``, likewise.
        choose: Chooses the policy, where one is to be chosen.

    Raises:
        ResumeError: What cannot change would change, or there is no step left.
        ConfigError: A value is out of its range.
    """
    before = header.config
    for name, value in model.items():
        _expect_same(name, value, getattr(before.model, name))
    for name in FIXED:
        _expect_same(name, asked.get(name, getattr(before, name)), getattr(before, name))
    config = choose(dataclasses.replace(before, **asked))
    if config.steps <= header.step:
        raise ResumeError(f"[resume] steps: got {config.steps}, expected more than the {header.step} that are done")
    changes = [
        Change(header.step, name, getattr(before, name), getattr(config, name))
        for name in RECORDED
        if getattr(config, name) != getattr(before, name)
    ]
    return dataclasses.replace(header, config=config, changes=(*header.changes, *changes))


def with_corpus(header: Header, corpus: Fingerprint, *, allow_change: bool) -> Header:
    """Return the header of a run that goes on with that text.

    Raises:
        ResumeError: It is another text, and none may be.
    """
    if corpus == header.corpus:
        return header
    before, after = (f"{text.size_bytes} bytes, sha256 {text.sha256[:16]}…" for text in (header.corpus, corpus))
    if not allow_change:
        raise ResumeError(
            f"[resume] corpus: got {after}, expected {before}, as in the file; --allow-corpus-change goes on with it"
        )
    change = Change(header.step, "corpus", before, after)
    return dataclasses.replace(header, corpus=corpus, changes=(*header.changes, change))


def announcement(change: Change, config: TrainConfig, *, ranks: int = 1) -> str:
    """Return one line that says what a resume changes; for a policy, with the memory that it is expected to take."""
    line = f"{change.field}: {change.before} -> {change.after} from step {change.step + 1} on"
    if change.field != "policy":
        return line
    before, after = (
        format_bytes(expected(config, backend=backend(), policy=policy, ranks=ranks).peak_bytes)
        for policy in (change.before, change.after)
    )
    return f"{line}, expected peak {before} -> {after}"


def _expect_same(name: str, asked: Any, value: Any) -> None:
    if asked != value:
        raise ResumeError(f"[resume] {name}: got {asked!r}, expected {value!r}, which the file has and cannot change")
