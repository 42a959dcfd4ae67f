"""Hybrids beside make_hf.py's own: their configurations, and what files in older forms look like."""

import torch
import transformers as hf

SEQ = 20
BASE = dict(vocab_size=37, hidden_size=16, intermediate_size=24, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=SEQ, bos_token_id=None,
            eos_token_id=None, pad_token_id=None)
DEFAULT = dict(rope_type="default", rope_theta=100.0)
MAMBA = dict(mamba_d_ssm=24, mamba_n_heads=6, mamba_d_head=4, mamba_n_groups=2, mamba_d_state=5,
             mamba_d_conv=3, mamba_chunk_size=8)
TIMES = dict(lm_head_multiplier=0.7, embedding_multiplier=3.0, mlp_multipliers=[1.3, 0.6],
             key_multiplier=0.4, attention_in_multiplier=1.2, attention_out_multiplier=0.8,
             ssm_multipliers=[0.5, 0.9, 1.1, 1.4, 0.7], ssm_in_multiplier=1.6,
             ssm_out_multiplier=0.3)
NEMOTRON = dict(mamba_num_heads=6, mamba_head_dim=4, n_groups=2, ssm_state_size=5, conv_kernel=3,
                chunk_size=8, head_dim=6)
KIMI = dict(num_key_value_heads=4, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4,
            v_head_dim=5, moe_intermediate_size=12, num_local_experts=6, num_experts_per_tok=2,
            linear_head_dim=5, linear_num_heads=3, linear_conv_kernel_dim=3)
SEEDS = {"lfm2": 311, "lfm2_older": 312, "falcon_h1": 313, "falcon_h1_normed": 314,
         "falcon_h1_gated": 315, "nemotron_h": 316, "nemotron_h_older": 317, "kimi_linear": 318,
         "kimi_linear_older": 319}
WITH_GRADIENTS = ("lfm2", "falcon_h1", "nemotron_h", "kimi_linear")
TYPES = ("lfm2", "falcon_h1", "nemotron_h", "kimi_linear")


def models(config):
    lfm2, falcon, nemotron = hf.Lfm2Config, hf.FalconH1Config, hf.NemotronHConfig
    kimi = hf.KimiLinearConfig
    return {
        # Feed-forward layers of 20: 2/3 of 24, times 1.2, a multiple of 5.
        "lfm2": (config(lfm2, BASE, num_hidden_layers=4, rope_parameters=DEFAULT,
                        layer_types=["conv", "full_attention", "conv", "conv"],
                        block_multiple_of=5, block_ffn_dim_multiplier=1.2), torch.float32),
        # As published, with keys of before layer_types.
        "lfm2_older": (config(lfm2, BASE, num_hidden_layers=3, rope_parameters=DEFAULT,
                              layer_types=["conv", "conv", "full_attention"], conv_L_cache=4,
                              head_dim="absent", norm_eps=1e-3, tie_word_embeddings=False,
                              block_auto_adjust_ff_dim=False), torch.bfloat16),
        "falcon_h1": (config(falcon, BASE, **MAMBA, **TIMES, num_hidden_layers=2, head_dim=6,
                             rope_parameters=DEFAULT), torch.float32),
        # As published for transformers 4, with a norm.
        "falcon_h1_normed": (config(falcon, BASE, **MAMBA, num_hidden_layers=1,
                                    mamba_rms_norm=True, mamba_norm_before_gate=False,
                                    mamba_conv_bias=False, tie_word_embeddings=True,
                                    rope_parameters=DEFAULT), torch.bfloat16),
        "falcon_h1_gated": (config(falcon, BASE, **MAMBA, **TIMES, num_hidden_layers=1,
                                   mamba_rms_norm=True, rope_parameters=DEFAULT),
                            torch.float32),
        # Some steps are less than the least one.
        "nemotron_h": (config(nemotron, BASE, **NEMOTRON, time_step_min=0.7,
                              layers_block_type=["linear_attention", "mlp", "full_attention", "mlp",
                                                 "linear_attention"]), torch.float32),
        # As published for its own code.
        "nemotron_h_older": (config(nemotron, BASE, **NEMOTRON, use_conv_bias=False,
                                    layers_block_type=["full_attention", "linear_attention", "mlp"]),
                             torch.bfloat16),
        "kimi_linear": (config(kimi, BASE | KIMI, num_hidden_layers=3, n_shared_experts=2,
                               layer_types=["linear_attention", "full_attention",
                                            "linear_attention"]), torch.float32),
        # As published, and with groups of experts, which it could have.
        "kimi_linear_older": (config(kimi, BASE | KIMI, num_hidden_layers=2, q_lora_rank=7,
                                     n_group=2, topk_group=1, norm_topk_prob=False,
                                     routed_scaling_factor=1.5, layer_types=["full_attention",
                                                                             "linear_attention"],
                                     mlp_layer_types=["sparse", "sparse"]), torch.bfloat16),
    }


def make_older(name, data):
    if name == "lfm2_older":
        data.update(block_ff_dim=data["intermediate_size"], intermediate_size=99,
                    tie_embedding=data.pop("tie_word_embeddings"), full_attn_idxs=[2],
                    rope_theta=data.pop("rope_parameters")["rope_theta"])
        data.pop("layer_types")
    if name == "falcon_h1_normed":
        rope = data.pop("rope_parameters")
        data.update(rope_theta=rope["rope_theta"], rope_scaling=None)
    if name == "nemotron_h_older":
        data.pop("layers_block_type")
        data.update(hybrid_override_pattern="*M-", num_hidden_layers=3)
    if name == "kimi_linear":
        data["aux_loss_alpha"] = 0.0
    if name == "kimi_linear_older":
        data.pop("layer_types")
        data.pop("mlp_layer_types")
        data.update(first_k_dense_replace=0, mla_use_nope=True, moe_layer_freq=1,
                    moe_router_activation_func="sigmoid", num_nextn_predict_layers=0,
                    rope_scaling=None, rope_theta=10000.0, use_grouped_topk=True,
                    auto_map={"AutoModelForCausalLM": "modeling_kimi.KimiLinearForCausalLM"},
                    linear_attn_config=dict(
                        kda_layers=[2], full_attn_layers=[1], head_dim=data.pop("linear_head_dim"),
                        num_heads=data.pop("linear_num_heads"),
                        short_conv_kernel_size=data.pop("linear_conv_kernel_dim")))
