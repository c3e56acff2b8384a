"""Everything that a run is at one moment, as arrays by name: weights, the optimizer's state, and the random key."""

import mlx.core as mx
import mlx.optimizers as optim
from mlx.utils import tree_unflatten

from tinygpt.checkpointing import random_state
from tinygpt.leaves import leaves
from tinygpt.model import GPT
from tinygpt.tinygpt_file.contents import MODEL, OPTIMIZER, RANDOM_KEY


def tensors(model: GPT, optimizer: optim.Optimizer) -> dict[str, mx.array]:
    """Return the arrays of a run, evaluated; none of them is copied."""
    key = random_state.read()
    mx.eval(key)
    return {
        **{MODEL + name: array for name, array in leaves(model.parameters()).items()},
        **{OPTIMIZER + name: array for name, array in leaves(optimizer.state).items()},
        RANDOM_KEY: key,
    }


def restore(model: GPT, optimizer: optim.Optimizer, arrays: dict[str, mx.array]) -> None:
    """Put the arrays of a run back; the dict is empty afterwards."""
    random_state.write(arrays.pop(RANDOM_KEY))
    model.update(_tree(arrays, MODEL))
    optimizer.state = _tree(arrays, OPTIMIZER)


def _tree(arrays: dict[str, mx.array], prefix: str) -> dict[str, object]:
    """Take the arrays whose names begin with ``prefix`` out of a dict, and return them as a tree."""
    names = [name for name in arrays if name.startswith(prefix)]
    return dict(tree_unflatten([(name.removeprefix(prefix), arrays.pop(name)) for name in names]))
