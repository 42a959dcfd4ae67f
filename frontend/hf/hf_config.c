#include "frontend/hf/hf_config.h"

#include "frontend/hf/hf_config_rows.h"
#include "frontend/hf/hf_embed.h"
#include "frontend/hf/hf_kimi.h"
#include "frontend/hf/hf_pattern.h"
#include "frontend/hf/hf_rope.h"
#include "frontend/hf/hf_sizes.h"
#include "frontend/hf/hf_vision.h"
#include "ir/base/file.h"
#include "ir/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_LIMIT_BYTES = 4 << 20, MOST_SHOWN = 60, MOST_NUMBERS = 512 };
static const int64_t MOST_INTEGER = INT64_C(1) << 31, MOST_PRODUCT = INT64_C(1) << 56;

typedef struct Reader {
    Arena *arena;
    HfConfig *config;
    Diag *diag;
} Reader;

const HfFamily *hf_family_find(const char *script) {
    for (const HfFamily *const *family = HF_FAMILIES; *family; family++) {
        if (strcmp((*family)->script, script) == 0) return *family;
    }
    return NULL;
}

const char *hf_type_names(Arena *arena) {
    const char *names = "";
    for (const HfFamily *const *family = HF_FAMILIES; *family; family++) {
        for (const HfType *type = (*family)->types; type->name; type++) {
            names = arena_printf(arena, "%s%s%s", names, names[0] ? ", " : "", type->name);
        }
    }
    for (const HfTextPart *part = HF_TEXT_PARTS; part->type; part++) {
        if (part > HF_TEXT_PARTS && strcmp(part[-1].type, part->type) == 0) continue;
        names = arena_printf(arena, "%s, %s", names, part->type);
    }
    return names;
}

const HfFamily *hf_family_of(Arena *arena, const char *model, Diag *diag) {
    const HfFamily *family = hf_family_find(model);
    if (!family) {
        diag_error(diag, NO_LOC, "model '%s' is none of Hugging Face's; supported: %s", model,
                   hf_type_names(arena));
    }
    return family;
}

const char *hf_config_shown(Arena *arena, const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_COMPACT);
    if (!text) return "?";
    const char *dots = strlen(text) > MOST_SHOWN ? "..." : "";
    const char *copy = arena_printf(arena, "%.*s%s", MOST_SHOWN, text, dots);
    free(text);
    return copy;
}

__attribute__((format(printf, 2, 3))) static bool fail(const Reader *reader, const char *format,
                                                       ...) {
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(reader->arena, format, args);
    va_end(args);
    diag_error(reader->diag, (SourceLoc){reader->config->path, 0}, "%s", text);
    return false;
}

/* Is `word` one of those between the separators? */
static bool has_word(const char *words, const char *separators, const char *word) {
    size_t length = strlen(word);
    while (*words) {
        size_t size = strcspn(words, separators);
        if (size == length && strncmp(words, word, size) == 0) return true;
        words += size + (words[size] != '\0');
    }
    return false;
}

/* --- reading --- */

static const char *setting_given(const HfConfig *config, const char *name) {
    for (int i = config->n_settings - 1; i >= 0; i--) {
        if (strcmp(config->settings[i].key, name) == 0) return config->settings[i].value;
    }
    return NULL;
}

static void give(Reader *reader, const char *name, const char *value) {
    HfConfig *config = reader->config;
    ModelSetting setting = {name, value};
    ARENA_PUSH(reader->arena, config->settings, config->n_settings, config->settings_capacity,
               setting);
}

/* "a=b c=d e=@f": e is as f. */
static void give_all(Reader *reader, const char *settings) {
    while (*settings) {
        size_t length = strcspn(settings, " "), name = strcspn(settings, "=");
        if (settings[name + 1] != '@') { /* else keys say so */
            give(reader, arena_strndup(reader->arena, settings, name),
                 arena_strndup(reader->arena, settings + name + 1, length - name - 1));
        }
        settings += length + (settings[length] == ' ');
    }
}

