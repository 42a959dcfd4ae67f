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

/* `key` where it is missing: so many times `of`, or that much less. */
static const char *add_size(Arena *arena, json_t *json, const char *key, const char *of,
                            int64_t times, const char *less) {
    int64_t size, by = 1;
    if (!is_missing(json_object_get(json, key))) return NULL;
    const char *why = read_size(arena, json, of, 0, &size);
    if (!why && less) why = read_size(arena, json, less, 0, &by);
    if (why) return why;
    if (size * times % by != 0) {
        return arena_printf(arena, "'%s' is %" PRId64 "; it must be a multiple of '%s', %" PRId64,
                            of, size, less, by);
    }
    put(json, key, json_integer(size * times / by));
    return NULL;
}

/* A flag; NULL where it is one. */
static const char *read_flag(Arena *arena, const json_t *json, const char *key, bool absent,
                             bool *out) {
    const json_t *value = json_object_get(json, key);
    *out = is_missing(value) ? absent : json_is_true(value);
    if (is_missing(value) || json_is_boolean(value)) return NULL;
    return arena_printf(arena, "'%s' is %s; it must be true or false", key,
                        hf_config_shown(arena, value));
}

/* Falcon 7B is the newer architecture with one key and one norm, which it does not say so. */
static const char *join_falcons(Arena *arena, json_t *json) {
    bool newer, one, parallel;
    const char *why = read_flag(arena, json, "new_decoder_architecture", false, &newer);
    if (!why) why = read_flag(arena, json, "multi_query", true, &one);
    if (!why) why = read_flag(arena, json, "parallel_attn", true, &parallel);
    if (!why && !newer && one) put(json, "num_kv_heads", json_integer(1));
    if (!why && !newer && !one) json_object_del(json, "num_kv_heads"); /* as many as heads */
    if (!why && newer) put(json, "parallel_attn", json_true());
    if (!why && !newer) put(json, "num_ln_in_parallel_attn", json_integer(1));
    if (!why && newer && is_missing(json_object_get(json, "num_ln_in_parallel_attn")))
        put(json, "num_ln_in_parallel_attn", json_integer(2));
    if (!why) why = add_size(arena, json, "num_kv_heads", "num_attention_heads", 1, NULL);
    if (!why) why = add_size(arena, json, "ffn_hidden_size", "hidden_size", 4, NULL);
    if (!why) why = add_size(arena, json, "head_dim", "hidden_size", 1, "num_attention_heads");
    return why;
}

static const char *add_gptj(Arena *arena, json_t *json) {
    const char *why = add_size(arena, json, "n_inner", "n_embd", 4, NULL);
    return why ? why : add_size(arena, json, "head_dim", "n_embd", 1, "n_head");
}

const char *hf_sizes_normalise(Arena *arena, json_t *json) {
    const char *type = json_string_value(json_object_get(json, "model_type"));
    if (type && strcmp(type, "nemotron_h") == 0) count_layers(json);
    if (type && strcmp(type, "falcon") == 0) return join_falcons(arena, json);
    if (type && strcmp(type, "gptj") == 0) return add_gptj(arena, json);
    return type && strcmp(type, "lfm2") == 0 ? adjust_feed(arena, json) : NULL;
}
