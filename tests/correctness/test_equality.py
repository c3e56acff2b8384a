"""A checkpointed model is the plain one to the bit: every variant and pair, and whatever hypothesis draws."""

import dataclasses
import math

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tinygpt.checkpointing import WRAPPERS, checkpoint, checkpointed_blocks
from tinygpt.config import GPTConfig
from tinygpt.conformance.compare import differences
from tinygpt.environment import backend
from tinygpt.equality import Case, cases, compare
from tinygpt.equality.case import results
from tinygpt.errors import ReferenceModelError
from tinygpt.model import GPT
from tinygpt.model.products import can_gather, can_multiply
from tinygpt.train import TrainStep
from tinygpt.variants import VARIANTS, combined, pairs

NAMES = list(VARIANTS)
LENGTHS = (1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257)
OTHERS = [name for name in WRAPPERS if name != "tinygpt"]


def equal(case):
    """Assert that a case is equal, as far as plain MLX can run it."""
    if not can_multiply(getattr(mx, case.dtype)):
        pytest.skip("this release of MLX cannot multiply in bfloat16 on the CPU")
    expect_equal(case)


def expect_equal(case):
    """Assert that every result of a case is equal, to the bit where plain runs are equal among themselves."""
    verdict = compare(case)

    assert verdict.differences == ()
    assert verdict.leaves >= 18  # the smallest model has 15 weights, and then there are loss, norm and next draw
    assert backend() != "cpu" or verdict.loose == ()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_variant_is_equal(name, dtype, compiled):
    """Losses, norm, every gradient and the next random number of 4 blocks at batch 2."""
    equal(Case(combined(name), dtype=dtype, compiled=compiled))


@pytest.mark.parametrize("names", pairs(), ids="+".join)
def test_pair_is_equal(names):
    """Whatever combines is equal in combination."""
    equal(Case(combined(*names)))


@pytest.mark.parametrize("wrapper", OTHERS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "dropout"])
def test_other_wrappers_are_equal_without_dropout(name, wrapper):
    """Without random numbers and exceptions, the other wrappers give the gradients of the plain run as well."""
    equal(Case(combined(name), wrapper=wrapper))


@pytest.mark.parametrize("wrapper", OTHERS)
def test_other_wrappers_draw_other_masks(wrapper):
    """With dropout the comparison sees that they recompute with other random numbers."""
    verdict = compare(Case(combined("dropout"), wrapper=wrapper))

    assert {difference.leaf for difference in verdict.differences} > {"norm"}


@pytest.mark.parametrize("length", LENGTHS)
def test_length_does_not_matter(length):
    """Sequences shorter and longer than a power of two, with everything on that depends on the length."""
    config = dataclasses.replace(combined("experts", "depths", "window", "yoco", "rotary"), context=300)
    equal(Case(config, length=length, batch=3))


@pytest.mark.parametrize("names", [("experts",), ("switch",), ("depths",), ("experts", "depths")], ids="+".join)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_ties_are_broken_alike(names, compiled):
    """Where every choice is a tie, routers choose the same again."""
    equal(Case(combined("rotary", *names), ties=True, compiled=compiled))


def test_odd_and_large_shapes_are_equal():
    """Widths that are no multiple of anything, a vocabulary of one word more than a byte, a long sequence."""
    shape = {"n_layer": 3, "n_head": 3, "n_embd": 39, "n_mlp": 53, "context": 401, "vocab_size": 257}
    equal(Case(GPTConfig(**shape, n_kv_head=1, n_expert=5, top_k=3, mod_capacity=0.3), length=401, batch=3))


def test_suite_has_every_case():
    """All variants and pairs, in both dtypes, eager and compiled, under every wrapper that promises it; none twice."""
    names = [name for name, _ in cases()]
    with_dropout = sum("dropout" in pair for pair in pairs()) + 1
    combinations = len(NAMES) + len(pairs())

    assert len(names) == len(set(names)) == 4 * (combinations * len(WRAPPERS) - with_dropout * len(OTHERS))
    assert len(names) > 1000


