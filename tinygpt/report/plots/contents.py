"""What the JSON of a picture holds, checked entry by entry before anything is drawn."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tinygpt.errors import ReportError
from tinygpt.report.plots.entry import Entry

FRAMEWORKS = ("mlx", "torch")

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """Where the numbers come from.

    Attributes:
        machine: Device, backend, system and variables.
        packages: Releases of what computed.
        file: The name of the JSON file.
        date: When it was measured, as the file says; empty where it does not say.
    """

    machine: str
    packages: str
    file: str
    date: str


@dataclass(frozen=True)
class Setting:
    """What a step was run with, apart from its row and its policy."""

    compiled: bool
    clip_norm: float
    dtype: str

    @property
    def mode(self) -> str:
        """Whether the step was compiled, as a word."""
        return "compiled" if self.compiled else "eager"

    @property
    def rest(self) -> str:
        """Return the other settings as words."""
        clipping = f"gradients clipped at norm {self.clip_norm:g}" if self.clip_norm else "gradients not clipped"
        return f"{self.dtype}, {clipping}"


@dataclass(frozen=True)
class Record:
    """The reading of one row under one wrapper and one policy."""

    row: str
    framework: str
    wrapper: str
    policy: str
    setting: Setting
    peak_bytes: int
    step_s: float


@dataclass(frozen=True)
class Depth:
    """The peak of one policy at one number of blocks, and what arithmetic says of it, where it says anything."""

    policy: str
    n_layer: int
    peak_bytes: int
    estimate_bytes: int | None


@dataclass(frozen=True)
class Timeline:
    """The active bytes of one policy in the course of a step, as pairs of seconds and bytes."""

    policy: str
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Contents:
    """A file: each of the three lists may be empty, not all of them.

    Attributes:
        failed: What the file says of runs that came to no reading, such as one that ran out of memory.
    """

    source: Source
    row: str
    records: tuple[Record, ...]
    depths: tuple[Depth, ...]
    timelines: tuple[Timeline, ...]
    failed: tuple[str, ...]


LISTS = ("records", "depths", "timelines")


def contents(value: Any, *, file: str) -> Contents:
    """Return what a file holds.

    Args:
        value: The JSON.
        file: The name of the file, for the footer.

    Raises:
        ReportError: An entry is missing, of another kind, or there twice; a list is empty; there is nothing to draw.
    """
    whole = Entry("", value)
    source = _source(whole, file)
    found = [name for name in LISTS if name in value]
    if not found:
        raise ReportError(f"[plots] file: got neither {' nor '.join(LISTS)}, expected one of them")
    failed = [entry for entry in whole.at("records").items() if entry.has("error")] if "records" in found else []
    return Contents(
        source=source,
        failed=tuple(map(_failure, failed)),
        row=whole.at("row").text() if found != ["records"] else "",
        records=_list(whole, "records", _record, lambda r: (r.row, r.framework, r.wrapper, r.policy, r.setting)),
        depths=_list(whole, "depths", _depth, lambda d: (d.policy, d.n_layer)),
        timelines=_list(whole, "timelines", _timeline, lambda t: t.policy),
    )


def _source(whole: Entry, file: str) -> Source:
    environment = whole.at("environment")
    machine = f"{environment.at('device').text()} ({environment.at('backend').text()})"
    packages = _pairs(environment, "packages", " ")
    packages += [f"torch {environment.at('torch').text()}"] if environment.has("torch") else []
    if not packages:
        raise environment.at("packages").unlike("an object with the release of mlx")
    more = [environment.at("system").text()] if environment.has("system") else []
    more += _pairs(environment, "variables", "=") if environment.has("variables") else []
    return Source(
        machine=", ".join([machine, *more]),
        packages=", ".join(packages),
        file="".join(sign if sign.isprintable() else "?" for sign in file),
        date=whole.at("date").text() if whole.has("date") else "",
    )


def _pairs(entry: Entry, name: str, between: str) -> list[str]:
    pairs = entry.at(name)
    if not isinstance(pairs.value, dict):
        raise pairs.unlike("an object")
    return [f"{Entry(pairs.place, key).text()}{between}{pairs.at(key).text()}" for key in pairs.value]


def _list(whole: Entry, name: str, read: Callable[[Entry], T], key: Callable[[T], Hashable]) -> tuple[T, ...]:
    """Return the list of this name, none if there is none; what should be there once is not there twice."""
    if name not in whole.value:
        return ()
    entries = [entry for entry in whole.at(name).items() if not entry.has("error")]
    values = [read(entry) for entry in entries]
    keys: Sequence[Hashable] = [key(value) for value in values]
    for index, entry in enumerate(entries):
        if keys[index] in keys[:index]:
            first = entries[keys.index(keys[index])].place
            raise ReportError(f"[plots] {entry.place}: got the same case as {first}, expected each once")
    return tuple(values)


def _failure(entry: Entry) -> str:
    words = [entry.at(name).text() for name in ("row", "framework", "policy")]
    return f"{entry.place}: {' '.join(words)} has an error and no reading"


def _record(entry: Entry) -> Record:
    return Record(
        row=entry.at("row").text(),
        framework=_one_of(entry.at("framework"), FRAMEWORKS),
        wrapper=entry.at("wrapper").text(),
        policy=entry.at("policy").text(),
        setting=Setting(
            compiled=entry.at("compiled").flag(),
            clip_norm=entry.at("clip_norm").number(),
            dtype=entry.at("dtype").text(),
        ),
        peak_bytes=entry.at("peak_bytes").whole(),
        step_s=entry.at("step_s").number(above_zero=True),
    )


def _depth(entry: Entry) -> Depth:
    return Depth(
        policy=entry.at("policy").text(),
        n_layer=entry.at("n_layer").whole(),
        peak_bytes=entry.at("peak_bytes").whole(),
        estimate_bytes=entry.at("estimate_bytes").whole() if entry.has("estimate_bytes") else None,
    )


def _timeline(entry: Entry) -> Timeline:
    pairs = [sample.items(2) for sample in entry.at("samples").items(2)]
    samples = tuple((pair[0].number(), pair[1].number()) for pair in pairs)
    for before, after, pair in zip(samples, samples[1:], pairs[1:], strict=False):
        if after[0] < before[0]:
            raise pair[0].unlike(f"a time not before the one before it, {before[0]:g}")
    return Timeline(entry.at("policy").text(), samples)


def _one_of(entry: Entry, names: Sequence[str]) -> str:
    if entry.value not in names:
        raise entry.unlike(f"one of {', '.join(names)}")
    return str(entry.value)
