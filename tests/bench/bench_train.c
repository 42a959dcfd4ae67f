/* Speed of training: GPT-2 124M, f32 and bf16, one rank on all cores, against this machine's own
 * rate of f32 products measured in the same run (oneDNN's sgemm, between the steps, so that both
 * see the same machine; not tiles, which a processor with AMX trains on). Prints, per shape:
 * seconds per step, share of the matrix rate counted as 6 x parameters x tokens / time, emit time,
 * replay overhead, and where the time goes by op.
 *
 *   build/bench/bench_train [steps] [shapes such as 4x64 2x512]
 */
#include "frontend/lua/model.h"
#include "ir/op.h"
#include "planner/planner.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/tiles.h"
#include "runtime/engine.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_STEPS = 200, PRODUCT = 2048 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof(double), ascending);
    return values[count / 2];
}

static double product_rate(const float *a, const float *b, float *c) {
    double start = now(), seconds;
    tiles_refuse(true);
    gemm_f32(false, false, PRODUCT, PRODUCT, PRODUCT, 1, a, PRODUCT, b, PRODUCT, 0, c, PRODUCT);
    seconds = now() - start;
    tiles_refuse(false);
    return 2.0 * PRODUCT * PRODUCT * PRODUCT / seconds;
}

static void print_profile(Engine *engine, Diag *diag) {
    double seconds[N_OPS], total = 0;
    if (!engine_profile_step(engine, seconds, diag)) return;
    for (int op = 0; op < N_OPS; op++) total += seconds[op];
    printf("  by op:");
    for (int op = 0; op < N_OPS; op++) {
        if (seconds[op] < 0.005 * total) continue;
        printf(" %s %.1f%%", OPS[op].name, 100 * seconds[op] / total);
    }
    printf("\n");
}

static bool run_shape(int batch, int seq, DType precision, int n_steps, Diag *diag) {
    Arena *arena = arena_create();
    char seq_text[16];
    snprintf(seq_text, sizeof(seq_text), "%d", seq);
    ModelSetting settings[] = {{"size", "124m"}, {"seq", seq_text}};
    Model *model = model_load(arena, "models/gpt.lua", settings, 2, batch, diag);
    if (!model) return false;
    PlanRequest request = {.model = model->name,
                           .forward = model->graph,
                           .n_blocks = model->n_blocks,
                           .seq = model->seq,
                           .vocab = model->vocab,
                           .recipe = model->recipe,
                           .options = {.mesh = {.size = {1, 1, 1, 1, 1, 1}},
                                       .micro_batch = batch,
                                       .global_batch = batch,
                                       .n_chunks = 1,
                                       .schedule = "1f1b",
                                       .precision = precision,
                                       .seed = 1}};
    Plan *plan = plan_make(arena, &request, diag);
    Engine *engine = plan ? engine_create(plan, &(EngineOptions){0}, diag) : NULL;
    if (!engine) return false;
    engine_init_parameters(engine);
    int n_tokens = batch * seq;
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, n_tokens);
    int32_t *labels = ARENA_ARRAY(arena, int32_t, n_tokens);
    size_t elements = (size_t)PRODUCT * PRODUCT;
    float *a = malloc(4 * elements), *b = malloc(4 * elements), *c = malloc(4 * elements);
    double step_seconds[MAX_STEPS], rates[MAX_STEPS], shares[MAX_STEPS];
    bool fine = a && b && c;
    for (size_t i = 0; fine && i < elements; i++) {
        a[i] = (float)(i % 7);
        b[i] = (float)(i % 5);
    }
    for (int step = 0; fine && step < n_steps + 2; step++) {
        StepResult result;
        for (int i = 0; i < n_tokens; i++) {
            tokens[i] = (int32_t)((i * 7919L + step * 104729L) % 50257);
            labels[i] = (int32_t)((i * 6101L + step * 1299709L) % 50257);
        }
        double before = product_rate(a, b, c);
        fine = engine_step(engine, step + 1, tokens, labels, 1e-4, &result, diag);
        double after = product_rate(a, b, c);
        if (!fine || step < 2) continue; /* warm-up: oneDNN compiles its kernels */
        double flops = 6.0 * (double)plan->n_parameters * n_tokens;
        step_seconds[step - 2] = result.seconds;
        rates[step - 2] = (before + after) / 2;
        shares[step - 2] = flops / result.seconds / rates[step - 2];
    }
    if (fine) {
        double step = median(step_seconds, n_steps), replay = engine_replay_seconds(engine);
        printf("GPT-2 124M %s %d x %d: %.3f s/step (median of %d, min %.3f), %.0f tokens/s\n",
               dtype_name(precision), batch, seq, step, n_steps, step_seconds[0], n_tokens / step);
        printf("  f32 matrix rate %.0f GF/s; share of it %.1f%% (median; 6 x %lld parameters x %d "
               "tokens)\n",
               1e-9 * median(rates, n_steps), 100 * median(shares, n_steps),
               (long long)plan->n_parameters, n_tokens);
        printf("  emit %.4f s; replay of %lld calls outside kernels %.6f s = %.4f%% of a step\n",
               engine_emit_seconds(engine), (long long)engine_call_count(engine), replay,
               100 * replay / step);
        print_profile(engine, diag);
    }
    free(a), free(b), free(c);
    engine_destroy(engine);
    arena_destroy(arena);
    return fine;
}

int main(int argc, char **argv) {
    Diag *diag = diag_create();
    int n_steps = argc > 1 ? atoi(argv[1]) : 10;
    const char *defaults[] = {"4x64", "2x512"};
    bool fine = true;
    if (n_steps < 1 || n_steps > MAX_STEPS) n_steps = 10;
    printf("%d threads\n", omp_get_max_threads());
    for (int i = 0; i < (argc > 2 ? argc - 2 : 2); i++) {
        int batch, seq;
        const char *shape = argc > 2 ? argv[2 + i] : defaults[i];
        if (sscanf(shape, "%dx%d", &batch, &seq) != 2 || batch < 1 || seq < 1) {
            fprintf(stderr, "usage: bench_train [steps] [BATCHxSEQ ...]\n");
            return 2;
        }
        fine &= run_shape(batch, seq, DTYPE_F32, n_steps, diag) &&
                run_shape(batch, seq, DTYPE_BF16, n_steps, diag);
    }
    diag_print(diag, stderr);
    diag_destroy(diag);
    return fine ? 0 : 1;
}
