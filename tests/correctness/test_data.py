import numpy as np
import pytest

from tinygpt.errors import ConfigError, DataError
from tinygpt.presets import PRESETS
from tinygpt.train import TrainConfig
from tinygpt.train.data import Batches, read_corpus


def test_corpus_is_the_bytes_of_the_text(tmp_path):
    """A file is read as it is, multi-byte characters and all."""
    path = tmp_path / "text"
    path.write_text("Grüße\n", encoding="utf-8")

    assert read_corpus(path).tobytes() == "Grüße\n".encode()


def test_corpus_is_the_standard_library_by_default():
    """Without a file there is real text on every machine, the same every time."""
    text = read_corpus(None).tobytes().decode()

    assert len(text) > 1_000_000
    assert "class Thread:" in text
    assert read_corpus(None).tobytes() == text.encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "got No such file or directory, expected a readable file"),
        (b"fine \xff", "got byte 0xff at position 5, expected UTF-8 text"),
        ("Grüße".encode()[:3], "got byte 0xc3 at position 2, expected UTF-8 text"),
    ],
    ids=["missing", "not UTF-8", "cut inside a character"],
)
def test_corpus_refuses_what_is_not_text(tmp_path, content, message):
    """Each bad file is one error that names it."""
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(DataError) as caught:
        read_corpus(path)

    assert str(caught.value) == f"[corpus] {path}: {message}"


def test_corpus_refuses_a_folder(tmp_path):
    """A folder is no text."""
    with pytest.raises(DataError, match="expected a readable file"):
        read_corpus(tmp_path)


def test_batches_are_windows_of_the_text_and_repeat_with_the_seed():
    """Every sequence is a piece of the text, one longer than the context; the seed decides which."""
    corpus = np.arange(200, dtype=np.uint8)

    first, again, other = (
        [Batches(corpus, batch=3, context=5, seed=seed).at(step).tolist() for step in range(1, 5)] for seed in (0, 0, 1)
    )

    assert all(window == list(range(window[0], window[0] + 6)) for batch in first for window in batch)
    assert first == again != other
    assert len({str(batch) for batch in first}) == 4


def test_batch_of_a_step_does_not_depend_on_the_steps_before_it():
    """Whoever begins at step 4 sees what somebody sees who has come there from step 1."""
    corpus = np.arange(200, dtype=np.uint8)
    run = Batches(corpus, batch=3, context=5, seed=7)

    fourth = [run.at(step).tolist() for step in range(1, 5)][-1]

    assert Batches(corpus, batch=3, context=5, seed=7).at(4).tolist() == fourth


@pytest.mark.parametrize(("length", "fits"), [(5, False), (6, True)])
def test_batches_need_one_window(length, fits):
    """A text of exactly one window will do, and one byte less will not."""
    corpus = np.zeros(length, np.uint8)

    if fits:
        assert Batches(corpus, batch=2, context=5, seed=0).at(1).shape == (2, 6)
    else:
        with pytest.raises(DataError, match=r"\[corpus\] length: got 5 bytes, expected at least 6 \(context \+ 1\)"):
            Batches(corpus, batch=2, context=5, seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "[train] batch: got 0, expected a positive integer"),
        ({"steps": True}, "[train] steps: got True, expected a positive integer"),
        ({"context": 129}, "[train] context: got 129, expected at most 128, the model's positions"),
        ({"dtype": "float64"}, "[train] dtype: got 'float64', expected one of float32, bfloat16"),
        ({"clip_norm": -1.0}, "[train] clip_norm: got -1.0, expected a number of at least 0"),
        ({"clip_norm": float("nan")}, "[train] clip_norm: got nan, expected a number of at least 0"),
        ({"learning_rate": 0.0}, "[train] learning_rate: got 0.0, expected a positive number"),
        ({"learning_rate": 10**400}, f"[train] learning_rate: got {10**400}, expected a positive number"),
        ({"compile": 1}, "[train] compile: got 1, expected True or False"),
        ({"seed": -1}, "[train] seed: got -1, expected an integer in [0, 2^63)"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_train_config_refuses_what_cannot_be_trained(change, message):
    """Each bad value is one error that says place, got and expected."""
    good = {"model": PRESETS["tiny"], "steps": 1, "batch": 1, "context": 128}

    with pytest.raises(ConfigError) as caught:
        TrainConfig(**good | change)

    assert str(caught.value) == message
