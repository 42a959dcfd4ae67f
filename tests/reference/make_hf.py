#!/usr/bin/env python3
"""Makes tests/reference/hf: tiny models of Hugging Face's transformers, and the logits they give.

    venv/bin/python tests/reference/make_hf.py                      # rewrites the folders
    venv/bin/python tests/reference/make_hf.py --check build/perilune

Each folder is what save_pretrained wrote (config.json, model.safetensors or shards with their
index), in places put into the form of older versions, and expect.safetensors: tokens
I32 [batch, seq] and logits F32 [batch, seq, vocab], computed in float64 as far as transformers
does, of hybrids wholly; of T5 also source I32 [batch, source], what the encoder reads, in which 0
is hidden, labels and their mean loss, and in a folder NAME_gradients (of some others, too) its
gradients, in the form of weights. Of models that tell classes of texts, or rewards (NAME_classes,
NAME_reward), logits are [batch, class], and `at` I32 [batch] says the token of each text that they
are read at; decoders' second text has padding behind it.

--check imports and exports each by the program, loads what came out with AutoModelForCausalLM (or
AutoModelForSeq2SeqLM, AutoModelForMaskedLM, AutoModelForSequenceClassification), and compares every
tensor bit for bit and the logits.

DeepSeekMoE is not part of transformers (its code lies beside its weights): here it is Llama with the
published layer. mixtral_fused has mixtral's weights with experts as one tensor, as transformers 5
has them in memory.

Weights are wider than usual and gains are no ones, so that a transposition, a wrong pairing of
heads or a norm's missing offset shows.
"""

import argparse
import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile

import hf_encoders
import hf_experts
import hf_hybrids
import hf_newer
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf")
VOCAB, BATCH, SEQ = 37, 2, 20
NO_TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
GPT = dict(vocab_size=VOCAB, n_positions=SEQ, n_embd=16, n_layer=2, n_head=4, bos_token_id=None,
           eos_token_id=None)
LLAMA = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             max_position_embeddings=SEQ, **NO_TOKENS)
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=0.5,
              high_freq_factor=2.0, original_max_position_embeddings=16)
LINEAR = dict(rope_type="linear", rope_theta=5e5, factor=4.0)
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=8.0, beta_fast=2.0, beta_slow=0.5,
            mscale=0.7, mscale_all_dim=0.7, original_max_position_embeddings=16)
MLA = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
           num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=SEQ,
           kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=5,
           n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=12, **NO_TOKENS)
T5 = dict(vocab_size=VOCAB, n_positions=SEQ, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=4,
          relative_attention_num_buckets=8, relative_attention_max_distance=12)
LOCAL = {"full_attention": LINEAR | {"rope_theta": 100.0},
         "sliding_attention": dict(rope_type="default", rope_theta=10.0)}
# The list that counts turns on how many positions there are: SEQ, more than 16 or not.
LONGROPE = dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75,
                short_factor=[1.0, 1.3, 2.1], long_factor=[1.2, 3.7, 9.01],
                original_max_position_embeddings=16)
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
              image_size=8, patch_size=4, vision_use_head=False, model_type="siglip_vision_model")
PARTIAL = dict(rope_type="default", rope_theta=100.0)
# SEQ positions, of the first 5; the factor of sines and cosines is what this makes of it.
LONG = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=2.0, beta_slow=0.25,
            original_max_position_embeddings=5)
BERT = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=SEQ, type_vocab_size=3, pad_token_id=None,
            mask_token_id=4)
MOE = dict(num_experts=5, num_experts_per_tok=2)
PAD = 3
MOODS = dict(id2label={0: "not good", 1: "so-so", 2: "good"},
             label2id={"not good": 0, "so-so": 1, "good": 2})
MAMBA2 = dict(vocab_size=VOCAB, hidden_size=12, num_hidden_layers=2, num_heads=6, head_dim=4,
              n_groups=2, state_size=5, conv_kernel=3, chunk_size=8, max_position_embeddings=SEQ,
              **NO_TOKENS)
HYBRID = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=12, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=SEQ, **NO_TOKENS)
MAMBA = dict(mamba_n_heads=6, mamba_d_head=8, mamba_expand=3, mamba_n_groups=2, mamba_d_state=5,
             mamba_d_conv=3, mamba_chunk_size=8)
GRANITE4 = dict(embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.6,
                logits_scaling=1.7, shared_intermediate_size=20)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=5,
             linear_value_head_dim=7, linear_conv_kernel_dim=3)


class DeepseekConfig(hf.LlamaConfig):
    model_type = "deepseek"