bool hf_config_row_is_of(const HfKey *key, const HfType *type) {
    return !key->types || has_word(key->types, " ", type->name);
}

bool hf_config_row_counts(const HfKey *key, const HfType *type, const char *value) {
    if (!hf_config_row_is_of(key, type)) return false;
    return !key->when || (value && has_word(strchr(key->when, '=') + 1, "|", value));
}

const char *hf_config_when(const HfKey *key, Arena *arena) {
    return key->when ? arena_strndup(arena, key->when, strcspn(key->when, "=")) : NULL;
}

json_t *hf_config_find(const json_t *json, const char *name) {
    const char *dot = strchr(name, '.');
    if (!dot) return json_object_get(json, name);
    char object[64];
    snprintf(object, sizeof(object), "%.*s", (int)(dot - name), name);
    return json_object_get(json_object_get(json, object), dot + 1);
}

/* The key's value, by either of its names; NULL where it is missing. */
static json_t *find_key(const json_t *json, const HfKey *key) {
    json_t *value = hf_config_find(json, key->key);
    return value || !key->alias ? value : hf_config_find(json, key->alias);
}

static const char *integer_text(Reader *reader, const HfKey *key, const json_t *value) {
    int64_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    int64_t least = key->kind == HF_COUNT || key->kind == HF_TOKEN || key->kind == HF_SOME ? 0 : 1;
    if (number < least || number > MOST_INTEGER) {
        fail(reader, "'%s' is %s; it must be a whole number from %" PRId64 " to %" PRId64, key->key,
             hf_config_shown(reader->arena, value), least, MOST_INTEGER);
        return NULL;
    }
    const char *beyond = key->beyond ? setting_given(reader->config, key->beyond) : NULL;
    if (beyond) {
        const int64_t first = strtoll(beyond, NULL, 10) + 1;
        if (number <= first) {
            fail(reader, "'%s' is %" PRId64 "; its positions begin at %" PRId64 ", by '%s'",
                 key->key, number, first, key->beyond);
            return NULL;
        }
        number -= first;
    }
    if (key->most && number > key->most) {
        reader->config->cut = key->setting;
        reader->config->cut_from = number;
        number = key->most;
    }
    return arena_printf(reader->arena, "%" PRId64, number);
}

static const char *number_text(Reader *reader, const HfKey *key, const json_t *value) {
    Setting number = {.type = SETTING_NUMBER, .number = json_number_value(value)};
    bool zero = key->kind == HF_AMOUNT && number.number == 0;
    if (!json_is_number(value) || !isfinite(number.number) || !(number.number > 0 || zero)) {
        fail(reader, "'%s' is %s; it must be a number %s", key->key,
             hf_config_shown(reader->arena, value),
             key->kind == HF_AMOUNT ? "from 0" : "more than 0");
        return NULL;
    }
    return setting_text(&number, reader->arena);
}

/* "1,1.05": what a list of numbers is as a setting. */
static const char *numbers_text(Reader *reader, const HfKey *key, const json_t *value) {
    const char *text = "", *shown = hf_config_shown(reader->arena, value);
    size_t i;
    const json_t *item;
    bool fine = json_is_array(value) && json_array_size(value) > 0 &&
                json_array_size(value) <= (size_t)MOST_NUMBERS;
    json_array_foreach(value, i, item) {
        Setting number = {.type = SETTING_NUMBER, .number = json_number_value(item)};
        fine = fine && json_is_number(item) && isfinite(number.number) && number.number > 0;
        if (!fine) break;
        text = arena_printf(reader->arena, "%s%s%s", text, i ? "," : "",
                            setting_text(&number, reader->arena));
    }
    if (fine) return text;
    fail(reader, "'%s' is %s; it must be a list of 1 to %d numbers more than 0", key->key, shown,
         MOST_NUMBERS);
    return NULL;
}

const char *hf_config_known_words(Arena *arena, const HfWord *words) {
    const char *names = "";
    for (; words->theirs; words++) {
        names = arena_printf(arena, "%s%s%s", names, names[0] ? ", " : "", words->theirs);
    }
    return names;
}

