"""Files that are wrong although their checksum is right: what the reader must find by itself.

A whole file is taken apart, edited, and sealed again.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

from tinygpt.tinygpt_file import checksum
from tinygpt.tinygpt_file.layout import LENGTH_BYTES, METADATA

Json = dict[str, Any]


class Parts:
    """A file, taken apart.

    Attributes:
        entries: Its tensors' entries by name, as in the safetensors header.
        header: Our own header.
        metadata: What else stands in the metadata.
        data: The bytes of the tensors.
    """

    def __init__(self, whole: bytes) -> None:
        """Take a whole file apart."""
        end = LENGTH_BYTES + int.from_bytes(whole[:LENGTH_BYTES], "little")
        self.entries: Json = json.loads(whole[LENGTH_BYTES:end])
        self.metadata: Json = self.entries.pop(METADATA)
        self.header: Any = json.loads(self.metadata.pop("tinygpt"))
        self.data = whole[end:]

    def sealed(self) -> bytes:
        """Return the file that the parts make, with the checksum that it should have."""
        metadata = {**self.metadata, "tinygpt": json.dumps(self.header), checksum.FIELD: checksum.ZEROS}
        return sealed(json.dumps({METADATA: metadata, **self.entries}, separators=(",", ":")).encode(), self)


def sealed(text: bytes, parts: Parts) -> bytes:
    """Return a file with that safetensors header, the checksum put in where it is zero."""
    beginning = len(text).to_bytes(LENGTH_BYTES, "little") + text
    digests = []
    for entry in parts.entries.values():
        try:
            start, end = entry["data_offsets"]
            digests.append(checksum.tensor_digest(parts.data[start:end]))
        except (TypeError, KeyError, ValueError, IndexError):  # the edit is just that
            digests.append(b"")
    digest = checksum.file_digest(beginning, digests)
    return beginning.replace(checksum.ZEROS.encode(), digest.encode(), 1) + parts.data


def edited(whole: bytes, edit: Callable[[Parts], None]) -> bytes:
    """Return a file that was edited and sealed again."""
    parts = copy.deepcopy(Parts(whole))
    edit(parts)
    return parts.sealed()
