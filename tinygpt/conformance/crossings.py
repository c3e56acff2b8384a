"""Crossings: arrays that blocks hand to each other by the side, not through arguments and results.

Shared keys and values in a cache, a dict that is passed along, a hook's list, a variable of the function around: each
carries gradient from block to block, and MLX's own wrapper drops it without a word.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.conformance.cases import SHAPE, Block, Case, Stack, energy, fresh
from tinygpt.conformance.compare import differences
from tinygpt.conformance.rules import EAGER, check
from tinygpt.conformance.subjects import PLAIN, Subject, Wrap
from tinygpt.conformance.trial import SEED, Trial, plainly
from tinygpt.errors import ConformanceError

NAME = "shared_keys"  # by which the attribute, the key and the variable can be named
DEPTH = 3  # what the second block finds is not what the third does


class _Sharing(Block):
    """A block that leaves its keys in a store, and multiplies with those that it finds there."""

    def __call__(self, x: mx.array, store: Any = None) -> mx.array:
        keys = self.first(x)
        found = store.exchange(keys)
        y = self.second(mx.softmax(keys, axis=-1))
        return y if found is None else y * found


class _Cache:
    """Keeps the keys in an attribute."""

    def __init__(self) -> None:
        self.shared_keys: mx.array | None = None

    def exchange(self, keys: mx.array) -> mx.array | None:
        found, self.shared_keys = self.shared_keys, keys
        return found


class _Slotted:
    """Keeps the keys in a slot."""

    __slots__ = (NAME,)

    def __init__(self) -> None:
        self.shared_keys: mx.array | None = None

    exchange = _Cache.exchange


class _Growing(_Cache):
    """Keeps the keys of all blocks, as a cache that is filled does."""

    def exchange(self, keys: mx.array) -> mx.array | None:
        found = self.shared_keys
        self.shared_keys = keys if found is None else mx.concatenate([found, keys], axis=1)
        return None if found is None else found[:, -keys.shape[1] :]


class _ByKey(nn.Module):
    """A sharing block whose store is a dict."""

    def __init__(self, block: _Sharing) -> None:
        super().__init__()
        self.block = block

    def __call__(self, x: mx.array, store: dict[str, mx.array]) -> mx.array:
        def exchange(keys: mx.array) -> mx.array | None:
            found = store.get(NAME)
            store[NAME] = keys
            return found

        return self.block(x, SimpleNamespace(exchange=exchange))


class _Hooked(Block):
    """A block that appends something that it computed on the way to a list, and calls it a loss."""

    def __call__(self, x: mx.array, shared_keys: list[mx.array]) -> mx.array:  # type: ignore[override]
        keys = self.first(x)
        shared_keys.append(mx.tanh(keys))
        return self.second(mx.softmax(keys, axis=-1))


def _stack(kind: type[Block] = _Sharing) -> tuple[Stack, tuple[mx.array]]:
    block = fresh(kind)
    return Stack([block() for _ in range(DEPTH)]), (mx.random.normal(SHAPE),)


def _by_key() -> tuple[Stack, tuple[mx.array]]:
    block = fresh(_ByKey)
    return Stack([block(_Sharing()) for _ in range(DEPTH)]), (mx.random.normal(SHAPE),)


def _through(store: Callable[[], Any]) -> Callable[..., mx.array]:
    """Return a loss whose blocks are given one store as an argument."""
    return lambda model, wrap, x: _run(model, wrap, x, store())


def _through_an_owner(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    owner = SimpleNamespace(caches=[SimpleNamespace(inner=_Cache())])

    def with_owner(block: nn.Module) -> Callable[[mx.array], mx.array]:
        return lambda x: block(x, owner.caches[0].inner)

    for block in model.blocks:
        x = wrap(block, with_owner(block))(x)
    return energy(x)


def _through_a_variable(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    shared_keys: mx.array | None = None

    def exchange(keys: mx.array) -> mx.array | None:
        nonlocal shared_keys
        found, shared_keys = shared_keys, keys
        return found

    store = SimpleNamespace(exchange=exchange)

    def with_variable(block: nn.Module) -> Callable[[mx.array], mx.array]:
        return lambda x: block(x, store)

    for block in model.blocks:
        x = wrap(block, with_variable(block))(x)
    return energy(x)


def _through_a_list(model: Stack, wrap: Wrap, x: mx.array) -> mx.array:
    hooked: list[mx.array] = []
    return _run(model, wrap, x, hooked) + sum(energy(each) for each in hooked)


ARGUMENT = Case("keys in an object that is an argument", _stack, _through(_Cache))
SLOT = Case("keys in a slot of an object", _stack, _through(_Slotted))
GROWING = Case("a cache that grows", _stack, _through(_Growing))
OWNER = Case("keys in an object inside of another", _stack, _through_an_owner)
KEY = Case("keys in a dict that is an argument", _by_key, _through(dict))
VARIABLE = Case("keys in a variable", _stack, _through_a_variable)
HOOK = Case("losses in a list", lambda: _stack(_Hooked), _through_a_list)


@check()
def through_object(trial: Trial) -> None:
    """H1 (required): What a block leaves in an object for another has its gradient, or is refused by name.

    Source: mlx-lm's caches, from which blocks without keys of their own read; never a silent zero.

    Fault: ``crossing_taken_for_constant``, ``crossing_refused_without_name``, ``crossing_cut_off``.
    """
    for case in (ARGUMENT, SLOT, OWNER):
        _expect_equal_or_named(trial, case)


@check()
def through_growing_object(trial: Trial) -> None:
    """H2 (required): A recomputation finds in an object what the forward found there, though it has been filled since.

    Source: a cache that appends: recomputed on top of the forward's keys, the block sees each of them twice.

    Fault: ``object_left_filled``.
    """
    _expect_equal_or_named(trial, GROWING)


@check()
def through_container(trial: Trial) -> None:
    """H3 (required): What a block leaves in a dict or a list for another, or for the loss, has its gradient.

    Source: mlx-lm's deepseek_v41, whose blocks fill a dict; hooks that collect auxiliary losses.

    Fault: ``container_left_as_recomputed``, ``hooked_losses_cut_off``.
    """
    for case in (KEY, HOOK):
        _expect_equal_or_named(trial, case)


@check()
def through_variable(trial: Trial) -> None:
    """H4 (required): What a block leaves in a variable of the function around has its gradient, or is refused by name.

    Source: closures that carry a router's state, or the values of the first block, from call to call.

    Fault: ``variable_taken_for_constant``.
    """
    _expect_equal_or_named(trial, VARIABLE)


@check(modes=EAGER)
def left_behind(trial: Trial) -> None:
    """H5 (required): After a step, objects, dicts and lists hold what the plain run leaves there, once.

    Source: an array of the recomputation in a cache is a tracer's leftover, and keeps the whole graph.

    Fault: ``recomputation_left_behind``.
    """
    for case, store in ((ARGUMENT, _Cache), (KEY, dict), (HOOK, list)):
        with plainly(f"case '{case}'"):
            expected = _left(case, store, PLAIN)
        with trial.guarded(f"case '{case}'"):
            got = _left(case, store, trial.subject)
        found = differences(got, expected)
        if found:
            raise ConformanceError(f"case '{case}': left behind unlike plain: {found[0]}")


def _left(case: Case, make: Callable[[], Any], subject: Subject) -> list[mx.array]:
    """Return the arrays that a store holds after a step."""
    mx.random.seed(SEED)
    model, (x,) = case.build()
    mx.eval(model.state, x)
    store = make()
    with subject.applied(model) as wrap:
        mx.eval(nn.value_and_grad(model, lambda x: _run(model, wrap, x, store))(x))
    held: list[mx.array] = (
        store if isinstance(store, list) else list((store if isinstance(store, dict) else vars(store)).values())
    )
    mx.eval(held)
    return held


def _run(model: nn.Module, wrap: Wrap, x: mx.array, store: Any) -> mx.array:
    """Run the blocks of a model with a store as an argument; return a loss."""
    for block in model.blocks:
        x = wrap(block)(x, store)
    return energy(x)


def _expect_equal_or_named(trial: Trial, case: Case) -> None:
    """Raise unless gradients are plain's, or the wrapper refuses with the name of what crosses."""
    try:
        trial.expect_equal(case, "values", "gradients")
    except ConformanceError as error:
        refusal = error.__cause__
        if refusal is None:
            raise
        if NAME not in str(refusal):
            raise ConformanceError(
                f"case '{case}': got the refusal {str(refusal)!r}, expected one that names {NAME!r}"
            ) from error
