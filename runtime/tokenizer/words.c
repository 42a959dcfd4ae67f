#include "runtime/tokenizer/words.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"

#include <stdlib.h>
#include <string.h>

void word_steps_release(WordSteps *steps) {
    for (int i = 0; i < steps->count; i++) pattern_destroy(steps->items[i].pattern);
    *steps = (WordSteps){.count = 0};
}

WordSpace *word_space_create(void) {
    WordSpace *space = memory_zeroed(1, sizeof(*space));
    space->patterns = pattern_space_create();
    return space;
}

void word_space_destroy(WordSpace *space) {
    if (!space) return;
    pattern_space_destroy(space->patterns);
    for (int i = 0; i < MAX_WORD_STEPS; i++) free(space->marked[i]);
    free(space);
}

/* One call of words_divide, or of words_divide_piece. */
typedef struct Division {
    const WordSteps *steps;
    WordSpace *space;
    WordTaker *take;
    void *user;
    bool continues;
} Division;

static WordResult divide(const Division *division, int step, const unsigned char *text,
                         size_t length);

static WordResult put_marks(const Division *division, int step, const unsigned char *text,
                            size_t length) {
    const WordStep *how = &division->steps->items[step];
    WordSpace *space = division->space;
    size_t n_mark = strlen(how->mark), n = 0;
    bool marked =
        length == 0 || text[0] == ' ' || (length >= n_mark && memcmp(text, how->mark, n_mark) == 0);
    bool prefix = how->prefix && !marked && !(division->continues && step == 0);
    if (!prefix && (n_mark == 1 || !memchr(text, ' ', length))) {
        return divide(division, step + 1, text, length);
    }
    if ((length + 1) * n_mark > space->capacity[step]) {
        free(space->marked[step]);
        space->capacity[step] = 2 * (length + 1) * n_mark + 64;
        space->marked[step] = memory_alloc(space->capacity[step]);
    }
    unsigned char *out = space->marked[step];
    if (prefix) memcpy(out, how->mark, n = n_mark);
    for (size_t at = 0; at < length;) {
        const unsigned char *found = memchr(text + at, ' ', length - at);
        size_t end = found ? (size_t)(found - text) : length;
        memcpy(out + n, text + at, end - at);
        n += end - at;
        if (found) {
            memcpy(out + n, how->mark, n_mark);
            n += n_mark;
        }
        at = end + (found != NULL);
    }
    return divide(division, step + 1, out, n);
}

/* --- matches --- */

/* Walks through a text's parts, matches and what lies between them. */
typedef struct Parts {
    const WordStep *step;
    PatternSpace *patterns;
    const unsigned char *text;
    size_t length, at; /* parts before `at` have been told */
    bool goes_on;      /* more text may follow */
    size_t match_begin, match_end;
    bool has_match; /* one that is not told yet */
    bool is_over;   /* no more of them */
} Parts;

/* How far a character reaches from `at` on. */
static size_t next_character(const unsigned char *text, size_t length, size_t at) {
    do at++;
    while (at < length && (text[at] & 0xc0) == 0x80);
    return at;
}

/* The next part that is not empty: its end, and whether it is a match. An empty match divides what
 * it stands between. */
static PatternResult next_part(Parts *parts, size_t *out_end, bool *out_is_match) {
    size_t from = parts->at;
    while (!parts->has_match && !parts->is_over) {
        PatternResult result =
            from > parts->length
                ? PATTERN_NOT_FOUND
                : pattern_find(parts->step->pattern, parts->patterns, parts->text, parts->length,
                               parts->goes_on, from, &parts->match_begin, &parts->match_end);
        if (result == PATTERN_GAVE_UP || result == PATTERN_CUT_OFF) return result;
        parts->is_over = result == PATTERN_NOT_FOUND;
        if (parts->is_over) break;
        bool is_empty = parts->match_begin == parts->match_end;
        if (is_empty && parts->match_begin == parts->at) {
            from = next_character(parts->text, parts->length, parts->match_begin);
            continue;
        }
        parts->has_match = true;
    }
    if (!parts->has_match) {
        *out_end = parts->length;
        *out_is_match = false;
    } else if (parts->match_begin > parts->at) {
        *out_end = parts->match_begin;
        *out_is_match = false;
        if (parts->match_begin == parts->match_end) parts->has_match = false;
    } else {
        *out_end = parts->match_end;
        *out_is_match = true;
        parts->has_match = false;
    }
    return PATTERN_FOUND;
}

