#include "frontend/hf/hf_sizes.h"

#include "frontend/hf/hf_config.h"
#include "ir/base/diag.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const int64_t MOST = INT64_C(1) << 31;

static void put(json_t *json, const char *key, json_t *value) {
    if (json_object_set_new(json, key, value) != 0) BUG("out of memory");
}

static bool is_missing(const json_t *value) {
    return !value || json_is_null(value);
}

static const char *read_size(Arena *arena, const json_t *json, const char *key, int64_t absent,
                             int64_t *out) {
    const json_t *value = json_object_get(json, key);
    *out = is_missing(value) ? absent : json_is_integer(value) ? json_integer_value(value) : 0;
    if (*out >= 1 && *out <= MOST) return NULL;
    return arena_printf(arena, "'%s' is %s; it must be a whole number from 1 to %" PRId64, key,
                        hf_config_shown(arena, value), MOST);
}

/* Of `size`, in the order in which transformers rounds. */
static const char *adjust(Arena *arena, const json_t *json, int64_t *size) {
    const json_t *factor = json_object_get(json, "block_ffn_dim_multiplier");
    const double times = !factor ? 1 : json_number_value(factor);
    int64_t multiple;
    const char *why = read_size(arena, json, "block_multiple_of", 256, &multiple);
    if (why) return why;
    *size = 2 * *size / 3;
    if (json_is_null(factor)) return NULL; /* nor is it rounded */
    if (!(times > 0 && times <= 1e6)) {
        return arena_printf(arena,
                            "'block_ffn_dim_multiplier' is %s; it must be a number more than 0",
                            hf_config_shown(arena, factor));
    }
    *size = (int64_t)floor(times * (double)*size);
    *size = (*size + multiple - 1) / multiple * multiple;
    return NULL;
}

/* What transformers 5 does not write, and else does not read. */
static void count_layers(json_t *json) {
    static const char *const LISTS[] = {"layers_block_type", "layer_types"};
    const char *text = json_string_value(json_object_get(json, "hybrid_override_pattern"));
    size_t n = text ? strlen(text) : 0;
    for (int i = 0; i < 2; i++) {
        const json_t *list = json_object_get(json, LISTS[i]);
        if (json_is_array(list)) n = json_array_size(list);
    }
    if (n > 0) put(json, "num_hidden_layers", json_integer((json_int_t)n));
}

static const char *adjust_feed(Arena *arena, json_t *json) {
    const json_t *adjusts = json_object_get(json, "block_auto_adjust_ff_dim");
    /* What transformers lets count where both are there. */
    const json_t *older = json_object_get(json, "block_ff_dim");
    int64_t size;
    const char *why = older ? read_size(arena, json, "block_ff_dim", 0, &size)
                            : read_size(arena, json, "intermediate_size", 12288, &size);
    if (!why && !is_missing(adjusts) && !json_is_boolean(adjusts)) {
        why = arena_printf(arena, "'block_auto_adjust_ff_dim' is %s; it must be true or false",
                           hf_config_shown(arena, adjusts));
    }
    if (!why && !json_is_false(adjusts)) why = adjust(arena, json, &size);
    if (why) return why;
    put(json, "intermediate_size", json_integer(size));
    put(json, "block_auto_adjust_ff_dim", json_false());
    json_object_del(json, "block_ff_dim");
    return NULL;
}

const char *hf_sizes_normalise(Arena *arena, json_t *json) {
    const char *type = json_string_value(json_object_get(json, "model_type"));
    if (type && strcmp(type, "nemotron_h") == 0) count_layers(json);
    return type && strcmp(type, "lfm2") == 0 ? adjust_feed(arena, json) : NULL;
}
