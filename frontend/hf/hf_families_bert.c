#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- BERT, RoBERTa and DistilBERT for masked language models and for classes of texts --- */

#define PAIR(theirs, weight, bias, dims, bias_dims)                                                \
    {theirs ".weight", {weight}, dims}, {theirs ".bias", {bias}, bias_dims}
#define LAYER(of, theirs, weight, bias, dims, bias_dims)                                           \
    PAIR(of "encoder.layer.#." theirs, "blocks.#." weight, "blocks.#." bias, dims, bias_dims)
#define ENCODER(of)                                                                                \
    {of "embeddings.token_type_embeddings.weight", {"types"}, "types, model"},                     \
    PAIR(of "embeddings.LayerNorm", "ln_e.gain", "ln_e.bias", "model", "model"),                   \
    LAYER(of, "attention.self.query", "attn.wq", "attn.bq", "kv_heads group head, model",          \
          "kv_heads group head"),                                                                  \
    LAYER(of, "attention.self.key", "attn.wk", "attn.bk", "kv_heads head, model",                  \
          "kv_heads head"),                                                                        \
    LAYER(of, "attention.self.value", "attn.wv", "attn.bv", "kv_heads head, model",                \
          "kv_heads head"),                                                                        \
    LAYER(of, "attention.output.dense", "attn.wo", "attn.bo", "model, kv_heads group head",        \
          "model"),                                                                                \
    LAYER(of, "attention.output.LayerNorm", "ln1.gain", "ln1.bias", "model", "model"),             \
    LAYER(of, "intermediate.dense", "mlp.w1", "mlp.b1", "ffn, model", "ffn"),                      \
    LAYER(of, "output.dense", "mlp.w2", "mlp.b2", "model, ffn", "model"),                          \
    LAYER(of, "output.LayerNorm", "ln2.gain", "ln2.bias", "model", "model")

static const HfTensor BERT_TENSORS[] = {
    {"bert.embeddings.word_embeddings.weight", {"wte"}, "vocab, model"},
    {"bert.embeddings.position_embeddings.weight", {"wpe"}, "seq, model"},
    ENCODER("bert."),
    PAIR("cls.predictions.transform.dense", "head.w", "head.b", "transformed, model",
         "transformed"),
    PAIR("cls.predictions.transform.LayerNorm", "ln_h.gain", "ln_h.bias", "model", "model"),
    {"cls.predictions.bias", {"bias"}, "vocab"},
    PAIR("bert.pooler.dense", "pooler.w", "pooler.b", "pooled, model", "pooled"),
    PAIR("classifier", "score", "score.b", "class, pooled", "class"),
    {NULL, {NULL}, NULL}};

/* Rows of positions before the first one's are no one's (models/bert.lua). */
static const HfTensor ROBERTA_TENSORS[] = {
    {"roberta.embeddings.word_embeddings.weight", {"wte"}, "vocab, model"},
    {"roberta.embeddings.position_embeddings.weight", {"wpe_before", "wpe"}, "+before seq, model"},
    ENCODER("roberta."),
    PAIR("lm_head.dense", "head.w", "head.b", "transformed, model", "transformed"),
    PAIR("lm_head.layer_norm", "ln_h.gain", "ln_h.bias", "model", "model"),
    {"lm_head.bias", {"bias"}, "vocab"},
    PAIR("classifier.dense", "pooler.w", "pooler.b", "pooled, model", "pooled"),
    PAIR("classifier.out_proj", "score", "score.b", "class, pooled", "class"),
    {NULL, {NULL}, NULL}};

#define DISTIL(theirs, weight, bias, dims, bias_dims)                                              \
    PAIR("distilbert.transformer.layer.#." theirs, "blocks.#." weight, "blocks.#." bias, dims,     \
         bias_dims)

/* No types; its layers have other names. */
static const HfTensor DISTILBERT_TENSORS[] = {
    {"distilbert.embeddings.word_embeddings.weight", {"wte"}, "vocab, model"},
    {"distilbert.embeddings.position_embeddings.weight", {"wpe"}, "seq, model"},
    PAIR("distilbert.embeddings.LayerNorm", "ln_e.gain", "ln_e.bias", "model", "model"),
    DISTIL("attention.q_lin", "attn.wq", "attn.bq", "kv_heads group head, model",
           "kv_heads group head"),
    DISTIL("attention.k_lin", "attn.wk", "attn.bk", "kv_heads head, model", "kv_heads head"),
    DISTIL("attention.v_lin", "attn.wv", "attn.bv", "kv_heads head, model", "kv_heads head"),
    DISTIL("attention.out_lin", "attn.wo", "attn.bo", "model, kv_heads group head", "model"),
    DISTIL("sa_layer_norm", "ln1.gain", "ln1.bias", "model", "model"),
    DISTIL("ffn.lin1", "mlp.w1", "mlp.b1", "ffn, model", "ffn"),
    DISTIL("ffn.lin2", "mlp.w2", "mlp.b2", "model, ffn", "model"),
    DISTIL("output_layer_norm", "ln2.gain", "ln2.bias", "model", "model"),
    PAIR("vocab_transform", "head.w", "head.b", "transformed, model", "transformed"),
    PAIR("vocab_layer_norm", "ln_h.gain", "ln_h.bias", "model", "model"),
    {"vocab_projector.bias", {"bias"}, "vocab"},
    PAIR("pre_classifier", "pooler.w", "pooler.b", "pooled, model", "pooled"),
    PAIR("classifier", "score", "score.b", "class, pooled", "class"),
    {NULL, {NULL}, NULL}};

