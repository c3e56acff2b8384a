"""Every kind of block does what its paper says."""

import dataclasses

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from tinygpt.conformance.tolerances import OTHER_ORDER
from tinygpt.environment import backend
from tinygpt.errors import ConfigError
from tinygpt.model import GPT, next_token_loss, training_loss
from tinygpt.model.mod import chosen_count
from tinygpt.model.moe import MixtureOfExperts
from tinygpt.model.products import can_gather
from tinygpt.model.routing import highest
from tinygpt.variants import SMALL, VARIANTS, combined, pairs

LENGTH = 12


def model_of(*names):
    """Return a model of these variants, the same every time, with router and gates that are not too small to matter."""
    mx.random.seed(0)
    model = GPT(combined(*names))
    model.apply(lambda weight: weight * 10 if weight.ndim > 1 else weight)
    return model


def stream(batch=2, length=LENGTH):
    """Return a stream (B, T, D)."""
    return mx.random.normal((batch, length, SMALL.n_embd), key=mx.random.key(1))


def tokens(batch=2, length=LENGTH):
    """Return a batch of token ids."""
    return mx.random.randint(0, SMALL.vocab_size, (batch, length), key=mx.random.key(2))


def reached(function, x, position):
    """Return the positions of the result of the first sequence that a change at ``position`` reaches."""
    changed = mx.array(x)
    changed[:, position] = -changed[:, position]  # a shift would vanish in the norm
    difference = (function(x) != function(changed))[0].any(axis=-1)
    return {place for place, differs in enumerate(difference.tolist()) if differs}


@pytest.mark.parametrize("names", [(name,) for name in VARIANTS] + pairs(), ids="+".join)
def test_config_counts_the_parameters_of_every_variant(names):
    """The number by arithmetic is the number of weights that the model has."""
    config = combined(*names)

    assert sum(weight.size for _, weight in tree_flatten(GPT(config).parameters())) == config.parameters


def test_pairs_exclude_only_what_changes_one_field():
    """All variants combine but the three kinds of experts among themselves."""
    together = {frozenset(pair) for pair in pairs()}
    names = [name for name in VARIANTS if name != "dense"]
    missing = {frozenset({a, b}) for i, a in enumerate(names) for b in names[:i] if frozenset({a, b}) not in together}

    assert missing == {
        frozenset({"experts", "dense-experts"}),
        frozenset({"experts", "switch"}),
        frozenset({"dense-experts", "switch"}),
    }


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ("depths", "dropout")])
def test_every_variant_is_causal(name):
    """A token reaches itself and later ones only; only mixture of depths looks ahead to choose, as its paper says."""
    model = model_of(name)
    later = tokens()
    later[:, 7:] = (later[:, 7:] + 1) % SMALL.vocab_size

    before, after = (model(batch)[0] for batch in (tokens(), later))

    # Other experts for later tokens change the order of the rows in a gathered product, and so its roundings.
    assert mx.abs(before[:, :7] - after[:, :7]).max().item() <= OTHER_ORDER.relative * mx.abs(before).max().item()
    assert mx.abs(before[:, 7:] - after[:, 7:]).max().item() > 0.01 * mx.abs(before).max().item()


@pytest.mark.parametrize("names", [("window",), ("window", "differential")], ids="+".join)
def test_window_is_as_wide_as_it_says(names):
    """Of 12 tokens, the third reaches itself and the four after it through one block with a window of 5."""
    block = model_of(*names).blocks[0]

    assert reached(lambda x: block(x)[0], stream(), 2) == {2, 3, 4, 5, 6}


def test_window_ends_where_the_shared_cache_begins():
    """In the second half every token sees all before it."""
    model = model_of("window", "yoco")
    cache = model.cache(stream())

    _, losses, *passed = model.blocks[3](stream(), *cache)
    changed = tuple(part.at[:, :, 0].add(1.0) for part in cache)
    moved = (model.blocks[3](stream(), *cache)[0] != model.blocks[3](stream(), *changed)[0]).any(axis=-1)

    assert losses == {}
    assert [id(part) for part in passed] == [id(part) for part in cache]
    assert moved.all().item()


