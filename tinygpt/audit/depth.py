"""A configuration of a model of mlx-lm's that is several times as deep, with the same mix of blocks."""

import re
from collections.abc import Iterator
from typing import Any

# The fields of mlx-lm's configurations that count blocks, and those that name blocks by their positions.
COUNTS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "num_transformer_layers")
PARTS = ("num_kv_shared_layers", "num_kv_reuse_layers")
POSITIONS = (
    "full_attn_idxs",
    "full_attn_layers",
    "index_source_layer_ids",
    "kda_layers",
    "kv_source_layer_ids",
    "sliding_window_layers",
)
PATTERN = "hybrid_override_pattern"  # a letter for each block, where there is no count
PATH = re.compile(r"(?<=\blayers\.)\d+")


def deeper(config: dict[str, Any], times: int) -> dict[str, Any]:
    """Return a configuration with ``times`` as many blocks.

    Args:
        config: As ``tinygpt.audit.configurations.tiny_config`` returns it; it stays as it is.
        times: At least 1.
    """
    return _deeper(config, times, 0)


def _deeper(config: dict[str, Any], times: int, around: int) -> dict[str, Any]:
    """Return a part of a configuration; ``around`` is the depth that the whole says."""
    depth = _depth(config) or around
    return {name: _value(name, value, times, depth) for name, value in config.items()}


def _depth(config: dict[str, Any]) -> int:
    """Return how many blocks a configuration says, itself or in a part of it; 0 if it says nothing."""
    counts: Iterator[int] = (config[name] for name in COUNTS if config.get(name))
    parts = (_depth(part) for part in config.values() if isinstance(part, dict))
    return next(counts, 0) or len(config.get(PATTERN) or ()) or next(filter(None, parts), 0)


def _value(name: str, value: Any, times: int, depth: int) -> Any:
    if isinstance(value, dict):
        return value if name.startswith("rope_") else _deeper(value, times, depth)
    if name in (*COUNTS, *PARTS):
        return value and value * times
    if not isinstance(value, list):
        return value
    if name in POSITIONS:
        return [position + depth * part for part in range(times) for position in value]
    if value and all(isinstance(each, dict) and "path" in each for each in value):
        return [{**each, "path": _further(each["path"], depth * part)} for part in range(times) for each in value]
    return value * times if len(value) == depth else value


def _further(path: str, blocks: int) -> str:
    """Return the path of the same module, so many blocks further on."""
    return PATH.sub(lambda position: str(int(position[0]) + blocks), path)
