"""One checksum over every byte of a file, that many processor cores can compute together.

The SHA-256 of the header, in which the checksum's own digits are zeros, followed by the SHA-256 of each tensor in the
order of the file. SHA-256 in Python lets other threads run.
"""

import hashlib
from collections.abc import Iterable

from tinygpt.tinygpt_file.unfit import UnfitError

FIELD = "sha256"
ZEROS = "0" * 64


def tensor_digest(data: bytes | memoryview) -> bytes:
    """Return the digest of one tensor."""
    return hashlib.sha256(data).digest()


def file_digest(beginning: bytes, tensors: Iterable[bytes]) -> str:
    """Return the checksum in 64 hexadecimal digits.

    Args:
        beginning: Length and header of the file, the checksum itself written as zeros.
        tensors: The digest of each tensor, in the order of the file.
    """
    return hashlib.sha256(beginning + b"".join(tensors)).hexdigest()


def place(beginning: bytes, digits: str) -> int:
    """Return where in the file the checksum's digits stand.

    Raises:
        UnfitError: They are not there once.
    """
    entry = f'"{FIELD}":"{digits}"'.encode()
    if beginning.count(entry) != 1:
        raise UnfitError("checksum", f"{beginning.count(entry)} entries", 'one, written as "sha256":"..."')
    return beginning.index(entry) + len(FIELD) + 4
