#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- ModernBERT for masked language models and for classes of texts: q, k and v in one tensor, and
 * both halves of the gated layer. The first layer has no norm before its attention --- */

#define NORM(theirs, ours)                                                                         \
    {theirs ".weight", {ours ".gain"}, "model"}, {theirs ".bias", {ours ".bias"}, "model"}
#define LAYER(theirs) "model.layers.#." theirs

static const HfTensor MODERNBERT_TENSORS[] = {
    {"model.embeddings.tok_embeddings.weight", {"wte"}, "vocab, model"},
    NORM("model.embeddings.norm", "ln_e"),
    NORM(LAYER("attn_norm"), "blocks.#.ln1"),
    {LAYER("attn.Wqkv.weight"), {"blocks.#.attn.wq", "blocks.#.attn.wk", "blocks.#.attn.wv"},
     "+kv_heads group head, model"},
    {LAYER("attn.Wo.weight"), {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    NORM(LAYER("mlp_norm"), "blocks.#.ln2"),
    {LAYER("mlp.Wi.weight"), {"blocks.#.mlp.wgate", "blocks.#.mlp.wup"}, "+ffn, model"},
    {LAYER("mlp.Wo.weight"), {"blocks.#.mlp.wdown"}, "model, ffn"},
    NORM("model.final_norm", "ln_f"),
    {"head.dense.weight", {"head.w"}, "transformed, model"},
    NORM("head.norm", "ln_h"),
    {"decoder.bias", {"bias"}, "vocab"},
    {"classifier.weight", {"score"}, "class, model"},
    {"classifier.bias", {"score.b"}, "class"},
    {NULL, {NULL}, NULL}};

static const HfType MODERNBERT_TYPES[] = {
    {"modernbert", "ModernBertForMaskedLM", "ModernBertForSequenceClassification", "", NO_EXPERTS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

static const HfWord LAYERS[] = {
    {"full_attention", "F"}, {"sliding_attention", "W"}, {NULL, NULL}};
static const HfWord POOLINGS[] = {{"cls", "first"}, {"mean", "mean"}, {NULL, NULL}};

static const HfKey MODERNBERT_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER, .absent = "50368"},
    {.key = "pad_token_id", .setting = "padding", .kind = HF_COUNT, .absent = "50283",
     .null = "-1"},
    {.key = "sep_token_id", .setting = "sep_token", .kind = HF_COUNT, .absent = "50282",
     .null = "-1"},
    /* No key of theirs: [MASK] in the vocabulary that was published with it. */
    {.key = "mask_token_id", .setting = "mask_token", .kind = HF_COUNT, .absent = "50284"},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .absent = "8192",
     .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER, .absent = "768"},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER, .absent = "1152"},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER, .absent = "22"},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER, .absent = "12"},
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model"},
    {.key = "hidden_activation", .setting = "act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = HF_ACTIVATIONS},
    {.key = "classifier_activation", .setting = "head_act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = HF_ACTIVATIONS},
    {.key = "classifier_pooling", .setting = "pooling", .kind = HF_WORD, .absent = "first",
     .words = POOLINGS},
    {.key = "norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5"},
    {.key = "norm_bias", .setting = "norm_bias", .kind = HF_FLAG, .absent = "false"},
    {.key = "decoder_bias", .setting = "decoder_bias", .kind = HF_FLAG, .absent = "true"},
    {.key = "local_attention", .setting = "window", .kind = HF_INTEGER, .absent = "128"},
    {.key = "global_attn_every_n_layers", .setting = "window_layers", .kind = HF_EACH,
     .absent = "FWW", .words = LAYERS},
    {.key = "layer_types", .setting = "window_layers", .kind = HF_LAYERS, .absent = "",
     .words = LAYERS},
    {.key = "global_rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "160000",
     .alias = "rope_theta"},
    {.key = "local_rope_theta", .setting = "rotary_local_base", .kind = HF_NUMBER,
     .absent = "10000", .null = "=global_rope_theta", .alias = "rope_local_base_freq"},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "mlp_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "classifier_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "tie_word_embeddings", .kind = HF_FIXED, .absent = "true"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "embedding_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "mlp_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    COMMON_KEYS,
    {.key = NULL}};

static const char *const NOTHING_IGNORED[] = {NULL};

const HfFamily HF_MODERNBERT = {"modernbert", "model.", "decoder.weight", MODERNBERT_TYPES,
                                MODERNBERT_KEYS, MODERNBERT_TENSORS, NOTHING_IGNORED,
                                NULL, NULL, NULL};
/* clang-format on */
