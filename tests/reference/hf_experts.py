"""Mixtures of experts of make_hf.py: configurations of tiny models, and what makes their files look
as published."""

import torch
import transformers as hf

# name -> seed: with some weights, two experts would be chosen by f32's rounding.
SEEDS = {"glm4_moe": 201, "glm4_moe_grouped": 202, "dots1": 203, "ernie4_5_moe": 204,
         "ernie4_5_moe_every": 205, "minimax_m2": 206, "granitemoe": 207, "granitemoeshared": 208,
         "qwen3_moe_every": 209, "llama4_scout": 210, "llama4_maverick": 211, "llama4_pictures": 212}
WITH_GRADIENTS = ("ernie4_5_moe", "llama4_scout")
SEQ = 20
MULTIPLIERS = dict(embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.6,
                   logits_scaling=1.7)


def rope(**more):  # a new one each time: a configuration changes what it is given
    return dict(rope_type="default", rope_theta=100.0, **more)


def models(config, llama):
    """name -> configuration, dtype. config makes one of a base, llama."""
    scout = dict(num_local_experts=3, num_experts_per_tok=1, intermediate_size=8,
                 intermediate_size_mlp=24, attention_chunk_size=SEQ, router_aux_loss_coef=0.0)
    # As published, no frequency lies between what is divided and what is not.
    llama3 = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0,
                  high_freq_factor=1.0, original_max_position_embeddings=16)
    yarn = dict(rope_type="yarn", rope_theta=100.0, factor=8.0, beta_fast=2.0, beta_slow=0.5,
                original_max_position_embeddings=16)
    vision = dict(hidden_size=8, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
                  image_size=8, patch_size=4, vision_output_dim=8, projector_input_dim=8,
                  projector_output_dim=8, pixel_shuffle_ratio=0.5)
    glm = dict(n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=12,
               first_k_dense_replace=1, num_mtp_layers=0)
    ernie = dict(moe_num_experts=5, moe_k=3, moe_intermediate_size=12, rms_norm_eps=1e-4,
                 tie_word_embeddings=False)
    return {
        # GLM 4.5 Air: biases of q, k and v, no norms of them, half of a head's numbers turn.
        "glm4_moe": (config(hf.Glm4MoeConfig, llama, **glm, attention_bias=True,
                            rope_parameters=rope(partial_rotary_factor=0.5)),
                     torch.float32),
        # As GLM 4.5, with norms; and with groups, which it could have.
        "glm4_moe_grouped": (config(hf.Glm4MoeConfig, llama, **glm, use_qk_norm=True, n_group=3,
                                    topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=False,
                                    n_shared_experts=2,
                                    rope_parameters=rope(partial_rotary_factor=0.25)),
                             torch.bfloat16),
        "dots1": (config(hf.Dots1Config, llama, n_routed_experts=5, num_experts_per_tok=2,
                         moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1,
                         norm_topk_prob=True, routed_scaling_factor=2.5, sliding_window=None,
                         rope_parameters=rope()), torch.float32),
        "ernie4_5_moe": (config(hf.Ernie4_5_MoeConfig, llama | ernie, router_aux_loss_coef=0.0,
                                rope_parameters=rope()), torch.float32),
        # The second and the fourth of five layers have experts, and none that is shared.
        "ernie4_5_moe_every": (config(hf.Ernie4_5_MoeConfig, llama | ernie, num_hidden_layers=5,
                                      moe_num_shared_experts=0, moe_layer_interval=2,
                                      tie_word_embeddings=True, rope_parameters=rope()),
                               torch.bfloat16),
        "minimax_m2": (config(hf.MiniMaxM2Config, llama, num_local_experts=5,
                              num_experts_per_tok=2, intermediate_size=12, rotary_dim=4,
                              rope_parameters=rope()), torch.float32),
        "granitemoe": (config(hf.GraniteMoeConfig, llama, **MULTIPLIERS, head_dim="absent",
                              num_local_experts=5, num_experts_per_tok=2, intermediate_size=12,
                              tie_word_embeddings=True, rope_parameters=rope()), torch.float32),
        "granitemoeshared": (config(hf.GraniteMoeSharedConfig, llama, **MULTIPLIERS,
                                    head_dim="absent", num_local_experts=4, num_experts_per_tok=3,
                                    intermediate_size=12, shared_intermediate_size=20,
                                    rope_parameters=rope()), torch.bfloat16),
        "qwen3_moe_every": (config(hf.Qwen3MoeConfig, llama, num_experts=4, num_experts_per_tok=2,
                                   num_hidden_layers=4, moe_intermediate_size=12,
                                   decoder_sparse_step=2, mlp_only_layers=[],
                                   rope_parameters=yarn), torch.bfloat16),
        # Scout: the temperature grows three times within the sequence, in the fourth layer alone.
        "llama4_scout": (config(hf.Llama4TextConfig, llama | scout, num_hidden_layers=4, floor_scale=6,
                          attn_scale=0.7, rope_parameters=dict(llama3)), torch.float32),
        # Maverick: experts in every other layer, no norms of q and k.
        "llama4_maverick": (config(hf.Llama4TextConfig, llama | scout, num_hidden_layers=5,
                                interleave_moe_layer_step=2, use_qk_norm=False,
                                attn_temperature_tuning=False, rope_parameters=rope()),
                         torch.bfloat16),
        "llama4_pictures": (hf.Llama4Config(
            text_config=config(hf.Llama4TextConfig, llama | scout, num_hidden_layers=1,
                               rope_parameters=rope()).to_dict(),
            vision_config=vision, boi_token_index=34, eoi_token_index=35, image_token_index=36),
            torch.bfloat16),
    }


def make_older(name, data):
    """config.json's keys as they were published."""
    if name == "minimax_m2":
        data.update(rope_theta=data.pop("rope_parameters")["rope_theta"], use_qk_norm=True,
                    qk_norm_type="per_layer", scoring_func="sigmoid", use_routing_bias=True,
                    shared_intermediate_size=0, attn_type_list=[1, 1], sliding_window=None)
    if name == "ernie4_5_moe_every":
        data.update(rope_theta=data.pop("rope_parameters")["rope_theta"],
                    moe_layer_end_index=-1)
    if name == "dots1":
        data.pop("layer_types")
        data.update(rope_theta=data.pop("rope_parameters")["rope_theta"], rope_scaling=None,
                    scoring_func="noaux_tc", use_sliding_window=False)
