"""A checkpoint wrapper of somebody's own, as many are written."""

import mlx.core as mx
import mlx.nn as nn


def checkpoint_block(module: nn.Module, fn=None):
    """Run the module, forget its activations, and run it again when a gradient is wanted."""
    run = module if fn is None else fn

    def with_parameters(parameters, *args, **kwargs):
        before = module.trainable_parameters()
        module.update(parameters)
        try:
            return run(*args, **kwargs)
        finally:
            module.update(before)

    checkpointed = mx.checkpoint(with_parameters)
    return lambda *args, **kwargs: checkpointed(module.trainable_parameters(), *args, **kwargs)
