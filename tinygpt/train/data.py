"""Real text as batches of bytes."""

import hashlib
import sysconfig
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tinygpt.errors import DataError
from tinygpt.tinygpt_file import Fingerprint


def read_corpus(path: Path | None) -> npt.NDArray[np.uint8]:
    """Return a text as its UTF-8 bytes, shape (N,).

    Args:
        path: A file; ``None`` for the source of Python's standard library on this machine.

    Raises:
        DataError: The file cannot be read, or is not UTF-8.
    """
    text = _standard_library() if path is None else _read(path)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"[corpus] {path}: got byte 0x{text[error.start]:02x} at position {error.start}, expected UTF-8 text"
        ) from None
    return np.frombuffer(text, np.uint8)


class Batches:
    """Windows from random places of a text; those of a step are a function of the seed and its number alone.

    So a run that goes on needs to know no more than where it was.
    """

    def __init__(self, corpus: npt.NDArray[np.uint8], *, batch: int, context: int, seed: int) -> None:
        """Cut a text of shape (N,) into windows of ``context + 1`` tokens.

        Raises:
            DataError: The text is shorter than one window.
        """
        if len(corpus) <= context:
            raise DataError(f"[corpus] length: got {len(corpus)} bytes, expected at least {context + 1} (context + 1)")
        self._windows = np.lib.stride_tricks.sliding_window_view(corpus, context + 1)
        self._batch = batch
        self._seed = seed

    def at(self, step: int) -> npt.NDArray[np.uint8]:
        """Return the batch of a step, from 1.

        Shape:
            (B, T + 1): the tokens, and after each the one to predict.
        """
        generator = np.random.default_rng((self._seed, step))
        return self._windows[generator.integers(len(self._windows), size=self._batch)]


def fingerprint(corpus: npt.NDArray[np.uint8]) -> Fingerprint:
    """Return what tells a text from any other."""
    return Fingerprint(len(corpus), hashlib.sha256(corpus.data).hexdigest())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"[corpus] {path}: got {error.strerror or error}, expected a readable file") from None


def _standard_library() -> bytes:
    """Return the modules of the standard library, one after another in the order of their names."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))
    if not text:
        raise DataError(f"[corpus] standard library: got no source in {folder}, expected some; give a --corpus")
    return text
