/* Judges: what the answers that a model has written are worth.
 *
 * A judge gives every answer a reward, a number: the higher the better. It is a Lua script in the
 * sandbox (judge_lua.h) or a program in any language (judge_command.h), which see the line that
 * `generate --prompts` would write of an answer: all that its prompt's line has, and "text",
 * "tokens", "ended"; or a model (judge_model.h), which sees tokens.
 *
 * Programs that open one have SIGPIPE ignored, as main has: a program that judges may end early.
 */
#ifndef FRONTEND_JUDGE_JUDGE_H
#define FRONTEND_JUDGE_JUDGE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/strbuf.h"
#include "runtime/engine.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>

typedef struct Judge Judge;

typedef struct JudgedAnswer {
    const json_t *record; /* the prompt's line, an object */
    const char *text;     /* [length], any bytes */
    size_t length;
    int64_t n_tokens;
    bool ended; /* by itself, not for want of room */
    /* For a model that judges: the prompt's tokens and the answer's, [n_asked] and [n_tokens]. */
    const uint32_t *asked, *tokens;
    int64_t n_asked;
} JudgedAnswer;

/* Its line, with the end of it. */
void judged_answer_put(StrBuf *out, const JudgedAnswer *answer);

/* Two answers to one prompt, for judges that say which is the better. */
typedef struct JudgedPair {
    JudgedAnswer a, b;
} JudgedPair;
/* Likewise: the prompt's fields, "a" and "b" with "text", "tokens" and "ended" in them. */
void judged_pair_put(StrBuf *out, const JudgedPair *pair);
/* What a number says of one, however small or large it is: 1, -1 or 0; NAN is none. */
static inline float judged_pair_verdict(double number) {
    return isnan(number) ? NAN : (float)((number > 0) - (number < 0));
}

/* The script at `path` returns a function, which gets the line as a table and returns the reward.
 * The arena outlives the judge and what is reported. NULL: reported. */
Judge *judge_open_lua(const char *path, Arena *arena, Diag *diag);

/* Starts `/bin/sh -c command`, which reads answers, a line of JSON each, and writes the reward of
 * each as a line, in order. timeout_s > 0: how long it may take from one reward to the next. NULL:
 * reported. */
Judge *judge_open_command(const char *command, double timeout_s, Diag *diag);

/* A model that has learned rewards, by the engine of this plan, which is the judge's then, also
 * where this fails; `pad` fills up rows. NULL: reported. */
Judge *judge_open_model(const Plan *plan, Engine *engine, uint32_t pad, Diag *diag);

/* The rewards of n answers, all finite. False: reported; the judge is then of no use but to be
 * closed. */
bool judge_answers(Judge *judge, const JudgedAnswer *answers, int n, float *out_rewards,
                   Diag *diag);

/* The same of a script or a program that was opened to compare: of each pair 1 where it says a
 * number above 0, the first answer is the better one, -1 below 0, the second is, or 0. The script's
 * function gets the prompt's line and both answers as tables. */
bool judge_pairs(Judge *judge, const JudgedPair *pairs, int n, float *out_verdicts, Diag *diag);

/* Ends a program that is still running; it has some time to do so by itself. NULL is fine. */
void judge_close(Judge *judge);

#endif
