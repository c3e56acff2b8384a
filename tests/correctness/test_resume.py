"""A run that goes on is the run that never ended, under whatever policy."""

import dataclasses
import itertools

import mlx.core as mx
import pytest

from tinygpt.errors import ConfigError, DataError, ResumeError
from tinygpt.leaves import leaves
from tinygpt.tinygpt_file import Fingerprint, Header, load
from tinygpt.train import TrainConfig, Trainer
from tinygpt.train.compiler import can_compile
from tinygpt.train.resume import announcement, continued, with_corpus
from tinygpt.train.state import tensors
from tinygpt.variants import SMALL, VARIANTS, combined

MODEL = dataclasses.replace(SMALL, vocab_size=256, dropout=0.1)
CONFIG = TrainConfig(model=MODEL, steps=13, batch=2, context=12)
HALF = 3
POLICIES = ("none", "all", "every:2")


def state(trainer):
    """Return every array of a trainer as its bytes, by name."""
    arrays = tensors(trainer.model, trainer._optimizer)
    return {name: (array.reshape(-1).view(mx.uint8).tolist(), array.dtype) for name, array in arrays.items()}


def reports(trainer):
    """Train to the end, and return the losses of each step."""
    return [(report.step, report.loss, report.auxiliary) for report in trainer.run()]


def half_run(config, path):
    """Train for a few steps, and save."""
    trainer = Trainer(config)
    list(itertools.islice(trainer.run(), HALF))
    trainer.save(path)


def going_on(path, **asked):
    """Return a trainer that goes on from a file."""
    header, arrays = load(path)
    header = continued(header, asked, {})
    return Trainer(header.config, saved=(header, arrays))


def expect_equal_resume(config, path):
    """Assert that a run that goes on checkpointed ends as the one that nobody interrupted."""
    alone = Trainer(config)
    expected = reports(alone)[HALF:]
    half_run(config, path)

    trainer = going_on(path, policy="all")

    assert len(expected) == config.steps - HALF
    assert reports(trainer) == expected
    assert state(trainer) == state(alone)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("before", POLICIES)
def test_resume_continues_to_the_bit_under_every_policy(tmp_path, before, dropout, compiled):
    """Ten losses, weights, moments and random key after a resume are those of the run that nobody interrupted."""
    if compiled and not can_compile():
        pytest.skip("no C++ compiler")
    config = dataclasses.replace(CONFIG, model=dataclasses.replace(MODEL, dropout=dropout), compile=compiled)
    alone = Trainer(config)
    expected = reports(alone)[HALF:]
    path = tmp_path / "run.tinygpt"
    half_run(dataclasses.replace(config, policy=before), path)

    assert len(expected) == 10
    for after in POLICIES:
        trainer = going_on(path, policy=after)
        assert reports(trainer) == expected, f"{before} -> {after}"
        assert state(trainer) == state(alone), f"{before} -> {after}"


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "dense"])
def test_resume_continues_to_the_bit_in_every_variant(tmp_path, variant):
    """Experts, depths, shared caches and the rest keep nothing that the file does not have."""
    model = combined(variant, base=dataclasses.replace(SMALL, vocab_size=256))
    config = dataclasses.replace(CONFIG, model=model, steps=6, compile=False)

    expect_equal_resume(config, tmp_path / "run.tinygpt")


def test_resume_in_bfloat16_continues_to_the_bit(tmp_path):
    """Weights and moments of two bytes come back as they were."""
    from tinygpt.model.products import can_multiply  # noqa: PLC0415

    if not can_multiply(mx.bfloat16):
        pytest.skip("this release of MLX cannot multiply bfloat16 here")
    config = dataclasses.replace(CONFIG, dtype="bfloat16", steps=6, compile=False)

    expect_equal_resume(config, tmp_path / "run.tinygpt")


def test_a_lost_random_key_would_be_seen(tmp_path):
    """The fault that these tests are for: with another random key the dropout masks are others, and so are losses."""
    half_run(CONFIG, tmp_path / "run.tinygpt")
    header, arrays = load(tmp_path / "run.tinygpt")
    arrays["random.key"] = arrays["random.key"] + 1

    trainer = Trainer(header.config, saved=(header, arrays))

    assert reports(trainer) != reports(Trainer(CONFIG))[HALF:]


def test_a_lost_moment_would_be_seen(tmp_path):
    """And with a moment that starts again at zero, the weights are."""
    half_run(CONFIG, tmp_path / "run.tinygpt")
    header, arrays = load(tmp_path / "run.tinygpt")
    name = "optimizer.blocks.0.attention.output.weight.v"
    arrays[name] = mx.zeros_like(arrays[name])

    trainer = Trainer(header.config, saved=(header, arrays))

    assert reports(trainer) != reports(Trainer(CONFIG))[HALF:]