static const HfTensor EACH_HAS_ITS_OWN[] = {{NULL, {NULL}, NULL}};

#define OF_ALL "norm=layernorm pre_norm=false transform=true"
#define OF_THEM OF_ALL " pooler_act=tanh"

static const HfType BERT_TYPES[] = {
    {"bert", "BertForMaskedLM", "BertForSequenceClassification",
     OF_THEM " pad_token=-1", NULL, NULL, BERT_TENSORS},
    {"roberta", "RobertaForMaskedLM", "RobertaForSequenceClassification",
     OF_THEM, NULL, NULL, ROBERTA_TENSORS},
    {"xlm-roberta", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification",
     OF_THEM, NULL, NULL, ROBERTA_TENSORS},
    {"distilbert", "DistilBertForMaskedLM", "DistilBertForSequenceClassification",
     OF_ALL " pooler_act=relu pad_token=-1 types=0 norm_eps=1e-12", NULL, NULL,
     DISTILBERT_TENSORS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_BERTS .types = "bert roberta xlm-roberta"
#define OF_DISTIL .types = "distilbert"

static const HfKey BERT_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "pad_token_id", .setting = "pad_token", .kind = HF_COUNT, .absent = "1",
     .types = "roberta xlm-roberta"},
    {.key = "pad_token_id", .setting = "padding", .kind = HF_COUNT, .absent = "0",
     .types = "bert distilbert"},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER,
     .types = "bert distilbert"},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .beyond = "pad_token",
     .types = "roberta xlm-roberta"},
    {.key = "type_vocab_size", .setting = "types", .kind = HF_INTEGER, .absent = "2", OF_BERTS},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER, OF_BERTS},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER, OF_BERTS},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER, OF_BERTS},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER, OF_BERTS},
    {.key = "dim", .setting = "model", .kind = HF_INTEGER, OF_DISTIL},
    {.key = "hidden_dim", .setting = "ffn", .kind = HF_INTEGER, OF_DISTIL},
    {.key = "n_layers", .setting = "layers", .kind = HF_INTEGER, OF_DISTIL},
    {.key = "n_heads", .setting = "heads", .kind = HF_INTEGER, OF_DISTIL},
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = HF_ACTIVATIONS, OF_BERTS},
    {.key = "activation", .setting = "act", .kind = HF_WORD, .absent = "gelu_erf",
     .words = HF_ACTIVATIONS, OF_DISTIL},
    {.key = "layer_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-12",
     OF_BERTS},
    /* No key of theirs: [MASK] in all of the vocabularies that were published with BERT. */
    {.key = "mask_token_id", .setting = "mask_token", .kind = HF_COUNT, .absent = "103",
     .types = "bert distilbert"},
    {.key = "mask_token_id", .setting = "mask_token", .kind = HF_COUNT, .absent = "50264",
     .types = "roberta"},
    {.key = "mask_token_id", .setting = "mask_token", .kind = HF_COUNT, .absent = "250001",
     .types = "xlm-roberta"},
    {.key = "position_embedding_type", .kind = HF_FIXED, .absent = "\"absolute\"", OF_BERTS},
    {.key = "is_decoder", .kind = HF_FIXED, .absent = "false"},
    {.key = "add_cross_attention", .kind = HF_FIXED, .absent = "false"},
    {.key = "tie_word_embeddings", .kind = HF_FIXED, .absent = "true"},
    {.key = "hidden_dropout_prob", .kind = HF_WRITTEN, .absent = "0.0", OF_BERTS},
    {.key = "attention_probs_dropout_prob", .kind = HF_WRITTEN, .absent = "0.0", OF_BERTS},
    {.key = "dropout", .kind = HF_WRITTEN, .absent = "0.0", OF_DISTIL},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0", OF_DISTIL},
    {.key = "seq_classif_dropout", .kind = HF_WRITTEN, .absent = "0.0", OF_DISTIL},
    COMMON_KEYS,
    {.key = NULL}};

/* Which sentence is next, and the bias once more, which newer versions do not write. */
static const char *const BERT_IGNORED[] = {
    "bert.embeddings.position_ids", "bert.pooler.dense.weight", "bert.pooler.dense.bias",
    "cls.seq_relationship.weight", "cls.seq_relationship.bias", "cls.predictions.decoder.bias",
    "roberta.embeddings.position_ids", "roberta.pooler.dense.weight", "roberta.pooler.dense.bias",
    "lm_head.decoder.bias", "distilbert.embeddings.position_ids", NULL};

const HfFamily HF_BERT = {"bert", "bert. roberta. distilbert.",
                          "cls.predictions.decoder.weight lm_head.decoder.weight "
                          "vocab_projector.weight", BERT_TYPES,
                          BERT_KEYS, EACH_HAS_ITS_OWN, BERT_IGNORED, NULL, NULL, NULL};
/* clang-format on */
