#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
static const HfWord SCALINGS[] = {
    {"linear", "linear"}, {"llama3", "llama3"}, {"yarn", "yarn"}, {NULL, NULL}};
static const HfWord YARN[] = {{"yarn", "yarn"}, {NULL, NULL}};
static const HfWord WINDOWS[] = {
    {"sliding_attention", "W"}, {"full_attention", "F"}, {NULL, NULL}};
/* Of sliding_window_pattern: global, and local. */
static const HfWord FULL_EVERY[] = {{"G", "F"}, {"L", "W"}, {NULL, NULL}};
static const HfWord NOT_THE_FOURTH[] = {{"1", ""}, {"1", ""}, {"1", ""}, {"0", ""}, {NULL, NULL}};
static const HfWord LONGROPE[] = {{"longrope", "longrope"}, {"su", "longrope"}, {NULL, NULL}};
static const HfWord LINEAR[] = {{"linear", "linear"}, {NULL, NULL}};
static const HfWord FIVE_AND_ONE[] = {
    {"sliding_attention", ""}, {"sliding_attention", ""}, {"sliding_attention", ""},
    {"sliding_attention", ""}, {"sliding_attention", ""}, {"full_attention", ""}, {NULL, NULL}};
const HfWord HF_EVERY_OTHER[] = {
    {"sliding_attention", ""}, {"full_attention", ""}, {NULL, NULL}};

/* --- Llama and its kin: weights [out, in]; rotary pairs (i, i + head / 2), as nn.rotary --- */

#define LAYER(theirs) "model.layers.#." theirs
#define ATTENTION_ROWS(pairs)                                                                      \
    {LAYER("self_attn.q_proj.weight"), {"blocks.#.attn.wq"},                                       \
     "kv_heads group head" pairs ", model"},                                                       \
    {LAYER("self_attn.q_proj.bias"), {"blocks.#.attn.bq"}, "kv_heads group head" pairs},           \
    {LAYER("self_attn.k_proj.weight"), {"blocks.#.attn.wk"}, "kv_heads head" pairs ", model"},     \
    {LAYER("self_attn.k_proj.bias"), {"blocks.#.attn.bk"}, "kv_heads head" pairs},                 \
    {LAYER("self_attn.v_proj.weight"), {"blocks.#.attn.wv"}, "kv_heads head, model"},              \
    {LAYER("self_attn.v_proj.bias"), {"blocks.#.attn.bv"}, "kv_heads head"},                       \
    {LAYER("self_attn.o_proj.weight"), {"blocks.#.attn.wo"}, "model, kv_heads group head"},        \
    {LAYER("self_attn.o_proj.bias"), {"blocks.#.attn.bo"}, "model"}
#define MLP_ROWS                                                                                   \
    {LAYER("mlp.gate_proj.weight"), {"blocks.#.mlp.wgate"}, "ffn, model"},                         \
    {LAYER("mlp.up_proj.weight"), {"blocks.#.mlp.wup"}, "ffn, model"},                             \
    {LAYER("mlp.down_proj.weight"), {"blocks.#.mlp.wdown"}, "model, ffn"}
#define JOINED_MLP_ROWS                                                                            \
    {LAYER("mlp.gate_up_proj.weight"), {"blocks.#.mlp.wgate", "blocks.#.mlp.wup"}, "+ffn, model"}, \
    {LAYER("mlp.down_proj.weight"), {"blocks.#.mlp.wdown"}, "model, ffn"}
#define GAIN(theirs, ours) {LAYER(theirs ".weight"), {"blocks.#." ours ".gain"}, "model"}
/* Of what the second branch reads. */
#define SECOND_NORM                                                                                \
    GAIN("post_attention_layernorm", "norm2"),                                                     \
    {LAYER("post_attention_layernorm.bias"), {"blocks.#.norm2.bias"}, "model"}

/* Gains of each head, or of all: without the axes that the parameter lacks. */
#define QK_NORMS                                                                                   \
    {LAYER("self_attn.q_norm.weight"), {"blocks.#.attn.qnorm.gain"}, "kv_heads group head"},       \
    {LAYER("self_attn.k_norm.weight"), {"blocks.#.attn.knorm.gain"}, "kv_heads head"}

