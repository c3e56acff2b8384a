"""Step times under every wrapper, for pytest-benchmark: ``pytest -m benchmark --benchmark-json FILE``."""

import mlx.core as mx
import mlx.optimizers as optim
import pytest

from tinygpt.checkpointing import WRAPPERS, checkpointed_blocks
from tinygpt.memory.in_flight import lean_evaluation
from tinygpt.model import GPT
from tinygpt.presets import PRESETS
from tinygpt.train import TrainStep
from tinygpt.train.data import Batches, read_corpus

pytestmark = pytest.mark.benchmark(group="training step, tiny 2x128")


@pytest.mark.parametrize("name", ["plain", *WRAPPERS])
def test_speed_of_a_training_step(benchmark, name):
    """A step of preset tiny, compiled and clipped; compare medians of one run."""
    mx.random.seed(0)
    model = GPT(PRESETS["tiny"])
    blocks = None if name == "plain" else checkpointed_blocks(model.blocks, "all", WRAPPERS[name])
    step = TrainStep(model, optim.AdamW(1e-4), blocks=blocks, clip_norm=1.0, compiled=True)
    tokens = mx.array(Batches(read_corpus(None), batch=2, context=128, seed=0).at(1), mx.int32)

    def run():
        with lean_evaluation():
            step(tokens)
        mx.synchronize()

    benchmark.pedantic(run, rounds=3, warmup_rounds=1)

    assert benchmark.disabled or len(benchmark.stats.stats.data) == 3
