#include "frontend/hf/hf_kimi.h"

#include "frontend/hf/hf_config.h"
#include "ir/base/diag.h"

#include <inttypes.h>
#include <string.h>

static const int64_t MOST_LAYERS = 1 << 16;
static const char CONFIG[] = "linear_attn_config";
static const char *const SIZES[][2] = {{"head_dim", "linear_head_dim"},
                                       {"num_heads", "linear_num_heads"},
                                       {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
static const char *const LISTS[][2] = {{"kda_layers", "linear_attention"},
                                       {"full_attn_layers", "full_attention"}};

static void put(json_t *json, const char *key, json_t *value) {
    if (json_object_set_new(json, key, value) != 0) BUG("out of memory");
}

static bool is_missing(const json_t *value) {
    return !value || json_is_null(value);
}

static bool is_kimi(const json_t *json) {
    const char *type = json_string_value(json_object_get(json, "model_type"));
    return type && strcmp(type, "kimi_linear") == 0;
}

static const char *differ(Arena *arena, const char *in, const char *a, const char *b) {
    return arena_printf(arena, "has '%s%s%s' and '%s', and they differ", in ? in : "",
                        in ? "." : "", a, b);
}

static const char *take_sizes(Arena *arena, json_t *json, const json_t *config) {
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        json_t *value = json_object_get(config, SIZES[i][0]);
        const json_t *other = json_object_get(json, SIZES[i][1]);
        if (is_missing(value)) continue;
        if (!is_missing(other) && !json_equal(value, other)) {
            return differ(arena, CONFIG, SIZES[i][0], SIZES[i][1]);
        }
        put(json, SIZES[i][1], json_incref(value));
    }
    return NULL;
}

/* A word for each layer. NULL: *out_why says what is wrong. */
static json_t *name_layers(Arena *arena, const json_t *config, int64_t layers,
                           const char **out_why) {
    const char **words = ARENA_ARRAY(arena, const char *, layers);
    int64_t n = 0;
    for (int kind = 0; kind < 2; kind++) {
        const json_t *list = json_object_get(config, LISTS[kind][0]), *item;
        bool fine = json_is_array(list);
        size_t i;
        json_array_foreach(list, i, item) {
            const int64_t at = json_is_integer(item) ? json_integer_value(item) : 0;
            fine = fine && at >= 1 && at <= layers && !words[at - 1];
            if (!fine) break;
            words[at - 1] = LISTS[kind][1];
            n++;
        }
        if (fine) continue;
        *out_why = arena_printf(
            arena, "'%s.%s' is %s; it must be a list of layers, from 1 to %" PRId64 ", each once",
            CONFIG, LISTS[kind][0], list ? hf_config_shown(arena, list) : "missing", layers);
        return NULL;
    }
    if (n < layers) {
        *out_why = arena_printf(arena, "'%s' names %" PRId64 " layers in its lists, of %" PRId64,
                                CONFIG, n, layers);
        return NULL;
    }
    json_t *names = json_array();
    for (int64_t i = 0; i < layers; i++) json_array_append_new(names, json_string(words[i]));
    return names;
}

static const char *take_layers(Arena *arena, json_t *json, const json_t *config, int64_t layers) {
    const json_t *types = json_object_get(json, "layer_types");
    const char *why = NULL;
    if (is_missing(json_object_get(config, LISTS[0][0])) &&
        is_missing(json_object_get(config, LISTS[1][0]))) {
        return is_missing(types) ? "has no 'layer_types', and no lists of layers in "
                                   "'linear_attn_config'"
                                 : NULL;
    }
    json_t *names = name_layers(arena, config, layers, &why);
    if (names && !is_missing(types) && !json_equal(names, types)) {
        why = differ(arena, CONFIG, LISTS[0][0], "layer_types");
    }
    if (why) {
        json_decref(names);
        return why;
    }
    put(json, "layer_types", names);
    return NULL;
}

/* Layers with experts come after those without. */
static const char *take_dense(Arena *arena, json_t *json, int64_t layers) {
    const json_t *list = json_object_get(json, "mlp_layer_types"), *item;
    const json_t *first = json_object_get(json, "first_k_dense_replace");
    int64_t dense = 0;
    size_t i;
    if (is_missing(list)) return NULL;
    bool fine = json_is_array(list) && (int64_t)json_array_size(list) == layers;
    json_array_foreach(list, i, item) {
        const char *word = json_string_value(item);
        const bool is_dense = word && strcmp(word, "dense") == 0;
        fine = fine && word && (is_dense ? dense == (int64_t)i : strcmp(word, "sparse") == 0);
        dense += is_dense;
    }
    if (!fine) {
        return arena_printf(arena,
                            "'mlp_layer_types' is %s; it must be a list of %" PRId64
                            ", \"dense\" for the first layers and \"sparse\" for all others",
                            hf_config_shown(arena, list), layers);
    }
    if (!is_missing(first) && !(json_is_integer(first) && json_integer_value(first) == dense)) {
        return differ(arena, NULL, "mlp_layer_types", "first_k_dense_replace");
    }
    put(json, "first_k_dense_replace", json_integer(dense));
    return NULL;
}

const char *hf_kimi_normalise(Arena *arena, json_t *json) {
    if (!is_kimi(json)) return NULL;
    const json_t *config = json_object_get(json, CONFIG);
    const json_t *count = json_object_get(json, "num_hidden_layers");
    const int64_t layers = json_is_integer(count) ? json_integer_value(count) : 0;
    if (layers < 1 || layers > MOST_LAYERS) {
        return arena_printf(arena,
                            "'num_hidden_layers' is %s; it must be a whole number from 1 to "
                            "%" PRId64,
                            hf_config_shown(arena, count), MOST_LAYERS);
    }
    if (!is_missing(config) && !json_is_object(config)) {
        return arena_printf(arena, "'%s' is %s; it must be an object", CONFIG,
                            hf_config_shown(arena, config));
    }
    const char *why = take_sizes(arena, json, config);
    if (!why) why = take_layers(arena, json, config, layers);
    return why ? why : take_dense(arena, json, layers);
}

void hf_kimi_finish(json_t *json) {
    if (!is_kimi(json)) return;
    json_t *config = json_object(), *feeds = json_array(), *lists[2] = {json_array(), json_array()};
    const json_t *types = json_object_get(json, "layer_types"), *item;
    const json_int_t dense = json_integer_value(json_object_get(json, "first_k_dense_replace"));
    size_t i;
    for (i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        put(config, SIZES[i][0], json_incref(json_object_get(json, SIZES[i][1])));
    }
    json_array_foreach(types, i, item) {
        const int kind = strcmp(json_string_value(item), LISTS[0][1]) != 0;
        json_array_append_new(lists[kind], json_integer((json_int_t)i + 1));
        json_array_append_new(feeds, json_string((json_int_t)i < dense ? "dense" : "sparse"));
    }
    for (int kind = 0; kind < 2; kind++) put(config, LISTS[kind][0], lists[kind]);
    put(json, CONFIG, config);
    put(json, "mlp_layer_types", feeds);
}
