#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- Mamba 2, Bamba, Granite 4, Qwen3-Next and 3.5, LFM2, Falcon-H1 and Nemotron-H, as
 * models/hybrid.lua has them. What a layer makes of x is one tensor or two there: Mamba 2's parts
 * lie one after the other, Qwen3-Next's by key head --- */

#define STATE_SPACE(theirs)                                                                        \
    {theirs ".in_proj.weight",                                                                     \
     {"blocks.#.ssm.wz", "blocks.#.ssm.wx", "blocks.#.ssm.wb", "blocks.#.ssm.wc",                  \
      "blocks.#.ssm.wdt"}, "+state_groups state_heads state_values state_keys, model"},            \
    {theirs ".conv1d.weight",                                                                      \
     {"blocks.#.ssm.conv.x", "blocks.#.ssm.conv.b", "blocks.#.ssm.conv.c"},                        \
     "+state_groups state_heads state_values state_keys, 1, taps"},                                \
    {theirs ".conv1d.bias",                                                                        \
     {"blocks.#.ssm.conv.bx", "blocks.#.ssm.conv.bb", "blocks.#.ssm.conv.bc"},                     \
     "state_groups state_heads state_values state_keys"},                                          \
    {theirs ".A_log", {"blocks.#.ssm.a_log"}, "state_groups state_heads"},                         \
    {theirs ".D", {"blocks.#.ssm.d"}, "state_groups state_heads"},                                 \
    {theirs ".dt_bias", {"blocks.#.ssm.dt_bias"}, "state_groups state_heads"},                     \
    {theirs ".norm.weight", {"blocks.#.ssm.norm.gain"}, "state_groups state_heads state_values"},  \
    {theirs ".out_proj.weight", {"blocks.#.ssm.wo"}, "model, state_groups state_heads state_values"}

#define DELTA_NET(theirs)                                                                          \
    {theirs ".conv1d.weight",                                                                      \
     {"blocks.#.delta.conv.q", "blocks.#.delta.conv.k", "blocks.#.delta.conv.v"},                  \
     "+state_groups state_keys state_heads state_values, 1, taps"},                                \
    {theirs ".A_log", {"blocks.#.delta.a_log"}, "state_groups state_heads"},                       \
    {theirs ".dt_bias", {"blocks.#.delta.dt_bias"}, "state_groups state_heads"},                   \
    {theirs ".norm.weight", {"blocks.#.delta.norm.gain"}, "state_values"},                         \
    {theirs ".out_proj.weight", {"blocks.#.delta.wo"},                                             \
     "model, state_groups state_heads state_values"}

/* Products that are one: of each key head its q, k, v and z, its beta and a. */
#define DELTA_JOINED(theirs)                                                                       \
    {theirs ".in_proj_qkvz.weight",                                                                \
     {"blocks.#.delta.wq", "blocks.#.delta.wk", "blocks.#.delta.wv", "blocks.#.delta.wz"},         \
     "state_groups *+state_keys state_heads state_values, model"},                                 \
    {theirs ".in_proj_ba.weight", {"blocks.#.delta.wbeta", "blocks.#.delta.wa"},                   \
     "state_groups *+state_heads, model"}
/* All heads' q, then k and v, in one; the others by themselves. */
#define DELTA_APART(theirs)                                                                        \
    {theirs ".in_proj_qkv.weight", {"blocks.#.delta.wq", "blocks.#.delta.wk", "blocks.#.delta.wv"},\
     "+state_groups state_keys state_heads state_values, model"},                                  \
    {theirs ".in_proj_z.weight", {"blocks.#.delta.wz"},                                            \
     "state_groups state_heads state_values, model"},                                              \
    {theirs ".in_proj_b.weight", {"blocks.#.delta.wbeta"}, "state_groups state_heads, model"},     \
    {theirs ".in_proj_a.weight", {"blocks.#.delta.wa"}, "state_groups state_heads, model"}

#define OF_LAYER(theirs, dims, ...) {"model.layers.#." theirs ".weight", {__VA_ARGS__}, dims}
#define ATTENTION                                                                                  \
    OF_LAYER("self_attn.k_proj", "kv_heads head, model", "blocks.#.attn.wk"),                      \
    OF_LAYER("self_attn.v_proj", "kv_heads head, model", "blocks.#.attn.wv"),                      \
    OF_LAYER("self_attn.o_proj", "model, kv_heads group head", "blocks.#.attn.wo")
#define SWIGLU(theirs, ffn, ours)                                                                  \
    OF_LAYER(theirs ".gate_proj", ffn ", model", "blocks.#." ours ".wgate"),                       \
    OF_LAYER(theirs ".up_proj", ffn ", model", "blocks.#." ours ".wup"),                           \
    OF_LAYER(theirs ".down_proj", "model, " ffn, "blocks.#." ours ".wdown")

