"""A difference from the reference is named, measured and held to its bound."""

import math

import pytest

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")

# After the line that skips without PyTorch, since without it it cannot be imported.
from tinygpt.reference import relative_differences  # noqa: E402


@pytest.mark.parametrize(
    ("got", "difference", "within"),
    [
        pytest.param({"a": [1.0, 4.01]}, 0.0025, True, id="within"),
        pytest.param({"a": [1.0, 4.1]}, 0.025, False, id="beyond"),
        pytest.param({"a": [1.0, math.nan]}, math.nan, False, id="not a number"),
        pytest.param({"a": [1.0]}, math.inf, False, id="another shape"),
        pytest.param({}, math.inf, False, id="missing"),
    ],
)
def test_differences_are_shares_of_the_largest_value(got, difference, within):
    """A difference and its bound have one unit, and what is not comparable is not within."""
    (row,) = relative_differences(got, {"a": [1.0, 4.0]}, {"a": 0.02})

    assert row.difference == pytest.approx(difference, nan_ok=True)
    assert row.within is within
    assert row.bound == pytest.approx(0.005 if "a" in got and len(got["a"]) == 2 else 0.02)


def test_differences_are_absolute_where_nothing_is_expected():
    """A value below its own bound is no unit."""
    (row,) = relative_differences({"a": 3e-9}, {"a": 1e-17}, {"a": 1e-8})

    assert row == ("a", pytest.approx(3e-9), 1e-8, True)


def test_differences_show_a_leaf_too_many():
    """A gradient that nobody expects is a failure, too."""
    rows = relative_differences({"a": 1.0, "b": 1.0}, {"a": 1.0}, {"a": 0.0, "b": 1.0})

    assert [row.within for row in rows] == [True, False]
