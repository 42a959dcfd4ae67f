#include "frontend/hf/hf_config.h"

#include "frontend/hf/hf_config_rows.h"
#include "frontend/hf/hf_kimi.h"
#include "frontend/hf/hf_pattern.h"
#include "frontend/hf/hf_rope.h"
#include "frontend/hf/hf_vision.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *model_setting(const Model *model, const char *name, Arena *arena) {
    const Setting *setting = settings_find(&model->settings, name);
    return setting && setting->has_value ? setting_text(setting, arena) : NULL;
}

/* What becomes of images before a model sees them is no part of config.json, but of another file
 * (hf_processor.h). */
static bool is_of_images(const char *key) {
    static const char *const NAMES[] = {"image_fit",   "image_filter", "image_mean", "image_before",
                                        "image_after", "image_tile",   "pixel_mean", "pixel_std"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        if (strcmp(key, NAMES[i]) == 0) return true;
    }
    return false;
}

/* What of "a=b c=d" the model does not have; "" if it has all. A setting that its script does not
 * have is as good as any. */
static const char *missing_settings(const Model *model, const char *settings, Arena *arena) {
    const char *missing = "";
    for (const char *at = settings; *at;) {
        size_t length = strcspn(at, " "), name = strcspn(at, "=");
        const char *key = arena_strndup(arena, at, name);
        const bool any = hf_classes_lacks(model, key) || is_of_images(key);
        const char *value = any ? NULL : model_setting(model, key, arena);
        const char *wanted = arena_strndup(arena, at + name + 1, length - name - 1);
        if (wanted[0] == '@') wanted = model_setting(model, wanted + 1, arena);
        if (value && wanted && strcmp(value, wanted) != 0) {
            missing =
                arena_printf(arena, "%s%s%.*s", missing, missing[0] ? " " : "", (int)length, at);
        }
        at += length + (at[length] == ' ');
    }
    return missing;
}

static bool diffuses(const Model *model, Arena *arena) {
    const char *diffusion = model_setting(model, "diffusion", arena);
    return diffusion && strcmp(diffusion, "none") != 0;
}

static bool is_of_diffusion(const HfType *type) {
    return strstr(type->settings, "diffusion=") != NULL;
}

/* What of a type's settings the model does not have. One that writes by diffusion is none of the
 * types that say nothing of it. */
static const char *lacks(const Model *model, const HfType *type, Arena *arena) {
    const char *missing = missing_settings(model, type->settings, arena);
    if (!diffuses(model, arena) || is_of_diffusion(type)) return missing;
    return arena_printf(arena, "%s%sdiffusion=none", missing, missing[0] ? " " : "");
}

const HfFamily *hf_family_of_model(const Model *model, Diag *diag) {
    Arena *arena = model->graph->arena;
    for (const HfFamily *const *family = HF_FAMILIES; *family; family++) {
        if (strcmp((*family)->script, model->name) != 0) continue;
        for (const HfType *type = (*family)->types; type->name; type++) {
            if (!lacks(model, type, arena)[0]) return *family;
        }
    }
    return hf_family_of(arena, model->name, diag);
}

static bool is_hugging_face(const HfFamily *of) {
    const HfFamily *const *family = HF_FAMILIES;
    while (*family && *family != of) family++;
    return *family != NULL;
}

/* Types, and what the model would have to be for each: of all families of its script those that
 * write as the model does; or the one that was told; or GGUF's. */
static const char *near_types(const Model *model, const HfFamily *of, const HfType *wanted,
                              Arena *arena) {
    const HfFamily *const alone[] = {of, NULL};
    const bool all = !wanted && is_hugging_face(of), diffusion = diffuses(model, arena);
    const char *text = "";
    for (const HfFamily *const *family = all ? HF_FAMILIES : alone; *family; family++) {
        if (strcmp((*family)->script, of->script) != 0) continue;
        for (const HfType *type = (*family)->types; type->name; type++) {
            if (wanted ? type != wanted : all && is_of_diffusion(type) != diffusion) continue;
            text = arena_printf(arena, "%s%s%s with %s", text, text[0] ? "; " : "", type->name,
                                lacks(model, type, arena));
        }
    }
    return text;
}

