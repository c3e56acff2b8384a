"""Which tensors a ``.tinygpt`` file has: weights, the optimizer's state, and the random key."""

from collections.abc import Iterator
from math import prod

import mlx.core as mx

from tinygpt.checkpointing import random_state
from tinygpt.leaves import leaves
from tinygpt.model import GPT
from tinygpt.tinygpt_file.layout import Layout
from tinygpt.tinygpt_file.unfit import UnfitError
from tinygpt.train_config import TrainConfig

MODEL, OPTIMIZER, RANDOM_KEY = "model.", "optimizer.", "random.key"
MOMENTS = ("m", "v")

DTYPES = {"U64": mx.uint64, "F32": mx.float32, "U32": mx.uint32, "BF16": mx.bfloat16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def check(config: TrainConfig, layout: Layout) -> None:
    """Raise unless a file has the tensors of that run and no others, each in its dtype and shape.

    Raises:
        UnfitError: Tensors are missing or surplus, or of another dtype or shape.
    """
    # By arithmetic first: a header can ask for a model that nobody can make.
    if config.model.n_layer > len(layout):
        raise UnfitError("header n_layer", config.model.n_layer, f"at most {len(layout)}, the tensors of the file")
    elements = sum(prod(tensor.shape) for name, tensor in layout.items() if name.startswith(MODEL))
    if elements != config.model.parameters:
        raise UnfitError("tensors of the model", f"{elements} elements", config.model.parameters)
    expected = {name: (dtype, shape) for name, dtype, shape in _tensors(config)}
    for name in sorted(layout.keys() ^ expected.keys()):
        got, wanted = ("none", "one") if name in expected else ("one", "none")
        raise UnfitError(f"tensor {name}", got, wanted)
    for name, (dtype, shape) in expected.items():
        if layout[name].dtype != dtype:
            raise UnfitError(f"dtype of {name}", layout[name].dtype, dtype)
        if layout[name].shape != shape:
            raise UnfitError(f"shape of {name}", layout[name].shape, shape)


def _tensors(config: TrainConfig) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield name, dtype and shape of every tensor; the weights that are drawn for it are never computed."""
    dtype = NAMES[getattr(mx, config.dtype)]
    with random_state.replayed(random_state.read()):
        parameters = leaves(GPT(config.model).parameters())
    for name, weight in parameters.items():
        yield MODEL + name, dtype, weight.shape
        for moment in MOMENTS:
            yield f"{OPTIMIZER}{name}.{moment}", dtype, weight.shape
    yield f"{OPTIMIZER}step", "U64", ()
    yield f"{OPTIMIZER}learning_rate", "F32", ()
    yield RANDOM_KEY, "U32", (2,)