/* q, k and v, gate and up: a tensor each, or in one. In the order in which an adapter's targets are
 * told. */
static const HfTensor LLAMA_EACH[] = {
    ATTENTION_ROWS(""), QK_NORMS, MLP_ROWS, SECOND_NORM, {NULL, {NULL}, NULL}};

/* Norms of what branches add. */
static const HfTensor OLMO_EACH[] = {
    ATTENTION_ROWS(""), QK_NORMS, MLP_ROWS, GAIN("post_attention_layernorm", "attn.after"),
    GAIN("post_feedforward_layernorm", "mlp.after"), {NULL, {NULL}, NULL}};

/* Rotary pairs side by side. */
static const HfTensor PAIRED_EACH[] = {
    ATTENTION_ROWS("~"), MLP_ROWS, SECOND_NORM, {NULL, {NULL}, NULL}};

/* The same within the half of a head that turns; norms of what branches read and of what they add.
 */
static const HfTensor GLM4_EACH[] = {
    ATTENTION_ROWS("~2"), JOINED_MLP_ROWS, GAIN("post_self_attn_layernorm", "attn.after"),
    SECOND_NORM, GAIN("post_mlp_layernorm", "mlp.after"), {NULL, {NULL}, NULL}};

static const HfTensor UNGATED_EACH[] = {
    ATTENTION_ROWS(""), {LAYER("mlp.up_proj.weight"), {"blocks.#.mlp.w1"}, "ffn, model"},
    {LAYER("mlp.down_proj.weight"), {"blocks.#.mlp.w2"}, "model, ffn"}, SECOND_NORM,
    {NULL, {NULL}, NULL}};

static const HfTensor HUNYUAN_EACH[] = {
    ATTENTION_ROWS(""), MLP_ROWS, SECOND_NORM,
    {LAYER("self_attn.query_layernorm.weight"), {"blocks.#.attn.qnorm.gain"}, "head"},
    {LAYER("self_attn.key_layernorm.weight"), {"blocks.#.attn.knorm.gain"}, "head"},
    {NULL, {NULL}, NULL}};