def test_rotary_attention_sees_distances_not_places():
    """Shifted by any number of places, queries and keys fit as before; at other distances they do not."""
    attention = model_of("rotary").blocks[0].attention
    positions = mx.arange(LENGTH)[None]

    here, there, stretched = (attention(stream(), at) for at in (positions, positions + 7, positions * 2))

    assert mx.abs(here - there).max().item() <= OTHER_ORDER.relative * mx.abs(here).max().item()
    assert mx.abs(here - stretched).max().item() > 1e-3 * mx.abs(here).max().item()


def test_neighbouring_query_heads_share_keys():
    """With 4 heads and 2 key heads, a change in the first key head reaches the first two heads only."""
    attention = model_of("grouped").blocks[0].attention
    attention.output.weight = mx.eye(SMALL.n_embd)
    before = attention(stream(), mx.arange(LENGTH)[None])
    bias = attention.key_value.value.bias

    attention.key_value.value.bias = bias + mx.array([1.0] * 4 + [0.0] * 4)

    moved = (attention(stream(), mx.arange(LENGTH)[None]) - before)[0, 0]
    assert moved[:8].tolist() == pytest.approx([1.0] * 8, rel=1e-5)
    assert moved[8:].tolist() == [0.0] * 8


def test_lambda_starts_where_the_paper_says():
    """Without its vectors, lambda is 0.8 - 0.6 exp(-0.3 l): 0.2 in the first block."""
    blocks = model_of("differential").blocks
    for block in blocks:
        block.attention.update({name: w * 0 for name, w in block.attention.parameters().items() if "lambda" in name})

    found = [block.attention.subtracted().item() for block in blocks[:2]]

    assert found == pytest.approx([0.2, 0.8 - 0.6 * 0.7408182], rel=1e-5)


def test_heads_of_equal_maps_cancel():
    """Where both maps agree and lambda is 1, a differential head gathers nothing."""
    attention = model_of("differential").blocks[0].attention
    attention.update({name: w * 0 for name, w in attention.parameters().items() if "lambda" in name})
    attention._initial = 1.0
    attention.query.weight = mx.zeros_like(attention.query.weight)

    assert mx.abs(attention(stream(), mx.arange(LENGTH)[None])).max().item() == 0


@pytest.mark.parametrize("top_k", [1, 2, 4])
@pytest.mark.parametrize("feed_forward", ["gelu", "swiglu"])
def test_gathered_experts_are_dense_experts(top_k, feed_forward):
    """Both ways to run the experts give the same values and gradients, to the rounding of a sum of D or F products."""
    kinds = {}
    for products in ("gather", "dense"):
        changes = {"n_expert": 4, "top_k": top_k, "feed_forward": feed_forward, "expert_products": products}
        mx.random.seed(0)
        model = GPT(dataclasses.replace(SMALL, **changes))
        layer = model.blocks[0].feed_forward
        kinds[products] = nn.value_and_grad(layer, lambda x, layer=layer: layer(x)[0].square().sum())(stream())

    for (name, gathered), (_, dense) in zip(*map(tree_flatten, kinds.values()), strict=True):
        assert mx.abs(gathered - dense).max().item() <= OTHER_ORDER.relative * mx.abs(dense).max().item(), name


@pytest.mark.parametrize("feed_forward", ["gelu", "swiglu"])
def test_expert_is_the_feed_forward_of_its_weights(feed_forward):
    """A token that visits one expert of two is transformed by that expert's weights, times its probability."""
    mx.random.seed(0)
    config = dataclasses.replace(SMALL, **{"n_expert": 2, "feed_forward": feed_forward})
    layer = GPT(config).blocks[0].feed_forward
    x = stream(length=3)
    layer.router.weight = mx.stack([mx.zeros(SMALL.n_embd), x[0, 0]])  # the first token prefers the second expert

    y, _ = layer(x)

    experts = layer.experts
    hidden = x[0, 0] @ experts.widen.weight[1].T
    hidden = nn.silu(x[0, 0] @ experts.gate.weight[1].T) * hidden if feed_forward == "swiglu" else nn.gelu(hidden)
    probability = mx.sigmoid(x[0, 0].square().sum())
    expected = probability * (hidden @ experts.narrow.weight[1].T)
    assert mx.abs(y[0, 0] - expected).max().item() <= OTHER_ORDER.relative * mx.abs(expected).max().item()


