"""Ranks that train together have to agree on everything that a step depends on, before the first one."""

import hashlib
import json
from typing import Any

import mlx.core as mx
import numpy as np

from tinygpt.environment import written_by
from tinygpt.errors import RanksError
from tinygpt.leaves import leaves
from tinygpt.model import GPT
from tinygpt.tinygpt_file import Header
from tinygpt.train.ranks import Ranks


def agree(ranks: Ranks, header: Header, model: GPT) -> None:
    """Make sure that all ranks are about to do the same.

    Args:
        ranks: They all have to ask.
        header: What the rank is to do, with its text and the step that it begins after.
        model: With its first weights.

    Raises:
        RanksError: A rank has another configuration, text, release or weights than rank 0: on every rank the same.
    """
    if ranks.size == 1:
        return
    said = [json.loads(text) for text in ranks.gathered(json.dumps(_stated(header, model)))]
    for rank, other in enumerate(said):
        for name in sorted(said[0].keys() | other.keys()):
            got, expected = other.get(name), said[0].get(name)
            if got != expected:
                raise RanksError(f"[ranks] {name} of rank {rank}: got {got}, expected {expected}, as on rank 0")


def _stated(header: Header, model: GPT) -> dict[str, Any]:
    """Return everything that has to be equal, flat, by name."""
    stated = header.as_dict()
    stated["data"].pop("corpus")  # the same text may stand elsewhere on another machine
    return {**_flat("", {**stated, "written_by": written_by()}), "weights": _digest(model)}


def _flat(path: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {name: each for key, held in value.items() for name, each in _flat(f"{path}.{key}".strip("."), held).items()}


def _digest(model: GPT) -> str:
    """Return what tells weights from others, by their sums."""
    sums = {name: array.astype(mx.float32).sum() for name, array in leaves(model.parameters()).items()}
    mx.eval(sums)
    return hashlib.sha256(b"".join(np.array(each).tobytes() for each in sums.values())).hexdigest()[:16]
