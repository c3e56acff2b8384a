"""Read a ``.tinygpt`` file: everything in it is checked before anything of it is used."""

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from tinygpt.tinygpt_file import checksum, contents
from tinygpt.tinygpt_file.header import Header, parsed
from tinygpt.tinygpt_file.layout import LENGTH_BYTES, Layout, Tensor, check_header_length, decoded, parsed_json
from tinygpt.tinygpt_file.unfit import UnfitError, named

BEGINNING = b'{"__metadata__":{"format":"mlx","tinygpt":"'
AT_ONCE = 8  # tensors that are read and checked together


@dataclass(frozen=True)
class Outline:
    """A file without its tensors.

    Attributes:
        header: What it says about itself.
        layout: Where each tensor lies.
        beginning: Its first bytes, up to the tensors.
        stored: The checksum that it carries, in hexadecimal digits.
    """

    header: Header
    layout: Layout
    beginning: bytes
    stored: str


def load(path: Path) -> tuple[Header, dict[str, mx.array]]:
    """Return a file's header and its tensors by name.

    Raises:
        TinyGPTFileError: There is no such file, or it is damaged, of a newer version, or something else.
    """
    with named(path), _opened(path) as file:
        outline, arrays = _outline(file), {}
        for name, data in _checked(file, outline):
            arrays[name] = _array(data, outline.layout[name])
        return outline.header, arrays


def outline(path: Path) -> Outline:
    """Return what a file says about itself; its tensors are not read.

    Raises:
        TinyGPTFileError: There is no such file, or what can be seen without its tensors is damaged.
    """
    with named(path), _opened(path) as file:
        return _outline(file)


def verify(path: Path) -> None:
    """Read a whole file, and check all that ``load`` checks.

    Raises:
        TinyGPTFileError: ``load`` would raise it.
    """
    with named(path), _opened(path) as file:
        for _ in _checked(file, _outline(file)):
            pass


def begins_like_one(path: Path) -> bool:
    """Return whether a file is empty or begins like a ``.tinygpt`` file, damaged or not."""
    with path.open("rb") as file:
        start = file.read(LENGTH_BYTES + len(BEGINNING))
    return not start or start[LENGTH_BYTES:] == BEGINNING


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file: to open a pipe would wait for somebody to write into it."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        raise UnfitError("file", kind.get(stat.S_IFMT(mode), "a device"), "a .tinygpt file")
    with path.open("rb") as file:
        yield file


def _outline(file: BinaryIO) -> Outline:
    size = os.fstat(file.fileno()).st_size
    start = file.read(LENGTH_BYTES)
    if len(start) < LENGTH_BYTES:
        raise UnfitError("size of the file", f"{size} bytes", f"at least {LENGTH_BYTES}")
    length = int.from_bytes(start, "little")
    check_header_length(length)
    text = file.read(length)
    if len(text) < length:
        raise UnfitError("size of the file", f"{size} bytes", f"at least {LENGTH_BYTES + length}, for its header")
    metadata, layout = decoded(text, size - LENGTH_BYTES - length)
    for name in ("tinygpt", checksum.FIELD):
        if name not in metadata:
            raise UnfitError(f"metadata {name}", "none", "one, as in every .tinygpt file")
    header = parsed(parsed_json(metadata["tinygpt"].encode("utf-8", "surrogatepass"), "header"))
    contents.check(header.config, layout)
    return Outline(header, layout, start + text, metadata[checksum.FIELD])


def _checked(file: BinaryIO, outline: Outline) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
    """Yield name and bytes of every tensor in the order of the file; raise at the end unless they are what was written.

    A few tensors are read together.
    """

    def read(name: str) -> tuple[npt.NDArray[np.uint8], bytes]:
        tensor = outline.layout[name]
        data = np.empty(tensor.size_bytes, np.uint8)
        _fill(file.fileno(), data.data, len(outline.beginning) + tensor.start, name)
        return data, checksum.tensor_digest(data.data)

    names = sorted(outline.layout, key=lambda name: outline.layout[name].start)
    digests = []
    steps = outline.header.step
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in _parts(names, AT_ONCE):
            for name, (data, digest) in zip(some, pool.map(read, some), strict=True):
                digests.append(digest)
                if name == f"{contents.OPTIMIZER}step":
                    steps = int(data.view(np.uint64)[0])
                yield name, data
    _check_digest(outline, digests)
    if steps != outline.header.step:
        raise UnfitError("header step", outline.header.step, f"{steps}, as the optimizer has")


def _fill(descriptor: int, buffer: memoryview, offset: int, name: str) -> None:
    """Read as many bytes as fit into a buffer."""
    while buffer:
        count = os.preadv(descriptor, [buffer], offset)
        if not count:
            raise UnfitError(f"tensor {name}", "an end of the file", f"{len(buffer)} bytes more")
        buffer, offset = buffer[count:], offset + count


def _parts(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _array(data: npt.NDArray[np.uint8], tensor: Tensor) -> mx.array:
    dtype = contents.DTYPES[tensor.dtype]
    plain = {mx.bfloat16: np.uint16, mx.float32: np.float32, mx.uint32: np.uint32, mx.uint64: np.uint64}[dtype]
    array = mx.array(data.view(plain).reshape(tensor.shape))
    return array.view(dtype) if dtype == mx.bfloat16 else array


def _check_digest(outline: Outline, digests: Sequence[bytes]) -> None:
    place = checksum.place(outline.beginning, outline.stored)
    beginning = outline.beginning
    zeroed = beginning[:place] + checksum.ZEROS.encode() + beginning[place + len(checksum.ZEROS) :]
    found = checksum.file_digest(zeroed, digests)
    if found != outline.stored:
        raise UnfitError("checksum", f"{found[:16]}… of the contents", f"{outline.stored[:16]}…, as in the header")
