"""A policy that is changed on a resume takes effect: the peak of what follows says so."""

import dataclasses

import pytest

from tinygpt.checkpointing import plan
from tinygpt.config import GPTConfig
from tinygpt.memory.estimate import estimate_peak
from tinygpt.tinygpt_file import load
from tinygpt.train import TrainConfig, Trainer
from tinygpt.train.compiler import can_compile
from tinygpt.train.resume import continued

pytestmark = pytest.mark.memory

MODEL = GPTConfig(n_layer=4, n_head=4, n_embd=64, n_mlp=256, context=64, vocab_size=256)
CONFIG = TrainConfig(model=MODEL, steps=2, batch=8, context=64)
POLICIES = ("none", "every:2", "all")


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_peak_after_a_resume_is_that_of_the_policy(tmp_path, compiled):
    """None keeps four blocks' activations, every second block two, all one: each as the announcement expects."""
    if compiled and not can_compile():
        pytest.skip("no C++ compiler")
    path = tmp_path / "run.tinygpt"
    config = dataclasses.replace(CONFIG, compile=compiled)
    trainer = Trainer(dataclasses.replace(config, steps=1))
    assert len(list(trainer.run())) == 1
    trainer.save(path)
    del trainer

    peaks, expected = {}, {}
    for policy in POLICIES:
        header, arrays = load(path)
        header = continued(header, {"policy": policy, "steps": 2}, {})
        trainer = Trainer(header.config, saved=(header, arrays))
        assert len(list(trainer.run())) == 1
        peaks[policy] = trainer.memory().peak_bytes
        expected[policy] = estimate_peak(CONFIG.model, plan(policy, 4), batch=8, context=64).peak_bytes
        del trainer

    assert peaks["none"] > peaks["every:2"] > peaks["all"]
    for policy, peak in peaks.items():
        assert expected[policy] == pytest.approx(peak, rel=0.10), policy
