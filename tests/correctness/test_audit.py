"""The audit of other people's models: every verdict has a wrapper that earns it."""

import inspect
import json
import subprocess
import sys
import types

import mlx.core as mx
import mlx.nn as nn
import pytest

from tinygpt.audit.audit import audit
from tinygpt.audit.configurations import architectures, tiny_config
from tinygpt.audit.depth import deeper
from tinygpt.audit.examination import examine
from tinygpt.audit.handover import Handover, handovers
from tinygpt.audit.specimen import Specimen, specimen
from tinygpt.audit.worker import Worker
from tinygpt.audit.wrapping import WRAPPERS, wrapped
from tinygpt.checkpointing import blocks_of
from tinygpt.cli import main
from tinygpt.conformance.cases import MLPBlock
from tinygpt.errors import AuditError
from tinygpt.faults.gradients import closure_capture, gradient_not_a_number

MODEL = """
import mlx.core as mx
from tinygpt.conformance.cases import MLPBlock, Stack, energy

mx.random.uniform()  # as an import of mlx-lm's may do: the first model of a process must be that of all others

def build(times=1):
    model = Stack([MLPBlock(8, 0.2) for _ in range(3 * times)])
    return model, mx.random.normal((2, 5, 8)), lambda model, x: energy(model(x))

def shallow(times=1):
    return build()

def stuck(times=1):
    if times > 1:
        raise ValueError("no deeper")
    return build()

def fails():
    raise ValueError("no weights")

def dies():
    import os
    os.abort()

def nothing():
    return None

def deaf():
    model, x, _ = build()
    return model, x, lambda model, x: undefined
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Return the name of a module with models of somebody's own."""
    (tmp_path / "mine_audited.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    yield "mine_audited"
    sys.modules.pop("mine_audited", None)


def around(wrap):
    """Return how a wrapper for functions is put around every block."""

    def put(model):
        for block in blocks_of(model).values():
            kind = type(block)

            def call(self, *args, _kind=kind):
                return wrap(self, types.MethodType(_kind.__call__, self))(*args)

            block.__class__ = type(kind.__name__, (kind,), {"__call__": call})

    return put


def refusing(model):
    """Refuse every block when it is called."""
    for block in blocks_of(model).values():

        def call(*_):
            raise TypeError("cannot wrap this")

        block.__class__ = type("Refused", (type(block),), {"__call__": call})


PLANTED = {
    "captured parameters": (around(closure_capture), "wrong", "all zeros"),
    "not a number": (around(gradient_not_a_number), "nan", "not finite"),
    "nothing": (lambda _: None, "saves nothing", "no block ran again"),
    "refuses": (refusing, "error", "TypeError: cannot wrap this (at test_audit.py"),
}


@pytest.mark.parametrize(("put", "verdict", "words"), PLANTED.values(), ids=PLANTED)
def test_planted_wrappers_get_what_they_deserve(mine, monkeypatch, put, verdict, words):
    """A wrapper that is wrong, no number, useless or broken is told as such."""
    monkeypatch.setitem(WRAPPERS, "planted", put)

    (found,) = examine(f"{mine}:build", ["planted"])

    assert (found.verdict, words in found.message) == (verdict, True), found


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_ours_is_right_and_saves(mine, mode):
    """Loss, gradients, random state and buffers are plain's to the bit, and every block runs again."""
    ours, theirs = examine(f"{mine}:build", ["tinygpt", "mlx.nn"], mode=mode)

    assert (ours.verdict, ours.recomputed, ours.blocks, ours.leaves) == ("right", 3, 3, 18)
    assert (theirs.verdict, theirs.wrong > 0) == ("wrong", True)  # dropout is drawn anew
    assert (ours.peak_bytes > 0) == (mode == "eager")
    assert (ours.slope > 0) == (mode == "eager")
    assert ours.slope <= ours.plain_slope


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("fails", "not built", "got ValueError: no weights, expected to build it"),
        ("nothing", "not built", "got NoneType, expected (model, batch, loss)"),
        ("missing", "not built", "has no attribute 'missing'"),
        ("deaf", "not trainable plain", "NameError: name 'undefined' is not defined"),
    ],
)
def test_model_that_cannot_be_judged_says_why(mine, name, verdict, words):
    """It is a finding, not an exception."""
    (found,) = examine(f"{mine}:{name}", ["tinygpt"])

    assert (found.verdict, words in found.message) == (verdict, True), found


