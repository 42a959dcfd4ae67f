#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- GPT-NeoX (Pythia), Phi 1.5 and 2, StarCoder 2, GPT-J and Falcon, as models/neox.lua has them.
 * NeoX has q, k and v of a head one after the other, Falcon the queries of a group, its key and its
 * value --- */

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

#define OF_GPTJ_BLOCK(theirs, ours, dims) {"transformer.h.#." theirs, {"blocks.#." ours}, dims}
static const HfTensor GPTJ_ROWS[] = {
    {"transformer.wte.weight", {"wte"}, "vocab, model"},
    NEOX_NORM("transformer.h.#.ln_1", "blocks.#.ln1"),
    OF_GPTJ_BLOCK("attn.q_proj.weight", "attn.wq", "kv_heads group head~s, model"),
    OF_GPTJ_BLOCK("attn.k_proj.weight", "attn.wk", "kv_heads head~s, model"),
    OF_GPTJ_BLOCK("attn.v_proj.weight", "attn.wv", "kv_heads head, model"),
    OF_GPTJ_BLOCK("attn.out_proj.weight", "attn.wo", "model, kv_heads group head"),
    OF_GPTJ_BLOCK("mlp.fc_in.weight", "mlp.w1", "ffn, model"),
    OF_GPTJ_BLOCK("mlp.fc_in.bias", "mlp.b1", "ffn"),
    OF_GPTJ_BLOCK("mlp.fc_out.weight", "mlp.w2", "model, ffn"),
    OF_GPTJ_BLOCK("mlp.fc_out.bias", "mlp.b2", "model"),
    NEOX_NORM("transformer.ln_f", "ln_f"),
    {"lm_head.weight", {"head"}, "vocab, model"},
    {"lm_head.bias", {"head_bias"}, "vocab"},
    SCORE,
    {NULL, {NULL}, NULL}};

#define FALCON_NORM(theirs, ours, when)                                                            \
    {"transformer.h.#." theirs ".weight", {"blocks.#." ours ".gain"}, "model?shared_norm=" when},  \
    {"transformer.h.#." theirs ".bias", {"blocks.#." ours ".bias"}, "model?shared_norm=" when}
