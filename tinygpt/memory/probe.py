"""The peak of a step that is not ours, from readings at a few small shapes.

A transformer's step takes what does not depend on the batch, what grows with its tokens, and what grows with the square
of the context. Three numbers, fitted to readings; and how far the fit is off where it can be checked. Which moment of
a step is the peak changes with the context, and no reading at short ones tells: so read at the context that is meant,
with few sequences. In the number of sequences a peak is straight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tinygpt.errors import MeasureError
from tinygpt.memory.measure import measure

LEAST_SHAPES = 4  # three numbers are fitted, and one reading is left to check them


@dataclass(frozen=True)
class Probe:
    """A fit to readings of a step.

    Attributes:
        shapes: Batch and context of each reading.
        peaks_bytes: The peak of each, with what was there before.
        coefficients: Bytes of a step; of a token; and of a token for each token of its context.
        error: The largest relative error of a reading that is predicted from all others.
    """

    shapes: tuple[tuple[int, int], ...]
    peaks_bytes: tuple[int, ...]
    coefficients: tuple[float, float, float]
    error: float

    def peak_bytes(self, batch: int, context: int) -> int:
        """Return the peak at another shape; beyond the contexts that were read it may be off by more."""
        return round(float(_terms([(batch, context)])[0] @ np.array(self.coefficients)))


def probe(step: Callable[[int, int], Any], shapes: Sequence[tuple[int, int]]) -> Probe:
    """Measure a step at a few small shapes, and fit what its peak depends on.

    Args:
        step: Runs one step for a batch and a context, evaluates it, and returns what it keeps.
        shapes: At least four pairs of batch and context, with two different ones of each.

    Raises:
        MeasureError: The shapes do not tell the terms apart.
    """
    terms = _terms(shapes)
    if len(shapes) < LEAST_SHAPES or _least_rank(terms) < terms.shape[1]:
        raise MeasureError(
            f"[probe] shapes: got {list(shapes)}, expected at least {LEAST_SHAPES} with different batches and "
            "contexts, such that any of them could be left out"
        )
    peaks = []
    for shape in shapes:
        reading = measure(partial(step, *shape), schedule="training step")
        peaks.append(reading.base_bytes + reading.peak_bytes)
    found = np.array(peaks, float)
    errors = []
    for left_out in range(len(shapes)):
        rest = [place for place in range(len(shapes)) if place != left_out]
        predicted = terms[left_out] @ _fitted(terms[rest], found[rest])
        errors.append(abs(predicted / found[left_out] - 1))
    first, second, third = map(float, _fitted(terms, found))
    return Probe(tuple(map(tuple, shapes)), tuple(peaks), (first, second, third), float(max(errors)))  # type: ignore[arg-type]


def _terms(shapes: Sequence[tuple[int, int]]) -> npt.NDArray[np.floating]:
    return np.array([(1, batch * context, batch * context * context) for batch, context in shapes], float)


def _least_rank(terms: npt.NDArray[np.floating]) -> int:
    """Return the rank that is left whichever reading is left out."""
    scaled = terms / terms.max(axis=0)
    return min(int(np.linalg.matrix_rank(np.delete(scaled, place, axis=0))) for place in range(len(terms)))


def _fitted(terms: npt.NDArray[np.floating], peaks: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return the least squares of the relative errors: a large reading is not worth more than a small one."""
    scale = terms.max(axis=0)
    found, *_ = np.linalg.lstsq(terms / scale / peaks[:, None], np.ones(len(peaks)), rcond=None)
    result: npt.NDArray[np.floating] = found / scale
    return result