static const HfTensor PHI3_JOINED[] = {
    {LAYER("self_attn.qkv_proj.weight"),
     {"blocks.#.attn.wq", "blocks.#.attn.wk", "blocks.#.attn.wv"},
     "+kv_heads group head, model"},
    {LAYER("self_attn.o_proj.weight"), {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    JOINED_MLP_ROWS, SECOND_NORM, {NULL, {NULL}, NULL}};

#define SEPARATE NULL, NULL, LLAMA_EACH
#define UNMULTIPLIED " embedding_scale=1 attention_scale=0 residual_scale=1 logit_divisor=1"
#define UNSCALED UNMULTIPLIED " logit_scale=1"
#define NO_LONGROPE " rotary_short= rotary_long="
#define GAINS " norm_plus_one=false"
#define GATED " gated=true" GAINS
#define QUERIES " temperature_scale=0 qk_norm_last=false"
#define HALVES " rotary_pairs=halves" QUERIES GATED
#define ADJACENT " rotary_pairs=adjacent" QUERIES GATED
#define WHOLE_HEADS " rotary_share=1 rotary_skip=0" NO_LONGROPE
#define EVERY_ROTARY WHOLE_HEADS HALVES
#define NORMS_BEFORE " norm=rmsnorm norms=before"
#define LLAMA_LIKE NORMS_BEFORE EVERY_ROTARY UNSCALED
#define NO_BIASES "qkv_bias=false out_bias=false"
#define NO_WINDOW " window=0"
#define ALL_WINDOWS " window_layers=W window_rotary=same"

static const HfType LLAMA_TYPES[] = {
    {"llama", "LlamaForCausalLM", "LlamaForSequenceClassification",
     NO_BIASES " qk_norm=false" NO_WINDOW LLAMA_LIKE, SEPARATE},
    {"mistral", "MistralForCausalLM", "MistralForSequenceClassification",
     NO_BIASES " qk_norm=false" ALL_WINDOWS LLAMA_LIKE, SEPARATE},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2ForSequenceClassification",
     "qkv_bias=true out_bias=false qk_norm=false" " window_rotary=same" LLAMA_LIKE, SEPARATE},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3ForSequenceClassification",
     NO_BIASES " qk_norm=true qk_norm_over=head" " window_rotary=same" LLAMA_LIKE, SEPARATE},
    {"phi3", "Phi3ForCausalLM", "Phi3ForSequenceClassification",
     NO_BIASES " qk_norm=false rotary_skip=0" ALL_WINDOWS NORMS_BEFORE HALVES UNSCALED,
     NULL, NULL, PHI3_JOINED},
    {"olmo2", "Olmo2ForCausalLM", "Olmo2ForSequenceClassification",
     NO_BIASES " qk_norm=true qk_norm_over=all" NO_WINDOW " norm=rmsnorm norms=after"
     EVERY_ROTARY UNSCALED, NULL, NULL, OLMO_EACH},
    {"olmo3", "Olmo3ForCausalLM", "Olmo3ForSequenceClassification",
     NO_BIASES " qk_norm=true qk_norm_over=all window_rotary=unscaled norm=rmsnorm norms=after"
     EVERY_ROTARY UNSCALED, NULL, NULL, OLMO_EACH},
    {"smollm3", "SmolLM3ForCausalLM", "SmolLM3ForSequenceClassification",
     NO_BIASES " qk_norm=false" NO_WINDOW " rotary_share=1 rotary_skip=4" NO_LONGROPE HALVES
     NORMS_BEFORE UNSCALED, SEPARATE},
    {"granite", "GraniteForCausalLM", NULL,
     NO_BIASES " qk_norm=false" NO_WINDOW NORMS_BEFORE EVERY_ROTARY " logit_scale=1", SEPARATE},
    {"stablelm", "StableLmForCausalLM", "StableLmForSequenceClassification",
     "out_bias=false qk_norm=false" NO_WINDOW " norm=layernorm norm_bias=true norms=before "
     "rotary_skip=0" NO_LONGROPE HALVES UNSCALED, SEPARATE},
    {"glm4", "Glm4ForCausalLM", "Glm4ForSequenceClassification",
     "out_bias=false qk_norm=false" NO_WINDOW " norm=rmsnorm norms=both rotary_share=0.5 "
     "rotary_skip=0" NO_LONGROPE ADJACENT UNSCALED, NULL, NULL, GLM4_EACH},
    {"seed_oss", "SeedOssForCausalLM", "SeedOssForSequenceClassification",
     "qk_norm=false" NO_WINDOW LLAMA_LIKE, SEPARATE},
    {"ernie4_5", "Ernie4_5ForCausalLM", NULL,
     NO_BIASES " qk_norm=false" NO_WINDOW NORMS_BEFORE WHOLE_HEADS ADJACENT UNSCALED,
     NULL, NULL, PAIRED_EACH},
    {"exaone4", "Exaone4ForCausalLM", "Exaone4ForSequenceClassification",
     NO_BIASES " qk_norm=true qk_norm_over=head window_rotary=only norm=rmsnorm norms=after"
     EVERY_ROTARY UNSCALED, NULL, NULL, OLMO_EACH},
    {"cohere", "CohereForCausalLM", NULL,
     NO_BIASES " qk_norm=false" NO_WINDOW " norm=layernorm norm_bias=false norms=shared"
     WHOLE_HEADS ADJACENT UNMULTIPLIED, NULL, NULL, PAIRED_EACH},
    {"cohere2", "Cohere2ForCausalLM", NULL,
     NO_BIASES " qk_norm=false window_rotary=only norm=layernorm norm_bias=false norms=shared"
     WHOLE_HEADS ADJACENT UNMULTIPLIED, NULL, NULL, PAIRED_EACH},
    {"ministral", "MinistralForCausalLM", "MinistralForSequenceClassification",
     NO_BIASES " qk_norm=false window_rotary=same" LLAMA_LIKE, SEPARATE},
    {"ministral3", "Ministral3ForCausalLM", "Ministral3ForSequenceClassification",
     NO_BIASES " qk_norm=false rotary_pairs=halves qk_norm_last=false" GATED ALL_WINDOWS
     NORMS_BEFORE WHOLE_HEADS UNSCALED, SEPARATE},
    {"cwm", "CwmForCausalLM", NULL,
     NO_BIASES " qk_norm=false window_rotary=same" LLAMA_LIKE, SEPARATE},
    {"helium", "HeliumForCausalLM", "HeliumForSequenceClassification",
     NO_BIASES " qk_norm=false" NO_WINDOW NORMS_BEFORE WHOLE_HEADS ADJACENT UNSCALED,
     NULL, NULL, PAIRED_EACH},
    {"arcee", "ArceeForCausalLM", "ArceeForSequenceClassification",
     NO_BIASES " qk_norm=false gated=false rotary_pairs=halves" NO_WINDOW QUERIES GAINS
     NORMS_BEFORE WHOLE_HEADS UNSCALED, NULL, NULL, UNGATED_EACH},
    {"nemotron", "NemotronForCausalLM", "NemotronForSequenceClassification",
     NO_BIASES " qk_norm=false gated=false rotary_pairs=halves norm=layernorm norm_bias=true "
     "norm_plus_one=true norms=before rotary_skip=0" NO_WINDOW QUERIES NO_LONGROPE UNSCALED,
     NULL, NULL, UNGATED_EACH},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "HunYuanDenseV1ForSequenceClassification",
     NO_BIASES " qk_norm=true qk_norm_over=head qk_norm_last=true temperature_scale=0 "
     "rotary_pairs=halves" GATED NO_WINDOW NORMS_BEFORE WHOLE_HEADS UNSCALED,
     NULL, NULL, HUNYUAN_EACH},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_LONGROPE .types = "phi3", .when = "rotary_scaling=longrope"
