"""Encoders, for make_hf.py: their configurations, and what files in older forms look like."""

import torch
import transformers as hf

TYPES = ("modernbert", "distilbert")  # names begin with them
SEQ, PAD = 20, 3
MODERN = dict(vocab_size=37, hidden_size=16, intermediate_size=24, num_hidden_layers=5,
              num_attention_heads=4, max_position_embeddings=SEQ, local_attention=6,
              rope_parameters={"full_attention": dict(rope_type="default", rope_theta=100.0),
                               "sliding_attention": dict(rope_type="default", rope_theta=10.0)},
              bos_token_id=None, eos_token_id=None, cls_token_id=None, sep_token_id=None,
              pad_token_id=PAD, mask_token_id=4)
DISTIL = dict(vocab_size=37, dim=16, hidden_dim=24, n_layers=2, n_heads=4,
              max_position_embeddings=SEQ, pad_token_id=None, mask_token_id=4)
SEEDS = {"distilbert": 305, "distilbert_classes": 306, "modernbert": 301, "modernbert_older": 302, "modernbert_classes": 303,
         "modernbert_mean_classes": 304}
WITH_GRADIENTS = ("modernbert", "distilbert")


def models(config):
    kind = hf.ModernBertConfig
    return {
        "modernbert": (config(kind, MODERN, pad_token_id=None), torch.float32),
        # As published for older versions of transformers; another window and activations.
        "modernbert_older": (config(kind, MODERN, num_hidden_layers=3, local_attention=9,
                                    layer_types=["full_attention", "sliding_attention", "full_attention"],
                                    norm_bias=True, decoder_bias=False, norm_eps=1e-3,
                                    hidden_activation="silu", classifier_activation="relu"),
                             torch.bfloat16),
        "modernbert_classes": (config(kind, MODERN, num_hidden_layers=3, sep_token_id=5,
                                      classifier_pooling="cls", num_labels=3), torch.float32),
        "modernbert_mean_classes": (config(kind, MODERN, num_hidden_layers=2, norm_bias=True,
                                           classifier_pooling="mean",
                                           id2label={0: "no", 1: "yes"},
                                           label2id={"no": 0, "yes": 1}), torch.float32),
        "distilbert": (config(hf.DistilBertConfig, DISTIL, activation="relu"), torch.float32),
        "distilbert_classes": (config(hf.DistilBertConfig, DISTIL, pad_token_id=PAD, n_layers=1,
                                      sinusoidal_pos_embds=True,
                                      id2label={0: "bad", 1: "good", 2: "neither"},
                                      label2id={"bad": 0, "good": 1, "neither": 2}),
                               torch.bfloat16),
    }


def make_older(name, data):
    if name == "modernbert_older":
        rope = data.pop("rope_parameters")
        data.pop("layer_types")
        data.update(global_attn_every_n_layers=2,
                    global_rope_theta=rope["full_attention"]["rope_theta"],
                    local_rope_theta=rope["sliding_attention"]["rope_theta"])
