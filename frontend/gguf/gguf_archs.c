#include "frontend/gguf/gguf_archs.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
static const HfWord SCALINGS[] = {
    {"linear", "linear"}, {"yarn", "yarn"}, {"llama3", "llama3"}, {"none", "none"}, {NULL, NULL}};
static const HfWord LINEAR[] = {{"linear", "linear"}, {"none", "none"}, {NULL, NULL}};

#define B(theirs, ours, dims) {"blk.#." theirs, {"blocks.#." ours}, dims}
#define ENDS {NULL, {NULL}, NULL}
#define NO_KEYS {.key = NULL}

/* --- tensors: weights [out, in] --- */

/* "~": llama.cpp turns neighbouring numbers of a head together, where we turn i and i + half. */
#define ATTENTION(pairs)                                                                           \
    B("attn_q.weight", "attn.wq", "kv_heads group head" pairs ", model"),                          \
    B("attn_q.bias", "attn.bq", "kv_heads group head" pairs),                                      \
    B("attn_k.weight", "attn.wk", "kv_heads head" pairs ", model"),                                \
    B("attn_k.bias", "attn.bk", "kv_heads head" pairs),                                            \
    B("attn_v.weight", "attn.wv", "kv_heads head, model"),                                         \
    B("attn_v.bias", "attn.bv", "kv_heads head"),                                                  \
    B("attn_output.weight", "attn.wo", "model, kv_heads group head"),                              \
    B("attn_output.bias", "attn.bo", "model")
#define QK_NORMS                                                                                   \
    B("attn_q_norm.weight", "attn.qnorm.gain", "kv_heads group head"),                             \
    B("attn_k_norm.weight", "attn.knorm.gain", "kv_heads head")
#define FFN                                                                                        \
    B("ffn_gate.weight", "mlp.wgate", "ffn, model"),                                               \
    B("ffn_up.weight", "mlp.wup", "ffn, model"),                                                   \
    B("ffn_down.weight", "mlp.wdown", "model, ffn")
#define EXPERTS                                                                                    \
    B("ffn_gate_inp.weight", "moe.router", "routes, model"),                                       \
    B("ffn_gate_exps.weight", "moe.wgate", "experts, expert_ffn, model"),                          \
    B("ffn_up_exps.weight", "moe.wup", "experts, expert_ffn, model"),                              \
    B("ffn_down_exps.weight", "moe.wdown", "experts, model, expert_ffn")

#define SECOND_NORM                                                                                \
    B("ffn_norm.weight", "norm2.gain", "model"), B("ffn_norm.bias", "norm2.bias", "model")

static const HfTensor TURNED[] = {ATTENTION("~"), FFN, SECOND_NORM, ENDS};
static const HfTensor STRAIGHT[] = {ATTENTION(""), QK_NORMS, FFN, SECOND_NORM, ENDS};
static const HfTensor ARCEE_ROWS[] = {
    ATTENTION("~"), B("ffn_up.weight", "mlp.w1", "ffn, model"),
    B("ffn_down.weight", "mlp.w2", "model, ffn"), SECOND_NORM, ENDS};
static const HfTensor OLMO2_ROWS[] = {
    ATTENTION(""), QK_NORMS, FFN, B("post_attention_norm.weight", "attn.after.gain", "model"),
    B("post_ffw_norm.weight", "mlp.after.gain", "model"), ENDS};
static const HfTensor PHI3_ROWS[] = {
    {"blk.#.attn_qkv.weight",
     {"blocks.#.attn.wq", "blocks.#.attn.wk", "blocks.#.attn.wv"}, "+kv_heads group head, model"},
    B("attn_output.weight", "attn.wo", "model, kv_heads group head"),
    {"blk.#.ffn_up.weight", {"blocks.#.mlp.wgate", "blocks.#.mlp.wup"}, "+ffn, model"},
    B("ffn_down.weight", "mlp.wdown", "model, ffn"), SECOND_NORM, ENDS};
