"""Compare two trees of arrays, leaf by leaf and by name. The default is equality to the bit.

A checkpointed run performs the operations of the plain one, so a difference of one unit in the last place is
news. A leaf that is missing on one side is a difference, and so is a value that is not finite: two NaNs agree
about nothing.
"""

from typing import Any, NamedTuple

import mlx.core as mx

from tinygpt.leaves import leaves


class Difference(NamedTuple):
    """One leaf that is not as expected.

    Attributes:
        leaf: Its name in the tree.
        problem: What is wrong, got and expected.
    """

    leaf: str
    problem: str

    def __str__(self) -> str:
        """Return the difference as a part of a sentence."""
        return f"{self.leaf}: {self.problem}"


def differences(got: Any, expected: Any) -> list[Difference]:
    """Return every leaf in which two trees of arrays differ, in the order of ``expected``.

    Args:
        got: Lists, tuples and dicts of arrays.
        expected: The same, as it should be.
    """
    ours, theirs = leaves(got), leaves(expected)
    found = [Difference(name, "got a leaf, expected none") for name in ours.keys() - theirs.keys()]
    for name, want in theirs.items():
        problem = "got no leaf, expected one" if name not in ours else _problem(ours[name], want)
        if problem:
            found.append(Difference(name, problem))
    return found


def _problem(got: Any, want: Any) -> str | None:
    if not isinstance(want, mx.array) or not isinstance(got, mx.array):
        return None if type(got) is type(want) and got == want else f"got {got!r}, expected {want!r}"
    for what in ("shape", "dtype"):
        if getattr(got, what) != getattr(want, what):
            return f"got {what} {getattr(got, what)}, expected {getattr(want, what)}"
    if mx.array_equal(got, want).item():
        return None
    if not mx.issubdtype(want.dtype, mx.inexact):
        return f"got {(got != want).sum().item()} of {want.size} elements that differ, expected none"
    got, want = got.astype(mx.float32), want.astype(mx.float32)
    finite = mx.isfinite(got) & mx.isfinite(want)
    if not finite.all().item():
        return f"got {(~finite).sum().item()} of {want.size} elements that are not finite, expected none"
    gap = mx.abs(got - want)
    scale = mx.abs(want).max().item()
    return f"largest difference {gap.max().item():.3g} where the largest value is {scale:.3g}, expected 0"
