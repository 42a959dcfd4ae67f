#include "frontend/hf/hf_rows.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
const HfWord HF_ACTIVATIONS[] = {
    {"silu", "silu"},   {"swish", "silu"},     {"gelu_pytorch_tanh", "gelu"}, {"gelu_new", "gelu"},
    {"gelu", "gelu_erf"}, {"relu", "relu"},    {"relu2", "relu2"},            {NULL, NULL}};
const HfWord HF_GPT_ACTIVATIONS[] = {
    {"gelu_new", "gelu"}, {"gelu_pytorch_tanh", "gelu"}, {"gelu", "gelu_erf"}, {"relu", "relu"},
    {"silu", "silu"},     {"swish", "silu"},             {"relu2", "relu2"},   {NULL, NULL}};
const HfWord HF_ALL_FULL[] = {{"full_attention", ""}, {NULL, NULL}};

const char *const HF_NO_FREQUENCIES[] = {"model.layers.#.self_attn.rotary_emb.inv_freq", NULL};

/* --- GPT-2, weights [in, out], and GPT BigCode; q, k and v in one --- */

/* Of a Conv1D [in, out] or of a product [out, in], q, k and v as their types have them. */
#define BLOCK(theirs, dims, ...) {"transformer.h.#." theirs, {__VA_ARGS__}, dims}
#define QKV(letter)                                                                                \
    "blocks.#.attn." letter "q", "blocks.#.attn." letter "k", "blocks.#.attn." letter "v"
static const HfTensor GPT2_ROWS[] = {
    BLOCK("attn.c_attn.weight", "model, kv_heads group head", QKV("w")),
    BLOCK("attn.c_attn.bias", "kv_heads group head", QKV("b")),
    BLOCK("attn.c_proj.weight", "kv_heads group head, model", "blocks.#.attn.wo"),
    BLOCK("mlp.c_fc.weight", "model, ffn", "blocks.#.mlp.w1"),
    BLOCK("mlp.c_proj.weight", "ffn, model", "blocks.#.mlp.w2"),
    {NULL, {NULL}, NULL}};
/* All heads have one key and one value. */
static const HfTensor BIGCODE_ROWS[] = {
    BLOCK("attn.c_attn.weight", "kv_heads *+group head, model", QKV("w")),
    BLOCK("attn.c_attn.bias", "kv_heads *+group head", QKV("b")),
    BLOCK("attn.c_proj.weight", "model, kv_heads group head", "blocks.#.attn.wo"),
    BLOCK("mlp.c_fc.weight", "ffn, model", "blocks.#.mlp.w1"),
    BLOCK("mlp.c_proj.weight", "model, ffn", "blocks.#.mlp.w2"),
    {NULL, {NULL}, NULL}};

static const HfType GPT_TYPES[] = {
    {"gpt2", "GPT2LMHeadModel", "GPT2ForSequenceClassification", "norm=layernorm kv_heads=@heads",
     NULL, NULL, GPT2_ROWS},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", "GPTBigCodeForSequenceClassification",
     "norm=layernorm kv_heads=1", NULL, NULL, BIGCODE_ROWS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey GPT_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "n_positions", .setting = "seq", .kind = HF_INTEGER},
    {.key = "n_embd", .setting = "model", .kind = HF_INTEGER},
    {.key = "n_layer", .setting = "layers", .kind = HF_INTEGER},
    {.key = "n_head", .setting = "heads", .kind = HF_INTEGER},
    /* GPT-2 has no such key: the number of heads. */
    {.key = "n_head", .setting = "kv_heads", .kind = HF_INTEGER, .types = "gpt2"},
    {.key = "multi_query", .kind = HF_FIXED, .absent = "true", .types = "gpt_bigcode"},
    {.key = "n_inner", .setting = "ffn", .kind = HF_INTEGER, .absent = ""},
    {.key = "activation_function", .setting = "act", .kind = HF_WORD, .absent = "gelu",
     .words = HF_GPT_ACTIVATIONS},
    {.key = "layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true"},
    {.key = "scale_attn_weights", .kind = HF_FIXED, .absent = "true"},
    {.key = "scale_attn_by_inverse_layer_idx", .kind = HF_FIXED, .absent = "false",
     .types = "gpt2"},
    {.key = "add_cross_attention", .kind = HF_FIXED, .absent = "false"},
    {.key = "attn_pdrop", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "embd_pdrop", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "resid_pdrop", .kind = HF_WRITTEN, .absent = "0.0"},
    ONLY_CAUSAL,
    COMMON_KEYS,
    {.key = NULL}};