#define WITH_YARN .when = "rotary_scaling=yarn"
#define OF_COHERE .types = "cohere cohere2"
/* Of the windows of some layers: what comes before says how wide they are, or 0. */
#define OF_LAYERS .setting = "window_layers", .of = "window"
#define NO_CODE_BESIDE "llama mistral qwen2 qwen3 olmo2 olmo3 smollm3 granite stablelm glm4 " \
    "seed_oss exaone4 cohere cohere2 ministral ministral3 cwm helium arcee nemotron " \
    "hunyuan_v1_dense"
#define ANY_SCALING "llama mistral qwen2 qwen3 olmo2 olmo3 smollm3 granite stablelm glm4 " \
    "seed_oss ernie4_5 exaone4 cohere cohere2 ministral helium arcee nemotron hunyuan_v1_dense"
#define GATED_TYPES "llama mistral qwen2 qwen3 phi3 olmo2 olmo3 smollm3 granite stablelm glm4 " \
    "seed_oss ernie4_5 exaone4 cohere cohere2 ministral ministral3 cwm helium hunyuan_v1_dense"
#define OF_MINISTRAL3 .types = "ministral3"

static const HfKey LLAMA_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads",
     .types = "llama phi3 olmo2 olmo3 granite cohere cohere2 arcee nemotron hunyuan_v1_dense"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .types = "mistral qwen2 qwen3 stablelm cwm helium"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, .absent = "4",
     .null = "=num_attention_heads", .types = "smollm3"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, .absent = "2",
     .null = "=num_attention_heads", .types = "glm4 ernie4_5"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, .absent = "8",
     .null = "=num_attention_heads", .types = "seed_oss ministral ministral3"},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER, .absent = "32",
     .types = "exaone4"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "",
     .types = "llama mistral qwen2 phi3 olmo2 olmo3 smollm3 granite exaone4 cohere ministral arcee "
              "nemotron hunyuan_v1_dense"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .types = "qwen3"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "128", .null = "",
     .types = "glm4 seed_oss ernie4_5 ministral3 cwm"},
    {.key = "head_dim", .setting = "head", .kind = HF_QUOTIENT, .absent = "", .of = "heads",
     .with = "model", .types = "stablelm cohere2 helium"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "128",
     .types = "helium"},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "silu",
     .words = HF_ACTIVATIONS, .types = GATED_TYPES},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "relu2",
     .words = HF_ACTIVATIONS, .types = "arcee nemotron"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6",
     .types = "llama mistral qwen2 qwen3 smollm3 granite seed_oss ministral"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "phi3 olmo2 olmo3 ernie4_5 exaone4 ministral3 cwm arcee hunyuan_v1_dense"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-8",
     .types = "helium"},
    {.key = "norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "nemotron"},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1.5625e-07",
     .types = "glm4"},
    {.key = "layer_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-5",
     .types = "stablelm cohere cohere2"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false",
     .types = "llama mistral qwen2 qwen3 phi3 olmo2 olmo3 granite stablelm glm4 seed_oss exaone4 "
              "ministral ministral3 cwm helium arcee nemotron hunyuan_v1_dense"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "true",
     .types = "smollm3 ernie4_5 cohere cohere2"},
    {.key = "embedding_multiplier", .setting = "embedding_scale", .kind = HF_NUMBER,
     .absent = "1", .types = "granite"},
    {.key = "attention_multiplier", .setting = "attention_scale", .kind = HF_NUMBER,
     .absent = "1", .zero = "1/sqrt head", .types = "granite"},
    {.key = "residual_multiplier", .setting = "residual_scale", .kind = HF_NUMBER,
     .absent = "1", .types = "granite"},
    {.key = "logits_scaling", .setting = "logit_divisor", .kind = HF_NUMBER, .absent = "1",
     .types = "granite"},
    {.key = "logit_scale", .setting = "logit_scale", .kind = HF_NUMBER, .absent = "0.0625",
     OF_COHERE},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "4096",
     .null = "0", .types = "mistral qwen2 qwen3 olmo3 exaone4 ministral"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "4096",
     .types = "cohere2"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "8192",
     .types = "cwm"},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "0", .null = "0",
     .types = "phi3 ministral3"},
    {.key = "use_sliding_window", .kind = HF_FIXED, .absent = "false", .types = "smollm3"},
    {.key = "use_sliding_window", .setting = "window", .kind = HF_WHETHER, .types = "qwen2 qwen3"},
    {.key = "max_window_layers", .kind = HF_FROM, .absent = "28", .words = WINDOWS, OF_LAYERS,
     .types = "qwen2 qwen3"},
    {.key = "sliding_window_pattern", .kind = HF_EVERY, .absent = "WWWF", .words = FULL_EVERY,
     OF_LAYERS, .types = "exaone4 cohere2"},
    {.key = "layer_types", .kind = HF_LAYERS, .absent = "", .words = WINDOWS, OF_LAYERS,
     .types = "qwen2 qwen3 exaone4 cohere2 ministral"},
    {.key = "layer_types", .kind = HF_LAYERS, .absent = "WWWF", .words = WINDOWS, OF_LAYERS,
     .types = "olmo3"},
    {.key = "layer_types", .kind = HF_LAYERS, .absent = "FWWW", .words = WINDOWS, OF_LAYERS,
     .types = "cwm"},
    {.key = "layer_types", .kind = HF_CYCLE, .types = "llama smollm3", .words = HF_ALL_FULL},
    {.key = "no_rope_layers", .kind = HF_CYCLE, .types = "smollm3", .words = NOT_THE_FOURTH},
    {.key = "no_rope_layer_interval", .kind = HF_FIXED, .absent = "4", .types = "smollm3"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false",
     .types = "llama qwen3 phi3 olmo2 olmo3 smollm3 granite cohere cohere2 helium arcee nemotron "
              "hunyuan_v1_dense"},
    {.key = "attention_bias", .setting = "qkv_bias", .kind = HF_FLAG, .absent = "true",
     .types = "glm4 seed_oss"},
    {.key = "attention_out_bias", .setting = "out_bias", .kind = HF_FLAG, .absent = "false",
     .types = "seed_oss"},
    {.key = "use_bias", .kind = HF_FIXED, .absent = "false", .types = "ernie4_5"},
    {.key = "mlp_bias", .kind = HF_FIXED, .absent = "false",
     .types = "llama smollm3 granite seed_oss cwm helium arcee nemotron"},
    {.key = "use_qk_norm", .kind = HF_FIXED, .absent = "false", .types = "cohere"},
    {.key = "use_qk_norm", .kind = HF_FIXED, .absent = "true", .types = "hunyuan_v1_dense"},
    {.key = "use_qkv_bias", .setting = "qkv_bias", .kind = HF_FLAG, .absent = "false",
     .types = "stablelm"},
    {.key = "qk_layernorm", .kind = HF_FIXED, .absent = "false", .types = "stablelm"},
    {.key = "use_parallel_residual", .kind = HF_FIXED, .absent = "false", .types = "stablelm"},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0",
     .types = "llama mistral qwen2 qwen3 olmo2 olmo3 smollm3 granite seed_oss ernie4_5 exaone4 "
              "cohere cohere2 ministral ministral3 cwm helium arcee hunyuan_v1_dense"},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "0.5", .types = "glm4"},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER, .absent = "1",
     .types = "phi3"},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER,
     .absent = "0.25", .types = "stablelm"},
    {.key = "partial_rotary_factor", .setting = "rotary_share", .kind = HF_NUMBER,
     .absent = "0.5", .types = "nemotron"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .types = "llama mistral qwen2 qwen3 phi3 olmo2 granite stablelm glm4 seed_oss exaone4 "
              "cohere2 ministral arcee nemotron hunyuan_v1_dense"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "100000",
     .types = "helium"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "2e6",
     .types = "smollm3"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "500000",
     .types = "ernie4_5 cohere"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "1e6",
     .types = "ministral3 cwm"},
    /* Of both kinds of layers. */
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "500000",
     .alias = "rope_local_base_freq", .types = "olmo3"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = LONGROPE, .types = "phi3"},
    {.key = "rope_scaling.short_factor", .setting = "rotary_short", .kind = HF_NUMBERS,
     OF_LONGROPE},
    {.key = "rope_scaling.long_factor", .setting = "rotary_long", .kind = HF_NUMBERS, OF_LONGROPE},
    {.key = "original_max_position_embeddings", .setting = "rotary_context", .kind = HF_INTEGER,
     .absent = "4096", .alias = "rope_scaling.original_max_position_embeddings", OF_LONGROPE},
    {.key = "rope_scaling.attention_factor", .setting = "rotary_mscale", .kind = HF_NUMBER,
     OF_LONGROPE},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = SCALINGS, .types = ANY_SCALING},
    /* Where nothing is said, transformers takes a scaling of its own. */
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .words = SCALINGS, .types = "cwm"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .words = YARN, OF_MINISTRAL3},
    {.key = "rope_scaling.llama_4_scaling_beta", .setting = "temperature_scale", .kind = HF_AMOUNT,
     OF_MINISTRAL3},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER,
     .when = "rotary_scaling=linear|llama3|yarn"},
    {.key = "rope_scaling.low_freq_factor", .setting = "rotary_few", .kind = HF_NUMBER,
     .when = "rotary_scaling=llama3"},
    {.key = "rope_scaling.high_freq_factor", .setting = "rotary_many", .kind = HF_NUMBER,
     .when = "rotary_scaling=llama3"},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, .when = "rotary_scaling=llama3"},
    {.key = "rope_scaling.original_max_position_embeddings", .setting = "rotary_context",
     .kind = HF_INTEGER, .absent = "=max_position_embeddings",
     .alias = "original_max_position_embeddings", WITH_YARN},
    {.key = "rope_scaling.beta_fast", .setting = "rotary_many", .kind = HF_NUMBER,
     .absent = "32", WITH_YARN},
    {.key = "rope_scaling.beta_slow", .setting = "rotary_few", .kind = HF_NUMBER, .absent = "1",
     WITH_YARN},
    {.key = "rope_scaling.attention_factor", .setting = "rotary_mscale", .kind = HF_NUMBER,
     .absent = "0", WITH_YARN},
    {.key = "rope_scaling.mscale", .kind = HF_FIXED, .absent = "null", WITH_YARN},
    {.key = "rope_scaling.mscale_all_dim", .kind = HF_FIXED, .absent = "null", WITH_YARN},
    {.key = "rope_scaling.truncate", .kind = HF_FIXED, .absent = "true", WITH_YARN},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    {.key = "hidden_dropout", .kind = HF_WRITTEN, .absent = "0.0", .types = "stablelm"},
    {.key = "residual_dropout", .kind = HF_WRITTEN, .absent = "0.0", .types = "seed_oss"},
    {.key = "embd_pdrop", .kind = HF_WRITTEN, .absent = "0.0", .types = "phi3"},
    {.key = "resid_pdrop", .kind = HF_WRITTEN, .absent = "0.0", .types = "phi3"},
    /* Else transformers takes one that a small vocabulary lacks. */
    {.key = "pad_token_id", .kind = HF_WRITTEN, .absent = "null",
     .types = "phi3 olmo2 olmo3 smollm3 glm4 seed_oss ernie4_5 cohere cohere2 ministral3 helium "
              "hunyuan_v1_dense"},
    /* Their numbers cannot be null. */
    {.key = "bos_token_id", .kind = HF_WRITTEN, .absent = "128000", .types = "cwm"},
    /* Phi 3 and ERNIE 4.5 were published beside their code, before transformers had the same. */
    {.key = "auto_map", .kind = HF_FIXED, .absent = "null", .types = NO_CODE_BESIDE},
    ONLY_CAUSAL,
    KEYS_OF_ALL,
    {.key = NULL}};

