"""Adapters with dropout: wrong gradients under mlx-lm's gradient checkpointing, in every model. MLX and mlx-lm alone.

`mx.checkpoint` (mlx_lm/tuner/trainer.py, `grad_checkpoint`) runs the block again in the backward with another dropout
mask, so that the gradient belongs to adapters that never ran.
"""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.tuner.trainer import grad_checkpoint
from mlx_lm.tuner.utils import linear_to_lora_layers

CONFIG = {"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 96, "rms_norm_eps": 1e-5}  # fmt: skip


def gradients(model, tokens):
    def loss(model):
        return nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).mean()

    mx.random.seed(1)  # the same masks
    return dict(tree_flatten(nn.value_and_grad(model, loss)(model)[1]))


mx.random.seed(0)
model, tokens = Model(ModelArgs.from_dict(CONFIG)), mx.random.randint(0, 96, (2, 13))
model.freeze()
linear_to_lora_layers(model, 2, {"rank": 4, "scale": 10.0, "dropout": 0.1})
model.train()
plain = gradients(model, tokens)
grad_checkpoint(model.layers[0])
checkpointed = gradients(model, tokens)
wrong = [name for name, each in plain.items() if not mx.allclose(each, checkpointed[name], atol=1e-6)]
print(f"llama with adapters: {len(wrong)} of {len(plain)} gradients are wrong")
assert wrong
