"""The sizes of a tiny model of every architecture of mlx-lm.

A value is taken for the field of that name of an architecture's ``ModelArgs``: from ``ARCHITECTURES`` of
``tinygpt.audit.tiny_architectures`` first, then from ``FIELDS``. A field that neither names keeps its own default.
Lists that say something about each block are as long as the architecture has blocks, in the order in which real
checkpoints mix the kinds, only with shorter periods.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Of:
    """A nested configuration: that of an architecture, or of a class of its module that is not ``ModelArgs``."""

    architecture: str
    arguments: str = "ModelArgs"
    changes: dict[str, Any] = field(default_factory=dict)


SLIDING, FULL = "sliding_attention", "full_attention"
YARN = {
    "type": "yarn",
    "rope_type": "yarn",
    "factor": 4.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 32,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KDA = {
    "kda_layers": [1, 2, 3, 5, 6, 7],
    "full_attn_layers": [4, 8],
    "num_heads": 2,
    "head_dim": 32,
    "short_conv_kernel_size": 4,
}
MINISTRAL = {**YARN, "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1}

# Packages that an architecture's module imports only to see that they are there, and without which it ends the process.
UNUSED_IMPORTS = {"olmo": "hf_olmo"}

FIELDS: dict[str, Any] = {
    # How wide and how deep
    "hidden_size": 64,
    "hidden_dim": 64,
    "model_dim": 64,
    "d_model": 64,
    "n_embd": 64,
    "num_hidden_layers": 4,
    "num_layers": 4,
    "n_layers": 4,
    "n_layer": 4,
    "intermediate_size": 96,
    "mlp_hidden_size": 96,
    "ffn_hidden_size": 96,
    "ff_intermediate_size": 96,
    "n_inner": 96,
    "vocab_size": 96,
    "num_vocab": 96,
    "embedding_size": 96,
    "vocab_size_per_layer_input": 96,
    "max_position_embeddings": 128,
    "model_max_length": 128,
    "n_positions": 128,
    "n_ctx": 128,
    "block_size": 128,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "layernorm_epsilon": 1e-5,
    "norm_eps": 1e-5,
    "norm_epsilon": 1e-5,
    "post_norm_eps": 1e-5,
    # Attention
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_heads": 4,
    "n_head": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "n_kv_heads": 2,
    "num_attention_groups": 2,
    "n_shared_head": 2,
    "head_dim": 16,
    "kv_channels": 16,
    "hidden_size_per_head": 16,
    "rotary_dim": 8,
    "rotary_pct": 0.5,
    "partial_rotary_factor": 0.5,
    "rope_theta": 10000.0,
    "rotary_emb_base": 10000,
    "rope_local_base_freq": 1000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
    "use_qkv_bias": False,
    "use_qk_norm": True,
    "qk_norm": True,
    "qk_layernorm": True,
    "sliding_window": 8,
    "window_size": 8,
    "sliding_window_size": 8,
    "attention_window_size": 8,
    "loop_window_size": 8,
    # Latent attention, and its sparse indexer
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "index_head_dim": 32,
    "index_n_heads": 2,
    "index_topk": 8,
    # Experts
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "moe_top_k": 2,
    "moe_k": 2,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "moe_num_shared_experts": 1,
    "num_shared_expert": 1,
    "moe_intermediate_size": 32,
    "expert_ffn_hidden_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "share_expert_dim": 32,
    "first_k_dense_replace": 2,
    "num_dense_layers": 2,
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "num_expert_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 0,
    # State spaces, convolutions and linear attention
    "state_size": 16,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "conv_L_cache": 3,
    "conv_bias": False,
    "use_conv_bias": True,
    "n_groups": 1,
    "time_step_rank": 32,
    "time_step_limit": [0.001, 100.0],
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "mamba_proj_bias": False,
    "mamba_conv_bias": True,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "layer_group_size": 2,
    "group_norm_size": 2,
    "short_conv_kernel_size": 4,
    # Multipliers
    "embedding_multiplier": 4.0,
    "attention_multiplier": 0.125,
    "residual_multiplier": 0.5,
    "logits_scaling": 2.0,
    "scale_emb": 4,
    "scale_depth": 1.4,
    "dim_model_base": 32,
}
