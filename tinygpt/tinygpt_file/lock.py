"""Only one process at a time writes a file."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tinygpt.errors import SaveError

ENDING = ".lock"


@contextmanager
def sole_writer(path: Path, *, who: str = "trainer") -> Iterator[None]:
    """Be the only one that writes ``path``, inside the context; a process that dies is so no more.

    The lock is a file beside it, for the file itself is another one after every save. It is removed in the end.

    Args:
        path: The file.
        who: What an error calls those who write it.

    Raises:
        SaveError: Another process writes the file, or nothing can be written there.
    """
    lock = Path(f"{path}{ENDING}")
    try:
        descriptor = _locked(lock)
    except BlockingIOError:
        raise SaveError(f"[{path}] {who}: got another that writes this file, expected none") from None
    except OSError as error:
        raise SaveError(f"[{path}] lock: got {error.strerror or error}, expected a folder to write to") from None
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _locked(lock: Path) -> int:
    """Return a descriptor of the lock file that is locked, and still stands under its name."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_size:
                raise OSError(errno.EEXIST, f"{lock.name}, which is no lock of ours")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), lock.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever had it has just removed it
