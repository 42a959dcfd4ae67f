"""Models of make_hf.py that came last: their configurations, and what makes their files look as
published."""

import torch
import transformers as hf

SEQ = 20
BASE = dict(vocab_size=37, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=SEQ,
            bos_token_id=None, eos_token_id=None, pad_token_id=None)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=5,
             linear_value_head_dim=6, linear_conv_kernel_dim=3, rms_norm_eps=1e-3)
QWEN_MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                shared_expert_intermediate_size=10, router_aux_loss_coef=0.0)
MROPE = dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5,
             mrope_section=[1, 1, 0], mrope_interleaved=True)
VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=4,
              out_hidden_size=16, num_position_embeddings=4, deepstack_visual_indexes=[])
PIXTRAL = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
               num_attention_heads=1, head_dim=8, image_size=8, patch_size=4)
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=0.5,
              high_freq_factor=2.0, original_max_position_embeddings=16)
# The temperature of queries grows three times within SEQ positions.
MINISTRAL3 = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=2.0, beta_slow=0.25,
                  original_max_position_embeddings=6, max_position_embeddings=SEQ, mscale=1.0,
                  mscale_all_dim=1.0, llama_4_scaling_beta=0.4)
GPT = dict(vocab_size=37, n_positions=SEQ, n_embd=16, n_layer=2, n_head=4, bos_token_id=None,
           eos_token_id=None)
FALCON = dict(vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
              max_position_embeddings=SEQ, bos_token_id=None, eos_token_id=None)
SEEDS = {"qwen3_5": 401, "qwen3_5_moe": 402, "qwen3_5_pictures": 403, "ministral": 404,
         "ministral3": 405, "mistral3": 406, "mistral3_pictures": 407, "glm4_moe_lite": 408,
         "lfm2_moe": 409, "lfm2_moe_plain": 410, "solar_open": 411, "exaone_moe": 412, "cwm": 413,
         "helium": 414, "gemma": 415, "arcee": 416, "nemotron": 417, "hunyuan_v1_dense": 418,
         "olmo_hybrid": 432, "olmo_hybrid_turned": 420, "gpt_bigcode": 421, "gptj": 422,
         "falcon": 423, "falcon_one_norm": 424, "falcon_7b": 425, "afmoe": 426,
         "afmoe_plain": 427}
WITH_GRADIENTS = ()
TYPES = ("lfm2_moe", "olmo_hybrid", "qwen3_5", "qwen3_5_text", "qwen3_5_moe_text")


def rope(theta=100.0, **more):  # a new one each time: a configuration changes what it is given
    return dict(rope_type="default", rope_theta=theta, **more)