const HfType *hf_config_type(const Model *model, const HfFamily *family, const HfType *wanted,
                             const char *reader, Diag *diag) {
    Arena *arena = model->graph->arena;
    for (const HfType *type = family->types; type->name; type++) {
        bool counts = !wanted || type == wanted;
        if (!counts || lacks(model, type, arena)[0]) continue;
        if (type->classifier || hf_classes_count(model) == 0) return type;
        diag_error(diag, NO_LOC,
                   "%s has no %s that tells classes of texts or rewards: there is no "
                   "...ForSequenceClassification beside %s",
                   reader, type->name, type->architecture);
        return NULL;
    }
    diag_error(diag, NO_LOC, "%s has no model of these settings; from %s.lua it has: %s", reader,
               family->script, near_types(model, family, wanted, arena));
    return NULL;
}

static int64_t integer_setting(const Model *model, const char *name) {
    const Setting *setting = settings_find(&model->settings, name);
    return setting && setting->has_value ? setting->integer : 0;
}

/* Of a model's first n blocks. */
static json_t *first_blocks(const Model *model, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n && i < model->n_blocks; i++)
        json_array_append_new(list, json_integer(i));
    return list;
}

/* A word for each of the first n, another for the others. */
static json_t *leading_words(const Model *model, const HfWord *words, int64_t n) {
    json_t *list = json_array();
    const int64_t layers = integer_setting(model, "layers");
    for (int64_t i = 0; i < layers; i++)
        json_array_append_new(list, json_string(words[i >= n].theirs));
    return list;
}

/* A number's setting, or what its 0 stands for. */
static double number_meant(const HfKey *key, const Setting *setting, const Model *model) {
    static const char ROOT[] = "1/sqrt ";
    if (setting->number != 0 || !key->zero) return setting->number;
    bool root = strncmp(key->zero, ROOT, strlen(ROOT)) == 0;
    const Setting *of = settings_find(&model->settings, key->zero + (root ? strlen(ROOT) : 0));
    double value = !of || !of->has_value         ? 0
                   : of->type == SETTING_INTEGER ? (double)of->integer
                                                 : of->number;
    return root && value > 0 ? 1 / sqrt(value) : value;
}

/* Of "1,1.05"; NULL: the text is no such list. The graph reads one of two lists only, so the other
 * can be anything. */
static json_t *numbers_json(const char *text) {
    json_t *list = json_array();
    for (char *end;; text = end + 1) {
        double number = strtod(text, &end);
        if (end == text || !(number > 0 && number <= DBL_MAX) || (*end && *end != ',')) break;
        json_array_append_new(list, json_real(number));
        if (!*end) return list;
    }
    json_decref(list);
    return NULL;
}

/* NULL: a word that they do not have. */
static json_t *value_json(const HfKey *key, const Setting *setting, const Model *model) {
    switch (key->kind) {
    case HF_INTEGER:
    case HF_COUNT:
    case HF_TOKEN:
        if (key->kind == HF_TOKEN && setting->integer < 0) {
            return json_integer(integer_setting(model, "vocab") + setting->integer);
        }
        if (!key->beyond) return json_integer(setting->integer);
        return json_integer(setting->integer + integer_setting(model, key->beyond) + 1);
    case HF_NUMBER:
    case HF_AMOUNT: return json_real(number_meant(key, setting, model));
    case HF_FLAG: return json_boolean(setting->boolean);
    case HF_NUMBERS: return numbers_json(setting->text);
    default: break;
    }
    const char *text = setting_text(setting, model->graph->arena); /* of a flag, too */
    for (const HfWord *word = key->words; word->theirs; word++) {
        if (strcmp(word->ours, text) != 0) continue;
        const bool is_true = strcmp(word->theirs, "true") == 0;
        if (is_true || strcmp(word->theirs, "false") == 0) return json_boolean(is_true);
        const bool is_number = word->theirs[strspn(word->theirs, "0123456789")] == '\0';
        return is_number ? json_integer(strtoll(word->theirs, NULL, 10))
                         : json_string(word->theirs);
    }
    return NULL;
}

