#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
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
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = HF_ACTIVATIONS},
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

const HfFamily HF_BERT = {"bert", "bert.", "cls.predictions.decoder.weight", BERT_TYPES, BERT_KEYS,
                          BERT_TENSORS, BERT_IGNORED, NULL, NULL};
/* clang-format on */