static const HfTensor GPT_TENSORS[] = {
    {"transformer.wte.weight", {"wte"}, "vocab, model"},
    {"transformer.wpe.weight", {"wpe"}, "seq, model"},
    {"transformer.h.#.ln_1.weight", {"blocks.#.ln1.gain"}, "model"},
    {"transformer.h.#.ln_1.bias", {"blocks.#.ln1.bias"}, "model"},
    {"transformer.h.#.attn.c_proj.bias", {"blocks.#.attn.bo"}, "model"},
    {"transformer.h.#.ln_2.weight", {"blocks.#.ln2.gain"}, "model"},
    {"transformer.h.#.ln_2.bias", {"blocks.#.ln2.bias"}, "model"},
    {"transformer.h.#.mlp.c_fc.bias", {"blocks.#.mlp.b1"}, "ffn"},
    {"transformer.h.#.mlp.c_proj.bias", {"blocks.#.mlp.b2"}, "model"},
    {"transformer.ln_f.weight", {"ln_f.gain"}, "model"},
    {"transformer.ln_f.bias", {"ln_f.bias"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

/* Masks, which older files have. */
static const char *const GPT_IGNORED[] = {"transformer.h.#.attn.bias",
                                          "transformer.h.#.attn.masked_bias", NULL};

/* --- T5: an encoder's blocks, then a decoder's --- */

static const HfWord T5_ACTIVATIONS[] = {
    {"relu", "relu"},         {"gated-gelu", "gated_gelu"}, {"gated-silu", "gated_silu"},
    {"gelu_new", "gelu"},     {"gelu", "gelu_erf"},         {"silu", "silu"},
    {NULL, NULL}};

static const HfType T5_TYPES[] = {
    {"t5", "T5ForConditionalGeneration", NULL, "", NO_EXPERTS},
    {"mt5", "MT5ForConditionalGeneration", NULL, "scaled=false", NO_EXPERTS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

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
     .words = T5_ACTIVATIONS, .types = "t5"},
    {.key = "feed_forward_proj", .setting = "act", .kind = HF_WORD, .absent = "gated_gelu",
     .words = T5_ACTIVATIONS, .types = "mt5"},
    {.key = "layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true",
     .types = "t5"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false",
     .types = "mt5"},
    /* From transformers 5 on; before, logits were scaled where tables were tied. */
    {.key = "scale_decoder_outputs", .setting = "scaled", .kind = HF_FLAG,
     .absent = "=tie_word_embeddings", .types = "t5"},
    {.key = "decoder_start_token_id", .setting = "start", .kind = HF_COUNT, .absent = "0"},
    {.key = "pad_token_id", .setting = "pad", .kind = HF_COUNT, .absent = "0"},
    {.key = "eos_token_id", .setting = "eos", .kind = HF_COUNT, .absent = "1"},
    /* No key of theirs: behind the last of their tokenizer's hundred, rows are spare. */
    {.key = "sentinel_token_id", .setting = "sentinel", .kind = HF_COUNT, .absent = "32099",
     .when = "vocab=32128"},
    {.key = "sentinel_token_id", .setting = "sentinel", .kind = HF_COUNT, .absent = "250099",
     .when = "vocab=250112"},
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

static const HfFamily GPT = {"gpt", "transformer.", "lm_head.weight", GPT_TYPES, GPT_KEYS,
                             GPT_TENSORS, GPT_IGNORED, NULL, NULL, NULL};
static const HfFamily T5_FAMILY = {"t5", "", "lm_head.weight", T5_TYPES, T5_KEYS, T5_TENSORS,
                                   T5_IGNORED, NULL, NULL, NULL};

const HfFamily *const HF_FAMILIES[] = {&GPT,     &HF_LLAMA,    &HF_GEMMA,  &HF_NEOX, &HF_BERT,
                                       &HF_MOE,  &HF_DEEPSEEK, &HF_GPTOSS, &T5_FAMILY, &HF_HYBRID,
                                       &HF_KIMI, &HF_LLAMA4, &HF_MODERNBERT, &HF_LLADA,
                                       &HF_DREAM, &HF_VISION, NULL};
/* clang-format on */

size_t hf_family_prefix(const HfFamily *family, const char *name) {
    for (const char *at = family->prefix; *at;) {
        const size_t length = strcspn(at, " ");
        if (strncmp(name, at, length) == 0) return length;
        at += length + (at[length] == ' ');
    }
    return 0;
}
