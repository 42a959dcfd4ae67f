#include "runtime/tokenizer/normalize.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void normalizer_release(Normalizer *normalizer) {
    for (int i = 0; i < normalizer->count; i++) {
        pattern_destroy(normalizer->items[i].pattern);
        sentencepiece_text_release(normalizer->items[i].rules);
    }
    *normalizer = (Normalizer){.count = 0};
}

void normal_text_release(NormalText *room) {
    for (int i = 0; i < 2; i++) free(room->buffers[i].bytes);
    pattern_space_destroy(room->patterns);
    *room = (NormalText){.patterns = NULL};
}

void normal_buffer_put(NormalBuffer *out, const void *bytes, size_t length) {
    if (out->most && (out->full || length > out->most - out->length)) {
        out->full = true;
        return;
    }
    if (length > out->capacity - out->length) {
        out->capacity = 2 * (out->length + length);
        out->bytes = memory_grow(out->bytes, out->capacity);
    }
    if (length) memcpy(out->bytes + out->length, bytes, length);
    out->length += length;
}

/* How many bytes from the beginning on are ASCII. */
static size_t ascii_bytes(const unsigned char *text, size_t length) {
    size_t at = 0;
    uint64_t eight;
    for (; at + 8 <= length; at += 8) {
        memcpy(&eight, text + at, 8);
        if (eight & 0x8080808080808080u) break;
    }
    while (at < length && text[at] < 0x80) at++;
    return at;
}

/* --- forms --- */

/* Characters that stay as they are beside whatever other ones that stay: they combine with nothing
 * and nothing becomes them (NFC_Quick_Check=Yes, class 0). Some ranges of much used ones; the rest
 * is left to utf8proc. */
static bool is_inert(uint32_t c) {
    return c < 0x300 || (c >= 0x400 && c < 0x483) || (c >= 0x2010 && c < 0x2028) ||
           (c >= 0x3000 && c < 0x302a) || (c >= 0x3041 && c < 0x3097) ||
           (c >= 0x30a0 && c < 0x3100) || (c >= 0x3400 && c < 0x4dc0) ||
           (c >= 0x4e00 && c < 0xa000) || (c >= 0xac00 && c < 0xd7a4) ||
           (c >= 0xff00 && c < 0xfff0) || (c >= 0x1f300 && c < 0x1fb00);
}

