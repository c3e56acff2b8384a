import math

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from tinygpt.config import GPTConfig
from tinygpt.model import GPT, next_token_loss

CONFIG = GPTConfig(n_layer=2, n_head=2, n_embd=8, n_mlp=16, context=6, vocab_size=11)


def model_and_tokens(config=CONFIG):
    """Return a model and a batch for it, the same every time."""
    mx.random.seed(0)
    return GPT(config), mx.random.randint(0, config.vocab_size, (3, config.context))


def test_model_maps_tokens_to_logits():
    """Tokens (B, T) become logits (B, T, V)."""
    model, tokens = model_and_tokens()

    logits, losses = model(tokens)

    assert logits.shape == (3, 6, 11)
    assert losses == {}


def test_model_is_causal():
    """A token has no influence on the logits before it."""
    model, tokens = model_and_tokens()
    changed = mx.concatenate([tokens[:, :4], (tokens[:, 4:] + 1) % 11], axis=1)

    (before, _), (after, _) = model(tokens), model(changed)

    assert mx.array_equal(before[:, :4], after[:, :4]).item()
    assert not mx.array_equal(before[:, 4:], after[:, 4:]).item()


def test_output_layer_is_the_token_embedding():
    """There is no other matrix of (V, D): changing the embedding's last row changes the last logit."""
    model, tokens = model_and_tokens()
    names = [name for name, weight in tree_flatten(model.parameters()) if weight.shape == (11, 8)]
    before, _ = model(tokens % 10)

    weight = model.token_embedding.weight
    model.token_embedding.weight = mx.concatenate([weight[:10], weight[10:] + 1])

    assert names == ["token_embedding.weight"]
    after, _ = model(tokens % 10)
    assert not mx.array_equal(after[..., 10], before[..., 10]).item()


def test_attention_is_softmax_of_scaled_products():
    """The written-out attention agrees with numpy in float64 to float32's precision."""
    mx.random.seed(0)
    attention = GPT(CONFIG).blocks[0].attention
    attention.update(nn.utils.tree_map(lambda w: mx.random.normal(w.shape), attention.parameters()))
    x = mx.random.normal((2, 5, 8))
    weights = {name: np.array(weight, np.float64) for name, weight in tree_flatten(attention.parameters())}

    def project(name, values):
        return values @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    values = np.array(x, np.float64)
    names = ("query", "key_value.key", "key_value.value")
    query, key, value = (project(name, values).reshape(2, 5, 2, 4).swapaxes(1, 2) for name in names)
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(4)
    scores[..., np.triu_indices(5, 1)[0], np.triu_indices(5, 1)[1]] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    expected = project("output", (shares @ value).swapaxes(1, 2).reshape(2, 5, 8))

    got = np.array(attention(x, mx.arange(5)[None]))
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def test_weights_start_as_in_gpt2():
    """Deviation 0.02, smaller by sqrt(2 n_layer) where a layer writes into the stream; biases zero."""
    config = GPTConfig(n_layer=8, n_head=4, n_embd=128, n_mlp=512, context=16)
    model, _ = model_and_tokens(config)

    deviations = {name: mx.std(weight).item() for name, weight in tree_flatten(model.parameters())}

    assert deviations["blocks.0.attention.query.weight"] == pytest.approx(0.02, rel=0.05)
    assert deviations["blocks.7.feed_forward.narrow.weight"] == pytest.approx(0.02 / 4, rel=0.05)
    assert deviations["blocks.0.attention.output.bias"] == 0


def test_dropout_acts_in_training_only():
    """In evaluation two calls agree; in training they do not."""
    model, tokens = model_and_tokens(
        GPTConfig(n_layer=1, n_head=2, n_embd=8, n_mlp=16, context=6, vocab_size=11, dropout=0.5)
    )

    training = [model(tokens)[0] for _ in range(2)]
    model.eval()
    evaluation = [model(tokens)[0] for _ in range(2)]

    assert not mx.array_equal(*training).item()
    assert mx.array_equal(*evaluation).item()


def test_loss_of_uniform_logits_is_the_logarithm_of_the_vocabulary():
    """Knowing nothing costs log V nats a token, also for logits in half precision."""
    loss = next_token_loss(mx.zeros((2, 3, 11), mx.float16), mx.zeros((2, 3), mx.int32))

    assert loss.dtype == mx.float32
    assert loss.item() == pytest.approx(math.log(11))


def test_blocks_can_be_run_by_something_else():
    """What is given instead of the blocks is called instead of them, once each."""
    model, tokens = model_and_tokens()
    calls = []

    def run(index):
        return lambda x: calls.append(index) or model.blocks[index](x)

    logits, _ = model(tokens, [run(0), run(1)])

    assert calls == [0, 1]
    assert mx.array_equal(logits, model(tokens)[0]).item()
