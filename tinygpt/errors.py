"""Every error that tinygpt raises on purpose.

One line of text each: ``[place] what: got …, expected …``, so that a reader knows where to look, what was
wrong and what would be right. They are separate from the code that raises them because the command line turns
them into one line on stderr.
"""

import unittest


class TinyGPTError(Exception):
    """Base of all errors that tinygpt raises on purpose."""


class UsageError(TinyGPTError, ValueError):
    """A command line that makes no sense."""


class ConfigError(TinyGPTError, ValueError):
    """A configuration has a value that means nothing, or that does not fit another value."""


class DataError(TinyGPTError, ValueError):
    """A corpus cannot be read, is not text, or is too short."""


class TinyGPTFileError(TinyGPTError, ValueError):
    """A ``.tinygpt`` file is damaged, of a newer version, or none at all."""


class ResumeError(TinyGPTError, ValueError):
    """A run cannot go on from its file as it was asked to."""


class SaveError(TinyGPTError, OSError):
    """A ``.tinygpt`` file cannot be written; the one that was there is as it was."""


class OutputError(TinyGPTError, OSError):
    """What a run tells cannot be written."""


class CheckpointError(TinyGPTError, RuntimeError):
    """A checkpointed call cannot be recomputed faithfully."""


class SubjectError(TinyGPTError, ValueError):
    """A subject of judgement cannot be found, or is nothing that could be judged."""


class ReportError(TinyGPTError, ValueError):
    """A report is cut off, was edited, or is no report."""


class ExpectationError(TinyGPTError, ValueError):
    """A file of expected failures makes no sense."""


class ConformanceError(TinyGPTError, AssertionError):
    """A wrapper breaks a rule."""


class NotApplicableError(TinyGPTError, unittest.SkipTest):
    """A rule says nothing here: the subject declines, or plain MLX cannot do it. Test runners show a skipped test."""


class InconclusiveError(TinyGPTError):
    """A control failed, or a reading was not stable: nothing can be said."""


class GateError(TinyGPTError, RuntimeError):
    """Two releases of MLX cannot be compared: one cannot be installed, or a run of it says nothing."""


class UnjudgedError(GateError):
    """A subject cannot be judged under a release: it is not there, or cannot be imported."""


class AuditError(TinyGPTError, RuntimeError):
    """A model of somebody else's cannot be built, or its blocks cannot be found or recomputed."""


class GuardError(TinyGPTError, RuntimeError):
    """A run would take more memory than it may."""


class MeasureError(TinyGPTError, RuntimeError):
    """A memory reading would mean nothing."""


class RanksError(TinyGPTError, RuntimeError):
    """Processes that train together disagree, or one of them is gone."""


class TrainingError(TinyGPTError, RuntimeError):
    """Training cannot go on: the loss is not a number, or a weight changed its dtype."""


class ReferenceModelError(TinyGPTError, RuntimeError):
    """The reference in PyTorch cannot compute what it was asked for. Python has a ``ReferenceError`` of its own."""


class CompilerMissingError(TinyGPTError, RuntimeError):
    """MLX cannot compile on this machine, because its CPU backend needs a C++ compiler at run time."""
