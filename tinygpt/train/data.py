"""Real text as batches of bytes."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tinygpt.errors import DataError


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


def batches(corpus: npt.NDArray[np.uint8], *, batch: int, context: int, seed: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield windows from random places of the text, for ever, the same for the same seed.

    Shape:
        Each (B, T + 1): the tokens, and after each the one to predict.

    Raises:
        DataError: The text is shorter than one window.
    """
    if len(corpus) <= context:
        raise DataError(f"[corpus] length: got {len(corpus)} bytes, expected at least {context + 1} (context + 1)")
    windows = np.lib.stride_tricks.sliding_window_view(corpus, context + 1)
    generator = np.random.default_rng(seed)
    return (windows[generator.integers(len(windows), size=batch)] for _ in iter(int, 1))


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
