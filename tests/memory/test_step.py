import mlx.core as mx
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_map

from tinygpt.config import GPTConfig
from tinygpt.memory.measure import counters, measure, settle
from tinygpt.model import GPT
from tinygpt.savings.judge import UPDATE_FACTOR
from tinygpt.train import Gradients, TrainStep

pytestmark = pytest.mark.memory

# As deep as huge, whose update is the same relation; enough parameters for everything else to be small beside them.
CONFIG = GPTConfig(n_layer=12, n_head=4, n_embd=128, n_mlp=512, context=64)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
def test_update_works_in_place(compiled):
    """Weights, two moments and gradients are 4 bytes a byte of parameters; the clipped update needs at most 4.2."""
    settle()  # or the weights may lie in larger buffers from the cache, and count with those
    foreign = counters().active_bytes
    mx.random.seed(0)
    model = GPT(CONFIG)
    step = TrainStep(model, optim.AdamW(1e-3, bias_correction=True), clip_norm=1.0, compiled=compiled)
    parameter_bytes = 4 * CONFIG.parameters

    def update():
        gradients = Gradients(mx.array(0.0), mx.array(2.0), tree_map(mx.ones_like, model.parameters()))
        mx.eval(gradients.tree)
        step.update(gradients)

    reading = measure(update, schedule="update alone", foreign_bytes=foreign)

    assert 4 * parameter_bytes <= reading.base_bytes + reading.peak_bytes <= UPDATE_FACTOR * parameter_bytes
    assert reading.left_bytes < 0.01 * parameter_bytes
