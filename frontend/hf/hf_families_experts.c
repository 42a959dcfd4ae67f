#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- mixtures of experts, as models/moe.lua has them: experts one tensor each. DeepSeekMoE's code
 * is not in transformers but beside its weights (modeling_deepseek.py) --- */

#define EXPERTS(theirs, ours, dims)                                                                \
    {"model.layers.#." theirs ".weight", {"blocks.#.moe." ours}, dims}

/* q, k, v and o, of which q's and k's pairs of rotary positions may lie side by side. */
#define QKVO(head)                                                                                 \
    {"model.layers.#.self_attn.q_proj.weight", {"blocks.#.attn.wq"},                               \
     "kv_heads group " head ", model"},                                                            \
    {"model.layers.#.self_attn.q_proj.bias", {"blocks.#.attn.bq"}, "kv_heads group " head},        \
    {"model.layers.#.self_attn.k_proj.weight", {"blocks.#.attn.wk"}, "kv_heads " head ", model"},  \
    {"model.layers.#.self_attn.k_proj.bias", {"blocks.#.attn.bk"}, "kv_heads " head},              \
    {"model.layers.#.self_attn.v_proj.weight", {"blocks.#.attn.wv"}, "kv_heads head, model"},      \
    {"model.layers.#.self_attn.v_proj.bias", {"blocks.#.attn.bv"}, "kv_heads head"},               \
    {"model.layers.#.self_attn.o_proj.weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"}
#define SHARED_EXPERTS                                                                             \
    EXPERTS("mlp.shared_experts.gate_proj", "shared.wgate", "shared_ffn, model"),                  \
    EXPERTS("mlp.shared_experts.up_proj", "shared.wup", "shared_ffn, model"),                      \
    EXPERTS("mlp.shared_experts.down_proj", "shared.wdown", "model, shared_ffn")

static const HfTensor MIXTRAL_EACH[] = {
    EXPERTS("block_sparse_moe.gate", "router", "routes, model"),
    EXPERTS("block_sparse_moe.experts.@.w1", "wgate", "expert_ffn, model"),
    EXPERTS("block_sparse_moe.experts.@.w3", "wup", "expert_ffn, model"),
    EXPERTS("block_sparse_moe.experts.@.w2", "wdown", "model, expert_ffn"),
    {NULL, {NULL}, NULL}};

static const HfTensor EACH[] = {
    EXPERTS("mlp.gate", "router", "routes, model"),
    EXPERTS("mlp.experts.@.gate_proj", "wgate", "expert_ffn, model"),
    EXPERTS("mlp.experts.@.up_proj", "wup", "expert_ffn, model"),
    EXPERTS("mlp.experts.@.down_proj", "wdown", "model, expert_ffn"),
    {NULL, {NULL}, NULL}};

#define FUSED_EXPERTS                                                                              \
    {"model.layers.#.mlp.experts.gate_up_proj", {"blocks.#.moe.wgate", "blocks.#.moe.wup"},        \
     "experts, +expert_ffn, model"},                                                               \
    {"model.layers.#.mlp.experts.down_proj", {"blocks.#.moe.wdown"}, "experts, model, expert_ffn"}
static const HfTensor FUSED[] = {
    EXPERTS("mlp.gate", "router", "routes, model"), FUSED_EXPERTS, {NULL, {NULL}, NULL}};

static const HfTensor PLAIN_OTHERS[] = {QKVO("head"), {NULL, {NULL}, NULL}};

static const HfTensor QWEN2_OTHERS[] = {
    QKVO("head"),
    EXPERTS("mlp.shared_expert.gate_proj", "shared.wgate", "shared_ffn, model"),
    EXPERTS("mlp.shared_expert.up_proj", "shared.wup", "shared_ffn, model"),
    EXPERTS("mlp.shared_expert.down_proj", "shared.wdown", "model, shared_ffn"),
    EXPERTS("mlp.shared_expert_gate", "shared.gate", "1, model"),
    {NULL, {NULL}, NULL}};

static const HfTensor DEEPSEEK_SHARED[] = {SHARED_EXPERTS, {NULL, {NULL}, NULL}};
static const HfTensor DEEPSEEK_OTHERS[] = {QKVO("head"), SHARED_EXPERTS, {NULL, {NULL}, NULL}};

static const HfTensor GLM_OTHERS[] = {
    QKVO("head"),
    {"model.layers.#.mlp.gate.e_score_correction_bias", {"blocks.#.moe.bias"}, "routes"},
    SHARED_EXPERTS,
    {NULL, {NULL}, NULL}};

static const HfTensor EXAONE_OTHERS[] = {
    QKVO("head"),
    {"model.layers.#.mlp.e_score_correction_bias", {"blocks.#.moe.bias"}, "routes"},
    SHARED_EXPERTS,
    {NULL, {NULL}, NULL}};

/* Norms of what branches add, too; a gate of attention. */
static const HfTensor AFMOE_EACH[] = {
    EXPERTS("mlp.router.gate", "router", "routes, model"),
    EXPERTS("mlp.experts.@.gate_proj", "wgate", "expert_ffn, model"),
    EXPERTS("mlp.experts.@.up_proj", "wup", "expert_ffn, model"),
    EXPERTS("mlp.experts.@.down_proj", "wdown", "model, expert_ffn"),
    {NULL, {NULL}, NULL}};
static const HfTensor AFMOE_FUSED[] = {
    EXPERTS("mlp.router.gate", "router", "routes, model"),
    FUSED_EXPERTS,
    {NULL, {NULL}, NULL}};
static const HfTensor AFMOE_OTHERS[] = {
    QKVO("head"),
    {"model.layers.#.self_attn.gate_proj.weight", {"blocks.#.attn.wgate"},
     "kv_heads group head, model"},
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.attn.after.gain"}, "model"},
    {"model.layers.#.pre_mlp_layernorm.weight", {"blocks.#.norm2.gain"}, "model"},
    {"model.layers.#.post_mlp_layernorm.weight", {"blocks.#.mlp.after.gain"}, "model"},
    {"model.layers.#.mlp.expert_bias", {"blocks.#.moe.bias"}, "routes"},
    SHARED_EXPERTS,
    {NULL, {NULL}, NULL}};