def test_gathering_in_bfloat16_is_left_to_backends_that_can():
    """What is chosen by itself runs in either dtype everywhere; asked for by name, MLX says what it cannot."""
    layer = MixtureOfExperts(combined("experts"))
    layer.set_dtype(mx.bfloat16)

    y, _ = layer(stream().astype(mx.bfloat16))

    assert y.dtype == mx.bfloat16
    assert mx.isfinite(y).all().item()
    assert can_gather(mx.float32)


@pytest.mark.skipif(backend() != "cpu", reason="only the CPU lacks the product")
def test_gathering_what_cannot_be_gathered_is_refused():
    """Asked for by name in bfloat16 on the CPU, the experts say what would do."""
    layer = MixtureOfExperts(dataclasses.replace(SMALL, **{"n_expert": 2, "expert_products": "gather"}))
    layer.set_dtype(mx.bfloat16)

    with pytest.raises(ConfigError, match=r"\[MixtureOfExperts\] expert_products: got 'gather' in .*bfloat16"):
        layer(stream().astype(mx.bfloat16))


def test_routers_work_in_float32():
    """Also in a model of half precision, scores are sums in float32."""
    layer = MixtureOfExperts(combined("experts"))
    layer.router.weight = mx.random.normal(layer.router.weight.shape, key=mx.random.key(3)).astype(mx.bfloat16)
    x = stream().astype(mx.bfloat16)

    _, losses = layer(x)

    scores = x.astype(mx.float32) @ layer.router.weight.astype(mx.float32).T
    assert losses["router_z"].item() == pytest.approx(mx.logsumexp(scores, axis=-1).square().mean().item(), rel=1e-6)


@pytest.mark.parametrize("names", [("dropout",), ("dropout", "differential"), ("dropout", "yoco")], ids="+".join)
def test_dropout_acts_everywhere(names):
    """The embedding, each attention map (B, H, T, T), and what each half adds (B, T, D) are dropped from, once each."""
    model = model_of(*names)
    shapes = []

    class Noting(nn.Module):
        def __call__(self, x):
            shapes.append(x.shape)
            return x

    for module in model.modules():
        for name, held in module.items():
            if isinstance(held, nn.Dropout):
                module[name] = Noting()
    model(tokens())

    half, map_ = (2, LENGTH, SMALL.n_embd), (2, SMALL.n_head, LENGTH, LENGTH)
    assert shapes == [half] + SMALL.n_layer * [map_, half, half]


def test_longer_sequences_than_the_context_are_refused():
    """There are no positions for them."""
    with pytest.raises(ConfigError, match=r"\[GPT\] tokens: got 34 a sequence, expected at most the context, 33"):
        model_of("dense")(tokens(length=34))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.0, 0.0, 0.0, 0.0], [0, 1]),
        ([1.0, 3.0, 3.0, 3.0], [1, 2]),
        ([2.0, 1.0, 2.0, 3.0], [3, 0]),
        ([-1.0, -2.0, -1.0, -1.0], [0, 2]),
    ],
    ids=str,
)
def test_ties_go_to_the_lowest_index(scores, expected):
    """Equal scores are chosen in the order of their indices, highest first, in every row of a large batch."""
    many = mx.broadcast_to(mx.array(scores), (500, 4))

    assert highest(many, 2).tolist() == [expected] * 500


def test_long_ties_go_to_the_lowest_index():
    """A thousand equal scores are chosen from the left."""
    assert highest(mx.zeros((3, 1000)), 500).tolist() == [list(range(500))] * 3


def test_balance_is_one_where_the_load_is_even_and_grows_where_it_is_not():
    """E times the product of shares: 1 for a uniform router, near E where one expert takes all."""
    layer = MixtureOfExperts(combined("switch"))
    layer.router.weight = mx.zeros_like(layer.router.weight)
    _, even = layer(stream())
    layer.router.weight = layer.router.weight.at[0].add(1.0)

    _, uneven = layer(mx.ones((2, 6, SMALL.n_embd)))

    assert even["balance"].item() == pytest.approx(1.0)
    assert even["router_z"].item() == pytest.approx(mx.log(mx.array(4.0)).item() ** 2)
    assert uneven["balance"].item() == pytest.approx(4.0, rel=1e-4)


