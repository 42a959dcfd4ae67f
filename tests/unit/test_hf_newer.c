/* Models of Hugging Face's that came last (tests/reference/hf_newer.py): an import computes what
 * transformers computes, an export gives back the bits that were imported, and what is not
 * supported is one line.
 *
 * Would catch: products of a delta rule mixed up, a temperature that begins at another token, norms
 * behind a branch in place of before it, windows of other layers, gates of experts from another
 * sum, positions of another base.
 */
#include "frontend/hf/hf_processor.h"
#include "tests/unit/hf_checks.h"

typedef struct Fixture {
    const char *name;
    DType dtype;         /* of its files */
    const char *without; /* the type that an export without --like is; NULL: the same */
} Fixture;

/* clang-format off */
static const Fixture FIXTURES[] = {
    {"qwen3_5", DTYPE_F32, NULL},    {"qwen3_5_moe", DTYPE_BF16, NULL},
    {"qwen3_5_pictures", DTYPE_BF16, NULL},
    {"ministral", DTYPE_F32, NULL},  {"ministral3", DTYPE_F32, NULL},
    {"mistral3", DTYPE_BF16, NULL},  {"mistral3_pictures", DTYPE_BF16, "llama"},
    {"glm4_moe_lite", DTYPE_F32, "deepseek_v3"},
    {"lfm2_moe", DTYPE_F32, NULL},   {"lfm2_moe_plain", DTYPE_BF16, NULL},
    {"solar_open", DTYPE_F32, NULL}, {"exaone_moe", DTYPE_F32, NULL},
    {"cwm", DTYPE_F32, "ministral"}, {"helium", DTYPE_F32, "ernie4_5"},
    {"gemma", DTYPE_F32, NULL},      {"arcee", DTYPE_F32, NULL},
    {"nemotron", DTYPE_F32, NULL},   {"hunyuan_v1_dense", DTYPE_F32, NULL},
    {"olmo_hybrid", DTYPE_F32, NULL}, {"olmo_hybrid_turned", DTYPE_BF16, NULL},
    {"gpt_bigcode", DTYPE_F32, NULL}, {"gptj", DTYPE_F32, NULL},
    {"falcon", DTYPE_F32, NULL},     {"falcon_one_norm", DTYPE_BF16, NULL},
    {"falcon_7b", DTYPE_F32, NULL},
    {"afmoe", DTYPE_F32, NULL},      {"afmoe_plain", DTYPE_F32, NULL},
    {"llava", DTYPE_F32, NULL},      {"smolvlm", DTYPE_F32, "idefics3"},
    {"internvl", DTYPE_F32, NULL},   {"internvl_6b", DTYPE_F32, NULL}};
/* clang-format on */
enum { N_FIXTURES = sizeof(FIXTURES) / sizeof(FIXTURES[0]) };