static const HfTensor ERNIE_OTHERS[] = {
    QKVO("head~"),
    {"model.layers.#.mlp.moe_statics.e_score_correction_bias", {"blocks.#.moe.bias"}, "1, routes"},
    SHARED_EXPERTS,
    {NULL, {NULL}, NULL}};

static const HfTensor MINIMAX_OTHERS[] = {
    QKVO("head"),
    {"model.layers.#.block_sparse_moe.e_score_correction_bias", {"blocks.#.moe.bias"}, "routes"},
    {NULL, {NULL}, NULL}};

/* All experts in one tensor. */
static const HfTensor GRANITE_OTHERS[] = {
    QKVO("head"),
    EXPERTS("block_sparse_moe.router.layer", "router", "routes, model"),
    {"model.layers.#.block_sparse_moe.input_linear.weight",
     {"blocks.#.moe.wgate", "blocks.#.moe.wup"}, "experts, +expert_ffn, model"},
    EXPERTS("block_sparse_moe.output_linear", "wdown", "experts, model, expert_ffn"),
    {"model.layers.#.shared_mlp.input_linear.weight",
     {"blocks.#.moe.shared.wgate", "blocks.#.moe.shared.wup"}, "+shared_ffn, model"},
    {"model.layers.#.shared_mlp.output_linear.weight", {"blocks.#.moe.shared.wdown"},
     "model, shared_ffn"},
    {NULL, {NULL}, NULL}};

#define PLAIN_BLOCK " norms=before attention_gate=false"
#define UNSCALED " embedding_scale=1" UNSCALED_BLOCK PLAIN_BLOCK
#define UNSCALED_BLOCK " attention_scale=0 residual_scale=1 logit_divisor=1"
#define EVERY_ROTARY " rotary_share=1"
#define NO_YARN " rotary_scaling=none"
#define ALL_LAYERS " dense_layers=0 experts_every=1"
#define NO_SHARED " shared=false shared_gate=false"
#define NO_QK_NORM " qkv_bias=false qk_norm=false"
#define SOFTMAX " scores=softmax gate_scale=1 bias=false groups=1"
#define SOFTMAX_LIKE SOFTMAX EVERY_ROTARY UNSCALED
#define SIGMOID " scores=sigmoid bias=true" UNSCALED
#define ALL_WINDOWS " window_layers=W window_rotary=same"

static const HfType MOE_TYPES[] = {
    {"mixtral", "MixtralForCausalLM", "MixtralForSequenceClassification",
     "normalize=true" ALL_LAYERS NO_SHARED NO_QK_NORM SOFTMAX_LIKE NO_YARN ALL_WINDOWS,
     MIXTRAL_EACH, FUSED, PLAIN_OTHERS},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "Qwen3MoeForSequenceClassification",
     "qkv_bias=false qk_norm=true qk_norm_over=head window=0" NO_SHARED SOFTMAX_LIKE,
     EACH, FUSED, PLAIN_OTHERS},
    {"olmoe", "OlmoeForCausalLM", NULL,
     "qkv_bias=false qk_norm=true qk_norm_over=all window=0" ALL_LAYERS NO_SHARED SOFTMAX_LIKE
     NO_YARN,
     EACH, FUSED, PLAIN_OTHERS},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "Qwen2MoeForSequenceClassification",
     "shared=true shared_gate=true qkv_bias=true qk_norm=false window=0" SOFTMAX_LIKE,
     EACH, FUSED, QWEN2_OTHERS},
    {"deepseek", "DeepseekForCausalLM", NULL,
     "experts_every=1 shared_gate=false window=0" NO_QK_NORM SOFTMAX_LIKE NO_YARN,
     EACH, NULL, DEEPSEEK_OTHERS},
    /* Ahead of GLM 4, which could be the same. */
    {"dots1", "Dots1ForCausalLM", NULL,
     "experts_every=1 shared=true shared_gate=false qkv_bias=false qk_norm=true qk_norm_over=head "
     "window=0" SIGMOID EVERY_ROTARY NO_YARN,
     EACH, FUSED, GLM_OTHERS},
    {"solar_open", "SolarOpenForCausalLM", NULL,
     "experts_every=1 dense_layers=0 shared=true shared_gate=false window=0" NO_QK_NORM SIGMOID
     EVERY_ROTARY,
     EACH, FUSED, GLM_OTHERS},
    {"exaone_moe", "ExaoneMoeForCausalLM", NULL,
     "experts_every=1 shared=true shared_gate=false qkv_bias=false qk_norm=true qk_norm_over=head "
     "window_rotary=only" SIGMOID EVERY_ROTARY NO_YARN,
     EACH, FUSED, EXAONE_OTHERS},
    {"afmoe", "AfmoeForCausalLM", NULL,
     "experts_every=1 shared_gate=false qkv_bias=false qk_norm=true qk_norm_over=head norms=both "
     "attention_gate=true window_rotary=only scores=sigmoid bias=true normalize=true groups=1"
     UNSCALED_BLOCK EVERY_ROTARY NO_YARN,
     AFMOE_EACH, AFMOE_FUSED, AFMOE_OTHERS},
    {"glm4_moe", "Glm4MoeForCausalLM", NULL,
     "experts_every=1 shared=true shared_gate=false qk_norm_over=head window=0" SIGMOID NO_YARN,
     EACH, FUSED, GLM_OTHERS},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", NULL,
     "scores=softmax gate_scale=1 normalize=true bias=true groups=1 shared_gate=false window=0"
     NO_QK_NORM EVERY_ROTARY UNSCALED NO_YARN,
     EACH, FUSED, ERNIE_OTHERS},
    {"minimax_m2", "MiniMaxM2ForCausalLM", NULL,
     "qkv_bias=false qk_norm=true qk_norm_over=all gate_scale=1 normalize=true groups=1 window=0"
     ALL_LAYERS NO_SHARED SIGMOID NO_YARN,
     MIXTRAL_EACH, FUSED, MINIMAX_OTHERS},
    {"granitemoe", "GraniteMoeForCausalLM", NULL,
     "normalize=true window=0" ALL_LAYERS NO_SHARED NO_QK_NORM SOFTMAX EVERY_ROTARY NO_YARN
     PLAIN_BLOCK,
     NULL, NULL, GRANITE_OTHERS},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM", NULL,
     "normalize=true shared_gate=false window=0" ALL_LAYERS NO_QK_NORM SOFTMAX EVERY_ROTARY NO_YARN
     PLAIN_BLOCK,
     NULL, NULL, GRANITE_OTHERS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_QWENS .types = "qwen2_moe qwen3_moe"