static const HfTensor FALCON_ROWS[] = {
    {"transformer.word_embeddings.weight", {"wte"}, "vocab, model"},
    FALCON_NORM("input_layernorm", "ln1", "true"),
    FALCON_NORM("ln_attn", "ln1", "false"),
    FALCON_NORM("ln_mlp", "ln2", "false"),
    {"transformer.h.#.self_attention.query_key_value.weight",
     {"blocks.#.attn.wq", "blocks.#.attn.wk", "blocks.#.attn.wv"},
     "kv_heads *+group head, model"},
    {"transformer.h.#.self_attention.dense.weight", {"blocks.#.attn.wo"},
     "model, kv_heads group head"},
    {"transformer.h.#.mlp.dense_h_to_4h.weight", {"blocks.#.mlp.w1"}, "ffn, model"},
    {"transformer.h.#.mlp.dense_4h_to_h.weight", {"blocks.#.mlp.w2"}, "model, ffn"},
    NEOX_NORM("transformer.ln_f", "ln_f"),
    {"lm_head.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

#define HALVES " rotary_pairs=halves"
#define BIASES " attention_bias=true mlp_bias=true" HALVES

static const HfType NEOX_TYPES[] = {
    {"gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXForSequenceClassification",
     "shared_norm=false window=0 head_bias=false kv_heads=@heads" BIASES,
     NULL, NULL, NEOX_ROWS},
    {"phi", "PhiForCausalLM", "PhiForSequenceClassification",
     "parallel=true shared_norm=true window=0 head_bias=true tied=false" BIASES,
     NULL, NULL, PHI_ROWS},
    {"starcoder2", "Starcoder2ForCausalLM", "Starcoder2ForSequenceClassification",
     "parallel=false shared_norm=false rotary_share=1 head_bias=false" BIASES,
     NULL, NULL, STARCODER2_ROWS},
    {"gptj", "GPTJForCausalLM", "GPTJForSequenceClassification",
     "parallel=true shared_norm=true window=0 head_bias=true tied=false attention_bias=false "
     "mlp_bias=true rotary_pairs=adjacent rotary_base=10000 kv_heads=@heads",
     NULL, NULL, GPTJ_ROWS},
    {"falcon", "FalconForCausalLM", "FalconForSequenceClassification",
     "parallel=true window=0 head_bias=false attention_bias=false mlp_bias=false rotary_share=1"
     HALVES,
     NULL, NULL, FALCON_ROWS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_NEOX .types = "gpt_neox"
#define OF_PHI .types = "phi"
#define OF_STARCODER2 .types = "starcoder2"
#define OF_GPTJ .types = "gptj"
#define OF_FALCON .types = "falcon"
#define WITH_HIDDEN_SIZE .types = "gpt_neox phi starcoder2 falcon"
#define OF_FIRST_THREE .types = "gpt_neox phi starcoder2"

/* Norms in front of the two branches. */
static const HfWord FALCON_NORMS[] = {{"1", "true"}, {"2", "false"}, {NULL, NULL}};

static const HfKey NEOX_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192,
     OF_FIRST_THREE},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .absent = "2048",
     .most = 8192, OF_FALCON},
    {.key = "n_positions", .setting = "seq", .kind = HF_INTEGER, .most = 8192, OF_GPTJ},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER, WITH_HIDDEN_SIZE},
    {.key = "n_embd", .setting = "model", .kind = HF_INTEGER, OF_GPTJ},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER, OF_FIRST_THREE},
    /* Where they say none, hf_sizes.c does. */
    {.key = "n_inner", .setting = "ffn", .kind = HF_INTEGER, OF_GPTJ},
    {.key = "ffn_hidden_size", .setting = "ffn", .kind = HF_INTEGER, OF_FALCON},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER, WITH_HIDDEN_SIZE},
    {.key = "n_layer", .setting = "layers", .kind = HF_INTEGER, OF_GPTJ},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER, WITH_HIDDEN_SIZE},
    {.key = "n_head", .setting = "heads", .kind = HF_INTEGER, OF_GPTJ},
    {.key = "n_head", .setting = "kv_heads", .kind = HF_INTEGER, OF_GPTJ},
    {.key = "num_kv_heads", .setting = "kv_heads", .kind = HF_INTEGER, OF_FALCON},
    {.key = "num_ln_in_parallel_attn", .setting = "shared_norm", .kind = HF_WORD,
     .words = FALCON_NORMS, OF_FALCON},
    {.key = "new_decoder_architecture", .kind = HF_WRITTEN, .absent = "true", OF_FALCON},
    {.key = "parallel_attn", .kind = HF_FIXED, .absent = "true", OF_FALCON},
    {.key = "alibi", .kind = HF_FIXED, .absent = "false", OF_FALCON},
    {.key = "bias", .kind = HF_FIXED, .absent = "false", OF_FALCON},
    /* GPT-NeoX has no such key: the number of heads. */
    {.key = "num_attention_heads", .setting = "kv_heads", .kind = HF_INTEGER, OF_NEOX},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads", OF_PHI},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, OF_STARCODER2},
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model", OF_FIRST_THREE},
    /* Of GPT-J and Falcon, hf_sizes.c says it: rotary_dim is a share of it. */
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .of = "heads", .with = "model",
     .types = "gptj falcon"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = HF_GPT_ACTIVATIONS, OF_NEOX},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "gelu",
     .words = HF_GPT_ACTIVATIONS, .types = "phi starcoder2"},
    {.key = "activation_function", .setting = "act", .kind = HF_WORD, .absent = "gelu",
     .words = HF_GPT_ACTIVATIONS, OF_GPTJ},
    {.key = "activation", .setting = "act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = HF_GPT_ACTIVATIONS, OF_FALCON},
    {.key = "layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "gptj falcon"},
    {.key = "layer_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "gpt_neox phi"},
    {.key = "norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     OF_STARCODER2},
    {.key = "use_parallel_residual", .setting = "parallel", .kind = HF_FLAG, .absent = "true",
     OF_NEOX},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false", OF_NEOX},
    {.key = "tie_word_embeddings", .kind = HF_FIXED, .absent = "false", .types = "phi gptj"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true",
     .types = "starcoder2 falcon"},
    {.key = "rotary_dim", .setting = "rotary_share", .kind = HF_SHARE, .of = "head",
     .with = "partial_rotary_factor", OF_GPTJ},
    {.key = "rotary_pct", .setting = "rotary_share", .kind = HF_NUMBER, .absent = "0.25",
     .alias = "partial_rotary_factor", OF_NEOX},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER,
     .absent = "0.5", OF_PHI},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0",
     .types = "starcoder2 falcon"},
    {.key = "rotary_emb_base", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .alias = "rope_theta", OF_NEOX},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .types = "phi starcoder2 falcon"},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null", WITH_HIDDEN_SIZE},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "0", .null = "0",
     OF_STARCODER2},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "true", OF_NEOX},
    {.key = "use_bias", .kind = HF_FIXED, .absent = "true", OF_STARCODER2},
    {.key = "qk_layernorm", .kind = HF_FIXED, .absent = "false", OF_PHI},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0", WITH_HIDDEN_SIZE},
    {.key = "attn_pdrop", .kind = HF_WRITTEN, .absent = "0.0", OF_GPTJ},
    {.key = "hidden_dropout", .kind = HF_WRITTEN, .absent = "0.0", .types = "gpt_neox falcon"},
    {.key = "embd_pdrop", .kind = HF_WRITTEN, .absent = "0.0", .types = "phi gptj"},
    {.key = "resid_pdrop", .kind = HF_WRITTEN, .absent = "0.0", .types = "phi gptj"},
    {.key = "embedding_dropout", .kind = HF_WRITTEN, .absent = "0.0", OF_STARCODER2},
    {.key = "residual_dropout", .kind = HF_WRITTEN, .absent = "0.0", OF_STARCODER2},
    /* Falcon was published beside its code, before transformers had the same. */
    {.key = "auto_map", .kind = HF_FIXED, .absent = "null",
     .types = "gpt_neox phi starcoder2 gptj"},
    ONLY_CAUSAL,
    KEYS_OF_ALL,
    {.key = NULL}};

/* Each type has rows of its own. */
static const HfTensor NEOX_TENSORS[] = {{NULL, {NULL}, NULL}};

/* Masks and frequencies, which older files have. */
static const char *const NEOX_IGNORED[] = {
    "gpt_neox.layers.#.attention.bias", "gpt_neox.layers.#.attention.masked_bias",
    "gpt_neox.layers.#.attention.rotary_emb.inv_freq",
    "model.layers.#.self_attn.rotary_emb.inv_freq", "transformer.h.#.attn.bias",
    "transformer.h.#.attn.masked_bias", "transformer.h.#.self_attention.rotary_emb.inv_freq",
    NULL};

const HfFamily HF_NEOX = {"neox", "", "lm_head.weight embed_out.weight", NEOX_TYPES, NEOX_KEYS,
                          NEOX_TENSORS, NEOX_IGNORED, NULL, NULL, NULL};
/* clang-format on */
