#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- LLaVA, and Idefics 3 with SmolVLM: a tower's blocks, then a decoder's. config.json is as
 * hf_vision.c has put it. --- */

#define VISION(theirs, ours, dims)                                                                 \
    {TOWER "encoder.layers.<." theirs ".weight", {"blocks.<.vision." ours}, dims}
#define VISION_BIAS(theirs, ours, dims)                                                            \
    {TOWER "encoder.layers.<." theirs ".bias", {"blocks.<.vision." ours}, dims}
#define NORM(theirs, ours)                                                                         \
    {theirs ".weight", {ours ".gain"}, "vision"}, {theirs ".bias", {ours ".bias"}, "vision"}
#define TOWER_ROWS                                                                                 \
    {TOWER "embeddings.patch_embedding.weight", {"vision.patch.w"},                                \
     "vision, channel, pixel_row, pixel_column"},                                                  \
    {TOWER "embeddings.position_embedding.weight", {"vision.positions"}, "place, vision"},         \
    VISION("self_attn.q_proj", "attn.wq", "vision_heads vision_head, vision"),                     \
    VISION_BIAS("self_attn.q_proj", "attn.bq", "vision_heads vision_head"),                        \
    VISION("self_attn.k_proj", "attn.wk", "vision_heads vision_head, vision"),                     \
    VISION_BIAS("self_attn.k_proj", "attn.bk", "vision_heads vision_head"),                        \
    VISION("self_attn.v_proj", "attn.wv", "vision_heads vision_head, vision"),                     \
    VISION_BIAS("self_attn.v_proj", "attn.bv", "vision_heads vision_head"),                        \
    VISION("self_attn.out_proj", "attn.wo", "vision, vision_heads vision_head"),                   \
    VISION_BIAS("self_attn.out_proj", "attn.bo", "vision"),                                        \
    NORM(TOWER "encoder.layers.<.layer_norm1", "blocks.<.vision.ln1"),                             \
    VISION("mlp.fc1", "mlp.w1", "vision_ffn, vision"),                                             \
    VISION_BIAS("mlp.fc1", "mlp.b1", "vision_ffn"),                                                \
    VISION("mlp.fc2", "mlp.w2", "vision, vision_ffn"),                                             \
    VISION_BIAS("mlp.fc2", "mlp.b2", "vision"),                                                    \
    NORM(TOWER "encoder.layers.<.layer_norm2", "blocks.<.vision.ln2")
#define TEXT(theirs, ours, dims)                                                                   \
    {DECODER "layers.>." theirs ".weight", {"blocks.>." ours}, dims}
#define TEXT_ROWS                                                                                  \
    TEXT("self_attn.q_proj", "attn.wq", "kv_heads group head, model"),                             \
    TEXT("self_attn.k_proj", "attn.wk", "kv_heads head, model"),                                   \
    TEXT("self_attn.v_proj", "attn.wv", "kv_heads head, model"),                                   \
    TEXT("self_attn.o_proj", "attn.wo", "model, kv_heads group head"),                             \
    TEXT("mlp.gate_proj", "mlp.wgate", "ffn, model"),                                              \
    TEXT("mlp.up_proj", "mlp.wup", "ffn, model"),                                                  \
    TEXT("mlp.down_proj", "mlp.wdown", "model, ffn"),                                              \
    TEXT("input_layernorm", "norm1.gain", "model"),                                                \
    TEXT("post_attention_layernorm", "norm2.gain", "model"),                                       \
    {DECODER "norm.weight", {"norm_f.gain"}, "model"}