void hf_config_put(json_t *json, const char *name, json_t *value) {
    const char *dot = strchr(name, '.');
    int failed;
    if (dot) {
        char object[64];
        snprintf(object, sizeof(object), "%.*s", (int)(dot - name), name);
        if (!json_is_object(json_object_get(json, object))) {
            json_object_set_new(json, object, json_object());
        }
        failed = json_object_set_new(json_object_get(json, object), dot + 1, value);
    } else {
        failed = json_object_set_new(json, name, value);
    }
    if (failed) BUG("out of memory");
}

/* A row that has no setting. What is fixed is what transformers takes where nothing is said. */
static void write_constant(json_t *json, const HfKey *key) {
    if (key->kind != HF_WRITTEN || json_object_get(json, key->key)) return;
    hf_config_put(json, key->key, json_loads(key->absent, JSON_DECODE_ANY, NULL));
}

/* n where the setting is n x `of`; null where there is none. */
static bool write_times(json_t *json, const HfKey *key, const Model *model, const char *reader,
                        Diag *diag) {
    const char *with = model_setting(model, key->with, model->graph->arena);
    int64_t all = integer_setting(model, key->setting), each = integer_setting(model, key->of);
    bool has = with && strcmp(with, "true") == 0;
    if (has && (each < 1 || all % each != 0)) {
        diag_error(diag, NO_LOC, "%s is %" PRId64 "; %s has multiples of %s, %" PRId64,
                   key->setting, all, reader, key->of, each);
        return false;
    }
    json_t *none = key->zero ? json_integer(0) : json_null();
    hf_config_put(json, key->key, has ? json_integer(all / each) : none);
    if (has) json_decref(none);
    return true;
}

/* As nn.rotary rounds it. */
static bool write_share(json_t *json, const HfKey *key, const Setting *share, const Model *model) {
    const double of = (double)integer_setting(model, key->of);
    hf_config_put(json, key->key, json_integer((json_int_t)floor(share->number * of)));
    return true;
}

static bool check_quotient(const HfKey *key, const Model *model, const char *reader, Diag *diag) {
    int64_t one = integer_setting(model, key->setting), of = integer_setting(model, key->of);
    int64_t all = integer_setting(model, key->with);
    if (of > 0 && all % of == 0 && one == all / of) return true;
    diag_error(diag, NO_LOC, "%s is %" PRId64 "; %s has %s / %s there, %" PRId64, key->setting, one,
               reader, key->with, key->of, of > 0 ? all / of : 0);
    return false;
}

/* `setting` x `of`, and / `with` where there is one. */
static bool write_product(json_t *json, const HfKey *key, const Model *model, const char *reader,
                          Diag *diag) {
    Arena *arena = model->graph->arena;
    const int64_t each = key->with && key->with[0] ? integer_setting(model, key->with) : 1;
    int64_t all = integer_setting(model, key->setting);
    for (const char *at = key->of; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        all *= integer_setting(model, arena_strndup(arena, at, length));
        at += length;
    }
    if (each < 1 || all % each != 0) {
        diag_error(diag, NO_LOC, "%s x %s is %" PRId64 "; %s has multiples of %s, %" PRId64,
                   key->of, key->setting, all, reader, key->with, each);
        return false;
    }
    hf_config_put(json, key->key, json_integer(all / each));
    return true;
}