static const char *word_text(Reader *reader, const HfKey *key, const json_t *value) {
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        text = arena_printf(reader->arena, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    }
    if (json_is_boolean(value)) text = json_is_true(value) ? "true" : "false";
    for (const HfWord *word = key->words; text && word->theirs; word++) {
        if (strcmp(word->theirs, text) == 0) return word->ours;
    }
    fail(reader, "'%s' is %s, which is not supported; supported: %s", key->key,
         hf_config_shown(reader->arena, value), hf_config_known_words(reader->arena, key->words));
    return NULL;
}

static bool is_word(const json_t *value, const char *word) {
    return json_is_string(value) && strcmp(json_string_value(value), word) == 0;
}

/* How many a list 0, 1, 2... has. */
static const char *first_text(Reader *reader, const HfKey *key, const json_t *value) {
    size_t i, n = json_array_size(value);
    const json_t *item;
    bool in_order = json_is_array(value);
    json_array_foreach(value, i, item) {
        in_order = in_order && json_is_integer(item) && json_integer_value(item) == (json_int_t)i;
    }
    if (in_order) return arena_printf(reader->arena, "%zu", n);
    fail(reader, "'%s' is %s, which is not supported; only the first layers, [0, 1, ...], are",
         key->key, hf_config_shown(reader->arena, value));
    return NULL;
}

/* How many layers from the first on have the first word, where all others have the second. */
static const char *leading_text(Reader *reader, const HfKey *key, const json_t *value) {
    const HfWord *words = key->words;
    const int64_t layers = strtoll(setting_given(reader->config, "layers"), NULL, 10);
    const size_t n = json_array_size(value);
    size_t first = 0, i;
    const json_t *item;
    while (first < n && is_word(json_array_get(value, first), words[0].theirs)) first++;
    bool fine = json_is_array(value) && (int64_t)n == layers;
    json_array_foreach(value, i, item) fine = fine && (i < first || is_word(item, words[1].theirs));
    if (fine) return arena_printf(reader->arena, "%zu", first);
    fail(reader,
         "'%s' is %s, which is not supported; it must be a list of %" PRId64
         ", \"%s\" for the first layers, if any, then \"%s\"",
         key->key, hf_config_shown(reader->arena, value), layers, words[0].theirs, words[1].theirs);
    return NULL;
}

/* So many times another setting; both are at most 2^31. */
static const char *times_text(Reader *reader, const HfKey *key, const json_t *value) {
    const char *count = integer_text(reader, key, value);
    const char *each = setting_given(reader->config, key->of);
    if (!count || !each) return NULL;
    give(reader, key->with, "true");
    return arena_printf(reader->arena, "%lld", strtoll(count, NULL, 10) * strtoll(each, NULL, 10));
}

static const char *share_text(Reader *reader, const HfKey *key, const json_t *value) {
    const char *count = integer_text(reader, key, value);
    const char *all = setting_given(reader->config, key->of);
    const json_t *other = hf_config_find(reader->config->json, key->with);
    if (!count || !all) return NULL;
    const long long n = strtoll(count, NULL, 10), of = strtoll(all, NULL, 10);
    Setting share = {.type = SETTING_NUMBER, .number = (double)n / (double)of};
    if (n > of) {
        fail(reader, "'%s' is %s; it must be at most %s, %s", key->key, count, key->of, all);
        return NULL;
    }
    if (other && !json_is_null(other) && json_number_value(other) != share.number) {
        fail(reader, "has '%s' and '%s', and they differ", key->key, key->with);
        return NULL;
    }
    return setting_text(&share, reader->arena);
}

static bool check_last(Reader *reader, const HfKey *key, const json_t *value) {
    const char *layers = setting_given(reader->config, key->setting);
    const int64_t last = strtoll(layers, NULL, 10) - 1;
    if (!value || json_is_null(value)) return true;
    if (json_is_integer(value) &&
        (json_integer_value(value) == -1 || json_integer_value(value) == last))
        return true;
    return fail(reader, "'%s' is %s, which is not supported; only the last layer, %" PRId64 ", is",
                key->key, hf_config_shown(reader->arena, value), last);
}

