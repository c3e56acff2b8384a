"""Which blocks are recomputed: pure data, without MLX."""

import re
from dataclasses import dataclass

from tinygpt.errors import ConfigError

POLICIES = ("none", "all", "every:K", "first:N")

_NAME = re.compile(r"(none|all)|(every|first):([1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True)
class Policy:
    """A policy, taken apart.

    Attributes:
        kind: ``none``, ``all``, ``every`` or ``first``.
        number: K or N, where the kind has one; otherwise 1.
    """

    kind: str
    number: int = 1

    def blocks(self, n_layer: int) -> frozenset[int]:
        """Return the indices of the blocks that are recomputed in a model of ``n_layer`` blocks.

        ``every:K`` is the first of every K blocks, ``first:N`` the first N: they keep their activations longest.
        """
        ranges = {
            "none": range(0),
            "all": range(n_layer),
            "every": range(0, n_layer, self.number),
            "first": range(min(self.number, n_layer)),
        }
        return frozenset(ranges[self.kind])


def parsed(policy: str) -> Policy:
    """Return the policy of that name.

    Raises:
        ConfigError: There is no such policy.
    """
    match = _NAME.fullmatch(policy)
    if match is None:
        raise ConfigError(f"[policy] name: got {policy!r}, expected one of {', '.join(POLICIES)}")
    plain, kind, number = match.groups()
    return Policy(plain) if plain else Policy(kind, int(number))


def recomputed_blocks(policy: str, n_layer: int) -> frozenset[int]:
    """Return the indices of the blocks that a policy recomputes.

    Args:
        policy: ``none``, ``all``, ``every:K`` or ``first:N``.
        n_layer: Blocks of the model.

    Raises:
        ConfigError: There is no such policy.
    """
    return parsed(policy).blocks(n_layer)
