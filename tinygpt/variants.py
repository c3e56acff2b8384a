"""Every kind of block, as a table: what the suites run one by one and in pairs.

A variant is what it changes in a configuration. Those that change the same field exclude one another; all others
combine.
"""

import dataclasses
import itertools
from typing import Any

from tinygpt.config import GPTConfig
from tinygpt.errors import ConfigError

VARIANTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "dropout": {"dropout": 0.1},
    "rotary": {"position": "rotary"},
    "rms": {"norm": "rms"},
    "swiglu": {"feed_forward": "swiglu"},
    "grouped": {"n_kv_head": 2},
    "window": {"window": 5},
    "differential": {"attention": "differential"},
    "experts": {"n_expert": 4, "top_k": 2},
    "dense-experts": {"n_expert": 4, "top_k": 2, "expert_products": "dense"},
    "switch": {"n_expert": 4, "top_k": 1},
    "depths": {"mod_capacity": 0.5},
    "yoco": {"yoco": True},
}

# Small enough to run by the thousand, and of no size twice, so that a wrong axis shows.
SMALL = GPTConfig(n_layer=4, n_head=4, n_embd=16, n_mlp=24, context=33, vocab_size=29)


def combined(*names: str, base: GPTConfig = SMALL) -> GPTConfig:
    """Return a configuration with these variants.

    Raises:
        ConfigError: Two of them change one field.
    """
    changes: dict[str, Any] = {}
    for name in names:
        for field in sorted(VARIANTS[name].keys() & changes.keys(), reverse=True):
            raise ConfigError(f"[variants] {name}: got {field} a second time, expected variants that combine")
        changes |= VARIANTS[name]
    return dataclasses.replace(base, **changes)


def pairs() -> list[tuple[str, str]]:
    """Return the pairs that combine, each once; dense, which changes nothing, is in none."""
    names = [name for name in VARIANTS if name != "dense"]
    return [(a, b) for a, b in itertools.combinations(names, 2) if not VARIANTS[a].keys() & VARIANTS[b].keys()]
