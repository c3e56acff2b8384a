"""Whom to judge: a wrapper, how it is applied, and what it declines."""

import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.nn as nn

from tinygpt.errors import NotApplicableError, SubjectError

Wrap = Callable[..., Callable[..., Any]]

# What people call the first parameter of a wrapper.
FUNCTION_NAMES = ("fn", "fun", "f", "function", "func")
MODULE_NAMES = ("module", "block", "layer", "mod", "m")

SHAPES = ("wrap", "wrap_fn", "enable")

ENTRY_POINTS = "tinygpt.subjects"


@dataclass(frozen=True)
class Subject:
    """A wrapper under judgement.

    Attributes:
        name: What reports call it.
        function: The wrapper itself.
        shape: How it is applied; told from the names of its parameters if not given.
            ``wrap(module, fn=None)`` returns a callable; ``wrap_fn(fn)`` returns a function, and
            is given the parameters as its first argument; ``enable(model)`` is a context in which the model's blocks
            are checkpointed.
        declines: Rules or checks that it does not promise, each with the reason.
        address: ``package.module:attribute``, by which another process finds it; empty if there is none.
        version: Of the package that it comes from.
        runs_wrapped_twice: How often a function runs that was wrapped twice, if the wrapper says so: 2 or 3.
    """

    name: str
    function: Callable[..., Any]
    shape: str = ""
    declines: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    version: str = ""
    runs_wrapped_twice: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be judged."""
        if not callable(self.function):
            raise SubjectError(f"[subject] {self.name}: got {type(self.function).__name__}, expected a callable")
        if not self.shape:
            object.__setattr__(self, "shape", _shape(self.function, self.name))
        if self.shape not in SHAPES:
            raise SubjectError(
                f"[subject] shape of {self.name}: got {self.shape!r}, expected one of {', '.join(SHAPES)}"
            )

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[Wrap]:
        """Yield ``wrap(module, fn=None)`` for the parts of a model, inside the context."""
        if self.shape == "enable":
            with self.function(model):
                yield _enabled
        elif self.shape == "wrap_fn":
            yield self._with_parameters
        elif _takes_functions(self.function):
            yield self.function
        else:
            yield self._whole_module

    def _whole_module(self, module: nn.Module, fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
        if fn is not None:
            raise NotApplicableError("wraps whole modules; a function of its own cannot be wrapped")
        return self.function(module)  # type: ignore[no-any-return]

    def _with_parameters(self, module: nn.Module, fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Wrap a function that takes the parameters of the module first: all that it may be differentiated by."""
        run = module if fn is None else fn

        def with_parameters(parameters: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            before = module.trainable_parameters()
            module.update(parameters)
            try:
                return run(*args, **kwargs)
            finally:  # or the wrapper would be blamed for what is left here
                module.update(before)

        wrapped = self.function(with_parameters)
        return lambda *args, **kwargs: wrapped(module.trainable_parameters(), *args, **kwargs)


def _takes_functions(wrap: Callable[..., Any]) -> bool:
    """Return whether a wrapper takes ``(module, fn)``; what cannot be inspected is taken at its word."""
    try:
        inspect.signature(wrap).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _enabled(module: nn.Module, fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    if fn is not None:
        raise NotApplicableError("enabled for whole modules; a function of its own cannot be wrapped")
    return module


def plain(module: Callable[..., Any], fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Wrap nothing: the control that every wrapper is compared with."""
    return module if fn is None else fn


@contextmanager
def mlx_lm(model: Any) -> Iterator[None]:
    """Apply mlx-lm's ``grad_checkpoint`` as its trainer does: to the class of the first block. Nothing undoes it."""
    _load(MLX_LM)(model.blocks[0])
    yield


MLX_LM = "mlx_lm.tuner.trainer:grad_checkpoint"
PLAIN = Subject("plain", plain, "wrap", address="tinygpt.conformance.subjects:plain")

_TRANSFORMS = {"T5": "MLX: CustomTransforms cannot infer output shapes, on any release"}

# Addresses and not objects: the judge does not know the accused until it is asked to judge them.
BUILT_IN: dict[str, tuple[str, dict[str, Any]]] = {
    "tinygpt": ("tinygpt:checkpoint", {"declines": _TRANSFORMS, "runs_wrapped_twice": 2}),
    "mlx.nn": ("mlx.nn.utils:checkpoint", {}),
    "mlx.core": ("tinygpt.checkpointing.wrappers:mlx_core", {}),
    "mlx-lm": ("tinygpt.conformance.subjects:mlx_lm", {"shape": "enable"}),
    "seed-recipe": ("tinygpt.checkpointing.wrappers:seed_recipe", {}),
    "plain": ("tinygpt.conformance.subjects:plain", {}),
}

_PACKAGES = {"mlx-lm": "mlx-lm", "plain": "mlx", "mlx.core": "mlx", "mlx.nn": "mlx"}


def subject(name: str, *, shape: str | None = None) -> Subject:
    """Return the subject of a name.

    Args:
        name: A built-in (``tinygpt``, ``mlx.nn``, ``mlx.core``, ``mlx-lm``, ``seed-recipe``, ``plain``), a name of the
            entry-point group ``tinygpt.subjects``, or ``package.module:attribute``.
        shape: How to apply it; read off its parameters if not given.

    Raises:
        SubjectError: There is no such subject, it cannot be imported, or its shape cannot be told.
    """
    registered = {entry.name: entry for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name == "mlx-lm" and importlib.util.find_spec("mlx_lm") is None:
        raise SubjectError("[subject] mlx-lm: got no package mlx_lm, expected one: pip install mlx-lm")
    if name == "mlx-lm":
        _load(MLX_LM)  # or every check would tell that it cannot be imported
    if name in BUILT_IN:
        address, settings = BUILT_IN[name]
        found = as_subject(_load(address), name=name, address=address, shape=shape or settings.get("shape", "wrap"))
        return replace(found, version=_version(_PACKAGES.get(name, "tinygpt")), **{**settings, "shape": found.shape})
    if name in registered:
        entry = registered[name]
        found = as_subject(_load(entry.value), name=name, address=entry.value, shape=shape)
        return replace(found, version=entry.dist.version if entry.dist else "")
    if all(name.partition(":")):
        found = as_subject(_load(name), name=name, address=name, shape=shape)
        return replace(found, version=found.version or _version(name.partition(".")[0].partition(":")[0]))
    known = ", ".join([*BUILT_IN, *registered])
    raise SubjectError(f"[subject] name: got {name!r}, expected one of {known}, or package.module:attribute")


def as_subject(judged: Any, *, name: str = "", address: str = "", shape: str | None = None) -> Subject:
    """Return a wrapper as a subject; a subject is returned as it is, but for its address.

    Raises:
        SubjectError: It is nothing callable, or its shape cannot be told from its parameters.
    """
    if isinstance(judged, Subject):
        return replace(judged, address=judged.address or address, shape=shape or judged.shape)
    if not callable(judged):
        raise SubjectError(f"[subject] {name or judged!r}: got {type(judged).__name__}, expected a callable")
    label = name or getattr(judged, "__qualname__", type(judged).__name__)
    return Subject(label, judged, shape or _shape(judged, label), address=address or _address(judged))


def _address(judged: Any) -> str:
    """Return where a wrapper can be imported from; nothing if it cannot."""
    module, name = getattr(judged, "__module__", None), getattr(judged, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is judged and module != "__main__" else ""


def told_shape(function: Callable[..., Any]) -> str:
    """Return the shape that the parameters of a wrapper tell; empty if they tell none."""
    try:
        return _shape(function, "")
    except SubjectError:
        return ""


def _shape(function: Callable[..., Any], name: str) -> str:
    """Tell the shape of a wrapper from the names of its first parameters."""
    try:
        everything = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # something built in
        everything = {}.values()
    parameters = [p for p in everything if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    first = parameters[0].name if parameters else ""
    if len(parameters) == 1 and first == "model":
        return "enable"
    if first in FUNCTION_NAMES:
        return "wrap_fn"
    if len(parameters) == 2 or first in MODULE_NAMES:
        return "wrap"
    raise SubjectError(
        f"[subject] parameters of {name}: got ({', '.join(p.name for p in parameters)}), "
        "expected (module, fn=None), (fn) or (model); or name the shape: wrap, wrap_fn or enable"
    )


def _load(address: str) -> Any:
    module, _, attribute = address.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise SubjectError(
            f"[subject] {address}: got {type(error).__name__}: {error}, expected to import {module}"
        ) from None
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise SubjectError(f"[subject] {address}: got {said} while importing {module}, expected none") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise SubjectError(f"[subject] {address}: got no {attribute!r} in {module}, expected a wrapper")
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
