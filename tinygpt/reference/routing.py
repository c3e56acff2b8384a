"""The decisions of the reference's routers: made once, recorded, and repeated on demand.

A rounding error that turns a choice around changes a gradient by as much as an expert does, and says nothing about
rounding. So the decisions of a run can be handed to another, and how near they were is known.
"""

import math
from collections.abc import Mapping

import torch


class Routes:
    """What the routers of a model choose.

    Attributes:
        chosen: The chosen indices by the name of the router, the highest score first.
        margin: Smallest gap between the last chosen and the first not chosen score, as a share of the distance from
            that decision's highest to its lowest score; infinite if nothing was decided.
    """

    def __init__(self, chosen: Mapping[str, torch.Tensor] | None = None) -> None:
        """Begin without decisions, or with those of another run, which are repeated."""
        self.chosen = dict(chosen or {})
        self.margin = math.inf

    def choose(self, router: str, scores: torch.Tensor, count: int) -> torch.Tensor:
        """Return the indices of the ``count`` highest scores; of equal ones, the lowest index first.

        A router that has decided is not asked again: so a recomputed block chooses as it did before.

        Shape:
            (..., N) to (..., count) integers.
        """
        if router not in self.chosen:
            # Not torch.topk, which promises nothing about equal scores.
            ordered, indices = torch.sort(scores.detach(), dim=-1, descending=True, stable=True)
            self.chosen[router] = indices[..., :count]
            self.margin = min(self.margin, _smallest_gap(ordered, count))
        return self.chosen[router]


def _smallest_gap(ordered: torch.Tensor, count: int) -> float:
    """Return the smallest relative gap after the first ``count`` of sorted scores, equal scores left out."""
    if count == ordered.shape[-1]:
        return math.inf
    gaps = (ordered[..., count - 1] - ordered[..., count]) / (ordered[..., 0] - ordered[..., -1])
    # Equal scores are no near tie: the index decides, on both sides. A tie of exact arithmetic may be none in float32,
    # though, if the scores come from different tokens: then neither side's index decides.
    return min(gaps[gaps > 0].tolist(), default=math.inf)
