/* Prompts that training writes answers to, where the plan learns by what these are worth
 * (nn.policy, or pairs of nn.preference), or by what a teacher says of them (--on-policy): lines of
 * JSON with a "prompt", a text or a list of messages, or with "messages", whose last one is the
 * user's, and whatever else whoever judges wants to know. For a teacher also with what the data
 * answer (train_completions.h).
 */
#ifndef FRONTEND_COMMANDS_TRAIN_PROMPTS_H
#define FRONTEND_COMMANDS_TRAIN_PROMPTS_H

#include "frontend/commands/generate_text.h"
#include "planner/plan/plan.h"
#include "runtime/tokenizer/corpus.h"

#include <jansson.h>

typedef struct TrainPrompt {
    json_t *record; /* the line */
    SourceLoc loc;
    GenerateText begin; /* what an answer to it begins as */
    /* With what the data answer, where that is learned from or validated on; else NULL: tokens
     * [n_row], and which of them are labels. */
    uint32_t *row;
    unsigned char *is_label;
    int64_t n_row;
} TrainPrompt;

typedef struct TrainPrompts {
    bool reads;          /* does training learn so? else all of this is empty */
    bool on_policy;      /* from a teacher, and not by rewards */
    bool in_pairs;       /* from pairs of better and worse answers */
    bool all_pairs;      /* of all that are to one prompt, and not of the best and the worst */
    double share;        /* of rows that are written then; the others are the data's */
    bool validates_rows; /* all lines of validation have a completion */
    int n_cut;           /* completions longer than a row */
    TrainPrompt *items;
    int count, capacity;
    int n_train, n_val;      /* the first and the last ones */
    int n_answers;           /* of each, in training, */
    int group_rows;          /* which make so many rows of the batch */
    int64_t length;          /* tokens of an answer, at most */
    uint32_t pad;            /* what fills up a row */
    uint64_t hash;           /* of all their tokens and lines */
    double n_tokens;         /* of a prompt in the mean */
    GenerateText text, chat; /* what those of texts and those of messages begin as */
} TrainPrompts;

/* Does the plan learn by rewards of answers, or from pairs of them? */
bool train_prompts_read_by(const Plan *plan);
bool train_prompts_in_pairs(const Plan *plan);
/* And compares answers with what a reference says of them? */
bool train_prompts_compare(const Plan *plan);
/* Does training write answers at all? */
bool train_prompts_asked(const CliArgs *args, const Plan *plan);
/* Reads those of --data and --val. False: reported. Released by train_prompts_close either way. */
bool train_prompts_open(const CliArgs *args, const Plan *plan, TrainPrompts *out, Diag *diag);
void train_prompts_close(TrainPrompts *prompts);

/* Which prompt is number `index` of an endless sequence: each epoch has all of them once, in an
 * order of its own. */
int train_prompts_pick(const TrainPrompts *prompts, uint64_t seed, int64_t index);

/* Tokens that an answer to it may have. */
int64_t train_prompts_room(const TrainPrompts *prompts, const Plan *plan, int prompt);

/* A line or two that begin with `prompts`. */
void train_prompts_print(const TrainPrompts *prompts);

#endif