static const HfTensor MAMBA2_ROWS[] = {
    {"backbone.embeddings.weight", {"wte"}, "vocab, model"},
    {"backbone.layers.#.norm.weight", {"blocks.#.norm1.gain"}, "model"},
    STATE_SPACE("backbone.layers.#.mixer"),
    {"backbone.norm_f.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

static const HfTensor BAMBA_ROWS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    OF_LAYER("input_layernorm", "model", "blocks.#.norm1.gain"),
    STATE_SPACE("model.layers.#.mamba"),
    OF_LAYER("self_attn.q_proj", "kv_heads group head, model", "blocks.#.attn.wq"),
    ATTENTION,
    OF_LAYER("pre_ff_layernorm", "model", "blocks.#.norm2.gain"),
    SWIGLU("feed_forward", "ffn", "mlp"),
    {"model.final_layernorm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

/* Attention beside a state space in each layer. */
static const HfTensor FALCON_H1_ROWS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    OF_LAYER("input_layernorm", "model", "blocks.#.norm1.gain"),
    STATE_SPACE("model.layers.#.mamba"),
    OF_LAYER("self_attn.q_proj", "kv_heads group head, model", "blocks.#.attn.wq"),
    ATTENTION,
    OF_LAYER("pre_ff_layernorm", "model", "blocks.#.norm2.gain"),
    SWIGLU("feed_forward", "ffn", "mlp"),
    {"model.final_layernorm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

/* A state space, attention or a feed-forward layer in each. */
#define MIXER(theirs, dims, ours) OF_BACKBONE("mixer." theirs, dims, ours)
#define OF_BACKBONE(theirs, dims, ours) {"backbone.layers.#." theirs ".weight", {ours}, dims}
static const HfTensor NEMOTRON_H_ROWS[] = {
    {"backbone.embeddings.weight", {"wte"}, "vocab, model"},
    OF_BACKBONE("norm", "model", "blocks.#.norm1.gain"),
    STATE_SPACE("backbone.layers.#.mixer"),
    MIXER("q_proj", "kv_heads group head, model", "blocks.#.attn.wq"),
    MIXER("k_proj", "kv_heads head, model", "blocks.#.attn.wk"),
    MIXER("v_proj", "kv_heads head, model", "blocks.#.attn.wv"),
    MIXER("o_proj", "model, kv_heads group head", "blocks.#.attn.wo"),
    MIXER("up_proj", "ffn, model", "blocks.#.mlp.w1"),
    MIXER("down_proj", "model, ffn", "blocks.#.mlp.w2"),
    {"backbone.norm_f.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

/* What all tokens meet is called the shared one, whether there are experts beside it or not. */
static const HfTensor GRANITE_ROWS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    OF_LAYER("input_layernorm", "model", "blocks.#.norm1.gain"),
    STATE_SPACE("model.layers.#.mamba"),
    OF_LAYER("self_attn.q_proj", "kv_heads group head, model", "blocks.#.attn.wq"),
    ATTENTION,
    OF_LAYER("post_attention_layernorm", "model", "blocks.#.norm2.gain"),
    OF_LAYER("block_sparse_moe.router.layer", "routes, model", "blocks.#.moe.router"),
    OF_LAYER("block_sparse_moe.input_linear", "experts, +expert_ffn, model", "blocks.#.moe.wgate",
             "blocks.#.moe.wup"),
    OF_LAYER("block_sparse_moe.output_linear", "experts, model, expert_ffn", "blocks.#.moe.wdown"),
    OF_LAYER("shared_mlp.input_linear", "+shared_ffn, model", "blocks.#.moe.shared.wgate",
             "blocks.#.moe.shared.wup"),
    OF_LAYER("shared_mlp.output_linear", "model, shared_ffn", "blocks.#.moe.shared.wdown"),
    OF_LAYER("shared_mlp.input_linear", "+ffn, model", "blocks.#.mlp.wgate", "blocks.#.mlp.wup"),
    OF_LAYER("shared_mlp.output_linear", "model, ffn", "blocks.#.mlp.wdown"),
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

/* A head's queries come before what its results are times a sigmoid of. */
#define QWEN_ROWS(delta)                                                                           \
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},                                        \
    OF_LAYER("input_layernorm", "model", "blocks.#.norm1.gain"),                                   \
    delta("model.layers.#.linear_attn"),                                                           \
    DELTA_NET("model.layers.#.linear_attn"),                                                       \
    OF_LAYER("self_attn.q_proj", "kv_heads group *+head, model", "blocks.#.attn.wq",               \
             "blocks.#.attn.wgate"),                                                               \
    ATTENTION,                                                                                     \
    OF_LAYER("self_attn.q_norm", "head", "blocks.#.attn.qnorm.gain"),                              \
    OF_LAYER("self_attn.k_norm", "head", "blocks.#.attn.knorm.gain"),                              \
    OF_LAYER("post_attention_layernorm", "model", "blocks.#.norm2.gain"),                          \
    {"model.norm.weight", {"norm_f.gain"}, "model"},                                               \
    {"lm_head.weight", {"head"}, "vocab, model"},                                                  \
    SCORE
#define SHARED_EXPERT                                                                              \
    SWIGLU("mlp.shared_expert", "shared_ffn", "moe.shared"),                                       \
    OF_LAYER("mlp.shared_expert_gate", "1, model", "blocks.#.moe.shared.gate")

static const HfTensor QWEN3_NEXT_ROWS[] = {
    QWEN_ROWS(DELTA_JOINED), SHARED_EXPERT, {NULL, {NULL}, NULL}};
static const HfTensor QWEN3_5_ROWS[] = {
    QWEN_ROWS(DELTA_APART), SWIGLU("mlp", "ffn", "mlp"), {NULL, {NULL}, NULL}};
static const HfTensor QWEN3_5_MOE_ROWS[] = {
    QWEN_ROWS(DELTA_APART), SHARED_EXPERT, {NULL, {NULL}, NULL}};

/* Norms of what attention adds, and of what a delta rule reads, with a feed-forward layer behind;
 * all products, and convolutions, a tensor each. */
#define OLMO_DELTA(theirs, dims, ours)                                                             \
    OF_LAYER("linear_attn." theirs, dims, "blocks.#.delta." ours)
#define HEAD_VALUES "state_groups state_heads state_values"
static const HfTensor OLMO_ROWS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    OF_LAYER("attention_layer_norm", "model", "blocks.#.norm1.gain"),
    OLMO_DELTA("q_proj", "state_groups state_keys, model", "wq"),
    OLMO_DELTA("k_proj", "state_groups state_keys, model", "wk"),
    OLMO_DELTA("v_proj", HEAD_VALUES ", model", "wv"),
    OLMO_DELTA("g_proj", HEAD_VALUES ", model", "wz"),
    OLMO_DELTA("b_proj", "state_groups state_heads, model", "wbeta"),
    OLMO_DELTA("a_proj", "state_groups state_heads, model", "wa"),
    OLMO_DELTA("q_conv1d", "state_groups state_keys, 1, taps", "conv.q"),
    OLMO_DELTA("k_conv1d", "state_groups state_keys, 1, taps", "conv.k"),
    OLMO_DELTA("v_conv1d", HEAD_VALUES ", 1, taps", "conv.v"),
    {"model.layers.#.linear_attn.A_log", {"blocks.#.delta.a_log"}, "state_groups state_heads"},
    {"model.layers.#.linear_attn.dt_bias", {"blocks.#.delta.dt_bias"}, "state_groups state_heads"},
    OLMO_DELTA("o_norm", "state_values", "norm.gain"),
    OLMO_DELTA("o_proj", "model, " HEAD_VALUES, "wo"),
    OF_LAYER("feedforward_layer_norm", "model", "blocks.#.norm2.gain"),
    OF_LAYER("self_attn.q_proj", "kv_heads group head, model", "blocks.#.attn.wq"),
    ATTENTION,
    OF_LAYER("self_attn.q_norm", "kv_heads group head", "blocks.#.attn.qnorm.gain"),
    OF_LAYER("self_attn.k_norm", "kv_heads head", "blocks.#.attn.knorm.gain"),
    OF_LAYER("post_attention_layernorm", "model", "blocks.#.attn.after.gain"),
    SWIGLU("mlp", "ffn", "mlp"),
    OF_LAYER("post_feedforward_layernorm", "model", "blocks.#.mlp.after.gain"),
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

static const HfTensor QWEN3_NEXT_EACH[] = {
    OF_LAYER("mlp.gate", "routes, model", "blocks.#.moe.router"),
    SWIGLU("mlp.experts.@", "expert_ffn", "moe"),
    {NULL, {NULL}, NULL}};

static const HfTensor QWEN3_NEXT_FUSED[] = {
    OF_LAYER("mlp.gate", "routes, model", "blocks.#.moe.router"),
    {"model.layers.#.mlp.experts.gate_up_proj", {"blocks.#.moe.wgate", "blocks.#.moe.wup"},
     "experts, +expert_ffn, model"},
    {"model.layers.#.mlp.experts.down_proj", {"blocks.#.moe.wdown"}, "experts, model, expert_ffn"},
    {NULL, {NULL}, NULL}};

#define LFM2                                                                                       \
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},                                        \
    OF_LAYER("operator_norm", "model", "blocks.#.norm1.gain"),                                     \
    OF_LAYER("conv.in_proj", "+channels, model", "blocks.#.short.wb", "blocks.#.short.wc",         \
             "blocks.#.short.wx"),                                                                 \
    OF_LAYER("conv.conv", "channels, 1, taps", "blocks.#.short.conv"),                             \
    OF_LAYER("conv.out_proj", "model, channels", "blocks.#.short.wo"),                             \
    OF_LAYER("self_attn.q_proj", "kv_heads group head, model", "blocks.#.attn.wq"),                \
    OF_LAYER("self_attn.k_proj", "kv_heads head, model", "blocks.#.attn.wk"),                      \
    OF_LAYER("self_attn.v_proj", "kv_heads head, model", "blocks.#.attn.wv"),                      \
    OF_LAYER("self_attn.out_proj", "model, kv_heads group head", "blocks.#.attn.wo"),              \
    OF_LAYER("self_attn.q_layernorm", "head", "blocks.#.attn.qnorm.gain"),                         \
    OF_LAYER("self_attn.k_layernorm", "head", "blocks.#.attn.knorm.gain"),                         \
    OF_LAYER("ffn_norm", "model", "blocks.#.norm2.gain"),                                          \
    OF_LAYER("feed_forward.w1", "ffn, model", "blocks.#.mlp.wgate"),                               \
    OF_LAYER("feed_forward.w3", "ffn, model", "blocks.#.mlp.wup"),                                 \
    OF_LAYER("feed_forward.w2", "model, ffn", "blocks.#.mlp.wdown"),                               \
    {"model.embedding_norm.weight", {"norm_f.gain"}, "model"},                                     \
    {"lm_head.weight", {"head"}, "vocab, model"}

static const HfTensor LFM2_ROWS[] = {LFM2, {NULL, {NULL}, NULL}};
static const HfTensor LFM2_MOE_ROWS[] = {
    LFM2, {"model.layers.#.feed_forward.expert_bias", {"blocks.#.moe.bias"}, "routes"},
    {NULL, {NULL}, NULL}};
static const HfTensor LFM2_MOE_EACH[] = {
    OF_LAYER("feed_forward.gate", "routes, model", "blocks.#.moe.router"),
    OF_LAYER("feed_forward.experts.@.w1", "expert_ffn, model", "blocks.#.moe.wgate"),
    OF_LAYER("feed_forward.experts.@.w3", "expert_ffn, model", "blocks.#.moe.wup"),
    OF_LAYER("feed_forward.experts.@.w2", "model, expert_ffn", "blocks.#.moe.wdown"),
    {NULL, {NULL}, NULL}};
static const HfTensor LFM2_MOE_FUSED[] = {
    OF_LAYER("feed_forward.gate", "routes, model", "blocks.#.moe.router"),
    {"model.layers.#.feed_forward.experts.gate_up_proj",
     {"blocks.#.moe.wgate", "blocks.#.moe.wup"}, "experts, +expert_ffn, model"},
    {"model.layers.#.feed_forward.experts.down_proj", {"blocks.#.moe.wdown"},
     "experts, model, expert_ffn"},
    {NULL, {NULL}, NULL}};

#define BEFORE " attention_norms=before qk_norm_over=head"
#define PLAIN " state_norm=group act=silu state_floor=0 delta_negative=false delta_eps=0" BEFORE
#define ALL_SOFTMAX " scores=softmax gate_scale=1 sum_plus=0 bias=false dense_layers=0"
#define SAME PLAIN ALL_SOFTMAX
/* Without what Falcon-H1 has besides. */
#define NORMED " state_normed=true state_gate_last=false"
#define UNMULTIPLIED " logit_scale=1 key_scale=1 attention_in=1 attention_out=1 state_in=1 " \
    "state_out=1 state_scales=1,1,1,1,1 feed_scales=1,1" NORMED
#define UNSCALED " embedding_scale=1 attention_scale=0 residual_scale=1 logit_divisor=1" \
    UNMULTIPLIED
#define QWEN " rotary=true norm_plus_one=true qk_norm=true attention_gate=true" SAME UNSCALED
#define QWEN_MOE "feed=moe shared=true shared_gate=true" QWEN
#define PLAIN_ATTENTION " norm_plus_one=false qk_norm=false attention_gate=false"

static const HfType HYBRID_TYPES[] = {
    {"mamba2", "Mamba2ForCausalLM", NULL,
     "pattern=M feed=none norm_plus_one=false" SAME UNSCALED, NULL, NULL, MAMBA2_ROWS},
    {"falcon_h1", "FalconH1ForCausalLM", NULL,
     "pattern=P feed=swiglu rotary=true rotary_share=1 attention_scale=0 residual_scale=1 "
     "logit_divisor=1" PLAIN_ATTENTION SAME, NULL, NULL, FALCON_H1_ROWS},
    {"nemotron_h", "NemotronHForCausalLM", NULL,
     "feed=none rotary=false state_norm=group" BEFORE PLAIN_ATTENTION UNSCALED, NULL, NULL,
     NEMOTRON_H_ROWS},
    {"bamba", "BambaForCausalLM", NULL,
     "feed=swiglu rotary=true rotary_share=0.5" PLAIN_ATTENTION SAME UNSCALED,
     NULL, NULL, BAMBA_ROWS},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", NULL,
     "rotary_share=1 normalize=true shared_gate=false" PLAIN_ATTENTION SAME UNMULTIPLIED,
     NULL, NULL, GRANITE_ROWS},
    {"qwen3_next", "Qwen3NextForCausalLM", "Qwen3NextForSequenceClassification",
     QWEN_MOE " delta_tensors=joined", QWEN3_NEXT_EACH, QWEN3_NEXT_FUSED, QWEN3_NEXT_ROWS},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", "Qwen3_5TextForSequenceClassification",
     "feed=swiglu" QWEN " delta_tensors=apart", NULL, NULL, QWEN3_5_ROWS},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", NULL,
     QWEN_MOE " normalize=true delta_tensors=apart", QWEN3_NEXT_EACH, QWEN3_NEXT_FUSED,
     QWEN3_5_MOE_ROWS},
    {"lfm2", "Lfm2ForCausalLM", NULL,
     "feed=swiglu rotary=true rotary_share=1 norm_plus_one=false qk_norm=true attention_gate=false"
     SAME UNSCALED, NULL, NULL, LFM2_ROWS},
    {"lfm2_moe", "Lfm2MoeForCausalLM", NULL,
     "feed=moe scores=sigmoid sum_plus=1e-06 shared=false rotary=true rotary_share=1 "
     "norm_plus_one=false qk_norm=true attention_gate=false" PLAIN UNSCALED,
     LFM2_MOE_EACH, LFM2_MOE_FUSED, LFM2_MOE_ROWS},
    {"olmo_hybrid", "OlmoHybridForCausalLM", NULL,
     "feed=swiglu norm_plus_one=false qk_norm=true qk_norm_over=all attention_gate=false "
     "attention_norms=after delta_eps=1e-05 rotary_share=1 act=silu" UNSCALED, NULL, NULL,
     OLMO_ROWS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

static const HfWord GRANITE_LAYERS[] = {
    {"mamba", "M"}, {"attention", "A"}, {"linear_attention", "M"}, {"full_attention", "A"},
    {NULL, NULL}};
static const HfWord QWEN3_NEXT_LAYERS[] = {
    {"full_attention", "A"}, {"linear_attention", "D"}, {NULL, NULL}};
static const HfWord LFM2_LAYERS[] = {{"full_attention", "A"}, {"conv", "C"}, {NULL, NULL}};
/* Older names behind newer ones, and the letters of hybrid_override_pattern. */
static const HfWord NEMOTRON_LAYERS[] = {
    {"linear_attention", "M"}, {"full_attention", "A"}, {"mlp", "F"}, {"mamba", "M"},
    {"attention", "A"}, {NULL, NULL}};
static const HfWord NEMOTRON_LETTERS[] = {{"M", "M"}, {"*", "A"}, {"-", "F"}, {NULL, NULL}};
static const HfWord BAMBA_LAYERS[] = {{"", "A"}, {"", "M"}, {NULL, NULL}};
static const HfWord POSITIONS[] = {{"nope", "false"}, {"rope", "true"}, {NULL, NULL}};

#define OF_MAMBA2 .types = "mamba2"
#define OF_BAMBA .types = "bamba"
#define OF_GRANITE .types = "granitemoehybrid"
#define OF_QWENS .types = "qwen3_next qwen3_5_text qwen3_5_moe_text"
#define OF_QWEN_MOES .types = "qwen3_next qwen3_5_moe_text"
#define OF_NEXT .types = "qwen3_next"
#define OF_3_5 .types = "qwen3_5_text qwen3_5_moe_text"
#define OF_OLMO .types = "olmo_hybrid"
#define OF_DELTAS .types = "qwen3_next qwen3_5_text qwen3_5_moe_text olmo_hybrid"
#define OF_LFM2 .types = "lfm2"
#define OF_LFM2_MOE .types = "lfm2_moe"
#define OF_LFM2S .types = "lfm2 lfm2_moe"
#define OF_FALCON .types = "falcon_h1"
#define OF_NEMOTRON .types = "nemotron_h"
#define OF_MAMBAS .types = "bamba granitemoehybrid falcon_h1"
#define WITH_ATTENTION .types = "bamba granitemoehybrid qwen3_next qwen3_5_text qwen3_5_moe_text " \
    "lfm2 lfm2_moe falcon_h1 olmo_hybrid"
#define WITH_STATE_SPACES .types = "mamba2 bamba granitemoehybrid falcon_h1 nemotron_h"
#define WIDTH .setting = "state_values", .kind = HF_RATIO, .of = "state_groups state_heads",       \
              .with = "model"

static const HfKey HYBRID_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    /* No key of Mamba 2's: a state has no end. What it was trained with. */
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .absent = "2048",
     .most = 8192, OF_MAMBA2},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192,
     WITH_ATTENTION},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .absent = "4096",
     .most = 8192, OF_NEMOTRON},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "attn_layer_indices", .setting = "pattern", .kind = HF_PLACES, .absent = "M",
     .words = BAMBA_LAYERS, OF_BAMBA},
    {.key = "layer_types", .setting = "pattern", .kind = HF_LAYERS, .absent = "M",
     .words = GRANITE_LAYERS, .alias = "layers_block_type", OF_GRANITE},
    {.key = "full_attention_interval", .setting = "pattern", .kind = HF_EVERY, .absent = "DDDA",
     .words = QWEN3_NEXT_LAYERS, OF_QWENS},
    {.key = "layer_types", .setting = "pattern", .kind = HF_LAYERS, .absent = "",
     .words = QWEN3_NEXT_LAYERS, OF_QWENS},
    {.key = "layer_types", .setting = "pattern", .kind = HF_LAYERS, .absent = "DDDA",
     .words = QWEN3_NEXT_LAYERS, OF_OLMO},
    {.key = "hybrid_override_pattern", .setting = "pattern", .kind = HF_EVERY, .absent = "",
     .words = NEMOTRON_LETTERS, OF_NEMOTRON},
    {.key = "layers_block_type", .setting = "pattern", .kind = HF_LAYERS, .absent = "",
     .words = NEMOTRON_LAYERS, .alias = "layer_types", OF_NEMOTRON},
    {.key = "full_attn_idxs", .setting = "pattern", .kind = HF_PLACES, .absent = "A",
     .words = LFM2_LAYERS, OF_LFM2S},
    {.key = "layer_types", .setting = "pattern", .kind = HF_LAYERS, .absent = "",
     .words = LFM2_LAYERS, OF_LFM2S},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "bamba falcon_h1"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6",
     .types = "granitemoehybrid qwen3_next qwen3_5_text qwen3_5_moe_text olmo_hybrid"},
    {.key = "norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5", OF_LFM2S},
    {.key = "layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "mamba2 nemotron_h"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false",
     .types = "mamba2 bamba granitemoehybrid qwen3_next qwen3_5_text qwen3_5_moe_text falcon_h1 "
              "nemotron_h olmo_hybrid"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true",
     .alias = "tie_embedding", OF_LFM2S},
    {.key = "hidden_act", .kind = HF_FIXED, .absent = "\"silu\"",
     .types = "mamba2 bamba granitemoehybrid qwen3_next qwen3_5_text qwen3_5_moe_text lfm2 "
              "falcon_h1 olmo_hybrid"},
    {.key = "mamba_hidden_act", .kind = HF_FIXED, .absent = "\"silu\"", OF_NEMOTRON},

    /* State spaces, and delta rules. */
    {.key = "n_groups", .setting = "state_groups", .kind = HF_INTEGER, OF_MAMBA2},
    {.key = "n_groups", .setting = "state_groups", .kind = HF_INTEGER, .absent = "8",
     OF_NEMOTRON},
    {.key = "mamba_num_heads", .setting = "state_heads", .kind = HF_PRODUCT, .of = "state_groups",
     OF_NEMOTRON},
    {.key = "mamba_head_dim", .setting = "state_values", .kind = HF_INTEGER, OF_NEMOTRON},
    {.key = "ssm_state_size", .setting = "state_keys", .kind = HF_INTEGER, OF_NEMOTRON},
    /* Nothing is more than time_step_max when weights are made; what is less than this is this. */
    {.key = "time_step_min", .setting = "state_floor", .kind = HF_AMOUNT, .absent = "0.001",
     OF_NEMOTRON},
    {.key = "num_heads", .setting = "state_heads", .kind = HF_PRODUCT, .of = "state_groups",
     OF_MAMBA2},
    {.key = "head_dim", .setting = "state_values", .kind = HF_INTEGER, OF_MAMBA2},
    {.key = "state_size", .setting = "state_keys", .kind = HF_INTEGER, OF_MAMBA2},
    {.key = "expand", WIDTH, OF_MAMBA2},
    {.key = "conv_kernel", .setting = "taps", .kind = HF_INTEGER, .absent = "4",
     .types = "mamba2 nemotron_h"},
    {.key = "use_conv_bias", .setting = "conv_bias", .kind = HF_FLAG, .absent = "true",
     .types = "mamba2 nemotron_h"},
    {.key = "use_bias", .kind = HF_FIXED, .absent = "false", .types = "mamba2 nemotron_h"},
    {.key = "mamba_n_groups", .setting = "state_groups", .kind = HF_INTEGER, .absent = "1",
     OF_MAMBAS},
    {.key = "mamba_n_heads", .setting = "state_heads", .kind = HF_PRODUCT, .of = "state_groups",
     OF_MAMBAS},
    {.key = "mamba_d_head", .setting = "state_values", .kind = HF_INTEGER, OF_MAMBAS},
    {.key = "mamba_d_state", .setting = "state_keys", .kind = HF_INTEGER, OF_MAMBAS},
    {.key = "mamba_expand", WIDTH, .types = "bamba granitemoehybrid"},
    {.key = "mamba_d_ssm", .setting = "state_values", .kind = HF_RATIO,
     .of = "state_groups state_heads", .with = "", OF_FALCON},
    {.key = "mamba_rms_norm", .setting = "state_normed", .kind = HF_FLAG, .absent = "false",
     OF_FALCON},
    {.key = "mamba_norm_before_gate", .setting = "state_gate_last", .kind = HF_FLAG,
     .absent = "true", OF_FALCON},
    {.key = "projectors_bias", .kind = HF_FIXED, .absent = "false", OF_FALCON},
    {.key = "mamba_d_conv", .setting = "taps", .kind = HF_INTEGER, .absent = "4", OF_MAMBAS},
    {.key = "mamba_conv_bias", .setting = "conv_bias", .kind = HF_FLAG, .absent = "true",
     OF_MAMBAS},
    {.key = "mamba_proj_bias", .kind = HF_FIXED, .absent = "false",
     .types = "bamba granitemoehybrid falcon_h1 nemotron_h"},
    {.key = "time_step_limit", .kind = HF_FIXED, .absent = "[0.0, {\"__float__\": \"Infinity\"}]",
     WITH_STATE_SPACES},
    {.key = "linear_num_key_heads", .setting = "state_groups", .kind = HF_INTEGER, OF_DELTAS},
    {.key = "linear_num_value_heads", .setting = "state_heads", .kind = HF_PRODUCT,
     .of = "state_groups", OF_DELTAS},
    {.key = "linear_key_head_dim", .setting = "state_keys", .kind = HF_INTEGER, OF_DELTAS},
    {.key = "linear_value_head_dim", .setting = "state_values", .kind = HF_INTEGER, OF_DELTAS},
    {.key = "linear_conv_kernel_dim", .setting = "taps", .kind = HF_INTEGER, .absent = "4",
     OF_DELTAS},
    {.key = "linear_allow_neg_eigval", .setting = "delta_negative", .kind = HF_FLAG,
     .absent = "true", OF_OLMO},
    {.key = "conv_L_cache", .setting = "taps", .kind = HF_INTEGER, .absent = "3", OF_LFM2S},
    {.key = "conv_bias", .kind = HF_FIXED, .absent = "false", OF_LFM2S},

    /* Attention. */
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER,
     .types = "bamba granitemoehybrid qwen3_next qwen3_5_text qwen3_5_moe_text lfm2 lfm2_moe "
              "falcon_h1 nemotron_h olmo_hybrid"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, .absent = "8",
     .null = "=num_attention_heads", .types = "bamba falcon_h1 nemotron_h"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads", .types = "granitemoehybrid olmo_hybrid"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .types = "qwen3_next qwen3_5_text qwen3_5_moe_text lfm2 lfm2_moe"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "",
     .types = "bamba granitemoehybrid lfm2 lfm2_moe falcon_h1 olmo_hybrid"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "256", OF_QWENS},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "128", OF_NEMOTRON},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false",
     .types = "bamba granitemoehybrid qwen3_next qwen3_5_text qwen3_5_moe_text lfm2 lfm2_moe "
              "falcon_h1 nemotron_h olmo_hybrid"},
    {.key = "sliding_window", .kind = HF_FIXED, .absent = "null", OF_NEMOTRON},
    {.key = "use_sliding_window", .kind = HF_FIXED, .absent = "false", OF_NEXT},
    {.key = "attn_output_gate", .kind = HF_FIXED, .absent = "true", OF_3_5},
    {.key = "position_embedding_type", .setting = "rotary", .kind = HF_WORD, .absent = "false",
     .words = POSITIONS, OF_GRANITE},
    /* Theirs is rope_theta, which may be null (hf_rope.c). */
    {.key = "position_embedding_type", .setting = "rotary", .kind = HF_WORD, .absent = "true",
     .words = POSITIONS, OF_OLMO},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "0.5", OF_BAMBA},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0",
     .types = "granitemoehybrid lfm2 lfm2_moe falcon_h1 olmo_hybrid"},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER,
     .absent = "0.25", OF_QWENS},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .types = "bamba granitemoehybrid qwen3_next qwen3_5_text qwen3_5_moe_text falcon_h1 "
              "olmo_hybrid"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "1000000",
     OF_LFM2S},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null", WITH_ATTENTION},
    {.key = "embedding_multiplier", .setting = "embedding_scale", .kind = HF_NUMBER,
     .absent = "1", .types = "granitemoehybrid falcon_h1"},
    {.key = "attention_multiplier", .setting = "attention_scale", .kind = HF_NUMBER,
     .absent = "1", .zero = "1/sqrt head", OF_GRANITE},
    {.key = "residual_multiplier", .setting = "residual_scale", .kind = HF_NUMBER,
     .absent = "1", OF_GRANITE},
    {.key = "logits_scaling", .setting = "logit_divisor", .kind = HF_NUMBER, .absent = "1",
     OF_GRANITE},
    {.key = "lm_head_multiplier", .setting = "logit_scale", .kind = HF_NUMBER, .absent = "1",
     OF_FALCON},
    {.key = "key_multiplier", .setting = "key_scale", .kind = HF_NUMBER, .absent = "1", OF_FALCON},
    {.key = "attention_in_multiplier", .setting = "attention_in", .kind = HF_NUMBER,
     .absent = "1", OF_FALCON},
    {.key = "attention_out_multiplier", .setting = "attention_out", .kind = HF_NUMBER,
     .absent = "1", OF_FALCON},
    {.key = "ssm_in_multiplier", .setting = "state_in", .kind = HF_NUMBER, .absent = "1",
     OF_FALCON},
    {.key = "ssm_out_multiplier", .setting = "state_out", .kind = HF_NUMBER, .absent = "1",
     OF_FALCON},
    {.key = "ssm_multipliers", .setting = "state_scales", .kind = HF_NUMBERS,
     .absent = "1,1,1,1,1", OF_FALCON},
    {.key = "mlp_multipliers", .setting = "feed_scales", .kind = HF_NUMBERS, .absent = "1,1",
     OF_FALCON},

    /* What is behind each. */
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER,
     .types = "qwen3_5_text bamba lfm2 lfm2_moe falcon_h1 nemotron_h olmo_hybrid"},
    {.key = "num_dense_layers", .setting = "dense_layers", .kind = HF_COUNT, .absent = "2",
     OF_LFM2_MOE},
    {.key = "mlp_hidden_act", .setting = "act", .kind = HF_WORD, .absent = "relu2",
     .words = HF_ACTIVATIONS, OF_NEMOTRON},
    {.key = "num_nextn_predict_layers", .kind = HF_FIXED, .absent = "0", OF_NEMOTRON},
    {.key = "block_auto_adjust_ff_dim", .kind = HF_FIXED, .absent = "false", OF_LFM2},
    {.key = "block_auto_adjust_ff_dim", .kind = HF_WRITTEN, .absent = "false", OF_LFM2},
    {.key = "mlp_bias", .kind = HF_FIXED, .absent = "false", .types = "bamba falcon_h1 nemotron_h"},
    {.key = "num_local_experts", .setting = "experts", .kind = HF_SOME, .absent = "8",
     .of = "feed=swiglu", .with = "feed=moe shared=true", OF_GRANITE},
    {.key = "shared_intermediate_size", .setting = "ffn", .kind = HF_INTEGER, .absent = "1024",
     OF_GRANITE, .when = "feed=swiglu"},
    {.key = "shared_intermediate_size", .setting = "shared_ffn", .kind = HF_INTEGER,
     .absent = "1024", OF_GRANITE, .when = "feed=moe"},
    {.key = "intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER, OF_GRANITE,
     .when = "feed=moe"},
    {.key = "num_experts", .setting = "experts", .kind = HF_INTEGER, .alias = "num_local_experts",
     .types = "qwen3_next qwen3_5_moe_text lfm2_moe"},
    {.key = "moe_intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER,
     .types = "qwen3_next qwen3_5_moe_text lfm2_moe"},
    {.key = "use_expert_bias", .setting = "bias", .kind = HF_FLAG, .absent = "true", OF_LFM2_MOE},
    {.key = "routed_scaling_factor", .setting = "gate_scale", .kind = HF_NUMBER, .absent = "1",
     OF_LFM2_MOE},
    /* No key of theirs: as DeepSeek V3. */
    {.key = "router_aux_loss_coef", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.0001",
     OF_LFM2_MOE},
    {.key = "shared_expert_intermediate_size", .setting = "shared_ffn", .kind = HF_INTEGER,
     OF_QWEN_MOES},
    {.key = "num_experts_per_tok", .setting = "top_k", .kind = HF_INTEGER,
     .types = "granitemoehybrid qwen3_next qwen3_5_moe_text lfm2_moe", .when = "feed=moe"},
    {.key = "norm_topk_prob", .setting = "normalize", .kind = HF_FLAG, .absent = "true",
     .types = "qwen3_next lfm2_moe"},
    {.key = "router_aux_loss_coef", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001",
     .types = "granitemoehybrid qwen3_next qwen3_5_moe_text", .when = "feed=moe"},
    {.key = "decoder_sparse_step", .kind = HF_FIXED, .absent = "1", OF_NEXT},
    {.key = "mlp_only_layers", .kind = HF_FIXED, .absent = "[]", OF_NEXT},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0", WITH_ATTENTION},
    /* Else transformers takes one that a small vocabulary lacks. */
    {.key = "pad_token_id", .kind = HF_WRITTEN, .absent = "null", OF_OLMO},
    ONLY_CAUSAL,
    COMMON_KEYS,
    {.key = NULL}};

/* Each type has rows of its own. */
static const HfTensor HYBRID_TENSORS[] = {{NULL, {NULL}, NULL}};

/* Frequencies, and Qwens' layer that predicts a token more, which transformers leaves out. */
static const char *const HYBRID_IGNORED[] = {"model.layers.#.self_attn.rotary_emb.inv_freq",
                                             "mtp.*", NULL};

const HfFamily HF_HYBRID = {"hybrid", "", "lm_head.weight", HYBRID_TYPES, HYBRID_KEYS,
                            HYBRID_TENSORS, HYBRID_IGNORED, "capacity=0",
                            "there, experts take all tokens that choose them", "feed=moe"};
/* clang-format on */
