"""The processes that train together, on MLX's own distributed layer: ``mlx.launch -n 2 tinygpt train …``."""

import json
import os
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from tinygpt.errors import RanksError

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MLX_WORLD_SIZE")
LAUNCHED = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # set by mlx.launch, and by MPI's launchers


class Ranks:
    """This process among those that train together; alone if there is no other.

    Attributes:
        rank: Its number, from 0.
        size: How many there are.
    """

    def __init__(self, group: mx.distributed.Group | None = None) -> None:
        """Be one of a group of MLX's; of none, alone."""
        self._group = group
        self.rank = 0 if group is None else group.rank()
        self.size = 1 if group is None else group.size()
        # Of its own: on the stream that computes, all that comes after would wait for what travels.
        self._stream = mx.default_stream(mx.default_device()) if group is None else mx.new_stream(mx.default_device())

    def averaged(self, tree: Any) -> Any:
        """Return the mean of a tree of arrays over all ranks, which all have to ask for it; not evaluated.

        Small arrays travel together. The order in which MLX adds is its own: two ranks have the same sum as one process
        that adds the two, more of them within rounding.
        """
        if self._group is None:
            return tree
        with mx.stream(self._stream):
            return nn.average_gradients(tree, self._group)

    def largest(self, number: int) -> int:
        """Return the largest of the numbers that the ranks say."""
        return number if self._group is None else max(cast("list[int]", self._all(mx.array([number])).tolist()))

    def gathered(self, text: str) -> list[str]:
        """Return what every rank says, by rank."""
        if self._group is None:
            return [text]
        said = text.encode("utf-8")
        lengths = cast("list[int]", self._all(mx.array([len(said)], mx.int32)).tolist())
        rows = self._all(mx.array([[*said, *bytes(max(lengths) - len(said))]], mx.int32)).tolist()
        return [bytes(row[:length]).decode("utf-8") for row, length in zip(cast("Any", rows), lengths, strict=True)]

    def _all(self, array: mx.array) -> mx.array:
        return mx.distributed.all_gather(array, group=self._group)


def ranks() -> Ranks:
    """Return this process among those that a launcher has started; alone if none has.

    Raises:
        RanksError: The others cannot be reached.
    """
    if not any(name in os.environ for name in LAUNCHED) or _promised() == 1:
        return Ranks()
    try:
        group = mx.distributed.init()
    except RuntimeError as error:
        raise RanksError(f"[ranks] start: got {error}, expected to reach the other ranks") from error
    if group.size() == 1:  # MLX's word for: no backend that the launcher has prepared is in this build
        raise RanksError(
            f"[ranks] start: got a rank alone, expected {_promised() or 'several'}: this build of MLX, "
            f"{mx.default_device()}, cannot use what the launcher has prepared"
        )
    return Ranks(group)


def _promised() -> int:
    """Return how many ranks the launcher says that there are; 0 if it does not."""
    for name in SIZES:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    try:
        hosts = Path(os.environ.get("MLX_HOSTFILE", "")).read_text(encoding="utf-8").strip()
        return len(json.loads(hosts)) if hosts else 1  # mlx.launch -n 1 writes an empty one
    except (OSError, ValueError, TypeError):
        return 0