static const BadConfig BAD[] = {
    {"qwen3_5", "attn_output_gate", "false",
     "'attn_output_gate' is false, which is not supported; only true is"},
    {"qwen3_5", "layer_types", "[\"linear_attention\"]", "it must be a list of 3, one for each"},
    {"qwen3_5_pictures", "text_config", "{\"model_type\": \"qwen3_next\"}",
     "'text_config.model_type' is \"qwen3_next\"; a qwen3_5 has \"qwen3_5_text\" there"},
    {"mistral3", "text_config", "{\"model_type\": \"llama\"}",
     "'text_config.model_type' is \"llama\"; a mistral3 has \"mistral\" or \"ministral3\" there"},
    {"ministral3", "rope_parameters", "null",
     "has no 'rope_scaling.rope_type', which a ministral3 has"},
    {"ministral3", "rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 2}",
     "'rope_scaling.rope_type' is \"linear\", which is not supported; supported: yarn"},
    {"ministral3", "rope_parameters",
     "{\"rope_type\": \"yarn\", \"factor\": 0.5, \"mscale\": 1, \"mscale_all_dim\": 1}",
     "says 'rope_scaling.factor' 0.5, 'mscale' 1 and 'mscale_all_dim' 1; the first must be"},
    {"ministral3", "rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 2}",
     "has no 'rope_scaling.llama_4_scaling_beta', which a ministral3 has"},
    {"glm4_moe_lite", "mlp_layer_types", "[\"dense\", \"sparse\", \"dense\"]",
     "which is not supported; it must be a list of 3, \"dense\" for the first layers, if any, "
     "then"},
    {"glm4_moe_lite", "mlp_layer_types", "7", "'mlp_layer_types' is 7, which is not supported"},
    {"glm4_moe_lite", "mlp_layer_types", "[\"dense\"]", "it must be a list of 3"},
    {"exaone_moe", "mlp_layer_types", "[\"sparse\", \"sparse\", \"sparse\"]",
     "has no tensor 'model.layers.0.mlp.gate.weight'"},
    {"exaone_moe", "sliding_window", "0", "'sliding_window' is 0; it must be a whole number"},
    {"exaone_moe", "layer_types", "[\"full_attention\", \"chunked\", \"full_attention\"]",
     "'layer_types' has \"chunked\" at layer 1, which is not supported"},
    {"solar_open", "use_qk_norm", "true", "'use_qk_norm' is true, which is not supported"},
    {"lfm2_moe", "num_dense_layers", "4", "dense_layers must be from 0 to the 3 layers"},
    {"lfm2_moe", "conv_bias", "true", "'conv_bias' is true, which is not supported"},
    {"cwm", "rope_parameters", "null", "has no 'rope_scaling.rope_type', which a cwm has"},
    {"helium", "head_dim", "8", "is [16, 16]; by the configuration it is [32, 16]"},
    {"gemma", "hidden_act", "\"relu\"", "'hidden_act' is \"relu\", which is not supported"},
    {"arcee", "mlp_bias", "true", "'mlp_bias' is true, which is not supported; only false is"},
    {"arcee", "is_causal", "false", "'is_causal' is false, which is not supported; only true is"},
    {"nemotron", "partial_rotary_factor", "2", "has 'partial_rotary_factor' twice"},
    {"hunyuan_v1_dense", "rope_parameters", "{\"rope_type\": \"dynamic\", \"alpha\": -2}",
     "says 'rope_scaling.alpha' -2 for heads of 8; it must be a number more than 0, and heads"},
    {"hunyuan_v1_dense", "rope_parameters", "{\"rope_type\": \"dynamic\", \"factor\": 2}",
     "'rope_scaling.rope_type' is \"dynamic\", which is not supported"},
    {"hunyuan_v1_dense", "use_qk_norm", "false", "'use_qk_norm' is false, which is not"},
    {"olmo_hybrid", "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 2}",
     "has 'rope_parameters' and 'rope_scaling', and they differ"},
    {"olmo_hybrid", "linear_num_value_heads", "3",
     "'linear_num_value_heads' is 3; it must be a multiple of state_groups, 2"},
    {"gpt_bigcode", "multi_query", "false", "'multi_query' is false, which is not supported"},
    {"gptj", "rotary_dim", "6", "pairs side by side in a share of a head that is not 1 / n"},
    {"gptj", "rotary_dim", "17", "'rotary_dim' is 17; it must be at most head, 16"},
    {"gptj", "rotary_dim", "null", "has no 'rotary_dim', which a gptj has"},
    {"gptj", "n_head", "3", "'n_embd' is 32; it must be a multiple of 'n_head', 3"},
    {"falcon_7b", "alibi", "true", "'alibi' is true, which is not supported; only false is"},
    {"falcon_7b", "bias", "true", "'bias' is true, which is not supported; only false is"},
    {"falcon_7b", "parallel_attn", "false", "'parallel_attn' is false, which is not supported"},
    {"falcon_7b", "multi_query", "1", "'multi_query' is 1; it must be true or false"},
    {"falcon_7b", "hidden_size", "\"16\"", "'hidden_size' is \"16\"; it must be a whole number"},
    {"afmoe", "mup_enabled", "7", "'mup_enabled' is 7, which is not supported; supported: true,"},
    {"afmoe", "route_norm", "false", "'route_norm' is false, which is not supported"},
    {"afmoe", "num_dense_layers", "-1", "'num_dense_layers' is -1; it must be a whole number"},
    {"llava", "text_config", "{\"model_type\": \"mistral\"}",
     "'text_config.model_type' is \"mistral\", which is not supported in a llava; only \"llama\" "
     "is"},
    {"llava", "text_config", "null", "'text_config' is null; a llava has an object there"},
    {"llava", "vision_config", "7", "'vision_config' is 7; a llava has an object there"},
    {"llava", "vision_config", "{\"model_type\": \"siglip_vision_model\"}",
     "'vision_config.model_type' is \"siglip_vision_model\", which is not supported in a llava"},
    {"llava", "vision_feature_layer", "-9", "'vision_feature_layer' is -9, which is not supported"},
    {"llava", "vision_feature_layer", "[-2, -5]", "'vision_feature_layer' is [-2,-5], which is"},
    {"llava", "vision_feature_select_strategy", "\"full\"",
     "'vision_feature_select_strategy' is \"full\", which is not supported; only"},
    {"llava", "multimodal_projector_bias", "false", "'multimodal_projector_bias' is false, which"},
    {"llava", "vision_config", "{\"image_size\": 3, \"patch_size\": 4}",
     "'vision_config.image_size' is 3 and 'patch_size' 4; they must be pixels, from 1"},
    {"smolvlm", "vision_config", "{\"image_size\": 102, \"patch_size\": 4}",
     "'vision_config' has 25 patches a side, which is not supported: transformers gives some"},
    {"smolvlm", "scale_factor", "3", "shuffle is 3; it must divide the 4 patches of an image's"},
    {"smolvlm", "scale_factor", "0", "'scale_factor' is 0; it must be a whole number"},
    {"smolvlm", "image_token_id", "37", "'token' must be a token, a whole number from 0 to 36"},
    {"internvl", "text_config", "{\"model_type\": \"qwen3\"}",
     "'text_config.model_type' is \"qwen3\", which is not supported in a internvl; only \"qwen2\""},
    {"internvl", "downsample_ratio", "0.375",
     "'downsample_ratio' is 0.375, which is not supported"},
    {"internvl", "vision_feature_layer", "-2",
     "'vision_feature_layer' is -2, which is not supported"},
    {"internvl", "vision_config", "{\"image_size\": [16, 12], \"patch_size\": 4}",
     "'vision_config.image_size' is [16,12] and 'patch_size' 4; they must be pixels"},
    {"falcon", "num_ln_in_parallel_attn", "3", "'num_ln_in_parallel_attn' is 3, which is not"},
    {"falcon", "num_ln_in_parallel_attn", "1",
     "has no tensor 'transformer.h.0.input_layernorm.weight'"}};

