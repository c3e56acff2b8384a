import mlx.core as mx
import pytest

from tinygpt.conformance.compare import differences
from tinygpt.conformance.tolerances import ATOMIC_ADDITIONS

TREE = {"a": mx.array([1.0, 2.0]), "b": [mx.array([3, 4]), {"c": mx.array([5.0, -6.0], mx.float16)}]}


def changed(**leaves):
    """Return the tree with other leaves."""
    return {
        "a": leaves.get("a", TREE["a"]),
        "b": [leaves.get("b0", TREE["b"][0]), {"c": leaves.get("c", TREE["b"][1]["c"])}],
    }


CASES = {
    "equal": (changed(), []),
    "one ulp": (
        changed(a=mx.array([1.0, 2.0 + 2**-22])),
        ["a: largest difference 2.38e-07 where the largest value is 2, expected 0"],
    ),
    "swapped leaves": (
        changed(c=mx.array([-6.0, 5.0], mx.float16)),
        ["b.1.c: largest difference 11 where the largest value is 6, expected 0"],
    ),
    "integers": (changed(b0=mx.array([3, 5])), ["b.0: got 1 of 2 elements that differ, expected none"]),
    "dtype": (
        changed(c=mx.array([5.0, -6.0])),
        ["b.1.c: got dtype mlx.core.float32, expected mlx.core.float16"],
    ),
    "shape": (changed(a=mx.array([[1.0, 2.0]])), ["a: got shape (1, 2), expected (2,)"]),
    "not a number": (
        changed(a=mx.array([1.0, mx.nan])),
        ["a: got 1 of 2 elements that are not finite, expected none"],
    ),
    "infinite": (
        changed(a=mx.array([mx.inf, mx.inf])),
        ["a: got 2 of 2 elements that are not finite, expected none"],
    ),
    "all zeros": (changed(a=mx.zeros((2,))), ["a: got all zeros, expected values up to 2"]),
    "half zeros": (
        changed(a=mx.array([0.0, 2.0])),
        ["a: largest difference 1 where the largest value is 2, expected 0"],
    ),
    "several": (
        changed(b0=mx.array([4, 3]), a=mx.array([1.0, 2.5])),
        [
            "a: largest difference 0.5 where the largest value is 2, expected 0",
            "b.0: got 2 of 2 elements that differ, expected none",
        ],
    ),
    "missing leaf": ({"b": TREE["b"]}, ["a: got no leaf, expected one"]),
    "surplus leaf": (TREE | {"d": mx.array(1.0)}, ["d: got a leaf, expected none"]),
}


@pytest.mark.parametrize(("got", "expected"), CASES.values(), ids=CASES)
def test_differences_names_every_leaf_that_differs(got, expected):
    """Each kind of difference is told with the leaf, what was got and what was expected."""
    assert [str(difference) for difference in differences(got, TREE)] == expected


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        (True, True, []),
        (1, True, ["x: got 1, expected True"]),
        (None, None, []),
        (3, 4, ["x: got 3, expected 4"]),
        (mx.array(1.0), 1.0, ["x: got array(1, dtype=float32), expected 1.0"]),
        (1.0, mx.array(1.0), ["x: got 1.0, expected array(1, dtype=float32)"]),
    ],
    ids=["same", "other type", "none", "other value", "array for number", "number for array"],
)
def test_leaves_that_are_no_arrays_are_compared_too(got, expected, said):
    """By value and by type: a mode, a count, a word."""
    assert [str(difference) for difference in differences({"x": got}, {"x": expected})] == said


def test_a_tree_that_is_one_array_has_no_name_for_it():
    """The problem stands alone."""
    (difference,) = differences(mx.array([1.0]), mx.array([2.0]))

    assert str(difference) == "largest difference 1 where the largest value is 2, expected 0"


def test_a_difference_beyond_the_tolerance_says_what_was_allowed():
    """The bound is the tolerance times the largest value."""
    expected = {"a": mx.array([2.0])}

    (difference,) = differences({"a": mx.array([3.0])}, expected, loose={"a"}, tolerance=ATOMIC_ADDITIONS)

    assert str(difference) == "a: largest difference 1 where the largest value is 2, expected at most 1.53e-05"


def test_nan_equals_nothing():
    """Two trees with NaN in the same place agree about nothing there."""
    tree = {"a": mx.array([mx.nan, 1.0])}

    assert len(differences(tree, tree)) == 1


@pytest.mark.parametrize(("steps", "differing"), [(64, 0), (65, 1)])
def test_tolerance_holds_on_both_sides_and_for_named_leaves_only(steps, differing):
    """A loose leaf may differ by the tolerance and no more; another may not differ at all."""
    expected = {"a": mx.array([1.0, 0.25]), "b": mx.array([1.0])}
    got = {"a": mx.array([1.0, 0.25 + steps * 2**-23]), "b": mx.array([1.0])}

    assert len(differences(got, expected, loose={"a"}, tolerance=ATOMIC_ADDITIONS)) == differing
    assert len(differences(got, expected, loose={"b"}, tolerance=ATOMIC_ADDITIONS)) == 1