#define OF_YARN .types = "qwen2_moe qwen3_moe solar_open"
#define MOE_YARN .when = "rotary_scaling=yarn", OF_YARN
#define OF_EXAONE .types = "exaone_moe"
#define OF_SOLAR .types = "solar_open"
#define OF_AFMOE .types = "afmoe"
#define WITH_WINDOWS .types = "exaone_moe afmoe"
#define OF_GLM .types = "glm4_moe"
#define OF_DOTS .types = "dots1"
#define OF_ERNIE .types = "ernie4_5_moe"
#define OF_MINIMAX .types = "minimax_m2"
#define OF_GRANITES .types = "granitemoe granitemoeshared"
#define OF_GLM_LIKE .types = "glm4_moe dots1 solar_open exaone_moe"
#define OF_GLM_ROUTED .types = "glm4_moe dots1 solar_open"

static const HfWord ROOT_OF_MODEL[] = {{"true", "0"}, {"false", "1"}, {NULL, NULL}};
static const HfWord DENSE_FIRST[] = {{"dense", ""}, {"sparse", ""}, {NULL, NULL}};
static const HfWord WINDOWS[] = {
    {"sliding_attention", "W"}, {"full_attention", "F"}, {NULL, NULL}};
static const HfWord FULL_EVERY[] = {{"G", "F"}, {"L", "W"}, {NULL, NULL}}; /* global, and local */
static const HfWord YARN[] = {{"yarn", "yarn"}, {NULL, NULL}};
static const HfWord ALL_SOFTMAX[] = {{"1", ""}, {NULL, NULL}};