static const HfTensor TURNED_EXPERTS[] = {ATTENTION("~"), EXPERTS, SECOND_NORM, ENDS};
static const HfTensor STRAIGHT_EXPERTS[] = {ATTENTION(""), QK_NORMS, EXPERTS, SECOND_NORM, ENDS};
static const HfTensor SHARED_EXPERTS[] = {
    ATTENTION(""), EXPERTS, SECOND_NORM,
    B("ffn_gate_shexp.weight", "moe.shared.wgate", "shared_ffn, model"),
    B("ffn_up_shexp.weight", "moe.shared.wup", "shared_ffn, model"),
    B("ffn_down_shexp.weight", "moe.shared.wdown", "model, shared_ffn"),
    B("ffn_gate_inp_shexp.weight", "moe.shared.gate", "1, model"), ENDS};

static const HfTensor DECODER_ROWS[] = {
    {"token_embd.weight", {"wte"}, "vocab, model"},
    B("attn_norm.weight", "norm1.gain", "model"),
    B("attn_norm.bias", "norm1.bias", "model"),
    {"output_norm.weight", {"norm_f.gain"}, "model"},
    {"output_norm.bias", {"norm_f.bias"}, "model"},
    {"output.weight", {"head"}, "vocab, model"}, ENDS};

/* --- what all have --- */

#define SIZES                                                                                      \
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},                                 \
    {.key = "context_length", .setting = "seq", .kind = HF_INTEGER, .most = 8192},                 \
    {.key = "embedding_length", .setting = "model", .kind = HF_INTEGER},                           \
    {.key = "block_count", .setting = "layers", .kind = HF_INTEGER},                               \
    {.key = "attention.head_count", .setting = "heads", .kind = HF_INTEGER}
#define GROUPED                                                                                    \
    {.key = "attention.head_count_kv", .setting = "kv_heads", .kind = HF_INTEGER,                  \
     .absent = "=attention.head_count"}
#define HEADS                                                                                      \
    GROUPED,                                                                                       \
    {.key = "attention.key_length", .setting = "head", .kind = HF_INTEGER},                        \
    {.key = "attention.value_length", .setting = "head", .kind = HF_INTEGER,                       \
     .absent = "=attention.key_length"}
#define ROPE_BASE                                                                                  \
    {.key = "rope.freq_base", .setting = "rotary_base", .kind = HF_NUMBER}
#define TIED {.key = "_tied", .setting = "tied", .kind = HF_FLAG}
#define RMS_EPS                                                                                    \
    {.key = "attention.layer_norm_rms_epsilon", .setting = "norm_eps", .kind = HF_NUMBER}
/* What they compute otherwise where these say so. */
#define AS_USUAL                                                                                   \
    {.key = "attention.causal", .kind = HF_FIXED, .absent = "true"},                               \
    {.key = "rope.scaling.attn_factor", .kind = HF_FIXED, .absent = "1"},                          \
    {.key = "rope.scaling.finetuned", .kind = HF_WRITTEN, .absent = "null"},                       \
    {.key = "tensor_data_layout", .kind = HF_WRITTEN, .absent = "null"}

/* --- models/llama.lua --- */

#define UNMULTIPLIED " embedding_scale=1 attention_scale=0 residual_scale=1 logit_divisor=1"
#define PLAIN " act=silu gated=true out_bias=false" PLAIN_BUT
#define PLAIN_BUT                                                                                  \
    " qk_norm_last=false norm_plus_one=false "                  \
    "temperature_scale=0 rotary_mscale=0 logit_scale=1 window_rotary=same"
#define RMSNORM " norm=rmsnorm norms=before"
#define NO_BIAS "qkv_bias=false qk_norm=false"
#define NO_WINDOW " window=0"
#define WHOLE " rotary_share=1"
#define ALL_TURN " rotary_skip=0"

