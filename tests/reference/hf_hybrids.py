"""Hybrids beside make_hf.py's own: their configurations, and what files in older forms look like."""

import torch
import transformers as hf

SEQ = 20
BASE = dict(vocab_size=37, hidden_size=16, intermediate_size=24, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=SEQ, bos_token_id=None,
            eos_token_id=None, pad_token_id=None)
DEFAULT = dict(rope_type="default", rope_theta=100.0)
SEEDS = {"lfm2": 311, "lfm2_older": 312}
WITH_GRADIENTS = ("lfm2",)
TYPES = ("lfm2",)


def models(config):
    lfm2 = hf.Lfm2Config
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
    }


def make_older(name, data):
    if name == "lfm2_older":
        data.update(block_ff_dim=data["intermediate_size"], intermediate_size=99,
                    tie_embedding=data.pop("tie_word_embeddings"), full_attn_idxs=[2],
                    rope_theta=data.pop("rope_parameters")["rope_theta"])
        data.pop("layer_types")
