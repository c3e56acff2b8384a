"""Which matrix products MLX has on the default device: its CPU backend lacks some in half precision.

They are tried, since no list says so: the CPU multiplies gathered matrices in float32 only, and before 0.30 no others.
"""

import functools
from collections.abc import Callable

import mlx.core as mx

UNSUPPORTED = "only supports float32"  # what MLX says of a product that it does not have


def can_multiply(dtype: mx.Dtype) -> bool:
    """Say whether a linear layer of that type runs here."""
    return _can_multiply(dtype, mx.default_device().type)


def can_gather(dtype: mx.Dtype) -> bool:
    """Say whether products with gathered matrices of that type run here."""
    return _can_gather(dtype, mx.default_device().type)


@functools.cache
def _can_multiply(dtype: mx.Dtype, _: mx.DeviceType) -> bool:
    ones = mx.ones((1, 1), dtype)
    return _runs(lambda: mx.addmm(ones, ones, ones))


@functools.cache
def _can_gather(dtype: mx.Dtype, _: mx.DeviceType) -> bool:
    ones = mx.ones((1, 1, 1), dtype)
    return _runs(lambda: mx.gather_mm(ones, ones, rhs_indices=mx.array([0])))


def _runs(product: Callable[[], mx.array]) -> bool:
    try:
        mx.eval(product())
    except RuntimeError as error:
        if UNSUPPORTED not in str(error):
            raise
        return False
    return True
