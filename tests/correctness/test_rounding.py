"""How large rounding errors are: the Monte Carlo runs of the reference, and the bounds that come from them."""

import math

import numpy as np
import pytest

from tinygpt.equality import Case
from tinygpt.errors import ReferenceModelError
from tinygpt.variants import VARIANTS, combined

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")

# After the line that skips without PyTorch, since without it they cannot be imported.
from tinygpt.reference import leaf_bounds, reference_gradients, weights_of  # noqa: E402
from tinygpt.reference.gradients import differentiated, tensors, token_ids  # noqa: E402
from tinygpt.reference.rounding import DRAWS, SPREADS, UNIT, Rounding  # noqa: E402
from tinygpt.reference.routing import Routes  # noqa: E402

NAMES = [name for name in VARIANTS if name != "dropout"]


def case(name):
    """Return configuration, weights and tokens."""
    found = Case(combined(name), length=31)
    return found.config, weights_of(found.model()), np.array(found.tokens())


def spread_and_real(terms, perturbed_sum):
    """Return the root mean square error of perturbed sums, and of sums in float32, one term after the other."""
    exact, real = terms.sum(1, dtype=np.float64), np.cumsum(terms.astype(np.float32), 1)[:, -1]
    with Rounding(0):
        perturbed = perturbed_sum()
    return (np.sqrt(np.mean((sums - exact) ** 2)) for sums in (perturbed.flatten().numpy(), real))


@pytest.mark.parametrize("shift", [0.0, 3.0], ids=["terms that cancel", "terms of one sign"])
@pytest.mark.parametrize("count", [2, 64, 1024])
def test_rounding_of_a_sum_is_that_of_float32(shift, count):
    """The errors of a sum are as large as those of adding term after term in float32, or little larger."""
    x = (np.random.default_rng(0).standard_normal((2000, count)) + shift).astype(np.float32).astype(np.float64)

    spread, real = spread_and_real(x, lambda: torch.from_numpy(x).sum(1))

    assert 0.9 < spread / real < 2


@pytest.mark.parametrize("shift", [0.0, 3.0], ids=["terms that cancel", "terms of one sign"])
@pytest.mark.parametrize("count", [1, 2, 64, 1024])
def test_rounding_of_a_product_of_matrices_is_that_of_float32(shift, count):
    """The errors are as large as those of products and sums in float32, or little larger."""
    generator = np.random.default_rng(0)
    left, right = (
        (generator.standard_normal((2000, count)) + shift).astype(np.float32).astype(np.float64) for _ in range(2)
    )

    spread, real = spread_and_real(
        left * right, lambda: torch.from_numpy(left)[:, None].bmm(torch.from_numpy(right)[..., None])
    )

    assert 0.9 < spread / real < 2


def test_rounding_leaves_exact_operations_alone():
    """What moves values, chooses among them or turns their sign around has no error."""
    x = torch.arange(12, dtype=torch.float64).view(3, 4) / 7

    with Rounding(0):
        moved = torch.cat([-x.t()[1:, None], x.gather(0, torch.tensor([[2, 1, 0, 0]])).view(1, 1, 4)[..., :3]])

    assert torch.equal(moved, torch.cat([-x.t()[1:, None], torch.stack([x[2, 0], x[1, 1], x[0, 2]]).view(1, 1, 3)]))


def test_rounding_reaches_the_backward_pass():
    """The gradient of an exact forward pass is perturbed by about one unit, too."""
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    y = x * 3

    arriving = torch.linspace(1, 2, 1000, dtype=torch.float64)

    with Rounding(0):
        (gradient,) = torch.autograd.grad(y, x, arriving)

    errors = (gradient / (3 * arriving) - 1).abs()
    assert UNIT / 2 < errors.max().item() <= UNIT * 1.001


def test_equal_numbers_round_alike():
    """Rounding is a function of what is rounded: the errors of a thousand equal logarithms do not average out."""
    x = torch.full((1000,), 4.0, dtype=torch.float64)

    one, other = [], []
    for seed, found in ((0, one), (1, other)):
        with Rounding(seed):
            found.append(x.log())

    assert one[0].unique().numel() == other[0].unique().numel() == 1
    assert one[0][0] != other[0][0] != x.log()[0]


@pytest.mark.parametrize("name", NAMES)
def test_rounding_of_no_size_changes_nothing(name):
    """Every operation that is written out in elementary ones computes what PyTorch's own does."""
    config, weights, tokens = case(name)
    given, batch = tensors(config, weights, "float64"), token_ids(tokens)
    routes = Routes()
    loss, auxiliary, gradients = differentiated(config, given, batch, routes=routes)

    with Rounding(0, unit=0.0):
        again = differentiated(config, given, batch, routes=Routes(routes.chosen))

    for expected, got in zip([loss, *auxiliary.values()], [again[0], *again[1].values()], strict=True):
        assert got.item() == pytest.approx(expected.item(), rel=1e-13)
    assert all((again[2][leaf] - expected).abs().max() < 1e-13 for leaf, expected in gradients.items())


def test_rounding_refuses_an_operation_that_it_does_not_know():
    """What would pass without an error would make a bound too small."""
    x = torch.ones(2, dtype=torch.float64)

    with pytest.raises(ReferenceModelError, match=r"operation: got aten.cosh.default"), Rounding(0):
        x.cosh()


def test_bounds_depend_on_their_seed_alone():
    """The same seed gives the same bounds, and PyTorch's global generator is left alone."""
    before = torch.get_rng_state()

    first, again, other = (leaf_bounds(*case("dense"), seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other
    assert torch.equal(before, torch.get_rng_state())


def test_bounds_are_of_the_size_of_float32():
    """A gradient's bound is above one rounding and below 1e-3 of it, that of a gradient that vanishes far below."""
    gradients, bounds = reference_gradients(*case("dense")).gradients, leaf_bounds(*case("dense"))
    shares = {leaf: bounds[leaf] / np.abs(gradient).max() for leaf, gradient in gradients.items()}

    vanishing = {leaf for leaf, share in shares.items() if share > 1}

    assert vanishing == {f"blocks.{index}.attention.key_value.key.bias" for index in range(4)}
    assert all(UNIT < share < 1e-3 for leaf, share in shares.items() if leaf not in vanishing)
    assert max(bounds[leaf] for leaf in vanishing) < 1e-6


def test_bounds_need_draws():
    """The factor holds for eight draws and more."""
    with pytest.raises(ReferenceModelError, match="draws: got 7, expected at least 8"):
        leaf_bounds(*case("dense"), draws=DRAWS - 1)


def test_spreads_leave_one_in_a_million():
    """Beyond the factor lies less than 1e-6 of Student's t distribution with as many degrees of freedom as draws."""
    x = np.exp(np.linspace(math.log(SPREADS), math.log(1e6), 100_001))
    density = math.gamma((DRAWS + 1) / 2) / math.gamma(DRAWS / 2) / math.sqrt(DRAWS * math.pi)

    beyond = 2 * np.trapezoid(density * (1 + x * x / DRAWS) ** (-(DRAWS + 1) / 2), x)

    assert 0.5e-6 < beyond < 1e-6
