"""Compare results with the reference's, leaf by leaf, each against its own bound."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Row(NamedTuple):
    """One leaf, compared.

    Attributes:
        leaf: Its name.
        difference: Largest difference, as a share of the largest expected value; absolute where nothing but rounding
            errors is expected. Infinite for a leaf that is missing on one side or has another shape, NaN for NaN.
        bound: How far it may be off, in the same unit.
        within: Whether it is not.
    """

    leaf: str
    difference: float
    bound: float
    within: bool


def relative_differences(
    got: Mapping[str, npt.ArrayLike], expected: Mapping[str, npt.ArrayLike], bounds: Mapping[str, float]
) -> list[Row]:
    """Compare every leaf that is on either side.

    Args:
        got: Arrays or numbers by name.
        expected: The reference's.
        bounds: Largest absolute difference of each leaf, from ``leaf_bounds``; a leaf without one must be equal.

    Returns:
        A row for each leaf, those of ``expected`` first.
    """
    names = [*expected, *(name for name in got if name not in expected)]
    return [_compared(name, got.get(name), expected.get(name), bounds.get(name, 0.0)) for name in names]


def _compared(name: str, got: npt.ArrayLike | None, expected: npt.ArrayLike | None, bound: float) -> Row:
    if got is None or expected is None or np.shape(got) != np.shape(expected):
        return Row(name, math.inf, bound, within=False)
    want = np.asarray(expected, np.float64)
    difference = float(np.abs(np.asarray(got, np.float64) - want).max())
    size = float(np.abs(want).max())
    unit = size if size > bound else 1.0
    return Row(name, difference / unit, bound / unit, within=difference <= bound)