/* The product of settings, "a b"; -1: one is missing, or it is no number of elements. */
static int64_t product_of(const HfConfig *config, const char *names, Arena *arena) {
    int64_t product = 1;
    for (const char *at = names; *at && product > 0; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        const char *text = setting_given(config, arena_strndup(arena, at, length));
        const int64_t value = text ? strtoll(text, NULL, 10) : 0;
        product = value > 0 && value <= MOST_PRODUCT / product ? product * value : -1;
        at += length;
    }
    return product;
}

/* What `of` has to be multiplied by. */
static const char *product_text(Reader *reader, const HfKey *key, const json_t *value) {
    const char *all = integer_text(reader, key, value),
               *each = setting_given(reader->config, key->of);
    if (!all || !each) return NULL;
    const int64_t n = strtoll(all, NULL, 10), of = strtoll(each, NULL, 10);
    if (n % of == 0) return arena_printf(reader->arena, "%" PRId64, n / of);
    fail(reader, "'%s' is %s; it must be a multiple of %s, %s", key->key, all, key->of, each);
    return NULL;
}

/* Does it agree with what other keys say? */
static bool check_ratio(Reader *reader, const HfKey *key, const json_t *value) {
    const HfConfig *config = reader->config;
    const char *names = arena_printf(reader->arena, "%s %s", key->of, key->setting);
    const int64_t all = product_of(config, names, reader->arena);
    const int64_t each = product_of(config, key->with, reader->arena);
    if (!value || json_is_null(value)) return true;
    if (!integer_text(reader, key, value)) return false;
    if (all > 0 && each > 0 && all % each == 0 && json_integer_value(value) == all / each)
        return true;
    if (all <= 0 || each <= 0) {
        return fail(reader, "'%s' is %s, but other keys, of which it is a ratio, are too large",
                    key->key, hf_config_shown(reader->arena, value));
    }
    return fail(reader, "'%s' is %s; by other keys it is %" PRId64 " / %" PRId64, key->key,
                hf_config_shown(reader->arena, value), all, each);
}

/* A count, and what it means that it is 0 or not. */
static bool read_some(Reader *reader, const HfKey *key, const json_t *value) {
    const bool missing = !value || json_is_null(value);
    const char *text = missing ? key->absent : integer_text(reader, key, value);
    if (!text) return false;
    const bool none = strcmp(text, "0") == 0;
    give_all(reader, none ? key->of : key->with);
    if (!none) give(reader, key->setting, text);
    return true;
}

static bool is_zero(const Reader *reader, const char *setting) {
    const char *value = setting ? setting_given(reader->config, setting) : NULL;
    return value && strcmp(value, "0") == 0;
}

static bool read_pattern(Reader *reader, const HfKey *key, const json_t *value) {
    const char *layers = setting_given(reader->config, "layers"), *why = NULL;
    const char *text = key->absent;
    const bool none = is_zero(reader, key->of);
    if (none && key->kind != HF_LAYERS) return true; /* no layer is of another kind */
    if (value && !json_is_null(value)) {
        text = hf_pattern_read(reader->arena, key, value, strtoll(layers, NULL, 10), &why);
    } else if (key->kind == HF_FROM) {
        json_t *number = json_integer(strtoll(key->absent, NULL, 10));
        text = hf_pattern_read(reader->arena, key, number, strtoll(layers, NULL, 10), &why);
        json_decref(number);
    }
    if (!text) return fail(reader, "'%s' %s", key->key, why);
    const HfWord *last = key->words;
    while (last[1].theirs) last++;
    if (none && text[0] && strcmp(text, last->ours) != 0) {
        return fail(reader, "'%s' has others than \"%s\", but by other keys %s is 0", key->key,
                    last->theirs, key->of);
    }
    if (text[0] && !none) give(reader, key->setting, text);
    return true;
}