def test_model_that_cannot_be_deeper_keeps_its_verdict(mine):
    """Where twice as deep is not deeper, peaks are compared; where it cannot be built, that is said."""
    shallow, stuck = (examine(f"{mine}:{name}", ["tinygpt"])[0] for name in ("shallow", "stuck"))

    assert (shallow.verdict, shallow.slope, shallow.peak_bytes > 0) == ("right", 0, True)
    assert (stuck.verdict, stuck.message) == (
        "right",
        "more could not be read: [audit] mine_audited:stuck: got ValueError: no deeper, expected to build it",
    )


@pytest.mark.usefixtures("mlx_lm")
def test_name_of_nothing_is_refused():
    """Neither an architecture, nor a folder, nor an address."""
    with pytest.raises(AuditError, match="got no such model"):
        specimen("no-such-model")


def test_model_is_given_back(mine, monkeypatch):
    """Also where a wrapper patches a class: other models of it are as they were, and so is this one."""
    found = specimen(f"{mine}:build")
    methods = dict(vars(MLPBlock))
    patched = []

    def patching(model):
        patched.append(type(model.blocks[0]))
        patched[0].__call__ = lambda *_: None

    monkeypatch.setitem(WRAPPERS, "patching", patching)
    with wrapped(found.model, "patching"):
        assert found.model.blocks[0](mx.ones((1, 8))) is None

    assert dict(vars(MLPBlock)) == methods
    assert [type(block) for block in found.model.blocks] == [MLPBlock] * 3
    assert patched[0] is not MLPBlock


def test_model_that_takes_the_process_down_is_told(mine):
    """And the next one is judged all the same."""
    report = audit([f"{mine}:dies", f"{mine}:build"], ["tinygpt"])

    assert [each["verdict"] for each in report["findings"]] == ["error", "right"]
    assert "an interpreter that died" in report["findings"][0]["message"]


def test_command_tells_and_stores(mine, tmp_path, monkeypatch, capsys):
    """Exit code, text, JSON and Markdown agree."""
    monkeypatch.chdir(tmp_path)

    code = main(
        [
            "audit",
            f"{mine}:build",
            "--wrapper",
            "tinygpt",
            "--wrapper",
            "mlx.nn",
            "--report",
            "a.json",
            "--markdown",
            "a.md",
        ]
    )

    report = json.loads((tmp_path / "a.json").read_text())
    assert code == 1
    assert [each["verdict"] for each in report["findings"]] == ["right", "wrong"]
    assert "WRONG mine_audited:build under mlx.nn: " in capsys.readouterr().out
    assert "| mine_audited:build | 3 | ✓ " in (tmp_path / "a.md").read_text()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nothing"], "got no folder with a config.json"),
        (["a:b", "--model", "llama"], "got it with a:b, expected mlx-lm"),
        (["a:b", "--mlx-lm", "0.31.3"], "got it with a:b, expected mlx-lm"),
        (["a:b", "--report", "no/such/folder.json"], "got no such folder"),
    ],
)
def test_bad_input_is_one_line(words, problem, capsys):
    """And exit code 3."""
    assert main(["audit", *words]) == 3
    assert problem in capsys.readouterr().err


