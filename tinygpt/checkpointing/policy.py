"""Which blocks are recomputed, and how much of them: pure data, without MLX.

A policy is a name; with the depth of a model it becomes a plan.
"""

import itertools
import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from tinygpt.errors import ConfigError
from tinygpt.plan import Plan, Recompute, Segment

POLICIES = ("none", "all", "every:K", "first:N", "segments:K", "sqrt", "attention", "selective", "halves")

# One of every kind that recomputes, and mixtures: what the suites run, and what fits a model of four blocks.
EXAMPLES = (
    *("all", "every:2", "first:2", "segments:2", "sqrt", "attention", "selective", "halves"),
    *("first:2+selective", "every:2+attention"),
)

_PARTS = ("attention", "selective", "halves")
_NAME = re.compile(
    rf"(?P<kind>none|all|sqrt|segments:(?P<segments>[1-9]\d{{0,8}})|{'|'.join(_PARTS)})"
    rf"|(?P<some>every|first):(?P<number>[1-9]\d{{0,8}})(?:\+(?P<rest>{'|'.join(_PARTS)}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Policy:
    """A policy, taken apart.

    Attributes:
        kind: ``none``, ``all``, ``every``, ``first``, ``segments``, ``sqrt``, ``attention``, ``selective``, ``halves``.
        number: K or N, where the kind has one; otherwise 1.
        rest: What is recomputed of the blocks that ``every`` and ``first`` leave.
    """

    kind: str
    number: int = 1
    rest: Recompute = Recompute.NOTHING

    def plan(self, n_layer: int, *, cuts: Collection[int] = ()) -> Plan:
        """Return what happens to each block of a model.

        ``every:K`` recomputes the first of every K blocks, ``first:N`` the first N, whose activations would be kept
        longest. ``segments:K`` recomputes K runs of blocks, each as one; ``sqrt`` is that with K near the root of the
        depth (Chen et al. 2016, https://arxiv.org/abs/1604.06174).

        Args:
            n_layer: Blocks of the model.
            cuts: Blocks before which a segment has to end: something happens there that is no block's.
        """
        if self.kind in ("segments", "sqrt"):
            count = math.isqrt(n_layer) if self.kind == "sqrt" else min(self.number, n_layer)
            edges = sorted({index * n_layer // count for index in range(count)} | {*cuts, n_layer})
            return tuple(Segment(a, b - a, Recompute.BLOCK) for a, b in itertools.pairwise(edges))
        whole = {
            "none": range(0),
            "all": range(n_layer),
            "every": range(0, n_layer, self.number),
            "first": range(min(self.number, n_layer)),
        }.get(self.kind, range(0))
        rest = Recompute(self.kind) if self.kind in _PARTS else self.rest
        return tuple(Segment(index, 1, Recompute.BLOCK if index in whole else rest) for index in range(n_layer))


def parsed(policy: str) -> Policy:
    """Return the policy of that name.

    Raises:
        ConfigError: There is no such policy.
    """
    match = _NAME.fullmatch(policy)
    if match is None:
        raise ConfigError(
            f"[policy] name: got {policy!r}, expected one of {', '.join(POLICIES)}, or first:N+selective and the like"
        )
    if match["some"]:
        return Policy(match["some"], int(match["number"]), Recompute(match["rest"] or Recompute.NOTHING))
    return Policy("segments", int(match["segments"])) if match["segments"] else Policy(match["kind"])


def plan(policy: str, n_layer: int, *, cuts: Collection[int] = ()) -> Plan:
    """Return the plan of a policy for a model of that depth; see ``Policy.plan``.

    Raises:
        ConfigError: There is no such policy.
    """
    return parsed(policy).plan(n_layer, cuts=cuts)