static const HfTensor LLAMA_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.norm1.gain"}, "model"},
    {"model.layers.#.input_layernorm.bias", {"blocks.#.norm1.bias"}, "model"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    {"model.norm.bias", {"norm_f.bias"}, "model"},
    {"lm_head.weight", {"head"}, "vocab, model"},
    SCORE,
    {NULL, {NULL}, NULL}};

/* --- Gemma 1 to 3: norms of 1 + gain, as models/gemma.lua has them --- */

#define GEMMA_NORM(theirs, ours) \
    {"model.layers.#." theirs ".weight", {"blocks.#." ours ".gain"}, "model"}
static const HfTensor GEMMA_NORMS[] = {
    GEMMA_NORM("post_attention_layernorm", "attn.after"),
    GEMMA_NORM("pre_feedforward_layernorm", "mlp.before"),
    GEMMA_NORM("post_feedforward_layernorm", "mlp.after"), {NULL, {NULL}, NULL}};
static const HfTensor GEMMA1_NORMS[] = {
    GEMMA_NORM("post_attention_layernorm", "mlp.before"), {NULL, {NULL}, NULL}};

static const HfType GEMMA_TYPES[] = {
    {"gemma2", "Gemma2ForCausalLM", "Gemma2ForSequenceClassification",
     "qk_norm=false full_every=2 rotary_local_base=0 rotary_scaling=none norms_after=true",
     NULL, NULL, GEMMA_NORMS},
    {"gemma3_text", "Gemma3ForCausalLM", "Gemma3TextForSequenceClassification",
     "qk_norm=true full_every=6 softcap=0 norms_after=true", NULL, NULL, GEMMA_NORMS},
    {"gemma", "GemmaForCausalLM", "GemmaForSequenceClassification",
     "qk_norm=false full_every=1 rotary_scaling=none norms_after=false softcap=0 "
     "logit_softcap=0 attention_scale=@head", NULL, NULL, GEMMA1_NORMS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

#define OF_GEMMA2 .types = "gemma2"
#define OF_GEMMA3 .types = "gemma3_text"
#define OF_GEMMA1 .types = "gemma"
#define OF_GEMMAS_2_3 .types = "gemma2 gemma3_text"

/* Published as "gelu", which means the approximation. */
static const HfWord GEMMA1_ACTIVATIONS[] = {
    {"gelu_pytorch_tanh", "gelu"}, {"gelu", "gelu"}, {"gelu_new", "gelu"}, {NULL, NULL}};

static const HfKey GEMMA_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "256"},
    /* Gemma 1 has no such key: the number of a head's numbers. */
    {.key = "head_dim", .setting = "attention_scale", .kind = HF_INTEGER, .absent = "256",
     OF_GEMMA1},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .absent = "gelu",
     .words = GEMMA1_ACTIVATIONS, OF_GEMMA1},
    {.key = "hidden_activation", .setting = "act", .kind = HF_WORD, .absent = "gelu",
     .words = HF_ACTIVATIONS, OF_GEMMAS_2_3},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER, .absent = "1e-6"},
    {.key = "query_pre_attn_scalar", .setting = "attention_scale", .kind = HF_INTEGER,
     .absent = "256", OF_GEMMAS_2_3},
    {.key = "sliding_window", .setting = "window", .kind = HF_INTEGER, .absent = "4096",
     OF_GEMMAS_2_3},
    {.key = "attn_logit_softcapping", .setting = "softcap", .kind = HF_NUMBER, .absent = "50",
     .null = "0", OF_GEMMA2},
    {.key = "attn_logit_softcapping", .kind = HF_FIXED, .absent = "null", OF_GEMMA3},
    {.key = "final_logit_softcapping", .setting = "logit_softcap", .kind = HF_NUMBER,
     .absent = "30", .null = "0", OF_GEMMA2},
    {.key = "final_logit_softcapping", .setting = "logit_softcap", .kind = HF_NUMBER,
     .absent = "0", .null = "0", OF_GEMMA3},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000",
     .types = "gemma2 gemma"},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "1e6", OF_GEMMA3},
    {.key = "rope_local_base_freq", .setting = "rotary_local_base", .kind = HF_NUMBER,
     .absent = "10000", .zero = "rotary_base", OF_GEMMA3},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null", .types = "gemma2 gemma"},
    {.key = "rope_scaling.rope_type", .setting = "rotary_scaling", .kind = HF_WORD,
     .absent = "none", .words = LINEAR, OF_GEMMA3},
    {.key = "rope_scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER,
     .when = "rotary_scaling=linear", OF_GEMMA3},
    {.key = "layer_types", .kind = HF_CYCLE, .words = HF_EVERY_OTHER, OF_GEMMA2},
    {.key = "layer_types", .kind = HF_CYCLE, .words = FIVE_AND_ONE, OF_GEMMA3},
    {.key = "sliding_window_pattern", .kind = HF_FIXED, .absent = "6", OF_GEMMA3},
    {.key = "tie_word_embeddings", .kind = HF_FIXED, .absent = "true"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "use_bidirectional_attention", .kind = HF_FIXED, .absent = "false"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    ONLY_CAUSAL,
    COMMON_KEYS,
    {.key = NULL}};

