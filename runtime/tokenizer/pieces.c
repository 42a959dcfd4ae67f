#include "runtime/tokenizer/pieces.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <stdlib.h>

#define NOWHERE UINT32_MAX

void pieces_release(Pieces *pieces) {
    piece_trie_release(&pieces->trie);
    free(pieces->scores);
    *pieces = (Pieces){0};
}

void piece_path_release(PiecePath *path) {
    free(path->scores);
    free(path->steps);
    free(path->ids);
    *path = (PiecePath){0};
}

static void reserve(PiecePath *path, size_t n) {
    if (n <= path->capacity) return;
    piece_path_release(path);
    path->capacity = 2 * n;
    path->scores = memory_alloc(path->capacity * sizeof(*path->scores));
    path->steps = memory_alloc(path->capacity * sizeof(*path->steps));
    path->ids = memory_alloc(path->capacity * sizeof(*path->ids));
}

/* A piece from `begin` to `end`, if that is the best way there so far. */
static void offer(PiecePath *path, size_t begin, size_t end, uint32_t id, double score) {
    if (path->steps[end] != NOWHERE && !(score > path->scores[end])) return;
    path->scores[end] = score;
    path->steps[end] = (uint32_t)begin;
    path->ids[end] = id;
}

void unigram_divide(const Pieces *pieces, PiecePath *path, const unsigned char *word,
                    size_t length) {
    size_t bytes;
    reserve(path, length + 1);
    path->scores[0] = 0;
    for (size_t i = 0; i <= length; i++) path->steps[i] = NOWHERE;
    for (size_t begin = 0; begin < length; begin += bytes) {
        uint32_t character, state = 0;
        int valid = utf8_read(word + begin, length - begin, &character);
        bool has_one = false;
        bytes = valid ? (size_t)valid : 1;
        for (size_t at = begin; at < length;) {
            state = piece_trie_step(&pieces->trie, state, word[at++]);
            if (!state) break;
            uint32_t id = pieces->trie.units[state].id;
            if (id == NO_TOKEN) continue;
            offer(path, begin, at, id, path->scores[begin] + pieces->scores[id]);
            has_one |= at == begin + bytes;
        }
        if (has_one) continue;
        offer(path, begin, begin + bytes, NO_TOKEN, path->scores[begin] + pieces->unknown_score);
    }
    /* Steps back become steps forward. */
    for (size_t end = length, behind = NOWHERE; end != NOWHERE;) {
        size_t before = end > 0 ? path->steps[end] : NOWHERE;
        path->steps[end] = (uint32_t)behind;
        behind = end;
        end = before;
    }
}

size_t wordpiece_divide(const Pieces *pieces, const unsigned char *word, size_t length,
                        uint32_t *out) {
    size_t n_characters = 0, n = 0;
    for (size_t i = 0; i < length; i++) n_characters += (word[i] & 0xc0) != 0x80;
    if (n_characters > pieces->most_characters) return 0;
    for (size_t begin = 0, end; begin < length; begin = end) {
        uint32_t state = begin ? pieces->inside : 0, longest = NO_TOKEN;
        if (begin && !pieces->has_inside) return 0;
        end = begin;
        for (size_t at = begin; at < length;) {
            state = piece_trie_step(&pieces->trie, state, word[at++]);
            if (!state) break;
            if (pieces->trie.units[state].id == NO_TOKEN) continue;
            longest = pieces->trie.units[state].id;
            end = at;
        }
        if (longest == NO_TOKEN) return 0;
        out[n++] = longest;
    }
    return n;
}
