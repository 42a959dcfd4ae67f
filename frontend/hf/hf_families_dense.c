#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
static const HfWord SCALINGS[] = {{"linear", "linear"}, {"llama3", "llama3"}, {NULL, NULL}};
static const HfWord NOT_THE_FOURTH[] = {{"1", ""}, {"1", ""}, {"1", ""}, {"0", ""}, {NULL, NULL}};
static const HfWord LONGROPE[] = {{"longrope", "longrope"}, {"su", "longrope"}, {NULL, NULL}};
static const HfWord LINEAR[] = {{"linear", "linear"}, {NULL, NULL}};
static const HfWord FIVE_AND_ONE[] = {
    {"sliding_attention", ""}, {"sliding_attention", ""}, {"sliding_attention", ""},
    {"sliding_attention", ""}, {"sliding_attention", ""}, {"full_attention", ""}, {NULL, NULL}};
const HfWord HF_EVERY_OTHER[] = {
    {"sliding_attention", ""}, {"full_attention", ""}, {NULL, NULL}};

/* --- Llama and its kin: weights [out, in]; rotary pairs (i, i + head / 2), as nn.rotary --- */

/* q, k and v, gate and up: a tensor each, or in one. In the order in which an adapter's targets are
 * told. */
static const HfTensor LLAMA_EACH[] = {
    {"model.layers.#.self_attn.q_proj.weight", {"blocks.#.attn.wq"}, "kv_heads group head, model"},
    {"model.layers.#.self_attn.q_proj.bias", {"blocks.#.attn.bq"}, "kv_heads group head"},
    {"model.layers.#.self_attn.k_proj.weight", {"blocks.#.attn.wk"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.k_proj.bias", {"blocks.#.attn.bk"}, "kv_heads head"},
    {"model.layers.#.self_attn.v_proj.weight", {"blocks.#.attn.wv"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.v_proj.bias", {"blocks.#.attn.bv"}, "kv_heads head"},
    {"model.layers.#.self_attn.o_proj.weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {NULL, {NULL}, NULL}};

static const HfTensor PHI3_JOINED[] = {
    {"model.layers.#.self_attn.qkv_proj.weight",
     {"blocks.#.attn.wq", "blocks.#.attn.wk", "blocks.#.attn.wv"},
     "+kv_heads group head, model"},
    {"model.layers.#.self_attn.o_proj.weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    {"model.layers.#.mlp.gate_up_proj.weight", {"blocks.#.mlp.wgate", "blocks.#.mlp.wup"},
     "+ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {NULL, {NULL}, NULL}};

#define SEPARATE NULL, NULL, LLAMA_EACH
#define UNSCALED " embedding_scale=1 attention_scale=0 residual_scale=1 logit_divisor=1"
#define NO_LONGROPE " rotary_short= rotary_long="
#define EVERY_ROTARY " rotary_share=1 rotary_skip=0" NO_LONGROPE
#define NORMS_BEFORE " norm=rmsnorm norms=before"
#define LLAMA_LIKE NORMS_BEFORE EVERY_ROTARY UNSCALED

static const HfType LLAMA_TYPES[] = {
    {"llama", "LlamaForCausalLM", "LlamaForSequenceClassification",
     "qkv_bias=false qk_norm=false window=0" LLAMA_LIKE, SEPARATE},
    {"mistral", "MistralForCausalLM", "MistralForSequenceClassification",
     "qkv_bias=false qk_norm=false" LLAMA_LIKE, SEPARATE},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2ForSequenceClassification",
     "qkv_bias=true qk_norm=false window=0" LLAMA_LIKE, SEPARATE},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3ForSequenceClassification",
     "qkv_bias=false qk_norm=true qk_norm_over=head window=0" LLAMA_LIKE, SEPARATE},
    {"phi3", "Phi3ForCausalLM", "Phi3ForSequenceClassification",
     "qkv_bias=false qk_norm=false rotary_skip=0" NORMS_BEFORE UNSCALED,
     NULL, NULL, PHI3_JOINED},
    {"olmo2", "Olmo2ForCausalLM", "Olmo2ForSequenceClassification",
     "qkv_bias=false qk_norm=true qk_norm_over=all window=0 norm=rmsnorm norms=after"
     EVERY_ROTARY UNSCALED, SEPARATE},
    {"smollm3", "SmolLM3ForCausalLM", "SmolLM3ForSequenceClassification",
     "qkv_bias=false qk_norm=false window=0 rotary_share=1 rotary_skip=4" NO_LONGROPE NORMS_BEFORE
     UNSCALED, SEPARATE},
    {"granite", "GraniteForCausalLM", NULL,
     "qkv_bias=false qk_norm=false window=0" NORMS_BEFORE EVERY_ROTARY, SEPARATE},
    {"stablelm", "StableLmForCausalLM", "StableLmForSequenceClassification",
     "qk_norm=false window=0 norm=layernorm norms=before rotary_skip=0" NO_LONGROPE UNSCALED,
     SEPARATE},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_LONGROPE .types = "phi3", .when = "rotary_scaling=longrope"

static const HfKey LLAMA_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads", .types = "llama phi3 olmo2 granite"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .types = "mistral qwen2 qwen3 stablelm"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, .absent = "4",
     .null = "=num_attention_heads", .types = "smollm3"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "",
     .types = "llama mistral qwen2 phi3 olmo2 smollm3 granite"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .types = "qwen3"},
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model", .types = "stablelm"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = HF_ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6",
     .types = "llama mistral qwen2 qwen3 smollm3 granite"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "phi3 olmo2"},
    {.key = "layer_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "stablelm"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false",
     .types = "llama mistral qwen2 qwen3 phi3 olmo2 granite stablelm"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true",
     .types = "smollm3"},
    {.key = "embedding_multiplier", .setting = "embedding_scale", .kind = HF_NUMBER,
     .absent = "1", .types = "granite"},
    {.key = "attention_multiplier", .setting = "attention_scale", .kind = HF_NUMBER,
     .absent = "1", .zero = "1/sqrt head", .types = "granite"},
    {.key = "residual_multiplier", .setting = "residual_scale", .kind = HF_NUMBER,
     .absent = "1", .types = "granite"},
    {.key = "logits_scaling", .setting = "logit_divisor", .kind = HF_NUMBER, .absent = "1",
     .types = "granite"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "4096",
     .null = "0", .types = "mistral"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "0", .null = "0",
     .types = "phi3"},
    {.key = "use_sliding_window", .kind = HF_FIXED, .absent = "false",
     .types = "qwen2 qwen3 smollm3"},
    {.key = "layer_types", .kind = HF_CYCLE, .types = "llama qwen2 qwen3 smollm3",
     .words = HF_ALL_FULL},
    {.key = "no_rope_layers", .kind = HF_CYCLE, .types = "smollm3", .words = NOT_THE_FOURTH},
    {.key = "no_rope_layer_interval", .kind = HF_FIXED, .absent = "4", .types = "smollm3"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false",
     .types = "llama qwen3 phi3 olmo2 smollm3 granite"},
    {.key = "mlp_bias", .kind = HF_FIXED, .absent = "false", .types = "llama smollm3 granite"},
    {.key = "use_qkv_bias", .setting = "qkv_bias", .kind = HF_FLAG, .absent = "false",
     .types = "stablelm"},
    {.key = "qk_layernorm", .kind = HF_FIXED, .absent = "false", .types = "stablelm"},
    {.key = "use_parallel_residual", .kind = HF_FIXED, .absent = "false", .types = "stablelm"},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0",
     .types = "llama mistral qwen2 qwen3 olmo2 smollm3 granite"},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER, .absent = "1",
     .types = "phi3"},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER,
     .absent = "0.25", .types = "stablelm"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .types = "llama mistral qwen2 qwen3 phi3 olmo2 granite stablelm"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "2e6",
     .types = "smollm3"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = LONGROPE, .types = "phi3"},
    {.key = "rope_scaling.short_factor", .setting = "rotary_short", .kind = HF_NUMBERS,
     OF_LONGROPE},
    {.key = "rope_scaling.long_factor", .setting = "rotary_long", .kind = HF_NUMBERS, OF_LONGROPE},
    {.key = "original_max_position_embeddings", .setting = "rotary_context", .kind = HF_INTEGER,
     .absent = "4096", .alias = "rope_scaling.original_max_position_embeddings", OF_LONGROPE},
    {.key = "rope_scaling.attention_factor", .setting = "rotary_mscale", .kind = HF_NUMBER,
     OF_LONGROPE},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = SCALINGS,
     .types = "llama mistral qwen2 qwen3 olmo2 smollm3 granite stablelm"},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER,
     .when = "rotary_scaling=linear|llama3"},
    {.key = "rope_scaling.low_freq_factor", .setting = "rotary_few", .kind = HF_NUMBER,
     .when = "rotary_scaling=llama3"},
    {.key = "rope_scaling.high_freq_factor", .setting = "rotary_many", .kind = HF_NUMBER,
     .when = "rotary_scaling=llama3"},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, .when = "rotary_scaling=llama3"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "hidden_dropout", .kind = HF_WRITTEN, .absent = "0.0", .types = "stablelm"},
    {.key = "embd_pdrop", .kind = HF_WRITTEN, .absent = "0.0", .types = "phi3"},
    {.key = "resid_pdrop", .kind = HF_WRITTEN, .absent = "0.0", .types = "phi3"},
    /* Else transformers takes one that a small vocabulary lacks. */
    {.key = "pad_token_id", .kind = HF_WRITTEN, .absent = "null", .types = "phi3 olmo2 smollm3"},
    /* Phi 3 was published beside its code, before transformers had the same. */
    {.key = "auto_map", .kind = HF_FIXED, .absent = "null",
     .types = "llama mistral qwen2 qwen3 olmo2 smollm3 granite stablelm"},
    KEYS_OF_ALL,
    {.key = NULL}};

