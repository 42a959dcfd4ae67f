#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- GPT-NeoX (Pythia), Phi 1.5 and 2, StarCoder 2, as models/neox.lua has them. NeoX has q, k and
 * v of a head one after the other --- */

#define NEOX_NORM(theirs, ours)                                                                    \
    {theirs ".weight", {ours ".gain"}, "model"}, {theirs ".bias", {ours ".bias"}, "model"}

static const HfTensor NEOX_ROWS[] = {
    {"gpt_neox.embed_in.weight", {"wte"}, "vocab, model"},
    NEOX_NORM("gpt_neox.layers.#.input_layernorm", "blocks.#.ln1"),
    {"gpt_neox.layers.#.attention.query_key_value.weight",
     {"blocks.#.attn.wq", "blocks.#.attn.wk", "blocks.#.attn.wv"},
     "kv_heads group *+head, model"},
    {"gpt_neox.layers.#.attention.query_key_value.bias",
     {"blocks.#.attn.bq", "blocks.#.attn.bk", "blocks.#.attn.bv"}, "kv_heads group *+head"},
    {"gpt_neox.layers.#.attention.dense.weight", {"blocks.#.attn.wo"},
     "model, kv_heads group head"},
    {"gpt_neox.layers.#.attention.dense.bias", {"blocks.#.attn.bo"}, "model"},
    NEOX_NORM("gpt_neox.layers.#.post_attention_layernorm", "blocks.#.ln2"),
    {"gpt_neox.layers.#.mlp.dense_h_to_4h.weight", {"blocks.#.mlp.w1"}, "ffn, model"},
    {"gpt_neox.layers.#.mlp.dense_h_to_4h.bias", {"blocks.#.mlp.b1"}, "ffn"},
    {"gpt_neox.layers.#.mlp.dense_4h_to_h.weight", {"blocks.#.mlp.w2"}, "model, ffn"},
    {"gpt_neox.layers.#.mlp.dense_4h_to_h.bias", {"blocks.#.mlp.b2"}, "model"},
    NEOX_NORM("gpt_neox.final_layer_norm", "ln_f"),
    {"embed_out.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

/* What Phi and StarCoder 2 call by the same names. */
#define SAME_ROWS                                                                                  \
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},                                        \
    NEOX_NORM("model.layers.#.input_layernorm", "blocks.#.ln1"),                                   \
    {"model.layers.#.self_attn.q_proj.weight", {"blocks.#.attn.wq"},                               \
     "kv_heads group head, model"},                                                                \
    {"model.layers.#.self_attn.q_proj.bias", {"blocks.#.attn.bq"}, "kv_heads group head"},         \
    {"model.layers.#.self_attn.k_proj.weight", {"blocks.#.attn.wk"}, "kv_heads head, model"},      \
    {"model.layers.#.self_attn.k_proj.bias", {"blocks.#.attn.bk"}, "kv_heads head"},               \
    {"model.layers.#.self_attn.v_proj.weight", {"blocks.#.attn.wv"}, "kv_heads head, model"},      \
    {"model.layers.#.self_attn.v_proj.bias", {"blocks.#.attn.bv"}, "kv_heads head"}
#define OTHER_NAMES(o, w1, w2)                                                                     \
    {"model.layers.#.self_attn." o ".weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"}, \
    {"model.layers.#.self_attn." o ".bias", {"blocks.#.attn.bo"}, "model"},                        \
    {"model.layers.#.mlp." w1 ".weight", {"blocks.#.mlp.w1"}, "ffn, model"},                       \
    {"model.layers.#.mlp." w1 ".bias", {"blocks.#.mlp.b1"}, "ffn"},                                \
    {"model.layers.#.mlp." w2 ".weight", {"blocks.#.mlp.w2"}, "model, ffn"},                       \
    {"model.layers.#.mlp." w2 ".bias", {"blocks.#.mlp.b2"}, "model"}

static const HfTensor PHI_ROWS[] = {
    SAME_ROWS,
    OTHER_NAMES("dense", "fc1", "fc2"),
    NEOX_NORM("model.final_layernorm", "ln_f"),
    {"lm_head.weight", {"head"}, "vocab, model"},
    {"lm_head.bias", {"head_bias"}, "vocab"},
    SCORE,
    {NULL, {NULL}, NULL}};

static const HfTensor STARCODER2_ROWS[] = {
    SAME_ROWS,
    NEOX_NORM("model.layers.#.post_attention_layernorm", "blocks.#.ln2"),
    OTHER_NAMES("o_proj", "c_fc", "c_proj"),
    NEOX_NORM("model.norm", "ln_f"),
    {"lm_head.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

static const HfType NEOX_TYPES[] = {
    {"gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXForSequenceClassification",
     "shared_norm=false window=0 head_bias=false kv_heads=@heads",
     NULL, NULL, NEOX_ROWS},
    {"phi", "PhiForCausalLM", "PhiForSequenceClassification",
     "parallel=true shared_norm=true window=0 head_bias=true tied=false",
     NULL, NULL, PHI_ROWS},
    {"starcoder2", "Starcoder2ForCausalLM", "Starcoder2ForSequenceClassification",
     "parallel=false shared_norm=false rotary_share=1 head_bias=false",
     NULL, NULL, STARCODER2_ROWS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_NEOX .types = "gpt_neox"
#define OF_PHI .types = "phi"
#define OF_STARCODER2 .types = "starcoder2"

static const HfKey NEOX_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    /* GPT-NeoX has no such key: the number of heads. */
    {.key = "num_attention_heads", .setting = "kv_heads", .kind = HF_INTEGER, OF_NEOX},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads", OF_PHI},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, OF_STARCODER2},
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = HF_GPT_ACTIVATIONS, OF_NEOX},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "gelu",
     .words = HF_GPT_ACTIVATIONS, .types = "phi starcoder2"},
    {.key = "layer_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "gpt_neox phi"},
    {.key = "norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     OF_STARCODER2},
    {.key = "use_parallel_residual", .setting = "parallel", .kind = HF_FLAG, .absent = "true",
     OF_NEOX},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false", OF_NEOX},
    {.key = "tie_word_embeddings", .kind = HF_FIXED, .absent = "false", OF_PHI},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true",
     OF_STARCODER2},
    {.key = "rotary_pct", .setting = "rotary_share", .kind = HF_NUMBER, .absent = "0.25",
     .alias = "partial_rotary_factor", OF_NEOX},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER,
     .absent = "0.5", OF_PHI},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0", OF_STARCODER2},
    {.key = "rotary_emb_base", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .alias = "rope_theta", OF_NEOX},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .types = "phi starcoder2"},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "0", .null = "0",
     OF_STARCODER2},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "true", OF_NEOX},
    {.key = "use_bias", .kind = HF_FIXED, .absent = "true", OF_STARCODER2},
    {.key = "qk_layernorm", .kind = HF_FIXED, .absent = "false", OF_PHI},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "hidden_dropout", .kind = HF_WRITTEN, .absent = "0.0", OF_NEOX},
    {.key = "embd_pdrop", .kind = HF_WRITTEN, .absent = "0.0", OF_PHI},
    {.key = "resid_pdrop", .kind = HF_WRITTEN, .absent = "0.0", OF_PHI},
    {.key = "embedding_dropout", .kind = HF_WRITTEN, .absent = "0.0", OF_STARCODER2},
    {.key = "residual_dropout", .kind = HF_WRITTEN, .absent = "0.0", OF_STARCODER2},
    COMMON_KEYS,
    {.key = NULL}};

/* Each type has rows of its own. */
static const HfTensor NEOX_TENSORS[] = {{NULL, {NULL}, NULL}};

/* Masks and frequencies, which older files have. */
static const char *const NEOX_IGNORED[] = {
    "gpt_neox.layers.#.attention.bias", "gpt_neox.layers.#.attention.masked_bias",
    "gpt_neox.layers.#.attention.rotary_emb.inv_freq",
    "model.layers.#.self_attn.rotary_emb.inv_freq", NULL};

const HfFamily HF_NEOX = {"neox", "", "lm_head.weight embed_out.weight", NEOX_TYPES, NEOX_KEYS,
                          NEOX_TENSORS, NEOX_IGNORED, NULL, NULL, NULL};
/* clang-format on */