@pytest.fixture(scope="module")
def mlx_lm():
    """Skip where mlx-lm cannot be used."""
    done = subprocess.run([sys.executable, "-c", "import mlx_lm"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mlx-lm cannot be imported under this MLX: {done.stderr.strip().splitlines()[-1]}")


@pytest.mark.usefixtures("mlx_lm")
@pytest.mark.parametrize("training", ["full", "lora", "qlora"])
def test_llama_is_right_under_ours(training):
    """On a frozen base, and on one of 4 bits, with dropout in the adapters, too."""
    (found,) = examine("llama", ["tinygpt"], training=training)

    assert (found.verdict, found.recomputed) == ("right", found.blocks), found


@pytest.mark.usefixtures("mlx_lm")
def test_keys_that_cross_by_the_side_are_seen():
    """afm7 reads the keys of its last block out of a cache: wrong under mlx-lm's own wrapper, right under ours."""
    theirs, ours = examine("afm7", ["mlx-lm", "tinygpt"])

    assert (theirs.verdict, theirs.wrong > 10) == ("wrong", True)
    assert (ours.verdict, ours.recomputed) == ("right", ours.blocks)


class Sharing(nn.Module):
    """A block that leaves its keys in a cache, and reads those that others have left."""

    def __init__(self, cache):
        super().__init__()
        self.key = nn.Linear(4, 4)
        self._cache = [cache]

    def __call__(self, x):
        cache = self._cache[0]
        if cache.keys is None:
            cache.keys = self.key(x)
        return x + cache.keys


def test_what_crosses_by_the_side_is_named():
    """The attribute, the line that sets it, the block that runs it, and those that read it."""
    cache = types.SimpleNamespace(keys=None)
    model = nn.Sequential(*(Sharing(cache) for _ in range(3)))

    (found,) = handovers(Specimen(model, (mx.ones((2, 4)),), lambda model, x: model(x).sum()))

    line = 3 + inspect.getsourcelines(Sharing.__call__)[1]
    assert found == Handover("SimpleNamespace.keys", f"test_audit.py:{line}", ["layers.0"], ["layers.1", "layers.2"])
    assert [type(each) for each in model.layers] == [Sharing] * 3


def test_nothing_crosses_in_an_ordinary_model(mine):
    """Neither dropout's random state nor a buffer is an array that others read."""
    assert handovers(specimen(f"{mine}:build")) == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"num_layers": 2, "kinds": ["a", "b"], "other": [1]},
            {"num_layers": 4, "kinds": ["a", "b"] * 2, "other": [1]},
        ),
        ({"n_layer": 4, "full_attn_idxs": [1, 3]}, {"n_layer": 8, "full_attn_idxs": [1, 3, 5, 7]}),
        (
            {"num_hidden_layers": None, "hybrid_override_pattern": ["M", "*"]},
            {"num_hidden_layers": None, "hybrid_override_pattern": ["M", "*"] * 2},
        ),
        (
            {"num_layers": 2, "rope_scaling": {"factors": [1, 2]}},
            {"num_layers": 4, "rope_scaling": {"factors": [1, 2]}},
        ),
        (
            {"text_config": {"num_layers": 1}, "modules": [{"path": "model.layers.0.mlp.layers.7"}]},
            {
                "text_config": {"num_layers": 2},
                "modules": [{"path": "model.layers.0.mlp.layers.7"}, {"path": "model.layers.1.mlp.layers.8"}],
            },
        ),
    ],
)
def test_deeper_model_has_the_same_mix(config, expected):
    """Counts, lists of kinds, positions, nested parts; what is not about blocks stays."""
    assert deeper(config, 2) == expected
    assert deeper(config, 1) == config


@pytest.mark.usefixtures("mlx_lm")
def test_every_architecture_has_a_configuration():
    """Fields are complete, without building the models."""
    names = architectures()

    assert len(names) >= 60
    assert all(tiny_config(name)["model_type"] == name for name in names)


def test_block_that_stands_twice_is_one_block():
    """Its runs are counted together, and it has its class back once."""
    model, block = nn.Module(), MLPBlock(8)
    model.blocks = [block, block]

    with wrapped(model, "tinygpt") as runs:
        model.blocks[0](model.blocks[1](mx.ones((1, 8))))

    assert list(runs) == [[1, 1]]
    assert type(block) is MLPBlock


def test_closed_worker_examines_nothing(mine):
    """After Ctrl-C nobody starts another process."""
    worker = Worker()
    worker.close()

    with pytest.raises(AuditError, match="got closed"):
        worker.examine(f"{mine}:build", ["tinygpt"], "full", "eager")


def test_block_is_counted_outside_of_the_model():
    """Runs are counted, and the counting leaves no parameter behind."""
    model = nn.Module()
    model.blocks = [MLPBlock(8)]
    names = set(dict(model.named_modules()))

    with wrapped(model, "plain") as runs:
        model.blocks[0](mx.ones((1, 8)))

    assert list(runs) == [[1]]
    assert set(dict(model.named_modules())) == names
