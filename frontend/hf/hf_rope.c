#include "frontend/hf/hf_rope.h"

#include "frontend/hf/hf_config.h"
#include "frontend/hf/hf_config_rows.h"
#include "ir/base/diag.h"

#include <math.h>
#include <string.h>

static const char ROPE_THETA[] = "rope_theta";

static void put(json_t *json, const char *key, json_t *value) {
    if (json_object_set_new(json, key, value) != 0) BUG("out of memory");
}

static const json_t *kind_of(const json_t *rope) {
    const json_t *kind = json_object_get(rope, "rope_type");
    return kind ? kind : json_object_get(rope, "type");
}

static bool is_word(const json_t *value, const char *word) {
    return json_is_string(value) && strcmp(json_string_value(value), word) == 0;
}

static bool is_default(const json_t *kind) {
    return is_word(kind, "default");
}

static bool is_type(const json_t *json, const char *name) {
    const char *type = json_string_value(json_object_get(json, "model_type"));
    return type && strcmp(type, name) == 0;
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

static bool has_kinds(const json_t *rope) {
    return json_object_get(rope, "sliding_attention") || json_object_get(rope, "full_attention");
}

/* An object for layers with a window, another for those without: the latter is `rope` from here on,
 * of the former the base is kept. */
static const char *split_layers(Arena *arena, json_t *json, json_t **rope) {
    const json_t *within = json_object_get(*rope, "sliding_attention");
    json_t *full = json_object_get(*rope, "full_attention");
    const char *field;
    json_t *value;
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

/* The older form beside an object for each kind of layers, as OLMo 3 is exported: does it say of
 * layers without a window what `full` says? */
static bool is_part(const json_t *older, const json_t *full) {
    const char *field;
    json_t *value;
    if (!json_is_object(older)) return false;
    json_object_foreach((json_t *)older, field, value) {
        const json_t *same = json_object_get(full, field);
        if (!same || !hf_config_is_same(value, same)) return false;
    }
    return true;
}

static bool is_longrope(const json_t *kind) {
    const char *name = json_is_string(kind) ? json_string_value(kind) : "";
    return strcmp(name, "longrope") == 0 || strcmp(name, "su") == 0;
}

/* What sines and cosines are multiplied by where a context of `from` positions grew so many times.
 */
static double attention_factor(double growth, double from) {
    return growth > 1 ? sqrt(1 + log(growth) / log(from)) : 1;
}

/* YaRN's factor of sines and cosines as Ministral 3 says it, by two numbers that mostly are equal
 * (as modeling_rope_utils.py of transformers, from DeepSeek's code). */
static const char *add_mscale_factor(Arena *arena, json_t *scaling) {
    const json_t *given = json_object_get(scaling, "attention_factor");
    const double one = json_number_value(json_object_get(scaling, "mscale"));
    const double all = json_number_value(json_object_get(scaling, "mscale_all_dim"));
    const double factor = json_number_value(json_object_get(scaling, "factor"));
    if ((given && !json_is_null(given)) || one == 0 || all == 0) return NULL;
    if (!(factor >= 1 && one > 0 && all > 0)) {
        return arena_printf(arena,
                            "says 'rope_scaling.factor' %g, 'mscale' %g and 'mscale_all_dim' %g; "
                            "the first must be at least 1, the others more than 0",
                            factor, one, all);
    }
    put(scaling, "attention_factor",
        json_real((0.1 * one * log(factor) + 1) / (0.1 * all * log(factor) + 1)));
    json_object_del(scaling, "mscale");
    json_object_del(scaling, "mscale_all_dim");
    return NULL;
}

/* Hunyuan's "dynamic" with a number alpha: another base, whatever the length (as
 * modeling_hunyuan_v1_dense.py of transformers). */
static const char *take_alpha(Arena *arena, json_t *json, const json_t *rope) {
    const double alpha = json_number_value(json_object_get(rope, "alpha"));
    const json_t *size = json_object_get(json, "head_dim"),
                 *theta = json_object_get(json, ROPE_THETA);
    double head = json_number_value(size), base = theta ? json_number_value(theta) : 10000;
    if (!size || json_is_null(size)) {
        head = json_number_value(json_object_get(json, "hidden_size")) /
               json_number_value(json_object_get(json, "num_attention_heads"));
    }
    base *= pow(alpha, head / (head - 2));
    if (!(alpha > 0 && head > 2 && isfinite(base) && base > 0)) {
        return arena_printf(arena,
                            "says 'rope_scaling.alpha' %g for heads of %g; it must be a number "
                            "more than 0, and heads more than 2",
                            alpha, head);
    }
    put(json, ROPE_THETA, json_real(base));
    return NULL;
}

/* InternVL's "dynamic" turns positions as without it, up to those that the model was made for; what
 * is said of more is kept for an export. */
static const char *take_beyond(Arena *arena, json_t *json, const json_t *rope) {
    const json_t *factor = json_object_get(rope, "factor");
    const double times = json_number_value(factor);
    json_t *kept = json_pack("{s:s, s:s}", "rope_type", "dynamic", "type", "dynamic");
    if (!json_is_number(factor) || !(times >= 1 && isfinite(times))) {
        json_decref(kept);
        return arena_printf(arena,
                            "says 'rope_scaling.factor' %s; \"dynamic\" has a number from 1 there",
                            factor ? hf_config_shown(arena, factor) : "nothing");
    }
    put(kept, "factor", json_incref((json_t *)factor));
    put(json, HF_ROPE_BEYOND, kept);
    return NULL;
}

static void finish_beyond(json_t *json) {
    json_t *kept = json_object_get(json, HF_ROPE_BEYOND);
    if (kept && is_type(json, "internvl")) put(json, "rope_scaling", json_incref(kept));
    json_object_del(json, HF_ROPE_BEYOND);
}

static double original_context(const json_t *json, const json_t *scaling) {
    static const char NAME[] = "original_max_position_embeddings";
    const json_t *value = json_object_get(json, NAME);
    if (!value) value = json_object_get(scaling, NAME);
    return value && !json_is_null(value) ? json_number_value(value) : 4096; /* Phi3Config's */
}

static const char *add_attention_factor(Arena *arena, const json_t *json, json_t *scaling) {
    const json_t *given = json_object_get(scaling, "attention_factor");
    const json_t *growth = json_object_get(scaling, "factor");
    if (given && !json_is_null(given)) return NULL;
    const double from = original_context(json, scaling);
    double times = json_number_value(json_object_get(json, "max_position_embeddings")) / from;
    if (growth && !json_is_null(growth)) times = json_number_value(growth);
    const double factor = attention_factor(times, from);
    if (!(from >= 2 && times > 0 && isfinite(factor))) {
        return arena_printf(arena,
                            "says that %g positions became %g times as many, by 'factor' or "
                            "'max_position_embeddings'; longrope cannot be of those",
                            from, times);
    }
    put(scaling, "attention_factor", json_real(factor));
    return NULL;
}

static void finish_longrope(json_t *json) {
    static const double CLOSE = 1e-12; /* relative */
    json_t *scaling = json_object_get(json, "rope_scaling");
    if (!is_longrope(json_object_get(scaling, "rope_type"))) return;
    json_object_set_new(scaling, "type", json_string("longrope"));
    json_object_del(scaling, "rope_type");
    const double from = original_context(json, scaling);
    const double factor = json_number_value(json_object_get(scaling, "attention_factor"));
    const double seq = json_number_value(json_object_get(json, "max_position_embeddings"));
    double longest = seq; /* of `like`, or what the model is made for */
    if (fabs(attention_factor(longest / from, from) - factor) > CLOSE * factor) {
        longest = round(from * exp((factor * factor - 1) * log(from)));
    }
    if (fabs(attention_factor(longest / from, from) - factor) > CLOSE * factor || longest < seq ||
        longest > 2147483648.0) {
        return;
    }
    json_object_del(scaling, "attention_factor");
    put(json, "max_position_embeddings", json_integer((json_int_t)longest));
}

/* transformers 5 does not take the older form's base to layers with a window, transformers 4 knows
 * no other form: OLMo 3 has both. */
static void add_kinds(json_t *json) {
    const json_t *theta = json_object_get(json, "rope_theta"),
                 *scaling = json_object_get(json, "rope_scaling");
    json_t *full = json_is_object(scaling) ? json_copy((json_t *)scaling)
                                           : json_pack("{s:s}", "rope_type", "default");
    json_t *within = json_pack("{s:s, s:O}", "rope_type", "default", "rope_theta", theta);
    put(full, "rope_theta", json_incref((json_t *)theta));
    put(json, "rope_parameters",
        json_pack("{s:o, s:o}", "full_attention", full, "sliding_attention", within));
}

/* An OLMo hybrid has no positions where its base is null, which is said in the newer form alone;
 * among our keys that is a word of its own. */
static bool says_none(const json_t *json, const json_t *rope) {
    return is_type(json, "olmo_hybrid") && json_is_null(json_object_get(rope, ROPE_THETA));
}

static void finish_positions(json_t *json) {
    static const char WORD[] = "position_embedding_type";
    if (!is_type(json, "olmo_hybrid")) return;
    const bool none = is_word(json_object_get(json, WORD), "nope");
    json_object_del(json, WORD);
    if (!none) return;
    json_object_del(json, ROPE_THETA);
    put(json, "rope_parameters", json_pack("{s:s, s:n}", "rope_type", "default", ROPE_THETA));
}

void hf_rope_finish(json_t *json) {
    finish_positions(json);
    finish_beyond(json);
    finish_longrope(json);
    if (is_type(json, "olmo3")) add_kinds(json);
}

const char *hf_rope_normalise(Arena *arena, json_t *json, bool by_layer) {
    json_t *rope = json_object_get(json, "rope_parameters");
    const bool newer = rope && !json_is_null(rope);
    json_object_del(json, HF_ROPE_BEYOND); /* ours alone */
    const char *name = newer ? "rope_parameters" : "rope_scaling", *why = NULL, *field;
    json_t *value;
    if (!newer) rope = json_object_get(json, name);
    if (!rope || json_is_null(rope)) return NULL;
    const json_t *older = json_object_get(json, "rope_scaling");
    if (!json_is_object(rope)) {
        return arena_printf(arena, "'%s' is %s; it must be an object", name,
                            hf_config_shown(arena, rope));
    }
    const bool by_kind = newer && by_layer && has_kinds(rope);
    if (by_kind) why = split_layers(arena, json, &rope);
    if (why) return why;
    if (newer && older && !json_is_null(older) && !json_equal(older, rope) &&
        !(by_kind && is_part(older, rope))) {
        return "has 'rope_parameters' and 'rope_scaling', and they differ";
    }
    json_object_foreach(rope, field, value) {
        if (!json_is_object(value)) continue; /* for each kind of layer */
        return arena_printf(arena, "'%s.%.60s' is an object, which is not supported", name, field);
    }
    const json_t *kind = kind_of(rope);
    if (newer && says_none(json, rope)) put(json, "position_embedding_type", json_string("nope"));
    bool plain = is_default(kind) || (newer && (!kind || json_is_null(kind)));
    static const char *const MOVED[] = {"rope_theta", "partial_rotary_factor"};
    for (int i = 0; i < 2 && !why; i++) why = move(arena, json, MOVED[i], rope, MOVED[i]);
    const bool has_alpha = is_type(json, "hunyuan_v1_dense") && is_word(kind, "dynamic") &&
                           json_object_get(rope, "alpha");
    if (!why && has_alpha) why = take_alpha(arena, json, rope);
    const bool beyond = is_type(json, "internvl") && is_word(kind, "dynamic");
    if (!why && beyond) why = take_beyond(arena, json, rope);
    plain |= has_alpha || beyond;
    const bool longrope = !plain && is_longrope(kind); /* a plain one's words are gone below */
    json_t *scaling = plain ? json_null() : json_copy(rope);
    if (!plain) {
        put(scaling, "rope_type", kind ? json_incref((json_t *)kind) : json_string(""));
    }
    put(json, "rope_scaling", scaling);
    if (!why && longrope) why = add_attention_factor(arena, json, scaling);
    if (!why && is_type(json, "ministral3")) why = add_mscale_factor(arena, scaling);
    json_object_del(json, "rope_parameters");
    return why;
}
