#include "frontend/hf/hf_families.h"

#include <stddef.h>

/* clang-format off */
static const HfWord ACTIVATIONS[] = {
    {"silu", "silu"},   {"swish", "silu"},     {"gelu_pytorch_tanh", "gelu"}, {"gelu_new", "gelu"},
    {"gelu", "gelu_erf"}, {"relu", "relu"},    {"relu2", "relu2"},            {NULL, NULL}};
static const HfWord GPT2_ACTIVATIONS[] = {
    {"gelu_new", "gelu"}, {"gelu_pytorch_tanh", "gelu"}, {"gelu", "gelu_erf"}, {"relu", "relu"},
    {"silu", "silu"},     {"swish", "silu"},             {"relu2", "relu2"},   {NULL, NULL}};
static const HfWord SCALINGS[] = {{"linear", "linear"}, {"llama3", "llama3"}, {NULL, NULL}};
static const HfWord ALL_FULL[] = {{"full_attention", ""}, {NULL, NULL}};
static const HfWord EVERY_OTHER[] = {
    {"sliding_attention", ""}, {"full_attention", ""}, {NULL, NULL}};

/* What is computed otherwise than these families do. */
#define COMMON_KEYS                                                                                \
    {.key = "auto_map", .kind = HF_FIXED, .absent = "null"},                                       \
    KEYS_OF_ALL
#define KEYS_OF_ALL                                                                                \
    {.key = "quantization_config", .kind = HF_FIXED, .absent = "null"},                            \
    {.key = "is_encoder_decoder", .kind = HF_FIXED, .absent = "false"},                            \
    {.key = "bos_token_id", .kind = HF_WRITTEN, .absent = "null"},                                 \
    {.key = "eos_token_id", .kind = HF_WRITTEN, .absent = "null"}

/* --- GPT-2: weights [in, out], q, k and v in one --- */

#define NO_EXPERTS NULL, NULL, NULL

static const HfType GPT_TYPES[] = {
    {"gpt2", "GPT2LMHeadModel", "norm=layernorm", NO_EXPERTS},
    {NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey GPT_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "n_positions", .setting = "seq", .kind = HF_INTEGER},
    {.key = "n_embd", .setting = "model", .kind = HF_INTEGER},
    {.key = "n_layer", .setting = "layers", .kind = HF_INTEGER},
    {.key = "n_head", .setting = "heads", .kind = HF_INTEGER},
    {.key = "n_inner", .setting = "ffn", .kind = HF_INTEGER, .absent = ""},
    {.key = "activation_function", .setting = "act", .kind = HF_WORD, .absent = "gelu",
     .words = GPT2_ACTIVATIONS},
    {.key = "layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true"},
    {.key = "scale_attn_weights", .kind = HF_FIXED, .absent = "true"},
    {.key = "scale_attn_by_inverse_layer_idx", .kind = HF_FIXED, .absent = "false"},
    {.key = "add_cross_attention", .kind = HF_FIXED, .absent = "false"},
    {.key = "attn_pdrop", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "embd_pdrop", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "resid_pdrop", .kind = HF_WRITTEN, .absent = "0.0"},
    COMMON_KEYS,
    {.key = NULL}};

