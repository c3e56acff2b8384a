"""What tinygpt stands on in MLX, as data: a few lines of MLX each, and the releases in which they hold.

``python tests/compat/surface.py`` runs all of them without pytest and without tinygpt, and prints which hold, as JSON:
that is how the releases beside them were found.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

MLX = "https://github.com/ml-explore/mlx"
UTILS = f"{MLX}/blob/main/python/mlx/nn/utils.py"


@dataclass(frozen=True)
class Behaviour:
    """Something that MLX does.

    Attributes:
        name: In words.
        holds: Few lines of MLX that return whether it is so.
        releases: Where it is so, as a specifier; all if empty, none if ``<0``.
        link: Where it is tracked or written, if it is a fault of MLX.
    """

    name: str
    holds: Callable[[], bool]
    releases: str = ""
    link: str = ""


def depends_is_public():
    return hasattr(mx, "depends")


def custom_function_replaces_the_gradient():
    square = mx.custom_function(lambda x: x * x)
    square.vjp(lambda _, cotangent, __: 7 * cotangent)
    return mx.grad(lambda x: square(x).sum())(mx.ones((2,))).tolist() == [7, 7]


def custom_function_takes_none():
    fn = mx.custom_function(lambda x, _: x * x)
    fn.vjp(lambda _, cotangent, __: (cotangent, None))
    return mx.grad(lambda x: fn(x, None).sum())(mx.ones((2,))).tolist() == [1, 1]


def captured_parameters_have_no_gradient():
    layer = nn.Linear(2, 2)
    loss = nn.value_and_grad(layer, lambda x: mx.checkpoint(layer)(x).sum())
    return not loss(mx.ones((1, 2)))[1]["weight"].any().item()


def array_returned_twice_keeps_its_gradient():
    def twice(x):
        y = x * 3
        return y, y

    return mx.grad(lambda x: sum(mx.checkpoint(twice)(x)).sum())(mx.ones((2,))).tolist() == [6, 6]


def dropout_is_recomputed_with_its_mask():
    drop = nn.Dropout(0.5)
    x = mx.ones((64,))
    value, gradient = mx.value_and_grad(lambda x: (nn.utils.checkpoint(drop)(x) * x).sum())(x)
    del value
    mx.random.seed(0)
    out, pull = mx.vjp(nn.utils.checkpoint(drop), [x], [x])
    return bool(gradient.size) and mx.array_equal(out[0] != 0, pull[0] != 0).item()


def batch_norm_is_updated_once():
    norm = nn.BatchNorm(1, momentum=0.5)
    x = mx.full((4, 1), 2.0)
    mx.eval(mx.grad(lambda x: nn.utils.checkpoint(norm)(x).sum())(x), norm.running_mean)
    return norm.running_mean.item() == 1.0


class Pair(NamedTuple):
    first: mx.array
    second: mx.array


def checkpoint_keeps_named_tuples():
    return isinstance(mx.checkpoint(lambda x: Pair(x, x + 1))(mx.ones((2,))), Pair)


def ended(code):
    """Return how an interpreter of its own ends that runs some code: below zero where it dies."""
    whole = f"import mlx.core as mx; {code}"
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, check=False).returncode


def nothing_to_return_is_survived():
    return ended("mx.checkpoint(lambda x: None)(mx.ones(2)); mx.eval(mx.ones(2))") >= 0


def grad_of_checkpoint_can_be_vmapped():
    try:
        mx.eval(mx.vmap(mx.grad(lambda x: mx.checkpoint(mx.sin)(x).sum()))(mx.ones((2, 3))))
    except (ValueError, RuntimeError):
        return False
    return True


def checkpoint_compiles_without_shapes():
    try:
        mx.eval(mx.compile(mx.grad(lambda x: mx.checkpoint(mx.sin)(x).sum()), shapeless=True)(mx.ones((3,))))
    except (ValueError, RuntimeError):
        return False
    return True


def checkpoint_can_be_exported():
    with tempfile.TemporaryDirectory() as folder:
        try:
            mx.export_function(
                str(Path(folder, "f.mlxfn")), mx.grad(lambda x: mx.checkpoint(mx.sin)(x).sum()), mx.ones(3)
            )
        except (ValueError, RuntimeError):
            return False
    return True


def random_state_can_be_assigned():
    try:
        mx.random.state[0] = mx.random.key(1)
    except TypeError:
        return False
    return True


def seed_takes_a_key_of_64_bits():
    key = mx.random.split(mx.random.key(3))[0]
    high, low = key.tolist()
    mx.random.seed(high << 32 | low)
    return mx.random.uniform().item() == mx.random.uniform(key=mx.random.split(key)[1]).item()


def compiled_function_draws_new_numbers():
    draw = partial(mx.compile, inputs=mx.random.state, outputs=mx.random.state)(mx.random.uniform)
    return draw().item() != draw().item()


def compiled_function_sees_new_weights():
    layer = nn.Linear(1, 1, bias=False)
    run = partial(mx.compile, inputs=layer.state)(lambda x: layer(x))
    mx.eval(run(mx.ones((1, 1))))
    layer.weight = mx.array([[3.0]])
    return run(mx.ones((1, 1))).item() == 3.0


def peak_is_reset_to_nothing():
    held = mx.zeros((1024,))
    mx.eval(held)
    mx.reset_peak_memory()
    return mx.get_peak_memory() == 0 < mx.get_active_memory()


def memory_limit_returns_the_old_one():
    before = mx.set_memory_limit(1 << 30)
    return mx.set_memory_limit(before) == 1 << 30


def device_can_be_described_without_a_gpu():
    return hasattr(mx, "device_info")


def metadata_of_safetensors_comes_back():
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "x.safetensors"))
        mx.save_safetensors(path, {"a": mx.ones((2,))}, {"one": "1"})
        return mx.load(path, return_metadata=True)[1].get("one") == "1"


def half_precision_products_have_gradients():
    x = mx.ones((2, 2), mx.bfloat16)
    try:
        mx.eval(mx.grad(lambda x: (x @ x).sum())(x))
    except (ValueError, RuntimeError):
        return False
    return True


def addmm_computes_in_half_precision():
    x = mx.ones((2, 2), mx.bfloat16)
    try:
        mx.eval(mx.addmm(x, x, x))
    except (ValueError, RuntimeError):
        return False
    return True


def empty_list_is_unflattened():
    try:
        return not tree_unflatten([])
    except IndexError:
        return False


def compiled_function_returns_one_of_several_results():
    code = "f = mx.checkpoint(lambda x: (x * 2, x * 3)); mx.eval(mx.compile(lambda x: f(x)[1])(mx.ones(2)))"
    return ended(code) >= 0


def interpreter_ends_well_after_compiling_a_checkpoint():
    return ended("f = mx.compile(lambda x: mx.checkpoint(lambda x: x * 2)(x)); mx.eval(f(mx.ones((2,))))") >= 0


def indices_are_differentiated_to_zeros():
    return ended("t, i = mx.ones((4, 2)), mx.array([1]); mx.eval(mx.vjp(lambda t, i: t[i], [t, i], [t[i]])[1])") == 0


def compiled_nan_is_a_number_in_cpp():
    with mx.stream(mx.cpu):
        try:
            mx.eval(mx.compile(lambda x: mx.exp(x) * mx.nan)(mx.ones((2,))))
        except RuntimeError:
            return False
    return True


SURFACE = (
    Behaviour("mx.depends is public", depends_is_public, ">=0.29.2"),
    Behaviour("a custom function replaces the gradient", custom_function_replaces_the_gradient),
    Behaviour("a custom function takes None", custom_function_takes_none),
    Behaviour(
        "captured parameters have a gradient of zero", captured_parameters_have_no_gradient, "", f"{MLX}/issues/1669"
    ),
    Behaviour("one array returned twice keeps its gradient", array_returned_twice_keeps_its_gradient, "<0", UTILS),
    Behaviour("dropout is recomputed with its mask", dropout_is_recomputed_with_its_mask, "<0", UTILS),
    Behaviour("batch norm is updated once", batch_norm_is_updated_once, "<0", UTILS),
    Behaviour("checkpoint keeps named tuples", checkpoint_keeps_named_tuples, ">=0.30.1"),
    Behaviour("nothing to return is survived", nothing_to_return_is_survived, "<0", UTILS),
    Behaviour("the gradient of a checkpoint can be vmapped", grad_of_checkpoint_can_be_vmapped, "<0", UTILS),
    Behaviour("a checkpoint compiles without shapes", checkpoint_compiles_without_shapes, "<0", UTILS),
    Behaviour("a checkpoint can be exported", checkpoint_can_be_exported, "<0", UTILS),
    Behaviour("the random state can be assigned", random_state_can_be_assigned, "<0.32.1"),
    Behaviour("a seed sets all 64 bits of the key", seed_takes_a_key_of_64_bits),
    Behaviour("a compiled function draws new numbers", compiled_function_draws_new_numbers),
    Behaviour("a compiled function sees new weights", compiled_function_sees_new_weights),
    Behaviour("the peak is reset to nothing", peak_is_reset_to_nothing),
    Behaviour("a memory limit returns the old one", memory_limit_returns_the_old_one),
    Behaviour("a device can be described without a GPU", device_can_be_described_without_a_gpu, ">=0.30.4"),
    Behaviour("metadata of safetensors comes back", metadata_of_safetensors_comes_back),
    Behaviour("half precision products have gradients", half_precision_products_have_gradients),
    Behaviour("addmm computes in half precision", addmm_computes_in_half_precision, ">=0.29.3"),
    Behaviour("an empty list is unflattened", empty_list_is_unflattened, ">=0.28.0"),
    Behaviour(
        "a compiled function returns one of several results",
        compiled_function_returns_one_of_several_results,
        "!=0.29.4,!=0.30.0",
    ),
    Behaviour(
        "an interpreter ends well after compiling a checkpoint",
        interpreter_ends_well_after_compiling_a_checkpoint,
        "!=0.32.1",
    ),
    Behaviour("the gradient of indices is asked for in vain", indices_are_differentiated_to_zeros, "<0.32.1"),
    Behaviour("a constant that is not a number is compiled", compiled_nan_is_a_number_in_cpp, ">=0.32.0"),
)

if __name__ == "__main__":
    found = {}
    for each in SURFACE:
        try:
            found[each.name] = bool(each.holds())
        except Exception as error:
            found[each.name] = repr(error)
    print(json.dumps({"mlx": mx.__version__, "holds": found}))