static const HfKey MOE_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads",
     .types = "olmoe deepseek dots1 granitemoe granitemoeshared afmoe"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .types = "mixtral qwen2_moe qwen3_moe glm4_moe ernie4_5_moe minimax_m2 solar_open "
              "exaone_moe"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "",
     .types = "mixtral qwen2_moe qwen3_moe glm4_moe dots1 ernie4_5_moe granitemoe "
              "granitemoeshared exaone_moe"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "128",
     .types = "minimax_m2 solar_open afmoe"},
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model", .types = "olmoe deepseek"},
    {.key = "intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER,
     .types = "mixtral olmoe minimax_m2 granitemoe granitemoeshared"},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER,
     .types = "qwen2_moe qwen3_moe deepseek glm4_moe dots1 ernie4_5_moe exaone_moe afmoe"},
    {.key = "moe_intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER,
     .types = "qwen2_moe qwen3_moe deepseek glm4_moe dots1 ernie4_5_moe solar_open exaone_moe "
              "afmoe"},
    {.key = "shared_expert_intermediate_size", .setting = "shared_ffn", .kind = HF_INTEGER,
     .types = "qwen2_moe"},
    {.key = "n_shared_experts", .setting = "shared_ffn", .kind = HF_TIMES, .of = "expert_ffn",
     .with = "shared", .types = "deepseek glm4_moe dots1 solar_open"},
    {.key = "num_shared_experts", .setting = "shared_ffn", .kind = HF_TIMES, .of = "expert_ffn",
     .with = "shared", WITH_WINDOWS},
    {.key = "moe_num_shared_experts", .setting = "shared_ffn", .kind = HF_TIMES,
     .of = "expert_ffn", .with = "shared", .zero = "0", OF_ERNIE},
    {.key = "shared_intermediate_size", .setting = "shared_ffn", .kind = HF_SOME, .absent = "0",
     .of = "shared=false", .with = "shared=true", .types = "granitemoeshared"},
    {.key = "shared_intermediate_size", .kind = HF_FIXED, .absent = "0", OF_MINIMAX},
    {.key = "num_local_experts", .setting = "experts", .kind = HF_INTEGER, .alias = "num_experts",
     .types = "mixtral minimax_m2"},
    {.key = "num_local_experts", .setting = "experts", .kind = HF_INTEGER, .absent = "8",
     OF_GRANITES},
    {.key = "num_experts", .setting = "experts", .kind = HF_INTEGER, .alias = "num_local_experts",
     .types = "qwen2_moe qwen3_moe olmoe exaone_moe afmoe"},
    {.key = "n_routed_experts", .setting = "experts", .kind = HF_INTEGER, .types = "deepseek"},
    {.key = "n_routed_experts", .setting = "experts", .kind = HF_INTEGER,
     .alias = "num_local_experts", OF_GLM_ROUTED},
    {.key = "moe_num_experts", .setting = "experts", .kind = HF_INTEGER, .alias = "num_experts",
     OF_ERNIE},
    {.key = "num_experts_per_tok", .setting = "top_k", .kind = HF_INTEGER,
     .types = "mixtral qwen2_moe qwen3_moe olmoe deepseek glm4_moe dots1 minimax_m2 solar_open "
              "exaone_moe afmoe"},
    {.key = "route_scale", .setting = "gate_scale", .kind = HF_NUMBER, .absent = "1", OF_AFMOE},
    {.key = "route_norm", .kind = HF_FIXED, .absent = "true", OF_AFMOE},
    {.key = "score_func", .kind = HF_FIXED, .absent = "\"sigmoid\"", OF_AFMOE},
    {.key = "n_group", .kind = HF_FIXED, .absent = "1", OF_AFMOE},
    {.key = "mup_enabled", .setting = "embedding_scale", .kind = HF_WORD, .absent = "1",
     .words = ROOT_OF_MODEL, OF_AFMOE},
    {.key = "num_dense_layers", .setting = "dense_layers", .kind = HF_COUNT, .absent = "1",
     OF_AFMOE},
    {.key = "num_experts_per_tok", .setting = "top_k", .kind = HF_INTEGER, .absent = "2",
     OF_GRANITES},
    {.key = "moe_k", .setting = "top_k", .kind = HF_INTEGER, .alias = "num_experts_per_tok",
     OF_ERNIE},
    {.key = "norm_topk_prob", .setting = "normalize", .kind = HF_FLAG, .absent = "false",
     .types = "qwen2_moe qwen3_moe olmoe deepseek dots1"},
    {.key = "norm_topk_prob", .setting = "normalize", .kind = HF_FLAG, .absent = "true",
     .types = "glm4_moe solar_open exaone_moe"},
    /* Their code leaves the gate of an only expert as it is. */
    {.key = "norm_topk_prob", .kind = HF_FIXED, .absent = "false", .types = "deepseek",
     .when = "top_k=1"},
    {.key = "routed_scaling_factor", .setting = "gate_scale", .kind = HF_NUMBER, .absent = "1",
     OF_GLM_LIKE},
    {.key = "n_group", .setting = "groups", .kind = HF_INTEGER, .absent = "1", OF_GLM_LIKE},
    {.key = "topk_group", .setting = "kept_groups", .kind = HF_INTEGER, .absent = "1",
     OF_GLM_LIKE},
    /* Of little more than rounding to 0: nn.moe has it. */
    {.key = "moe_norm_min", .kind = HF_FIXED, .absent = "1e-12", OF_ERNIE},
    {.key = "mlp_only_layers", .setting = "dense_layers", .kind = HF_FIRST, .absent = "0",
     .types = "qwen2_moe qwen3_moe"},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "0",
     .types = "deepseek dots1"},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "1",
     OF_GLM},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "1",
     OF_EXAONE},
    {.key = "mlp_layer_types", .setting = "dense_layers", .kind = HF_LEADING, .absent = "",
     .words = DENSE_FIRST, OF_EXAONE},
    {.key = "first_k_dense_replace", .kind = HF_FIXED, .absent = "0", OF_SOLAR},
    {.key = "moe_layer_start_index", .setting = "dense_layers", .kind = HF_COUNT, .absent = "1",
     OF_ERNIE},
    {.key = "moe_layer_end_index", .setting = "layers", .kind = HF_LAST, OF_ERNIE},
    {.key = "decoder_sparse_step", .setting = "experts_every", .kind = HF_INTEGER, .absent = "1",
     .types = "qwen2_moe qwen3_moe"},
    {.key = "moe_layer_interval", .setting = "experts_every", .kind = HF_INTEGER, .absent = "1",
     OF_ERNIE},
    {.key = "moe_layer_freq", .kind = HF_FIXED, .absent = "1", .types = "deepseek dots1"},
    {.key = "scoring_func", .kind = HF_FIXED, .absent = "\"softmax\"", .types = "deepseek"},
    {.key = "scoring_func", .kind = HF_FIXED, .absent = "\"sigmoid\"", OF_MINIMAX},
    {.key = "use_routing_bias", .kind = HF_FIXED, .absent = "true", OF_MINIMAX},
    {.key = "router_aux_loss_coef", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001",
     .types = "mixtral qwen2_moe qwen3_moe ernie4_5_moe minimax_m2 granitemoe granitemoeshared"},
    {.key = "router_aux_loss_coef", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.01",
     .types = "olmoe"},
    {.key = "aux_loss_alpha", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001",
     .types = "deepseek"},
    /* No key of theirs: as DeepSeek V3, whose layer it is, was trained. */
    {.key = "aux_loss_alpha", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.0001",
     .types = "glm4_moe dots1 solar_open exaone_moe afmoe"},
    {.key = "seq_aux", .kind = HF_WRITTEN, .absent = "true", .types = "deepseek"},
    {.key = "router_jitter_noise", .kind = HF_FIXED, .absent = "0.0",
     .types = "mixtral minimax_m2"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = HF_ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "mixtral olmoe glm4_moe ernie4_5_moe solar_open exaone_moe afmoe"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6",
     .types = "qwen2_moe qwen3_moe deepseek dots1 minimax_m2 granitemoe granitemoeshared"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false",
     .types = "mixtral qwen2_moe qwen3_moe olmoe deepseek glm4_moe dots1 minimax_m2 granitemoe "
              "granitemoeshared solar_open exaone_moe afmoe"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true", OF_ERNIE},
    {.key = "embedding_multiplier", .setting = "embedding_scale", .kind = HF_NUMBER,
     .absent = "1", OF_GRANITES},
    {.key = "attention_multiplier", .setting = "attention_scale", .kind = HF_NUMBER,
     .absent = "1", .zero = "1/sqrt head", OF_GRANITES},
    {.key = "residual_multiplier", .setting = "residual_scale", .kind = HF_NUMBER, .absent = "1",
     OF_GRANITES},
    {.key = "logits_scaling", .setting = "logit_divisor", .kind = HF_NUMBER, .absent = "1",
     OF_GRANITES},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "0", .null = "0",
     .types = "mixtral"},
    {.key = "use_sliding_window", .kind = HF_FIXED, .absent = "false",
     .types = "qwen2_moe qwen3_moe dots1"},
    /* Else transformers has one from some layer on. */
    {.key = "sliding_window", .kind = HF_FIXED, .absent = "null", OF_DOTS},
    {.key = "sliding_window", .kind = HF_WRITTEN, .absent = "null", OF_DOTS},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "4096", OF_EXAONE},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "1024", OF_AFMOE},
    {.key = "global_attn_every_n_layers", .setting = "window_layers", .kind = HF_EVERY,
     .absent = "WWWF", .words = FULL_EVERY, .of = "window", OF_AFMOE},
    {.key = "sliding_window_pattern", .setting = "window_layers", .kind = HF_EVERY,
     .absent = "WWWF", .words = FULL_EVERY, .of = "window", OF_EXAONE},
    {.key = "layer_types", .setting = "window_layers", .kind = HF_LAYERS, .absent = "",
     .words = WINDOWS, .of = "window", WITH_WINDOWS},
    {.key = "layer_types", .kind = HF_CYCLE, .words = HF_ALL_FULL,
     .types = "mixtral qwen2_moe qwen3_moe olmoe deepseek glm4_moe dots1 ernie4_5_moe minimax_m2 "
              "granitemoe granitemoeshared solar_open"},
    {.key = "attn_type_list", .kind = HF_CYCLE, .words = ALL_SOFTMAX, OF_MINIMAX},
    {.key = "qkv_bias", .kind = HF_FIXED, .absent = "true", .types = "qwen2_moe"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false",
     .types = "qwen3_moe olmoe deepseek dots1 minimax_m2 granitemoe granitemoeshared solar_open "
              "afmoe"},
    {.key = "attention_bias", .setting = "qkv_bias", .kind = HF_FLAG, .absent = "false", OF_GLM},
    {.key = "use_bias", .kind = HF_FIXED, .absent = "false", OF_ERNIE},
    {.key = "use_qk_norm", .setting = "qk_norm", .kind = HF_FLAG, .absent = "false", OF_GLM},
    {.key = "use_qk_norm", .kind = HF_FIXED, .absent = "true", OF_MINIMAX},
    {.key = "use_qk_norm", .kind = HF_FIXED, .absent = "false", OF_SOLAR},
    {.key = "qk_norm_type", .kind = HF_FIXED, .absent = "\"per_layer\"", OF_MINIMAX},
    {.key = "clip_qkv", .kind = HF_FIXED, .absent = "null", .types = "olmoe"},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0",
     .types = "mixtral qwen2_moe qwen3_moe olmoe deepseek dots1 ernie4_5_moe granitemoe "
              "granitemoeshared solar_open exaone_moe afmoe"},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER,
     .absent = "0.5", OF_GLM},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER, .absent = "1",
     OF_MINIMAX},
    {.key = "rotary_dim", .setting = "rotary_share", .kind = HF_SHARE, .absent = "",
     .of = "head", .with = "partial_rotary_factor", OF_MINIMAX},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "1e6",
     .types = "mixtral solar_open"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .types = "qwen2_moe qwen3_moe olmoe deepseek glm4_moe dots1 granitemoe granitemoeshared "
              "exaone_moe afmoe"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "500000",
     OF_ERNIE},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "5e6",
     OF_MINIMAX},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null",
     .types = "mixtral olmoe deepseek glm4_moe dots1 ernie4_5_moe minimax_m2 granitemoe "
              "granitemoeshared exaone_moe afmoe"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = YARN, OF_YARN},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER, MOE_YARN},
    {.key = "rope_scaling.beta_fast", .setting = "rotary_many", .kind = HF_NUMBER,
     .absent = "32", MOE_YARN},
    {.key = "rope_scaling.beta_slow", .setting = "rotary_few", .kind = HF_NUMBER, .absent = "1",
     MOE_YARN},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, MOE_YARN},
    {.key = "rope_scaling.truncate", .kind = HF_FIXED, .absent = "true", OF_YARN},
    {.key = "rope_scaling.attention_factor", .kind = HF_FIXED, .absent = "null", OF_YARN},
    {.key = "rope_scaling.mscale", .kind = HF_FIXED, .absent = "null", OF_YARN},
    {.key = "rope_scaling.mscale_all_dim", .kind = HF_FIXED, .absent = "null", OF_YARN},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    /* Else transformers takes one. */
    {.key = "num_nextn_predict_layers", .kind = HF_WRITTEN, .absent = "0", OF_GLM},
    /* Else transformers takes one that a small vocabulary lacks. */
    {.key = "pad_token_id", .kind = HF_WRITTEN, .absent = "null",
     .types = "ernie4_5_moe exaone_moe"},
    /* Published beside their code, before transformers had the same. */
    {.key = "auto_map", .kind = HF_FIXED, .absent = "null",
     .types = "mixtral qwen2_moe qwen3_moe olmoe glm4_moe granitemoe granitemoeshared exaone_moe"},
    ONLY_CAUSAL,
    KEYS_OF_ALL,
    {.key = NULL}};