static const HfTensor GEMMA_TENSORS[] = {
    {"model.embed_tokens.weight", {"wte"}, "vocab, model"},
    {"model.layers.#.input_layernorm.weight", {"blocks.#.attn.before.gain"}, "model"},
    {"model.layers.#.self_attn.q_proj.weight", {"blocks.#.attn.wq"}, "kv_heads group head, model"},
    {"model.layers.#.self_attn.k_proj.weight", {"blocks.#.attn.wk"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.v_proj.weight", {"blocks.#.attn.wv"}, "kv_heads head, model"},
    {"model.layers.#.self_attn.q_norm.weight", {"blocks.#.attn.qnorm.gain"}, "head"},
    {"model.layers.#.self_attn.k_norm.weight", {"blocks.#.attn.knorm.gain"}, "head"},
    {"model.layers.#.self_attn.o_proj.weight", {"blocks.#.attn.wo"}, "model, kv_heads group head"},
    {"model.layers.#.mlp.gate_proj.weight", {"blocks.#.mlp.wgate"}, "ffn, model"},
    {"model.layers.#.mlp.up_proj.weight", {"blocks.#.mlp.wup"}, "ffn, model"},
    {"model.layers.#.mlp.down_proj.weight", {"blocks.#.mlp.wdown"}, "model, ffn"},
    {"model.norm.weight", {"norm_f.gain"}, "model"},
    SCORE,
    {NULL, {NULL}, NULL}};

const HfFamily HF_LLAMA = {"llama", "model.", "lm_head.weight", LLAMA_TYPES, LLAMA_KEYS,
                           LLAMA_TENSORS, HF_NO_FREQUENCIES, NULL, NULL, NULL};
const HfFamily HF_GEMMA = {"gemma", "model.", "lm_head.weight", GEMMA_TYPES, GEMMA_KEYS,
                           GEMMA_TENSORS, HF_NO_FREQUENCIES, NULL, NULL, NULL};
/* clang-format on */