@st.composite
def drawn_cases(draw, compiled=False):
    """Draw a model out of the whole space of configurations, and a batch for it."""
    attention = draw(st.sampled_from(["softmax", "differential"]))
    position = draw(st.sampled_from(["learned", "rotary"]))
    unit = (2 if attention == "differential" else 1) * (2 if position == "rotary" else 1)
    n_kv_head = draw(st.integers(1, 3))
    n_head = n_kv_head * draw(st.integers(1, 3))
    n_layer = draw(st.integers(1, 6))
    length = draw(st.sampled_from(LENGTHS[:9]) | st.integers(1, 40))
    n_expert = draw(st.integers(1, 5))
    weight = st.just(0.0) | st.floats(1e-3, 2)
    dtype = draw(st.sampled_from(["float32", "bfloat16"] if can_multiply(mx.bfloat16) else ["float32"]))
    products = ["auto", "dense", "gather"] if can_gather(getattr(mx, dtype)) else ["auto", "dense"]
    routed = {"expert_products": draw(st.sampled_from(products))} if n_expert > 1 else {}
    routed |= {name: draw(weight) for name in ("balance_weight", "router_z_weight") if n_expert > 1}
    if n_layer > 1 and draw(st.booleans()):
        routed |= {"mod_capacity": draw(st.floats(0.01, 1)), "capacity_weight": draw(weight)}
    config = GPTConfig(
        n_layer=n_layer,
        n_head=n_head,
        n_kv_head=n_kv_head,
        n_embd=n_head * unit * draw(st.integers(1, 4)),
        n_mlp=draw(st.integers(1, 40)),
        context=length + draw(st.integers(0, 3)),
        vocab_size=draw(st.integers(2, 300)),
        dropout=draw(st.sampled_from([0.0, 0.0, 0.1, 0.9])),
        attention=attention,
        position=position,
        norm=draw(st.sampled_from(["layer", "rms"])),
        feed_forward=draw(st.sampled_from(["gelu", "swiglu"])),
        window=draw(st.none() | st.integers(1, length + 1)),
        n_expert=n_expert,
        top_k=draw(st.integers(1, n_expert)),
        yoco=n_layer > 1 and draw(st.booleans()),
        **routed,
    )
    return Case(
        config,
        length=length,
        batch=draw(st.integers(2, 4)),
        dtype=dtype,
        compiled=compiled,
        seed=draw(st.integers(0, 2**31)),
        ties=draw(st.booleans()),
    )


@given(drawn_cases())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_drawn_model_is_equal(case):
    """Any configuration, any batch, eager."""
    expect_equal(case)


# A drawn model brings chains of elementwise operations that MLX's CPU backend has not compiled yet: a second each.
@given(drawn_cases(compiled=True))
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=math.ceil(settings().max_examples / 20))
def test_drawn_compiled_model_is_equal(case):
    """Any configuration, any batch, compiled."""
    expect_equal(case)


# Found by hypothesis: a weight so small that float32 knows only 0.
UNDERFLOW = Case(
    GPTConfig(
        n_layer=1, n_head=1, n_embd=1, n_mlp=1, context=1, vocab_size=2, n_expert=2,
        balance_weight=0.0, router_z_weight=1e-94,
    ),
    length=1,
    ties=True,
)  # fmt: skip


@given(drawn_cases())
@example(UNDERFLOW)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=math.ceil(settings().max_examples / 10))
def test_drawn_model_agrees_with_pytorch(case):
    """Any configuration without dropout, any batch: as far from PyTorch in float64 as rounding explains, at most."""
    compared = pytest.importorskip("tinygpt.equality.precision", exc_type=ReferenceModelError).compared
    config = dataclasses.replace(case.config, dropout=0.0)

    rows = compared(dataclasses.replace(case, config=config, dtype="float32"))

    assume(rows is not None)  # a router's decision that rounding could turn around
    assert [row for row in rows if not row.within] == []


# More would take long; python -m tinygpt.equality.precision trains them all.
@pytest.mark.parametrize("name", ["dense", "depths"])
def test_twenty_steps_agree_with_pytorch(name):
    """The losses of twenty checkpointed steps are as far from PyTorch's in float64 as rounding explains, at most."""
    precision = pytest.importorskip("tinygpt.equality.precision", exc_type=ReferenceModelError)

    shares = precision.curve_shares(name)

    assert len(shares) == 20
    assert max(shares) <= 1


