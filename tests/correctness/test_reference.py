import dataclasses
import functools
import math
import subprocess
import sys

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

from tinygpt.equality import Case
from tinygpt.errors import ReferenceModelError
from tinygpt.leaves import leaves
from tinygpt.model import GPT, next_token_loss, training_loss
from tinygpt.train import TrainStep
from tinygpt.variants import SMALL, VARIANTS, combined, pairs

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")

# After the line that skips without PyTorch, since without it they cannot be imported.
from tinygpt.reference import (  # noqa: E402
    attention,
    leaf_bounds,
    reference_gradients,
    reference_training,
    relative_differences,
    torch_gpt,
    weights_of,
)
from tinygpt.reference.routing import Routes  # noqa: E402

LENGTH = 31
NAMES = [name for name in VARIANTS if name != "dropout"]
PAIRS = [pair for pair in pairs() if "dropout" not in pair]


@functools.cache
def case(*names):
    """Return configuration, weights and tokens."""
    found = Case(combined(*names), length=LENGTH)
    return found.config, weights_of(found.model()), np.array(found.tokens())


@functools.cache
def bounds(*names):
    """Return the bounds of a case."""
    return leaf_bounds(*case(*names))


def model_of(config, weights):
    """Return MLX's model with these weights."""
    model = GPT(config)
    model.load_weights([(name, mx.array(weight)) for name, weight in weights.items()])
    return model


def results_in_mlx(config, weights, tokens):
    """Return losses and gradients of MLX's model by name."""

    def losses(model, tokens):
        logits, auxiliary = model(tokens[:, :-1])
        loss = next_token_loss(logits, tokens[:, 1:])
        return training_loss(config, loss, auxiliary), {"loss": loss} | auxiliary

    model = model_of(config, weights)
    (_, by_name), gradients = nn.value_and_grad(model, losses)(model, mx.array(tokens))
    return {name: np.array(value) for name, value in (by_name | leaves(gradients)).items()}


def results_in_torch(config, weights, tokens, **options):
    """Return losses and gradients of the reference by name."""
    result = reference_gradients(config, weights, tokens, **options)
    return {"loss": result.loss} | result.auxiliary | result.gradients


@pytest.mark.parametrize("names", [(name,) for name in NAMES] + PAIRS, ids="+".join)
def test_mlx_is_within_rounding_of_the_reference(names):
    """Losses and every gradient of MLX in float32 are as far from float64 as rounding explains, and no farther."""
    _, weights, _ = case(*names)

    rows = relative_differences(results_in_mlx(*case(*names)), results_in_torch(*case(*names)), bounds(*names))

    assert len(rows) > len(weights)
    assert [row for row in rows if not row.within] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reference_checkpointed_is_the_reference(name, dtype):
    """PyTorch's own checkpointing changes no bit of any gradient."""
    plain = results_in_torch(*case(name), dtype=dtype)

    checkpointed = results_in_torch(*case(name), dtype=dtype, checkpointed=True)

    assert plain.keys() == checkpointed.keys()
    assert [leaf for leaf in plain if not np.array_equal(plain[leaf], checkpointed[leaf])] == []
    assert {array.dtype for array in plain.values() if isinstance(array, np.ndarray)} == {np.dtype(dtype)}


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint32])
def test_tokens_may_be_of_any_integer_type(dtype):
    """What MLX and numpy hand out is taken as it is, read-only arrays too."""
    config, weights, tokens = case("dense")
    given = tokens.astype(dtype)
    given.flags.writeable = False

    assert reference_gradients(config, weights, given).loss == reference_gradients(config, weights, tokens).loss
    assert leaf_bounds(config, weights, given) == bounds("dense")


def equal_shares(logits, chosen):
    """Weigh the chosen experts with 1 each."""
    return torch.zeros_like(logits).scatter(-1, chosen, 1.0)


def probabilities(logits, chosen):
    """Weigh the chosen experts with their probabilities among all."""
    return logits.softmax(-1) * equal_shares(logits, chosen)


ANGLES, INITIAL, GELU = attention._angles, attention._initial_lambda, torch.nn.functional.gelu

