/* Answers out of written texts, and whether they are right, as EleutherAI's lm-evaluation-harness
 * 0.4.13 has it: lm_eval/filters/extraction.py with the patterns of tasks/gsm8k, what its
 * exact_match ignores there, and tasks/hendrycks_math/utils.py (math_equal.h).
 */
#ifndef FRONTEND_JUDGE_ANSWER_MATCH_H
#define FRONTEND_JUDGE_ANSWER_MATCH_H

#include <stdbool.h>
#include <stddef.h>

typedef enum AnswerFilter {
    ANSWER_WHOLE,   /* the whole text, without white space around it */
    ANSWER_HASHES,  /* the first #### (\-?[0-9\.\,]+) */
    ANSWER_NUMBER,  /* the last (-?[$0-9.,]{2,})|(-?[0-9]+) */
    ANSWER_DOLLARS, /* between the first $ and the last one; the whole text, with fewer than two */
    ANSWER_BOXED,   /* what is in the last \boxed{}, whose braces balance, or behind "\boxed " */
    N_ANSWER_FILTERS
} AnswerFilter;

/* A piece of another text. */
typedef struct AnswerText {
    const char *text; /* [length], any bytes; NULL: there is none */
    size_t length;
} AnswerText;

/* "strict-match": as the harness has it where it has one. */
const char *answer_filter_name(AnswerFilter filter);
/* What the text answers. */
AnswerText answer_extract(AnswerFilter filter, AnswerText text);
/* Is what was extracted the right answer? None never is. Numbers and whole texts are compared
 * without "," and "$", what precedes "#### ", a last "." and the case of letters; what is
 * mathematics as math_is_equal does. */
bool answer_is_right(AnswerFilter filter, AnswerText extracted, AnswerText right);

#endif