static const HfType LLAMA_TYPES[] = {
    {"llama", "llama", NULL, NO_BIAS RMSNORM NO_WINDOW WHOLE ALL_TURN UNMULTIPLIED PLAIN,
     NULL, NULL, TURNED},
    {"qwen2", "qwen2", NULL,
     "qkv_bias=true qk_norm=false" RMSNORM NO_WINDOW WHOLE ALL_TURN UNMULTIPLIED PLAIN,
     NULL, NULL, STRAIGHT},
    {"qwen3", "qwen3", NULL,
     "qkv_bias=false qk_norm=true qk_norm_over=head" RMSNORM NO_WINDOW WHOLE ALL_TURN UNMULTIPLIED
     PLAIN, NULL, NULL, STRAIGHT},
    /* llama.cpp leaves its windows out. */
    {"phi3", "phi3", NULL, NO_BIAS RMSNORM NO_WINDOW ALL_TURN UNMULTIPLIED PLAIN,
     NULL, NULL, PHI3_ROWS},
    /* The output has a table of its own in these, also of equal numbers. */
    {"olmo2", "olmo2", NULL,
     "qkv_bias=false qk_norm=true qk_norm_over=all norm=rmsnorm norms=after tied=false" NO_WINDOW
     WHOLE ALL_TURN UNMULTIPLIED PLAIN, NULL, NULL, OLMO2_ROWS},
    {"smollm3", "smollm3", NULL, NO_BIAS RMSNORM NO_WINDOW WHOLE " rotary_skip=4" UNMULTIPLIED
     PLAIN, NULL, NULL, TURNED},
    {"granite", "granite", NULL, NO_BIAS RMSNORM NO_WINDOW WHOLE ALL_TURN PLAIN,
     NULL, NULL, TURNED},
    {"stablelm", "stablelm", NULL,
     "qk_norm=false norm=layernorm norm_bias=true norms=before tied=false" NO_WINDOW ALL_TURN
     UNMULTIPLIED PLAIN, NULL, NULL, STRAIGHT},
    {"arcee", "arcee", NULL,
     NO_BIAS RMSNORM NO_WINDOW WHOLE ALL_TURN UNMULTIPLIED " act=relu2 gated=false out_bias=false"
     PLAIN_BUT, NULL, NULL, ARCEE_ROWS},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL}};

#define OF_GRANITE .types = "granite"
#define BY_LLAMA3 .when = "rotary_scaling=llama3"
#define BY_YARN .when = "rotary_scaling=yarn"

static const HfKey LLAMA_KEYS[] = {
    SIZES, HEADS, ROPE_BASE, TIED, AS_USUAL,
    /* The others have as many numbers of a head as model / heads, and no more. */
    {.key = "attention.key_length", .setting = "head", .kind = HF_QUOTIENT, .of = "heads",
     .with = "model", .types = "qwen2 phi3 olmo2 stablelm"},
    {.key = "feed_forward_length", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "attention.layer_norm_rms_epsilon", .setting = "norm_eps", .kind = HF_NUMBER,
     .types = "llama qwen2 qwen3 phi3 olmo2 smollm3 granite arcee"},
    {.key = "attention.layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER,
     .types = "stablelm"},
    {.key = "rope.dimension_count", .setting = "rotary_share", .kind = HF_SHARE, .of = "head",
     .with = "_"},
    {.key = "attention.sliding_window", .setting = "window", .kind = HF_COUNT, .absent = "0",
     .types = "phi3"},
    {.key = "use_parallel_residual", .kind = HF_WRITTEN, .absent = "false", .types = "stablelm"},
    {.key = "_qkv_bias", .setting = "qkv_bias", .kind = HF_FLAG, .types = "stablelm"},
    {.key = "embedding_scale", .setting = "embedding_scale", .kind = HF_NUMBER, .absent = "1",
     OF_GRANITE},
    {.key = "attention.scale", .setting = "attention_scale", .kind = HF_NUMBER, .absent = "",
     .zero = "1/sqrt head", OF_GRANITE},
    {.key = "residual_scale", .setting = "residual_scale", .kind = HF_NUMBER, .absent = "1",
     OF_GRANITE},
    {.key = "logit_scale", .setting = "logit_divisor", .kind = HF_NUMBER, OF_GRANITE},
    {.key = "rope.scaling.type", .setting = "rotary_scaling", .kind = HF_WORD, .absent = "none",
     .words = SCALINGS},
    {.key = "rope.scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER,
     .when = "rotary_scaling=linear|llama3|yarn"},
    {.key = "rope.scaling.original_context_length", .setting = "rotary_context",
     .kind = HF_INTEGER, .when = "rotary_scaling=llama3|yarn"},
    /* Written as rope_freqs.weight. */
    {.key = "rope.scaling.low_freq_factor", .setting = "rotary_few", .kind = HF_NUMBER, BY_LLAMA3},
    {.key = "rope.scaling.high_freq_factor", .setting = "rotary_many", .kind = HF_NUMBER,
     BY_LLAMA3},
    {.key = "rope.scaling.yarn_beta_fast", .setting = "rotary_many", .kind = HF_NUMBER,
     .absent = "32", BY_YARN},
    {.key = "rope.scaling.yarn_beta_slow", .setting = "rotary_few", .kind = HF_NUMBER,
     .absent = "1", BY_YARN},
    {.key = "rope.scaling.yarn_ext_factor", .kind = HF_FIXED, .absent = "1"},
    {.key = "rope.scaling.yarn_attn_factor", .kind = HF_FIXED, .absent = "1"},
    {.key = "expert_count", .kind = HF_FIXED, .absent = "0"},
    {.key = "expert_used_count", .kind = HF_FIXED, .absent = "0"},
    NO_KEYS};