@pytest.mark.parametrize(("capacity", "count"), [(0.01, 1), (0.25, 3), (0.5, 6), (0.51, 7), (1.0, 12)])
def test_depths_change_as_many_tokens_as_the_capacity_says(capacity, count):
    """The tokens with the highest scores change, as many as the share rounded up; all others pass by to the bit."""
    mx.random.seed(0)
    block = GPT(dataclasses.replace(SMALL, **{"mod_capacity": capacity})).blocks[1]
    x = stream()
    scores = (x @ block.router.weight.T).squeeze(-1)

    y, losses = block(x)

    changed = (y != x).any(axis=-1)
    assert changed.sum(axis=-1).tolist() == [count] * 2
    least, most = mx.where(changed, scores, mx.inf).min(axis=-1), mx.where(changed, -mx.inf, scores).max(axis=-1)
    assert (least >= most).all().item()
    assert set(losses) == {"capacity"}


@pytest.mark.parametrize(("capacity", "length", "count"), [(0.07, 100, 7), (0.28, 25, 7), (0.55, 100, 55), (0.5, 1, 1)])
def test_capacity_is_the_share_as_written(capacity, length, count):
    """0.07 of 100 tokens are 7, although the product of the floats is above it."""
    assert chosen_count(capacity, length) == count


def test_every_second_block_is_routed():
    """Blocks 1 and 3 of 4 have a router; blocks 0 and 2 process every token."""
    assert [hasattr(block, "router") for block in model_of("depths").blocks] == [False, True, False, True]


def test_depths_of_full_capacity_weigh_what_the_block_adds():
    """With all tokens chosen, the result is the stream plus score times what the plain block adds."""
    mx.random.seed(0)
    routed = GPT(dataclasses.replace(SMALL, **{"mod_capacity": 1.0})).blocks[1]
    x = stream()

    y, _ = routed(x)

    expected = x + (x @ routed.router.weight.T) * (routed.block(x)[0] - x)
    assert mx.abs(y - expected).max().item() <= OTHER_ORDER.relative * mx.abs(expected).max().item()


def test_only_the_first_half_makes_keys():
    """Under YOCO the second half has no projection of keys and values, and asks one cache that is made once."""
    model = model_of("yoco")
    made = []
    make = model.cache

    class Counted(nn.Module):
        def __call__(self, x):
            made.append(x.shape)
            return make(x)

    model.cache = Counted()
    model(tokens())

    assert ["key_value" in block.attention for block in model.blocks] == [True, True, False, False]
    assert len(made) == 1


@pytest.mark.parametrize("name", ["experts", "depths"])
def test_auxiliary_losses_are_summed_over_blocks_and_weighed_once(name):
    """What the model returns is the sum of what its blocks return; the training loss adds each once, by its weight."""
    model = model_of(name)
    returned = []

    def run(block):
        def noting(x):
            x, losses = block(x)
            returned.append(losses)
            return x, losses

        return noting

    logits, losses = model(tokens(), [run(block) for block in model.blocks])

    loss = next_token_loss(logits, tokens())
    sums = {key: sum(part[key].item() for part in returned if key in part) for key in losses}
    weighed = sum(getattr(model.config, f"{key}_weight") * value for key, value in sums.items())
    assert {key: value.item() for key, value in losses.items()} == pytest.approx(sums)
    assert training_loss(model.config, loss, losses).item() == pytest.approx(loss.item() + weighed)
    assert weighed > 0


def test_auxiliary_losses_reach_the_routers():
    """Each auxiliary loss alone has a gradient at its routers, and at no other router."""
    model = model_of("experts", "depths")

    def routers(key):
        _, gradients = nn.value_and_grad(model, lambda t: model(t)[1][key])(tokens())
        last = dict(tree_flatten(gradients["blocks"][3]))  # nothing routed comes after it
        return {name for name, gradient in last.items() if "router" in name and mx.abs(gradient).max().item() > 0}

    assert routers("capacity") == {"router.weight"}
    assert routers("router_z") >= {"block.feed_forward.router.weight"}
    assert routers("balance") >= {"block.feed_forward.router.weight"}


def test_variants_that_exclude_one_another_are_refused():
    """What changes one field twice is no combination."""
    with pytest.raises(ConfigError, match=r"\[variants\] switch: got top_k a second time"):
        combined("experts", "switch")