def models(config):
    """name -> configuration, dtype"""
    qwen = config(hf.Qwen3_5TextConfig, BASE, **DELTA, num_hidden_layers=3, rope_parameters=MROPE,
                  layer_types=["linear_attention", "full_attention", "linear_attention"])
    small = config(hf.Qwen3_5TextConfig, BASE, **DELTA, rope_parameters=MROPE,
                   layer_types=["linear_attention", "full_attention"])
    experts = dict(num_experts_per_tok=2, moe_intermediate_size=8)
    lfm2 = dict(**experts, num_experts=4, num_dense_layers=1, num_hidden_layers=3,
                layer_types=["conv", "full_attention", "conv"], head_dim="absent", norm_eps=1e-4)
    return {
        "qwen3_5": (qwen, torch.float32),
        "qwen3_5_moe": (config(hf.Qwen3_5MoeTextConfig, BASE, **DELTA, **QWEN_MOE,
                               intermediate_size="absent", rope_parameters=MROPE,
                               layer_types=["full_attention", "linear_attention"]),
                        torch.bfloat16),
        "qwen3_5_pictures": (hf.Qwen3_5Config(
            text_config=small.to_dict(), vision_config=VISION, image_token_id=34,
            video_token_id=35, vision_start_token_id=33, vision_end_token_id=32), torch.bfloat16),
        "ministral": (config(hf.MinistralConfig, BASE, num_hidden_layers=3, sliding_window=5,
                             layer_types=["full_attention", "sliding_attention",
                                          "sliding_attention"], rope_parameters=rope()),
                      torch.float32),
        "ministral3": (config(hf.Ministral3Config, BASE, rope_parameters=MINISTRAL3),
                       torch.float32),
        # As published: Ministral 3, and Mistral Small 3.
        "mistral3": (hf.Mistral3Config(
            text_config=config(hf.Ministral3Config, BASE, num_hidden_layers=1,
                               tie_word_embeddings=True, rope_parameters=MINISTRAL3).to_dict(),
            vision_config=PIXTRAL, image_token_index=36, tie_word_embeddings=True),
            torch.bfloat16),
        "mistral3_pictures": (hf.Mistral3Config(
            text_config=config(hf.MistralConfig, BASE, num_hidden_layers=1, sliding_window=None,
                               rope_parameters=rope()).to_dict(),
            vision_config=PIXTRAL, image_token_index=36, tie_word_embeddings=False),
            torch.bfloat16),
        "glm4_moe_lite": (config(hf.Glm4MoeLiteConfig, BASE, **experts, n_routed_experts=4,
                                 head_dim="absent", num_key_value_heads=4, q_lora_rank=12,
                                 kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4,
                                 v_head_dim=5, n_shared_experts=2, num_hidden_layers=3,
                                 mlp_layer_types=["dense", "dense", "sparse"],
                                 rope_parameters=rope()), torch.float32),
        "lfm2_moe": (config(hf.Lfm2MoeConfig, BASE, **lfm2, routed_scaling_factor=1.7,
                            rope_parameters=rope()), torch.float32),
        "lfm2_moe_plain": (config(hf.Lfm2MoeConfig, BASE, **lfm2, use_expert_bias=False,
                                  norm_topk_prob=False, tie_word_embeddings=False,
                                  rope_parameters=rope()), torch.bfloat16),
        "solar_open": (config(hf.SolarOpenConfig, BASE, **experts, n_routed_experts=4,
                              intermediate_size="absent", routed_scaling_factor=1.5,
                              rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=2.0,
                                                   beta_fast=2.0, beta_slow=0.25,
                                                   original_max_position_embeddings=10)),
                       torch.float32),
        "exaone_moe": (config(hf.ExaoneMoeConfig, BASE, **experts, num_experts=4,
                              num_shared_experts=1, num_hidden_layers=3, intermediate_size=12,
                              sliding_window=5,
                              sliding_window_pattern=2, first_k_dense_replace=1, n_group=2,
                              topk_group=1, rope_parameters=rope()), torch.float32),
        "cwm": (config(hf.CwmConfig, BASE, num_hidden_layers=5, intermediate_size=8,
                       sliding_window=5, bos_token_id=1,
                       rope_parameters=LLAMA3), torch.float32),
        "helium": (config(hf.HeliumConfig, BASE, head_dim=4, rope_parameters=rope()),
                   torch.float32),
        "gemma": (config(hf.GemmaConfig, BASE, hidden_act="gelu", rope_parameters=rope()),
                  torch.float32),
        "arcee": (config(hf.ArceeConfig, BASE, rope_parameters=rope()), torch.float32),
        "nemotron": (config(hf.NemotronConfig, BASE, rope_parameters=rope(
            partial_rotary_factor=0.5)), torch.float32),
        "hunyuan_v1_dense": (config(hf.HunYuanDenseV1Config, BASE, rope_parameters=dict(
            rope_type="dynamic", rope_theta=100.0, factor=1.0, alpha=50.0, beta_fast=32,
            beta_slow=1, mscale=1.0, mscale_all_dim=0.0)), torch.float32),
        # As published, without positions.
        "olmo_hybrid": (config(hf.OlmoHybridConfig, BASE, **DELTA, head_dim="absent",
                               num_hidden_layers=3, rope_parameters=rope(None),
                               layer_types=["linear_attention", "full_attention",
                                            "linear_attention"]), torch.float32),
        "olmo_hybrid_turned": (config(hf.OlmoHybridConfig, BASE, **DELTA, head_dim="absent",
                                      linear_allow_neg_eigval=False, tie_word_embeddings=True,
                                      layer_types=["full_attention", "linear_attention"],
                                      rope_parameters=rope()), torch.bfloat16),
        "gpt_bigcode": (config(hf.GPTBigCodeConfig, GPT), torch.float32),
        "gptj": (config(hf.GPTJConfig, GPT, n_embd=32, n_head=2, n_inner=20, rotary_dim=4),
                 torch.float32),
        # As 40B, as 11B and, as published, as 7B.
        "falcon": (config(hf.FalconConfig, FALCON, new_decoder_architecture=True, num_kv_heads=2,
                          rope_parameters=rope()), torch.float32),
        "falcon_one_norm": (config(hf.FalconConfig, FALCON, new_decoder_architecture=True,
                                   num_kv_heads=1, num_ln_in_parallel_attn=1, ffn_hidden_size=20,
                                   tie_word_embeddings=False, rope_parameters=rope()),
                            torch.bfloat16),
        "falcon_7b": (config(hf.FalconConfig, FALCON, rope_parameters=rope()), torch.float32),
        "afmoe": (config(hf.AfmoeConfig, BASE, **experts, num_experts=4, num_shared_experts=1,
                         num_hidden_layers=3, intermediate_size=12,
                              sliding_window=5,
                         global_attn_every_n_layers=2, route_scale=1.5, mup_enabled=True,
                         rope_parameters=rope()), torch.float32),
        "afmoe_plain": (config(hf.AfmoeConfig, BASE, **experts, num_experts=3, num_dense_layers=0,
                               num_shared_experts=2, sliding_window=6, tie_word_embeddings=True,
                               layer_types=["full_attention", "sliding_attention"],
                               rope_parameters=rope()), torch.float32),
    }


def make_older(name, data):
    """config.json's keys as they were published."""
    if name == "falcon_7b":
        for key in ("num_kv_heads", "ffn_hidden_size", "num_ln_in_parallel_attn"):
            data.pop(key)
        data.update(rope_theta=data.pop("rope_parameters")["rope_theta"])


def make_older_tensors(name, tensors):
    """The same of weights; None: they are so."""
    if not name.startswith("olmo_hybrid"):
        return None
    # transformers 5.24 divides an OLMo hybrid's convolutions into three of one size, though values
    # are wider than queries and keys, and renames a norm of layers with attention, too.
    joined = {}
    for layer in {name.rsplit("_conv1d", 1)[0][:-2] for name in tensors if "_conv1d" in name}:
        parts = [tensors.pop(f"{layer}.{x}_conv1d.weight") for x in "qkv"]
        keys, values = (tensors[f"{layer}.{x}_proj.weight"].shape[0] for x in "kv")
        for x, part in zip("qkv", torch.cat(parts).split([keys, keys, values])):
            joined[f"{layer}.{x}_conv1d.weight"] = part.contiguous()
    for key in list(tensors):
        layer = key.rsplit(".feedforward_layer_norm", 1)[0]
        if layer != key and f"{layer}.attention_layer_norm.weight" not in tensors:
            joined[f"{layer}.post_attention_layernorm.weight"] = tensors.pop(key)
    return {**tensors, **joined}