@pytest.mark.parametrize("change", [{"weight_decay": 0.0}, {"betas": (0.9, 0.99)}], ids=str)
def test_another_optimizer_disagrees_with_pytorch(change):
    """A training without weight decay, or with another decay of the moments, is beyond what rounding explains."""
    precision = pytest.importorskip("tinygpt.equality.precision", exc_type=ReferenceModelError)

    assert max(precision.curve_shares("dense", **change)) > 1


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", NAMES)
def test_twenty_steps_are_equal(name, compiled):
    """Losses, auxiliary losses and weights of twenty clipped AdamW steps are equal to the bit."""
    plain, checkpointed = (_train(name, policy, compiled) for policy in ("none", "all"))

    assert differences(checkpointed, plain) == []
    assert plain["losses"][-1][0].item() < plain["losses"][0][0].item()


def _train(name, policy, compiled):
    case = Case(combined(name), length=16, compiled=compiled)
    model, tokens = case.model(), case.tokens()
    blocks = checkpointed_blocks(model.blocks, policy)
    step = TrainStep(model, optim.AdamW(3e-3, bias_correction=True), blocks=blocks, clip_norm=1.0, compiled=compiled)
    mx.random.seed(3)
    losses = []
    for _ in range(20):
        gradients = step.gradients(tokens)
        losses.append((gradients.loss, gradients.auxiliary))
        step.update(gradients)
    return {"losses": losses, "weights": model.parameters()}


class _Changed(nn.Module):
    """A checkpointed block whose auxiliary losses are changed on the way out."""

    def __init__(self, block, change):
        super().__init__()
        self._run, self._change = checkpoint(block), change

    def __call__(self, x, *cache):
        x, losses, *cache = self._run(x, *cache)
        return x, self._change(losses), *cache


AUXILIARY_FAULTS = {
    "counted twice": (lambda losses: {name: 2 * loss for name, loss in losses.items()}, "auxiliary.balance"),
    "not counted": (lambda _: {}, "auxiliary.balance"),
    "of one name only": (lambda losses: {"balance": losses["balance"]}, "auxiliary.router_z"),
    "without a gradient": (
        lambda losses: {name: mx.stop_gradient(loss) for name, loss in losses.items()},
        "gradients.blocks.0.feed_forward.router.weight",
    ),
    "right in value, twice in gradient": (
        lambda losses: {name: 2 * loss - mx.stop_gradient(loss) for name, loss in losses.items()},
        "gradients.blocks.0.feed_forward.router.weight",
    ),
    "right in gradient, not in the metric": (
        lambda losses: {name: loss - mx.stop_gradient(loss) for name, loss in losses.items()},
        "auxiliary.balance",
    ),
    "exchanged": (
        lambda losses: {"balance": losses["router_z"], "router_z": losses["balance"]},
        "auxiliary.balance",
    ),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("fault", AUXILIARY_FAULTS)
def test_wrong_auxiliary_loss_is_caught(fault, compiled):
    """Each way to get an auxiliary loss wrong shows in the leaf that it must show in."""
    change, leaf = AUXILIARY_FAULTS[fault]
    case = Case(combined("experts"), compiled=compiled)
    model, tokens = case.model(), case.tokens()
    expected = results(model, tokens, case, None)

    wrong = results(model, tokens, case, [_Changed(block, change) for block in model.blocks])

    assert leaf in {difference.leaf for difference in differences(wrong, expected)}


def test_unchanged_auxiliary_losses_are_not_caught():
    """The control: the same detour without a change is equal."""
    case = Case(combined("experts"))
    model, tokens = case.model(), case.tokens()

    again = results(model, tokens, case, [_Changed(block, lambda losses: losses) for block in model.blocks])

    assert differences(again, results(model, tokens, case, None)) == []


def test_weights_of_a_case_depend_on_the_seed_alone():
    """Two cases of one seed are the same model and the same tokens; another seed is another."""
    one, same, other = (Case(combined("dense"), seed=seed) for seed in (1, 1, 2))

    assert differences(one.model().parameters(), same.model().parameters()) == []
    assert mx.array_equal(one.tokens(), same.tokens()).item()
    assert not mx.array_equal(one.tokens(), other.tokens()).item()
    assert isinstance(one.model(), GPT)
