"""What the blocks of a model leave for others beside their results: which attribute, by which line, and who reads it.

A checkpoint that knows a block's arguments and its result alone loses the gradient of all of this.
"""

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn

from tinygpt.audit.specimen import Specimen
from tinygpt.checkpointing import blocks_of, with_call
from tinygpt.checkpointing.crossings import FOREIGN, arrays_in, note_written
from tinygpt.checkpointing.recording import Recording

OWN = ("tinygpt.checkpointing", "tinygpt.audit")  # lines of these are nobody's


@dataclass
class Handover:
    """An array that blocks leave beside their results.

    Attributes:
        name: Of the place: ``KVCache.keys``, ``dict['kv']``, ``variable 'shared'``.
        line: What puts it there: file and line inside of the block, and where it goes on in other files.
        left_by: The paths of the blocks that do.
        read_by: The paths of the blocks that are given it, or read it from there, later.
    """

    name: str
    line: str
    left_by: list[str] = field(default_factory=list)
    read_by: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)


def handovers(found: Specimen) -> list[Handover]:
    """Run a model once, plain, and return what its blocks leave beside their results, in order.

    Args:
        found: The model, which is left as it is but for what a forward does to it.
    """
    seen: dict[tuple[str, str], Handover] = {}
    left: dict[int, tuple[mx.array, Handover]] = {}  # the array is kept, so that its id stays its own

    def call(path: str, block: nn.Module, args: Any, kwargs: Any) -> Any:
        recording = Recording(block, block, args, kwargs)
        given = [array for _, array in arrays_in((args, kwargs))]
        for identity in {id(array) for array in (*given, *recording.captured)}.intersection(left):
            _note(left[identity][1].read_by, path)
        with _lines(recording) as lines:
            result = recording.forward(args, kwargs)
        for crossing in recording.crossings:
            name, array = str(crossing), crossing.get()
            line = lines.get(name, "")
            handover = seen.setdefault((name, line), Handover(name, line))
            _note(handover.left_by, path)
            left[id(array)] = array, handover
            note_written(array)
        return result

    with _each_call(found.model, call):
        mx.eval(found.loss(found.model, *found.batch))
    return list(seen.values())


def _note(paths: list[str], path: str) -> None:
    if path not in paths:
        paths.append(path)


@contextmanager
def _each_call(model: nn.Module, call: Callable[..., Any]) -> Iterator[None]:
    """Let ``call`` run every block of a model, inside the context."""
    before = [(block, type(block)) for block in blocks_of(model).values()]
    try:
        for path, block in blocks_of(model).items():
            block.__class__ = _calling(path, type(block), call)
        yield
    finally:
        for block, kind in before:
            block.__class__ = kind


def _calling(path: str, kind: Any, call: Callable[..., Any]) -> type:
    """Return a class of blocks that ``call`` runs; meanwhile a block has the class that it had."""

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        calling, self.__class__ = self.__class__, kind
        try:
            return call(path, self, args, kwargs)
        finally:
            self.__class__ = calling

    return with_call(kind, called)


@contextmanager
def _lines(recording: Recording) -> Iterator[Mapping[str, str]]:
    """Yield the lines that leave something, by the name of the place; they are filled in as the lines run."""
    lines: dict[str, str] = {}
    last = ""

    def trace(frame: types.FrameType, *_: object) -> Any:
        nonlocal last
        if not _is_somebodys(frame):
            return None
        for crossing in recording.written():
            lines.setdefault(str(crossing), last)
        last = _chain(frame)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def _chain(frame: types.FrameType | None) -> str:
    """Return the lines of a frame and of those that called it, one for each file, the outermost first."""
    lines: dict[str, int] = {}
    while frame is not None and not frame.f_globals.get("__name__", "").startswith(OWN):
        if _is_somebodys(frame):
            lines.setdefault(Path(frame.f_code.co_filename).name, frame.f_lineno)
        frame = frame.f_back
    return " > ".join(f"{file}:{line}" for file, line in reversed(lines.items()))


def _is_somebodys(frame: types.FrameType) -> bool:
    """Return whether a line is of a model, not of MLX, of Python's library, or of what watches it."""
    name = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] not in FOREIGN and not name.startswith(OWN)
