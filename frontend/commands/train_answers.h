/* Answers by themselves, desirable or not, where the plan learns from such (KTO): beside each row
 * of the batch there is one of the same prompt and another's answer, and how much likelier the
 * model makes those than its reference does says how far it has gone from it.
 *
 * That divergence is max(0, mean over the global batch), computed before each step by the plan's
 * own forward, and is the same whatever the layout. It has no gradient.
 */
#ifndef FRONTEND_COMMANDS_TRAIN_ANSWERS_H
#define FRONTEND_COMMANDS_TRAIN_ANSWERS_H

#include "planner/plan/plan.h"
#include "runtime/engine.h"

typedef struct TrainAnswers {
    bool reads;    /* rows of the plan's batch are such */
    bool diverges; /* and the loss counts from the divergence */
    int64_t seq, batch;
    int32_t *tokens, *labels;  /* [batch, seq]: prompts with others' answers */
    float *reference;          /* [batch]: what the reference says of these */
    float *scores;             /* [batch]: what the model says of them */
    bool *wanted;              /* [batch] */
    float *kinds, *divergence; /* [batch, seq]: TOKEN_DESIRABLE, TOKEN_DIVERGENCE */
    double seconds;            /* that the last batch's divergence took */
} TrainAnswers;

TrainAnswers train_answers_of(const Plan *plan, Arena *arena);

/* Takes apart a window, tokens and labels [2 * seq], and its two scores: the answer to out_tokens
 * and out_labels [seq] and *out_reference, the rest to place `at` of the batch. */
void train_answers_take(TrainAnswers *answers, int64_t at, const int32_t *tokens, int32_t *labels,
                        const float scores[2], int32_t *out_tokens, int32_t *out_labels,
                        float *out_reference);

/* The batch is complete: gives the engine what its next step or evaluation reads of it. Nothing
 * where the plan reads no such answers. False: reported. */
bool train_answers_give(TrainAnswers *answers, Engine *engine, Diag *diag);

#endif
