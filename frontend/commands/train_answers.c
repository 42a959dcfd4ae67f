#include "frontend/commands/train_answers.h"

#include "ir/base/clock.h"
#include "runtime/data/preferences.h"

#include <string.h>

TrainAnswers train_answers_of(const Plan *plan, Arena *arena) {
    TrainAnswers answers = {.reads = plan_reads_numbers(plan, TOKEN_DESIRABLE),
                            .diverges = plan_reads_numbers(plan, TOKEN_DIVERGENCE),
                            .seq = plan->seq,
                            .batch = plan->global_batch};
    const int64_t rows = plan->global_batch, n = rows * plan->seq;
    if (!answers.reads) return answers;
    answers.tokens = ARENA_ARRAY(arena, int32_t, n);
    answers.labels = ARENA_ARRAY(arena, int32_t, n);
    answers.reference = ARENA_ARRAY(arena, float, rows);
    answers.scores = ARENA_ARRAY(arena, float, rows);
    answers.wanted = ARENA_ARRAY(arena, bool, rows);
    answers.kinds = ARENA_ARRAY(arena, float, n);
    answers.divergence = ARENA_ARRAY(arena, float, n);
    return answers;
}

void train_answers_take(TrainAnswers *answers, int64_t at, const int32_t *tokens, int32_t *labels,
                        const float scores[2], int32_t *out_tokens, int32_t *out_labels,
                        float *out_reference) {
    const int64_t seq = answers->seq;
    const size_t bytes = (size_t)seq * sizeof(*tokens);
    answers->wanted[at] = unpaired_take_kind(labels, seq);
    memcpy(out_tokens, tokens, bytes);
    memcpy(out_labels, labels, bytes);
    memcpy(answers->tokens + at * seq, tokens + seq, bytes);
    memcpy(answers->labels + at * seq, labels + seq, bytes);
    *out_reference = scores[0];
    answers->reference[at] = scores[1];
}

/* One over the share of answers of a row's kind, below 0 where it is not wanted. */
static void put_kinds(TrainAnswers *answers) {
    int64_t n_wanted = 0;
    for (int64_t i = 0; i < answers->batch; i++) n_wanted += answers->wanted[i];
    for (int64_t i = 0; i < answers->batch; i++) {
        const bool wanted = answers->wanted[i];
        const int64_t alike = wanted ? n_wanted : answers->batch - n_wanted;
        const double part = (double)answers->batch / (double)alike;
        answers->kinds[i * answers->seq] = (float)(wanted ? part : -part);
    }
}

static bool find_divergence(TrainAnswers *answers, Engine *engine, Diag *diag) {
    const int64_t at_once = engine_forward_batch(engine), seq = answers->seq;
    double sum = 0;
    for (int64_t row = 0; row < answers->batch; row += at_once) {
        if (!engine_row_scores(engine, answers->tokens + row * seq, answers->labels + row * seq,
                               answers->scores + row, diag)) {
            return false;
        }
    }
    for (int64_t i = 0; i < answers->batch; i++) {
        sum += (double)answers->scores[i] - (double)answers->reference[i];
    }
    const float divergence = sum > 0 ? (float)(sum / (double)answers->batch) : 0;
    for (int64_t i = 0; i < answers->batch; i++) answers->divergence[i * seq] = divergence;
    return true;
}

bool train_answers_give(TrainAnswers *answers, Engine *engine, Diag *diag) {
    const double start = clock_now();
    if (!answers->reads) return true;
    put_kinds(answers);
    if (answers->diverges && !find_divergence(answers, engine, diag)) return false;
    engine_set_numbers(engine, TOKEN_DESIRABLE, answers->kinds);
    engine_set_numbers(engine, TOKEN_DIVERGENCE, answers->divergence);
    answers->seconds = clock_now() - start;
    return true;
}
