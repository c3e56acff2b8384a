"""The file as it is read: what it holds, and what is refused."""

import dataclasses
import json
import subprocess
import sys

import mlx.core as mx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tinygpt.durability.damage import MOST_BYTES, damages, problem
from tinygpt.durability.edits import HEADER_EDITS
from tinygpt.durability.forgery import Parts, edited
from tinygpt.durability.small import CONFIG, trained, write_small_file
from tinygpt.errors import TinyGPTFileError
from tinygpt.tinygpt_file import load, outline, verify
from tinygpt.tinygpt_file.header import MIGRATIONS, VERSION
from tinygpt.tinygpt_file.layout import parsed_json
from tinygpt.tinygpt_file.unfit import UnfitError
from tinygpt.train import Trainer
from tinygpt.train.state import tensors


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a small file without fault."""
    path = tmp_path_factory.mktemp("whole") / "small.tinygpt"
    write_small_file(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, whole):
    """A file without fault, in a folder of its own."""
    path = tmp_path / "run.tinygpt"
    path.write_bytes(whole)
    return path


def names(folder):
    """Return what is in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def bits(array):
    """Return an array's bytes."""
    return bytes(memoryview(array.view(mx.uint8) if array.size > 1 else array))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_file_holds_every_array_of_the_run_to_the_bit(tmp_path, dtype):
    """Weights, moments, step, learning rate and random key come back as they were, and so does the header."""
    trainer = trained(dtype=dtype) if dtype == "float32" else Trainer(dataclasses.replace(CONFIG, dtype=dtype))
    expected = {name: bits(array) for name, array in tensors(trainer.model, trainer._optimizer).items()}

    trainer.save(tmp_path / "run.tinygpt")
    header, arrays = load(tmp_path / "run.tinygpt")

    assert {name: bits(array) for name, array in arrays.items()} == expected
    assert len(expected) > 50
    assert dataclasses.replace(header, written_by={}) == trainer.header
    assert header.written_by["mlx"]


def test_file_is_opened_by_mlx_as_safetensors(path):
    """MLX's own loader finds the same arrays and the header."""
    arrays, metadata = mx.load(str(path), format="safetensors", return_metadata=True)

    expected = load(path)[1]
    assert arrays.keys() == expected.keys()
    assert all(mx.array_equal(arrays[name], expected[name]) for name in expected)
    assert json.loads(metadata["tinygpt"])["step"] == 2
    assert metadata["format"] == "mlx"


def test_loading_leaves_the_random_state_alone(path):
    """To know which tensors to expect, a model is made; its random numbers are nobody's."""
    mx.random.seed(3)
    expected = mx.random.uniform(shape=(4,)).tolist()

    mx.random.seed(3)
    load(path)

    assert mx.random.uniform(shape=(4,)).tolist() == expected


SAMPLED = {"cut": 61, "bit": 1}


def test_every_kind_of_damage_is_one_error(whole):
    """Cut, flipped, edited and sealed again, or no file at all: one line that names the file, and little memory."""
    kinds = {}
    for number, (kind, name, make) in enumerate(damages(whole, flips=150)):
        if number % SAMPLED.get(kind, 1) == 0:
            wrong, _, _ = problem(make)
            assert wrong == "", f"{kind} {name}"
            kinds[kind] = kinds.get(kind, 0) + 1

    assert kinds.keys() == {"cut", "longer", "bit", "header", "layout", "text", "length", "no file"}
    assert sum(kinds.values()) > 450


WORDS = {
    "version 4": "header version: got 4, expected at most 3: it was written by a newer tinygpt",
    "step of another time": "header step: got 3, expected 2, as the optimizer has",
    "policy unknown": "header [policy] name: got 'some', expected one of none, all, every:K, first:N, segments:K, "
    "sqrt, attention, selective, halves, or first:N+selective and the like",
    "n_layer 0": "header [GPTConfig] n_layer: got 0, expected a positive integer",
    "n_layer huge": "header n_layer: got 2147483647, expected at most 63, the tensors of the file",
    "optimizer with other betas": "header optimizer.betas: got [0.9, 0.99], expected [0.9, 0.999]",
    "tokenizer another": "header data.tokenizer: got 'bpe', expected 'bytes'",
    "sha256 short": "header data.sha256: got 'ab', expected 64 hexadecimal digits",
}


