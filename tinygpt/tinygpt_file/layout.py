"""Where the tensors of a safetensors file lie: its header, read and written.

A safetensors file is the length of its header in 8 bytes, the header as JSON, and the tensors one after another.
Source: https://github.com/huggingface/safetensors, section "Format". MLX reads such files too, but trusts them: here
nothing is believed before it has been checked, and nothing of the tensors is read.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tinygpt.tinygpt_file.unfit import UnfitError, cut, described

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 2 << 20  # 300 blocks; JSON of that size takes up to 50 MiB and a second to parse
METADATA = "__metadata__"
ITEM_BYTES = {"U64": 8, "F32": 4, "U32": 4, "BF16": 2}
ALIGNMENT = 8
MOST_DIMENSIONS = 8
MOST_BYTES = 1 << 62


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file.

    Attributes:
        dtype: As safetensors names it.
        shape: Its sizes.
        start: Where its first byte lies, counted from the end of the header.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def size_bytes(self) -> int:
        """What it takes in the file."""
        return ITEM_BYTES[self.dtype] * prod(self.shape)

    @property
    def end(self) -> int:
        """Where the byte after its last one lies."""
        return self.start + self.size_bytes


Layout = dict[str, Tensor]


def arranged(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> Layout:
    """Return where tensors of these names, dtypes and shapes go: wide items first, so that all are aligned."""
    layout: Layout = {}
    end = 0
    for name, dtype, shape in sorted(tensors, key=lambda tensor: (-ITEM_BYTES[tensor[1]], tensor[0])):
        layout[name] = Tensor(dtype, shape, end)
        end = layout[name].end
    return layout


def encoded(layout: Layout, metadata: Mapping[str, str]) -> bytes:
    """Return the beginning of the file: length and header.

    Raises:
        UnfitError: The header is too long to be read again.
    """
    entries = {
        name: {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (tensor.start, tensor.end)}
        for name, tensor in layout.items()
    }
    text = json.dumps({METADATA: metadata, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    check_header_length(len(text))
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def check_header_length(length: int) -> None:
    """Raise if a header is longer than what is ever written.

    Raises:
        UnfitError: It is.
    """
    if length > MOST_HEADER_BYTES:
        raise UnfitError("length of the header", f"{length} bytes", f"at most {MOST_HEADER_BYTES}")


def decoded(text: bytes, data_bytes: int) -> tuple[dict[str, str], Layout]:
    """Return the metadata and the layout.

    Args:
        text: The header, without its length.
        data_bytes: What follows it in the file.

    Raises:
        UnfitError: It is no header, or not one of exactly that many bytes.
    """
    entries = parsed_json(text, "header")
    metadata = entries.pop(METADATA, None)
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise UnfitError(f"header {METADATA}", described(metadata), "an object of strings")
    layout = {name: _tensor(name, entry) for name, entry in entries.items()}
    end = 0
    for name, tensor in sorted(layout.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start != end:
            raise UnfitError(
                f"data_offsets of {name}", f"a start at {tensor.start}", f"{end}, where the tensor before it ends"
            )
        end = tensor.end
    if end != data_bytes:
        raise UnfitError("size of the tensors", f"{data_bytes} bytes", f"{end}, as in the header")
    return metadata, layout


def parsed_json(text: bytes, what: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        UnfitError: It is not UTF-8, not JSON, no object, nested too deeply, or has a key twice.
    """
    try:
        value = json.loads(
            text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise UnfitError(what, f"byte 0x{text[error.start]:02x} at position {error.start}", "UTF-8") from None
    except RecursionError:
        raise UnfitError(what, "JSON that is nested too deeply", "one object") from None
    except ValueError as error:  # also numbers of thousands of digits
        raise UnfitError(what, error, "JSON") from None
    if not isinstance(value, dict):
        raise UnfitError(what, described(value), "an object")
    return value


def _tensor(name: str, entry: Any) -> Tensor:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise UnfitError(f"entry of {name}", described(entry), "an object of dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise UnfitError(f"dtype of {name}", repr(dtype), f"one of {', '.join(ITEM_BYTES)}")
    if not _are_sizes(shape) or len(shape) > MOST_DIMENSIONS:
        raise UnfitError(f"shape of {name}", described(shape), f"at most {MOST_DIMENSIONS} sizes")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise UnfitError(f"data_offsets of {name}", described(offsets), "a start and an end")
    tensor = Tensor(dtype, tuple(shape), offsets[0])
    if tensor.end != offsets[1]:
        raise UnfitError(
            f"data_offsets of {name}", f"{offsets[1] - offsets[0]} bytes", f"{tensor.size_bytes}, as its shape has"
        )
    return tensor


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < MOST_BYTES for value in values)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UnfitError("header", f"{cut(name)!r} twice", "every name once")
        found[name] = value
    return found


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise UnfitError("header", text, "numbers that a float holds")
    return value


def _no_constant(name: str) -> None:
    raise UnfitError("header", name, "JSON, which has no such number")
