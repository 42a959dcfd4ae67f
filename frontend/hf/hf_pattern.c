#include "frontend/hf/hf_pattern.h"

#include "frontend/hf/hf_config.h"
#include "ir/base/diag.h"

#include <inttypes.h>
#include <string.h>

/* More are an error, before memory is taken for them. */
static const int64_t MOST_LAYERS = 1 << 16;

/* The letters' first ones that are all of them, over and over: all but the longest beginning that
 * is also an end (Knuth, Morris & Pratt 1977). */
static const char *shortest(Arena *arena, const char *letters) {
    const size_t n = strlen(letters);
    size_t *border = ARENA_ARRAY(arena, size_t, n + 1), k = 0;
    border[0] = border[1] = 0;
    for (size_t i = 1; i < n; i++) {
        while (k > 0 && letters[i] != letters[k]) k = border[k];
        k += letters[i] == letters[k];
        border[i + 1] = k;
    }
    return arena_strndup(arena, letters, n - border[n]);
}

static const HfWord *find_word(const HfWord *words, const char *text) {
    while (words->theirs && !(text && strcmp(words->theirs, text) == 0)) words++;
    return words->theirs ? words : NULL;
}

static const char *read_layers(Arena *arena, const HfKey *key, const json_t *value, char *letters,
                               int64_t layers) {
    if (!json_is_array(value) || (int64_t)json_array_size(value) != layers) {
        return arena_printf(arena, "is %s; it must be a list of %" PRId64 ", one for each layer",
                            hf_config_shown(arena, value), layers);
    }
    for (int64_t i = 0; i < layers; i++) {
        const json_t *item = json_array_get(value, (size_t)i);
        const HfWord *word = find_word(key->words, json_string_value(item));
        if (!word) {
            return arena_printf(arena, "has %s at layer %" PRId64 ", which is not supported",
                                hf_config_shown(arena, item), i);
        }
        letters[i] = word->ours[0];
    }
    return NULL;
}

static const char *read_places(Arena *arena, const HfKey *key, const json_t *value, char *letters,
                               int64_t layers) {
    size_t i;
    const json_t *item;
    bool fine = json_is_array(value);
    memset(letters, key->words[1].ours[0], (size_t)layers);
    json_array_foreach(value, i, item) {
        const int64_t at = json_is_integer(item) ? json_integer_value(item) : -1;
        fine = fine && at >= 0 && at < layers;
        if (fine) letters[at] = key->words[0].ours[0];
    }
    if (fine) return NULL;
    return arena_printf(arena, "is %s; it must be a list of layers, from 0 to %" PRId64,
                        hf_config_shown(arena, value), layers - 1);
}

/* "LLLG", over and over. */
static const char *read_text(Arena *arena, const HfKey *key, const json_t *value, char *letters,
                             int64_t layers) {
    const char *text = json_string_value(value);
    const size_t length = strlen(text);
    for (int64_t i = 0; i < layers; i++) {
        const char letter[2] = {length ? text[(size_t)i % length] : '\0', '\0'};
        const HfWord *word = find_word(key->words, letter);
        if (!word)
            return arena_printf(arena, "is %s, which is not supported",
                                hf_config_shown(arena, value));
        letters[i] = word->ours[0];
    }
    return NULL;
}

static const char *read_from(Arena *arena, const HfKey *key, const json_t *value, char *letters,
                             int64_t layers) {
    const int64_t first = json_is_integer(value) ? json_integer_value(value) : -1;
    if (first < 0) {
        return arena_printf(arena, "is %s; it must be a whole number from 0",
                            hf_config_shown(arena, value));
    }
    for (int64_t i = 0; i < layers; i++) letters[i] = key->words[i < first].ours[0];
    return NULL;
}

static const char *read_every(Arena *arena, const HfKey *key, const json_t *value, char *letters,
                              int64_t layers) {
    if (json_is_string(value)) return read_text(arena, key, value, letters, layers);
    const int64_t each = json_is_integer(value) ? json_integer_value(value) : 0;
    if (each < 1) {
        return arena_printf(arena, "is %s; it must be a whole number from 1",
                            hf_config_shown(arena, value));
    }
    const int64_t first = key->kind == HF_EACH ? 0 : 1;
    for (int64_t i = 0; i < layers; i++) letters[i] = key->words[(i + first) % each != 0].ours[0];
    return NULL;
}

const char *hf_pattern_read(Arena *arena, const HfKey *key, const json_t *value, int64_t layers,
                            const char **out_why) {
    if (layers > MOST_LAYERS) {
        *out_why =
            arena_printf(arena, "is of %" PRId64 " layers; at most %" PRId64 " are supported",
                         layers, MOST_LAYERS);
        return NULL;
    }
    char *letters = arena_alloc(arena, (size_t)layers + 1);
    letters[layers] = '\0';
    *out_why = key->kind == HF_LAYERS   ? read_layers(arena, key, value, letters, layers)
               : key->kind == HF_PLACES ? read_places(arena, key, value, letters, layers)
               : key->kind == HF_FROM   ? read_from(arena, key, value, letters, layers)
                                        : read_every(arena, key, value, letters, layers);
    return *out_why ? NULL : shortest(arena, letters);
}

static const HfWord *find_letter(const HfWord *words, char letter) {
    while (words->theirs && words->ours[0] != letter) words++;
    return words->theirs ? words : NULL;
}

/* The first layer that has the first word's letter. */
static json_t *first_of(const HfKey *key, const char *pattern, int64_t layers) {
    const size_t length = strlen(pattern);
    int64_t i = 0;
    while (i < layers && pattern[(size_t)i % length] != key->words[0].ours[0]) i++;
    return json_integer(i);
}

/* Each how manieth layer has the first word's letter, from the first one on; null: it is not so. */
static json_t *each_of(const HfKey *key, const char *pattern) {
    const char others[2] = {key->words[1].ours[0], '\0'};
    const size_t length = strlen(pattern);
    const bool fits =
        pattern[0] == key->words[0].ours[0] && strspn(pattern + 1, others) == length - 1;
    return fits ? json_integer((json_int_t)length) : json_null();
}

json_t *hf_pattern_write(const HfKey *key, const char *pattern, int64_t layers, char *out_missing) {
    if (key->kind == HF_FROM) return first_of(key, pattern, layers);
    if (key->kind == HF_EACH) return each_of(key, pattern);
    const size_t length = strlen(pattern);
    json_t *list = json_array();
    for (int64_t i = 0; i < layers; i++) {
        const char letter = pattern[(size_t)i % length];
        const HfWord *word = find_letter(key->words, letter);
        json_t *item = !word                    ? NULL
                       : key->kind == HF_LAYERS ? json_string(word->theirs)
                       : word == key->words     ? json_integer(i)
                                                : json_null();
        if (!item) {
            *out_missing = letter;
            json_decref(list);
            return NULL;
        }
        if (json_is_null(item)) continue; /* no place */
        json_array_append_new(list, item);
    }
    return list;
}