static void test_said(void) {
    expect_said("qwen3_5_moe", (ModelSetting){"delta_tensors", "joined"}, "model_type",
                "\"qwen3_next\"");
    expect_said("ministral", (ModelSetting){"window_layers", "W"}, "model_type", "\"mistral\"");
    expect_said("glm4_moe_lite", (ModelSetting){"dense_layers", "1"}, "first_k_dense_replace", "1");
    expect_said("exaone_moe", (ModelSetting){"dense_layers", "2"}, "mlp_layer_types",
                "[\"dense\",\"dense\",\"sparse\"]");
    expect_said("exaone_moe", (ModelSetting){"window_layers", "WF"}, "layer_types",
                "[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]");
    expect_said("lfm2_moe", (ModelSetting){"bias", "false"}, "use_expert_bias", "false");
    expect_said("hunyuan_v1_dense", (ModelSetting){"qk_norm_last", "false"}, "model_type",
                "\"qwen3\"");
    expect_said("olmo_hybrid", (ModelSetting){"rotary", "true"}, "rope_theta", "10000.0");
    expect_said("olmo_hybrid_turned", (ModelSetting){"rotary", "false"}, "rope_parameters",
                "{\"rope_type\":\"default\",\"rope_theta\":null}");
    expect_said("falcon_7b", (ModelSetting){"shared_norm", "false"}, "num_ln_in_parallel_attn",
                "2");
    expect_said("afmoe", (ModelSetting){"embedding_scale", "1"}, "mup_enabled", "false");
    expect_unsaid(
        "afmoe", &(ModelSetting){"embedding_scale", "2"}, 1,
        "'embedding_scale' is '2', which transformers does not have; it has: true, false");
    expect_unsaid("afmoe", &(ModelSetting){"norms", "before"}, 1, "afmoe with norms=both");
    expect_said("gptj", (ModelSetting){"rotary_share", "0.5"}, "rotary_dim", "8");
    expect_unsaid("gptj", &(ModelSetting){"rotary_base", "100"}, 1, "gptj with rotary_base=10000");
    expect_unsaid("lfm2_moe", &(ModelSetting){"sum_plus", "0"}, 1, "lfm2_moe with sum_plus=1e-06");
    expect_unsaid("gemma", &(ModelSetting){"attention_scale", "9"}, 1,
                  "gemma with attention_scale=@head");
    expect_unsaid("arcee", &(ModelSetting){"norm", "layernorm"}, 1, "arcee with norm=rmsnorm");
    expect_unsaid("ministral3", &(ModelSetting){"window_layers", "WF"}, 1,
                  "ministral3 with window_layers=W");
}

/* --- as they are published --- */

/* The fixture's folder with another configuration: `change` goes into text_config, JSON; those of
 * its keys that are null are not there. tied: the whole's, JSON; NULL: not there. */
