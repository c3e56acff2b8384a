"""The ``.tinygpt`` file: a safetensors file with a versioned JSON header, written atomically."""

from tinygpt.tinygpt_file.header import Change, Fingerprint, Header
from tinygpt.tinygpt_file.lock import sole_writer
from tinygpt.tinygpt_file.reading import Outline, load, outline, verify
from tinygpt.tinygpt_file.saving import PREVIOUS, beside, remove_unfinished, save

__all__ = [
    "PREVIOUS",
    "Change",
    "Fingerprint",
    "Header",
    "Outline",
    "beside",
    "load",
    "outline",
    "remove_unfinished",
    "save",
    "sole_writer",
    "verify",
]
