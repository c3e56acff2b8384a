"""Compare two trees of arrays, leaf by leaf and by name. The default is equality to the bit.

A checkpointed run performs the operations of the plain one, so a difference of one unit in the last place is
news. A leaf that is missing on one side is a difference, and so is a value that is not finite: two NaNs agree
about nothing.
"""

from collections.abc import Container
from typing import Any, NamedTuple, cast

import mlx.core as mx

from tinygpt.conformance.tolerances import EXACT, Tolerance
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
        return f"{self.leaf}: {self.problem}" if self.leaf else self.problem


def differences(
    got: Any, expected: Any, *, loose: Container[str] = (), tolerance: Tolerance = EXACT
) -> list[Difference]:
    """Return every leaf in which two trees of arrays differ, in the order of ``expected``.

    Args:
        got: Lists, tuples and dicts of arrays.
        expected: The same, as it should be.
        loose: Names of leaves that may differ within the tolerance; all others are compared to the bit.
        tolerance: For the loose leaves.
    """
    ours, theirs = leaves(got), leaves(expected)
    found = [Difference(name, "got a leaf, expected none") for name in ours if name not in theirs]
    for name, want in theirs.items():
        allowed = tolerance if name in loose else EXACT
        problem = "got no leaf, expected one" if name not in ours else _problem(ours[name], want, allowed)
        if problem:
            found.append(Difference(name, problem))
    return found


def _problem(got: Any, want: Any, tolerance: Tolerance) -> str | None:
    if not isinstance(want, mx.array) or not isinstance(got, mx.array):
        return None if type(got) is type(want) and got == want else f"got {got!r}, expected {want!r}"
    for what in ("shape", "dtype"):
        if getattr(got, what) != getattr(want, what):
            return f"got {what} {getattr(got, what)}, expected {getattr(want, what)}"
    if mx.array_equal(got, want).item():
        return None
    if not mx.issubdtype(want.dtype, mx.inexact):
        return f"got {(got != want).astype(mx.int32).sum().item()} of {want.size} elements that differ, expected none"
    if want.dtype.size < mx.float32.size:
        got, want = got.astype(mx.float32), want.astype(mx.float32)
    finite = mx.isfinite(got) & mx.isfinite(want)
    if not finite.all().item():
        return (
            f"got {(~finite).astype(mx.int32).sum().item()} of {want.size} elements that are not finite, expected none"
        )
    if not got.any().item():
        return f"got all zeros, expected values up to {mx.abs(want).max().item():.3g}"
    gap = cast("float", mx.abs(got - want).max().item())
    scale = cast("float", mx.abs(want).max().item())
    if gap <= tolerance.relative * scale:
        return None
    bound = f"at most {tolerance.relative * scale:.3g}" if tolerance.relative else "0"
    return f"largest difference {gap:.3g} where the largest value is {scale:.3g}, expected {bound}"