class DeepseekMoE(torch.nn.Module):
    """Dai et al. 2024 (arXiv 2401.06066), as modeling_deepseek.py of deepseek-moe-16b-base."""

    def __init__(self, c):
        super().__init__()

        def mlp(width):
            inner = hf.LlamaConfig(hidden_size=c.hidden_size, intermediate_size=width,
                                   num_attention_heads=1)
            return hf.models.llama.modeling_llama.LlamaMLP(inner)

        self.config = c
        self.gate = torch.nn.Linear(c.hidden_size, c.n_routed_experts, bias=False)
        self.experts = torch.nn.ModuleList(mlp(c.moe_intermediate_size)
                                           for _ in range(c.n_routed_experts))
        if c.n_shared_experts:
            self.shared_experts = mlp(c.moe_intermediate_size * c.n_shared_experts)

    def forward(self, x):
        gates, chosen = self.gate(x).softmax(-1).topk(self.config.num_experts_per_tok)
        if self.config.norm_topk_prob:
            gates = gates / (gates.sum(-1, keepdim=True) + 1e-20)
        y = self.shared_experts(x) if self.config.n_shared_experts else torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            y = y + expert(x) * (gates * (chosen == i)).sum(-1, keepdim=True)
        return y


class DeepseekForCausalLM(hf.LlamaForCausalLM):
    config_class = DeepseekConfig

    def __init__(self, c):
        super().__init__(c)
        for i, layer in enumerate(self.model.layers):
            if i >= c.first_k_dense_replace:
                layer.mlp = DeepseekMoE(c)


hf.AutoConfig.register("deepseek", DeepseekConfig)
hf.AutoModelForCausalLM.register(DeepseekConfig, DeepseekForCausalLM)


def config(kind, base, **more):
    settings = copy.deepcopy({**base, **more})  # transformers adds to them
    return kind(**{k: v for k, v in settings.items() if v != "absent"})


MODELS_TEXT = config(hf.Gemma3TextConfig, LLAMA, num_hidden_layers=6, query_pre_attn_scalar=12,
                     sliding_window=5, rope_parameters=LOCAL).to_dict()