static const HfTensor MOE_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    /* Gains of each head, or of all: without the axes that the parameter lacks. */
    {"model.layers.#.self_attn.q_norm.weight", {"blocks.#.attn.qnorm.gain"}, "kv_heads group head"},
    {"model.layers.#.self_attn.k_norm.weight", {"blocks.#.attn.knorm.gain"}, "kv_heads head"},
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.norm2.gain"},
     "model?norms=before"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

/* --- DeepSeek V2 and V3: latents, rotary pairs side by side --- */

static const HfWord ROUTINGS[] = {
    {"greedy", "greedy"}, {"group_limited_greedy", "grouped"}, {NULL, NULL}};

static const HfTensor V3_OTHERS[] = {
    {"model.layers.#.mlp.gate.e_score_correction_bias", {"blocks.#.moe.bias"}, "routes"},
    SHARED_EXPERTS,
    {NULL, {NULL}, NULL}};

/* Of latents, whatever rms_norm_eps is. */
#define LATENT_EPS " latent_eps=1e-06"

static const HfType DEEPSEEK_TYPES[] = {
    {"deepseek_v2", "DeepseekV2ForCausalLM", "DeepseekV2ForSequenceClassification",
     "scores=softmax normalize=false bias=false group_best=1 mtp=0" LATENT_EPS,
     EACH, FUSED, DEEPSEEK_SHARED},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "DeepseekV3ForSequenceClassification",
     "scores=sigmoid bias=true routing=grouped group_best=2 mtp=0" LATENT_EPS,
     EACH, FUSED, V3_OTHERS},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", NULL,
     "scores=sigmoid bias=true routing=grouped group_best=2 mtp=0 shared=true" LATENT_EPS,
     EACH, FUSED, V3_OTHERS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_V2 .types = "deepseek_v2"