def test_policy_changes_many_times_in_one_run(tmp_path):
    """Up and down at every second step: the same run, and the header tells each change with its step."""
    path = tmp_path / "run.tinygpt"
    alone = Trainer(dataclasses.replace(CONFIG, steps=10))
    expected = reports(alone)
    trainer, found = Trainer(dataclasses.replace(CONFIG, steps=2)), []

    for steps, policy in ((4, "all"), (6, "every:2"), (8, "none"), (10, "all")):
        found += reports(trainer)
        trainer.save(path)
        trainer = going_on(path, policy=policy, steps=steps)
    found += reports(trainer)

    assert found == expected
    assert state(trainer) == state(alone)
    assert [(change.step, change.before, change.after) for change in trainer.header.changes] == [
        (2, "none", "all"),
        (4, "all", "every:2"),
        (6, "every:2", "none"),
        (8, "none", "all"),
    ]


def test_resume_holds_the_state_once(tmp_path):
    """What was loaded is what is trained: nobody else holds it, and nothing was drawn beside it."""
    half_run(CONFIG, tmp_path / "run.tinygpt")
    header, arrays = load(tmp_path / "run.tinygpt")
    weight = arrays["model.blocks.0.attention.output.weight"]

    trainer = Trainer(header.config, saved=(header, arrays))

    assert arrays == {}
    assert leaves(trainer.model.parameters())["blocks.0.attention.output.weight"] is weight


HEADER = Header(config=CONFIG, step=3, corpus=Fingerprint(5, "a" * 64))

REFUSED = {
    "dtype": ({"dtype": "bfloat16"}, {}, "[resume] dtype: got 'bfloat16', expected 'float32', which the file has"),
    "seed": ({"seed": 1}, {}, "[resume] seed: got 1, expected 0, which the file has and cannot change"),
    "model": ({}, {"n_layer": 12}, "[resume] n_layer: got 12, expected 4, which the file has and cannot change"),
    "model choice": ({}, {"attention": "differential"}, "[resume] attention: got 'differential', expected 'softmax'"),
    "no step left": ({"steps": 3}, {}, "[resume] steps: got 3, expected more than the 3 that are done"),
}


@pytest.mark.parametrize(("asked", "model", "message"), REFUSED.values(), ids=REFUSED)
def test_resume_refuses_what_cannot_change(asked, model, message):
    """Each names the field, what was asked, and what the file has."""
    with pytest.raises(ResumeError) as caught:
        continued(HEADER, asked, model)

    assert str(caught.value).startswith(message)


def test_resume_refuses_a_value_out_of_its_range():
    """A resume is held to the rules of any run."""
    with pytest.raises(ConfigError, match=r"\[train\] batch: got 0"):
        continued(HEADER, {"batch": 0}, {})


def test_resume_with_what_the_file_has_changes_nothing():
    """Asking again for what is there is no change."""
    asked = {"dtype": "float32", "policy": "none", "steps": 13, "batch": 2}

    assert continued(HEADER, asked, dataclasses.asdict(MODEL)) == HEADER


def test_resume_records_and_announces_every_change():
    """Policy, learning rate and the like are in the header with their step, and each is one line."""
    header = continued(HEADER, {"policy": "all", "learning_rate": 5e-4, "steps": 99}, {})

    lines = [announcement(change, header.config) for change in header.changes]

    assert [(change.field, change.before, change.after, change.step) for change in header.changes] == [
        ("policy", "none", "all", 3),
        ("learning_rate", 1e-3, 5e-4, 3),
    ]
    assert lines[0].startswith("policy: none -> all from step 4 on, expected peak ")
    assert lines[1] == "learning_rate: 0.001 -> 0.0005 from step 4 on"


def test_another_text_is_refused_unless_allowed():
    """The fingerprint tells; allowed, the change is recorded."""
    other = Fingerprint(6, "b" * 64)

    assert with_corpus(HEADER, HEADER.corpus, allow_change=False) is HEADER
    with pytest.raises(ResumeError) as caught:
        with_corpus(HEADER, other, allow_change=False)
    allowed = with_corpus(HEADER, other, allow_change=True)

    assert str(caught.value) == (
        "[resume] corpus: got 6 bytes, sha256 bbbbbbbbbbbbbbbb…, expected 5 bytes, sha256 aaaaaaaaaaaaaaaa…, "
        "as in the file; --allow-corpus-change goes on with it"
    )
    assert (allowed.corpus, allowed.changes[0].field) == (other, "corpus")


def test_changed_text_is_noticed_by_the_trainer(tmp_path):
    """A text that was edited under its name is another text; one that is gone is told by name."""
    text = tmp_path / "text"
    text.write_text("to be or not to be, " * 50)
    half_run(dataclasses.replace(CONFIG, corpus=text), tmp_path / "run.tinygpt")

    text.write_text("to be or not to bE, " * 50)
    with pytest.raises(ResumeError, match=r"\[resume\] corpus: got 1000 bytes"):
        going_on(tmp_path / "run.tinygpt")
    text.unlink()
    with pytest.raises(DataError, match=r"got No such file or directory, expected a readable file"):
        going_on(tmp_path / "run.tinygpt")
