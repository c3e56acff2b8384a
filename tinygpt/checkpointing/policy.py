"""Which blocks are recomputed: pure data, without MLX."""

from tinygpt.errors import ConfigError

POLICIES = ("none", "all")


def recomputed_blocks(policy: str, n_layer: int) -> frozenset[int]:
    """Return the indices of the blocks that a policy recomputes.

    Args:
        policy: ``none`` or ``all``.
        n_layer: Blocks of the model.

    Raises:
        ConfigError: There is no such policy.
    """
    if policy not in POLICIES:
        raise ConfigError(f"[policy] name: got {policy!r}, expected one of {', '.join(POLICIES)}")
    return frozenset(range(n_layer)) if policy == "all" else frozenset()
