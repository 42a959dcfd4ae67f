#include "frontend/hf/hf_rope.h"

#include "frontend/hf/hf_config.h"
#include "ir/base/diag.h"

#include <string.h>

static void put(json_t *json, const char *key, json_t *value) {
    if (json_object_set_new(json, key, value) != 0) BUG("out of memory");
}

static const json_t *kind_of(const json_t *rope) {
    const json_t *kind = json_object_get(rope, "rope_type");
    return kind ? kind : json_object_get(rope, "type");
}

static bool is_default(const json_t *kind) {
    return json_is_string(kind) && strcmp(json_string_value(kind), "default") == 0;
}

/* Takes what `other` says under `key` to `as`, unless that says something else already. */
static const char *move(Arena *arena, json_t *json, const char *as, const json_t *other,
                        const char *key) {
    json_t *own = json_object_get(json, as), *value = json_object_get(other, key);
    if (!value || json_is_null(value)) return NULL;
    if (json_is_number(own) && json_is_number(value) &&
        json_number_value(own) != json_number_value(value)) {
        return arena_printf(arena, "has '%s' twice, and they differ", as);
    }
    put(json, as, json_incref(value));
    return NULL;
}

/* An object for layers with a window, another for those without: the latter is `rope` from here on,
 * of the former the base is kept. */
static const char *split_layers(Arena *arena, json_t *json, json_t **rope) {
    const json_t *within = json_object_get(*rope, "sliding_attention");
    json_t *full = json_object_get(*rope, "full_attention");
    const char *field;
    json_t *value;
    if (!within && !full) return NULL;
    json_object_foreach(*rope, field, value) {
        if (value != within && value != full) {
            return arena_printf(arena, "'rope_parameters' has '%.60s' beside kinds of layers",
                                field);
        }
        if (!json_is_object(value)) {
            return arena_printf(arena, "'rope_parameters.%s' is %s; it must be an object", field,
                                hf_config_shown(arena, value));
        }
    }
    const json_t *kind = kind_of(within);
    if (kind && !json_is_null(kind) && !is_default(kind)) {
        return arena_printf(arena,
                            "'rope_parameters.sliding_attention.rope_type' is %s, which is not "
                            "supported; only \"default\" is",
                            hf_config_shown(arena, kind));
    }
    const char *why = move(arena, json, "rope_local_base_freq", within, "rope_theta");
    json_t *rest = full ? json_incref(full) : json_object();
    put(json, "rope_parameters", rest);
    *rope = rest;
    return why;
}

const char *hf_rope_normalise(Arena *arena, json_t *json, bool by_layer) {
    json_t *rope = json_object_get(json, "rope_parameters");
    const bool newer = rope && !json_is_null(rope);
    const char *name = newer ? "rope_parameters" : "rope_scaling", *why = NULL, *field;
    json_t *value;
    if (!newer) rope = json_object_get(json, name);
    if (!rope || json_is_null(rope)) return NULL;
    const json_t *older = json_object_get(json, "rope_scaling");
    if (newer && older && !json_is_null(older) && !json_equal(older, rope)) {
        return "has 'rope_parameters' and 'rope_scaling', and they differ";
    }
    if (!json_is_object(rope)) {
        return arena_printf(arena, "'%s' is %s; it must be an object", name,
                            hf_config_shown(arena, rope));
    }
    if (newer && by_layer) why = split_layers(arena, json, &rope);
    if (why) return why;
    json_object_foreach(rope, field, value) {
        if (!json_is_object(value)) continue; /* for each kind of layer */
        return arena_printf(arena, "'%s.%.60s' is an object, which is not supported", name, field);
    }
    const json_t *kind = kind_of(rope);
    const bool plain = is_default(kind) || (newer && (!kind || json_is_null(kind)));
    static const char *const MOVED[] = {"rope_theta", "partial_rotary_factor"};
    for (int i = 0; i < 2 && !why; i++) why = move(arena, json, MOVED[i], rope, MOVED[i]);
    json_t *scaling = plain ? json_null() : json_copy(rope);
    if (!plain) {
        put(scaling, "rope_type", kind ? json_incref((json_t *)kind) : json_string(""));
    }
    put(json, "rope_scaling", scaling);
    json_object_del(json, "rope_parameters");
    return why;
}