static const char *changed_text(Arena *arena, const char *name, const char *change,
                                const char *tied) {
    const char *dir = changed_fixture(arena, name, "tie_word_embeddings", tied), *key;
    const char *path = arena_printf(arena, "%s/config.json", dir);
    json_t *config = json_load_file(path, 0, NULL), *changes = json_loads(change, 0, NULL), *value;
    json_t *text = json_object_get(config, "text_config");
    json_object_foreach(changes, key, value) {
        if (json_is_null(value)) json_object_del(text, key);
        if (!json_is_null(value)) json_object_set(text, key, value);
    }
    json_dump_file(config, path, 0);
    json_decref(changes);
    json_decref(config);
    return dir;
}

/* transformers 4 does not write what its defaults say, and InternVL 3 says how positions are scaled
 * beyond those that it was made for. */
static const char OF_4[] =
    "{\"tie_word_embeddings\": null, \"rope_parameters\": null, \"rope_theta\": 10000.0, "
    "\"rope_scaling\": {\"factor\": 2.0, \"rope_type\": \"dynamic\", \"type\": \"dynamic\"}}";
static const char OF_5[] =
    "{\"rope_parameters\": {\"factor\": 2.0, \"rope_theta\": 10000.0, \"rope_type\": \"dynamic\"}}";

static const char *scaling_of(Arena *arena, const char *dir) {
    json_t *json = json_load_file(arena_printf(arena, "%s/config.json", dir), 0, NULL);
    const json_t *scaling = json_object_get(json_object_get(json, "text_config"), "rope_scaling");
    const char *shown = hf_config_shown(arena, scaling);
    json_decref(json);
    return shown;
}

