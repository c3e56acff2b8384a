"""How far a correct float32 result may be from the float64 one: measured on the computation itself, leaf by leaf.

Monte Carlo arithmetic (Parker 1997, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA
CSD-970002): every operation of the float64 run, forward and backward, gets a random error of the size that float32
would make; the spread of the results is the error to expect. Rounding errors behave like independent random ones of
mean zero, so a sum's grows with the root of its length, not with the length: Higham and Mary 2019, "A New Approach to
Probabilistic Rounding Error Analysis", https://doi.org/10.1137/18M1226312.
"""

import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tinygpt.config import GPTConfig
from tinygpt.errors import ReferenceModelError
from tinygpt.reference.decompositions import DECOMPOSITIONS
from tinygpt.reference.gradients import Array, Tokens, differentiated, tensors, token_ids
from tinygpt.reference.routing import Routes

aten = torch.ops.aten

UNIT = 2.0**-24  # largest relative error of one float32 rounding
UNDERFLOW = 2.0**-126  # smallest number that float32 holds in full precision; below it, a result may be 0
# Vector libraries round no transcendental function correctly. SLEEF, which PyTorch uses, promises 1 ulp, which is two
# units; MLX has polynomials of its own without a promise. Four units are 2 ulp.
TRANSCENDENTAL_UNITS = 4.0

# A leaf of one element, the strictest case: its error is a sum of many small ones, so nearly normal, and its ratio to
# the root mean square of eight draws has Student's t distribution with 8 degrees of freedom. Beyond 14, on both sides,
# lies 6.6e-7 of it. More draws only narrow it. The largest of many elements varies less than one element does.
DRAWS = 8
SPREADS = 14.0

# Of splitmix64, as signed numbers, since PyTorch has no others: shift and factor of each round.
MIXING = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)), (31, 1))
SALT_STEP = 0x1E3779B97F4A7C15

# Relative error of an operation, in units; sums and products have rules of their own.
EXACT = (
    # The same values elsewhere.
    aten.view, aten._unsafe_view, aten.expand, aten.t, aten.transpose, aten.permute, aten.squeeze, aten.unsqueeze,
    aten.select, aten.slice, aten.split, aten.cat, aten.stack, aten.clone, aten.detach, aten.detach_, aten.gather,
    aten.embedding, aten.scatter, aten.select_backward, aten.slice_backward, aten.unbind, aten._to_copy,
    # One of the values, or a constant.
    aten.masked_fill, aten.amax, aten.clamp_min, aten.neg, aten.abs, aten.new_zeros, aten.zeros, aten.zeros_like,
    aten.ones_like, aten.arange, aten.lift_fresh,
)  # fmt: skip
ROUNDED_ONCE = (
    aten.add, aten.add_, aten.sub, aten.rsub, aten.mul, aten.mul_, aten.div, aten.div_, aten.pow, aten.square,
)  # fmt: skip
TRANSCENDENTAL = (aten.exp, aten.log, aten.log1p, aten.erf, aten.sin, aten.cos, aten.rsqrt, aten.sigmoid)
UNITS = {
    **dict.fromkeys(EXACT, 0.0),
    **dict.fromkeys(ROUNDED_ONCE, 1.0),
    **dict.fromkeys(TRANSCENDENTAL, TRANSCENDENTAL_UNITS),
}
PRODUCTS = (aten.mm, aten.bmm)
SUMS = (aten.sum, aten.embedding_dense_backward, aten.scatter_add)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute in one thread inside the context: for small arrays, several cost ten times what they give."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def leaf_bounds(
    config: GPTConfig, weights: Mapping[str, Array], tokens: Tokens, *, draws: int = DRAWS, seed: int = 0
) -> dict[str, float]:
    """Return how far each result of a correct float32 run may be from the float64 reference.

    The routers of the perturbed runs choose what they chose in the exact one: a choice that flips is no rounding error.
    Beyond a bound lies less than one in a million correct results.

    Args:
        config: The model's shape, without dropout.
        weights: By MLX's names.
        tokens: The tokens, and after each the one to predict.
        draws: Perturbed runs; at least 8.
        seed: Of the random errors; PyTorch's generators are not touched.

    Returns:
        The largest absolute difference to accept of ``loss``, of each auxiliary loss and of each gradient, by name.

    Raises:
        ReferenceModelError: Fewer draws, or as in ``reference_gradients``.

    Shape:
        (B, T + 1) integers.
    """
    if draws < DRAWS:
        raise ReferenceModelError(f"[reference] draws: got {draws}, expected at least {DRAWS}")
    given, batch, routes = tensors(config, weights, "float64"), token_ids(tokens), Routes()
    exact = _results(config, given, batch, routes)
    squares = dict.fromkeys(exact, 0.0)
    for draw in range(draws):
        with Rounding(seed * draws + draw):
            perturbed = _results(config, given, batch, Routes(routes.chosen))
        for name, expected in exact.items():
            squares[name] += (perturbed[name] - expected).abs().max().item() ** 2
    return {name: SPREADS * math.sqrt(square / draws) + UNDERFLOW for name, square in squares.items()}


