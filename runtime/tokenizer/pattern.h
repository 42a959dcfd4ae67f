/* Regular expressions that divide text into words, by PCRE2: UTF-8, Unicode properties, compiled to
 * machine code, and with limits, so that no pattern hangs on any text. Those of well-known
 * tokenizers take time in proportion to the text; where others take its square (they look far ahead
 * from everywhere), they give up after seconds of processor time.
 *
 * Tokenizers' files are written for other engines. Two dialects are understood, and turned into
 * PCRE2's where they differ:
 *   - PATTERN_ONIGURUMA, of tokenizer.json: ^ and $ are at lines, \uHHHH, \h is a hexadecimal digit
 *   - PATTERN_RUST, of tiktoken: ^ and $ are at the text's ends
 * \s is White_Space in both. What PCRE2 would take for something else is refused: sets within sets,
 * && in a set, and in Oniguruma's {n,m}+, which there is not possessive. PCRE2 10.42 knows the
 * characters of Unicode 14. */
#ifndef RUNTIME_TOKENIZER_PATTERN_H
#define RUNTIME_TOKENIZER_PATTERN_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum PatternDialect { PATTERN_ONIGURUMA, PATTERN_RUST } PatternDialect;

typedef struct Pattern Pattern;

/* Reports and returns NULL. */
Pattern *pattern_compile(const char *text, PatternDialect dialect, SourceLoc loc, Diag *diag);
/* A pattern that matches just this text, which is not empty. */
Pattern *pattern_literal(const char *text, SourceLoc loc, Diag *diag);
void pattern_destroy(Pattern *pattern);

/* Whether matches that begin at some place depend only on what follows it. */
bool pattern_looks_ahead_only(const Pattern *pattern);

/* Of one thread, for patterns of any number. */
typedef struct PatternSpace PatternSpace;
PatternSpace *pattern_space_create(void);
void pattern_space_destroy(PatternSpace *space);

typedef enum PatternResult {
    PATTERN_FOUND,
    PATTERN_NOT_FOUND,
    PATTERN_CUT_OFF,
    PATTERN_GAVE_UP
} PatternResult;
/* The first match at `from` or behind it in text [length], valid UTF-8. goes_on: more text may
 * follow [length], between characters; then PATTERN_CUT_OFF: what follows may decide.
 * PATTERN_GAVE_UP: it would take too long or too much memory. */
PatternResult pattern_find(const Pattern *pattern, PatternSpace *space, const unsigned char *text,
                           size_t length, bool goes_on, size_t from, size_t *out_begin,
                           size_t *out_end);

/* The pattern of a well-known tokenizer (gpt2, cl100k, llama3, o200k), in a spelling that both
 * dialects understand; NULL: not known. */
const char *pattern_by_name(const char *name);
extern const char PATTERN_NAMES[]; /* "gpt2, cl100k, ..." */
/* The name of such a pattern, or two that share it, by its text as files spell it; NULL: another.
 */
const char *pattern_name_of(const char *text);

#endif