@pytest.mark.parametrize(("name", "words"), WORDS.items(), ids=WORDS)
def test_damage_is_named(path, whole, name, words):
    """The error says which entry, what it is, and what it has to be."""
    path.write_bytes(edited(whole, HEADER_EDITS[name]))

    with pytest.raises(TinyGPTFileError) as caught:
        load(path)

    assert str(caught.value) == f"[{path}] {words}"


def test_flipped_weight_is_found_by_the_checksum(path, whole):
    """A bit of a tensor changes nothing that can be seen, and is found."""
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    outline(path)
    for read in (load, verify):
        with pytest.raises(TinyGPTFileError, match=r"checksum: got \w{16}… of the contents, expected \w{16}…, as in"):
            read(path)


def test_reading_needs_little_memory(whole):
    """A process that reads a header of a million names stays below 200 MiB."""
    code = (
        "import sys; from pathlib import Path; from tinygpt.durability.damage import damages, peak_bytes, problem\n"
        "whole = Path(sys.argv[1]).read_bytes()\n"
        "for kind, name, make in damages(whole, flips=1):\n"
        "    if kind in ('text', 'length', 'layout'): assert not problem(make)[0], name\n"
        "print(peak_bytes())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "/dev/stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        printed, _ = process.communicate(whole)

    assert int(printed) < MOST_BYTES


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    """Yield the path to every value inside a JSON value."""
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, name)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, name))


@given(data=st.data(), part=st.sampled_from(["header", "entries", "metadata"]), value=JSON)
def test_drawn_edits_are_refused_or_mean_the_same(whole, tmp_path_factory, data, part, value):
    """Whatever is put in place of any value, the file loads as a whole, or is refused by the one error."""
    path = tmp_path_factory.mktemp("drawn") / "run.tinygpt"
    parts = Parts(whole)
    *ahead, last = data.draw(st.sampled_from(list(places(getattr(parts, part)))))
    place = getattr(parts, part)
    for name in ahead:
        place = place[name]
    place[last] = value
    path.write_bytes(parts.sealed())

    try:
        header, arrays = load(path)
    except TinyGPTFileError as error:
        message = str(error)
    else:
        message = f"[{path}] loads" if len(arrays) == len(parts.entries) and header.step == 2 else "loads in part"
    assert message.startswith(f"[{path}] ")
    assert "\n" not in message


@given(content=st.binary(max_size=300))
@example(b"")
@example(b"\x02\0\0\0\0\0\0\0{}")
def test_drawn_bytes_are_no_file(tmp_path_factory, content):
    """Bytes that are no file are refused, whatever they are."""
    path = tmp_path_factory.mktemp("drawn") / "run.tinygpt"
    path.write_bytes(content)

    with pytest.raises(TinyGPTFileError):
        load(path)


def test_number_beyond_floats_is_refused():
    """JSON has no infinity; a number that becomes one is none either."""
    with pytest.raises(UnfitError, match="header: got 1e999, expected numbers that a float holds"):
        parsed_json(b'{"a":1e999}', "header")


def test_verify_checks_all_that_load_checks(path, whole):
    """A file that could not be gone on from is not called whole."""
    path.write_bytes(edited(whole, HEADER_EDITS["step of another time"]))

    for read in (load, verify):
        with pytest.raises(TinyGPTFileError, match="header step: got 3, expected 2, as the optimizer has"):
            read(path)


def test_every_older_version_is_migrated():
    """There is a step from each version to the next, up to ours."""
    assert sorted(MIGRATIONS) == list(range(1, VERSION))
