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
from tinygpt.checkpointing.crossings import Crossing, crossings, note_written
from tinygpt.checkpointing.places import Item
from tinygpt.checkpointing.state import State, storages_of
from tinygpt.checkpointing.trees import Structure


class Recording:
    """A call that has run once and can run again.

    Attributes:
        inputs: What the result may be differentiated by: the arrays of the arguments, then the captured ones.
        argument_count: How many of the inputs are arguments.
        foreign: The positions of the inputs that are neither arguments nor parameters of the module; they may
            well be unused.
        crossings: Where the forward has left arrays beside its result; known after it.
    """

    def __init__(
        self, fn: Callable[..., Any], module: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Note what ``fn(*args, **kwargs)`` would start from now."""
        self._fn = fn
        self._arguments = Structure((args, kwargs))
        modules = [m for m in (module, *self._arguments.others) if isinstance(m, nn.Module)]
        self._captures = Captures()
        self._captures.follow(modules, aside=False)  # what they keep aside is not theirs
        own = {id(array) for _, array in self._captures.arrays}
        self._captures.follow((fn, *self._arguments.others))

        captured = {id(array): array for _, array in self._captures.arrays}
        position = {identity: place for place, identity in enumerate(captured)}
        self._sources = [position[id(array)] for _, array in self._captures.arrays]
        seen: set[int] = set()
        self._own = State(storages_of(modules, seen), known=captured)
        self._others = State(storages_of(self._captures.modules, seen), known=captured)
        self._objects = State((each for each in self._captures.storages if id(each) not in seen), known=captured)
        self._given = State(each for each in self._arguments.containers if each is not kwargs)
        self._stream = mx.default_stream(mx.default_device())
        self._draws = False
        self.crossings: list[Crossing] = []
        self.argument_count = len(self._arguments.arrays)
        self.inputs = [*self._arguments.arrays, *(array.__copy__() for array in captured.values())]
        self.foreign = [place + self.argument_count for identity, place in position.items() if identity not in own]
        self._key = random_state.read()

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function on the arguments that were noted, and return its result."""
        holder = random_state.holder()
        result = self._fn(*args, **kwargs)
        self._draws = random_state.holder() is not holder
        self.crossings = self.written()
        self._captures.settle()
        self._others.settle()
        self._objects.settle(arrays_only=True)
        return result

    def written(self) -> list[Crossing]:
        """Return where there is an array beside the result now that was not there before the call."""
        items = (item for state in self._everything for item in state.changes())
        named = (item._replace(owner=self._captures.owners.get(id(item.container))) for item in items)
        return [each for place in (*self._captures.changes(), *named) for each in crossings(place)]

    @property
    def captured(self) -> list[mx.array]:
        """The arrays that the function can reach without being given them."""
        return [array for _, array in self._captures.arrays]

    @property
    def constants(self) -> list[mx.array]:
        """The other arrays that a replay needs: buffers, frozen weights, the random key; known after the forward."""
        return [*(array for state in self._restored for array in state.arrays), self._key]

    def hand_over(self, arrays: Sequence[mx.array]) -> None:
        """Put arrays where the forward has left others beside its result."""
        for crossing, array in zip(self.crossings, arrays, strict=True):
            crossing.put(array)
            note_written(array)

    def replay(self, inputs: Sequence[mx.array], constants: Sequence[mx.array]) -> tuple[Any, list[mx.array]]:
        """Run the function again on other arrays, leaving no trace.

        Args:
            inputs: One array for each of ``self.inputs``, of the same shape and dtype.
            constants: One array for each of ``self.constants``, likewise.

        Returns:
            Its result, and what it has left at each of ``self.crossings``.

        Raises:
            CheckpointError: It has left nothing there.
        """
        (args, kwargs), containers = self._arguments.filled(inputs[: self.argument_count])
        captured = inputs[self.argument_count :]
        *ahead, key = constants
        with ExitStack() as stack:
            stack.enter_context(mx.stream(self._stream))
            for state in self._restored:
                count = len(state.arrays)
                stack.enter_context(state.installed(ahead[:count]))
                del ahead[:count]
            stack.enter_context(self._captures.installed([captured[source] for source in self._sources]))
            if self._draws:
                stack.enter_context(random_state.replayed(key))
            result = self._fn(*args, **kwargs)
            return result, [self._in_copies(crossing, containers).get() for crossing in self.crossings]

    @property
    def _restored(self) -> tuple[State, ...]:
        """What a replay goes back to. The dicts and lists among the arguments are copied for it."""
        return self._own, self._others, self._objects

    @property
    def _everything(self) -> tuple[State, ...]:
        return *self._restored, self._given

    def _in_copies(self, crossing: Crossing, containers: Sequence[Any]) -> Crossing:
        """Return a crossing in the copies of the arguments, if it is in an argument."""
        place = crossing.place
        for given, copied in zip(self._arguments.containers, containers, strict=True):
            if isinstance(place, Item) and place.container is given:
                return crossing._replace(place=Item(copied, place.key))
        return crossing