#define OF_V3 .types = "deepseek_v3"
#define OF_LITE .types = "glm4_moe_lite"
#define OF_DEEPSEEKS .types = "deepseek_v2 deepseek_v3"
#define OF_SIGMOIDS .types = "deepseek_v3 glm4_moe_lite"
#define WITH_YARN .when = "rotary_scaling=yarn"

static const HfKey DEEPSEEK_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "moe_intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads"},
    {.key = "q_lora_rank", .setting = "q_rank", .kind = HF_COUNT, .absent = "1536", .null = "0",
     OF_DEEPSEEKS},
    {.key = "q_lora_rank", .setting = "q_rank", .kind = HF_COUNT, .absent = "768", .null = "0",
     OF_LITE},
    {.key = "kv_lora_rank", .setting = "kv_rank", .kind = HF_INTEGER, .absent = "512"},
    {.key = "qk_nope_head_dim", .setting = "nope", .kind = HF_INTEGER, .absent = "128",
     OF_DEEPSEEKS},
    {.key = "qk_nope_head_dim", .setting = "nope", .kind = HF_INTEGER, .absent = "192", OF_LITE},
    {.key = "qk_rope_head_dim", .setting = "rope", .kind = HF_INTEGER, .absent = "64"},
    {.key = "v_head_dim", .setting = "value", .kind = HF_INTEGER, .absent = "128", OF_DEEPSEEKS},
    {.key = "v_head_dim", .setting = "value", .kind = HF_INTEGER, .absent = "256", OF_LITE},
    {.key = "n_shared_experts", .setting = "shared_ffn", .kind = HF_TIMES, .of = "expert_ffn",
     .with = "shared"},
    {.key = "n_routed_experts", .setting = "experts", .kind = HF_INTEGER},
    {.key = "num_experts_per_tok", .setting = "top_k", .kind = HF_INTEGER},
    {.key = "topk_method", .setting = "routing", .kind = HF_WORD, .absent = "greedy",
     .words = ROUTINGS, OF_V2},
    {.key = "topk_method", .kind = HF_FIXED, .absent = "\"noaux_tc\"", OF_SIGMOIDS},
    {.key = "n_group", .setting = "groups", .kind = HF_INTEGER, .absent = "1",
     .types = "deepseek_v2 glm4_moe_lite"},
    {.key = "topk_group", .setting = "kept_groups", .kind = HF_INTEGER, .absent = "1",
     .types = "deepseek_v2 glm4_moe_lite"},
    {.key = "n_group", .setting = "groups", .kind = HF_INTEGER, .absent = "8", OF_V3},
    {.key = "topk_group", .setting = "kept_groups", .kind = HF_INTEGER, .absent = "4", OF_V3},
    {.key = "scoring_func", .kind = HF_FIXED, .absent = "\"softmax\"", OF_V2},
    {.key = "scoring_func", .kind = HF_FIXED, .absent = "\"sigmoid\"", OF_SIGMOIDS},
    {.key = "norm_topk_prob", .kind = HF_FIXED, .absent = "false", OF_V2},
    {.key = "norm_topk_prob", .setting = "normalize", .kind = HF_FLAG, .absent = "true",
     OF_SIGMOIDS},
    {.key = "routed_scaling_factor", .setting = "gate_scale", .kind = HF_NUMBER, .absent = "1.8",
     OF_LITE},
    {.key = "routed_scaling_factor", .setting = "gate_scale", .kind = HF_NUMBER, .absent = "1",
     OF_V2},
    {.key = "routed_scaling_factor", .setting = "gate_scale", .kind = HF_NUMBER, .absent = "2.5",
     OF_V3},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "0",
     OF_V2},
    {.key = "first_k_dense_replace", .setting = "dense_layers", .kind = HF_COUNT, .absent = "3",
     OF_V3},
    {.key = "mlp_layer_types", .setting = "dense_layers", .kind = HF_LEADING, .absent = "1",
     .words = DENSE_FIRST, OF_LITE},
    {.key = "moe_layer_freq", .kind = HF_FIXED, .absent = "1"},
    {.key = "aux_loss_alpha", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001",
     OF_DEEPSEEKS},
    /* No key of theirs: as DeepSeek V3. */
    {.key = "aux_loss_alpha", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.0001",
     OF_LITE},
    {.key = "seq_aux", .kind = HF_WRITTEN, .absent = "true", OF_DEEPSEEKS},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = HF_ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6",
     OF_DEEPSEEKS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5", OF_LITE},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "mlp_bias", .kind = HF_FIXED, .absent = "false", OF_V2},
    {.key = "rope_interleave", .kind = HF_FIXED, .absent = "true", OF_SIGMOIDS},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0", OF_LITE},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = YARN},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER, WITH_YARN},
    {.key = "rope_scaling.beta_fast", .setting = "rotary_many", .kind = HF_NUMBER,
     .absent = "32", WITH_YARN},
    {.key = "rope_scaling.beta_slow", .setting = "rotary_few", .kind = HF_NUMBER, .absent = "1",
     WITH_YARN},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, WITH_YARN},
    /* Both, and equal: else sines and cosines are scaled, too. */
    {.key = "rope_scaling.mscale_all_dim", .setting = "rotary_mscale", .kind = HF_NUMBER,
     .alias = "rope_scaling.mscale", WITH_YARN},
    {.key = "rope_scaling.mscale", .setting = "rotary_mscale", .kind = HF_NUMBER, WITH_YARN},
    {.key = "rope_scaling.attention_factor", .kind = HF_FIXED, .absent = "null"},
    {.key = "rope_scaling.truncate", .kind = HF_FIXED, .absent = "true"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    ONLY_CAUSAL,
    KEYS_OF_ALL,
    {.key = NULL}};

