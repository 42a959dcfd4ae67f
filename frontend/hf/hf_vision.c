#include "frontend/hf/hf_vision.h"

#include "frontend/hf/hf_config.h"
#include "ir/base/diag.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 4096, MOST_LAYERS = 1 << 16 };

/* What a text_config and a vision_config mean that do not say it. */
static const char TEXT_DEFAULTS[] =
    "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 11008, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"max_position_embeddings\": 2048, "
    "\"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\"}";
static const char CLIP_DEFAULTS[] =
    "{\"hidden_size\": 768, \"intermediate_size\": 3072, \"num_hidden_layers\": 12, "
    "\"num_attention_heads\": 12, \"image_size\": 224, \"patch_size\": 32, "
    "\"hidden_act\": \"quick_gelu\", \"layer_norm_eps\": 1e-5}";
static const char SIGLIP_DEFAULTS[] =
    "{\"hidden_size\": 1152, \"intermediate_size\": 3072, \"num_hidden_layers\": 12, "
    "\"num_attention_heads\": 16, \"image_size\": 224, \"patch_size\": 32, "
    "\"hidden_act\": \"gelu_pytorch_tanh\", \"layer_norm_eps\": 1e-6}";

static const char QWEN2_DEFAULTS[] =
    "{\"vocab_size\": 151936, \"hidden_size\": 4096, \"intermediate_size\": 22016, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, "
    "\"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\"}";
static const char INTERNVIT_DEFAULTS[] =
    "{\"hidden_size\": 1024, \"intermediate_size\": 4096, \"num_hidden_layers\": 24, "
    "\"num_attention_heads\": 16, \"image_size\": 448, \"patch_size\": 14, "
    "\"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-6, \"attention_bias\": false, "
    "\"use_qk_norm\": false, \"norm_type\": \"layer_norm\", \"use_mean_pooling\": true}";

static const struct {
    const char *name, *defaults, *tower; /* the vision_config's model_type */
    const char *text, *text_defaults;    /* the text_config's */
} TYPES[] = {{"llava", CLIP_DEFAULTS, "clip_vision_model", "llama", TEXT_DEFAULTS},
             {"idefics3", SIGLIP_DEFAULTS, "idefics3_vision", "llama", TEXT_DEFAULTS},
             {"smolvlm", SIGLIP_DEFAULTS, "smolvlm_vision", "llama", TEXT_DEFAULTS},
             {"internvl", INTERNVIT_DEFAULTS, "internvl_vision", "qwen2", QWEN2_DEFAULTS}};
enum { N_TYPES = sizeof(TYPES) / sizeof(TYPES[0]) };

/* What a text_config says of itself alone; the whole has its own. */
static const char *const OF_TEXT_ALONE[] = {
    "model_type", "architectures",        "torch_dtype",   "dtype",
    "auto_map",   "transformers_version", "_name_or_path", NULL};
/* What the whole keeps when the rest becomes the text_config. */
static const char *const OF_WHOLE[] = {"model_type",
                                       "architectures",
                                       "torch_dtype",
                                       "dtype",
                                       "transformers_version",
                                       "quantization_config",
                                       "auto_map",
                                       "text_config",
                                       "vision_config",
                                       "image_token_index",
                                       "image_token_id",
                                       "image_seq_length",
                                       "vision_feature_layer",
                                       "vision_feature_select_strategy",
                                       "projector_hidden_act",
                                       "multimodal_projector_bias",
                                       "scale_factor",
                                       "downsample_ratio",
                                       "tie_word_embeddings",
                                       NULL};

static int find_type(const char *name) {
    for (int i = 0; name && i < N_TYPES; i++) {
        if (strcmp(TYPES[i].name, name) == 0) return i;
    }
    return -1;
}

bool hf_vision_is_type(const char *model_type) {
    return find_type(model_type) >= 0;
}

static bool has_name(const char *const *names, const char *name) {
    for (; *names; names++) {
        if (strcmp(*names, name) == 0) return true;
    }
    return false;
}

static void put(json_t *json, const char *key, json_t *value) {
    if (json_object_set_new(json, key, value) != 0) BUG("out of memory");
}

static void put_missing(json_t *json, const char *defaults) {
    json_t *values = json_loads(defaults, 0, NULL);
    if (!values || json_object_update_missing(json, values) != 0) BUG("out of memory");
    json_decref(values);
}

