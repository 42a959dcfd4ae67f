#include "frontend/hf/hf_rows.h"

#include <stddef.h>

/* clang-format off */
/* --- LLaVA, Idefics 3 with SmolVLM, and InternVL: a tower's blocks, then a decoder's. config.json
 * is as hf_vision.c has put it. --- */

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

#undef TOWER
#undef DECODER

#define TOWER "vision_tower."
#define DECODER "language_model.model."
#define INTERNVIT(theirs, ours, dims)                                                              \
    {TOWER "encoder.layer.<." theirs, {"blocks.<.vision." ours}, dims}
static const HfTensor INTERNVL_ROWS[] = {
    {DECODER "embed_tokens.weight", {"wte"}, "vocab, model"},
    {TOWER "embeddings.cls_token", {"vision.class"}, "1, 1, vision"},
    {TOWER "embeddings.patch_embeddings.projection.weight", {"vision.patch.w"},
     "vision, channel, pixel_row, pixel_column"},
    {TOWER "embeddings.patch_embeddings.projection.bias", {"vision.patch.b"}, "vision"},
    {TOWER "embeddings.position_embeddings", {"vision.positions"}, "1, place, vision"},
    INTERNVIT("attention.q_proj.weight", "attn.wq", "vision_heads vision_head, vision"),
    INTERNVIT("attention.q_proj.bias", "attn.bq", "vision_heads vision_head"),
    INTERNVIT("attention.k_proj.weight", "attn.wk", "vision_heads vision_head, vision"),
    INTERNVIT("attention.k_proj.bias", "attn.bk", "vision_heads vision_head"),
    INTERNVIT("attention.v_proj.weight", "attn.wv", "vision_heads vision_head, vision"),
    INTERNVIT("attention.v_proj.bias", "attn.bv", "vision_heads vision_head"),
    INTERNVIT("attention.q_norm.weight", "attn.qnorm.gain", "vision_heads vision_head"),
    INTERNVIT("attention.k_norm.weight", "attn.knorm.gain", "vision_heads vision_head"),
    INTERNVIT("attention.projection_layer.weight", "attn.wo", "vision, vision_heads vision_head"),
    INTERNVIT("attention.projection_layer.bias", "attn.bo", "vision"),
    INTERNVIT("layernorm_before.weight", "ln1.gain", "vision"),
    INTERNVIT("layernorm_before.bias", "ln1.bias", "vision"),
    INTERNVIT("layernorm_after.weight", "ln2.gain", "vision"),
    INTERNVIT("layernorm_after.bias", "ln2.bias", "vision"),
    INTERNVIT("lambda_1", "scale1", "vision"),
    INTERNVIT("lambda_2", "scale2", "vision"),
    INTERNVIT("mlp.fc1.weight", "mlp.w1", "vision_ffn, vision"),
    INTERNVIT("mlp.fc1.bias", "mlp.b1", "vision_ffn"),
    INTERNVIT("mlp.fc2.weight", "mlp.w2", "vision, vision_ffn"),
    INTERNVIT("mlp.fc2.bias", "mlp.b2", "vision"),
    NORM(TOWER "layernorm", "vision.norm"),
    {"multi_modal_projector.layer_norm.weight", {"connector.norm.gain"}, "row column vision"},
    {"multi_modal_projector.layer_norm.bias", {"connector.norm.bias"}, "row column vision"},
    {"multi_modal_projector.linear_1.weight", {"connector.w1"}, "connector, row column vision"},
    {"multi_modal_projector.linear_1.bias", {"connector.b1"}, "connector"},
    {"multi_modal_projector.linear_2.weight", {"connector.w2"}, "model, connector"},
    {"multi_modal_projector.linear_2.bias", {"connector.b2"}, "model"},
    TEXT_ROWS,
    {DECODER "layers.>.self_attn.q_proj.bias", {"blocks.>.attn.bq"}, "kv_heads group head"},
    {DECODER "layers.>.self_attn.k_proj.bias", {"blocks.>.attn.bk"}, "kv_heads head"},
    {DECODER "layers.>.self_attn.v_proj.bias", {"blocks.>.attn.bv"}, "kv_heads head"},
    {"language_model.lm_head.weight", {"head"}, "vocab, model"},
    {NULL, {NULL}, NULL}};

#define OF_LLAMA                                                                                   \
    " qkv_bias=false vision_norm=layernorm vision_qkv_bias=true vision_qk_norm=false "             \
    "vision_layer_scale=false"