/* --- models/moe.lua --- */

#define ALL_EXPERTS                                                                                \
    " dense_layers=0 experts_every=1 scores=softmax gate_scale=1 bias=false groups=1 act=silu "    \
    "norms=before attention_gate=false window=0 rotary_share=1 rotary_scaling=none"
#define NO_SHARED " shared=false shared_gate=false"

static const HfType MOE_TYPES[] = {
    {"llama-moe", "llama", NULL,
     "normalize=true " NO_BIAS NO_SHARED ALL_EXPERTS UNMULTIPLIED, NULL, NULL, TURNED_EXPERTS},
    {"qwen3moe", "qwen3moe", NULL,
     "normalize=true qkv_bias=false qk_norm=true qk_norm_over=head" NO_SHARED ALL_EXPERTS
     UNMULTIPLIED, NULL, NULL, STRAIGHT_EXPERTS},
    {"qwen2moe", "qwen2moe", NULL,
     "normalize=false qkv_bias=true qk_norm=false shared=true shared_gate=true tied=false"
     ALL_EXPERTS UNMULTIPLIED, NULL, NULL, SHARED_EXPERTS},
    {"olmoe", "olmoe", NULL,
     "normalize=false qkv_bias=false qk_norm=true qk_norm_over=all tied=false kv_heads=@heads"
     NO_SHARED ALL_EXPERTS UNMULTIPLIED, NULL, NULL, STRAIGHT_EXPERTS},
    {"granitemoe", "granitemoe", NULL, "normalize=true " NO_BIAS NO_SHARED ALL_EXPERTS,
     NULL, NULL, TURNED_EXPERTS},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL}};

#define OF_GRANITEMOE .types = "granitemoe"
#define OF_ONE_WIDTH .types = "llama-moe olmoe granitemoe"
#define OF_QWENS .types = "qwen2moe qwen3moe"