/* The weights are the fixture's own, and an export like it has the scaling. */
static void test_published(const char *text, const char *tied) {
    static const char SCALING[] = "{\"factor\":2.0,\"rope_type\":\"dynamic\",\"type\":\"dynamic\"}";
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport plain, imported;
    const char *path = in_scratch(arena, "weights.safetensors"), *out = in_scratch(arena, "out");
    const char *other = in_scratch(arena, "again.safetensors");
    check_begin(arena_printf(arena, "hf internvl: as published, tied %s", tied ? tied : "missing"));
    const char *dir = changed_text(arena, "internvl", text, tied);
    bool fine = import(arena, fixture(arena, "internvl"), other, &plain, diag) &&
                import(arena, dir, path, &imported, diag);
    CHECK(fine && same_files(arena, path, other, diag), "%s", diag_text(diag));
    fine = fine && export(arena, imported.model, path, dir, DTYPE_F32, 5000000000, out, diag);
    CHECK(fine, "%s", diag_text(diag));
    const char *scaling = fine ? scaling_of(arena, out) : "";
    CHECK(strcmp(scaling, SCALING) == 0, "%s", scaling);
    CHECK(fine && import(arena, out, path, &imported, diag) && same_files(arena, path, other, diag),
          "%s", diag_text(diag));
    remove_folder(arena, out);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void expect_refused(const char *text, ModelSetting setting, const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    check_begin(arena_printf(arena, "hf internvl: %s", message));
    const char *dir = changed_text(arena, "internvl", text, "false");
    const bool opened = hf_import_open(arena, dir, NULL, &setting, 1, &imported, diag);
    if (opened) hf_import_close(&imported);
    CHECK(!opened && strstr(diag_text(diag), message), "%s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

/* What Hub folders have in config.json, as far as it is read; what is no model's is left out. */
static const struct {
    const char *size, *config;
} PUBLISHED[] = {
    {"internvl3-1b",
     "{\"architectures\": [\"InternVLForConditionalGeneration\"], \"downsample_ratio\": 0.5, "
     "\"image_seq_length\": 256, \"image_token_id\": 151667, \"model_type\": \"internvl\", "
     "\"projector_hidden_act\": \"gelu\", \"text_config\": {\"architectures\": "
     "[\"Qwen2ForCausalLM\"], \"attention_dropout\": 0.0, \"hidden_act\": \"silu\", "
     "\"hidden_size\": 896, \"intermediate_size\": 4864, \"max_position_embeddings\": 32768, "
     "\"max_window_layers\": 70, \"model_type\": \"qwen2\", \"num_attention_heads\": 14, "
     "\"num_hidden_layers\": 24, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, "
     "\"rope_scaling\": {\"factor\": 2.0, \"rope_type\": \"dynamic\", \"type\": \"dynamic\"}, "
     "\"rope_theta\": 1000000.0, \"sliding_window\": null, \"use_sliding_window\": false, "
     "\"vocab_size\": 151674}, \"vision_config\": {\"attention_bias\": true, \"hidden_act\": "
     "\"gelu\", \"hidden_size\": 1024, \"image_size\": [448, 448], \"initializer_range\": 1e-10, "
     "\"intermediate_size\": 4096, \"layer_norm_eps\": 1e-06, \"model_type\": "
     "\"internvl_vision\", \"norm_type\": \"layer_norm\", \"num_attention_heads\": 16, "
     "\"num_hidden_layers\": 24, \"patch_size\": [14, 14], \"use_absolute_position_embeddings\": "
     "true, \"use_mask_token\": false, \"use_mean_pooling\": true, \"use_qk_norm\": false}, "
     "\"vision_feature_layer\": -1, \"vision_feature_select_strategy\": \"default\"}"},
    {"smolvlm-256m",
     "{\"architectures\": [\"Idefics3ForConditionalGeneration\"], \"image_token_id\": 49190, "
     "\"model_type\": \"idefics3\", \"scale_factor\": 4, \"text_config\": {\"architectures\": "
     "[\"VLlama3ForCausalLM\"], \"head_dim\": 64, \"hidden_size\": 576, \"intermediate_size\": "
     "1536, \"is_llama_config\": true, \"max_position_embeddings\": 8192, \"model_type\": "
     "\"llama\", \"num_attention_heads\": 9, \"num_hidden_layers\": 30, \"num_key_value_heads\": "
     "3, \"pad_token_id\": 2, \"perceiver_config\": {\"model_type\": \"vllama3\"}, "
     "\"pixel_shuffle_factor\": 4, \"qk_layer_norms\": false, \"rms_norm_eps\": 1e-05, "
     "\"rope_interleaved\": false, \"rope_theta\": 100000, \"use_resampler\": false, "
     "\"vocab_size\": 49280}, \"tie_word_embeddings\": false, \"use_cache\": true, "
     "\"vision_config\": {\"hidden_size\": 768, \"image_size\": 512, \"max_image_size\": "
     "{\"longest_edge\": 512}, \"model_type\": \"idefics3\", \"num_attention_heads\": 12, "
     "\"patch_size\": 16, \"size\": {\"longest_edge\": 2048}, \"tie_word_embeddings\": false, "
     "\"use_base_siglip\": true}, \"vocab_size\": 49280}"},
    {"smolvlm2-2.2b",
     "{\"architectures\": [\"SmolVLMForConditionalGeneration\"], \"image_token_id\": 49190, "
     "\"model_type\": \"smolvlm\", \"scale_factor\": 3, \"text_config\": {\"architectures\": "
     "[\"VLlama3ForCausalLM\"], \"head_dim\": 64, \"hidden_size\": 2048, \"intermediate_size\": "
     "8192, \"max_position_embeddings\": 8192, \"model_type\": \"llama\", \"num_hidden_layers\": "
     "24, \"rms_norm_eps\": 1e-05, \"rope_theta\": 273768.0, \"vocab_size\": 49280}, "
     "\"vision_config\": {\"hidden_size\": 1152, \"image_size\": 384, \"intermediate_size\": "
     "4304, \"model_type\": \"smolvlm_vision\", \"num_attention_heads\": 16, "
     "\"num_hidden_layers\": 27, \"patch_size\": 14}}"}};

/* They are the shipped sizes, but for how many images a row has and how these are split. */
static void test_sizes(void) {
    static const char OTHERS[] = " images patches image_split image_edge ";
    for (size_t i = 0; i < sizeof(PUBLISHED) / sizeof(PUBLISHED[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        HfConfig config;
        const ModelSetting size = {"size", PUBLISHED[i].size};
        check_begin(arena_printf(arena, "hf config.json of %s: its size", size.value));
        const char *dir = changed_fixture(arena, "internvl", "model_type", NULL);
        const char *path = arena_printf(arena, "%s/config.json", dir);
        put_file(path, PUBLISHED[i].config, strlen(PUBLISHED[i].config));
        const bool read = hf_config_read(arena, dir, &config, diag);
        const Model *model = read ? model_load_shipped(arena, "llava", &size, 1, 1, diag) : NULL;
        CHECK(model, "%s", diag_text(diag));
        for (int k = 0; model && k < config.n_settings; k++) {
            const ModelSetting *own = &config.settings[k];
            if (strstr(OTHERS, arena_printf(arena, " %s ", own->key))) continue;
            const Setting *setting = settings_find(&model->settings, own->key);
            const char *text = setting && setting->has_value ? setting_text(setting, arena) : "?";
            CHECK(strcmp(text, own->value) == 0, "%s is %s, the size has %s", own->key, own->value,
                  text);
        }
        if (read) json_decref(config.json);
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

static void test_internvl(void) {
    const ModelSetting seq = {"seq", "20"};
    test_published(OF_4, NULL);
    test_published(OF_5, "false");
    test_published(OF_5, "true"); /* transformers 5 saves it, and takes the file's own table */
    expect_refused(
        OF_4, (ModelSetting){"seq", "21"},
        "seq is 21, but 'rope_scaling' is \"dynamic\": beyond 'max_position_embeddings', "
        "20, it turns positions otherwise");
    expect_refused("{\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 0.5}}", seq,
                   "says 'rope_scaling.factor' 0.5; \"dynamic\" has a number from 1 there");
    expect_refused("{\"rope_parameters\": {\"rope_type\": \"dynamic\"}}", seq,
                   "says 'rope_scaling.factor' nothing; \"dynamic\" has a number from 1 there");
    expect_refused("{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2}}", seq,
                   "is not supported; only null is");
}

/* --- what becomes of images before --- */

#define CLIP_SIZE                                                                                  \
    "\"size\": {\"shortest_edge\": 12}, \"crop_size\": {\"height\": 12, \"width\": 12}"
#define SIGLIP_SIZE   "\"size\": {\"longest_edge\": 40}, \"max_image_size\": {\"longest_edge\": 16}"
#define INTERNVL_SIZE "\"size\": {\"height\": 16, \"width\": 16}"

/* What files say, and settings; an export says the same, by what it has of `said`. */
static const struct {
    const char *name, *images, *processor, *settings, *said;
} PROCESSORS[] = {
    {"llava", "{" CLIP_SIZE ", \"resample\": 2, \"image_std\": [0.25, 0.5, 1]}",
     "{\"patch_size\": 4, \"vision_feature_select_strategy\": \"default\", "
     "\"num_additional_image_tokens\": 1}",
     "image_fit=crop image_filter=bilinear pixel_std=0.25,0.5,1 image_mean=122,116,104",
     "{\"resample\": 2, \"size\": {\"shortest_edge\": 12}, \"do_center_crop\": true, "
     "\"image_std\": [0.25, 0.5, 1.0], \"image_processor_type\": \"CLIPImageProcessor\"}"},
    {"llava",
     "{\"size\": {\"height\": 12, \"width\": 12}, \"do_center_crop\": false, \"do_pad\": true, "
     "\"image_processor_type\": \"LlavaImageProcessorFast\", \"image_mean\": [0.5, 0.5, 0.25]}",
     NULL, "image_fit=pad image_mean=127,127,63 pixel_mean=0.5,0.5,0.25",
     "{\"do_pad\": true, \"image_processor_type\": \"LlavaImageProcessor\", \"size\": {\"height\": "
     "12, \"width\": 12}}"},
    {"smolvlm", "{" SIGLIP_SIZE ", \"image_processor_type\": \"Idefics3ImageProcessorPil\"}",
     "{\"image_seq_len\": 4}", "image_split=edge image_edge=40 images=10 patches=160",
     "{\"do_image_splitting\": true, " SIGLIP_SIZE ", \"resample\": 1}"},
    {"smolvlm", "{" SIGLIP_SIZE ", \"do_image_splitting\": false}", NULL,
     "image_split=none images=1 patches=16",
     "{\"do_image_splitting\": false, \"size\": {\"height\": 16, \"width\": 16}}"},
    {"internvl", NULL,
     "{\"image_processor\": {" INTERNVL_SIZE ", \"max_patches\": 6, "
     "\"crop_to_patches\": false}, \"image_seq_length\": 4}",
     "image_split=ratio least_tiles=1 most_tiles=6 images=7 patches=112 image_filter=bicubic",
     "{\"max_patches\": 6, \"min_patches\": 1, \"crop_to_patches\": true}"},
    {"internvl", "{" INTERNVL_SIZE ", \"max_patches\": 1}", NULL, "image_split=none images=1",
     "{\"max_patches\": 1, \"crop_to_patches\": false}"},
};

static const struct {
    const char *name, *images, *processor, *message;
} BAD_PROCESSORS[] = {
    {"llava", "[7]", NULL, "preprocessor_config.json: is not a JSON object"},
    {"llava", "{\"size\": {\"shortest_edge\": 336}}", NULL,
     "preprocessor_config.json: 'size' is {\"shortest_edge\":336}, which is not supported; it must "
     "be the 12 pixels of the configuration's 'vision_config.image_size'"},
    {"llava", "{\"size\": 12, \"crop_size\": 11}", NULL, "'crop_size' is 11, which is not"},
    {"llava", "{\"size\": 12, \"do_center_crop\": false}", NULL,
     "'do_center_crop' is false, which"},
    {"llava", "{" CLIP_SIZE ", \"do_pad\": true}", NULL,
     "'do_pad' is true, which is not supported"},
    {"llava", "{" CLIP_SIZE ", \"image_processor_type\": \"LlavaNextImageProcessor\"}", NULL,
     "'image_processor_type' is \"LlavaNextImageProcessor\", which is not supported; a llava has"},
    {"llava", "{" CLIP_SIZE ", \"resample\": 0}", NULL,
     "'resample' is 0, which is not supported; 1"},
    {"llava", "{" CLIP_SIZE ", \"rescale_factor\": 0.5}", NULL,
     "'rescale_factor' is 0.5, which is"},
    {"llava", "{" CLIP_SIZE ", \"do_normalize\": false}", NULL,
     "'do_normalize' is false, which is"},
    {"llava", "{" CLIP_SIZE ", \"image_mean\": [0.5, 0.5]}", NULL,
     "'image_mean' is [0.5,0.5], which"},
    {"llava", "{" CLIP_SIZE ", \"image_std\": [0.5, 0.5, 0]}", NULL,
     "it must be three numbers more"},
    {"llava", NULL, "{\"patch_size\": 14}",
     "processor_config.json: 'patch_size' is 14, which is not supported; the configuration's"},
    {"llava", NULL, "{\"patch_size\": 4, \"vision_feature_select_strategy\": \"default\"}",
     "'num_additional_image_tokens' is missing, which is not supported"},
    {"smolvlm", "{\"size\": {\"longest_edge\": 40}, \"max_image_size\": {\"longest_edge\": 364}}",
     NULL, "'max_image_size' is {\"longest_edge\":364}, which is not supported; it must be the 16"},
    {"smolvlm", "{\"size\": {\"longest_edge\": 15}, \"max_image_size\": {\"longest_edge\": 16}}",
     NULL,
     "'size' is {\"longest_edge\":15}, which is not supported; 'longest_edge' must be from 16"},
    {"smolvlm", "{\"size\": {\"longest_edge\": 4096}, \"max_image_size\": {\"longest_edge\": 16}}",
     NULL, "and at most 1023 tiles"},
    {"smolvlm",
     "{\"size\": {\"longest_edge\": 9223372036854775807}, \"max_image_size\": {\"longest_edge\": "
     "16}}",
     NULL, "pixels, a tile's side, to 4096"},
    {"smolvlm", "{" SIGLIP_SIZE "}", "{\"image_seq_len\": 64}",
     "'image_seq_len' is 64, which is not supported; by its configuration a square has 4 tokens"},
    {"internvl", "{" INTERNVL_SIZE ", \"max_patches\": 65}", NULL, "'max_patches' is 65, which"},
    {"internvl", "{" INTERNVL_SIZE ", \"min_patches\": 13}", NULL, "'min_patches' is 13, which"},
    {"internvl", "{}", NULL, "'size' is missing, which is not supported; it must be the 16 pixels"},
};

static void put_text(Arena *arena, const char *dir, const char *name, const char *text) {
    FILE *file = text ? fopen(arena_printf(arena, "%s/%s", dir, name), "w") : NULL;
    if (file && (fputs(text, file) < 0 || fclose(file) != 0)) BUG("no file");
}

static const char *with_processor(Arena *arena, const char *name, const char *images,
                                  const char *processor) {
    const char *dir = changed_fixture(arena, name, NULL, NULL);
    put_text(arena, dir, "preprocessor_config.json", images);
    put_text(arena, dir, "processor_config.json", processor);
    return dir;
}

/* Of "a=b c=d", what the model does not have; "": it has all. */
static const char *differs(Arena *arena, const Model *model, const char *settings) {
    for (size_t length; *settings; settings += length + (settings[length] == ' ')) {
        length = strcspn(settings, " ");
        const size_t name = strcspn(settings, "=");
        const Setting *found =
            settings_find(&model->settings, arena_strndup(arena, settings, name));
        const char *text = found ? setting_text(found, arena) : "";
        if (strlen(text) != length - name - 1 || strncmp(text, settings + name + 1, strlen(text)))
            return arena_printf(arena, "%.*s has %s", (int)length, settings, text);
    }
    return "";
}

/* The key of `said` that the file has otherwise. */
static const char *unsaid(const char *path, json_t *said) {
    json_t *json = json_load_file(path, 0, NULL), *value;
    const char *key, *wrong = json ? NULL : "no file";
    json_object_foreach(said, key, value) {
        if (!json_equal(value, json_object_get(json, key))) wrong = key;
    }
    json_decref(json);
    return wrong;
}

static void test_processor(int i, bool like) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported, again;
    const char *path = in_scratch(arena, "weights.safetensors"), *out = in_scratch(arena, "out");
    check_begin(arena_printf(arena, "hf processor %d: %s", i, PROCESSORS[i].settings));
    const char *dir =
        with_processor(arena, PROCESSORS[i].name, PROCESSORS[i].images, PROCESSORS[i].processor);
    bool fine = hf_import_open(arena, dir, NULL, NULL, 0, &imported, diag);
    CHECK(fine, "%s", diag_text(diag));
    fine = fine && hf_import_write(&imported, path, diag);
    if (fine) {
        const char *wrong = differs(arena, imported.model, PROCESSORS[i].settings);
        CHECK(!*wrong, "%s", wrong);
        hf_import_close(&imported);
        fine = export(arena, imported.model, path, like ? dir : NULL, DTYPE_F32, 5000000000, out,
                      diag);
        json_t *said = json_loads(PROCESSORS[i].said, 0, NULL);
        wrong = unsaid(arena_printf(arena, "%s/preprocessor_config.json", out), said);
        CHECK(fine && said && !wrong, "%s%s", diag_text(diag), wrong ? wrong : "");
        json_decref(said);
        fine = fine && hf_import_open(arena, out, NULL, NULL, 0, &again, diag);
        CHECK(fine, "%s", diag_text(diag));
        if (fine) {
            wrong = differs(arena, again.model, PROCESSORS[i].settings);
            CHECK(!*wrong, "again: %s", wrong);
            hf_import_close(&again);
        }
    }
    remove_folder(arena, out);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_bad_processors(void) {
    for (size_t i = 0; i < sizeof(BAD_PROCESSORS) / sizeof(BAD_PROCESSORS[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        HfImport imported;
        const char *message = BAD_PROCESSORS[i].message;
        check_begin(arena_printf(arena, "hf processor: %s", message));
        const char *dir = with_processor(arena, BAD_PROCESSORS[i].name, BAD_PROCESSORS[i].images,
                                         BAD_PROCESSORS[i].processor);
        const bool opened = hf_import_open(arena, dir, NULL, NULL, 0, &imported, diag);
        if (opened) hf_import_close(&imported);
        CHECK(!opened && strstr(diag_text(diag), message), "%s", diag_text(diag));
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* What a processor cannot do. */
static void expect_unsaid_processor(const char *name, ModelSetting setting, ModelSetting other,
                                    const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    const ModelSetting settings[] = {setting, other};
    check_begin(arena_printf(arena, "hf processor: %s", message));
    const bool opened =
        hf_import_open(arena, fixture(arena, name), NULL, settings, 2, &imported, diag);
    if (opened) hf_import_close(&imported);
    CHECK(opened && !hf_processor_write(arena, imported.model, name, NULL, NULL, diag) &&
              strstr(diag_text(diag), message),
          "%s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_unsaid_processors(void) {
    expect_unsaid_processor("llava", (ModelSetting){"image_fit", "pad"},
                            (ModelSetting){"image_mean", "1,2,3"},
                            "image_mean is '1,2,3', which preprocessor_config.json cannot say of a "
                            "llava: --set image_mean=122,116,104, its pixel_mean");
    expect_unsaid_processor("internvl", (ModelSetting){"image_split", "edge"},
                            (ModelSetting){"image_edge", "64"},
                            "image_split is 'edge', which preprocessor_config.json cannot say of "
                            "a internvl: --set image_split=ratio, or none");
    expect_unsaid_processor("smolvlm", (ModelSetting){"image_fit", "crop"},
                            (ModelSetting){"image_split", "none"}, "--set image_fit=stretch");
}

int main(void) {
    if (!mkdtemp(scratch)) BUG("no folder in /tmp");
    for (int i = 0; i < N_FIXTURES; i++) {
        const Fixture *one = &FIXTURES[i];
        test_logits(one->name);
        test_round_trip(one->name, one->dtype, false, one->without, 5000000000);
        test_round_trip(one->name, one->dtype, true, NULL, i % 2 ? 4000 : 1);
    }
    expect_bad_configs(BAD, sizeof(BAD) / sizeof(BAD[0]));
    test_said();
    test_internvl();
    for (int i = 0; i < (int)(sizeof(PROCESSORS) / sizeof(PROCESSORS[0])); i++) {
        test_processor(i, i % 2);
    }
    test_bad_processors();
    test_unsaid_processors();
    test_sizes();
    test_mutations("qwen3_5_pictures", "config.json", 4096);
    test_mutations("ministral3", "config.json", 4096);
    test_mutations("exaone_moe", "config.json", 4096);
    test_mutations("hunyuan_v1_dense", "config.json", 4096);
    test_mutations("falcon_7b", "config.json", 4096);
    test_mutations("olmo_hybrid", "config.json", 4096);
    test_mutations("llava", "config.json", 4096);
    test_gradients("llava");
    test_gradients("smolvlm");
    test_gradients("internvl");
    test_gradients("internvl_6b");
    remove_scratch();
    return check_report();
}