/* The object `key` of the whole, as a copy; NULL: *why. */
static json_t *copy_part(Arena *arena, const json_t *json, const char *key, const char *type,
                         const char *wanted, const char **why) {
    const json_t *given = json_object_get(json, key);
    if (!json_is_object(given)) {
        *why = arena_printf(arena, "'%s' is %s; a %s has an object there", key,
                            given ? hf_config_shown(arena, given) : "missing", type);
        return NULL;
    }
    const json_t *name = json_object_get(given, "model_type");
    const char *text = json_string_value(name);
    bool known = !name || (text && strcmp(text, wanted) == 0);
    for (int i = 0; text && strcmp(key, "vision_config") == 0 && i < N_TYPES; i++) {
        const bool same = TYPES[i].defaults == SIGLIP_DEFAULTS &&
                          TYPES[find_type(type)].defaults == SIGLIP_DEFAULTS;
        known |= same && (strcmp(text, TYPES[i].name) == 0 || strcmp(text, TYPES[i].tower) == 0);
    }
    if (!known) {
        *why = arena_printf(arena,
                            "'%s.model_type' is %s, which is not supported in a %s; only "
                            "\"%s\" is",
                            key, hf_config_shown(arena, name), type, wanted);
        return NULL;
    }
    json_t *copy = json_deep_copy(given);
    if (!copy) BUG("out of memory");
    return copy;
}

/* Idefics 3's patches look for their positions among fractions, in float32: each finds its own but
 * for a few numbers of patches, 25 the least of them. */
static bool has_own_positions(int across) {
    const double step = 1.0 / across;
    for (int i = 0, found = 0; i < across; i++) {
        const float exact = (float)i * (float)step, most = (float)(1.0 - 1e-6);
        const float at = exact < most ? exact : most;
        while (found + 1 < across && (float)(step + found * step) <= at) found++;
        if (found != i) return false;
    }
    return true;
}

/* Patches of an image and numbers of a patch, as keys; `rounds`: positions are Idefics 3's. */
static const char *put_patches(Arena *arena, json_t *json, const json_t *vision, bool rounds) {
    const json_t *side = json_object_get(vision, "image_size");
    const json_t *patch = json_object_get(vision, "patch_size");
    const json_int_t s = json_is_integer(side) ? json_integer_value(side) : 0;
    const json_int_t p = json_is_integer(patch) ? json_integer_value(patch) : 0;
    if (s < 1 || s > MOST_SIDE || p < 1 || p > s) {
        return arena_printf(arena,
                            "'vision_config.image_size' is %s and 'patch_size' %s; they must be "
                            "pixels, from 1 to %d, and no patch larger than an image",
                            hf_config_shown(arena, side), hf_config_shown(arena, patch), MOST_SIDE);
    }
    if (rounds && !has_own_positions((int)(s / p))) {
        return arena_printf(arena,
                            "'vision_config' has %lld patches a side, which is not supported: "
                            "transformers gives some of them the same positions, by rounding",
                            (long long)(s / p));
    }
    put(json, "image_patches", json_integer((s / p) * (s / p)));
    put(json, "patch_numbers", json_integer(3 * p * p));
    return NULL;
}

/* A square's side may be said twice. */
static void put_side(json_t *vision, const char *key) {
    const json_t *sides = json_object_get(vision, key);
    const json_t *first = json_array_get(sides, 0);
    if (json_array_size(sides) != 2 || !json_equal(first, json_array_get(sides, 1))) return;
    put(vision, key, json_deep_copy(first));
}

/* transformers 4 asks the text part alone whether tables are tied, and writes there only that they
 * are; transformers 5 asks the whole. hf_import.c asks the file. */
static void take_tied(json_t *json, const json_t *text) {
    static const char TIED[] = "tie_word_embeddings";
    const json_t *own = json_object_get(text, TIED);
    json_t *whole = json_object_get(json, TIED);
    if (!whole) put(json, TIED, json_false());
    if (json_is_true(own) && json_is_false(whole)) put(json, TIED, json_true());
}