static const HfTensor GPT_TENSORS[] = {
    {"transformer.wte.weight", {"wte"}, "vocab, model"},
    {"transformer.wpe.weight", {"wpe"}, "seq, model"},
    {"transformer.h.#.ln_1.weight", {"blocks.#.ln1.gain"}, "model"},
    {"transformer.h.#.ln_1.bias", {"blocks.#.ln1.bias"}, "model"},
    {"transformer.h.#.attn.c_attn.weight",
     {"blocks.#.attn.wq", "blocks.#.attn.wk", "blocks.#.attn.wv"}, "model, kv_heads group head"},
    {"transformer.h.#.attn.c_attn.bias",
     {"blocks.#.attn.bq", "blocks.#.attn.bk", "blocks.#.attn.bv"}, "kv_heads group head"},
    {"transformer.h.#.attn.c_proj.weight", {"blocks.#.attn.wo"}, "kv_heads group head, model"},
    {"transformer.h.#.attn.c_proj.bias", {"blocks.#.attn.bo"}, "model"},
    {"transformer.h.#.ln_2.weight", {"blocks.#.ln2.gain"}, "model"},
    {"transformer.h.#.ln_2.bias", {"blocks.#.ln2.bias"}, "model"},
    {"transformer.h.#.mlp.c_fc.weight", {"blocks.#.mlp.w1"}, "model, ffn"},
    {"transformer.h.#.mlp.c_fc.bias", {"blocks.#.mlp.b1"}, "ffn"},
    {"transformer.h.#.mlp.c_proj.weight", {"blocks.#.mlp.w2"}, "ffn, model"},
    {"transformer.h.#.mlp.c_proj.bias", {"blocks.#.mlp.b2"}, "model"},
    {"transformer.ln_f.weight", {"ln_f.gain"}, "model"},
    {"transformer.ln_f.bias", {"ln_f.bias"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

/* Masks, which older files have. */
static const char *const GPT_IGNORED[] = {"transformer.h.#.attn.bias",
                                          "transformer.h.#.attn.masked_bias", NULL};

/* --- Llama and its kin: weights [out, in]; rotary pairs (i, i + head / 2), as nn.rotary --- */

static const HfType LLAMA_TYPES[] = {
    {"llama", "LlamaForCausalLM", "qkv_bias=false qk_norm=false window=0", NO_EXPERTS},
    {"mistral", "MistralForCausalLM", "qkv_bias=false qk_norm=false", NO_EXPERTS},
    {"qwen2", "Qwen2ForCausalLM", "qkv_bias=true qk_norm=false window=0", NO_EXPERTS},
    {"qwen3", "Qwen3ForCausalLM", "qkv_bias=false qk_norm=true window=0", NO_EXPERTS},
    {NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey LLAMA_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads", .types = "llama"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .types = "mistral qwen2 qwen3"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "",
     .types = "llama mistral qwen2"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .types = "qwen3"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "4096",
     .null = "0", .types = "mistral"},
    {.key = "use_sliding_window", .kind = HF_FIXED, .absent = "false", .types = "qwen2 qwen3"},
    {.key = "layer_types", .kind = HF_CYCLE, .types = "llama qwen2 qwen3", .words = ALL_FULL},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false", .types = "llama qwen3"},
    {.key = "mlp_bias", .kind = HF_FIXED, .absent = "false", .types = "llama"},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = SCALINGS},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER,
     .when = "rotary_scaling=linear|llama3"},
    {.key = "rope_scaling.low_freq_factor", .setting = "rotary_few", .kind = HF_NUMBER,
     .when = "rotary_scaling=llama3"},
    {.key = "rope_scaling.high_freq_factor", .setting = "rotary_many", .kind = HF_NUMBER,
     .when = "rotary_scaling=llama3"},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, .when = "rotary_scaling=llama3"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    COMMON_KEYS,
    {.key = NULL}};

static const HfTensor LLAMA_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    {"model.layers.#.self_attn.q_proj.weight", {"blocks.#.attn.wq"}, "kv_heads group head, model"},
    {"model.layers.#.self_attn.q_proj.bias", {"blocks.#.attn.bq"}, "kv_heads group head"},
    {"model.layers.#.self_attn.k_proj.weight", {"blocks.#.attn.wk"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.k_proj.bias", {"blocks.#.attn.bk"}, "kv_heads head"},
    {"model.layers.#.self_attn.v_proj.weight", {"blocks.#.attn.wv"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.v_proj.bias", {"blocks.#.attn.bv"}, "kv_heads head"},
    {"model.layers.#.self_attn.q_norm.weight", {"blocks.#.attn.qnorm.gain"}, "head"},
    {"model.layers.#.self_attn.k_norm.weight", {"blocks.#.attn.knorm.gain"}, "head"},
    {"model.layers.#.self_attn.o_proj.weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.norm2.gain"}, "model"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

static const char *const LLAMA_IGNORED[] = {"model.layers.#.self_attn.rotary_emb.inv_freq", NULL};

/* --- Gemma 2: norms of 1 + gain, as models/gemma.lua has them --- */

static const HfType GEMMA_TYPES[] = {
    {"gemma2", "Gemma2ForCausalLM", "", NO_EXPERTS},
    {NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey GEMMA_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "256"},
    {.key = "hidden_activation", .setting = "act", .kind = HF_WORD, .absent = "gelu",
     .words = ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6"},
    {.key = "query_pre_attn_scalar", .setting = "attention_scale", .kind = HF_INTEGER,
     .absent = "256"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "4096"},
    {.key = "attn_logit_softcapping", .setting = "softcap", .kind = HF_NUMBER, .absent = "50",
     .null = "0"},
    {.key = "final_logit_softcapping", .setting = "logit_softcap", .kind = HF_NUMBER,
     .absent = "30", .null = "0"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000"},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null"},
    {.key = "layer_types", .kind = HF_CYCLE, .words = EVERY_OTHER},
    {.key = "tie_word_embeddings", .kind = HF_FIXED, .absent = "true"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "use_bidirectional_attention", .kind = HF_FIXED, .absent = "false"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    COMMON_KEYS,
    {.key = NULL}};

static const HfTensor GEMMA_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.attn.before.gain"}, "model"},
    {"model.layers.#.self_attn.q_proj.weight", {"blocks.#.attn.wq"}, "kv_heads group head, model"},
    {"model.layers.#.self_attn.k_proj.weight", {"blocks.#.attn.wk"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.v_proj.weight", {"blocks.#.attn.wv"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.o_proj.weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.attn.after.gain"}, "model"},
    {"model.layers.#.pre_feedforward_layernorm.weight", {"blocks.#.mlp.before.gain"}, "model"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {"model.layers.#.post_feedforward_layernorm.weight", {"blocks.#.mlp.after.gain"}, "model"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {NULL, {NULL}, NULL}};

/* --- mixtures of experts, as models/moe.lua has them: experts one tensor each. DeepSeekMoE's code
 * is not in transformers but beside its weights (modeling_deepseek.py) --- */

#define EXPERTS(theirs, ours, dims)                                                                \
    {"model.layers.#." theirs ".weight", {"blocks.#.moe." ours}, dims}

static const HfTensor MIXTRAL_EACH[] = {
    EXPERTS("block_sparse_moe.gate", "router", "routes, model"),
    EXPERTS("block_sparse_moe.experts.@.w1", "wgate", "expert_ffn, model"),
    EXPERTS("block_sparse_moe.experts.@.w3", "wup", "expert_ffn, model"),
    EXPERTS("block_sparse_moe.experts.@.w2", "wdown", "model, expert_ffn"),
    {NULL, {NULL}, NULL}};

static const HfTensor EACH[] = {
    EXPERTS("mlp.gate", "router", "routes, model"),
    EXPERTS("mlp.experts.@.gate_proj", "wgate", "expert_ffn, model"),
    EXPERTS("mlp.experts.@.up_proj", "wup", "expert_ffn, model"),
    EXPERTS("mlp.experts.@.down_proj", "wdown", "model, expert_ffn"),
    {NULL, {NULL}, NULL}};

static const HfTensor FUSED[] = {
    EXPERTS("mlp.gate", "router", "routes, model"),
    {"model.layers.#.mlp.experts.gate_up_proj", {"blocks.#.moe.wgate", "blocks.#.moe.wup"},
     "experts, +expert_ffn, model"},
    {"model.layers.#.mlp.experts.down_proj", {"blocks.#.moe.wdown"}, "experts, model, expert_ffn"},
    {NULL, {NULL}, NULL}};

static const HfTensor QWEN2_SHARED[] = {
    EXPERTS("mlp.shared_expert.gate_proj", "shared.wgate", "shared_ffn, model"),
    EXPERTS("mlp.shared_expert.up_proj", "shared.wup", "shared_ffn, model"),
    EXPERTS("mlp.shared_expert.down_proj", "shared.wdown", "model, shared_ffn"),
    EXPERTS("mlp.shared_expert_gate", "shared.gate", "1, model"),
    {NULL, {NULL}, NULL}};

static const HfTensor DEEPSEEK_SHARED[] = {
    EXPERTS("mlp.shared_experts.gate_proj", "shared.wgate", "shared_ffn, model"),
    EXPERTS("mlp.shared_experts.up_proj", "shared.wup", "shared_ffn, model"),
    EXPERTS("mlp.shared_experts.down_proj", "shared.wdown", "model, shared_ffn"),
    {NULL, {NULL}, NULL}};

#define SOFTMAX "scores=softmax gate_scale=1"

static const HfType MOE_TYPES[] = {
    {"mixtral", "MixtralForCausalLM",
     "normalize=true dense_layers=0 shared=false qkv_bias=false qk_norm=false " SOFTMAX,
     MIXTRAL_EACH, FUSED, NULL},
    {"qwen3_moe", "Qwen3MoeForCausalLM",
     "shared=false qkv_bias=false qk_norm=true qk_norm_over=head window=0 " SOFTMAX,
     EACH, FUSED, NULL},
    {"olmoe", "OlmoeForCausalLM",
     "dense_layers=0 shared=false qkv_bias=false qk_norm=true qk_norm_over=all window=0 " SOFTMAX,
     EACH, FUSED, NULL},
    {"qwen2_moe", "Qwen2MoeForCausalLM",
     "shared=true shared_gate=true qkv_bias=true qk_norm=false window=0 " SOFTMAX,
     EACH, FUSED, QWEN2_SHARED},
    {"deepseek", "DeepseekForCausalLM",
     "shared_gate=false qkv_bias=false qk_norm=false window=0 " SOFTMAX,
     EACH, NULL, DEEPSEEK_SHARED},
    {NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey MOE_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads", .types = "olmoe deepseek"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .types = "mixtral qwen2_moe qwen3_moe"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "",
     .types = "mixtral qwen2_moe qwen3_moe"},
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model", .types = "olmoe deepseek"},
    {.key = "intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER,
     .types = "mixtral olmoe"},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER,
     .types = "qwen2_moe qwen3_moe deepseek"},
    {.key = "moe_intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER,
     .types = "qwen2_moe qwen3_moe deepseek"},
    {.key = "shared_expert_intermediate_size", .setting = "shared_ffn", .kind = HF_INTEGER,
     .types = "qwen2_moe"},
    {.key = "n_shared_experts", .setting = "shared_ffn", .kind = HF_TIMES, .of = "expert_ffn",
     .with = "shared", .types = "deepseek"},
    {.key = "num_local_experts", .setting = "experts", .kind = HF_INTEGER, .alias = "num_experts",
     .types = "mixtral"},
    {.key = "num_experts", .setting = "experts", .kind = HF_INTEGER, .alias = "num_local_experts",
     .types = "qwen2_moe qwen3_moe olmoe"},
    {.key = "n_routed_experts", .setting = "experts", .kind = HF_INTEGER, .types = "deepseek"},
    {.key = "num_experts_per_tok", .setting = "top_k", .kind = HF_INTEGER},
    {.key = "norm_topk_prob", .setting = "normalize", .kind = HF_FLAG, .absent = "false",
     .types = "qwen2_moe qwen3_moe olmoe deepseek"},
    /* Their code leaves the gate of an only expert as it is. */
    {.key = "norm_topk_prob", .kind = HF_FIXED, .absent = "false", .types = "deepseek",
     .when = "top_k=1"},
    {.key = "mlp_only_layers", .setting = "dense_layers", .kind = HF_FIRST, .absent = "0",
     .types = "qwen2_moe qwen3_moe"},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "0",
     .types = "deepseek"},
    {.key = "decoder_sparse_step", .kind = HF_FIXED, .absent = "1",
     .types = "qwen2_moe qwen3_moe"},
    {.key = "moe_layer_freq", .kind = HF_FIXED, .absent = "1", .types = "deepseek"},
    {.key = "scoring_func", .kind = HF_FIXED, .absent = "\"softmax\"", .types = "deepseek"},
    {.key = "router_aux_loss_coef", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001",
     .types = "mixtral qwen2_moe qwen3_moe"},
    {.key = "router_aux_loss_coef", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.01",
     .types = "olmoe"},
    {.key = "aux_loss_alpha", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001",
     .types = "deepseek"},
    {.key = "seq_aux", .kind = HF_WRITTEN, .absent = "true", .types = "deepseek"},
    {.key = "router_jitter_noise", .kind = HF_FIXED, .absent = "0.0", .types = "mixtral"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "mixtral olmoe"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6",
     .types = "qwen2_moe qwen3_moe deepseek"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "0", .null = "0",
     .types = "mixtral"},
    {.key = "use_sliding_window", .kind = HF_FIXED, .absent = "false",
     .types = "qwen2_moe qwen3_moe"},
    {.key = "layer_types", .kind = HF_CYCLE, .words = ALL_FULL},
    {.key = "qkv_bias", .kind = HF_FIXED, .absent = "true", .types = "qwen2_moe"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false",
     .types = "qwen3_moe olmoe deepseek"},
    {.key = "clip_qkv", .kind = HF_FIXED, .absent = "null", .types = "olmoe"},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "1e6",
     .types = "mixtral"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .types = "qwen2_moe qwen3_moe olmoe deepseek"},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "auto_map", .kind = HF_FIXED, .absent = "null",
     .types = "mixtral qwen2_moe qwen3_moe olmoe"},
    KEYS_OF_ALL,
    {.key = NULL}};

static const HfTensor MOE_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    {"model.layers.#.self_attn.q_proj.weight", {"blocks.#.attn.wq"}, "kv_heads group head, model"},
    {"model.layers.#.self_attn.q_proj.bias", {"blocks.#.attn.bq"}, "kv_heads group head"},
    {"model.layers.#.self_attn.k_proj.weight", {"blocks.#.attn.wk"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.k_proj.bias", {"blocks.#.attn.bk"}, "kv_heads head"},
    {"model.layers.#.self_attn.v_proj.weight", {"blocks.#.attn.wv"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.v_proj.bias", {"blocks.#.attn.bv"}, "kv_heads head"},
    /* Gains of each head, or of all: without the axes that the parameter lacks. */
    {"model.layers.#.self_attn.q_norm.weight", {"blocks.#.attn.qnorm.gain"}, "kv_heads group head"},
    {"model.layers.#.self_attn.k_norm.weight", {"blocks.#.attn.knorm.gain"}, "kv_heads head"},
    {"model.layers.#.self_attn.o_proj.weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.norm2.gain"}, "model"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

/* --- DeepSeek V2 and V3: latents, rotary pairs side by side --- */

static const HfWord YARN[] = {{"yarn", "yarn"}, {NULL, NULL}};
static const HfWord ROUTINGS[] = {
    {"greedy", "greedy"}, {"group_limited_greedy", "grouped"}, {NULL, NULL}};

static const HfTensor V3_OTHERS[] = {
    {"model.layers.#.mlp.gate.e_score_correction_bias", {"blocks.#.moe.bias"}, "routes"},
    EXPERTS("mlp.shared_experts.gate_proj", "shared.wgate", "shared_ffn, model"),
    EXPERTS("mlp.shared_experts.up_proj", "shared.wup", "shared_ffn, model"),
    EXPERTS("mlp.shared_experts.down_proj", "shared.wdown", "model, shared_ffn"),
    {NULL, {NULL}, NULL}};

static const HfType DEEPSEEK_TYPES[] = {
    {"deepseek_v2", "DeepseekV2ForCausalLM",
     "scores=softmax normalize=false bias=false group_best=1 mtp=0", EACH, FUSED, DEEPSEEK_SHARED},
    {"deepseek_v3", "DeepseekV3ForCausalLM",
     "scores=sigmoid bias=true routing=grouped group_best=2 mtp=0", EACH, FUSED, V3_OTHERS},
    {NULL, NULL, NULL, NO_EXPERTS}};

#define OF_V2 .types = "deepseek_v2"
#define OF_V3 .types = "deepseek_v3"
#define WITH_YARN .when = "rotary_scaling=yarn"

static const HfKey DEEPSEEK_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "moe_intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads"},
    {.key = "q_lora_rank", .setting = "q_rank", .kind = HF_COUNT, .absent = "1536", .null = "0"},
    {.key = "kv_lora_rank", .setting = "kv_rank", .kind = HF_INTEGER, .absent = "512"},
    {.key = "qk_nope_head_dim", .setting = "nope", .kind = HF_INTEGER, .absent = "128"},
    {.key = "qk_rope_head_dim", .setting = "rope", .kind = HF_INTEGER, .absent = "64"},
    {.key = "v_head_dim", .setting = "value", .kind = HF_INTEGER, .absent = "128"},
    {.key = "n_shared_experts", .setting = "shared_ffn", .kind = HF_TIMES, .of = "expert_ffn",
     .with = "shared"},
    {.key = "n_routed_experts", .setting = "experts", .kind = HF_INTEGER},
    {.key = "num_experts_per_tok", .setting = "top_k", .kind = HF_INTEGER},
    {.key = "topk_method", .setting = "routing", .kind = HF_WORD, .absent = "greedy",
     .words = ROUTINGS, OF_V2},
    {.key = "topk_method", .kind = HF_FIXED, .absent = "\"noaux_tc\"", OF_V3},
    {.key = "n_group", .setting = "groups", .kind = HF_INTEGER, .absent = "1", OF_V2},
    {.key = "topk_group", .setting = "kept_groups", .kind = HF_INTEGER, .absent = "1", OF_V2},
    {.key = "n_group", .setting = "groups", .kind = HF_INTEGER, .absent = "8", OF_V3},
    {.key = "topk_group", .setting = "kept_groups", .kind = HF_INTEGER, .absent = "4", OF_V3},
    {.key = "scoring_func", .kind = HF_FIXED, .absent = "\"softmax\"", OF_V2},
    {.key = "scoring_func", .kind = HF_FIXED, .absent = "\"sigmoid\"", OF_V3},
    {.key = "norm_topk_prob", .kind = HF_FIXED, .absent = "false", OF_V2},
    {.key = "norm_topk_prob", .setting = "normalize", .kind = HF_FLAG, .absent = "true", OF_V3},
    {.key = "routed_scaling_factor", .setting = "gate_scale", .kind = HF_NUMBER, .absent = "1",
     OF_V2},
    {.key = "routed_scaling_factor", .setting = "gate_scale", .kind = HF_NUMBER, .absent = "2.5",
     OF_V3},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "0",
     OF_V2},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "3",
     OF_V3},
    {.key = "moe_layer_freq", .kind = HF_FIXED, .absent = "1"},
    {.key = "aux_loss_alpha", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001"},
    {.key = "seq_aux", .kind = HF_WRITTEN, .absent = "true"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "mlp_bias", .kind = HF_FIXED, .absent = "false", OF_V2},
    {.key = "rope_interleave", .kind = HF_FIXED, .absent = "true", OF_V3},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = YARN},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER, WITH_YARN},
    {.key = "rope_scaling.beta_fast", .setting = "rotary_many", .kind = HF_NUMBER,
     .absent = "32", WITH_YARN},
    {.key = "rope_scaling.beta_slow", .setting = "rotary_few", .kind = HF_NUMBER, .absent = "1",
     WITH_YARN},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, WITH_YARN},
    /* Both, and equal: else sines and cosines are scaled, too. */
    {.key = "rope_scaling.mscale_all_dim", .setting = "rotary_mscale", .kind = HF_NUMBER,
     .alias = "rope_scaling.mscale", WITH_YARN},
    {.key = "rope_scaling.mscale", .setting = "rotary_mscale", .kind = HF_NUMBER, WITH_YARN},
    {.key = "rope_scaling.attention_factor", .kind = HF_FIXED, .absent = "null"},
    {.key = "rope_scaling.truncate", .kind = HF_FIXED, .absent = "true"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    KEYS_OF_ALL,
    {.key = NULL}};

#define ATTENTION(theirs, ours, dims)                                                              \
    {"model.layers.#.self_attn." theirs ".weight", {"blocks.#.attn." ours}, dims}

static const HfTensor DEEPSEEK_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    {"model.layers.#.self_attn.q_proj.weight",
     {"blocks.#.attn.wq_nope", "blocks.#.attn.wq_rope"}, "heads *+nope rope~, model"},
    ATTENTION("q_a_proj", "wq_a", "q_rank, model"),
    ATTENTION("q_a_layernorm", "qnorm.gain", "q_rank"),
    {"model.layers.#.self_attn.q_b_proj.weight",
     {"blocks.#.attn.wq_b_nope", "blocks.#.attn.wq_b_rope"}, "heads *+nope rope~, q_rank"},
    {"model.layers.#.self_attn.kv_a_proj_with_mqa.weight",
     {"blocks.#.attn.wkv_a", "blocks.#.attn.wk_rope"}, "+kv_rank rope~, model"},
    ATTENTION("kv_a_layernorm", "kvnorm.gain", "kv_rank"),
    {"model.layers.#.self_attn.kv_b_proj.weight", {"blocks.#.attn.wk", "blocks.#.attn.wv"},
     "heads *+nope value, kv_rank"},
    ATTENTION("o_proj", "wo", "model, heads value"),
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.norm2.gain"}, "model"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

/* --- BERT for masked language models --- */

static const HfType BERT_TYPES[] = {
    {"bert", "BertForMaskedLM", "norm=layernorm pre_norm=false transform=true", NO_EXPERTS},
    {NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey BERT_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER},
    {.key = "type_vocab_size", .setting = "types", .kind = HF_INTEGER, .absent = "2"},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = ACTIVATIONS},
    {.key = "layer_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-12"},
    /* No key of theirs: [MASK] in all of the vocabularies that were published with BERT. */
    {.key = "mask_token_id", .setting = "mask_token", .kind = HF_COUNT, .absent = "103"},
    {.key = "position_embedding_type", .kind = HF_FIXED, .absent = "\"absolute\""},
    {.key = "is_decoder", .kind = HF_FIXED, .absent = "false"},
    {.key = "add_cross_attention", .kind = HF_FIXED, .absent = "false"},
    {.key = "tie_word_embeddings", .kind = HF_FIXED, .absent = "true"},
    {.key = "hidden_dropout_prob", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "attention_probs_dropout_prob", .kind = HF_WRITTEN, .absent = "0.0"},
    COMMON_KEYS,
    {.key = NULL}};

#define BERT_PAIR(theirs, weight, bias, dims, bias_dims)                                           \
    {"bert." theirs ".weight", {weight}, dims},                                                    \
    {"bert." theirs ".bias", {bias}, bias_dims}
#define BERT_LAYER(theirs, weight, bias, dims, bias_dims)                                          \
    BERT_PAIR("encoder.layer.#." theirs, "blocks.#." weight, "blocks.#." bias, dims, bias_dims)

static const HfTensor BERT_TENSORS[] = {
    {"bert.embeddings.word_embeddings.weight", {"wte"}, "vocab, model"},
    {"bert.embeddings.position_embeddings.weight", {"wpe"}, "seq, model"},
    {"bert.embeddings.token_type_embeddings.weight", {"types"}, "types, model"},
    BERT_PAIR("embeddings.LayerNorm", "ln_e.gain", "ln_e.bias", "model", "model"),
    BERT_LAYER("attention.self.query", "attn.wq", "attn.bq", "kv_heads group head, model",
               "kv_heads group head"),
    BERT_LAYER("attention.self.key", "attn.wk", "attn.bk", "kv_heads head, model",
               "kv_heads head"),
    BERT_LAYER("attention.self.value", "attn.wv", "attn.bv", "kv_heads head, model",
               "kv_heads head"),
    BERT_LAYER("attention.output.dense", "attn.wo", "attn.bo", "model, kv_heads group head",
               "model"),
    BERT_LAYER("attention.output.LayerNorm", "ln1.gain", "ln1.bias", "model", "model"),
    BERT_LAYER("intermediate.dense", "mlp.w1", "mlp.b1", "ffn, model", "ffn"),
    BERT_LAYER("output.dense", "mlp.w2", "mlp.b2", "model, ffn", "model"),
    BERT_LAYER("output.LayerNorm", "ln2.gain", "ln2.bias", "model", "model"),
    {"cls.predictions.transform.dense.weight", {"head.w"}, "transformed, model"},
    {"cls.predictions.transform.dense.bias", {"head.b"}, "transformed"},
    {"cls.predictions.transform.LayerNorm.weight", {"ln_h.gain"}, "model"},
    {"cls.predictions.transform.LayerNorm.bias", {"ln_h.bias"}, "model"},
    {"cls.predictions.bias", {"bias"}, "vocab"},
    {NULL, {NULL}, NULL}};

/* Which sentence is next, and the bias once more, which newer versions do not write. */
static const char *const BERT_IGNORED[] = {
    "bert.embeddings.position_ids", "bert.pooler.dense.weight", "bert.pooler.dense.bias",
    "cls.seq_relationship.weight", "cls.seq_relationship.bias", "cls.predictions.decoder.bias",
    NULL};

/* --- T5: an encoder's blocks, then a decoder's --- */

static const HfWord T5_ACTIVATIONS[] = {
    {"relu", "relu"},         {"gated-gelu", "gated_gelu"}, {"gated-silu", "gated_silu"},
    {"gelu_new", "gelu"},     {"gelu", "gelu_erf"},         {"silu", "silu"},
    {NULL, NULL}};

static const HfType T5_TYPES[] = {
    {"t5", "T5ForConditionalGeneration", "", NO_EXPERTS},
    {NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey T5_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    /* Relative positions have no end: what T5 was trained with, of either text. */
    {.key = "n_positions", .setting = "source", .kind = HF_INTEGER, .absent = "512", .most = 8192},
    {.key = "n_positions", .setting = "seq", .kind = HF_INTEGER, .absent = "512", .most = 8192},
    {.key = "d_model", .setting = "model", .kind = HF_INTEGER},
    {.key = "d_kv", .setting = "head", .kind = HF_INTEGER},
    {.key = "d_ff", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_decoder_layers", .setting = "decoder_layers", .kind = HF_INTEGER,
     .absent = "=num_layers", .null = "0"},
    {.key = "num_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "relative_attention_num_buckets", .setting = "buckets", .kind = HF_INTEGER,
     .absent = "32"},
    {.key = "relative_attention_max_distance", .setting = "distance", .kind = HF_INTEGER,
     .absent = "128"},
    {.key = "feed_forward_proj", .setting = "act", .kind = HF_WORD, .absent = "relu",
     .words = T5_ACTIVATIONS},
    {.key = "layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true"},
    /* From transformers 5 on; before, logits were scaled where tables were tied. */
    {.key = "scale_decoder_outputs", .setting = "scaled", .kind = HF_FLAG,
     .absent = "=tie_word_embeddings"},
    {.key = "decoder_start_token_id", .setting = "start", .kind = HF_COUNT, .absent = "0"},
    {.key = "pad_token_id", .setting = "pad", .kind = HF_COUNT, .absent = "0"},
    {.key = "eos_token_id", .setting = "eos", .kind = HF_COUNT, .absent = "1"},
    /* No key of theirs: behind the last of their tokenizer's hundred, rows are spare. */
    {.key = "sentinel_token_id", .setting = "sentinel", .kind = HF_COUNT, .absent = "32099",
     .when = "vocab=32128"},
    {.key = "is_encoder_decoder", .kind = HF_FIXED, .absent = "true"},
    {.key = "is_encoder_decoder", .kind = HF_WRITTEN, .absent = "true"},
    {.key = "quantization_config", .kind = HF_FIXED, .absent = "null"},
    {.key = "auto_map", .kind = HF_FIXED, .absent = "null"},
    {.key = "dropout_rate", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = NULL}};

#define T5_ATTENTION(theirs, mark, ours)                                                           \
    {theirs ".q.weight", {"blocks." mark "." ours ".wq"}, "heads head, model"},                    \
    {theirs ".k.weight", {"blocks." mark "." ours ".wk"}, "heads head, model"},                    \
    {theirs ".v.weight", {"blocks." mark "." ours ".wv"}, "heads head, model"},                    \
    {theirs ".o.weight", {"blocks." mark "." ours ".wo"}, "model, heads head"}
#define T5_MLP(theirs, mark)                                                                       \
    {theirs ".wi.weight", {"blocks." mark ".mlp.w1"}, "ffn, model"},                               \
    {theirs ".wi_0.weight", {"blocks." mark ".mlp.wgate"}, "ffn, model"},                          \
    {theirs ".wi_1.weight", {"blocks." mark ".mlp.wup"}, "ffn, model"},                            \
    {theirs ".wo.weight", {"blocks." mark ".mlp.w2"}, "model, ffn"},                               \
    {theirs ".wo.weight", {"blocks." mark ".mlp.wdown"}, "model, ffn"}

static const HfTensor T5_TENSORS[] = {
    {"shared.weight", {"wte"}, "vocab, model"},
    {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", {"encoder.relative"},
     "relative, heads"},
    T5_ATTENTION("encoder.block.<.layer.0.SelfAttention", "<", "attn"),
    {"encoder.block.<.layer.0.layer_norm.weight", {"blocks.<.attn_norm.gain"}, "model"},
    T5_MLP("encoder.block.<.layer.1.DenseReluDense", "<"),
    {"encoder.block.<.layer.1.layer_norm.weight", {"blocks.<.mlp_norm.gain"}, "model"},
    {"encoder.final_layer_norm.weight", {"encoder.norm_f.gain"}, "model"},
    {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", {"decoder.relative"},
     "relative, heads"},
    T5_ATTENTION("decoder.block.>.layer.0.SelfAttention", ">", "attn"),
    {"decoder.block.>.layer.0.layer_norm.weight", {"blocks.>.attn_norm.gain"}, "model"},
    T5_ATTENTION("decoder.block.>.layer.1.EncDecAttention", ">", "cross"),
    {"decoder.block.>.layer.1.layer_norm.weight", {"blocks.>.cross_norm.gain"}, "model"},
    T5_MLP("decoder.block.>.layer.2.DenseReluDense", ">"),
    {"decoder.block.>.layer.2.layer_norm.weight", {"blocks.>.mlp_norm.gain"}, "model"},
    {"decoder.final_layer_norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

/* The table once more, and one of cross-attention that their first code had and never read. */
static const char *const T5_IGNORED[] = {
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", NULL};
/* clang-format on */

/* clang-format off */
const HfFamily HF_FAMILIES[] = {
    {"gpt", "transformer.", "lm_head.weight", GPT_TYPES, GPT_KEYS, GPT_TENSORS, GPT_IGNORED,
     NULL, NULL},
    {"llama", "model.", "lm_head.weight", LLAMA_TYPES, LLAMA_KEYS, LLAMA_TENSORS, LLAMA_IGNORED,
     NULL, NULL},
    {"gemma", "model.", "lm_head.weight", GEMMA_TYPES, GEMMA_KEYS, GEMMA_TENSORS, LLAMA_IGNORED,
     NULL, NULL},
    {"moe", "model.", "lm_head.weight", MOE_TYPES, MOE_KEYS, MOE_TENSORS, LLAMA_IGNORED,
     "capacity=0", "there, experts take all tokens that choose them"},
    {"deepseek", "model.", "lm_head.weight", DEEPSEEK_TYPES, DEEPSEEK_KEYS, DEEPSEEK_TENSORS,
     LLAMA_IGNORED, "capacity=0", "there, experts take all tokens that choose them"},
    {"bert", "bert.", "cls.predictions.decoder.weight", BERT_TYPES, BERT_KEYS, BERT_TENSORS,
     BERT_IGNORED, NULL, NULL},
    {"t5", "", "lm_head.weight", T5_TYPES, T5_KEYS, T5_TENSORS, T5_IGNORED, NULL, NULL},
    {.script = NULL}};
/* clang-format on */