static const HfTensor LLAMA_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    {"model.layers.#.input_layernorm.bias", {"blocks.#.norm1.bias"}, "model"},
    /* Gains of each head, or of all: without the axes that the parameter lacks. */
    {"model.layers.#.self_attn.q_norm.weight", {"blocks.#.attn.qnorm.gain"}, "kv_heads group head"},
    {"model.layers.#.self_attn.k_norm.weight", {"blocks.#.attn.knorm.gain"}, "kv_heads head"},
    /* Of what the second branch reads, or of what the first one adds (OLMo 2). */
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.norm2.gain"}, "model"},
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.attn.after.gain"}, "model"},
    {"model.layers.#.post_attention_layernorm.bias", {"blocks.#.norm2.bias"}, "model"},
    {"model.layers.#.post_feedforward_layernorm.weight", {"blocks.#.mlp.after.gain"}, "model"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"model.norm.bias", {"norm_f.bias"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

/* --- Gemma 2 and 3: norms of 1 + gain, as models/gemma.lua has them --- */

static const HfType GEMMA_TYPES[] = {
    {"gemma2", "Gemma2ForCausalLM", "Gemma2ForSequenceClassification",
     "qk_norm=false full_every=2 rotary_local_base=0 rotary_scaling=none", NO_EXPERTS},
    {"gemma3_text", "Gemma3ForCausalLM", "Gemma3TextForSequenceClassification",
     "qk_norm=true full_every=6 softcap=0", NO_EXPERTS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_GEMMA2 .types = "gemma2"
#define OF_GEMMA3 .types = "gemma3_text"

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
     .words = HF_ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6"},
    {.key = "query_pre_attn_scalar", .setting = "attention_scale", .kind = HF_INTEGER,
     .absent = "256"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "4096"},
    {.key = "attn_logit_softcapping", .setting = "softcap", .kind = HF_NUMBER, .absent = "50",
     .null = "0", OF_GEMMA2},
    {.key = "attn_logit_softcapping", .kind = HF_FIXED, .absent = "null", OF_GEMMA3},
    {.key = "final_logit_softcapping", .setting = "logit_softcap", .kind = HF_NUMBER,
     .absent = "30", .null = "0", OF_GEMMA2},
    {.key = "final_logit_softcapping", .setting = "logit_softcap", .kind = HF_NUMBER,
     .absent = "0", .null = "0", OF_GEMMA3},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     OF_GEMMA2},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "1e6", OF_GEMMA3},
    {.key = "rope_local_base_freq", .setting = "rotary_local_base", .kind = HF_NUMBER,
     .absent = "10000", .zero = "rotary_base", OF_GEMMA3},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null", OF_GEMMA2},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = LINEAR, OF_GEMMA3},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER,
     .when = "rotary_scaling=linear", OF_GEMMA3},
    {.key = "layer_types", .kind = HF_CYCLE, .words = HF_EVERY_OTHER, OF_GEMMA2},
    {.key = "layer_types", .kind = HF_CYCLE, .words = FIVE_AND_ONE, OF_GEMMA3},
    {.key = "sliding_window_pattern", .kind = HF_FIXED, .absent = "6", OF_GEMMA3},
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
    {"model.layers.#.self_attn.q_norm.weight", {"blocks.#.attn.qnorm.gain"}, "head"},
    {"model.layers.#.self_attn.k_norm.weight", {"blocks.#.attn.knorm.gain"}, "head"},
    {"model.layers.#.self_attn.o_proj.weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.attn.after.gain"}, "model"},
    {"model.layers.#.pre_feedforward_layernorm.weight", {"blocks.#.mlp.before.gain"}, "model"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {"model.layers.#.post_feedforward_layernorm.weight", {"blocks.#.mlp.after.gain"}, "model"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    SCORE,
    {NULL, {NULL}, NULL}};

const HfFamily HF_LLAMA = {"llama", "model.", "lm_head.weight", LLAMA_TYPES, LLAMA_KEYS,
                           LLAMA_TENSORS, HF_NO_FREQUENCIES, NULL, NULL, NULL};
const HfFamily HF_GEMMA = {"gemma", "model.", "lm_head.weight", GEMMA_TYPES, GEMMA_KEYS,
                           GEMMA_TENSORS, HF_NO_FREQUENCIES, NULL, NULL, NULL};
/* clang-format on */