#define ATTENTION(theirs, ours, dims)                                                              \
    {"model.layers.#.self_attn." theirs ".weight", {"blocks.#.attn." ours}, dims}

static const HfTensor DEEPSEEK_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    {"model.layers.#.self_attn.q_proj.weight",
     {"blocks.#.attn.wq_nope", "blocks.#.attn.wq_rope"}, "heads *+nope rope~, model"},
    ATTENTION("q_a_proj", "wq_a", "q_rank, model"),
    ATTENTION("q_a_layernorm", "qnorm.gain", "q_rank"),
    {"model.layers.#.self_attn.q_b_proj.weight",
     {"blocks.#.attn.wq_b_nope", "blocks.#.attn.wq_b_rope"}, "heads *+nope rope~, q_rank"},
    {"model.layers.#.self_attn.kv_a_proj_with_mqa.weight",
     {"blocks.#.attn.wkv_a", "blocks.#.attn.wk_rope"}, "+kv_rank rope~, model"},
    ATTENTION("kv_a_layernorm", "kvnorm.gain", "kv_rank"),
    {"model.layers.#.self_attn.kv_b_proj.weight", {"blocks.#.attn.wk", "blocks.#.attn.wv"},
     "heads *+nope value, kv_rank"},
    ATTENTION("o_proj", "wo", "model, heads value"),
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.norm2.gain"}, "model"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

/* --- gpt-oss: gates and ups of an expert by turns along its inner axis --- */

static const HfType GPTOSS_TYPES[] = {
    {"gpt_oss", "GptOssForCausalLM", "GptOssForSequenceClassification", "", NO_EXPERTS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

static const HfKey GPTOSS_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "64"},
    {.key = "num_local_experts", .setting = "experts", .kind = HF_INTEGER, .alias = "num_experts"},
    {.key = "num_experts_per_tok", .setting = "top_k", .kind = HF_INTEGER,
     .alias = "experts_per_token"},
    {.key = "router_aux_loss_coef", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001"},
    {.key = "swiglu_limit", .setting = "swiglu_limit", .kind = HF_NUMBER, .absent = "7"},
    {.key = "swiglu_alpha", .setting = "swiglu_alpha", .kind = HF_NUMBER, .absent = "1.702"},
    {.key = "hidden_act", .kind = HF_FIXED, .absent = "\"silu\""},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "128",
     .null = "0"},
    {.key = "layer_types", .kind = HF_CYCLE, .words = HF_EVERY_OTHER},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "true"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = YARN},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER, WITH_YARN},
    {.key = "rope_scaling.beta_fast", .setting = "rotary_many", .kind = HF_NUMBER,
     .absent = "32", WITH_YARN},
    {.key = "rope_scaling.beta_slow", .setting = "rotary_few", .kind = HF_NUMBER, .absent = "1",
     WITH_YARN},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, WITH_YARN},
    {.key = "rope_scaling.truncate", .setting = "rotary_truncate", .kind = HF_FLAG,
     .absent = "true", WITH_YARN},
    {.key = "rope_scaling.attention_factor", .kind = HF_FIXED, .absent = "null"},
    {.key = "rope_scaling.mscale", .kind = HF_FIXED, .absent = "null"},
    {.key = "rope_scaling.mscale_all_dim", .kind = HF_FIXED, .absent = "null"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "auto_map", .kind = HF_FIXED, .absent = "null"},
    ONLY_CAUSAL,
    KEYS_OF_ALL,
    {.key = NULL}};

#define OF_EXPERTS(theirs, dims, ...) {"model.layers.#.mlp." theirs, {__VA_ARGS__}, dims}

static const HfTensor GPTOSS_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    ATTENTION("q_proj", "wq", "kv_heads group head, model"),
    {"model.layers.#.self_attn.q_proj.bias", {"blocks.#.attn.bq"}, "kv_heads group head"},
    ATTENTION("k_proj", "wk", "kv_heads head, model"),
    {"model.layers.#.self_attn.k_proj.bias", {"blocks.#.attn.bk"}, "kv_heads head"},
    ATTENTION("v_proj", "wv", "kv_heads head, model"),
    {"model.layers.#.self_attn.v_proj.bias", {"blocks.#.attn.bv"}, "kv_heads head"},
    ATTENTION("o_proj", "wo", "model, kv_heads group head"),
    {"model.layers.#.self_attn.o_proj.bias", {"blocks.#.attn.bo"}, "model"},
    {"model.layers.#.self_attn.sinks", {"blocks.#.attn.sinks"}, "kv_heads group"},
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.norm2.gain"}, "model"},
    OF_EXPERTS("router.weight", "routes, model", "blocks.#.moe.router"),
    OF_EXPERTS("router.bias", "routes", "blocks.#.moe.router_b"),
    OF_EXPERTS("experts.gate_up_proj", "experts, model, expert_ffn *+1", "blocks.#.moe.wgate",
               "blocks.#.moe.wup"),
    OF_EXPERTS("experts.gate_up_proj_bias", "experts, expert_ffn *+1", "blocks.#.moe.bgate",
               "blocks.#.moe.bup"),
    OF_EXPERTS("experts.down_proj", "experts, expert_ffn, model", "blocks.#.moe.wdown"),
    OF_EXPERTS("experts.down_proj_bias", "experts, model", "blocks.#.moe.bdown"),
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

/* --- Llama 4's text model: all experts in one tensor, inputs first; rotary pairs side by side ---
 */

static const HfWord LLAMA4_LAYERS[] = {{"experts", "E"}, {"dense", "D"}, {NULL, NULL}};
static const HfWord CHUNKS[] = {
    {"chunked_attention", ""}, {"chunked_attention", ""}, {"chunked_attention", ""},
    {"full_attention", ""}, {NULL, NULL}};
