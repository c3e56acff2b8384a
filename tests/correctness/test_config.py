import csv
import dataclasses
import subprocess
import sys

import pytest
from mlx.utils import tree_flatten

import tinygpt
from tinygpt.config import GPTConfig
from tinygpt.errors import ConfigError
from tinygpt.model import GPT
from tinygpt.presets import PRESETS, ROWS, Row, preset

SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 8, "n_mlp": 16, "context": 4}

BAD = [
    ({"n_layer": 0}, "[GPTConfig] n_layer: got 0, expected a positive integer"),
    ({"n_embd": 8.0}, "[GPTConfig] n_embd: got 8.0, expected a positive integer"),
    ({"vocab_size": True}, "[GPTConfig] vocab_size: got True, expected a positive integer"),
    ({"n_head": 3}, "[GPTConfig] n_head: got 3, expected a divisor of n_embd = 8"),
    ({"dropout": 1.0}, "[GPTConfig] dropout: got 1.0, expected a number in [0, 1)"),
    ({"dropout": float("nan")}, "[GPTConfig] dropout: got nan, expected a number in [0, 1)"),
    ({"norm": "batch"}, "[GPTConfig] norm: got 'batch', expected one of layer, rms"),
    ({"attention": None}, "[GPTConfig] attention: got None, expected one of softmax, differential"),
    ({"n_head": 4, "n_kv_head": 3}, "[GPTConfig] n_kv_head: got 3, expected a divisor of n_head = 4"),
    (
        {"n_head": 8, "attention": "differential"},
        "[GPTConfig] attention: got 'differential' with heads of width 1, expected an even width",
    ),
    (
        {"n_head": 8, "position": "rotary"},
        "[GPTConfig] position: got 'rotary' with rotated vectors of width 1, expected an even width",
    ),
    ({"window": 0}, "[GPTConfig] window: got 0, expected a positive integer"),
    ({"top_k": 2}, "[GPTConfig] top_k: got 2, expected at most n_expert = 1"),
    (
        {"expert_products": "gather"},
        "[GPTConfig] expert_products: got 'gather' with n_expert = 1, "
        "expected the default, since it would have no effect",
    ),
    (
        {"capacity_weight": 0.1},
        "[GPTConfig] capacity_weight: got 0.1 without mod_capacity, "
        "expected the default, since it would have no effect",
    ),
    ({"balance_weight": -0.1}, "[GPTConfig] balance_weight: got -0.1, expected a number in [0, 1e6]"),
    ({"balance_weight": 10**400}, f"[GPTConfig] balance_weight: got {10**400}, expected a number in [0, 1e6]"),
    ({"norm": ["rms"]}, "[GPTConfig] norm: got ['rms'], expected one of layer, rms"),
    ({"n_layer": 1 << 31}, "[GPTConfig] n_layer: got 2147483648, expected below 2147483648"),
    ({"mod_capacity": 0}, "[GPTConfig] mod_capacity: got 0, expected a number in (0, 1]"),
    (
        {"n_layer": 1, "mod_capacity": 0.5},
        "[GPTConfig] mod_capacity: got 0.5 with n_layer = 1, expected at least 2 blocks, of which one routes",
    ),
    ({"yoco": 1}, "[GPTConfig] yoco: got 1, expected True or False"),
    (
        {"n_layer": 1, "yoco": True},
        "[GPTConfig] yoco: got True with n_layer = 1, expected at least 2 blocks, half of them to fill the cache",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message for _, message in BAD])
def test_config_refuses_what_means_nothing(change, message):
    """Each bad value is one error that says place, got and expected."""
    with pytest.raises(ConfigError) as caught:
        GPTConfig(**SHAPE | change)

    assert str(caught.value) == message


def test_config_cannot_be_changed():
    """A configuration is what it was when it was validated."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        GPTConfig(**SHAPE).n_layer = 3


@pytest.mark.parametrize("name", ["tiny", "huge"])
def test_config_counts_the_parameters_of_the_model(name):
    """The number by arithmetic is the number of weights that the model has."""
    config = PRESETS[name]

    assert sum(weight.size for _, weight in tree_flatten(GPT(config).parameters())) == config.parameters


def test_presets_are_the_table_of_the_seed():
    """Shapes and rows are those of the published table."""
    table = """tiny,4,4,128,512,128,8x128
huge,12,8,256,1024,256,8x256;4x1024
mega,24,8,512,2048,1024,2x1024
behemoth,32,16,1024,4096,1024,1x1024;2x1024;3x1024;4x1024
titan,48,24,1536,6144,1024,"""
    shapes, rows = {}, []
    for name, *numbers, pairs in csv.reader(table.splitlines()):
        shapes[name] = GPTConfig(
            **dict(zip(("n_layer", "n_head", "n_embd", "n_mlp", "context"), map(int, numbers), strict=True))
        )
        rows += [Row(name, *map(int, pair.split("x"))) for pair in pairs.split(";") if pair]

    assert shapes == PRESETS
    assert tuple(rows) == ROWS


def test_preset_refuses_an_unknown_name():
    """The error lists the names that there are."""
    with pytest.raises(
        ConfigError, match=r"\[preset\] name: got 'big', expected one of tiny, huge, mega, behemoth, titan"
    ):
        preset("big")


def test_row_has_as_many_positions_as_it_needs():
    """Preset huge learns 256 positions; its long row has 1024."""
    assert (Row("huge", 8, 256).config.context, Row("huge", 4, 1024).config.context) == (256, 1024)


def test_importing_tinygpt_does_not_import_mlx():
    """The package and its pytest plugin are light: every pytest run on the machine loads them."""
    code = "import sys, tinygpt, tinygpt.pytest_plugin; print('mlx.core' in sys.modules, 'mlx' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_public_names_load():
    """Every public name is what its home defines; another is an ordinary error."""
    assert [name for name in tinygpt.__all__ if getattr(tinygpt, name) is None] == []
    assert set(dir(tinygpt)) == set(tinygpt.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = tinygpt.nothing
    assert tinygpt.GPT is GPT
