"""A file outlives the release that wrote it: other versions of the format, other releases of MLX."""

import dataclasses
import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tinygpt.durability.releases import crossing, environment
from tinygpt.durability.small import CONFIG, write_small_file
from tinygpt.errors import InconclusiveError
from tinygpt.tinygpt_file import load
from tinygpt.tinygpt_file.header import VERSION
from tinygpt.train import Trainer

FILES = Path(__file__).parent / "files"  # 2 steps of the small run, by MLX 0.32.4
OLD = FILES / "version-1.tinygpt"


def test_file_of_version_1_is_migrated_and_goes_on():
    """Its flag becomes a policy, and the run goes on from its step."""
    header, arrays = load(OLD)

    trainer = Trainer(header.config, saved=(header, arrays))
    report = next(iter(trainer.run()))

    assert b'"version\\": 1' in OLD.read_bytes()
    assert b"policy" not in OLD.read_bytes()
    assert (header.config.policy, header.config.wrapper, header.changes) == ("all", "tinygpt", ())
    assert report.step == 3
    assert trainer.header.as_dict()["version"] == VERSION


def test_file_of_version_2_is_migrated_and_goes_on():
    """It says nothing of parts: a batch is not divided."""
    header, arrays = load(FILES / "version-2.tinygpt")

    trainer = Trainer(header.config, saved=(header, arrays), allow_corpus_change=True)  # Python's library is another
    report = next(iter(trainer.run()))

    assert b'"version\\": 2' in (FILES / "version-2.tinygpt").read_bytes()
    assert b"accumulate" not in (FILES / "version-2.tinygpt").read_bytes()
    assert header.config.accumulate == 1
    assert report.step == 3


def test_file_crosses_to_another_release_and_back(tmp_path):
    """Written under one release, resumed under another: the state to the bit, the same under every policy."""
    other = "0.30.6" if version("mlx") != "0.30.6" else "0.32.4"
    here = dict(os.environ)
    try:
        there = environment(other, tmp_path)
    except InconclusiveError as error:
        pytest.skip(str(error))

    for first, second in ((here, there), (there, here)):
        cell = crossing(first, second, compiled=False, steps=6)
        assert cell.problem == ""
        assert {cell.written_by, cell.resumed_by} == {other, version("mlx")}


def test_safetensors_opens_the_file_and_lists_the_same_tensors(tmp_path):
    """The format's own package finds every tensor with its dtype, its shape and its bits."""
    safetensors = pytest.importorskip("safetensors", reason="the format's own package is not installed")
    path = tmp_path / "run.tinygpt"
    write_small_file(path)
    expected = load(path)[1]

    with safetensors.safe_open(path, framework="numpy") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
        metadata = file.metadata()

    assert found.keys() == expected.keys()
    assert len(found) > 50
    assert all(np.array_equal(found[name], np.asarray(expected[name])) for name in expected)
    assert {"format", "tinygpt", "sha256"} == metadata.keys()


def test_safetensors_knows_the_dtypes_of_a_bfloat16_file(tmp_path):
    """Weights and moments in bfloat16, counters and the random key in theirs."""
    safetensors = pytest.importorskip("safetensors", reason="the format's own package is not installed")
    trainer = Trainer(dataclasses.replace(CONFIG, dtype="bfloat16"))
    trainer.save(tmp_path / "run.tinygpt")

    with safetensors.safe_open(tmp_path / "run.tinygpt", framework="numpy") as file:
        dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118

    others = {name: dtype for name, dtype in dtypes.items() if dtype != "BF16"}
    assert others == {"optimizer.step": "U64", "optimizer.learning_rate": "F32", "random.key": "U32"}
