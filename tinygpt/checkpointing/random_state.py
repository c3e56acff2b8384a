"""Read MLX's global random state and go back to it, on every release, eager and inside ``mx.compile``.

Up to MLX 0.32.0 ``mx.random.state`` is a list with one key; from 0.32.1 on it is a read-only object. On all
of them its iterator gives the key itself, and writing into that array in place sets the state, also when the
new key is a tracer.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

import mlx.core as mx


def holder() -> mx.array:
    """Return the very array that MLX holds as its random state; every draw replaces it by another."""
    return next(iter(cast("Iterable[mx.array]", mx.random.state)))


def read() -> mx.array:
    """Return the present random key, shape (2,), dtype uint32; later draws and writes do not change it."""
    return copy.copy(holder())


def write(key: mx.array) -> None:
    """Set the random state to a key of shape (2,) and dtype uint32, which may be a tracer."""
    # The present holder may also be in the user's hands, as a saved state. A draw puts a new one in its
    # place, and costs nothing: its numbers are never evaluated.
    mx.random.uniform()
    holder()[:] = key


@contextmanager
def replayed(key: mx.array) -> Iterator[None]:
    """Draw from ``key`` inside the context, and go on afterwards as though it had not been entered."""
    before = read()
    write(key)
    try:
        yield
    finally:
        write(before)


@contextmanager
def restored_on_error() -> Iterator[None]:
    """Go back to the present state if an exception leaves the context; ``mx.compile`` would leave a tracer there."""
    before = read()
    try:
        yield
    except BaseException:
        write(before)
        raise
