/* Questions with answers to choose from: what the model finds likeliest, of each question.
 *
 * A file has rows of a published benchmark (benchmarks.h), or a line of it is {"prompt": TEXT,
 * "choices": [TEXT, ...], "answer": N}, the right one counted from 0; or {"ctx", "endings",
 * "label"}. A choice's score is the sum of the logarithms of its tokens' probabilities behind the
 * prompt; per character it is that over its characters, and per byte over its bytes (acc, acc_norm
 * and acc_bytes of EleutherAI's lm-evaluation-harness). No token reaches from the prompt into the
 * choice. Where both do not fit the sequence, the prompt's beginning is left out; the choice's last
 * token needs no place in it, as nothing follows.
 *
 * As answers of a chat, a choice is what the assistant says to the prompt, which is what the user
 * says, or a list of messages (also "messages"). What is scored are the tokens that count when that
 * conversation is learned: those of the choice and of its end, as the chat's template has them. The
 * one space that a choice may begin with, for texts that go on, is left out.
 */
#ifndef FRONTEND_COMMANDS_EVALUATE_CHOICES_H
#define FRONTEND_COMMANDS_EVALUATE_CHOICES_H

#include "frontend/commands/benchmarks.h"
#include "frontend/commands/choice_caches.h"
#include "frontend/commands/choice_scores.h"
#include "frontend/commands/choice_tokens.h"
#include "ir/base/strbuf.h"
#include "runtime/engine.h"

typedef struct ChoicesCount {
    int64_t n_questions, n_right, n_right_per_byte, n_right_per_character;
} ChoicesCount;

typedef struct ChoicesGroup {
    char *name;
    ChoicesCount count;
} ChoicesGroup;

typedef struct ChoicesResult {
    const char *task; /* the benchmark's name */
    bool is_greedy;   /* its questions have one answer, right where greedy decoding says it */
    bool is_normed;   /* the harness tells of choices per character, too */
    ChoicesCount all;
    ChoicesGroup *groups; /* [n_groups], in the order in which they came; of benchmarks with any */
    int n_groups;
    int64_t n_choices, n_cut;       /* n_cut: choices whose prompt did not fit whole */
    double by_chance;               /* questions that guessing would get right */
    double answers, answers_square; /* the logarithm of the right choices' probabilities, summed */
    StrBuf predictions;             /* a line of JSON each, where they are asked for */
} ChoicesResult;

typedef struct ChoicesWay {
    const char *who; /* the command, for errors */
    ChoiceTexts texts;
    const char *task;       /* which benchmark; NULL: the rows say */
    int n_shots;            /* examples before each question */
    const char *shots_path; /* where they are from; NULL: from the same file */
    uint64_t seed;          /* of which ones */
    int64_t limit;          /* so many questions, the first ones; 0: all */
    bool predicts;
} ChoicesWay;

/* Whether the file can be scored under this plan; *digest, unless NULL, is mixed with all that is
 * scored. False: reported. */
bool evaluate_choices_check(const Plan *plan, const ChoicesWay *way, const char *path,
                            uint64_t *digest, Diag *diag);

/* Who computes: an engine of a plan for training, whole sequences; or caches of a plan for
 * decoding.
 */
typedef struct ChoicesModel {
    Engine *engine;
    ChoiceCaches *caches; /* in place of it */
    const Plan *plan;     /* of either */
    int n_together;       /* caches: texts side by side */
    RankCrew crew;        /* caches: groups of processes have every so manieth question each */
} ChoicesModel;

/* Of a file that was looked at before. `shown`, which may be NULL, is told how far it is. False:
 * reported. *out is released either way. */
typedef void ChoicesProgress(void *user, int n_done, int n_all, const char *what);
bool evaluate_choices(const ChoicesModel *model, const ChoicesWay *way, const char *path,
                      ChoicesProgress *shown, void *user, ChoicesResult *out, Diag *diag);
void evaluate_choices_release(ChoicesResult *result);

#endif