/* InternVL's: the last layer's patches; `shuffle` as its reciprocal. */
static const char *take_internvl(Arena *arena, json_t *json, const json_t *text, json_t *vision) {
    const json_t *feature = json_object_get(json, "vision_feature_layer");
    const json_t *strategy = json_object_get(json, "vision_feature_select_strategy");
    const json_t *ratio = json_object_get(json, "downsample_ratio");
    const double share = ratio ? json_number_value(ratio) : 0.5;
    const char *word = json_string_value(strategy);
    put_side(vision, "image_size");
    put_side(vision, "patch_size");
    if (feature && !(json_is_integer(feature) && json_integer_value(feature) == -1)) {
        return arena_printf(arena,
                            "'vision_feature_layer' is %s, which is not supported in an "
                            "internvl; only -1 is",
                            hf_config_shown(arena, feature));
    }
    if (strategy && (!word || strcmp(word, "default") != 0)) {
        return arena_printf(arena,
                            "'vision_feature_select_strategy' is %s, which is not supported; only "
                            "\"default\" is",
                            hf_config_shown(arena, strategy));
    }
    if (!(share > 1.0 / MOST_SIDE && share <= 1) || 1 / share != (int)(1 / share)) {
        return arena_printf(arena,
                            "'downsample_ratio' is %s, which is not supported; it must be 1, 0.5, "
                            "0.25 or another one by a whole number",
                            hf_config_shown(arena, ratio));
    }
    put(json, "scale_factor", json_integer((int)(1 / share)));
    json_object_del(json, "downsample_ratio");
    json_object_del(json, "vision_feature_select_strategy");
    take_tied(json, text);
    return NULL;
}

/* LLaVA reads what a layer of the tower made, most often the last but one: no more are computed. */
static const char *cut_layers(Arena *arena, const json_t *json, json_t *vision) {
    const json_t *feature = json_object_get(json, "vision_feature_layer");
    const json_t *layers = json_object_get(vision, "num_hidden_layers");
    const json_t *strategy = json_object_get(json, "vision_feature_select_strategy");
    const json_int_t n = json_is_integer(layers) ? json_integer_value(layers) : 0;
    const bool missing = !feature || json_is_null(feature);
    json_int_t at = missing ? -2 : json_is_integer(feature) ? json_integer_value(feature) : 0;
    if (n < 1 || n > MOST_LAYERS) {
        return arena_printf(arena,
                            "'vision_config.num_hidden_layers' is %s; it must be from 1 to %d",
                            hf_config_shown(arena, layers), MOST_LAYERS);
    }
    if (at < 0) at = at < -n ? 0 : n + 1 + at;
    if (at < 1 || at > n) {
        return arena_printf(arena,
                            "'vision_feature_layer' is %s, which is not supported; it must be one "
                            "layer of the tower's %lld, such as -2",
                            hf_config_shown(arena, feature), (long long)n);
    }
    const char *word = json_string_value(strategy);
    if (strategy && !json_is_null(strategy) && (!word || strcmp(word, "default") != 0)) {
        return arena_printf(arena,
                            "'vision_feature_select_strategy' is %s, which is not supported; only "
                            "\"default\" is",
                            hf_config_shown(arena, strategy));
    }
    put(vision, "num_hidden_layers", json_integer(at));
    return NULL;
}

static const char *join_parts(Arena *arena, int type, json_t *whole, json_t *text, json_t *vision) {
    const char *key;
    json_t *value;
    put_missing(text, TYPES[type].text_defaults);
    put_missing(vision, TYPES[type].defaults);
    json_object_foreach(text, key, value) {
        const bool said = strcmp(key, "tie_word_embeddings") == 0 && json_object_get(whole, key);
        if (!said && !has_name(OF_TEXT_ALONE, key)) json_object_set(whole, key, value);
    }
    json_object_del(whole, "text_config");
    json_object_set(whole, "vision_config", vision);
    const char *why = NULL;
    if (strcmp(TYPES[type].name, "llava") == 0) why = cut_layers(arena, whole, vision);
    if (strcmp(TYPES[type].name, "internvl") == 0) why = take_internvl(arena, whole, text, vision);
    json_object_del(whole, "vision_feature_layer");
    const bool rounds = TYPES[type].defaults == SIGLIP_DEFAULTS;
    return why ? why : put_patches(arena, whole, vision, rounds);
}

