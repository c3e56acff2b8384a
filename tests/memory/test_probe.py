"""A step that is not ours, known from small shapes."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from tinygpt.errors import MeasureError
from tinygpt.memory import probe

pytestmark = pytest.mark.memory

SHAPES = [(1, 64), (3, 64), (1, 128), (1, 256), (2, 256)]


@pytest.fixture(scope="module")
def step():
    """Loss and gradients of MLX's own transformer encoder."""
    mx.random.seed(0)
    model = nn.TransformerEncoder(2, 32, 2)
    mx.eval(model.parameters())
    compute = nn.value_and_grad(model, lambda x: model(x, None).square().mean())

    def run(batch, context):
        result = compute(mx.random.normal((batch, context, 32)))
        mx.eval(result)
        return result

    return run


def test_probe_predicts_a_larger_batch(step):
    """Four times the sequences of any reading at that context, within the error that the probe states."""
    found = probe(step, SHAPES)

    larger = probe(step, [(8, 256), *SHAPES]).peaks_bytes[0]
    assert found.peak_bytes(8, 256) == pytest.approx(larger, rel=found.error)
    assert 0 < found.error < 0.25  # what is left out may be the only reading of its context


def test_probe_states_a_large_error_where_the_terms_do_not_fit(step):
    """The fault: a step that keeps a cube of its context is no transformer's, and the error says so."""

    def cubic(batch, context):
        return mx.eval(mx.ones((batch, context, context * context))) or step(batch, context)

    assert probe(cubic, SHAPES).error > 3 * probe(step, SHAPES).error


@pytest.mark.parametrize(
    "shapes",
    [[], [(1, 32)], [(1, 32), (2, 32), (3, 32), (4, 32)], [(1, 32), (1, 32), (2, 64), (2, 64)], SHAPES[:3]],
    ids=["none", "one", "one context", "two shapes twice", "three"],
)
def test_probe_refuses_shapes_that_tell_nothing(shapes):
    """Before anything is run."""
    with pytest.raises(MeasureError, match=r"\[probe\] shapes: got .*, expected at least 4 with different batches"):
        probe(lambda *_: pytest.fail("run"), shapes)
