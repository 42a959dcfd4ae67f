#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- Kimi Linear, as models/kimi.lua has it: Kimi Delta Attention or latent attention without
 * positions, and DeepSeek V3's mixture of experts. hf_kimi.h has made one of its two forms of
 * config.json --- */

#define OF_LAYER(theirs, dims, ...) {"model.layers.#." theirs, {__VA_ARGS__}, dims}
#define SWIGLU(theirs, ffn, ours)                                                                  \
    OF_LAYER(theirs ".gate_proj.weight", ffn ", model", "blocks.#." ours ".wgate"),                \
    OF_LAYER(theirs ".up_proj.weight", ffn ", model", "blocks.#." ours ".wup"),                    \
    OF_LAYER(theirs ".down_proj.weight", "model, " ffn, "blocks.#." ours ".wdown")
#define CONVOLVED(letter, axes)                                                                    \
    OF_LAYER("self_attn." letter "_proj.weight", axes ", model", "blocks.#.kda.w" letter),         \
    OF_LAYER("self_attn." letter "_conv1d.weight", axes ", 1, taps", "blocks.#.kda.conv." letter)
#define LOW_RANK(letter, axes)                                                                     \
    OF_LAYER("self_attn." letter "_a_proj.weight", "state_rank, model",                            \
             "blocks.#.kda.w" letter "_a"),                                                        \
    OF_LAYER("self_attn." letter "_b_proj.weight", axes ", state_rank",                            \
             "blocks.#.kda.w" letter "_b")
#define KEYS   "state_groups state_heads state_keys"
#define VALUES "state_groups state_heads state_values"

static const HfTensor KIMI_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    OF_LAYER("input_layernorm.weight", "model", "blocks.#.norm1.gain"),
    CONVOLVED("q", "state_groups state_keys"),
    CONVOLVED("k", "state_groups state_keys"),
    CONVOLVED("v", VALUES),
    LOW_RANK("f", KEYS),
    OF_LAYER("self_attn.dt_bias", KEYS, "blocks.#.kda.dt_bias"),
    OF_LAYER("self_attn.A_log", "1, 1, state_groups state_heads, 1", "blocks.#.kda.a_log"),
    OF_LAYER("self_attn.b_proj.weight", "state_groups state_heads, model", "blocks.#.kda.wbeta"),
    LOW_RANK("g", VALUES),
    OF_LAYER("self_attn.o_norm.weight", "state_values", "blocks.#.kda.norm.gain"),
    OF_LAYER("self_attn.o_proj.weight", "model, " VALUES, "blocks.#.kda.wo"),
    OF_LAYER("self_attn.q_proj.weight", "heads *+nope rope, model", "blocks.#.attn.wq_nope",
             "blocks.#.attn.wq_rope"),
    OF_LAYER("self_attn.q_a_proj.weight", "q_rank, model", "blocks.#.attn.wq_a"),
    OF_LAYER("self_attn.q_a_layernorm.weight", "q_rank", "blocks.#.attn.qnorm.gain"),
    OF_LAYER("self_attn.q_b_proj.weight", "heads *+nope rope, q_rank", "blocks.#.attn.wq_b_nope",
             "blocks.#.attn.wq_b_rope"),
    OF_LAYER("self_attn.kv_a_proj_with_mqa.weight", "+kv_rank rope, model", "blocks.#.attn.wkv_a",
             "blocks.#.attn.wk_rope"),
    OF_LAYER("self_attn.kv_a_layernorm.weight", "kv_rank", "blocks.#.attn.kvnorm.gain"),
    OF_LAYER("self_attn.kv_b_proj.weight", "heads *+nope value, kv_rank", "blocks.#.attn.wk",
             "blocks.#.attn.wv"),
    OF_LAYER("self_attn.o_proj.weight", "model, heads value", "blocks.#.attn.wo"),
    OF_LAYER("post_attention_layernorm.weight", "model", "blocks.#.norm2.gain"),
    SWIGLU("mlp", "ffn", "mlp"),
    OF_LAYER("block_sparse_moe.gate.e_score_correction_bias", "routes", "blocks.#.moe.bias"),
    SWIGLU("block_sparse_moe.shared_experts", "shared_ffn", "moe.shared"),
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

static const HfTensor KIMI_EACH[] = {
    OF_LAYER("block_sparse_moe.gate.weight", "routes, model", "blocks.#.moe.router"),
    OF_LAYER("block_sparse_moe.experts.@.w1.weight", "expert_ffn, model", "blocks.#.moe.wgate"),
    OF_LAYER("block_sparse_moe.experts.@.w3.weight", "expert_ffn, model", "blocks.#.moe.wup"),
    OF_LAYER("block_sparse_moe.experts.@.w2.weight", "model, expert_ffn", "blocks.#.moe.wdown"),
    {NULL, {NULL}, NULL}};

