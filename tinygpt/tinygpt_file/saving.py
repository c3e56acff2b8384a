"""Write a ``.tinygpt`` file so that at every moment a whole one is there: this one, or the one before it."""

import errno
import fcntl
import json
import os
import stat
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
from tinygpt.tinygpt_file.lock import ENDING
from tinygpt.tinygpt_file.reading import begins_like_one
from tinygpt.tinygpt_file.unfit import UnfitError

PREVIOUS, UNFINISHED = ".previous", ".saving"
COMPANIONS = (PREVIOUS, UNFINISHED, ENDING)  # what stands, or may stand, beside a file
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    with _told(path):
        layout, beginning = _begun(header, tensors)
        with _folder(path) as folder, _new(beside(path, UNFINISHED)) as file:
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            _write(file, beginning, layout, tensors)
            file.flush()
            _to_disk(file.fileno())
            if keep_previous and path.exists():
                _keep(path, beside(path, PREVIOUS))
            beside(path, UNFINISHED).replace(path)
            _to_disk(folder)


def check_savable(path: Path, header: Header, tensors: Mapping[str, mx.array]) -> None:
    """Raise now what ``save`` would raise later, as far as it can be known: names, folder, and length of the header.

    Raises:
        SaveError: ``save`` would raise it.
    """
    with _told(path):
        _begun(header, tensors)
        for ending in (PREVIOUS, UNFINISHED):
            there = beside(path, ending)
            if os.path.lexists(there) and not there.is_file():
                raise UnfitError(f"{path.name}{ending}", "something that is no file", "a file or nothing")
        with _folder(path), _new(beside(path, UNFINISHED)):
            pass


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what goes wrong inside the context into one error."""
    try:
        yield
    except UnfitError as error:
        raise SaveError(f"[{path}] {error}") from None
    except OSError as error:
        expected = "room for the file" if error.errno in NO_ROOM else "a place to write to"
        raise SaveError(f"[{path}] saving: got {error.strerror or error}, expected {expected}") from None


def _begun(header: Header, tensors: Mapping[str, mx.array]) -> tuple[Layout, bytes]:
    layout = arranged((name, NAMES[array.dtype], array.shape) for name, array in tensors.items())
    check(header.config, layout)
    return layout, encoded(layout, metadata(header))


def metadata(header: Header) -> dict[str, str]:
    """Return what a file holds beside its tensors, the checksum still zero."""
    text = json.dumps(header.as_dict(), allow_nan=False)
    return {"format": "mlx", "tinygpt": text, checksum.FIELD: checksum.ZEROS}


def beside(path: Path, ending: str) -> Path:
    """Return the path with an ending more."""
    return Path(f"{path}{ending}")


def remove_unfinished(path: Path) -> None:
    """Remove what a trainer that was killed has left of a file; only the sole writer may.

    Raises:
        SaveError: What stands there was left by somebody else.
    """
    unfinished = beside(path, UNFINISHED)
    with _told(path):
        if not os.path.lexists(unfinished):
            return
        if unfinished.is_symlink() or not unfinished.is_file() or not begins_like_one(unfinished):
            raise UnfitError(unfinished.name, "something that no trainer has left", "nothing under that name")
        unfinished.unlink()


@contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """Open a new file; whatever happens, nothing has its name after the context."""
    path.unlink(missing_ok=True)
    try:
        with path.open("xb") as file:
            yield file
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    """Open the folder of a file, whose entries have to reach the disk too."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