def _results(config: GPTConfig, weights: Mapping[str, Tensor], tokens: Tensor, routes: Routes) -> dict[str, Tensor]:
    loss, auxiliary, gradients = differentiated(config, weights, tokens, routes=routes)
    return {"loss": loss.detach()} | {name: value.detach() for name, value in auxiliary.items()} | gradients


class Rounding(TorchDispatchMode):
    """Under it, every floating-point operation errs as it would in float32; PyTorch's backward passes do too."""

    def __init__(self, seed: int, unit: float = UNIT) -> None:
        """Prepare errors of up to ``unit``, relative; each seed makes others."""
        super().__init__()
        self._seed = seed
        self._unit = unit

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation and perturb its result; refuse one whose errors are not known."""
        kwargs = kwargs or {}
        operation = function.overloadpacket
        if operation in DECOMPOSITIONS:
            with self:
                return DECOMPOSITIONS[operation](*args, **kwargs)
        if operation in ROUNDED_ONCE:
            args = tuple(self._held(value) if isinstance(value, float) else value for value in args)
        result = function(*args, **kwargs)
        units = UNITS.get(operation)
        if units == 0 or not _has_floats(result):
            return result
        # In place: an operation in place must stay one. Relative errors by a product: there is -inf in masked scores.
        if units:
            largest = units * self._unit
            return result.mul_(1 + largest * self._drawn(result, operation))
        size = _size_of_sum(function, result, args, kwargs)
        return result.addcmul_(size, self._unit * self._drawn(result, operation))

    def _drawn(self, result: Tensor, operation: object) -> Tensor:
        """Return a number in [-1, 1) for each element: the same one for equal results of an operation.

        Rounding is a function of what is rounded. Where a batch repeats itself, its errors do not average out.

        Source: the mixing is that of splitmix64, Steele et al. 2014, https://doi.org/10.1145/2660193.2660195.
        """
        salt = ((zlib.crc32(str(operation).encode()) << 20) + self._seed) * SALT_STEP % (1 << 63)
        mixed = result.to(torch.float64, copy=True).contiguous().view(torch.int64) + salt
        for shift, factor in MIXING:
            mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
        return (mixed >> 11).to(torch.float64) / (1 << 52)

    def _held(self, constant: float) -> float:
        """Return a constant as float32 might hold it: the same error for all elements."""
        if torch.tensor(constant, dtype=torch.float32).item() == constant:
            return constant
        return constant * (1 + self._unit * self._drawn(torch.tensor(constant), "constant").item())


def _has_floats(result: Any) -> bool:
    if isinstance(result, Tensor):
        return result.is_floating_point()
    return isinstance(result, tuple | list) and any(_has_floats(value) for value in result)


def _size_of_sum(function: Any, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the size of the error of an operation that sums, for each element of its result, in units.

    Each addition errs by a unit of its partial sum. For n terms in random order, with the sum S and the sum of squares
    Q, the squares of all partial sums are together (n + 1) (S² / 3 + Q / 6) on average, less Q / n for the first term,
    which is no addition. So what cancels in the sum still counts. Libraries that add in blocks err less.
    """
    operation = function.overloadpacket
    if operation in PRODUCTS:
        left, right = args
        squares, count = function(left * left, right * right), left.shape[-1]
        each = squares  # every product is rounded, too
    elif operation in SUMS:
        # These are linear, so the same operation sums squares, and counts.
        squares, count = (function(*_each(args, power), **kwargs) for power in (2, 0))
        count = count.clamp_min(1)  # a token that does not occur has no terms
        each = 0.0
    else:
        raise ReferenceModelError(f"[rounding] operation: got {function}, expected one whose errors are known")
    variance: Tensor = (result.square() / 3 + squares / 6) * (count + 1) - squares / count + each
    return variance.clamp_min(0).sqrt()


def _each(args: tuple[Any, ...], power: int) -> tuple[Any, ...]:
    """Return the arguments with each number in a floating-point tensor taken to a power."""
    return tuple(
        value.pow(power) if isinstance(value, Tensor) and value.is_floating_point() else value for value in args
    )