static const HfKey MOE_KEYS[] = {
    SIZES, HEADS, ROPE_BASE, TIED, RMS_EPS, AS_USUAL,
    {.key = "attention.key_length", .setting = "head", .kind = HF_QUOTIENT, .of = "heads",
     .with = "model", .types = "qwen2moe olmoe"},
    {.key = "rope.dimension_count", .setting = "rotary_share", .kind = HF_SHARE, .of = "head",
     .with = "_"},
    {.key = "rope.scaling.type", .kind = HF_FIXED, .absent = "\"none\""},
    {.key = "feed_forward_length", .setting = "expert_ffn", .kind = HF_INTEGER, OF_ONE_WIDTH},
    {.key = "feed_forward_length", .setting = "ffn", .kind = HF_INTEGER, .absent = "", OF_QWENS},
    {.key = "expert_feed_forward_length", .setting = "expert_ffn", .kind = HF_INTEGER, OF_QWENS},
    {.key = "expert_shared_feed_forward_length", .setting = "shared_ffn", .kind = HF_INTEGER,
     .types = "qwen2moe"},
    {.key = "expert_shared_feed_forward_length", .kind = HF_FIXED, .absent = "0", OF_GRANITEMOE},
    {.key = "expert_count", .setting = "experts", .kind = HF_INTEGER},
    {.key = "expert_used_count", .setting = "top_k", .kind = HF_INTEGER},
    {.key = "expert_gating_func", .kind = HF_FIXED, .absent = "1"}, /* softmax */
    {.key = "expert_weights_scale", .kind = HF_FIXED, .absent = "1"},
    {.key = "embedding_scale", .setting = "embedding_scale", .kind = HF_NUMBER, .absent = "1",
     OF_GRANITEMOE},
    {.key = "attention.scale", .setting = "attention_scale", .kind = HF_NUMBER, .absent = "",
     .zero = "1/sqrt head", OF_GRANITEMOE},
    {.key = "residual_scale", .setting = "residual_scale", .kind = HF_NUMBER, .absent = "1",
     OF_GRANITEMOE},
    {.key = "logit_scale", .setting = "logit_divisor", .kind = HF_NUMBER, OF_GRANITEMOE},
    NO_KEYS};

/* --- models/gemma.lua: norms have gains of 1 and more there, we what is more --- */

#define GAIN(theirs, ours) B(theirs ".weight", ours ".gain", "model^")
static const HfTensor GEMMA_AFTER[] = {
    GAIN("post_attention_norm", "attn.after"), GAIN("post_ffw_norm", "mlp.after"), ENDS};
static const HfTensor GEMMA_ROWS[] = {
    {"token_embd.weight", {"wte"}, "vocab, model"},
    GAIN("attn_norm", "attn.before"), GAIN("ffn_norm", "mlp.before"),
    B("attn_q_norm.weight", "attn.qnorm.gain", "head^"),
    B("attn_k_norm.weight", "attn.knorm.gain", "head^"),
    ATTENTION(""), FFN,
    {"output_norm.weight", {"norm_f.gain"}, "model^"}, ENDS};

static const HfType GEMMA_TYPES[] = {
    {"gemma2", "gemma2", NULL,
     "act=gelu qk_norm=false full_every=2 rotary_local_base=0 rotary_scaling=none norms_after=true",
     NULL, NULL, GEMMA_AFTER},
    {"gemma3", "gemma3", NULL, "act=gelu qk_norm=true full_every=6 softcap=0 norms_after=true",
     NULL, NULL, GEMMA_AFTER},
    {"gemma", "gemma", NULL,
     "act=gelu qk_norm=false full_every=1 rotary_scaling=none norms_after=false softcap=0 "
     "logit_softcap=0", NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL}};

#define OF_GEMMA2 .types = "gemma2"
#define OF_GEMMA3 .types = "gemma3"
#define OF_GEMMAS_2_3 .types = "gemma2 gemma3"

