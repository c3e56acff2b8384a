"""Where a run leaves what it makes, and that nothing is lost for it."""

import dataclasses
import os
from pathlib import Path

from tinygpt.errors import ConfigError, TinyGPTFileError, UsageError
from tinygpt.tinygpt_file import COMPANIONS, PREVIOUS, begins_like_one, beside, verify


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Where a run leaves what it makes.

    Attributes:
        json: A file for one JSON object a step, and a last one with ``"summary": true``; sizes in bytes.
        file: The ``.tinygpt`` file.
        save_every: Steps from one saving to the next; None for the end alone.
        keep_previous: Whether what stands under ``file`` before the first saving is kept as ``.previous``.
        replaces: Whether something may stand there.
    """

    json: Path | None = None
    file: Path | None = None
    save_every: int | None = None
    keep_previous: bool = True
    replaces: bool = False

    def __post_init__(self) -> None:
        """Refuse what means nothing.

        Raises:
            ConfigError: A number is out of its range.
        """
        if self.save_every is not None and self.save_every < 1:
            raise ConfigError(f"[train] save_every: got {self.save_every}, expected a positive integer")


def onto(path: Path, output: Output) -> Output:
    """Return the output of a run that goes on from ``path``.

    What it goes on from is never lost. From ``FILE.previous``, the first saving replaces a FILE that is damaged, and
    keeps ``.previous``; a FILE that is whole, or none of ours, is not touched.

    Raises:
        UsageError: FILE is whole: it is what to go on from.
    """
    original = Path(str(path).removesuffix(PREVIOUS))
    file = original if output.file is None else output.file
    if file == path:
        return dataclasses.replace(output, file=file, replaces=True)
    if file != original:
        return dataclasses.replace(output, file=file)
    damaged = file.is_file() and begins_like_one(file)
    if damaged:
        try:
            verify(file)
        except TinyGPTFileError:
            pass
        else:
            raise UsageError(f"[out] {file}: got a file that is whole, expected to go on from it, or --out with a name")
    return dataclasses.replace(output, file=file, replaces=damaged, keep_previous=False)


def expect_new(path: Path) -> None:
    """Raise if something is there that a new file would replace.

    Raises:
        UsageError: It is.
    """
    if os.path.lexists(path):
        raise UsageError(f"[out] {path}: got a file that is there, expected a new name, or --resume {path}")


def expect_apart(output: Output, corpus: Path | None) -> None:
    """Raise if one file is to be two things.

    Raises:
        UsageError: The log or the text is the file of the run, or stands where that leaves something; or they are one.
    """
    taken = {} if output.file is None else {os.path.realpath(beside(output.file, end)): "--out" for end in COMPANIONS}
    if output.file is not None:
        taken[os.path.realpath(output.file)] = "--out"
    if corpus is not None and os.path.realpath(corpus) in taken:
        raise UsageError(f"[train] --corpus: got {corpus}, which belongs to --out, expected another file")
    if corpus is not None:
        taken[os.path.realpath(corpus)] = "--corpus"
    if output.json is not None and os.path.realpath(output.json) in taken:
        owner = taken[os.path.realpath(output.json)]
        raise UsageError(f"[train] --json: got {output.json}, which belongs to {owner}, expected another file")
