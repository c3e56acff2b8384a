"""The ``.tinygpt`` file: a safetensors file with a versioned JSON header, written atomically."""

from tinygpt.tinygpt_file.header import Change, Fingerprint, Header
from tinygpt.tinygpt_file.lock import sole_writer
from tinygpt.tinygpt_file.reading import Outline, begins_like_one, load, outline, verify
from tinygpt.tinygpt_file.saving import COMPANIONS, PREVIOUS, beside, check_savable, remove_unfinished, save

__all__ = [
    "COMPANIONS",
    "PREVIOUS",
    "Change",
    "Fingerprint",
    "Header",
    "Outline",
    "begins_like_one",
    "beside",
    "check_savable",
    "load",
    "outline",
    "remove_unfinished",
    "save",
    "sole_writer",
    "verify",
]
