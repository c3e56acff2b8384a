"""What a ``.tinygpt`` file says about itself: one JSON object, with a version.

Version 1 is that of the document which this project grew from: checkpointing is a flag. Version 2 names a policy, and
keeps a record of what was changed on a resume. Version 3 says how many parts a batch is divided into.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tinygpt.checkpointing import policy, wrapper
from tinygpt.config import GPTConfig
from tinygpt.errors import ConfigError
from tinygpt.tinygpt_file.unfit import RefusedError, UnfitError, described
from tinygpt.train_config import OPTIMIZER, TrainConfig

VERSION = 3
TOKENIZER = "bytes"

# The names that an object of the header has, no more and no fewer.
NAMED = ("policy", "wrapper", "dtype")
KEYS = ("version", "written_by", "step", *NAMED, "model", "training", "optimizer", "data", "changes")
MODEL = tuple(field.name for field in dataclasses.fields(GPTConfig))
TRAINING = tuple(
    field.name for field in dataclasses.fields(TrainConfig) if field.name not in (*NAMED, "model", "corpus")
)
DATA = ("tokenizer", "corpus", "position", "size_bytes", "sha256")

Json = dict[str, Any]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Which text a model is trained on.

    Attributes:
        size_bytes: Its length.
        sha256: Of its bytes, in hexadecimal digits.
    """

    size_bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Change:
    """What was changed on a resume.

    Attributes:
        step: The last step before it.
        field: What: ``policy``, ``learning_rate``, ...
        before: Its value until then.
        after: Its value from then on.
    """

    step: int
    field: str
    before: Any
    after: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """What is known of a run, beside its tensors.

    Attributes:
        config: What the run is to do.
        step: Optimizer steps that it has done. The data's position is the same number, for the batch of a step
            is a function of seed and step.
        corpus: Its text.
        changes: What was changed on the way, the oldest first.
        written_by: Releases and backend that wrote the file.
    """

    config: TrainConfig
    step: int
    corpus: Fingerprint
    changes: tuple[Change, ...] = ()
    written_by: dict[str, str] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> Json:
        """Return the header as it stands in the file."""
        run = dataclasses.asdict(self.config)
        corpus = self.config.corpus
        return {
            "version": VERSION,
            "written_by": self.written_by,
            "step": self.step,
            **{name: run[name] for name in NAMED},
            "model": run["model"],
            "training": {name: run[name] for name in TRAINING},
            "optimizer": OPTIMIZER,
            "data": {
                "tokenizer": TOKENIZER,
                "corpus": None if corpus is None else str(corpus.absolute()),
                "position": self.step,
                **dataclasses.asdict(self.corpus),
            },
            "changes": [dataclasses.asdict(change) for change in self.changes],
        }


def parsed(header: Json) -> Header:
    """Return the header in a file of any version up to ours.

    Raises:
        UnfitError: The version is newer, or something is missing, surplus or out of its range.
    """
    header = _section(_migrated(header), "", KEYS)
    training = _section(header["training"], "training", TRAINING)
    model = _section(header["model"], "model", MODEL)
    data = _section(header["data"], "data", DATA)
    optimizer = _section(header["optimizer"], "optimizer", OPTIMIZER)
    for what, got, expected in (
        *((f"optimizer.{name}", optimizer[name], value) for name, value in OPTIMIZER.items()),
        ("data.tokenizer", data["tokenizer"], TOKENIZER),
        ("data.position", data["position"], header["step"]),
    ):
        if got != expected:
            raise UnfitError(f"header {what}", described(got), described(expected))
    named = {name: header[name] for name in NAMED}
    return Header(
        config=_config(model, {**named, **training, "corpus": data["corpus"]}),
        step=_whole(header["step"], "step"),
        corpus=Fingerprint(
            _whole(data["size_bytes"], "data.size_bytes"),
            _text(data["sha256"], "data.sha256", r"[0-9a-f]{64}", "64 hexadecimal digits"),
        ),
        changes=tuple(_change(entry) for entry in _typed(header["changes"], "changes", list)),
        written_by={
            name: _text(value, f"written_by.{name}")
            for name, value in _typed(header["written_by"], "written_by", dict).items()
        },
    )


def _migrated(header: Json) -> Json:
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise UnfitError("header version", described(version), f"a whole number from 1 to {VERSION}")
    if version > VERSION:
        raise UnfitError("header version", version, f"at most {VERSION}: it was written by a newer tinygpt")
    for older in range(version, VERSION):
        header = MIGRATIONS[older](header)
    return header


def _flag_to_policy(header: Json) -> Json:
    """From version 1: ``grad_checkpoint`` is true or false, and nothing is recorded of what was changed."""
    flag = header.get("grad_checkpoint")
    if type(flag) is not bool:
        raise UnfitError("header grad_checkpoint", described(flag), "true or false")
    rest = {name: value for name, value in header.items() if name != "grad_checkpoint"}
    return rest | {"version": 2, "policy": "all" if flag else "none", "wrapper": "tinygpt", "changes": []}


def _whole_batches(header: Json) -> Json:
    """From version 2: a batch is not divided."""
    training = _typed(header.get("training"), "training", dict)
    if "accumulate" in training:
        raise UnfitError("header training.accumulate", "a value", "none in version 2")
    return header | {"version": 3, "training": training | {"accumulate": 1}}


MIGRATIONS: dict[int, Callable[[Json], Json]] = {1: _flag_to_policy, 2: _whole_batches}


def _config(model: Json, training: Json) -> TrainConfig:
    corpus = training["corpus"]
    if corpus is not None:
        training = training | {"corpus": _path(corpus, "data.corpus")}
    try:
        policy.parsed(_text(training["policy"], "policy"))
        wrapper(_text(training["wrapper"], "wrapper"))
        return TrainConfig(model=GPTConfig(**model), **training)
    except ConfigError as error:
        raise RefusedError("header", error) from None


def _change(entry: Any) -> Change:
    change = _section(entry, "changes", [field.name for field in dataclasses.fields(Change)])
    return Change(_whole(change["step"], "changes.step"), _text(change["field"], "changes.field"), *_values(change))


def _values(change: Json) -> Iterator[Any]:
    for name in ("before", "after"):
        if not isinstance(change[name], bool | int | float | str | None):
            raise UnfitError(f"header changes.{name}", described(change[name]), "a number, a text or null")
        yield change[name]


def _section(value: Any, name: str, keys: Iterable[str]) -> Json:
    """Return an object that has exactly these keys."""
    found: Json = _typed(value, name, dict)
    for key in sorted(found.keys() ^ set(keys)):
        got, expected = ("none", "a value") if key not in found else ("a value", "none")
        raise UnfitError(f"header {name}.{key}".replace(" .", " "), got, expected)
    return found


def _typed(value: Any, name: str, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise UnfitError(f"header {name}".rstrip(), described(value), "an array" if kind is list else "an object")
    return value


def _path(value: Any, name: str) -> Path:
    path = Path(_text(value, name, r"[^\0]+", "a path"))
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise UnfitError(f"header {name}", described(value), "a path") from None
    return path


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise UnfitError(f"header {name}", described(value), "a whole number in [0, 2^63)")
    return value


def _text(value: Any, name: str, pattern: str = ".*", expected: str = "a text") -> str:
    if not isinstance(value, str) or re.fullmatch(pattern, value, re.DOTALL) is None:
        raise UnfitError(f"header {name}", described(value), expected)
    return value