/* Whether what an earlier row gives counts. */
static bool read_whether(Reader *reader, const HfKey *key, const json_t *value) {
    const bool missing = !value || json_is_null(value);
    if (!missing && !json_is_boolean(value)) {
        return fail(reader, "'%s' is %s; it must be true or false", key->key,
                    hf_config_shown(reader->arena, value));
    }
    if (missing || json_is_false(value)) give(reader, key->setting, "0");
    return true;
}

/* NULL: reported. */
static const char *value_text(Reader *reader, const HfKey *key, const json_t *value) {
    switch (key->kind) {
    case HF_INTEGER:
    case HF_COUNT:
    case HF_TOKEN:
    case HF_QUOTIENT: return integer_text(reader, key, value);
    case HF_NUMBER:
    case HF_AMOUNT: return number_text(reader, key, value);
    case HF_NUMBERS: return numbers_text(reader, key, value);
    case HF_FIRST: return first_text(reader, key, value);
    case HF_LEADING: return leading_text(reader, key, value);
    case HF_TIMES: return times_text(reader, key, value);
    case HF_PRODUCT: return product_text(reader, key, value);
    case HF_SHARE: return share_text(reader, key, value);
    case HF_WORD: return word_text(reader, key, value);
    default: break;
    }
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    fail(reader, "'%s' is %s; it must be true or false", key->key,
         hf_config_shown(reader->arena, value));
    return NULL;
}

bool hf_config_is_same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool check_fixed(Reader *reader, const HfKey *key, const json_t *value) {
    if (!value || json_is_null(value)) return true;
    json_t *only = json_loads(key->absent, JSON_DECODE_ANY, NULL);
    bool same = hf_config_is_same(value, only);
    json_decref(only);
    if (same) return true;
    return fail(reader, "'%s' is %s, which is not supported; only %s is", key->key,
                hf_config_shown(reader->arena, value), key->absent);
}

static bool check_cycle(Reader *reader, const HfKey *key, const json_t *value) {
    const HfWord *word = key->words;
    size_t i;
    json_t *item;
    if (!value || json_is_null(value)) return true;
    if (!json_is_array(value)) return fail(reader, "'%s' is not a list", key->key);
    json_array_foreach(value, i, item) {
        const char *text = json_string_value(item);
        if (json_is_integer(item)) {
            text = arena_printf(reader->arena, "%" JSON_INTEGER_FORMAT, json_integer_value(item));
        }
        if (!text || strcmp(text, word->theirs) != 0) {
            return fail(reader, "'%s' has %s at layer %zu, which is not supported; only %s is",
                        key->key, hf_config_shown(reader->arena, item), i, word->theirs);
        }
        word = word[1].theirs ? word + 1 : key->words;
    }
    return true;
}

static bool check_alias(Reader *reader, const HfKey *key) {
    const json_t *json = reader->config->json;
    const json_t *value = hf_config_find(json, key->key);
    const json_t *other = key->alias ? hf_config_find(json, key->alias) : NULL;
    if (!value || !other || hf_config_is_same(value, other)) return true;
    return fail(reader, "has '%s' and '%s', and they differ", key->key, key->alias);
}

/* What a missing key means; NULL: it must be there. */
static const char *absent_of(const HfFamily *family, const char *name) {
    for (const HfKey *key = family->keys; key->key; key++) {
        if (strcmp(key->key, name) == 0) return key->absent;
    }
    return NULL;
}

