#include "runtime/tokenizer/sentencepiece_text.h"

#include "ir/base/utf8.h"
#include "runtime/tokenizer/normalize.h"

#include <string.h>

enum { MARK_BYTES = sizeof(SPACE_MARK) - 1 };

void sentencepiece_text_release(SentencePieceText *rules) {
    if (rules) piece_trie_release(&rules->symbols);
}

/* The longest symbol that text [length] begins with; 0: none. */
static size_t match_symbol(const SentencePieceText *rules, const unsigned char *text,
                           size_t length) {
    size_t longest = 0;
    uint32_t state = 0;
    for (size_t at = 0; rules->has_symbols && at < length;) {
        state = piece_trie_step(&rules->symbols, state, text[at++]);
        if (!state) break;
        if (rules->symbols.units[state].id != NO_TOKEN) longest = at;
    }
    return longest;
}

/* What the beginning of a text becomes: `taken` bytes of it. */
typedef struct Piece {
    const unsigned char *text;
    size_t length, taken;
} Piece;

static Piece next_piece(const SentencePieceText *rules, const unsigned char *text, size_t length) {
    size_t taken = match_symbol(rules, text, length);
    if (taken) return (Piece){text, taken, taken};
    const Charsmap *map = rules->charsmap;
    const char *mapped = NULL;
    if (map) mapped = charsmap_find_longest(map, text, length, &taken);
    if (mapped) return (Piece){(const unsigned char *)mapped, strlen(mapped), taken};
    uint32_t character;
    taken = (size_t)utf8_read(text, length, &character);
    return (Piece){text, taken, taken};
}

static void put_marked(const unsigned char *text, size_t length, NormalBuffer *out) {
    for (size_t at = 0; at < length;) {
        const unsigned char *space = memchr(text + at, ' ', length - at);
        const size_t end = space ? (size_t)(space - text) : length;
        normal_buffer_put(out, text + at, end - at);
        if (space) normal_buffer_put(out, SPACE_MARK, MARK_BYTES);
        at = end + (space != NULL);
    }
}

static bool ends_with_mark(const NormalBuffer *out) {
    return out->length >= MARK_BYTES &&
           memcmp(out->bytes + out->length - MARK_BYTES, SPACE_MARK, MARK_BYTES) == 0;
}

void sentencepiece_text(const SentencePieceText *rules, const unsigned char *text, size_t length,
                        bool begins, NormalBuffer *out) {
    size_t at = 0;
    bool after_space = rules->trims && begins;
    while (after_space && at < length) {
        const Piece piece = next_piece(rules, text + at, length - at);
        if (piece.length != 1 || piece.text[0] != ' ') break;
        at += piece.taken;
    }
    if (at == length) return;
    if (begins && rules->prefix) normal_buffer_put(out, SPACE_MARK, MARK_BYTES);
    while (at < length) {
        Piece piece = next_piece(rules, text + at, length - at);
        at += piece.taken;
        while (after_space && piece.length > 0 && piece.text[0] == ' ') {
            piece.text++;
            piece.length--;
        }
        if (piece.length == 0) continue;
        put_marked(piece.text, piece.length, out);
        after_space = rules->trims && piece.text[piece.length - 1] == ' ';
    }
    while (rules->trims && ends_with_mark(out)) out->length -= MARK_BYTES;
}