/* How many bytes from the beginning on need no second look. */
static size_t inert_bytes(const unsigned char *text, size_t length, NormalForm form) {
    size_t at = 0;
    if (form != NORMAL_FORM_C) return ascii_bytes(text, length);
    while (at < length) {
        uint64_t eight;
        uint32_t character;
        if (at + 8 <= length) {
            memcpy(&eight, text + at, 8);
            if (!(eight & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        int bytes = utf8_read(text + at, length - at, &character);
        if (bytes == 0 || !is_inert(character)) break;
        at += (size_t)bytes;
    }
    return at;
}

/* Marks [n] by their combining classes; those of one class stay in order (UAX #15, canonical
 * ordering). A run of them can be a whole text, so by counting. */
static void order_marks(utf8proc_int32_t *marks, size_t n) {
    enum { N_CLASSES = 256 };
    size_t first[N_CLASSES + 1] = {0};
    utf8proc_int32_t *before = memory_alloc(n * sizeof(*before));
    memcpy(before, marks, n * sizeof(*before));
    for (size_t i = 0; i < n; i++) first[utf8proc_get_property(before[i])->combining_class + 1]++;
    for (int c = 0; c < N_CLASSES; c++) first[c + 1] += first[c];
    for (size_t i = 0; i < n; i++) {
        marks[first[utf8proc_get_property(before[i])->combining_class]++] = before[i];
    }
    free(before);
}

static void order_characters(utf8proc_int32_t *characters, size_t n) {
    for (size_t at = 0, begin; at < n; at++) {
        int last = 0;
        bool ordered = true;
        for (begin = at; at < n; at++) {
            int class = utf8proc_get_property(characters[at])->combining_class;
            if (class == 0) break;
            ordered &= class >= last;
            last = class;
        }
        if (!ordered) order_marks(characters + begin, at - begin);
    }
}

/* One run from an ASCII character, or the text's beginning, up to the next: nothing combines across
 * its ends. utf8proc_map does the same, but in a time that is quadratic in a run of marks. */
static void put_form(NormalBuffer *out, const unsigned char *run, size_t length, NormalForm form) {
    enum { MOST_OF_ONE = 18 }; /* characters that one decomposes to: U+FDFA */
    static const int OPTIONS[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE,
                                  UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                  UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    const utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_STABLE | OPTIONS[form]);
    size_t n = 0, capacity = 2 * length + MOST_OF_ONE + 1; /* one: utf8proc_reencode's zero */
    utf8proc_int32_t *characters = memory_alloc(capacity * sizeof(*characters)), character;
    for (size_t at = 0; at < length;) {
        at += (size_t)utf8proc_iterate(run + at, (utf8proc_ssize_t)(length - at), &character);
        if (capacity - n <= MOST_OF_ONE) {
            capacity *= 2;
            utf8proc_int32_t *more = memory_grow(characters, capacity * sizeof(*characters));
            characters = more;
        }
        int boundary = 0;
        n += (size_t)utf8proc_decompose_char(character, characters + n, MOST_OF_ONE, options,
                                             &boundary);
    }
    order_characters(characters, n);
    utf8proc_ssize_t bytes = utf8proc_reencode(characters, (utf8proc_ssize_t)n, options);
    if (bytes < 0) BUG("utf8proc: %s", utf8proc_errmsg(bytes));
    normal_buffer_put(out, characters, (size_t)bytes);
    free(characters);
}

static bool apply_form(const NormalStep *step, const unsigned char *text, size_t length,
                       NormalBuffer *out) {
    size_t copied = 0, at = inert_bytes(text, length, step->form);
    if (at == length) return false;
    while (at < length) { /* what is before it is normal */
        size_t begin = at, end = at;
        while (begin > copied && text[begin] >= 0x80) begin--;
        while (end < length && text[end] >= 0x80) end++;
        normal_buffer_put(out, text + copied, begin - copied);
        put_form(out, text + begin, end - begin, step->form);
        copied = end;
        at = end + inert_bytes(text + end, length - end, step->form);
    }
    normal_buffer_put(out, text + copied, length - copied);
    return true;
}

/* --- characters --- */

static bool apply_change(const NormalStep *step, const unsigned char *text, size_t length,
                         NormalBuffer *out) {
    uint32_t character = 0, changed[CHANGED_MOST];
    size_t copied = 0;
    for (size_t at = 0; at < length;) {
        size_t bytes = (size_t)utf8_read(text + at, length - at, &character);
        int n = step->change(character, changed);
        if (n != 1 || changed[0] != character) {
            normal_buffer_put(out, text + copied, at - copied);
            for (int i = 0; i < n; i++) {
                unsigned char written[4];
                normal_buffer_put(out, written, (size_t)utf8_write(changed[i], written));
            }
            copied = at + bytes;
        }
        at += bytes;
    }
    if (copied == 0) return false;
    normal_buffer_put(out, text + copied, length - copied);
    return true;
}

/* --- what is put in, and left out --- */

static bool apply_strip(const NormalStep *step, const unsigned char *text, size_t length,
                        NormalBuffer *out) {
    size_t begin = 0, end = length;
    uint32_t character = 0;
    while (step->left && begin < length) {
        int bytes = utf8_read(text + begin, length - begin, &character);
        if (!utf8_is_space(character)) break;
        begin += (size_t)bytes;
    }
    while (step->right && end > begin) {
        size_t last = end - 1;
        while ((text[last] & 0xc0) == 0x80) last--;
        utf8_read(text + last, end - last, &character);
        if (!utf8_is_space(character)) break;
        end = last;
    }
    if (begin == 0 && end == length) return false;
    normal_buffer_put(out, text + begin, end - begin);
    return true;
}

static void replace_byte(const NormalStep *step, const unsigned char *text, size_t length,
                         NormalBuffer *out) {
    size_t n = strlen(step->text);
    for (size_t at = 0; at < length;) {
        const unsigned char *found = memchr(text + at, step->byte, length - at);
        size_t end = found ? (size_t)(found - text) : length;
        normal_buffer_put(out, text + at, end - at);
        if (found) normal_buffer_put(out, step->text, n);
        at = end + (found != NULL);
    }
}

/* False: the pattern gave up. Empty matches replace nothing. */
static bool replace_pattern(const NormalStep *step, const unsigned char *text, size_t length,
                            PatternSpace *space, NormalBuffer *out) {
    size_t copied = 0, from = 0, begin, end;
    while (from <= length) {
        PatternResult result =
            pattern_find(step->pattern, space, text, length, false, from, &begin, &end);
        if (result == PATTERN_GAVE_UP) return false;
        if (result == PATTERN_NOT_FOUND) break;
        from = end;
        if (begin == end) {
            do from++;
            while (from < length && (text[from] & 0xc0) == 0x80);
            continue;
        }
        normal_buffer_put(out, text + copied, begin - copied);
        normal_buffer_put(out, step->text, strlen(step->text));
        copied = end;
    }
    normal_buffer_put(out, text + copied, length - copied);
    return true;
}

/* --- SentencePiece's --- */

/* The end of the grapheme at `at` (UAX #29). */
static size_t grapheme_end(const unsigned char *text, size_t length, size_t at) {
    uint32_t character = 0, next = 0;
    utf8proc_int32_t state = 0;
    at += (size_t)utf8_read(text + at, length - at, &character);
    while (at < length) {
        int bytes = utf8_read(text + at, length - at, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)character, (utf8proc_int32_t)next,
                                             &state)) {
            break;
        }
        character = next;
        at += (size_t)bytes;
    }
    return at;
}

static void put_mapped(const Charsmap *map, const unsigned char *text, size_t length,
                       NormalBuffer *out) {
    enum { SHORT = 6 }; /* from here on, characters by themselves, as Hugging Face's do */
    const char *mapped = length < SHORT ? charsmap_find(map, text, length) : NULL;
    if (mapped) {
        normal_buffer_put(out, mapped, strlen(mapped));
        return;
    }
    for (size_t at = 0, bytes; at < length; at += bytes) {
        uint32_t character;
        bytes = (size_t)utf8_read(text + at, length - at, &character);
        mapped = charsmap_find(map, text + at, bytes);
        if (mapped) {
            normal_buffer_put(out, mapped, strlen(mapped));
        } else {
            normal_buffer_put(out, text + at, bytes);
        }
    }
}

static bool apply_charsmap(const NormalStep *step, const unsigned char *text, size_t length,
                           NormalBuffer *out) {
    const Charsmap *map = step->charsmap;
    size_t at = 0;
    while (at < length) {
        size_t begin = at;
        while (at < length && text[at] < 0x80 && map->stays[text[at]]) at++;
        /* What comes next may be of one grapheme with the last of them; and \r\n are one. */
        if (at < length && at > begin) at--;
        if (begin == 0 && at == length) return false;
        normal_buffer_put(out, text + begin, at - begin);
        if (at == length) break;
        size_t end = grapheme_end(text, length, at);
        put_mapped(map, text + at, end - at, out);
        at = end;
    }
    return true;
}

/* --- all steps --- */

/* *out_changed: the text is now what `out` holds. False: a pattern gave up. */
static bool apply(const NormalStep *step, const unsigned char *text, size_t length, bool begins,
                  PatternSpace *patterns, NormalBuffer *out, bool *out_changed) {
    *out_changed = true;
    switch (step->kind) {
    case NORMAL_FORM: *out_changed = apply_form(step, text, length, out); break;
    case NORMAL_CHARACTERS: *out_changed = apply_change(step, text, length, out); break;
    case NORMAL_STRIP: *out_changed = apply_strip(step, text, length, out); break;
    case NORMAL_PRECOMPILED: *out_changed = apply_charsmap(step, text, length, out); break;
    case NORMAL_SENTENCEPIECE: sentencepiece_text(step->rules, text, length, begins, out); break;
    case NORMAL_PREPEND:
        *out_changed = begins && length > 0;
        if (!*out_changed) break;
        normal_buffer_put(out, step->text, strlen(step->text));
        normal_buffer_put(out, text, length);
        break;
    case NORMAL_REPLACE:
        if (step->pattern) return replace_pattern(step, text, length, patterns, out);
        replace_byte(step, text, length, out);
        break;
    }
    return true;
}

bool normalize(const Normalizer *normalizer, const unsigned char *text, size_t length, bool begins,
               NormalText *room, const unsigned char **out_text, size_t *out_length) {
    const size_t most = NORMAL_GROWTH * length + NORMAL_MORE_BYTES;
    int into = 0;
    if (normalizer->count && !room->patterns) room->patterns = pattern_space_create();
    for (int i = 0; i < normalizer->count; i++) {
        NormalBuffer *out = &room->buffers[into];
        bool changed;
        out->length = 0;
        out->most = most;
        out->full = false;
        bool fine =
            apply(&normalizer->items[i], text, length, begins, room->patterns, out, &changed);
        room->grew = out->full;
        if (!fine || out->full) return false;
        if (!changed) continue;
        text = out->bytes ? out->bytes : (const unsigned char *)"";
        length = out->length;
        into = !into;
    }
    *out_text = text;
    *out_length = length;
    return true;
}
