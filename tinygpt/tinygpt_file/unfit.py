"""What is wrong with the contents of a file, told before it is known which file it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tinygpt.errors import TinyGPTFileError
from tinygpt.printable import printable

LONGEST = 80


class UnfitError(Exception):
    """Something in a file is not as it has to be."""

    def __init__(self, what: object, got: object, expected: object) -> None:
        """Take the three parts of every error; what is long is cut."""
        super().__init__(f"{cut(what)}: got {cut(got)}, expected {expected}")


class RefusedError(UnfitError):
    """A value in a file was refused by what it is meant for."""

    def __init__(self, where: str, error: Exception) -> None:
        """Take the error that says why."""
        Exception.__init__(self, f"{where} {cut(error, most=4 * LONGEST)}")


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Turn what goes wrong inside the context into one error that names the file.

    Raises:
        TinyGPTFileError: The system cannot read the file, or its contents are unfit.
    """
    try:
        yield
    except UnfitError as error:
        raise TinyGPTFileError(f"[{path}] {error}") from None
    except OSError as error:
        raise TinyGPTFileError(
            f"[{path}] file: got {error.strerror or error}, expected a readable .tinygpt file"
        ) from None


def cut(value: object, *, most: int = LONGEST) -> str:
    """Return a value as text that fits into an error, whatever it is."""
    text = str(value)
    return printable(text if len(text) <= most else f"{text[:most]}…")


def described(value: object) -> str:
    """Return a JSON value as text: a scalar or a few numbers as they are, whatever is larger by its kind.

    Not its ``repr``, which a value that is nested deeply enough does not have.
    """
    if value is None:
        return "none"
    if isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list) and len(value) <= 8 and all(type(item) in (int, float) for item in value):
        return repr(value)
    return "an array" if isinstance(value, list) else "an object"
