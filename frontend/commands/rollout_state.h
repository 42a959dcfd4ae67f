/* What a Rollout is, for those who say what is learned from it: by rewards of answers
 * (rollout_rewards.c), from pairs of them (rollout_pairs.c), or from a teacher (rollout_student.c).
 */
#ifndef FRONTEND_COMMANDS_ROLLOUT_STATE_H
#define FRONTEND_COMMANDS_ROLLOUT_STATE_H

#include "frontend/commands/rollout_write.h"
#include "frontend/commands/train_rollout.h"

enum { ROLLOUT_MOST_VALIDATED = 256, ROLLOUT_MOST_VALUES = OUTPUT_MOST_REPORTED + 14 };

/* What is learned from. False: reported. But for open, make and validate each may be NULL: there is
 * nothing to do, or to say. */
typedef struct RolloutKind {
    bool (*open)(Rollout *rollout, CliArgs *args, Diag *diag);
    void (*close)(Rollout *rollout);
    /* All rows, from rollout->first on: who is asked, what is answered, tokens and labels. */
    bool (*make)(Rollout *rollout, Diag *diag);
    /* Gives the engine what the step's rows, from `row` on, have beside tokens and labels. */
    void (*give)(Rollout *rollout, int64_t row);
    bool (*validate)(Rollout *rollout, RolloutValidation *out, Diag *diag);
    /* The step's values before and after those of its answers, which `out` gets; how many. */
    int (*values_before)(Rollout *rollout, const RolloutValidation *val, StepValue *out);
    int (*values_after)(Rollout *rollout, const RolloutValidation *val, StepValue *out);
    /* What a row's line of --answers-log begins with; or all lines of the step. */
    void (*put_line)(const Rollout *rollout, int64_t row, StrBuf *out);
    void (*put_lines)(const Rollout *rollout, int64_t step, StrBuf *out);
    int64_t (*bytes)(const Rollout *rollout);
    void (*print)(const Rollout *rollout);
    void (*print_end)(const Rollout *rollout); /* continues a line */
} RolloutKind;

struct Rollout {
    const RolloutKind *kind;
    Arena *arena;
    RolloutWriter writer;
    int64_t steps;         /* of each rollout */
    int64_t n_most;        /* its rows */
    int64_t first, n_rows; /* the rows that are there: of the run, first ... first + n_rows */
    int64_t first_of_step;
    int *asked;              /* [n_most], the prompt of each row */
    RolloutAnswer **answers; /* [n_most]: what was written to it; NULL: nothing, it is the data's */
    RolloutAnswer *written;  /* [rollout_count_answers of n_most] */
    RolloutAnswer *validated; /* [n_validated] */
    int64_t n_validated;
    int32_t *tokens, *labels; /* [n_most, seq] */
    StepValue values[ROLLOUT_MOST_VALUES];
    struct RolloutJudged *judged; /* of rewards and pairs */
    struct RolloutRewards *rewards;
    struct RolloutPairs *pairs;
    struct RolloutStudent *student;
    struct RolloutReference *reference; /* NULL: it stays what it is */
    double score_seconds;
};

extern const RolloutKind ROLLOUT_REWARDS, ROLLOUT_PAIRS, ROLLOUT_STUDENT;

/* How many answers are written for so many rows. */
static inline int64_t rollout_count_answers(const Rollout *rollout, int64_t rows) {
    const TrainPrompts *prompts = rollout->writer.prompts;
    return rows / prompts->group_rows * prompts->n_answers;
}

/* Random numbers of an answer of the rollout, which follow from its number in the run, and the
 * prompt of its group. By how often the group was written before. */
void rollout_draw(const Rollout *rollout, int64_t answer, int attempt, int *out_prompt,
                  uint64_t *out_state);
/* Which prompts validation asks, n_validated of them, evenly spread; states: any. */
void rollout_pick_validated(const Rollout *rollout, int *out_prompts, uint64_t *out_states);
/* A row [seq]: the prompt, the answer, padding; the answer's tokens are its labels. */
void rollout_put_row(const Rollout *rollout, const TrainPrompt *prompt, const RolloutAnswer *answer,
                     int32_t *tokens, int32_t *labels);
/* What was written, as text, also by another process; released by generate_text_release. */
GenerateText rollout_text_of(const TrainPrompt *prompt, const RolloutAnswer *answer);

#endif
