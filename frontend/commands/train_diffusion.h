/* Rows whose tokens are hidden by shares drawn for each, where the plan learns by diffusion: what a
 * dataset gave -> tokens, labels and the weights of a batch.
 *
 * Labels are all tokens that could have been hidden, so that losses are means over these, and what
 * counts labels or bytes counts what the bound is of. */
#ifndef FRONTEND_COMMANDS_TRAIN_DIFFUSION_H
#define FRONTEND_COMMANDS_TRAIN_DIFFUSION_H

#include "planner/plan/plan.h"
#include "runtime/data/diffusion.h"
#include "runtime/engine.h"

typedef struct TrainDiffusion {
    bool hides; /* the plan learns so */
    Diffusion how;
    bool by_row; /* in training, rows count alike; else tokens do */
    /* Rows are packed: what is behind a row's last answer, its template's end and padding, is to be
     * said, too, as LLaDA's answers go on with ends (section 2.3). The model cannot see from it
     * where an answer ends, and writes it behind its own. */
    bool packed;
    uint64_t seed;
    int64_t seq;
    float *weights;    /* [global_batch, seq]: of the batch that was read */
    int64_t *n_labels; /* [global_batch]: of its rows */
    int draw, n_draws; /* which of how many shares a row of validation has */
} TrainDiffusion;

/* The plan's label_share that says so; NULL: none does. */
const Node *diffusion_of_plan(const Plan *plan);

/* What is kept is the caller's. False, reported: the plan asks for what cannot be. */
bool train_diffusion_of(const Plan *plan, Arena *arena, TrainDiffusion *out, Diag *diag);

/* Row `number` (below 0: of validation), in place `at` of the batch. */
void train_diffusion_fill(TrainDiffusion *diffusion, int64_t number, uint64_t key,
                          bool first_counts, int64_t at, int32_t *tokens, int32_t *labels);

/* The batch of so many rows is complete: gives the engine what its next step or evaluation reads.
 */
void train_diffusion_give(TrainDiffusion *diffusion, Engine *engine, int64_t rows, bool trains);

void train_diffusion_print(const TrainDiffusion *diffusion);

#endif
