"""afm7: wrong gradients under mlx-lm's gradient checkpointing. MLX and mlx-lm alone.

The last block before the shared ones writes keys and values into a cache that `Model` makes for it (afm7.py, line 354:
`cache[-1] = ConcatenateKVCache()`, filled in line 210: `cache.update_and_fetch`). The wrapper of `mlx_lm.lora
--grad-checkpoint` runs the block again in the backward, on a cache that is full: it appends to the forward's keys, and
attends to twice as many tokens. What the cache hands to the later blocks has no gradient either.
"""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.afm7 import Model, ModelArgs
from mlx_lm.tuner.trainer import grad_checkpoint

CONFIG = {"model_type": "afm7", "vocab_size": 96, "hidden_dim": 64, "num_layers": 6, "num_kv_reuse_layers": 2,
          "num_heads": 4, "num_kv_heads": 2, "hidden_dim_scale_factor": 1.5, "rope_theta": 10000.0,
          "rms_norm_eps": 1e-5}  # fmt: skip


def gradients(model, tokens):
    def loss(model):
        return nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).mean()

    return dict(tree_flatten(nn.value_and_grad(model, loss)(model)[1]))


mx.random.seed(0)
model, tokens = Model(ModelArgs.from_dict(CONFIG)), mx.random.randint(0, 96, (2, 13))
plain = gradients(model, tokens)
grad_checkpoint(model.layers[0])
checkpointed = gradients(model, tokens)
wrong = [name for name, each in plain.items() if not mx.allclose(each, checkpointed[name], atol=1e-5)]
print(f"afm7: {len(wrong)} of {len(plain)} gradients are wrong")
assert wrong
