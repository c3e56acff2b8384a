"""The arrays of a tree, by name: ``blocks.0.norm.weight`` and the like."""

from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten


def leaves(tree: Any) -> dict[str, mx.array]:
    """Return the arrays in lists, tuples and dicts by their paths, in the order of the tree."""
    return dict(cast("list[tuple[str, mx.array]]", tree_flatten(tree)))
