"""One call of a function, recorded well enough to be repeated.

The forward runs as though nobody watched. A replay puts everything that the function could see back to what
it was before the forward: arguments, module state, closure, random key, stream. On leaving, everything is as
it was found.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.checkpointing import random_state
from tinygpt.checkpointing.captures import Captures
from tinygpt.checkpointing.module_state import ModuleState
from tinygpt.checkpointing.trees import Structure


class Recording:
    """A call that has run once and can run again.

    Attributes:
        inputs: What the result may be differentiated by: the arrays of the arguments, then the captured ones.
        argument_count: How many of the inputs are arguments.
        foreign: The positions of the inputs that are neither arguments nor parameters of the module; they may
            well be unused.
    """

    def __init__(
        self, fn: Callable[..., Any], module: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Note what ``fn(*args, **kwargs)`` would start from now."""
        self._fn = fn
        self._arguments = Structure((args, kwargs))
        modules = [m for m in (module, *self._arguments.others) if isinstance(m, nn.Module)]
        self._captures = Captures()
        self._captures.follow(modules)
        own = {id(array) for _, array in self._captures.arrays}
        self._captures.follow((fn, *self._arguments.others))

        captured = {id(array): array for _, array in self._captures.arrays}
        position = {identity: place for place, identity in enumerate(captured)}
        self._sources = [position[id(array)] for _, array in self._captures.arrays]
        self._state = ModuleState(modules, known=captured)
        self._captured_state = ModuleState(self._captures.modules, known=captured, beside=self._state)
        self._stream = mx.default_stream(mx.default_device())
        self._draws = False
        self.argument_count = len(self._arguments.arrays)
        self.inputs = [*self._arguments.arrays, *(array.__copy__() for array in captured.values())]
        self.foreign = [place + self.argument_count for identity, place in position.items() if identity not in own]
        self._key = random_state.read()

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function on the arguments that were noted, and return its result."""
        holder = random_state.holder()
        result = self._fn(*args, **kwargs)
        self._draws = random_state.holder() is not holder
        self._captures.settle()
        self._captured_state.settle()
        return result

    @property
    def constants(self) -> list[mx.array]:
        """The other arrays that a replay needs: buffers, frozen weights, the random key; known after the forward."""
        return [*self._state.arrays, *self._captured_state.arrays, self._key]

    def replay(self, inputs: Sequence[mx.array], constants: Sequence[mx.array]) -> Any:
        """Run the function again on other arrays and return its result, leaving no trace.

        Args:
            inputs: One array for each of ``self.inputs``, of the same shape and dtype.
            constants: One array for each of ``self.constants``, likewise.
        """
        args, kwargs = self._arguments.fill(inputs[: self.argument_count])
        captured = inputs[self.argument_count :]
        *state, key = constants
        own = len(self._state.arrays)
        with ExitStack() as stack:
            stack.enter_context(mx.stream(self._stream))
            stack.enter_context(self._state.installed(state[:own]))
            stack.enter_context(self._captured_state.installed(state[own:]))
            stack.enter_context(self._captures.installed([captured[source] for source in self._sources]))
            if self._draws:
                stack.enter_context(random_state.replayed(key))
            return self._fn(*args, **kwargs)