# name -> configuration, dtype
MODELS = {
    "gpt2": (config(hf.GPT2Config, GPT), torch.float32),
    "gpt2_untied": (config(hf.GPT2Config, GPT, n_inner=40, activation_function="gelu",
                           tie_word_embeddings=False), torch.float16),
    "llama": (config(hf.LlamaConfig, LLAMA, rms_norm_eps=1e-5), torch.bfloat16),
    "llama31": (config(hf.LlamaConfig, LLAMA, tie_word_embeddings=True, rope_parameters=LLAMA3),
                torch.float32),
    "llama_linear": (config(hf.LlamaConfig, LLAMA, rope_parameters=LINEAR), torch.float16),
    "mistral": (config(hf.MistralConfig, LLAMA, sliding_window=5), torch.float32),
    "qwen2": (config(hf.Qwen2Config, LLAMA, head_dim="absent", num_attention_heads=2,
                     num_key_value_heads=1), torch.float32),
    "qwen3": (config(hf.Qwen3Config, LLAMA), torch.float32),
    "gemma2": (config(hf.Gemma2Config, LLAMA, query_pre_attn_scalar=12, sliding_window=5,
                      attn_logit_softcapping=2.0, final_logit_softcapping=3.0), torch.float32),
    "mixtral": (config(hf.MixtralConfig, LLAMA, num_local_experts=4, intermediate_size=12,
                       sliding_window=7, router_aux_loss_coef=0.0), torch.bfloat16),
    "qwen3_moe": (config(hf.Qwen3MoeConfig, LLAMA, **MOE, moe_intermediate_size=12,
                         norm_topk_prob=True, mlp_only_layers=[0]), torch.float32),
    "olmoe": (config(hf.OlmoeConfig, LLAMA, **MOE, head_dim="absent", intermediate_size=12),
              torch.float32),
    "qwen2_moe": (config(hf.Qwen2MoeConfig, LLAMA, **MOE, head_dim="absent",
                         moe_intermediate_size=12, shared_expert_intermediate_size=20),
                  torch.float32),
    "deepseek": (config(DeepseekConfig, LLAMA, head_dim="absent", n_routed_experts=5,
                        num_experts_per_tok=3, moe_intermediate_size=12, n_shared_experts=2,
                        first_k_dense_replace=1, norm_topk_prob=False, aux_loss_alpha=0.002),
                 torch.float32),
    "deepseek_v2": (config(hf.DeepseekV2Config, MLA, q_lora_rank=None, topk_method="greedy",
                           n_shared_experts=2, first_k_dense_replace=1), torch.float32),
    "deepseek_v2_grouped": (config(hf.DeepseekV2Config, MLA, q_lora_rank=12,
                                   topk_method="group_limited_greedy", n_group=3, topk_group=2,
                                   routed_scaling_factor=4.0, first_k_dense_replace=0),
                            torch.float32),
    "deepseek_v3": (config(hf.DeepseekV3Config, MLA, q_lora_rank=12, n_group=3, topk_group=2,
                           n_shared_experts=1, first_k_dense_replace=1, num_mtp_layers=0,
                           rope_parameters=YARN), torch.float32),
    "t5": (config(hf.T5Config, T5, num_decoder_layers=3), torch.float32),
    "t5_v1_1": (config(hf.T5Config, T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
                torch.bfloat16),
    "gemma3": (config(hf.Gemma3TextConfig, LLAMA, num_hidden_layers=7, query_pre_attn_scalar=12,
                      sliding_window=5, rope_parameters=LOCAL), torch.float32),
    "phi3": (config(hf.Phi3Config, LLAMA, head_dim="absent", hidden_size=32, sliding_window=7,
                    rope_parameters=PARTIAL | {"partial_rotary_factor": 0.75}), torch.bfloat16),
    "olmo2": (config(hf.Olmo2Config, LLAMA, head_dim="absent", rope_parameters=PARTIAL),
              torch.float32),
    "smollm3": (config(hf.SmolLM3Config, LLAMA, head_dim="absent", num_hidden_layers=5,
                       rope_parameters=PARTIAL), torch.float32),
    "granite": (config(hf.GraniteConfig, LLAMA, head_dim="absent", embedding_multiplier=3.0,
                       attention_multiplier=0.3, residual_multiplier=0.6, logits_scaling=1.7),
                torch.float32),
    "stablelm": (config(hf.StableLmConfig, LLAMA, head_dim="absent", use_qkv_bias=True,
                        hidden_size=32,
                        rope_parameters=PARTIAL | {"partial_rotary_factor": 0.25}),
                 torch.float32),
    "gpt_neox": (config(hf.GPTNeoXConfig, LLAMA, head_dim="absent", num_key_value_heads="absent",
                        hidden_size=32,
                        rope_parameters=PARTIAL | {"partial_rotary_factor": 0.25}),
                 torch.float16),
    "gpt_neox_serial": (config(hf.GPTNeoXConfig, LLAMA, head_dim="absent",
                               num_key_value_heads="absent", use_parallel_residual=False,
                               tie_word_embeddings=True,
                               rope_parameters=PARTIAL | {"partial_rotary_factor": 0.5}),
                        torch.float32),
    "phi": (config(hf.PhiConfig, LLAMA, head_dim="absent", hidden_size=20,
                   rope_parameters=PARTIAL | {"partial_rotary_factor": 0.4}), torch.float32),
    "starcoder2": (config(hf.Starcoder2Config, LLAMA, head_dim="absent", sliding_window=6,
                          rope_parameters=PARTIAL), torch.float32),
    "bert": (config(hf.BertConfig, BERT), torch.float32),
    "bert_older": (config(hf.BertConfig, BERT, hidden_act="relu", layer_norm_eps=1e-3),
                   torch.float16),
    # Published: in the older form.
    "phi3_long": (config(hf.Phi3Config, LLAMA, head_dim="absent", hidden_size=32,
                         original_max_position_embeddings=16,
                         rope_parameters=LONGROPE), torch.float32),
    # As transformers 5 writes it, with a factor of its own; all SEQ positions are few.
    "phi3_short": (config(hf.Phi3Config, LLAMA, head_dim="absent", hidden_size=32,
                          original_max_position_embeddings=24,
                          rope_parameters=LONGROPE | {"attention_factor": 1.7,
                                                      "original_max_position_embeddings": 24}),
                   torch.bfloat16),
    # With pictures, as published; compared is what it makes of text.
    "gemma3_pictures": (hf.Gemma3Config(text_config=MODELS_TEXT, vision_config=VISION,
                                        mm_tokens_per_image=4, image_token_index=37,
                                        boi_token_index=38, eoi_token_index=39, **NO_TOKENS), torch.bfloat16),
    "roberta": (config(hf.RobertaConfig, BERT, pad_token_id=2, max_position_embeddings=SEQ + 3),
                torch.float32),
    "mt5": (config(hf.MT5Config, T5), torch.float32),
    "gpt_oss": (config(hf.GptOssConfig, LLAMA, num_local_experts=4, num_experts_per_tok=3,
                       intermediate_size=12, sliding_window=5, swiglu_limit=0.5, router_aux_loss_coef=0.0,
                       rope_parameters=YARN | {"mscale": None, "mscale_all_dim": None,
                                               "truncate": False}), torch.float32),
    "mamba2": (config(hf.Mamba2Config, MAMBA2), torch.float32),
    "mamba2_tied": (config(hf.Mamba2Config, MAMBA2, n_groups=1, conv_kernel=4, use_conv_bias=False,
                           tie_word_embeddings=True), torch.bfloat16),
    "bamba": (config(hf.BambaConfig, HYBRID, **MAMBA, num_hidden_layers=4,
                     attn_layer_indices=[1, 2], rope_parameters=PARTIAL), torch.float32),
    "granite4": (config(hf.GraniteMoeHybridConfig, HYBRID, **MAMBA, **GRANITE4,
                        num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"],
                        num_local_experts=5, num_experts_per_tok=3), torch.float32),
    "granite4_dense": (config(hf.GraniteMoeHybridConfig, HYBRID, **MAMBA, **GRANITE4,
                              num_hidden_layers=2, layer_types=["attention", "mamba"],
                              num_local_experts=0, position_embedding_type="rope",
                              rope_parameters=PARTIAL, tie_word_embeddings=True), torch.bfloat16),
    "qwen3_next": (config(hf.Qwen3NextConfig, HYBRID, **MOE, **DELTA, num_hidden_layers=3,
                          head_dim=8, full_attention_interval=2, moe_intermediate_size=12,
                          shared_expert_intermediate_size=20, router_aux_loss_coef=0.0,
                          rms_norm_eps=1e-3,  # of little, a norm with less is all rounding
                          rope_parameters=PARTIAL | {"partial_rotary_factor": 0.5}),
                   torch.float32),
    "llama_classes": (config(hf.LlamaConfig, LLAMA, pad_token_id=PAD, **MOODS), torch.bfloat16),
    "gpt2_classes": (config(hf.GPT2Config, GPT, pad_token_id=PAD, num_labels=4), torch.float32),
    "gpt_neox_classes": (config(hf.GPTNeoXConfig, LLAMA, head_dim="absent", num_hidden_layers=1,
                                num_key_value_heads="absent", pad_token_id=PAD, num_labels=2,
                                rope_parameters=PARTIAL | {"partial_rotary_factor": 0.5}),
                         torch.float16),
    "qwen2_reward": (config(hf.Qwen2Config, LLAMA, head_dim="absent", num_hidden_layers=1,
                            tie_word_embeddings=True, pad_token_id=PAD, num_labels=1),
                     torch.float32),
    "gemma3_classes": (config(hf.Gemma3TextConfig, LLAMA, num_hidden_layers=1, sliding_window=5,
                              query_pre_attn_scalar=12, pad_token_id=PAD,
                              # the second is no name here
                              id2label={0: "yes", 1: "no, or not", 2: "maybe"},
                              rope_parameters=LOCAL), torch.float32),
    "mixtral_classes": (config(hf.MixtralConfig, LLAMA, num_hidden_layers=1, num_local_experts=4,
                               intermediate_size=12, router_aux_loss_coef=0.0, pad_token_id=PAD,
                               **MOODS), torch.float32),
    "bert_classes": (config(hf.BertConfig, BERT, pad_token_id=PAD), torch.float32),
    "roberta_classes": (config(hf.RobertaConfig, BERT, pad_token_id=2, num_hidden_layers=1,
                               max_position_embeddings=SEQ + 3, **MOODS), torch.bfloat16),
    "llama_yarn": (config(hf.LlamaConfig, LLAMA, rope_parameters=LONG), torch.float32),
    "qwen2_windows": (config(hf.Qwen2Config, LLAMA, head_dim="absent", num_hidden_layers=3,
                             use_sliding_window=True, sliding_window=5, max_window_layers=1,
                             rope_parameters=LONG | {"attention_factor": 1.3}), torch.float32),
    "qwen3_windows": (config(hf.Qwen3Config, LLAMA, num_hidden_layers=3, use_sliding_window=True,
                             sliding_window=6, rope_parameters=PARTIAL,
                             layer_types=["sliding_attention", "full_attention",
                                          "sliding_attention"]), torch.bfloat16),
    "olmo3": (config(hf.Olmo3Config, LLAMA, head_dim="absent", num_hidden_layers=5,
                     sliding_window=5, rope_parameters={"full_attention": LONG,
                                                        "sliding_attention": PARTIAL}),
              torch.float32),
    # Published: in the older form.
    "olmo3_older": (config(hf.Olmo3Config, LLAMA, head_dim="absent", num_hidden_layers=2,
                           sliding_window=6, tie_word_embeddings=True,
                           layer_types=["full_attention", "sliding_attention"],
                           rope_parameters={"full_attention": LONG | {"rope_theta": 5e5},
                                            "sliding_attention": PARTIAL | {"rope_theta": 5e5}}),
                    torch.bfloat16),
    "glm4": (config(hf.Glm4Config, LLAMA, rope_parameters=PARTIAL | {"partial_rotary_factor": 0.5}),
             torch.float32),
    "seed_oss": (config(hf.SeedOssConfig, LLAMA, attention_out_bias=True, rope_parameters=PARTIAL),
                 torch.float32),
    "ernie4_5": (config(hf.Ernie4_5Config, LLAMA, rope_parameters=PARTIAL), torch.float32),
    "exaone4": (config(hf.Exaone4Config, LLAMA, num_hidden_layers=5, sliding_window=5,
                       sliding_window_pattern=4, rope_parameters=PARTIAL), torch.float32),
    "exaone4_full": (config(hf.Exaone4Config, LLAMA, sliding_window=None, tie_word_embeddings=True,
                            layer_types=["full_attention"] * 2, rope_parameters=LLAMA3),
                     torch.bfloat16),
    "cohere": (config(hf.CohereConfig, LLAMA, logit_scale=0.3, tie_word_embeddings=False,
                      rope_parameters=PARTIAL), torch.float32),
    "cohere2": (config(hf.Cohere2Config, LLAMA, head_dim="absent", num_hidden_layers=5,
                       sliding_window=5, logit_scale=0.7, rope_parameters=PARTIAL),
                torch.float32),
}
MODELS.update(hf_experts.models(config, LLAMA))
MODELS.update(hf_encoders.models(config))
MODELS.update(hf_hybrids.models(config))
MODELS.update(hf_newer.models(config))
FUSED = "mixtral_fused"
PACKED, WIDE = "gpt_oss_mxfp4", "gpt_oss_wide"
# With the weights they would have, transformers itself in f32 is 7.5e-6 and more from what it is in
# f64.
SEEDS = {"mt5": 100, "qwen3_next": 53,  # 1.9e-6, 1.8e-6
         # else a model's place above, which others that come in between would change
         "llama_yarn": 201, "qwen2_windows": 202, "qwen3_windows": 203, "olmo3": 204,
         "olmo3_older": 205, "glm4": 206, "seed_oss": 207, "ernie4_5": 208, "exaone4": 209,
         "exaone4_full": 210, "cohere": 211, "cohere2": 212, **hf_experts.SEEDS, **hf_encoders.SEEDS,
         **hf_hybrids.SEEDS, **hf_newer.SEEDS}
HYBRIDS = ("mamba2", "bamba", "granitemoehybrid", "qwen3_next", *hf_hybrids.TYPES, *hf_newer.TYPES)  # types
WITH_GRADIENTS = ("t5", "t5_v1_1", "gemma3", "gpt_neox", "gpt_oss", "mamba2", "qwen3_next", "cohere2",
                  "glm4", *hf_experts.WITH_GRADIENTS, *hf_encoders.WITH_GRADIENTS,
                  *hf_hybrids.WITH_GRADIENTS, *hf_newer.WITH_GRADIENTS)


def fill(model, generator):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(noise * 0.3 if weight.dim() > 1 else weight + noise * 0.1)
            if name.endswith(("A_log", "dt_bias")):  # states change, and last a few positions
                weight.copy_(noise * 0.5)
        for name, bias in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                bias.copy_(torch.randn(bias.shape, generator=generator) * 0.3)


def is_own(model):
    return model.config.model_type == "deepseek"


def is_t5(name):
    return name.startswith(("t5", "mt5"))


def is_bert(name):
    return name.startswith(("bert", "roberta", "xlm-roberta", *hf_encoders.TYPES))


def is_classifier(name):
    return name.endswith(("_classes", "_reward"))


def auto_class(name):
    if is_classifier(name):
        return hf.AutoModelForSequenceClassification
    if is_bert(name):
        return hf.AutoModelForMaskedLM
    if name in ("llama4", "mistral3", "qwen3_5") or name.endswith("_pictures"):
        # As causal, transformers takes the text part alone.
        return hf.AutoModelForImageTextToText
    return hf.AutoModelForSeq2SeqLM if is_t5(name) else hf.AutoModelForCausalLM


@contextlib.contextmanager
def wholly_double(kind):
    """Casts of hybrids to f32, of states and norms, are to f64: else transformers' gradients would
    be as far off as ours."""
    if kind not in HYBRIDS:
        yield
        return
    functions = torch.nn.functional
    saved = torch.Tensor.float, torch.Tensor.to, functions.softmax

    def wide(value):
        return torch.float64 if value is torch.float32 else value

    def widened(function):
        return lambda *args, **more: function(*map(wide, args),
                                              **{k: wide(v) for k, v in more.items()})

    torch.Tensor.float = torch.Tensor.double
    torch.Tensor.to, functions.softmax = widened(saved[1]), widened(saved[2])
    try:
        yield
    finally:
        torch.Tensor.float, torch.Tensor.to, functions.softmax = saved


def class_logits(model, tokens, at):
    """Of whole texts, in one batch or, where transformers would not know where a text ends, each
    by itself and without its padding."""
    if getattr(model.config, "classifier_pooling", "cls") == "mean":
        return model(tokens.long(), attention_mask=tokens != model.config.pad_token_id).logits
    behind = {int(token) for text, end in zip(tokens, at) for token in text[end + 1:]}
    if is_bert(model.config.model_type) or behind <= {model.config.pad_token_id}:
        return model(tokens.long()).logits
    return torch.cat([model(text[None, :end + 1].long()).logits for text, end in zip(tokens, at)])


def logits(folder, tokens, source=None, at=None):
    with open(os.path.join(folder, "config.json")) as file:
        data = json.load(file)
    model_type = data["model_type"]
    kind = auto_class(model_type)
    if data["architectures"][0].endswith("ForSequenceClassification"):
        kind = hf.AutoModelForSequenceClassification
    model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    if model_type == "llama4":  # 5.24's own forward fails where there is no picture
        model = model.language_model
    if source is not None:
        with torch.no_grad():
            return model.double().eval()(input_ids=source.long(), attention_mask=source != 0,
                                         decoder_input_ids=tokens.long()).logits
    fused = hasattr(model, "set_experts_implementation")  # in transformers 5
    if fused and hasattr(model.config, "num_experts_per_tok") and not is_own(model):
        model.set_experts_implementation("eager")  # others know no float64
    with torch.no_grad(), wholly_double(model_type):
        if at is not None:
            return class_logits(model.double().eval(), tokens, at)
        return model.double().eval()(tokens.long()).logits


def add_gradients(name, folder, expect, generator):
    """Labels and their loss to expect, and the folder of a model whose weights are the gradients."""
    labels = torch.randint(VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    if is_t5(name):
        labels[0, -7:] = -1
    model = auto_class(name).from_pretrained(folder, attn_implementation="eager",
                                             dtype=torch.float32).double().eval()
    if hasattr(model.config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")  # others know no float64
    inputs = dict(input_ids=expect["tokens"].long())
    if is_t5(name):
        inputs = dict(input_ids=expect["source"].long(), attention_mask=expect["source"] != 0,
                      decoder_input_ids=expect["tokens"].long())
    with wholly_double(model.config.model_type):
        logits_of_all = model(**inputs).logits
    loss = torch.nn.functional.cross_entropy(logits_of_all.flatten(0, 1), labels.long().flatten(),
                                             ignore_index=-1)
    loss.backward()
    expect.update(labels=labels, loss=loss.detach())
    to = os.path.join(HERE, name + "_gradients")
    shutil.rmtree(to, ignore_errors=True)
    os.mkdir(to)
    shutil.copy(os.path.join(folder, "config.json"), to)
    if is_t5(name):
        save_file({k: v.grad.float() for k, v in model.named_parameters()},
                  os.path.join(to, "model.safetensors"), {"format": "pt"})
        return
    for weight in model.parameters():  # files have other names than memory
        weight.data = torch.zeros_like(weight) if weight.grad is None else weight.grad
    model.float().save_pretrained(to)
    if not is_bert(name):
        os.remove(os.path.join(to, "generation_config.json"))
    shutil.copy(os.path.join(folder, "config.json"), to)


def edit_json(path, change):
    with open(path) as file:
        data = json.load(file)
    change(data)
    with open(path, "w") as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.write("\n")


def make_older(name, folder):
    """What files of transformers 4 and before look like."""
    path = os.path.join(folder, "config.json")

    def older_rope(data):
        rope = data.pop("rope_parameters")
        data["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        data["rope_scaling"] = None if kind == "default" else {**rope, "type": kind}

    if name in ("llama", "llama_linear", "deepseek", "phi3_long"):
        edit_json(path, older_rope)
    if name == "phi3_long":
        edit_json(path, lambda data: data.update(
            partial_rotary_factor=data["rope_scaling"].pop("partial_rotary_factor")))
        edit_json(path, lambda data: data["rope_scaling"].pop("original_max_position_embeddings"))
    if name == "gpt_neox_serial":
        edit_json(path, older_rope)
        edit_json(path, lambda data: data.update(rotary_pct=0.5, rotary_emb_base=100.0))
        edit_json(path, lambda data: [data.pop(key) for key in ("rope_theta", "rope_scaling")])
    if name in hf_encoders.SEEDS:
        edit_json(path, lambda data: hf_encoders.make_older(name, data))
    if name in hf_hybrids.SEEDS:
        edit_json(path, lambda data: hf_hybrids.make_older(name, data))
    if name in hf_experts.SEEDS:
        edit_json(path, lambda data: hf_experts.make_older(name, data))
    if name in hf_newer.SEEDS:
        edit_json(path, lambda data: hf_newer.make_older(name, data))
        weights = os.path.join(folder, "model.safetensors")
        older = hf_newer.make_older_tensors(name, load_file(weights))
        if older:
            save_file(older, weights, {"format": "pt"})
    if name == "gpt2":  # no prefix, and masks
        weights = os.path.join(folder, "model.safetensors")
        tensors = {k.removeprefix("transformer."): v for k, v in load_file(weights).items()}
        for i in range(2):
            tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, SEQ, SEQ).tril()
        save_file(tensors, weights, {"format": "pt"})
    if name == "bert_older":  # TensorFlow's names, and what else was trained
        weights = os.path.join(folder, "model.safetensors")
        tensors = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"): v for k, v in load_file(weights).items()}
        tensors["bert.pooler.dense.weight"] = torch.ones(16, 16, dtype=torch.float16)
        tensors["cls.seq_relationship.bias"] = torch.ones(2, dtype=torch.float16)
        save_file(tensors, weights, {"format": "pt"})
    if name == "kimi_linear":  # names as published
        weights = os.path.join(folder, "model.safetensors")
        save_file(all_tensors(folder), weights, {"format": "pt"})
    if name in ("t5_v1_1", "mt5"):  # as published
        edit_json(path, lambda data: data.pop("scale_decoder_outputs", None))
        edit_json(path, lambda data: data.update(tie_word_embeddings=False))
    if name == "mamba2_tied":  # as published, for Python alone
        edit_json(path, lambda data: data.update(time_step_limit=[0.0, float("inf")]))
    if name in ("bamba", "granite4_dense", "qwen3_next"):
        edit_json(path, older_rope)
    if name in ("bamba", "qwen3_next"):
        edit_json(path, lambda data: data.pop("rope_scaling"))
    if name == "granite4":
        edit_json(path, lambda data: data.update(layer_types=["mamba", "attention", "mamba"]))
    if name == "qwen3_next":
        edit_json(path, lambda data: data.update(full_attention_interval=2,
                                                 partial_rotary_factor=0.5))
        edit_json(path, lambda data: data.pop("layer_types"))
    if name == "olmo3_older":
        def older_kinds(data):
            rope = data.pop("rope_parameters")["full_attention"]
            data.update(rope_theta=rope.pop("rope_theta"), rope_scaling=rope)

        edit_json(path, older_kinds)
    if name == "qwen2_windows":  # before layers had names
        edit_json(path, older_rope)
        edit_json(path, lambda data: data.pop("layer_types"))
    if name == "exaone4":  # as published
        edit_json(path, lambda data: data.update(sliding_window_pattern="LLLG"))
    if name == "cohere2":  # as published
        edit_json(path, older_rope)
        edit_json(path, lambda data: data.pop("layer_types"))
        edit_json(path, lambda data: data.update(sliding_window_pattern=4))
    if name == "qwen3_moe":
        edit_json(path, lambda data: data.update(num_experts=data.pop("num_local_experts")))
    if name == "deepseek":  # as published: the configuration names its code
        edit_json(path, lambda data: data.pop("head_dim"))
        edit_json(path, lambda data: data.update(auto_map={
            "AutoConfig": "configuration_deepseek.DeepseekConfig",
            "AutoModelForCausalLM": "modeling_deepseek.DeepseekForCausalLM"}))


def make(name):
    cfg, dtype = MODELS[name]
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(SEEDS.get(name, list(MODELS).index(name) + 1))
    torch.manual_seed(0)
    model = auto_class(name).from_config(cfg)
    if name in ("t5_v1_1", "mt5"):  # transformers 5 ties all
        model.lm_head.weight = torch.nn.Parameter(model.shared.weight.clone())
    fill(model, generator)
    sharded = name in ("llama", "mixtral")
    model.to(dtype).save_pretrained(folder, max_shard_size="9KB" if sharded else "5GB")
    if name == "mixtral":
        fused = os.path.join(HERE, FUSED)
        model.save_pretrained(fused, save_original_format=False)
        os.remove(os.path.join(fused, "generation_config.json"))
    if not is_bert(name) and not is_classifier(name):
        os.remove(os.path.join(folder, "generation_config.json"))
    make_older(name, folder)
    tokens = torch.randint(VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    if name == "roberta":  # padding has a position of its own, and is at a text's end alone
        tokens[tokens == cfg.pad_token_id] = 7
        tokens[1, -4:] = cfg.pad_token_id
    expect = {"tokens": tokens}
    if is_t5(name):  # 0 is padding: behind one of the texts, and where it happens to be
        expect["source"] = torch.randint(VOCAB, (BATCH, SEQ), generator=generator,
                                         dtype=torch.int32)
        expect["source"][1, -5:] = 0
    if is_classifier(name):
        add_texts(name, folder, expect)
    expect["logits"] = logits(folder, tokens, expect.get("source"), expect.get("at")).float()
    if name in WITH_GRADIENTS:
        add_gradients(name, folder, expect, generator)
    save_file(expect, os.path.join(folder, "expect.safetensors"))
    if name == "gpt_oss":
        make_packed(generator)
    print(f"{name}: {sorted(os.listdir(folder))}")


def add_texts(name, folder, expect):
    """Padding, and where texts are told of: what transformers finds itself is compared with that."""
    tokens, pad = expect["tokens"], MODELS[name][0].pad_token_id
    tokens[tokens == pad] = 7
    expect["at"] = torch.zeros(BATCH, dtype=torch.int32)
    if name.endswith("_mean_classes"):  # of all tokens but padding
        tokens[1, -6:] = pad
    if is_bert(name):
        return
    tokens[1, -6:] = pad
    expect["at"][:] = torch.tensor([SEQ - 1, SEQ - 7])
    whole = logits(folder, tokens, None, expect["at"])
    for i, end in enumerate(expect["at"]):
        alone = logits(folder, tokens[i:i + 1, :end + 1], None, expect["at"])
        if (whole[i] - alone[0]).abs().max() > 1e-6 * whole.abs().max():
            raise SystemExit(f"{name}: padding makes a difference")


def make_packed(generator):
    """PACKED: random bytes as gpt-oss is published, and WIDE: what transformers makes of them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    model = hf.AutoModelForCausalLM.from_config(config(
        hf.GptOssConfig, LLAMA, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_local_experts=3, num_experts_per_tok=2, sliding_window=5)).bfloat16()
    wide = {k: torch.randn(v.shape, generator=generator).mul(0.1).bfloat16()
            for k, v in model.state_dict().items()}
    packed = dict(wide)
    for name in [k for k in wide if k.endswith(("gate_up_proj", "down_proj"))]:
        experts, columns, rows = wide[name].shape
        shape = (experts, rows, columns // 32)
        blocks = torch.randint(256, (*shape, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(115, 130, shape, generator=generator, dtype=torch.uint8)
        wide[name] = convert_moe_packed_tensors(blocks, scales).contiguous()
        packed.pop(name)
        packed.update({name + "_blocks": blocks, name + "_scales": scales})
    for name, tensors in ((PACKED, packed), (WIDE, wide)):
        folder = os.path.join(HERE, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        model.config.save_pretrained(folder)
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    edit_json(os.path.join(HERE, PACKED, "config.json"), lambda data: data.update(
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}))


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


def all_tensors(folder):
    tensors = {}
    for file in sorted(os.listdir(folder)):
        if file.startswith("model") and file.endswith(".safetensors"):
            tensors.update(load_file(os.path.join(folder, file)))
    tensors = {k.replace(".gamma", ".weight").replace(".beta", ".bias"): v
               for k, v in tensors.items()
               if ("pooler" not in k or "classifier.weight" in tensors)
               and "seq_relationship" not in k}
    tensors = {k.replace("model.language_model.", "model.").removeprefix("language_model."): v
               for k, v in tensors.items()
               if not k.startswith(("vision_tower.", "vision_model.", "multi_modal_projector.",
                                    "model.visual."))}
    for part in ("gate_proj", "up_proj", "down_proj"):  # kimi_linear, as published and as saved
        tensors = {k.replace(f".block_sparse_moe.{part}.", f".mlp.{part}."): v
                   for k, v in tensors.items()}
    return {k.removeprefix("transformer."): v for k, v in tensors.items()
            if not k.endswith(".attn.bias") or v.dim() == 1}


def check_fused(perilune, scratch):
    files = []
    for name in ("mixtral", FUSED):
        files.append(os.path.join(scratch, name))
        run(perilune, "import", os.path.join(HERE, name), "-o", files[-1])
    if open(files[0], "rb").read() != open(files[1], "rb").read():
        raise SystemExit(f"{FUSED}: weights differ from mixtral's")
    print(f"{FUSED}: mixtral's weights")


def check_labels(name, folder, out, alike):
    """Names of classes come back, but for those that are none in the program, without --like."""
    theirs, ours = (hf.AutoConfig.from_pretrained(path) for path in (folder, out))
    named = alike or all("," not in label for label in theirs.id2label.values())
    if ours.num_labels != theirs.num_labels or (named and ours.id2label != theirs.id2label):
        raise SystemExit(f"{name}: labels are {ours.id2label}")
    if ours.label2id != {label: i for i, label in ours.id2label.items()}:
        raise SystemExit(f"{name}: labels' numbers are {ours.label2id}")
    if alike and ours.pad_token_id != theirs.pad_token_id:
        raise SystemExit(f"{name}: padding is {ours.pad_token_id}")


def check(name, perilune, scratch):
    folder, weights = os.path.join(HERE, name), os.path.join(scratch, "weights.safetensors")
    run(perilune, "import", folder, "-o", weights)
    worst = 0.0
    for options in ([], ["--like", folder], ["--max-shard-size", "9KB"]):
        out = os.path.join(scratch, "out")
        shutil.rmtree(out, ignore_errors=True)
        run(perilune, "export", weights, "--dtype", "f32", *options, "-o", out)
        ours, theirs = all_tensors(out), all_tensors(folder)
        if set(ours) != set(theirs):
            raise SystemExit(f"{name}: names differ: {set(ours) ^ set(theirs)}")
        for key in ours:
            if not torch.equal(ours[key], theirs[key].float()):
                raise SystemExit(f"{name}: {key} differs")
        expect = load_file(os.path.join(folder, "expect.safetensors"))
        theirs = logits(out, expect["tokens"], expect.get("source"), expect.get("at"))
        if is_classifier(name):
            check_labels(name, folder, out, "--like" in options)
        error = (theirs - expect["logits"]).abs().max().item()
        worst = max(worst, error / expect["logits"].abs().max().item())
    print(f"{name}: {len(ours)} tensors bit for bit, logits within {worst:.1e}")
    if worst > 1e-6:
        raise SystemExit(f"{name}: logits differ")


def main():
    parser = argparse.ArgumentParser(description="see the head of this file")
    parser.add_argument("--check", metavar="PERILUNE")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=MODELS)
    args = parser.parse_args()
    for name in args.only:
        if args.check:
            with tempfile.TemporaryDirectory() as scratch:
                check(name, args.check, scratch)
                if name == "mixtral":
                    check_fused(args.check, scratch)
        else:
            make(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