static bool write_some(json_t *json, const HfKey *key, const Model *model, const char *reader,
                       Diag *diag) {
    Arena *arena = model->graph->arena;
    const char *with = missing_settings(model, key->with, arena);
    const bool none = !missing_settings(model, key->of, arena)[0];
    if (!none && with[0]) {
        diag_error(diag, NO_LOC,
                   "%s has no model of these settings; '%s' is 0 with %s, or more with %s", reader,
                   key->key, key->of, key->with);
        return false;
    }
    hf_config_put(json, key->key, json_integer(none ? 0 : integer_setting(model, key->setting)));
    return true;
}

static bool write_pattern(json_t *json, const HfKey *key, const Model *model, const char *reader,
                          Diag *diag) {
    char missing;
    const Setting *setting = settings_find(&model->settings, key->setting);
    if (setting->type != SETTING_STRING || !setting->text[0]) {
        diag_error(diag, NO_LOC, "'%s' must be letters for layers", key->setting);
        return false;
    }
    const char *pattern = setting->text;
    if (key->of && integer_setting(model, key->of) == 0) {
        const HfWord *last = key->words;
        while (last[1].theirs) last++;
        pattern = last->ours;
    }
    json_t *list = hf_pattern_write(key, pattern, integer_setting(model, "layers"), &missing);
    if (json_is_null(list)) {
        json_object_del(json, key->key);
        return true;
    }
    if (list) {
        hf_config_put(json, key->key, list);
        return true;
    }
    diag_error(diag, NO_LOC, "'%s' has layers '%c', which %s does not have there", key->setting,
               missing, reader);
    return false;
}

static bool write_setting(json_t *json, const HfKey *key, const Setting *setting,
                          const Model *model, const char *reader, Diag *diag) {
    Arena *arena = model->graph->arena;
    const char *text = setting_text(setting, arena);
    bool is_object = strchr(key->key, '.') != NULL;
    if (is_object && key->absent && strcmp(text, key->absent) == 0) return true;
    if (key->null && strcmp(text, key->null) == 0) {
        hf_config_put(json, key->key, json_null());
        return true;
    }
    json_t *before = hf_config_find(json, key->key);
    json_t *value = key->kind == HF_FIRST     ? first_blocks(model, setting->integer)
                    : key->kind == HF_LEADING ? leading_words(model, key->words, setting->integer)
                                              : value_json(key, setting, model);
    if (!value && key->kind == HF_NUMBERS) {
        diag_error(diag, NO_LOC, "'%s' is '%.40s', which is no list of numbers above 0, \"1,1.05\"",
                   key->setting, text);
        return false;
    }
    if (!value) {
        diag_error(diag, NO_LOC, "'%s' is '%s', which %s does not have; it has: %s", key->setting,
                   text, reader, hf_config_known_words(arena, key->words));
        return false;
    }
    bool is_positive =
        json_number_value(value) > 0 || (key->kind != HF_INTEGER && key->kind != HF_NUMBER);
    is_positive = is_positive && !(key->kind == HF_COUNT && setting->integer < 0);
    if (!is_positive) { /* an import would refuse it */
        json_decref(value);
        if (key->absent && strcmp(text, key->absent) == 0) {
            json_object_del(json, key->key);
            return true;
        }
        diag_error(diag, NO_LOC, "%s is %s; %s has only '%s' above 0 there", key->setting, text,
                   reader, key->key);
        return false;
    }
    bool longer = key->most && json_is_integer(before) &&
                  json_integer_value(before) > json_integer_value(value);
    if (longer) {
        json_decref(value); /* trained on less than the model can */
    } else {
        hf_config_put(json, key->key, value);
    }
    return true;
}

