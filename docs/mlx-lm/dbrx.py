"""dbrx: gradient checkpointing takes more memory than none. MLX and mlx-lm alone.

A block reads its router's choice while it runs (dbrx.py, line 152: `inds = np.array(inds)`), which evaluates the
recomputation while the graph of the backward is still being built: what is recomputed is there before it is needed, for
all blocks at once, beside the graph that is to compute it again. `mx.compile` refuses such a block.
"""

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.dbrx import Model, ModelArgs
from mlx_lm.tuner.trainer import grad_checkpoint

CONFIG = {"model_type": "dbrx", "vocab_size": 96, "d_model": 64, "n_layers": 4, "n_heads": 4,
          "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
          "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0}}  # fmt: skip


def peak(model, tokens):
    def loss(model):
        return nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).mean()

    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(nn.value_and_grad(model, loss)(model))
    return mx.get_peak_memory() - before


mx.random.seed(0)
model, tokens = Model(ModelArgs.from_dict(CONFIG)).train(), mx.random.randint(0, 96, (2, 97))
mx.eval(model.parameters(), tokens)
plain = peak(model, tokens)
grad_checkpoint(model.layers[0])
checkpointed = peak(model, tokens)
print(f"dbrx: peak {plain / 1e6:.1f} MB plain, {checkpointed / 1e6:.1f} MB checkpointed")
assert checkpointed > plain
