"""How much work a backend keeps in flight, which counts as allocated.

MLX evaluates ahead of the device. On the CPU up to ten operations have their buffers while one runs; waiting
instead costs no time there and takes 12 MiB off the peak of preset tiny. On a GPU a buffer is freed when the
command buffer that uses it has completed, not when the graph needs it no more; MLX's CUDA backend makes
command buffers so large that on an H200 they are neither the leanest nor the fastest choice, and evaluation that runs
ahead without end; waiting from the estimated peak on takes off what is in flight there, see the sweep in
``docs/results.md``. Metal's are small by default and are left alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

# Small models are left with MLX's hundred operations a buffer, large ones commit as soon as 10 "MB" are in it: MLX
# counts elements there, so that is 40 MB in float32. Chosen from results/h200-in-flight.json.
CUDA_SETTINGS = {"MLX_MAX_MB_PER_BUFFER": "10"}


def small_command_buffers() -> None:
    """Set ``CUDA_SETTINGS`` on CUDA, unless the user has; call it before MLX first uses the device."""
    if mx.default_device() == mx.Device(mx.gpu) and not mx.metal.is_available():
        for name, value in CUDA_SETTINGS.items():
            os.environ.setdefault(name, value)


@contextmanager
def waiting_evaluation(limit_bytes: int = 1) -> Iterator[None]:
    """Make evaluation wait for what is queued whenever more than ``limit_bytes`` are active, inside the context."""
    limit = mx.set_memory_limit(limit_bytes)
    try:
        yield
    finally:
        mx.set_memory_limit(limit)


@contextmanager
def lean_evaluation(limit_bytes: int = 0) -> Iterator[None]:
    """Keep as little in flight as costs little time on this backend, inside the context.

    Args:
        limit_bytes: On CUDA, from where on evaluation waits; 0 for never.
    """
    if mx.default_device() == mx.Device(mx.cpu):
        with waiting_evaluation():
            yield
    elif limit_bytes and not mx.metal.is_available():
        with waiting_evaluation(limit_bytes):
            yield
    else:
        yield
