/* Questions with answers to choose from, as benchmarks have them (HellaSwag, Zellers et al. 2019):
 * what the model finds likeliest, of each question.
 *
 * A line of the file is {"prompt": TEXT, "choices": [TEXT, ...], "answer": N}, the right one
 * counted from 0; or {"ctx", "endings", "label"}. A choice's score is the sum of the logarithms of
 * its tokens' probabilities behind the prompt; per byte it is that over its bytes (acc and acc_norm
 * of EleutherAI's lm-evaluation-harness). No token reaches from the prompt into the choice. Where
 * both do not fit the sequence, the prompt's beginning is left out.
 *
 * As answers of a chat, a choice is what the assistant says to the prompt, which is what the user
 * says, or a list of messages (also "messages"). What is scored are the tokens that count when that
 * conversation is learned: those of the choice and of its end, as the chat's template has them. The
 * one space that a choice may begin with, for texts that go on, is left out.
 */
#ifndef FRONTEND_COMMANDS_EVALUATE_CHOICES_H
#define FRONTEND_COMMANDS_EVALUATE_CHOICES_H

#include "ir/base/diag.h"
#include "runtime/engine.h"
#include "runtime/tokenizer/corpus.h"
#include "runtime/tokenizer/tokenizer.h"

#include <jansson.h>

typedef struct ChoicesResult {
    int64_t n_questions, n_choices;
    int64_t n_right, n_right_per_byte;
    int64_t n_cut;    /* choices whose prompt did not fit whole */
    double by_chance; /* questions that guessing would get right */
    double answers;   /* the logarithm of the right choices' probabilities, summed */
} ChoicesResult;

/* How texts become tokens. */
typedef struct ChoicesWay {
    const Tokenizer *tokenizer; /* NULL: a token is a byte */
    uint32_t first;             /* put before each prompt; NO_TOKEN: none */
    const CorpusOptions *chat;  /* how answers of a chat are told; NULL: the prompt goes on */
    const json_t *system;       /* of a chat: what is said first, a list of a message or none */
} ChoicesWay;

/* Whether the file can be scored under this plan. False: reported. */
bool evaluate_choices_check(const Plan *plan, const ChoicesWay *way, const char *path, Diag *diag);

/* log softmax(logits)[token], logits [vocab]. */
double log_probability(const float *logits, int64_t vocab, int32_t token);

/* Of a file that was looked at before. `shown`, which may be NULL, is told how far it is. False:
 * reported. */
typedef void ChoicesProgress(void *user, int n_done, int n_all, const char *what);
bool evaluate_choices(Engine *engine, const Plan *plan, const ChoicesWay *way, const char *path,
                      ChoicesProgress *shown, void *user, ChoicesResult *out, Diag *diag);

#endif
