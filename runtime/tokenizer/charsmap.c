#include "runtime/tokenizer/charsmap.h"

#include "ir/base/utf8.h"

#include <string.h>

/* A unit of Darts-clone's: bits 0-7 are its label, and bit 31 says that it has none but a value, in
 * bits 0-30; bit 8, that a value is below it; bits 10-30, shifted by 8 where bit 9 is set, how far
 * what is below it is away. */
static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static uint32_t read_u32(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool fits(const Charsmap *map) {
    size_t longest = 0, begin = 0;
    for (size_t i = 0; i < map->n_texts; i++) {
        if (map->texts[i]) continue;
        if (i - begin > longest) longest = i - begin;
        begin = i + 1;
    }
    return longest <= CHARSMAP_MOST_TEXT &&
           utf8_valid_bytes((const unsigned char *)map->texts, map->n_texts) == map->n_texts;
}

Charsmap *charsmap_read(const unsigned char *bytes, size_t length, Arena *arena, SourceLoc loc,
                        Diag *diag) {
    size_t n_bytes = length >= 4 ? read_u32(bytes) : 0;
    if (n_bytes < 4 || n_bytes % 4 != 0 || n_bytes > length - 4) {
        diag_error(diag, loc,
                   "precompiled_charsmap: %zu bytes, in which the trie does not fit that they "
                   "begin with",
                   length);
        return NULL;
    }
    Charsmap *map = ARENA_ARRAY(arena, Charsmap, 1);
    *map = (Charsmap){.n_units = n_bytes / 4, .n_texts = length - 4 - n_bytes + 1};
    map->units = ARENA_ARRAY(arena, uint32_t, map->n_units);
    map->texts = ARENA_ARRAY(arena, char, map->n_texts);
    for (size_t i = 0; i < map->n_units; i++) map->units[i] = read_u32(bytes + 4 + 4 * i);
    memcpy(map->texts, bytes + 4 + n_bytes, map->n_texts - 1);
    map->texts[map->n_texts - 1] = '\0';
    if (!fits(map)) {
        diag_error(diag, loc,
                   "precompiled_charsmap: its replacements are not UTF-8, or one has more than %d "
                   "bytes",
                   CHARSMAP_MOST_TEXT);
        return NULL;
    }
    for (unsigned char c = 0; c < 128; c++) map->stays[c] = !charsmap_find(map, &c, 1);
    map->stays['\r'] = false; /* together with a \n it may be something else */
    return map;
}

/* Where the byte leads from *at. *out_text: what becomes of what ends with it, if anything does.
 * False: nothing that begins so is known. */
static bool step(const Charsmap *map, size_t *at, unsigned char byte, const char **out_text) {
    *out_text = NULL;
    *at ^= byte;
    if (*at >= map->n_units) return false;
    const uint32_t unit = map->units[*at];
    if ((unit & (1u << 31 | 0xff)) != byte) return false;
    *at ^= offset_of(unit);
    if (!(unit & 1u << 8)) return true;
    const size_t text = *at < map->n_units ? map->units[*at] & ~(1u << 31) : map->n_texts;
    /* Within a character there is none. */
    if (text >= map->n_texts || (map->texts[text] & 0xc0) == 0x80) return false;
    *out_text = map->texts + text;
    return true;
}

const char *charsmap_find(const Charsmap *map, const unsigned char *chunk, size_t length) {
    size_t at = offset_of(map->units[0]);
    const char *text = NULL;
    for (size_t i = 0; i < length && chunk[i] && !text; i++) {
        if (!step(map, &at, chunk[i], &text)) break;
    }
    return text;
}

const char *charsmap_find_longest(const Charsmap *map, const unsigned char *text, size_t length,
                                  size_t *out_taken) {
    size_t at = offset_of(map->units[0]);
    const char *longest = NULL, *mapped;
    for (size_t i = 0; i < length && text[i] && step(map, &at, text[i], &mapped); i++) {
        const bool is_whole = i + 1 == length || (text[i + 1] & 0xc0) != 0x80;
        if (!mapped || !is_whole) continue;
        longest = mapped;
        *out_taken = i + 1;
    }
    return longest;
}
