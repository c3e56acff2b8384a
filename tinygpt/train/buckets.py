"""Which gradients are added up, averaged and evaluated together, one bucket after another as the backward pass goes.

Taken whole, a sum and what is added to it are there twice. MLX by itself would also leave all of it to the end, and
nothing would travel while gradients are still to come. Last in the model is first in the backward pass, as in the
buckets of Li et al. 2020, "PyTorch Distributed", arXiv:2006.15704, section 3.2; here a block is never divided.
"""

from collections.abc import Mapping

import mlx.core as mx

from tinygpt.memory.estimate import BUCKET_BYTES


def buckets(gradients: Mapping[str, mx.array]) -> list[list[str]]:
    """Return the names of gradients by bucket: the last blocks' first, and at the end what is no block's.

    Args:
        gradients: By parameter: ``blocks.0.norm.weight`` and the like. All ranks have to give the same.
    """
    found: list[list[str]] = []
    size = BUCKET_BYTES
    before: int | None = None
    for name in sorted(gradients, key=_turn):
        if size >= BUCKET_BYTES and _turn(name) != before:
            found.append([])
            size = 0
        found[-1].append(name)
        size += gradients[name].nbytes
        before = _turn(name)
    return found


def _turn(name: str) -> int:
    """Return when the turn of a gradient comes."""
    first, _, rest = name.partition(".")
    return -int(rest.partition(".")[0]) if first == "blocks" else 1