static const HfKey GEMMA_KEYS[] = {
    SIZES, HEADS, ROPE_BASE, RMS_EPS, AS_USUAL,
    {.key = "_attention_scale", .setting = "attention_scale", .kind = HF_INTEGER},
    {.key = "_tied", .kind = HF_FIXED, .absent = "true"},
    {.key = "rope.dimension_count", .kind = HF_WRITTEN, .absent = "null"},
    {.key = "feed_forward_length", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "attention.sliding_window", .setting = "window", .kind = HF_INTEGER, OF_GEMMAS_2_3},
    {.key = "attn_logit_softcapping", .setting = "softcap", .kind = HF_NUMBER, OF_GEMMA2},
    {.key = "attn_logit_softcapping", .kind = HF_FIXED, .absent = "0", OF_GEMMA3},
    {.key = "final_logit_softcapping", .setting = "logit_softcap", .kind = HF_NUMBER, OF_GEMMA2},
    {.key = "final_logit_softcapping", .setting = "logit_softcap", .kind = HF_NUMBER,
     .absent = "0", OF_GEMMA3},
    {.key = "rope.freq_base_swa", .setting = "rotary_local_base", .kind = HF_NUMBER,
     .absent = "10000", .zero = "rotary_base", OF_GEMMA3},
    {.key = "rope.scaling.type", .setting = "rotary_scaling", .kind = HF_WORD, .absent = "none",
     .words = LINEAR, OF_GEMMA3},
    {.key = "rope.scaling.type", .kind = HF_FIXED, .absent = "\"none\"", .types = "gemma gemma2"},
    {.key = "rope.scaling.factor", .setting = "rotary_factor", .kind = HF_NUMBER,
     .when = "rotary_scaling=linear", OF_GEMMA3},
    NO_KEYS};

/* --- models/gpt.lua --- */

#define QKV(letter)                                                                                \
    "blocks.#.attn." letter "q", "blocks.#.attn." letter "k", "blocks.#.attn." letter "v"
static const HfTensor GPT_ROWS[] = {
    {"token_embd.weight", {"wte"}, "vocab, model"},
    {"position_embd.weight", {"wpe"}, "seq, model"},
    B("attn_norm.weight", "ln1.gain", "model"),
    B("attn_norm.bias", "ln1.bias", "model"),
    {"blk.#.attn_qkv.weight", {QKV("w")}, "+kv_heads group head, model"},
    {"blk.#.attn_qkv.bias", {QKV("b")}, "kv_heads group head"},
    B("attn_output.weight", "attn.wo", "model, kv_heads group head"),
    B("attn_output.bias", "attn.bo", "model"),
    B("ffn_norm.weight", "ln2.gain", "model"),
    B("ffn_norm.bias", "ln2.bias", "model"),
    B("ffn_up.weight", "mlp.w1", "ffn, model"),
    B("ffn_up.bias", "mlp.b1", "ffn"),
    B("ffn_down.weight", "mlp.w2", "model, ffn"),
    B("ffn_down.bias", "mlp.b2", "model"),
    {"output_norm.weight", {"ln_f.gain"}, "model"},
    {"output_norm.bias", {"ln_f.bias"}, "model"},
    {"output.weight", {"head"}, "vocab, model"}, ENDS};

static const HfType GPT_TYPES[] = {
    {"gpt2", "gpt2", NULL, "norm=layernorm kv_heads=@heads act=gelu", NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL}};

