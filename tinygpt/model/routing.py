"""Choosing the highest scores, the same ones everywhere.

``mx.argpartition`` promises nothing about equal scores. Here ties go to the lowest index, so that a recomputation,
another backend and another framework choose alike.
"""

import mlx.core as mx


def highest(scores: mx.array, count: int) -> mx.array:
    """Return the indices of the ``count`` highest scores, the highest first; no gradient flows.

    Shape:
        (..., N) to (..., count) integers.
    """
    # MLX sorts stably: std::stable_sort on the CPU, merge sort on Metal, a stable radix or segmented sort on CUDA.
    return mx.argsort(-mx.stop_gradient(scores), axis=-1)[..., :count]
