#include "runtime/tokenizer/unigram_text.h"

#include "ir/base/memory.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/piece_lattice.h"

#include <stdlib.h>
#include <string.h>

enum { N_CHARACTERS = 0x110000 };

void unigram_text_release(UnigramText *text) {
    word_counts_release(&text->parts);
    free(text->words);
    free(text->characters);
    *text = (UnigramText){0};
}

/* --- characters --- */

static int compare_characters(const void *left, const void *right) {
    const UnigramCharacter *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return (a->character > b->character) - (a->character < b->character);
}

/* [N_CHARACTERS] how often each comes; the caller frees it. */
static int64_t *count_characters(const WordCounts *counts) {
    int64_t *out = memory_zeroed(N_CHARACTERS, sizeof(*out));
    for (size_t w = 0; w < counts->n_items; w++) {
        const unsigned char *word = counts->bytes + counts->items[w].begin;
        size_t length = counts->items[w].length;
        for (size_t at = 0; at < length;) {
            uint32_t character;
            int bytes = utf8_read(word + at, length - at, &character);
            if (bytes) out[character] += counts->items[w].count;
            at += bytes ? (size_t)bytes : 1;
        }
    }
    out[0] = 0;
    return out;
}

/* Those that are required stay in `counts`, the others become 0. */
static void choose_characters(UnigramText *text, int64_t *counts, double coverage) {
    uint32_t n = 0, kept = 0;
    int64_t all = 0, covered = 0;
    for (uint32_t c = 0; c < N_CHARACTERS; c++) {
        n += counts[c] > 0;
        all += counts[c];
    }
    text->characters = memory_alloc((n + 1) * sizeof(*text->characters));
    for (uint32_t c = 0; c < N_CHARACTERS; c++) {
        if (counts[c] > 0) text->characters[kept++] = (UnigramCharacter){c, counts[c]};
    }
    qsort(text->characters, n, sizeof(*text->characters), compare_characters);
    for (kept = 0; kept < n && (double)covered < coverage * (double)all; kept++) {
        covered += text->characters[kept].count;
    }
    for (uint32_t i = kept; i < n; i++) counts[text->characters[i].character] = 0;
    text->n_characters = kept;
}

/* --- words --- */

static void add_word(UnigramText *text, const unsigned char *word, size_t length, int64_t count,
                     const int64_t *characters) {
    size_t begin = 0, n = 0;
    for (size_t at = 0; at < length;) {
        uint32_t character;
        int valid = utf8_read(word + at, length - at, &character);
        size_t bytes = valid ? (size_t)valid : 1;
        bool is_known = valid && characters[character] > 0;
        if ((!is_known || n == LATTICE_MOST_CHARACTERS) && at > begin) {
            word_counts_add(&text->parts, word + begin, at - begin, count);
            begin = at;
            n = 0;
        }
        at += bytes;
        n++;
        if (is_known) {
            text->n_in_all += count;
            continue;
        }
        begin = at;
        n = 0;
    }
    if (length > begin) word_counts_add(&text->parts, word + begin, length - begin, count);
}

static int compare_words(const void *left, const void *right) {
    const UnigramWord *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

void unigram_text_make(UnigramText *text, const WordCounts *counts, double coverage) {
    *text = (UnigramText){0};
    int64_t *characters = count_characters(counts);
    choose_characters(text, characters, coverage);
    for (size_t w = 0; w < counts->n_items; w++) {
        const WordCount *word = &counts->items[w];
        if (word->count <= 0) continue;
        add_word(text, counts->bytes + word->begin, word->length, word->count, characters);
    }
    free(characters);
    text->n_words = text->parts.n_items;
    text->words = memory_alloc((text->n_words + 1) * sizeof(*text->words));
    for (size_t w = 0; w < text->n_words; w++) {
        const WordCount *word = &text->parts.items[w];
        text->words[w] = (UnigramWord){text->parts.bytes + word->begin, word->length, word->count};
    }
    if (text->n_words) qsort(text->words, text->n_words, sizeof(*text->words), compare_words);
}
