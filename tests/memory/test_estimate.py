"""The arithmetic of a block against what MLX keeps."""

import dataclasses
import json
from pathlib import Path

import mlx.core as mx
import mlx.optimizers as optim
import pytest

from tinygpt.config import GPTConfig
from tinygpt.errors import ReportError
from tinygpt.memory.estimate import activation_bytes, block_parameter_bytes, boundary_bytes, forward_flops
from tinygpt.memory.measure import measure
from tinygpt.model import GPT
from tinygpt.savings.estimates import estimated
from tinygpt.train import TrainStep

pytestmark = pytest.mark.memory

RESULTS = Path(__file__).parents[2] / "results"

# Width, hidden width, heads, sequences, tokens: each makes another term large.
SHAPES = {
    "wide stream": (64, 64, 2, 4, 128),
    "wide hidden layer": (64, 512, 4, 4, 64),
    "many scores": (64, 256, 4, 2, 256),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_plain_block_keeps_what_the_arithmetic_says(shape):
    """Six blocks more raise the peak by six times the computed activations, within the 6 % of the fit."""
    width, hidden, heads, batch, context = shape

    def config(depth):
        return GPTConfig(n_layer=depth, n_head=heads, n_embd=width, n_mlp=hidden, context=context)

    def peak(depth):
        mx.random.seed(0)
        step = TrainStep(GPT(config(depth)), optim.AdamW(1e-3), compiled=False)
        tokens = mx.random.randint(0, 256, (batch, context + 1))
        mx.eval(tokens)
        return measure(lambda: step.gradients(tokens), schedule="whole tree").peak_bytes

    expected = activation_bytes(config(1), batch=batch, context=context)

    assert (peak(9) - peak(3)) / 6 == pytest.approx(expected, rel=0.06)


def test_estimates_of_a_known_block():
    """The numbers of preset tiny, worked out by hand."""
    config = GPTConfig(n_layer=4, n_head=4, n_embd=128, n_mlp=512, context=128)
    stream = 8 * 128 * 128

    assert boundary_bytes(config, batch=8, context=128) == 4 * stream
    assert activation_bytes(config, batch=8, context=128) == (
        4 * (10 * stream + 4 * 4 * stream + 8 * 4 * 128 * 128) + 128 * 128  # the mask has one byte each
    )
    assert block_parameter_bytes(config) == 4 * (12 * 128 * 128 + 13 * 128)
    assert forward_flops(config, batch=8, context=128) == 2 * 8 * 128 * (12 * 128 * 128 + 2 * 128 * 128)


def test_every_stored_reading_is_near_its_estimate():
    """A peak lies between the estimate and the estimate without what a GPU may have in flight, within 3 %."""
    readings = estimated(RESULTS / "h200-grid.json")

    off = [
        reading
        for reading in readings
        if not 0.97 * (reading.estimate_bytes - reading.in_flight_bytes)
        <= reading.peak_bytes
        <= reading.estimate_bytes / 0.97
    ]

    assert len(readings) == 8 * 9 * 4  # rows, policies, compiled or not in two dtypes
    assert off == []


def test_every_stored_reading_of_a_cpu_is_near_its_estimate():
    """There nothing is in flight: never under by more than 3 %, nor over by more than 7 %, in either dtype."""
    readings = estimated(RESULTS / "cpu-policies.json")

    shares = [reading.estimate_bytes / reading.peak_bytes for reading in readings]

    assert len(shares) == 2 * 9 * 4
    assert 0.97 <= min(shares) <= max(shares) <= 1.07


def test_file_of_estimates_is_the_estimate_of_today():
    """The table in the results is what the arithmetic says now, of every file that it names."""
    content = json.loads((RESULTS / "estimates.json").read_text())

    today = [dataclasses.asdict(each) for name in content["files"] for each in estimated(RESULTS / name)]

    assert content["readings"] == today


def test_what_is_no_benchmark_is_refused(tmp_path):
    """One line that names the file."""
    (tmp_path / "x.json").write_text('{"records": []}')

    with pytest.raises(ReportError, match=r"x.json: got KeyError"):
        estimated(tmp_path / "x.json")