const char *hf_vision_take(Arena *arena, json_t **json) {
    const int type = find_type(json_string_value(json_object_get(*json, "model_type")));
    const char *why = NULL;
    if (type < 0) return NULL;
    json_t *text = copy_part(arena, *json, "text_config", TYPES[type].name, TYPES[type].text, &why);
    json_t *vision =
        text ? copy_part(arena, *json, "vision_config", TYPES[type].name, TYPES[type].tower, &why)
             : NULL;
    json_t *whole = vision ? json_deep_copy(*json) : NULL;
    if (whole) {
        why = join_parts(arena, type, whole, text, vision);
        json_decref(*json);
        *json = whole;
    }
    json_decref(text);
    json_decref(vision);
    return why;
}

static void finish_internvl(int type, json_t *json) {
    if (strcmp(TYPES[type].name, "internvl") != 0) return;
    const json_int_t shuffle = json_integer_value(json_object_get(json, "scale_factor"));
    const json_t *vision = json_object_get(json, "vision_config");
    const json_int_t side = json_integer_value(json_object_get(vision, "image_size"));
    const json_int_t patch = json_integer_value(json_object_get(vision, "patch_size"));
    const json_int_t across = patch > 0 && shuffle > 0 ? side / patch / shuffle : 0;
    put(json, "downsample_ratio", json_real(shuffle > 0 ? 1.0 / (double)shuffle : 1));
    put(json, "image_seq_length", json_integer(across * across));
    put(json, "vision_feature_layer", json_integer(-1));
    put(json, "vision_feature_select_strategy", json_string("default"));
    json_object_del(json, "scale_factor");
}

void hf_vision_finish(json_t *json) {
    const int type = find_type(json_string_value(json_object_get(json, "model_type")));
    const char *key;
    void *next;
    json_t *value, *text, *vision;
    if (type < 0) return;
    json_object_del(json, "image_patches");
    json_object_del(json, "patch_numbers");
    text = json_object();
    if (!text) BUG("out of memory");
    json_object_foreach_safe(json, next, key, value) {
        if (has_name(OF_WHOLE, key)) continue;
        json_object_set(text, key, value);
        json_object_del(json, key);
    }
    put(text, "model_type", json_string(TYPES[type].text));
    json_object_set(text, "tie_word_embeddings", json_object_get(json, "tie_word_embeddings"));
    vision = json_object_get(json, "vision_config");
    put(vision, "model_type", json_string(TYPES[type].tower));
    put(json, "text_config", text);
    finish_internvl(type, json);
    if (strcmp(TYPES[type].name, "llava") != 0) return;
    const json_int_t side = json_integer_value(json_object_get(vision, "image_size"));
    const json_int_t patch = json_integer_value(json_object_get(vision, "patch_size"));
    const json_int_t across = patch > 0 ? side / patch : 0;
    put(json, "image_seq_length", json_integer(across * across));
    put(json, "vision_feature_layer", json_integer(-1)); /* of the layers that are left */
    put(json, "vision_feature_select_strategy", json_string("default"));
}

/* What published names begin with, and what those of transformers 5. */
static const struct {
    const char *published, *newer;
} BEGINNINGS[] = {{"language_model.lm_head.", "lm_head."},
                  {"language_model.model.", "model.language_model."},
                  {"vision_tower.vision_model.", "vision_tower."},
                  {"vision_tower.vision_model.", "model.vision_tower.vision_model."},
                  {"vision_tower.vision_model.", "model.vision_tower."},
                  {"vision_tower.", "model.vision_tower."},
                  {"multi_modal_projector.", "model.multi_modal_projector."}};

const char *hf_vision_name(Arena *arena, const char *name, int i) {
    for (size_t k = 0; k < sizeof(BEGINNINGS) / sizeof(BEGINNINGS[0]); k++) {
        const size_t length = strlen(BEGINNINGS[k].published);
        if (strncmp(name, BEGINNINGS[k].published, length) != 0 || i-- > 0) continue;
        return arena_printf(arena, "%s%s", BEGINNINGS[k].newer, name + length);
    }
    return NULL;
}

bool hf_vision_is_beyond(const char *name, long long layers) {
    static const char TOWER[] = "vision_tower.", LAYERS[] = "encoder.layers.";
    const char *at = strstr(name, TOWER);
    at = at ? strstr(at, LAYERS) : NULL;
    if (!at || at[strlen(LAYERS)] < '0' || at[strlen(LAYERS)] > '9') return false;
    return strtoll(at + strlen(LAYERS), NULL, 10) >= layers;
}