static bool write_key(json_t *json, const HfKey *key, const Model *model, const char *reader,
                      Diag *diag) {
    const Setting *setting = settings_find(&model->settings, key->setting);
    if (!setting || !setting->has_value) {
        diag_error(diag, NO_LOC, "the model's script has no setting '%s', which is '%s' there",
                   key->setting, key->key);
        return false;
    }
    if (key->alias) json_object_del(json, key->alias);
    switch (key->kind) {
    case HF_TIMES: return write_times(json, key, model, reader, diag);
    case HF_PRODUCT:
    case HF_RATIO: return write_product(json, key, model, reader, diag);
    case HF_SOME: return write_some(json, key, model, reader, diag);
    case HF_LAYERS:
    case HF_FROM:
    case HF_EACH:
    case HF_PLACES: return write_pattern(json, key, model, reader, diag);
    case HF_WHETHER:
        hf_config_put(json, key->key, json_boolean(integer_setting(model, key->setting) != 0));
        return true;
    case HF_SHARE: return write_share(json, key, setting, model);
    case HF_EVERY:
    case HF_LAST: json_object_del(json, key->key); return true;
    case HF_QUOTIENT:
        json_object_del(json, key->key); /* another model's, of `like` */
        return check_quotient(key, model, reader, diag);
    default: return write_setting(json, key, setting, model, reader, diag);
    }
}

/* What an import would refuse is not written. */
static bool check_supported(const json_t *json, const HfKey *key, Arena *arena, Diag *diag) {
    json_t *value = hf_config_find(json, key->key);
    if (key->kind != HF_FIXED || !value || json_is_null(value)) return true;
    json_t *only = json_loads(key->absent, JSON_DECODE_ANY, NULL);
    bool same = hf_config_is_same(value, only);
    json_decref(only);
    if (same) return true;
    diag_error(diag, NO_LOC, "config.json would say that '%s' is %s; only %s is supported%s%s",
               key->key, hf_config_shown(arena, value), key->absent, key->when ? " where " : "",
               key->when ? key->when : "");
    return false;
}

bool hf_config_write_rows(const Model *model, const HfFamily *family, const HfType *type,
                          const char *reader, json_t *json, Diag *diag) {
    Arena *arena = model->graph->arena;
    for (const HfKey *key = family->keys; key->key; key++) {
        const char *when = hf_config_when(key, arena);
        const char *value = when ? model_setting(model, when, arena) : NULL;
        if (!hf_config_row_counts(key, type, value)) continue;
        if (!key->setting) {
            write_constant(json, key);
        } else if (!write_key(json, key, model, reader, diag)) {
            return false;
        }
    }
    for (const HfKey *key = family->keys; key->key; key++) {
        const char *when = hf_config_when(key, arena);
        const char *value = when ? model_setting(model, when, arena) : NULL;
        if (hf_config_row_counts(key, type, value) && !check_supported(json, key, arena, diag)) {
            return false;
        }
    }
    return true;
}

json_t *hf_config_write(const Model *model, const HfFamily *family, const HfType *type,
                        const json_t *like, const char *dtype, Diag *diag) {
    /* The last is as transformers 4 would not understand it. */
    static const char *const REPLACED[] = {
        "rope_scaling",         "layer_types",         "no_rope_layers", "dtype",
        "transformers_version", "quantization_config", "time_step_limit"};
    json_t *json = like ? json_deep_copy(like) : json_object();
    if (!json) BUG("out of memory");
    for (size_t i = 0; i < sizeof(REPLACED) / sizeof(REPLACED[0]); i++)
        json_object_del(json, REPLACED[i]);
    hf_config_put(json, "architectures", json_pack("[s]", hf_classes_architecture(type, model)));
    hf_config_put(json, "model_type", json_string(type->name));
    hf_config_put(json, "torch_dtype", json_string(dtype));
    if (!hf_config_write_rows(model, family, type, HF_READER, json, diag)) {
        json_decref(json);
        return NULL;
    }
    hf_classes_write(model, like, json);
    hf_rope_finish(json);
    hf_kimi_finish(json);
    hf_vision_finish(json);
    return json;
}
