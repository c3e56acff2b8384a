"""A subject as text, for another process: by reference where it can be imported, else by value."""

import base64
import pickle

from tinygpt.conformance.subjects import Subject
from tinygpt.errors import SubjectError


def packed(subject: Subject) -> str:
    """Return a subject as text, also one of a notebook or a local function.

    Raises:
        SubjectError: It cannot be sent to another process.
    """
    import cloudpickle  # noqa: PLC0415  (only a judge needs it)

    try:
        return base64.b64encode(cloudpickle.dumps(subject)).decode()
    except Exception as error:
        raise SubjectError(
            f"[subject] {subject.name}: got {type(error).__name__}: {error}, "
            "expected what can be sent to another process; give it as package.module:attribute"
        ) from error


def unpacked(text: str) -> Subject:
    """Return the subject of a text; whatever its import raises passes through."""
    subject: Subject = pickle.loads(base64.b64decode(text))
    return subject
