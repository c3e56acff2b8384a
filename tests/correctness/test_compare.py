import mlx.core as mx
import pytest

from tinygpt.conformance.compare import differences
from tinygpt.conformance.tolerances import ATOMIC_ADDITIONS, FLOAT32_EPSILON

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


# Half precision ends at 65504.
LARGE = mx.array([60000.0], mx.float16)

FOUND = {
    "expected not finite": (
        {"a": mx.array([1.0, 2.0])},
        {"a": mx.array([1.0, mx.inf])},
        ["a: got 1 of 2 elements that are not finite, expected none"],
    ),
    "difference that its dtype cannot hold": (
        {"a": -LARGE},
        {"a": LARGE},
        ["a: largest difference 1.2e+05 where the largest value is 6e+04, expected 0"],
    ),
    "only the imaginary part": (
        {"a": mx.array([1 + 2j])},
        {"a": mx.array([1 + 4j])},
        ["a: largest difference 2 where the largest value is 4.12, expected 0"],
    ),
    "not a number in the imaginary part": (
        {"a": mx.array([complex(1, mx.nan)])},
        {"a": mx.array([complex(1, mx.nan)])},
        ["a: got 1 of 1 elements that are not finite, expected none"],
    ),
    "scalar count": ({"a": mx.array(1)}, {"a": mx.array(2)}, ["a: got 1 of 1 elements that differ, expected none"]),
    "scalar not finite": (
        {"a": mx.array(mx.nan)},
        {"a": mx.array(1.0)},
        ["a: got 1 of 1 elements that are not finite, expected none"],
    ),
    "surplus leaves": (
        {name: mx.array(1.0) for name in "fbdace"},
        {},
        [f"{name}: got a leaf, expected none" for name in "fbdace"],
    ),
    "other order": (
        {"a": mx.array([1]), "b": mx.array([1])},
        {"b": mx.array([2]), "a": mx.array([2])},
        [
            "b: got 1 of 1 elements that differ, expected none",
            "a: got 1 of 1 elements that differ, expected none",
        ],
    ),
}


@pytest.mark.parametrize(("got", "expected"), CASES.values(), ids=CASES)
def test_differences_names_every_leaf_that_differs(got, expected):
    """Each kind of difference is told with the leaf, what was got and what was expected."""
    assert [str(difference) for difference in differences(got, TREE)] == expected


@pytest.mark.parametrize(("got", "expected", "said"), FOUND.values(), ids=FOUND)
def test_differences_goes_by_what_is_expected(got, expected, said):
    """The expected tree gives the order, and its values may be infinite or too far away for their dtype."""
    assert [str(difference) for difference in differences(got, expected)] == said


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


@pytest.mark.parametrize(
    ("largest", "steps", "differing"),
    [(1.0, 64, 0), (1.0, 65, 1), (4.0, 4 * 64, 0), (4.0, 4 * 64 + 1, 1)],
    ids=["of 1, at it", "of 1, above it", "of 4, at it", "of 4, above it"],
)
def test_tolerance_holds_on_both_sides_and_for_named_leaves_only(largest, steps, differing):
    """A loose leaf may differ by the tolerance times its largest value and no more; another may not differ at all."""
    expected = {"a": mx.array([largest, 0.25]), "b": mx.array([1.0])}
    got = {"a": mx.array([largest, 0.25 + steps * FLOAT32_EPSILON]), "b": mx.array([1.0])}

    assert len(differences(got, expected, loose={"a"}, tolerance=ATOMIC_ADDITIONS)) == differing
    assert len(differences(got, expected, loose={"b"}, tolerance=ATOMIC_ADDITIONS)) == 1


def test_a_loose_leaf_is_exact_without_a_tolerance():
    """Who names loose leaves and no tolerance is told of one unit in the last place."""
    expected = {"a": mx.array([1.0])}

    (difference,) = differences({"a": mx.array([1.0 + FLOAT32_EPSILON])}, expected, loose={"a"})

    assert str(difference) == "a: largest difference 1.19e-07 where the largest value is 1, expected 0"


def test_double_precision_is_compared_in_double_precision():
    """A difference that float32 would round away is one."""
    with mx.stream(mx.cpu):
        one, step = mx.array([1.0], mx.float64), mx.array([2.0**-40], mx.float64)

        (difference,) = differences(one + step, one)

    assert str(difference) == "largest difference 9.09e-13 where the largest value is 1, expected 0"