# What the reference could have misunderstood: the variant, and the place of the code and the error there.
WRONG_CODE = {
    "a GELU by tanh": ("dense", torch.nn.functional, "gelu", functools.partial(GELU, approximate="tanh")),
    "another epsilon": ("rms", torch_gpt, "NORM_EPSILON", 1e-6),
    "query heads in turns": ("grouped", attention, "_for_each_query_head", lambda _, x: x.repeat(1, 2, 1, 1, 1)),
    "the other direction": ("rotary", attention, "_angles", lambda *given: -ANGLES(*given)),
    "other frequencies": ("rotary", attention, "ROTARY_BASE", 500_000.0),
    "one head too large": ("differential", attention, "_remaining", lambda _: 1.0),
    "blocks from 1": ("differential", attention, "_initial_lambda", lambda index: INITIAL(index + 1)),
    "shares of 1": ("experts", torch_gpt, "expert_shares", equal_shares),
    "no normalised shares": ("experts", torch_gpt, "expert_shares", probabilities),
    "a share of 1": ("switch", torch_gpt, "expert_shares", equal_shares),
}

# The same, as a change of the configuration.
WRONG_CONFIG = {
    "a window of one more": ("window", {"window": 6}),
    "a window in none": ("window", {"window": None}),
    "balance 1 % too large": ("experts", {"balance_weight": 1.01 * SMALL.balance_weight}),
    "no z-loss": ("switch", {"router_z_weight": 0.0}),
    "z-loss 1 % too large": ("experts", {"router_z_weight": 1.01 * SMALL.router_z_weight}),
    "capacity 1 % too large": ("depths", {"capacity_weight": 1.01 * SMALL.capacity_weight}),
    "a token more": ("depths", {"mod_capacity": 0.53}),
}

# The same, as two weights that change places.
EXCHANGED = {
    "gate and hidden layer": ("swiglu", "blocks.0.feed_forward.gate.weight", "blocks.0.feed_forward.widen.weight"),
    "keys and values": ("yoco", "cache.key_value.key.weight", "cache.key_value.value.weight"),
    "the norms of a block": ("dense", "blocks.1.attention_norm.bias", "blocks.1.feed_forward_norm.bias"),
}


def outside(name, wrong):
    """Return the leaves of wrong results that are out of the bounds of a case."""
    rows = relative_differences(wrong, results_in_torch(*case(name)), bounds(name))
    return [row.leaf for row in rows if not row.within]


@pytest.mark.parametrize("fault", WRONG_CODE)
def test_bounds_catch_wrong_code(fault, monkeypatch):
    """A misread paper is outside the bounds in most of the gradients."""
    name, place, attribute, wrong = WRONG_CODE[fault]
    bounds(name)  # of the right code, kept from here on
    with monkeypatch.context() as patch:
        patch.setattr(place, attribute, wrong)
        results = results_in_torch(*case(name))

    assert len(outside(name, results)) > len(results) / 2


@pytest.mark.parametrize("fault", WRONG_CONFIG)
def test_bounds_catch_a_wrong_setting(fault):
    """Another weight of a loss, another window and another capacity are outside the bounds."""
    name, change = WRONG_CONFIG[fault]
    config, weights, tokens = case(name)

    results = results_in_torch(dataclasses.replace(config, **change), weights, tokens)

    assert outside(name, results) != []


@pytest.mark.parametrize("fault", EXCHANGED)
def test_bounds_catch_exchanged_weights(fault):
    """Weights in each other's place are outside the bounds."""
    name, first, second = EXCHANGED[fault]
    config, weights, tokens = case(name)

    results = results_in_torch(config, weights | {first: weights[second], second: weights[first]}, tokens)

    assert len(outside(name, results)) > len(results) / 2


