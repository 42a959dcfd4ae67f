#include "runtime/engine_noise.h"

#include "runtime/engine_internal.h"
#include "runtime/metrics/noise_scale.h"

#include <string.h>

struct EngineNoise {
    Engine *engine;
    Arena *arena;
    int rows_together, batch, small;
    int32_t *tokens, *labels;        /* [global_batch, row], [global_batch, seq] */
    float *reference;                /* [global_batch] */
    float *numbers[N_TOKEN_NUMBERS]; /* [global_batch, seq]; NULL: the plan does not read them */
};

EngineNoise *engine_noise_create(Engine *engine, int rows_together) {
    Arena *arena = arena_create();
    EngineNoise *noise = ARENA_NEW(arena, EngineNoise);
    const Plan *plan = engine->plan;
    const int64_t rows = plan->global_batch;
    if (!engine->skips_spikes) BUG("the plan leaves out no steps for their norm");
    noise->engine = engine;
    noise->arena = arena;
    noise->rows_together = rows_together;
    noise->batch = plan->global_batch / rows_together;
    noise->small = noise_small_batch(noise->batch);
    noise->tokens = ARENA_ARRAY(arena, int32_t, rows * plan_row(plan));
    noise->labels = ARENA_ARRAY(arena, int32_t, rows * plan->seq);
    noise->reference = ARENA_ARRAY(arena, float, rows);
    for (int i = 0; i < N_TOKEN_NUMBERS; i++) {
        if (!plan_reads_numbers(plan, (TokenNumbers)i)) continue;
        const int64_t row = plan_numbers_row(plan, (TokenNumbers)i);
        noise->numbers[i] = ARENA_ARRAY(arena, float, rows *row);
    }
    return noise;
}

void engine_noise_destroy(EngineNoise *noise) {
    if (noise) arena_destroy(noise->arena);
}

int engine_noise_batch(const EngineNoise *noise) {
    return noise->batch;
}

int engine_noise_small_batch(const EngineNoise *noise) {
    return noise->small;
}

/* to[rows, of 4 bytes each `width`]: those of the part's samples, from `first` on, over and over.
 */
static void repeat_rows(const EngineNoise *noise, int first, const void *from, int64_t width,
                        void *to) {
    const size_t bytes = (size_t)(width * noise->rows_together) * sizeof(int32_t);
    for (int i = 0; i < noise->batch; i++) {
        const int sample = first + i % noise->small;
        memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)sample * bytes, bytes);
    }
}

bool engine_noise_measure(EngineNoise *noise, int64_t step, int64_t part, const int32_t *tokens,
                          const int32_t *labels, double *out_norm, Diag *diag) {
    Engine *engine = noise->engine;
    const Plan *plan = engine->plan;
    const float *reference = engine->reference;
    const float *numbers[N_TOKEN_NUMBERS];
    const int first = (int)(part % (noise->batch / noise->small)) * noise->small;
    memcpy(numbers, engine->numbers, sizeof(numbers));
    repeat_rows(noise, first, tokens, plan_row(plan), noise->tokens);
    repeat_rows(noise, first, labels, plan->seq, noise->labels);
    if (reference) {
        repeat_rows(noise, first, reference, 1, noise->reference);
        engine_set_reference(engine, noise->reference);
    }
    for (int i = 0; i < N_TOKEN_NUMBERS; i++) {
        if (!numbers[i] || !noise->numbers[i]) continue;
        repeat_rows(noise, first, numbers[i], plan_numbers_row(plan, (TokenNumbers)i),
                    noise->numbers[i]);
        engine_set_numbers(engine, (TokenNumbers)i, noise->numbers[i]);
    }
    const bool good =
        engine_measure_gradient(engine, step, noise->tokens, noise->labels, out_norm, diag);
    engine_set_reference(engine, reference);
    memcpy(engine->numbers, numbers, sizeof(numbers));
    return good;
}