static bool read_setting(Reader *reader, const HfKey *key, const json_t *value) {
    const HfConfig *config = reader->config;
    const char *absent = key->absent, *text;
    if (json_is_null(value) && key->null && key->null[0] != '=') {
        if (key->null[0]) give(reader, key->setting, key->null);
        return true;
    }
    if (json_is_null(value) && key->null) absent = key->null;
    bool missing = !value || json_is_null(value);
    if (missing && absent && absent[0] == '=') {
        value = hf_config_find(config->json, absent + 1);
        missing = !value;
        if (missing) absent = absent_of(config->family, absent + 1);
    }
    if (key->kind == HF_TIMES && key->zero && json_is_integer(value)) {
        missing = json_integer_value(value) == 0;
    }
    if (missing && key->kind == HF_TIMES) give(reader, key->with, "false");
    if (missing && (key->kind == HF_TIMES || (absent && absent[0] == '\0'))) return true;
    if (missing && !absent) {
        return fail(reader, "has no '%s', which a %s has", key->key, config->type->name);
    }
    text = missing ? absent : value_text(reader, key, value);
    if (text) give(reader, key->setting, text);
    return text != NULL;
}

static bool read_key(Reader *reader, const HfKey *key) {
    const json_t *value = find_key(reader->config->json, key);
    switch (key->kind) {
    case HF_WRITTEN: return true;
    case HF_FIXED: return check_fixed(reader, key, value);
    case HF_CYCLE: return check_cycle(reader, key, value);
    case HF_LAST: return check_last(reader, key, value);
    case HF_RATIO: return check_ratio(reader, key, value);
    case HF_SOME: return read_some(reader, key, value);
    case HF_LAYERS:
    case HF_PLACES:
    case HF_EACH:
    case HF_FROM:
    case HF_EVERY: return read_pattern(reader, key, value);
    case HF_WHETHER: return read_whether(reader, key, value);
    default: return read_setting(reader, key, value);
    }
}

static bool find_type(Reader *reader) {
    HfConfig *config = reader->config;
    const json_t *value = json_object_get(config->json, "model_type");
    const char *name = json_string_value(value);
    for (const HfFamily *const *family = HF_FAMILIES; name && *family; family++) {
        for (const HfType *type = (*family)->types; type->name; type++) {
            if (strcmp(type->name, name) != 0) continue;
            config->family = *family;
            config->type = type;
            return true;
        }
    }
    if (!value) return fail(reader, "has no 'model_type'");
    return fail(reader, "model_type %s is not supported; supported: %s",
                hf_config_shown(reader->arena, value), hf_type_names(reader->arena));
}

/* Has the type a key of this name? */
static bool knows(const HfConfig *config, const char *name) {
    for (const HfKey *key = config->family->keys; key->key; key++) {
        bool of_type = !key->types || has_word(key->types, " ", config->type->name);
        if (of_type && strcmp(key->key, name) == 0) return true;
        if (of_type && key->alias && strcmp(key->alias, name) == 0) return true;
    }
    return false;
}

static bool take_text_part(Reader *reader) {
    HfConfig *config = reader->config;
    const char *why = hf_text_part_take(reader->arena, &config->json, &config->part);
    return !why || fail(reader, "%s", why);
}

static bool take_vision(Reader *reader) {
    const char *why = hf_vision_take(reader->arena, &reader->config->json);
    return !why || fail(reader, "%s", why);
}

static bool take_quantized(Reader *reader, const char *dir) {
    HfConfig *config = reader->config;
    if (!hf_quantized_beside(reader->arena, dir, config->json, reader->diag)) return false;
    const char *why = hf_quantized_take(reader->arena, config->json, &config->quantized);
    return !why || fail(reader, "%s", why);
}

/* GPT-2's products have their weights inputs first, which methods turn or do not. */
static bool check_quantized(Reader *reader) {
    const HfConfig *config = reader->config;
    if (!config->quantized.method || strcmp(config->type->name, "gpt2") != 0) return true;
    return fail(reader, "'quantization_config.quant_method' is \"%s\", which a gpt2 is not read in",
                config->quantized.method->name);
}

static bool normalise_rope(Reader *reader) {
    HfConfig *config = reader->config;
    const char *why =
        hf_rope_normalise(reader->arena, config->json, knows(config, "rope_local_base_freq"));
    return !why || fail(reader, "%s", why);
}