static const HfKey GPT_KEYS[] = {
    SIZES, GROUPED, TIED, AS_USUAL,
    {.key = "feed_forward_length", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "attention.layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER},
    {.key = "attention.key_length", .kind = HF_WRITTEN, .absent = "null"},
    {.key = "rope.dimension_count", .kind = HF_WRITTEN, .absent = "null"},
    NO_KEYS};

/* --- models/neox.lua --- */

#define BIASED(theirs, ours, bias, dims, along)                                                    \
    B(theirs ".weight", ours, dims), B(theirs ".bias", bias, along)
#define NEOX_NORM(theirs, ours) BIASED(theirs, ours ".gain", ours ".bias", "model", "model")
static const HfTensor NEOX_ROWS[] = {
    {"token_embd.weight", {"wte"}, "vocab, model"},
    NEOX_NORM("attn_norm", "ln1"), NEOX_NORM("ffn_norm", "ln2"), ATTENTION(""),
    BIASED("ffn_up", "mlp.w1", "mlp.b1", "ffn, model", "ffn"),
    BIASED("ffn_down", "mlp.w2", "mlp.b2", "model, ffn", "model"),
    {"output_norm.weight", {"ln_f.gain"}, "model"},
    {"output_norm.bias", {"ln_f.bias"}, "model"},
    {"output.weight", {"head"}, "vocab, model"},
    {"output.bias", {"head_bias"}, "vocab"}, ENDS};

#define ALL_BIASES " attention_bias=true mlp_bias=true window=0 act=gelu"
static const HfType NEOX_TYPES[] = {
    {"starcoder2", "starcoder2", NULL,
     "parallel=false shared_norm=false rotary_share=1 head_bias=false" ALL_BIASES,
     NULL, NULL, NULL},
    {"phi2", "phi2", NULL,
     "parallel=true shared_norm=true head_bias=true tied=false" ALL_BIASES, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL}};

static const HfKey NEOX_KEYS[] = {
    SIZES, GROUPED, ROPE_BASE, TIED, AS_USUAL,
    {.key = "attention.key_length", .setting = "head", .kind = HF_QUOTIENT, .of = "heads",
     .with = "model"},
    {.key = "feed_forward_length", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "attention.layer_norm_epsilon", .setting = "norm_eps", .kind = HF_NUMBER},
    {.key = "rope.dimension_count", .setting = "rotary_share", .kind = HF_SHARE, .of = "head",
     .with = "_"},
    {.key = "rope.scaling.type", .kind = HF_FIXED, .absent = "\"none\""},
    NO_KEYS};

/* --- the table --- */

static const char *const IGNORED[] = {"rope_freqs.weight", NULL};
#define DROPPED "llama.cpp's experts take all tokens that choose them"

static const HfFamily LLAMA = {"llama", "", "output.weight", LLAMA_TYPES, LLAMA_KEYS, DECODER_ROWS,
                               IGNORED, NULL, NULL, NULL};
static const HfFamily MOE = {"moe", "", "output.weight", MOE_TYPES, MOE_KEYS, DECODER_ROWS,
                             IGNORED, "capacity=0", DROPPED, NULL};
static const HfFamily GEMMA = {"gemma", "", "output.weight", GEMMA_TYPES, GEMMA_KEYS, GEMMA_ROWS,
                               IGNORED, NULL, NULL, NULL};
static const HfFamily GPT = {"gpt", "", "output.weight", GPT_TYPES, GPT_KEYS, GPT_ROWS, IGNORED,
                             NULL, NULL, NULL};

static const HfFamily NEOX = {"neox", "", "output.weight", NEOX_TYPES, NEOX_KEYS, NEOX_ROWS,
                              IGNORED, NULL, NULL, NULL};

const HfFamily *const GGUF_FAMILIES[] = {&GPT, &LLAMA, &GEMMA, &NEOX, &MOE, NULL};
/* clang-format on */

const HfFamily *gguf_family_of(const char *script) {
    for (const HfFamily *const *family = GGUF_FAMILIES; *family; family++) {
        if (strcmp((*family)->script, script) == 0) return *family;
    }
    return NULL;
}

const HfType *gguf_type_of(const char *architecture, bool experts, const HfFamily **out_family) {
    const HfType *found = NULL;
    for (const HfFamily *const *family = GGUF_FAMILIES; *family; family++) {
        for (const HfType *type = (*family)->types; type->name; type++) {
            if (strcmp(type->architecture, architecture) != 0) continue;
            if (found && experts != (*family == &MOE)) continue;
            found = type;
            *out_family = *family;
        }
    }
    return found;
}

const char *gguf_arch_names(Arena *arena) {
    const char *names = "";
    for (const HfFamily *const *family = GGUF_FAMILIES; *family; family++) {
        for (const HfType *type = (*family)->types; type->name; type++) {
            if (strcmp(type->name, type->architecture) != 0) continue; /* named already */
            names = arena_printf(arena, "%s%s%s", names, names[0] ? ", " : "", type->name);
        }
    }
    return names;
}