static const HfType KIMI_TYPES[] = {
    {"kimi_linear", "KimiLinearForCausalLM", NULL,
     "state_heads=1 latent_eps=1e-06 act=silu tied=false", KIMI_EACH, NULL, NULL},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

static const HfWord LAYERS[] = {
    {"linear_attention", "K"}, {"full_attention", "A"}, {NULL, NULL}};

/* Where transformers has a name of its own, that is the alias. */
static const HfKey KIMI_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "model_max_length", .setting = "seq", .kind = HF_INTEGER, .most = 8192,
     .alias = "max_position_embeddings"},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "layer_types", .setting = "pattern", .kind = HF_LAYERS, .absent = "",
     .words = LAYERS},
    /* Values are as many as keys. */
    {.key = "linear_head_dim", .setting = "state_values", .kind = HF_QUOTIENT, .absent = "128",
     .of = "state_heads", .with = "state_keys"},
    {.key = "linear_head_dim", .setting = "state_keys", .kind = HF_INTEGER, .absent = "128"},
    {.key = "linear_num_heads", .setting = "state_groups", .kind = HF_INTEGER, .absent = "32"},
    {.key = "linear_conv_kernel_dim", .setting = "taps", .kind = HF_INTEGER, .absent = "4"},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads"},
    {.key = "q_lora_rank", .setting = "q_rank", .kind = HF_COUNT, .absent = "0", .null = "0"},
    {.key = "kv_lora_rank", .setting = "kv_rank", .kind = HF_INTEGER, .absent = "512"},
    {.key = "qk_nope_head_dim", .setting = "nope", .kind = HF_INTEGER, .absent = "128"},
    {.key = "qk_rope_head_dim", .setting = "rope", .kind = HF_INTEGER, .absent = "64"},
    {.key = "v_head_dim", .setting = "value", .kind = HF_INTEGER, .absent = "128"},
    {.key = "mla_use_nope", .kind = HF_FIXED, .absent = "true"},
    {.key = "mla_use_nope", .kind = HF_WRITTEN, .absent = "true"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "moe_intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "1"},
    {.key = "moe_layer_freq", .kind = HF_FIXED, .absent = "1"},
    {.key = "num_experts", .setting = "experts", .kind = HF_INTEGER,
     .alias = "num_local_experts"},
    {.key = "num_experts_per_token", .setting = "top_k", .kind = HF_INTEGER,
     .alias = "num_experts_per_tok"},
    {.key = "num_shared_experts", .setting = "shared_ffn", .kind = HF_TIMES, .of = "expert_ffn",
     .with = "shared", .alias = "n_shared_experts"},
    {.key = "num_expert_group", .setting = "groups", .kind = HF_INTEGER, .absent = "1",
     .alias = "n_group"},
    {.key = "topk_group", .setting = "kept_groups", .kind = HF_INTEGER, .absent = "1"},
    {.key = "moe_router_activation_func", .kind = HF_FIXED, .absent = "\"sigmoid\""},
    {.key = "moe_router_activation_func", .kind = HF_WRITTEN, .absent = "\"sigmoid\""},
    {.key = "moe_renormalize", .setting = "normalize", .kind = HF_FLAG, .absent = "true",
     .alias = "norm_topk_prob"},
    {.key = "routed_scaling_factor", .setting = "gate_scale", .kind = HF_NUMBER,
     .absent = "2.446"},
    /* No key of theirs: as DeepSeek V3, whose layer it is, was trained. */
    {.key = "aux_loss_alpha", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.0001"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5"},
    {.key = "hidden_act", .kind = HF_FIXED, .absent = "\"silu\""},
    {.key = "tie_word_embeddings", .kind = HF_FIXED, .absent = "false"},
    {.key = "pad_token_id", .kind = HF_WRITTEN, .absent = "null"}, /* else one of its vocabulary */
    {.key = "num_nextn_predict_layers", .kind = HF_FIXED, .absent = "0"},
    KEYS_OF_ALL,
    {.key = NULL}};

const HfFamily HF_KIMI = {"kimi", "model.", "lm_head.weight", KIMI_TYPES, KIMI_KEYS, KIMI_TENSORS,
                          HF_NO_FREQUENCIES, "capacity=0",
                          "there, experts take all tokens that choose them", NULL};
/* clang-format on */
