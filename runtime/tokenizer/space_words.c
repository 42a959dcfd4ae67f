#include "runtime/tokenizer/space_words.h"

#include <string.h>

enum { MARK_BYTES = sizeof(SPACE_MARK) - 1 };

static bool begins_with_mark(const unsigned char *text, size_t length) {
    return length >= MARK_BYTES && memcmp(text, SPACE_MARK, MARK_BYTES) == 0;
}

/* Is there a mark behind something else? */
static bool goes_over_space(const unsigned char *text, size_t length) {
    size_t at = 0;
    while (begins_with_mark(text + at, length - at)) at += MARK_BYTES;
    for (; at < length; at++) {
        if (begins_with_mark(text + at, length - at)) return true;
    }
    return false;
}

/* What is unknown in a row is one token: a mark has to be known. */
static bool tokens_end_at_spaces(const Tokenizer *tokenizer) {
    const Vocabulary *vocabulary = &tokenizer->vocabulary;
    if (vocabulary_find(vocabulary, SPACE_MARK, MARK_BYTES) == NO_TOKEN) return false;
    for (uint32_t id = 0; id < vocabulary->n_ids; id++) {
        size_t length;
        const unsigned char *text = vocabulary_bytes(vocabulary, id, &length);
        if (goes_over_space(text, length)) return false;
    }
    return true;
}

void tokenizer_divide_at_spaces(Tokenizer *tokenizer) {
    static const char WORDS[] = SPACE_MARK "+[^" SPACE_MARK "]*|[^" SPACE_MARK "]+";
    const bool spells = tokenizer->kind == TOKENIZER_UNIGRAM ||
                        (tokenizer->kind == TOKENIZER_BPE && !tokenizer->byte_level);
    /* Words that are tokens by themselves would be other ones. */
    if (!spells || tokenizer->whole_words || tokenizer->steps.count > 0 ||
        !tokens_end_at_spaces(tokenizer)) {
        return;
    }
    Diag *diag = diag_create();
    Pattern *pattern = pattern_compile(WORDS, PATTERN_ONIGURUMA, NO_LOC, diag);
    if (!pattern) BUG("%s", diag_text(diag));
    tokenizer->steps.items[tokenizer->steps.count++] =
        (WordStep){.pattern = pattern, .behavior = SPLIT_ISOLATED};
    diag_destroy(diag);
}
