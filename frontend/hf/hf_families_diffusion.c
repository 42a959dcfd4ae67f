/* Models that write by diffusion, of models/llama.lua: LLaDA, whose code is that of the first OLMo,
 * and Dream, which is Qwen 2 but for its attention. Both are published with code of their own
 * beside the weights. */
#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
#define AS_LLAMA(diffusion) "out_bias=false qk_norm=false window=0 norm=rmsnorm norms=before " \
    "rotary_share=1 rotary_skip=0 rotary_short= rotary_long= rotary_scaling=none " \
    "rotary_pairs=halves temperature_scale=0 qk_norm_last=false gated=true norm_plus_one=false " \
    "embedding_scale=1 attention_scale=0 residual_scale=1 logit_divisor=1 logit_scale=1 " \
    "diffusion=" diffusion

/* --- LLaDA (Nie et al. 2025): weights [out, in] --- */

static const HfType LLADA_TYPES[] = {
    {"llada", "LLaDAModelLM", NULL, AS_LLAMA("masked"), NO_EXPERTS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define ONLY(name, value) {.key = name, .kind = HF_FIXED, .absent = value}
#define SAID(name, value) ONLY(name, value), {.key = name, .kind = HF_WRITTEN, .absent = value}
static const HfKey LLADA_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    /* Rows of the tables: as many, or spare ones. */
    {.key = "embedding_size", .setting = "vocab", .kind = HF_INTEGER, .absent = "=vocab_size"},
    {.key = "max_sequence_length", .setting = "seq", .kind = HF_INTEGER, .absent = "1024",
     .most = 8192},
    {.key = "d_model", .setting = "model", .kind = HF_INTEGER},
    {.key = "n_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "n_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "n_kv_heads", .setting = "kv_heads", .kind = HF_INTEGER, .absent = "=n_heads"},
    {.key = "mlp_hidden_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "activation_type", .setting = "act", .kind = HF_WORD, .words = HF_ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000"},
    {.key = "include_qkv_bias", .setting = "qkv_bias", .kind = HF_FLAG, .absent = "false"},
    {.key = "weight_tying", .setting = "tied", .kind = HF_FLAG, .absent = "true"},
    {.key = "mask_token_id", .setting = "mask_token", .kind = HF_TOKEN},
    SAID("block_type", "\"llama\""),
    SAID("layer_norm_type", "\"rms\""),
    SAID("layer_norm_with_affine", "true"),
    SAID("bias_for_layer_norm", "false"),
    SAID("rope", "true"),
    SAID("alibi", "false"),
    SAID("attention_layer_norm", "false"),
    SAID("include_bias", "false"),
    SAID("scale_logits", "false"),
    ONLY("input_emb_norm", "false"),
    ONLY("multi_query_attention", "null"),
    ONLY("clip_qkv", "null"),
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "embedding_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "residual_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    KEYS_OF_ALL,
    {.key = NULL}};

#define BLOCK(theirs, ours, dims) {"model.transformer.blocks.#." theirs, {"blocks.#." ours}, dims}
static const HfTensor LLADA_TENSORS[] = {
    {"model.transformer.wte.weight", {"wte"}, "vocab, model"},
    BLOCK("attn_norm.weight", "norm1.gain", "model"),
    BLOCK("q_proj.weight", "attn.wq", "kv_heads group head, model"),
    BLOCK("q_proj.bias", "attn.bq", "kv_heads group head"),
    BLOCK("k_proj.weight", "attn.wk", "kv_heads head, model"),
    BLOCK("k_proj.bias", "attn.bk", "kv_heads head"),
    BLOCK("v_proj.weight", "attn.wv", "kv_heads head, model"),
    BLOCK("v_proj.bias", "attn.bv", "kv_heads head"),
    BLOCK("attn_out.weight", "attn.wo", "model, kv_heads group head"),
    BLOCK("ff_norm.weight", "norm2.gain", "model"),
    BLOCK("ff_proj.weight", "mlp.wgate", "ffn, model"),
    BLOCK("up_proj.weight", "mlp.wup", "ffn, model"),
    BLOCK("ff_out.weight", "mlp.wdown", "model, ffn"),
    {"model.transformer.ln_f.weight", {"norm_f.gain"}, "model"},
    {"model.transformer.ff_out.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

static const char *const NOTHING_IGNORED[] = {NULL};

const HfFamily HF_LLADA = {"llama", "model.", "model.transformer.ff_out.weight", LLADA_TYPES,
                           LLADA_KEYS, LLADA_TENSORS, NOTHING_IGNORED, NULL, NULL, NULL};

/* --- Dream (Ye et al. 2025) --- */

static const HfType DREAM_TYPES[] = {
    {"Dream", "DreamModel", NULL, "qkv_bias=true " AS_LLAMA("shifted"), NO_EXPERTS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey DREAM_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = HF_ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false"},
    {.key = "mask_token_id", .setting = "mask_token", .kind = HF_TOKEN, .absent = "151666"},
    ONLY("rope_scaling", "null"),
    SAID("use_sliding_window", "false"),
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    KEYS_OF_ALL,
    {.key = NULL}};

#define LAYER(theirs, ours, dims) {"model.layers.#." theirs, {"blocks.#." ours}, dims}
static const HfTensor DREAM_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    LAYER("input_layernorm.weight", "norm1.gain", "model"),
    LAYER("self_attn.q_proj.weight", "attn.wq", "kv_heads group head, model"),
    LAYER("self_attn.q_proj.bias", "attn.bq", "kv_heads group head"),
    LAYER("self_attn.k_proj.weight", "attn.wk", "kv_heads head, model"),
    LAYER("self_attn.k_proj.bias", "attn.bk", "kv_heads head"),
    LAYER("self_attn.v_proj.weight", "attn.wv", "kv_heads head, model"),
    LAYER("self_attn.v_proj.bias", "attn.bv", "kv_heads head"),
    LAYER("self_attn.o_proj.weight", "attn.wo", "model, kv_heads group head"),
    LAYER("post_attention_layernorm.weight", "norm2.gain", "model"),
    LAYER("mlp.gate_proj.weight", "mlp.wgate", "ffn, model"),
    LAYER("mlp.up_proj.weight", "mlp.wup", "ffn, model"),
    LAYER("mlp.down_proj.weight", "mlp.wdown", "model, ffn"),
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

const HfFamily HF_DREAM = {"llama", "model.", "lm_head.weight", DREAM_TYPES, DREAM_KEYS,
                           DREAM_TENSORS, HF_NO_FREQUENCIES, NULL, NULL, NULL};
/* clang-format on */
