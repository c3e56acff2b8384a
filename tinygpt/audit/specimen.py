"""What is audited: a model, a batch and a loss; a tiny one of mlx-lm's, or somebody's own."""

import functools
import importlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from tinygpt.audit.configurations import architectures, build, tiny_config
from tinygpt.errors import AuditError
from tinygpt.leaves import leaves

SEED = 7
TOKENS = 96  # below every tiny vocabulary
BATCH, LENGTH = 2, 12  # more than one sequence, longer than every tiny window
LORA = {"rank": 4, "scale": 10.0, "dropout": 0.1}
GROUP = 32
TIMES = "times"  # the argument of somebody's own function that makes its model so many times as deep


@dataclass(frozen=True)
class Specimen:
    """A model that is ready to be trained.

    Attributes:
        model: In train mode, evaluated.
        batch: Its arguments.
        loss: Called with the model and the batch.
    """

    model: nn.Module
    batch: tuple[Any, ...]
    loss: Callable[..., mx.array]


def specimen(name: str, training: str = "full", *, length: int = LENGTH, times: int = 1) -> Specimen:
    """Return a model of that name; the same every time.

    Args:
        name: An architecture of the installed mlx-lm, a folder with a model of mlx-lm's, or ``package.module:build``,
            which returns a model, a batch and a loss of both, and may take ``times``.
        training: ``full``; ``lora``, with mlx-lm's adapters on a frozen base; ``qlora``, on one of 4 bits.
        length: Of a sequence, in tokens; a batch of somebody's own is as it is.
        times: How many times as deep, if ``can_be_deeper`` says so.

    Raises:
        AuditError: There is no such model, or it cannot be built.
    """
    make = _maker(name, length, times)  # what is imported for it may draw random numbers itself
    mx.random.seed(SEED)
    found = make()
    if training != "full":
        with_adapters(found.model, bits=4 if training == "qlora" else None)
    mx.eval(found.model.state)
    return found


def can_be_deeper(name: str) -> bool:
    """Return whether a specimen can be built several times as deep: not one that is stored."""
    if ":" in name:
        return TIMES in inspect.signature(_imported(name)).parameters
    return name in architectures()


def _maker(name: str, length: int, times: int) -> Callable[[], Specimen]:
    """Return what makes a specimen, with everything imported that it needs."""
    if ":" in name:
        function = _imported(name)
        return lambda: _own(name, functools.partial(function, **{TIMES: times} if times > 1 else {}))
    if (Path(name) / "config.json").is_file():
        load = importlib.import_module("mlx_lm.utils").load_model
        return lambda: _of_tokens(_stored(Path(name), load), length)
    if name in architectures():
        tiny_config(name)
        return lambda: _of_tokens(build(name, times=times), length)
    raise AuditError(f"[audit] {name}: got no such model, expected one of mlx-lm's, a folder or an address")


def with_adapters(model: nn.Module, *, bits: int | None) -> None:
    """Freeze a model, quantized if bits are given, and give every linear layer an adapter of mlx-lm's.

    What an adapter adds is zero at first, and half of its gradients with it; so it becomes noise.
    """
    tuner = importlib.import_module("mlx_lm.tuner.utils")
    if bits:
        nn.quantize(model, group_size=GROUP, bits=bits, class_predicate=_can_be_quantized)
    model.freeze()
    tuner.linear_to_lora_layers(model, len(model.layers), LORA)
    adapters = leaves(model.trainable_parameters())
    if not adapters:
        raise AuditError("[audit] adapters: got none, expected a linear layer in some block")
    keys = mx.random.split(mx.random.key(SEED), len(adapters))
    noise = [0.02 * mx.random.normal(each.shape, key=key) for each, key in zip(adapters.values(), keys, strict=True)]
    model.update(tree_unflatten(list(zip(adapters, noise, strict=True))))


def _can_be_quantized(_: str, module: nn.Module) -> bool:
    """Say whether a layer is one whose rows are whole groups; others stay as they are."""
    weight = module.get("weight")
    return hasattr(module, "to_quantized") and isinstance(weight, mx.array) and weight.shape[-1] % GROUP == 0


def _of_tokens(model: nn.Module, length: int) -> Specimen:
    tokens = mx.random.randint(0, TOKENS, (BATCH, length + 1))
    return Specimen(model, (tokens[:, :-1], tokens[:, 1:]), next_token_loss)


def next_token_loss(model: nn.Module, tokens: mx.array, targets: mx.array) -> mx.array:
    """Return the mean cross-entropy of the next token, in nats.

    Args:
        model: From tokens to logits, or to an object that has them.
        tokens: Shape (B, T).
        targets: Shape (B, T).
    """
    result = model(tokens)
    logits: Any = getattr(result, "logits", result[0] if isinstance(result, tuple) else result)
    return nn.losses.cross_entropy(logits.astype(mx.float32), targets).mean()


def _stored(folder: Path, load: Callable[..., Any]) -> nn.Module:
    """Return a model of mlx-lm's from a folder of its own format."""
    try:
        model: nn.Module = load(folder, lazy=False)[0]
    except Exception as error:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
        raise AuditError(f"[audit] {folder}: got {type(error).__name__}: {error}, expected a {kind} model") from error
    return model.train()


def _imported(address: str) -> Callable[[], Any]:
    """Return a function of somebody's own."""
    module, _, name = address.partition(":")
    try:
        function: Callable[[], Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise AuditError(f"[audit] {address}: got {type(error).__name__}: {error}, expected to import it") from error
    return function


def _own(address: str, function: Callable[[], Any]) -> Specimen:
    """Return what a function of somebody's own builds."""
    try:
        built = function()
    except Exception as error:
        raise AuditError(f"[audit] {address}: got {type(error).__name__}: {error}, expected to build it") from error
    if not (isinstance(built, tuple) and len(built) == 3 and isinstance(built[0], nn.Module) and callable(built[2])):
        raise AuditError(f"[audit] {address}: got {type(built).__name__}, expected (model, batch, loss)")
    model, batch, loss = built
    return Specimen(model, batch if isinstance(batch, tuple) else (batch,), loss)