def test_training_follows_mlx():
    """After four clipped steps of AdamW the losses agree to float32, and the weights to 1 % of one step's move."""
    # Rotary: otherwise the bias of a key has no gradient but rounding errors, and AdamW makes whole steps of those.
    config, weights, tokens = case("rotary")
    batches = [(tokens + shift) % config.vocab_size for shift in range(4)]
    model = model_of(config, weights)
    step = TrainStep(model, optim.AdamW(1e-3, bias_correction=True), clip_norm=0.5)

    losses, trained = reference_training(config, weights, batches, learning_rate=1e-3, clip_norm=0.5)

    assert losses == pytest.approx([step(mx.array(batch)).item() for batch in batches], rel=1e-6)
    ours = weights_of(model)
    assert ours.keys() == trained.keys()
    assert max(np.abs(ours[name] - weight).max() for name, weight in trained.items()) < 0.01 * 1e-3
    unclipped = reference_training(config, weights, batches, learning_rate=1e-3)[1]
    assert max(np.abs(unclipped[name] - weight).max() for name, weight in trained.items()) > 0.01 * 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_checkpointed_is_training(dtype):
    """Losses and weights after checkpointed steps are those of plain ones, and the given weights stay."""
    config, weights, tokens = case("experts")
    before = {name: weight.copy() for name, weight in weights.items()}

    plain, checkpointed = (
        reference_training(config, weights, [tokens] * 2, dtype=dtype, learning_rate=1e-2, checkpointed=checkpointed)
        for checkpointed in (False, True)
    )

    assert plain[0] == checkpointed[0]
    assert plain[0][1] < plain[0][0]
    assert all(np.array_equal(weight, checkpointed[1][name]) for name, weight in plain[1].items())
    assert all(np.array_equal(weight, weights[name]) for name, weight in before.items())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"config": combined("dropout")}, "dropout: got 0.1, expected 0", id="dropout"),
        pytest.param({"dtype": "float16"}, "dtype: got 'float16', expected one of float32, float64", id="dtype"),
        pytest.param({"config": combined("rms")}, r"weights: got \d+ numbers, expected \d+", id="another model"),
        pytest.param({"rename": ("norm.bias", "norm.bais")}, "got none with the name 'norm.bias'", id="no such weight"),
        pytest.param(
            {"rename": ("blocks.0.attention.query.bias", "stray")}, "got stray, expected only what the model uses",
            id="a stray weight",
        ),
    ],
)  # fmt: skip
def test_reference_refuses_what_it_cannot_compute(change, problem):
    """Dropout, other dtypes, and weights of another model are errors that say so."""
    config, weights, tokens = case("dense")
    renamed = dict([change.get("rename", ("", ""))])

    with pytest.raises(ReferenceModelError, match=problem):
        reference_gradients(
            change.get("config", config),
            {renamed.get(name, name): weight for name, weight in weights.items()},
            tokens,
            dtype=change.get("dtype", "float64"),
        )


def run(code):
    """Run code in a Python of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_package_does_not_import_torch():
    """Whoever has no use for the reference does not wait for PyTorch."""
    assert run("import sys, tinygpt.model; assert 'torch' not in sys.modules").returncode == 0


def test_reference_without_torch_says_what_to_install():
    """One clear error instead of a missing module."""
    result = run("import sys; sys.modules['torch'] = None; import tinygpt.reference")

    assert "ReferenceModelError: [reference] torch: got no such module" in result.stderr
    assert "pip install 'tinygpt[reference]'" in result.stderr


def test_routes_give_ties_to_the_lowest_index():
    """Equal scores are taken in their order, and are no near tie."""
    routes = Routes()

    chosen = routes.choose("router", torch.tensor([[1.0, 3.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]]), 2)

    assert chosen.tolist() == [[1, 0], [0, 1]]
    assert routes.margin == math.inf


def test_routes_know_the_nearest_decision():
    """The margin is the smallest gap at the edge of the choice, as a share of that decision's range."""
    routes = Routes()

    routes.choose("first", torch.tensor([[0.0, 4.0, 3.0], [0.0, 1.0, 10.0]]), 1)
    routes.choose("second", torch.tensor([[0.0, 1.0, 2.0]]), 2)

    assert routes.margin == 0.25


def test_routes_repeat_what_was_chosen():
    """A replay chooses as before, whatever the scores say now."""
    first = Routes()
    first.choose("router", torch.tensor([0.0, 1.0]), 1)

    assert Routes(first.chosen).choose("router", torch.tensor([1.0, 0.0]), 1).tolist() == [1]