#define TOWER "vision_tower.vision_model."
#define DECODER "language_model.model."
static const HfTensor LLAVA_ROWS[] = {
    {DECODER "embed_tokens.weight", {"wte"}, "vocab, model"},
    {TOWER "embeddings.class_embedding", {"vision.class"}, "vision"},
    NORM(TOWER "pre_layrnorm", "vision.pre_norm"),
    TOWER_ROWS,
    {"multi_modal_projector.linear_1.weight", {"connector.w1"}, "connector, vision"},
    {"multi_modal_projector.linear_1.bias", {"connector.b1"}, "connector"},
    {"multi_modal_projector.linear_2.weight", {"connector.w2"}, "model, connector"},
    {"multi_modal_projector.linear_2.bias", {"connector.b2"}, "model"},
    TEXT_ROWS,
    {"language_model.lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};
#undef TOWER
#undef DECODER

#define TOWER "model.vision_model."
#define DECODER "model.text_model."
static const HfTensor IDEFICS3_ROWS[] = {
    {DECODER "embed_tokens.weight", {"wte"}, "vocab, model"},
    {TOWER "embeddings.patch_embedding.bias", {"vision.patch.b"}, "vision"},
    TOWER_ROWS,
    NORM(TOWER "post_layernorm", "vision.norm"),
    {"model.connector.modality_projection.proj.weight", {"connector.w"},
     "model, row column vision"},
    TEXT_ROWS,
    {"lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

#define OF_CLIP                                                                                    \
    "vision_class=true vision_pre_norm=true vision_post_norm=false vision_patch_bias=false "       \
    "connector=mlp shuffle=1 image_fit=crop image_filter=bicubic "                                 \
    "image_mean=122,116,104 pixel_mean=0.48145466,0.4578275,0.40821073 "                           \
    "pixel_std=0.26862954,0.26130258,0.27577711"
#define OF_SIGLIP                                                                                  \
    "vision_class=false vision_pre_norm=false vision_post_norm=true vision_patch_bias=true "       \
    "connector=shuffle image_fit=stretch image_filter=lanczos image_mean=none "                    \
    "pixel_mean=0.5,0.5,0.5 pixel_std=0.5,0.5,0.5"
static const HfType VISION_TYPES[] = {
    {"llava", "LlavaForConditionalGeneration", NULL, OF_CLIP, NULL, NULL, LLAVA_ROWS},
    {"idefics3", "Idefics3ForConditionalGeneration", NULL, OF_SIGLIP, NULL, NULL, IDEFICS3_ROWS},
    {"smolvlm", "SmolVLMForConditionalGeneration", NULL, OF_SIGLIP, NULL, NULL, IDEFICS3_ROWS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

static const HfWord VISION_ACTIVATIONS[] = {
    {"gelu_pytorch_tanh", "gelu"}, {"gelu_new", "gelu"}, {"quick_gelu", "quick_gelu"},
    {"gelu", "gelu_erf"}, {"relu", "relu"}, {"silu", "silu"}, {NULL, NULL}};

#define SIGLIPS .types = "idefics3 smolvlm"
static const HfKey VISION_KEYS[] = {
    {.key = "vocab_size", .setting = "vocab", .kind = HF_INTEGER},
    {.key = "max_position_embeddings", .setting = "seq", .kind = HF_INTEGER, .most = 8192},
    {.key = "hidden_size", .setting = "model", .kind = HF_INTEGER},
    {.key = "intermediate_size", .setting = "ffn", .kind = HF_INTEGER},
    {.key = "num_hidden_layers", .setting = "layers", .kind = HF_INTEGER},
    {.key = "num_attention_heads", .setting = "heads", .kind = HF_INTEGER},
    {.key = "num_key_value_heads", .setting = "kv_heads", .kind = HF_INTEGER,
     .absent = "=num_attention_heads"},
    {.key = "head_dim", .setting = "head", .kind = HF_INTEGER, .absent = "", .null = ""},
    {.key = "rms_norm_eps", .setting = "norm_eps", .kind = HF_NUMBER},
    {.key = "hidden_act", .setting = "act", .kind = HF_WORD, .words = HF_ACTIVATIONS},
    {.key = "rope_theta", .setting = "rotary_base", .kind = HF_NUMBER, .absent = "10000"},
    {.key = "rope_scaling", .kind = HF_FIXED, .absent = "null"},
    {.key = "partial_rotary_factor", .kind = HF_FIXED, .absent = "1.0"},
    {.key = "attention_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "mlp_bias", .kind = HF_FIXED, .absent = "false"},
    {.key = "qk_layer_norms", .kind = HF_FIXED, .absent = "false"},
    {.key = "use_resampler", .kind = HF_FIXED, .absent = "false"},
    {.key = "tie_word_embeddings", .setting = "tied", .kind = HF_FLAG, .absent = "false"},
    {.key = "vision_config.hidden_size", .setting = "vision", .kind = HF_INTEGER},
    {.key = "vision_config.intermediate_size", .setting = "vision_ffn", .kind = HF_INTEGER},
    {.key = "vision_config.num_hidden_layers", .setting = "vision_layers", .kind = HF_INTEGER},
    {.key = "vision_config.num_attention_heads", .setting = "vision_heads", .kind = HF_INTEGER},
    {.key = "vision_config.image_size", .setting = "image_side", .kind = HF_INTEGER},
    {.key = "vision_config.patch_size", .setting = "patch", .kind = HF_INTEGER},
    {.key = "vision_config.hidden_act", .setting = "vision_act", .kind = HF_WORD,
     .words = VISION_ACTIVATIONS},
    {.key = "vision_config.layer_norm_eps", .setting = "vision_eps", .kind = HF_NUMBER},
    {.key = "vision_config.num_channels", .kind = HF_FIXED, .absent = "3"},
    {.key = "image_patches", .setting = "patches", .kind = HF_INTEGER},
    {.key = "patch_numbers", .setting = "pixel", .kind = HF_INTEGER},
    {.key = "image_token_index", .setting = "image_token", .kind = HF_COUNT, .absent = "32000",
     .alias = "image_token_id", .types = "llava"},
    {.key = "image_token_id", .setting = "image_token", .kind = HF_COUNT, .absent = "128257",
     SIGLIPS},
    {.key = "scale_factor", .setting = "shuffle", .kind = HF_INTEGER, .absent = "2", SIGLIPS},
    {.key = "projector_hidden_act", .setting = "connector_act", .kind = HF_WORD,
     .absent = "gelu_erf", .words = HF_ACTIVATIONS, .types = "llava"},
    {.key = "multimodal_projector_bias", .kind = HF_FIXED, .absent = "true", .types = "llava"},
    {.key = "pad_token_id", .kind = HF_WRITTEN, .absent = "null"},
    {.key = "attention_dropout", .kind = HF_WRITTEN, .absent = "0.0"},
    COMMON_KEYS,
    {.key = NULL}};

static const HfTensor IN_TYPES[] = {{NULL, {NULL}, NULL}};

/* Behind the last layer, where LLaVA does not look; rotary frequencies and numbers of positions of
 * older files. */
static const char *const VISION_IGNORED[] = {
    "vision_tower.vision_model.post_layernorm.weight",
    "vision_tower.vision_model.post_layernorm.bias",
    "vision_tower.vision_model.embeddings.position_ids",
    "language_model.model.layers.#.self_attn.rotary_emb.inv_freq", NULL};

const HfFamily HF_VISION = {"llava", "", "lm_head.weight language_model.lm_head.weight",
                            VISION_TYPES, VISION_KEYS, IN_TYPES, VISION_IGNORED, NULL, NULL, NULL};
/* clang-format on */
