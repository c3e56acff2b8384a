"""Tiny models of every architecture of the installed mlx-lm: their configurations, and how they are built."""

import ast
import copy
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from tinygpt.audit.depth import deeper
from tinygpt.audit.tiny import FIELDS, UNUSED_IMPORTS, Of
from tinygpt.audit.tiny_architectures import ARCHITECTURES
from tinygpt.errors import AuditError

NOISE = 0.02  # of a parameter that starts as zeros, as large as the usual first weights


def architectures() -> list[str]:
    """The names of the architectures of the installed mlx-lm: the modules that hold both Model and ModelArgs.

    They are read, not imported, and a class that a module imports counts as well.
    """
    return list(_architectures(_models_folder()))


@functools.cache
def _architectures(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.py") if {"Model", "ModelArgs"} <= _names(path)))


def tiny_config(name: str) -> dict[str, Any]:
    """What a tiny model's ``config.json`` says: for each field of the architecture's ModelArgs a small value.

    Args:
        name: an architecture, as ``architectures`` names it.

    Raises:
        AuditError: mlx-lm has no such architecture, or a field has neither a small value nor a default.
    """
    return _config(Of(name))


def build(name: str, *, seed: int = 0, times: int = 1, fields: Mapping[str, Any] | None = None) -> nn.Module:
    """A tiny model of an architecture, in float32 and in train mode, with no parameter that is all zeros.

    Many weights start as zeros because a checkpoint is loaded over them. Gradients of whole blocks would be zero with
    them, so they become small noise. mlx-lm draws the others from MLX's global random state: it is the caller's.

    Args:
        name: an architecture, as ``architectures`` names it.
        seed: of the noise.
        times: how many times as deep.
        fields: of ModelArgs, that are to be others.
    """
    module = _module(name)
    model: nn.Module = module.Model(module.ModelArgs.from_dict(deeper(tiny_config(name) | dict(fields or {}), times)))
    model.update(tree_map(_float32, model.parameters()))
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    mx.eval(parameters)
    keys = mx.random.split(mx.random.key(seed), len(parameters))
    noise = [
        (path, NOISE * mx.random.normal(value.shape, key=key))
        for (path, value), key in zip(parameters.items(), keys, strict=True)
        if mx.issubdtype(value.dtype, mx.floating) and value.size and not mx.any(value).item()
    ]
    model.update(tree_unflatten(noise))
    mx.eval(model.parameters())
    return model.train()


def _float32(value: mx.array) -> mx.array:
    """A floating parameter in float32; any other as it is, for it holds codes or counts."""
    return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value


def _config(of: Of) -> dict[str, Any]:
    """The small values of one class of arguments, nested ones included."""
    arguments = getattr(_module(of.architecture), of.arguments)
    title = of.architecture if of.arguments == "ModelArgs" else f"{of.architecture}.{of.arguments}"
    own = {"model_type": of.architecture, **ARCHITECTURES.get(title, {}), **of.changes}
    config = {}
    for field in dataclasses.fields(arguments):
        if field.name in own or field.name in FIELDS:
            config[field.name] = _value(own.get(field.name, FIELDS.get(field.name)))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise AuditError(
                f"[audit] {title}: got no small value for field {field.name!r} of type "
                f"{inspect.formatannotation(field.type)}, expected one in the tables"
            )
    return config


def _value(value: Any) -> Any:
    """A value of the tables that a model may change, and a nested configuration in full."""
    return _config(value) if isinstance(value, Of) else copy.deepcopy(value)


def _module(name: str) -> Any:
    """The module of an architecture.

    Raises:
        AuditError: the installed mlx-lm has none of that name.
    """
    if not (_models_folder() / f"{name}.py").is_file():
        raise AuditError(f"[audit] got the architecture {name!r}, expected one that the installed mlx-lm has")
    unused = UNUSED_IMPORTS.get(name)
    if unused is None or importlib.util.find_spec(unused):
        return importlib.import_module(f"mlx_lm.models.{name}")
    sys.modules[unused] = types.ModuleType(unused)
    try:
        return importlib.import_module(f"mlx_lm.models.{name}")
    finally:
        del sys.modules[unused]


def _models_folder() -> Path:
    """Where the installed mlx-lm keeps its architectures.

    Raises:
        AuditError: mlx-lm is not installed.
    """
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or not spec.submodule_search_locations:
        raise AuditError("[audit] got no mlx-lm, expected it to be installed: pip install mlx-lm")
    return Path(spec.submodule_search_locations[0]) / "models"


def _names(path: Path) -> set[str]:
    """The classes that a module defines, and the names it imports."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return names
