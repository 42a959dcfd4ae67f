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
SEEDS = {"qwen3_5": 401, "qwen3_5_moe": 402, "qwen3_5_pictures": 403, "ministral": 404,
         "ministral3": 405, "mistral3": 406, "mistral3_pictures": 407}
WITH_GRADIENTS = ()
TYPES = ("qwen3_5", "qwen3_5_text", "qwen3_5_moe_text")


def rope(theta=100.0, **more):  # a new one each time: a configuration changes what it is given
    return dict(rope_type="default", rope_theta=theta, **more)


def models(config):
    """name -> configuration, dtype"""
    qwen = config(hf.Qwen3_5TextConfig, BASE, **DELTA, num_hidden_layers=3, rope_parameters=MROPE,
                  layer_types=["linear_attention", "full_attention", "linear_attention"])
    small = config(hf.Qwen3_5TextConfig, BASE, **DELTA, rope_parameters=MROPE,
                   layer_types=["linear_attention", "full_attention"])
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
    }


def make_older(name, data):
    """config.json's keys as they were published."""