static const HfWord NOT_THE_FOURTH[] = {{"1", ""}, {"1", ""}, {"1", ""}, {"0", ""}, {NULL, NULL}};
static const HfWord LLAMA3[] = {{"llama3", "llama3"}, {NULL, NULL}};

static const HfType LLAMA4_TYPES[] = {
    {"llama4_text", "Llama4ForCausalLM", NULL, "rotary_skip=4", NO_EXPERTS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define WITH_LLAMA3 .when = "rotary_scaling=llama3"

static const HfKey LLAMA4_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER, .absent = "202048"},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .absent = "131072",
     .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER, .absent = "5120"},
    {.key = "intermediate_size", .setting = "expert_ffn", .kind = HF_INTEGER, .absent = "8192"},
    {.key = "intermediate_size_mlp", .setting = "ffn", .kind = HF_INTEGER, .absent = "16384"},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER, .absent = "48"},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER, .absent = "40"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, .absent = "8"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "128"},
    {.key = "num_local_experts", .setting = "experts", .kind = HF_INTEGER, .absent = "16"},
    {.key = "num_experts_per_tok", .kind = HF_FIXED, .absent = "1"},
    {.key = "interleave_moe_layer_step", .setting = "pattern", .kind = HF_EVERY, .absent = "E",
     .words = LLAMA4_LAYERS},
    {.key = "moe_layers", .setting = "pattern", .kind = HF_PLACES, .absent = "",
     .words = LLAMA4_LAYERS},
    {.key = "router_aux_loss_coef", .setting = "balance", .kind = HF_AMOUNT, .absent = "0.001"},
    {.key = "router_jitter_noise", .kind = HF_FIXED, .absent = "0.0"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = HF_ACTIVATIONS},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false"},
    {.key = "use_qk_norm", .setting = "qk_norm", .kind = HF_FLAG, .absent = "true"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "attention_chunk_size", .setting = "chunk", .kind = HF_INTEGER, .absent = "8192",
     .null = "0"},
    {.key = "layer_types", .kind = HF_CYCLE, .words = CHUNKS},
    {.key = "no_rope_layers", .kind = HF_CYCLE, .words = NOT_THE_FOURTH},
    {.key = "no_rope_layer_interval", .kind = HF_FIXED, .absent = "4"},
    {.key = "attn_temperature_tuning", .setting = "temperature", .kind = HF_FLAG,
     .absent = "true"},
    {.key = "floor_scale", .setting = "temperature_every", .kind = HF_INTEGER, .absent = "8192"},
    {.key = "attn_scale", .setting = "temperature_scale", .kind = HF_AMOUNT, .absent = "0.1"},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "500000"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = LLAMA3},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER, WITH_LLAMA3},
    {.key = "rope_scaling.low_freq_factor", .setting = "rotary_few", .kind = HF_NUMBER,
     WITH_LLAMA3},
    {.key = "rope_scaling.high_freq_factor", .setting = "rotary_many", .kind = HF_NUMBER,
     WITH_LLAMA3},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, WITH_LLAMA3},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    ONLY_CAUSAL,
    COMMON_KEYS,
    {.key = NULL}};

#define OF_FEED(theirs, dims, ...) {"model.layers.#.feed_forward." theirs, {__VA_ARGS__}, dims}

static const HfTensor LLAMA4_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    QKVO("head~"),
    {"model.layers.#.post_attention_layernorm.weight", {"blocks.#.norm2.gain"}, "model"},
    OF_FEED("router.weight", "routes, model", "blocks.#.moe.router"),
    OF_FEED("experts.gate_up_proj", "experts, model, +expert_ffn", "blocks.#.moe.wgate",
            "blocks.#.moe.wup"),
    OF_FEED("experts.down_proj", "experts, expert_ffn, model", "blocks.#.moe.wdown"),
    OF_FEED("shared_expert.gate_proj.weight", "shared_ffn, model", "blocks.#.moe.shared.wgate"),
    OF_FEED("shared_expert.up_proj.weight", "shared_ffn, model", "blocks.#.moe.shared.wup"),
    OF_FEED("shared_expert.down_proj.weight", "model, shared_ffn", "blocks.#.moe.shared.wdown"),
    OF_FEED("gate_proj.weight", "ffn, model", "blocks.#.mlp.wgate"),
    OF_FEED("up_proj.weight", "ffn, model", "blocks.#.mlp.wup"),
    OF_FEED("down_proj.weight", "model, ffn", "blocks.#.mlp.wdown"),
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

#define DROPPED "there, experts take all tokens that choose them"

/* Frequencies, and ERNIE's and EXAONE's layers that predict tokens beyond the next, which
 * transformers leaves out. */
static const char *const MOE_IGNORED[] = {"model.layers.#.self_attn.rotary_emb.inv_freq",
                                          "model.mtp_*", "mtp.*", NULL};

const HfFamily HF_MOE = {"moe", "model.", "lm_head.weight", MOE_TYPES, MOE_KEYS, MOE_TENSORS,
                         MOE_IGNORED, "capacity=0", DROPPED, NULL};
const HfFamily HF_DEEPSEEK = {"deepseek", "model.", "lm_head.weight", DEEPSEEK_TYPES, DEEPSEEK_KEYS,
                              DEEPSEEK_TENSORS, HF_NO_FREQUENCIES, "capacity=0", DROPPED, NULL};
const HfFamily HF_GPTOSS = {"gptoss", "model.", "lm_head.weight", GPTOSS_TYPES, GPTOSS_KEYS,
                            GPTOSS_TENSORS, HF_NO_FREQUENCIES, "capacity=0", DROPPED, NULL};
const HfFamily HF_LLAMA4 = {"llama4", "model.", "lm_head.weight", LLAMA4_TYPES, LLAMA4_KEYS,
                            LLAMA4_TENSORS, HF_NO_FREQUENCIES, "capacity=0", DROPPED, NULL};
/* clang-format on */
