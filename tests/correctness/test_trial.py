"""A trial's own surroundings: whether anything is compiled here, and how an error is told."""

from contextlib import suppress

import mlx.core as mx
import pytest

from tinygpt.conformance import trial
from tinygpt.conformance.trial import LONGEST, in_a_line, require_compile
from tinygpt.errors import NotApplicableError

NO_GPP = "[Compile::eval_cpu] Failed to compile function F: " + "x.cpp:1: error: redeclaration of _Float32 " * 99
HALF = "Could not load C++ shared library /tmp/libF.so: file too short"


@pytest.fixture
def compiling(monkeypatch):
    """Let MLX's compilation fail with some errors, one after another, and then do what it does; count the waits."""
    real, waits = mx.compile, []

    def failing_with(*errors):
        ahead = list(errors)

        def compile_or_fail(function):
            if ahead:
                raise RuntimeError(ahead.pop(0))
            return real(function)

        monkeypatch.setattr(trial.mx, "compile", compile_or_fail)
        return waits

    monkeypatch.setattr(trial.time, "sleep", waits.append)
    trial._why_not_compiled.cache_clear()
    yield failing_with
    trial._why_not_compiled.cache_clear()


def test_compiler_that_refuses_makes_nothing_applicable(compiling):
    """In MLX's words, short enough to be read; it is not tried again."""
    waits = compiling(NO_GPP, NO_GPP)

    with pytest.raises(NotApplicableError, match=r"cannot compile here: \[Compile::eval_cpu\] Failed") as caught:
        require_compile()

    assert len(str(caught.value)) < 2 * LONGEST
    assert waits == [0]


def test_kernel_that_is_half_written_is_waited_for(compiling):
    """Another process was still writing it."""
    waits = compiling(HALF, HALF)

    with suppress(NotApplicableError):  # where compilation is switched off
        require_compile()

    assert waits == [0, 1, 2]


def test_kernel_that_never_comes_is_told(compiling):
    """After five times."""
    waits = compiling(*[HALF] * 9)

    with pytest.raises(NotApplicableError, match="file too short"):
        require_compile()

    assert waits == list(trial.WAITS_S)


def test_long_error_keeps_both_its_ends():
    """What it is, and where it ends; a short one is whole."""
    told = in_a_line(RuntimeError("begin " + "middle\n" * 1000 + "end"))

    assert told.startswith("begin middle")
    assert told.endswith("end")
    assert len(told) <= LONGEST + 3
    assert in_a_line(RuntimeError("a\n b")) == "a b"
