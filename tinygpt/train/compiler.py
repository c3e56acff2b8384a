"""Can MLX compile here? Its CPU backend calls ``g++`` at run time; the GPU backends bring their own compiler."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from tinygpt.errors import CompilerMissingError

COMPILER = "g++"


def can_compile() -> bool:
    """Say whether a compiled function would run here; where compilation is switched off it does, as it is."""
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    return not on_cpu or "MLX_DISABLE_COMPILE" in os.environ or shutil.which(COMPILER) is not None


def require_compiler() -> None:
    """Raise if a compiled function would fail on this machine.

    Raises:
        CompilerMissingError: The device is the CPU, compilation is on, and there is no compiler.
    """
    if not can_compile():
        raise CompilerMissingError(
            f"[compile] C++ compiler: got none, expected {COMPILER} on the PATH, "
            "which MLX needs to compile on the CPU; install it, or go on without with --no-compile"
        )


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Run every operation on its own inside the context, also in MLX's own layers, some of which are compiled."""
    mx.disable_compile()
    try:
        yield
    finally:
        if "MLX_DISABLE_COMPILE" not in os.environ:
            mx.enable_compile()