static bool normalise_sizes(Reader *reader) {
    const char *why = hf_sizes_normalise(reader->arena, reader->config->json);
    if (!why) why = hf_kimi_normalise(reader->arena, reader->config->json);
    return !why || fail(reader, "%s", why);
}

static bool read_classes(Reader *reader) {
    HfConfig *config = reader->config;
    HfClasses *classes = &config->classes;
    const char *why =
        hf_classes_read(reader->arena, config->json, config->family, config->type, classes);
    if (classes->setting.key) give(reader, classes->setting.key, classes->setting.value);
    if (classes->kind.key) give(reader, classes->kind.key, classes->kind.value);
    return !why || fail(reader, "%s", why);
}

static bool read_embed(Reader *reader, const char *dir) {
    ModelSetting settings[HF_EMBED_SETTINGS];
    int n;
    if (!hf_embed_read(reader->arena, dir, reader->config->family, settings, &n, reader->diag)) {
        return false;
    }
    for (int i = 0; i < n; i++) give(reader, settings[i].key, settings[i].value);
    return true;
}

static bool read_keys(Reader *reader) {
    give_all(reader, reader->config->type->settings);
    if (reader->config->family->implied) give_all(reader, reader->config->family->implied);
    for (const HfKey *key = reader->config->family->keys; key->key; key++) {
        const char *when = hf_config_when(key, reader->arena);
        const char *value = when ? setting_given(reader->config, when) : NULL;
        if (!hf_config_row_counts(key, reader->config->type, value)) continue;
        if (!check_alias(reader, key) || !read_key(reader, key)) return false;
    }
    return true;
}

/* JSON as Python writes it, where a number may be Infinity: that is as transformers 5 has it,
 * {"__float__": "Infinity"}. NULL: reported. */
static json_t *parse_file(Arena *arena, const char *path, Diag *diag) {
    static const char WORD[] = "Infinity";
    size_t length;
    const char *text = file_read(arena, path, CONFIG_LIMIT_BYTES, &length, diag);
    if (!text) return NULL;
    StrBuf plain = strbuf_create();
    bool within = false; /* a string */
    for (const char *at = text, *end = text + length; at < end; at++) {
        const bool escaped = within && *at == '\\' && at + 1 < end;
        const bool infinite =
            !within && (size_t)(end - at) >= strlen(WORD) && memcmp(at, WORD, strlen(WORD)) == 0;
        if (infinite) strbuf_put(&plain, "{\"__float__\": \"Infinity\"}");
        if (!infinite) strbuf_put_bytes(&plain, at, 1 + escaped);
        within ^= *at == '"';
        at += infinite ? strlen(WORD) - 1 : escaped;
    }
    json_t *json = json_parse_bytes(path, plain.text, plain.length, diag);
    strbuf_destroy(&plain);
    return json;
}

bool hf_config_read_rows(Arena *arena, const char *path, json_t *json, const HfFamily *family,
                         const HfType *type, HfConfig *out, Diag *diag) {
    *out = (HfConfig){.path = path, .family = family, .type = type, .json = json};
    Reader reader = {arena, out, diag};
    if (read_keys(&reader)) return true;
    json_decref(json);
    out->json = NULL;
    return false;
}

bool hf_config_read(Arena *arena, const char *dir, HfConfig *out, Diag *diag) {
    Reader reader = {arena, out, diag};
    *out = (HfConfig){.path = arena_printf(arena, "%s/config.json", dir)};
    out->json = parse_file(arena, out->path, diag);
    if (!out->json) return false;
    bool fine = json_is_object(out->json) || fail(&reader, "is not a JSON object");
    fine = fine && take_text_part(&reader) && take_vision(&reader) &&
           take_quantized(&reader, dir) && find_type(&reader) && check_quantized(&reader) &&
           normalise_rope(&reader) && normalise_sizes(&reader) && read_keys(&reader) &&
           read_classes(&reader) && read_embed(&reader, dir);
    if (!fine) {
        json_decref(out->json);
        out->json = NULL;
    }
    return fine;
}