/* Whether a word ends between two parts. */
static bool ends_between(SplitBehavior behavior, bool is_match, bool next_is_match) {
    switch (behavior) {
    case SPLIT_ISOLATED:
    case SPLIT_REMOVED: return true;
    case SPLIT_CONTIGUOUS: return is_match != next_is_match;
    case SPLIT_MERGED_WITH_PREVIOUS: return is_match || !next_is_match;
    case SPLIT_MERGED_WITH_NEXT: return !is_match || next_is_match;
    }
    return true;
}

static WordResult split(const Division *division, int step, const unsigned char *text,
                        size_t length) {
    const WordStep *how = &division->steps->items[step];
    Parts parts = {
        .step = how, .patterns = division->space->patterns, .text = text, .length = length};
    size_t begin = 0; /* of the word that is being put together */
    bool has_word = false, last_is_match = false;
    while (parts.at < length) {
        size_t end = length, part = parts.at;
        bool is_match = false;
        if (next_part(&parts, &end, &is_match) == PATTERN_GAVE_UP) return WORDS_GAVE_UP;
        parts.at = end;
        is_match ^= how->invert;
        if (has_word && ends_between(how->behavior, last_is_match, is_match)) {
            WordResult result = divide(division, step + 1, text + begin, part - begin);
            if (result != WORDS_TAKEN) return result;
            has_word = false;
        }
        last_is_match = is_match;
        if (how->behavior == SPLIT_REMOVED && is_match) continue;
        if (!has_word) begin = part;
        has_word = true;
    }
    return has_word ? divide(division, step + 1, text + begin, length - begin) : WORDS_TAKEN;
}

/* Matches as words, the usual case, without what the others need. */
static WordResult isolate(const Division *division, int step, const unsigned char *text,
                          size_t length) {
    Parts parts = {.step = &division->steps->items[step],
                   .patterns = division->space->patterns,
                   .text = text,
                   .length = length};
    while (parts.at < length) {
        size_t end = length, part = parts.at;
        bool is_match;
        if (next_part(&parts, &end, &is_match) == PATTERN_GAVE_UP) return WORDS_GAVE_UP;
        parts.at = end;
        WordResult result = divide(division, step + 1, text + part, end - part);
        if (result != WORDS_TAKEN) return result;
    }
    return WORDS_TAKEN;
}

static WordResult divide(const Division *division, int step, const unsigned char *text,
                         size_t length) {
    if (length == 0) return WORDS_TAKEN;
    if (step == division->steps->count) {
        return division->take(division->user, text, length) ? WORDS_TAKEN : WORDS_STOPPED;
    }
    const WordStep *how = &division->steps->items[step];
    if (!how->pattern) return put_marks(division, step, text, length);
    return how->behavior == SPLIT_ISOLATED ? isolate(division, step, text, length)
                                           : split(division, step, text, length);
}

WordResult words_divide(const WordSteps *steps, WordSpace *space, const unsigned char *text,
                        size_t length, bool continues, WordTaker *take, void *user) {
    return divide(&(Division){steps, space, take, user, continues}, 0, text, length);
}

/* --- the first step alone --- */

bool words_can_begin_anywhere(const WordSteps *steps) {
    const WordStep *first = &steps->items[0];
    return steps->count > 0 && first->pattern && first->behavior == SPLIT_ISOLATED &&
           pattern_looks_ahead_only(first->pattern);
}

WordResult words_next_piece(const WordSteps *steps, WordSpace *space, const unsigned char *text,
                            size_t length, bool goes_on, size_t from, size_t *out_end) {
    Parts parts = {.step = &steps->items[0],
                   .patterns = space->patterns,
                   .text = text,
                   .length = length,
                   .at = from,
                   .goes_on = goes_on};
    bool is_match;
    *out_end = length;
    PatternResult result = next_part(&parts, out_end, &is_match);
    if (result == PATTERN_CUT_OFF) return WORDS_CUT_OFF;
    return result == PATTERN_GAVE_UP ? WORDS_GAVE_UP : WORDS_TAKEN;
}

WordResult words_divide_piece(const WordSteps *steps, WordSpace *space, const unsigned char *piece,
                              size_t length, WordTaker *take, void *user) {
    return divide(&(Division){steps, space, take, user, false}, 1, piece, length);
}
