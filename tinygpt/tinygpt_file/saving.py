"""Write a ``.tinygpt`` file so that at every moment a whole one is there: this one, or the one before it."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import mlx.core as mx
import numpy as np

from tinygpt.errors import SaveError
from tinygpt.tinygpt_file import checksum
from tinygpt.tinygpt_file.contents import NAMES, check
from tinygpt.tinygpt_file.header import Header
from tinygpt.tinygpt_file.layout import Layout, arranged, encoded
from tinygpt.tinygpt_file.unfit import UnfitError

PREVIOUS, UNFINISHED = ".previous", ".saving"


def save(path: Path, header: Header, tensors: Mapping[str, mx.array], *, keep_previous: bool = True) -> None:
    """Write a file in place of the one that is there.

    Args:
        path: Where.
        header: What the file says about itself.
        tensors: Every tensor of the run by its name in the file, evaluated.
        keep_previous: Whether what stands under ``path`` is kept, with ``.previous`` added to its name.

    Raises:
        SaveError: The file cannot be written; what was there is as it was.
    """
    unfinished = beside(path, UNFINISHED)
    try:
        layout = arranged((name, NAMES[array.dtype], array.shape) for name, array in tensors.items())
        check(header.config, layout)
        beginning = encoded(layout, metadata(header))
        with _new(unfinished) as file:
            _write(file, beginning, layout, tensors)
        _exchange(unfinished, path, keep_previous=keep_previous)
    except UnfitError as error:
        raise SaveError(f"[{path}] {error}") from None
    except OSError as error:
        raise SaveError(f"[{path}] saving: got {error.strerror or error}, expected room for the file") from None


def metadata(header: Header) -> dict[str, str]:
    """Return what a file holds beside its tensors, the checksum still zero."""
    text = json.dumps(header.as_dict(), allow_nan=False)
    return {"format": "mlx", "tinygpt": text, checksum.FIELD: checksum.ZEROS}


def beside(path: Path, ending: str) -> Path:
    """Return the path with an ending more."""
    return Path(f"{path}{ending}")


def remove_unfinished(path: Path) -> None:
    """Remove what a trainer that was killed has left of a file; only the sole writer may."""
    beside(path, UNFINISHED).unlink(missing_ok=True)


@contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """Open a new file, whose contents are on the disk after the context; after an exception it is gone."""
    path.unlink(missing_ok=True)
    try:
        with path.open("xb") as file:
            yield file
            file.flush()
            _to_disk(file.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _write(file: BinaryIO, beginning: bytes, layout: Layout, tensors: Mapping[str, mx.array]) -> None:
    file.write(beginning)
    with ThreadPoolExecutor() as pool:
        digests = []
        for name in layout:
            data = as_bytes(tensors[name])
            digests.append(pool.submit(checksum.tensor_digest, data))
            file.write(data)
        digest = checksum.file_digest(beginning, (future.result() for future in digests))
    file.seek(checksum.place(beginning, checksum.ZEROS))
    file.write(digest.encode())


def as_bytes(array: mx.array) -> memoryview:
    """Return the bytes of an array, little-endian, in the order of its elements; on the CPU they are not copied."""
    plain = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array  # NumPy has no bfloat16
    return np.ascontiguousarray(np.asarray(plain)).reshape(-1).view(np.uint8).data


def _exchange(new: Path, path: Path, *, keep_previous: bool) -> None:
    """Put ``new`` under the name ``path``; at every moment there is a whole file under one of the two names."""
    if keep_previous and path.exists():
        _keep(path, beside(path, PREVIOUS))
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        _to_disk(folder)
    finally:
        os.close(folder)


def _keep(path: Path, previous: Path) -> None:
    """Give what stands under ``path`` the other name too, or instead where a file can have only one."""
    previous.unlink(missing_ok=True)
    try:
        previous.hardlink_to(path)
    except OSError:
        path.replace(previous)


def _to_disk(descriptor: int) -> None:
    """Wait until the contents are on the disk, also on macOS, where ``fsync`` leaves them in the drive's cache."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        with suppress(OSError):  # not every file system knows it
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)