#define OF_CLIP                                                                                    \
    "vision_class=true vision_pre_norm=true vision_post_norm=false vision_patch_bias=false "       \
    "connector=mlp shuffle=1 image_fit=crop image_filter=bicubic "                                 \
    "image_mean=122,116,104 pixel_mean=0.48145466,0.4578275,0.40821073 "                           \
    "pixel_std=0.26862954,0.26130258,0.27577711" OF_LLAMA
#define OF_SIGLIP                                                                                  \
    "vision_class=false vision_pre_norm=false vision_post_norm=true vision_patch_bias=true "       \
    "connector=shuffle image_fit=stretch image_filter=lanczos image_mean=none "                    \
    "pixel_mean=0.5,0.5,0.5 pixel_std=0.5,0.5,0.5 "                                               \
    "image_before=<fake_token_around_image><global-img> image_after=<fake_token_around_image> "    \
    "image_tile=<fake_token_around_image><row_{row}_col_{column}>" OF_LLAMA
#define OF_INTERNVIT                                                                               \
    "vision_class=true vision_pre_norm=false vision_patch_bias=true vision_layer_scale=true "      \
    "qkv_bias=true connector=shuffle_mlp image_fit=stretch image_filter=bicubic image_mean=none "  \
    "pixel_mean=0.485,0.456,0.406 pixel_std=0.229,0.224,0.225 image_before=<img> "                 \
    "image_after=</img>"
static const HfType VISION_TYPES[] = {
    {"llava", "LlavaForConditionalGeneration", NULL, OF_CLIP, NULL, NULL, LLAVA_ROWS},
    {"idefics3", "Idefics3ForConditionalGeneration", NULL, OF_SIGLIP, NULL, NULL, IDEFICS3_ROWS},
    {"smolvlm", "SmolVLMForConditionalGeneration", NULL, OF_SIGLIP, NULL, NULL, IDEFICS3_ROWS},
    {"internvl", "InternVLForConditionalGeneration", NULL, OF_INTERNVIT, NULL, NULL,
     INTERNVL_ROWS},
    {NULL, NULL, NULL, NULL, NO_EXPERTS}};

static const HfWord VISION_ACTIVATIONS[] = {
    {"gelu_pytorch_tanh", "gelu"}, {"gelu_new", "gelu"}, {"quick_gelu", "quick_gelu"},
    {"gelu", "gelu_erf"}, {"relu", "relu"}, {"silu", "silu"}, {NULL, NULL}};

static const HfWord INTERNVL_NORMS[] = {
    {"layer_norm", "layernorm"}, {"rms_norm", "rmsnorm"}, {NULL, NULL}};
static const HfWord NO_POOLING[] = {{"true", "false"}, {"false", "true"}, {NULL, NULL}};

#define SIGLIPS .types = "idefics3 smolvlm"
#define INTERNVLS .types = "internvl"
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
    {.key = "image_token_id", .setting = "image_token", .kind = HF_COUNT, .absent = "151667",
     INTERNVLS},
    {.key = "scale_factor", .setting = "shuffle", .kind = HF_INTEGER, .absent = "2",
     .types = "idefics3 smolvlm internvl"},
    {.key = "use_sliding_window", .kind = HF_FIXED, .absent = "false", INTERNVLS},
    {.key = "vision_config.attention_bias", .setting = "vision_qkv_bias", .kind = HF_FLAG,
     .absent = "false", INTERNVLS},
    {.key = "vision_config.use_qk_norm", .setting = "vision_qk_norm", .kind = HF_FLAG,
     .absent = "false", INTERNVLS},
    {.key = "vision_config.norm_type", .setting = "vision_norm", .kind = HF_WORD,
     .absent = "layernorm", .words = INTERNVL_NORMS, INTERNVLS},
    {.key = "vision_config.use_mean_pooling", .setting = "vision_post_norm", .kind = HF_WORD,
     .absent = "false", .words = NO_POOLING, INTERNVLS},
    {.key = "vision_config.use_mask_token", .kind = HF_FIXED, .absent = "false", INTERNVLS},
    {.key = "vision_config.use_absolute_position_embeddings", .kind = HF_FIXED, .absent = "true",
     INTERNVLS},
    {.key = "projector_hidden_act", .setting = "connector_act", .kind = HF_WORD,
     .absent = "gelu_erf", .words = HF_ACTIVATIONS, .types = "llava internvl"},
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
