"""A value that several things use, as a node of its own in MLX's graph."""

import mlx.core as mx


def own_node(x: mx.array) -> mx.array:
    """Return ``x`` as a node of its own, which is a view and costs nothing.

    The gradients of all that uses the node are added up there, before they meet those of other uses of ``x``. So what
    uses it and its checkpointed self, which hands back one sum, round alike although the stream is used beside it. On
    the CPU, MLX's norm alone uses its argument several times.
    """
    return mx.expand_dims(x, 0).squeeze(0)
