"""kimi_k3: wrong gradients under mlx-lm's gradient checkpointing. MLX and mlx-lm alone.

Blocks append their output to a `ResidualBlocks` that is passed along as an argument (kimi_k3.py, line 721:
`blocks.append(partial_sum)`; the arrays are kept in its attributes, lines 177 to 182), and later blocks read it there.
The wrapper of `mlx_lm.lora --grad-checkpoint` sees arrays among arguments and results alone: what goes through the
object has no gradient, and the recomputation appends once more.
"""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.kimi_k3 import Model, ModelArgs
from mlx_lm.tuner.trainer import grad_checkpoint

ATTENTION = {"kda_layers": [1, 2, 3, 5, 6, 7], "full_attn_layers": [4, 8], "num_heads": 2, "head_dim": 32,
             "short_conv_kernel_size": 4, "gate_lower_bound": -5.0, "use_full_rank_gate": True}  # fmt: skip
TEXT = {"model_type": "kimi_k3", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 96, "rms_norm_eps": 1e-5, "max_position_embeddings": 128,
        "linear_attn_config": ATTENTION, "activation_situ_beta": 4.0, "activation_situ_linear_beta": 16.0,
        "attn_res_block_size": 3, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "mla_use_output_gate": True, "num_experts": 4, "num_experts_per_token": 2,
        "num_shared_experts": 1, "moe_intermediate_size": 32, "routed_scaling_factor": 2.5, "first_k_dense_replace": 2,
        "moe_layer_freq": 1, "num_expert_group": 1, "topk_group": 1, "routed_expert_hidden_size": 32,
        "latent_moe_use_norm": True, "tie_word_embeddings": False}  # fmt: skip


def gradients(model, tokens):
    def loss(model):
        return nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).mean()

    return dict(tree_flatten(nn.value_and_grad(model, loss)(model)[1]))


mx.random.seed(0)
model = Model(ModelArgs.from_dict({"model_type": "kimi_k3", "text_config": TEXT})).train()
tokens = mx.random.randint(0, 96, (2, 13))
plain = gradients(model, tokens)
grad_checkpoint(model.layers[0])
checkpointed = gradients(model, tokens)
wrong = [name for name, each in plain.items() if not mx.allclose(each, checkpointed[name], atol=1e-5)]
print(f"kimi_k3: {len(wrong)} of {len(plain)} gradients are wrong")
assert wrong
