/* engine_norms: how large weights, their gradients and what a step changed are, under layouts that
 * divide them in all ways; each against numbers of the same run on one rank, read whole. And
 * engine_noise: norms of parts of batches, against each sample's gradient, under the same layouts.
 *
 * Would catch: a rank's part that is left out or counted twice; a sum of squares that something of
 * the update has overwritten; padding, halves or tied weights that are taken for numbers of their
 * own; a loss scale in gradients; an estimate from samples that is none; processes that add up
 * otherwise than threads; a part of other rows, or with other numbers of theirs; estimates of the
 * noise that are biased; a measurement that changes a weight, a state or the loss scale.
 */
#include "runtime/engine_noise.h"
#include "runtime/engine_norms.h"

#include "frontend/commands/plot.h"
#include "frontend/commands/show_run.h"
#include "ir/base/file.h"
#include "runtime/engine_internal.h"
#include "runtime/metrics/run_log.h"
#include "tests/unit/control_job.h"
#include "tests/unit/train_compare.h"

static const ModelSetting GPT[] = {{"layers", "2"}, {"model", "32"}, {"heads", "2"},
                                   {"seq", "4"},    {"ffn", "64"},   {"vocab", "15"}};
static const ModelSetting MUON[] = {{"layers", "2"},      {"model", "32"}, {"heads", "2"},
                                    {"seq", "4"},         {"ffn", "64"},   {"vocab", "15"},
                                    {"optimizer", "muon"}};
static const ModelSetting LAMB[] = {{"layers", "2"},      {"model", "32"}, {"heads", "2"},
                                    {"seq", "4"},         {"ffn", "64"},   {"vocab", "15"},
                                    {"optimizer", "lamb"}};
static const ModelSetting RULE[] = {
    {"layers", "2"}, {"model", "32"}, {"heads", "2"},           {"seq", "4"},
    {"ffn", "64"},   {"vocab", "15"}, {"optimizer", "ademamix"}};
static const ModelSetting MOE[] = {{"layers", "2"},      {"model", "8"},      {"heads", "2"},
                                   {"kv_heads", "2"},    {"seq", "4"},        {"vocab", "16"},
                                   {"experts", "4"},     {"ffn", "16"},       {"shared", "true"},
                                   {"expert_ffn", "8"},  {"shared_ffn", "8"}, {"bias", "true"},
                                   {"scores", "sigmoid"}};

#define GPT_MODEL  .path = "models/gpt.lua", .settings = GPT, .n_settings = 6
#define MUON_MODEL .path = "models/gpt.lua", .settings = MUON, .n_settings = 7
#define LAMB_MODEL .path = "models/gpt.lua", .settings = LAMB, .n_settings = 7
#define RULE_MODEL .path = "models/gpt.lua", .settings = RULE, .n_settings = 7
#define MOE_MODEL  .path = "models/moe.lua", .settings = MOE, .n_settings = 13

/* Of what is not said there is one, and dtypes are f32. */
typedef struct Case {
    const char *name, *path;
    const ModelSetting *settings;
    int n_settings;
    int t, d, p, c, e, r, b, chunks, zero, offload;
    bool sequence_parallel, split, scaled;
    bool overflows; /* with a loss scale that is too large for f16 at first */
    DType precision;
} Case;

static const Case CASES[] = {
    {.name = "one rank", GPT_MODEL, .b = 8},
    {.name = "t=2 d=2 p=2, tied weights", GPT_MODEL, .t = 2, .d = 2, .p = 2},
    {.name = "p=2 in chunks", GPT_MODEL, .d = 2, .p = 2, .chunks = 2, .zero = 1},
    {.name = "t=2 d=2, sequence-parallel, ZeRO-1",
     GPT_MODEL,
     .t = 2,
     .d = 2,
     .b = 2,
     .sequence_parallel = true,
     .zero = 1},
    {.name = "t=2 d=2, ZeRO-2", GPT_MODEL, .t = 2, .d = 2, .b = 2, .zero = 2},
    {.name = "d=2 r=2, ZeRO-3", GPT_MODEL, .d = 2, .r = 2, .zero = 3},
    {.name = "c=2 d=2", GPT_MODEL, .c = 2, .d = 2},
    {.name = "offloaded, ZeRO-1", GPT_MODEL, .d = 2, .b = 2, .zero = 1, .offload = 100},
    {.name = "Muon, one rank", MUON_MODEL, .b = 8},
    {.name = "Muon, t=2 d=2, ZeRO-1", MUON_MODEL, .t = 2, .d = 2, .b = 2, .zero = 1},
    {.name = "LAMB, one rank", LAMB_MODEL, .b = 8},
    {.name = "LAMB, t=2 p=2", LAMB_MODEL, .t = 2, .p = 2, .b = 2},
    {.name = "a formula, one rank", RULE_MODEL, .b = 8},
    {.name = "a formula, t=2 d=2, ZeRO-2", RULE_MODEL, .t = 2, .d = 2, .b = 2, .zero = 2},
    {.name = "experts, one rank", MOE_MODEL, .b = 8},
    {.name = "experts, e=2 d=2", MOE_MODEL, .e = 2, .d = 2},
    {.name = "bf16, one rank", GPT_MODEL, .b = 8, .precision = DTYPE_BF16},
    {.name = "bf16 in halves, t=2 d=2",
     GPT_MODEL,
     .t = 2,
     .d = 2,
     .b = 2,
     .precision = DTYPE_BF16,
     .split = true},
    {.name = "f16, a loss scale, one rank",
     GPT_MODEL,
     .b = 8,
     .precision = DTYPE_F16,
     .scaled = true},
    {.name = "f16, a loss scale, d=2 p=2, ZeRO-1",
     GPT_MODEL,
     .d = 2,
     .p = 2,
     .b = 2,
     .zero = 1,
     .precision = DTYPE_F16,
     .scaled = true},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]), STEPS = 2, BATCH = 8, WORLD = 4 };

static int or_one(int n) {
    return n ? n : 1;
}

static bool start(Run *run, const Case *c) {
    const int chunks = or_one(c->chunks);
    const Layout layout = {.t = or_one(c->t),
                           .d = or_one(c->d),
                           .p = or_one(c->p),
                           .micro_batch = or_one(c->b),
                           .n_chunks = chunks,
                           .schedule = chunks > 1 ? "interleaved" : "1f1b",
                           .sequence_parallel = c->sequence_parallel};
    run_zero = c->zero;
    run_context = or_one(c->c);
    run_experts = or_one(c->e);
    run_replicas = or_one(c->r);
    run_precision = c->precision;
    run_split_masters = c->split;
    run_offload = c->offload;
    run_loss_scaling = c->scaled ? (LossScaling){.initial = 1024} : (LossScaling){0};
    if (c->overflows) run_loss_scaling = (LossScaling){.initial = 1 << 24, .interval = 2};
    run_skips_spikes = true;
    return run_plan(run, c->path, c->settings, c->n_settings, &layout, BATCH, true) &&
           run_start(run) && run_steps(run, STEPS, 1e-2);
}

static double norm_of(const float *numbers, const float *minus, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = numbers[i] - (minus ? (double)minus[i] : 0);
        sum += x * x;
    }
    return sqrt(sum);
}

static bool is_near(double a, double b, double tolerance) {
    return (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * fmax(fabs(b), 1e-6);
}

static int find_name(const Run *run, const char *name) {
    for (int i = 0; i < run->n_params; i++) {
        if (strcmp(run->names[i], name) == 0) return i;
    }
    return -1;
}

/* Of the single rank that ran last: what other layouts are to find. */
static double expected_small_norm;
static ParameterNorm expected[TF_MAX_PARAMS];
static char expected_names[TF_MAX_PARAMS][64];
static int n_expected;

static void check_norms(Run *run, const Case *c, const ParameterNorm *norms, int n,
                        float *const *before) {
    const bool single = c->b == BATCH;
    const double near = c->precision == DTYPE_F32 ? 1e-4 : 0.02;
    double squares = 0;
    CHECK(n == run->n_params, "%d of %d parameters", n, run->n_params);
    for (int i = 0; i < n; i++) {
        const ParameterNorm *norm = &norms[i];
        const int at = find_name(run, norm->name);
        CHECK(at >= 0, "there is no '%s'", norm->name);
        const int64_t count = type_elements(&run->types[at]);
        const float *after = run_weight(run, at);
        const double weight = norm_of(after, NULL, count);
        const double change = norm_of(after, before[at], count);
        CHECK(is_near(norm->weight, weight, 1e-5), "%s: weight %g, not %g", norm->name,
              norm->weight, weight);
        CHECK(is_near(norm->change, change, 1e-5), "%s: change %g, not %g", norm->name,
              norm->change, change);
        const bool is_balanced = strstr(norm->name, "moe.bias") != NULL;
        CHECK(isnan(norm->gradient) == is_balanced, "%s: gradient %g", norm->name, norm->gradient);
        if (!is_balanced) squares += norm->gradient * norm->gradient;
        float *gradient = ARENA_ARRAY(run->arena, float, count);
        if (single && !is_balanced && engine_read_gradient(run->engine, norm->name, gradient)) {
            const double scale = c->scaled ? 1024 : 1;
            const double whole = norm_of(gradient, NULL, count) / scale;
            CHECK(is_near(norm->gradient, whole, 1e-5), "%s: gradient %g, not %g", norm->name,
                  norm->gradient, whole);
        }
        if (single) continue;
        bool known = false;
        for (int k = 0; k < n_expected; k++) {
            if (strcmp(expected[k].name, norm->name) != 0) continue;
            known = true;
            /* Keys' biases have none but what roundings leave. */
            const double of_roundings = 1e-3 * near * run->norms[STEPS];
            CHECK(is_near(norm->gradient, expected[k].gradient, near) ||
                      fabs(norm->gradient - expected[k].gradient) < of_roundings,
                  "%s: gradient %g, not %g", norm->name, norm->gradient, expected[k].gradient);
        }
        CHECK(known, "%s is not one rank's", norm->name);
    }
    const double total = run->norms[STEPS];
    CHECK(is_near(sqrt(squares), total, 1e-5), "all together %g, not %g", sqrt(squares), total);
    if (!single) return;
    n_expected = n;
    for (int i = 0; i < n; i++) {
        expected[i] = norms[i];
        snprintf(expected_names[i], sizeof(expected_names[i]), "%s", norms[i].name);
        expected[i].name = expected_names[i];
    }
}

/* Of half of the next batch but one. */
static void check_small_norm(Run *run, const Case *c) {
    const int64_t n = (int64_t)BATCH * run->plan->seq;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    EngineNoise *noise = engine_noise_create(run->engine, 1);
    double norm = NAN;
    fill_batch(run->plan, STEPS + 1, tokens, labels);
    CHECK(engine_noise_measure(noise, STEPS + 2, STEPS + 2, tokens, labels, &norm, run->diag), "%s",
          diag_text(run->diag));
    engine_noise_destroy(noise);
    if (c->b == BATCH) expected_small_norm = norm;
    const double near = c->precision == DTYPE_F32 ? 1e-4 : 0.02;
    CHECK(is_near(norm, expected_small_norm, near), "of a part %g, not %g", norm,
          expected_small_norm);
}

static void test_case(const Case *c) {
    Run run;
    check_begin(c->name);
    if (!start(&run, c)) {
        CHECK(false, "%s", diag_text(run.diag));
        run_close(&run);
        return;
    }
    EngineNorms *norms = engine_norms_create(run.engine);
    float **before = ARENA_ARRAY(run.arena, float *, run.n_params);
    for (int i = 0; i < run.n_params; i++) before[i] = run_weight(&run, i);
    engine_norms_begin(norms);
    const bool stepped = run_steps_from(&run, STEPS, 1, 1e-2);
    const ParameterNorm *found;
    int n;
    const bool fine = stepped && engine_norms_end(norms, run.norms[STEPS], &found, &n, run.diag);
    CHECK(fine, "%s", diag_text(run.diag));
    if (fine) check_norms(&run, c, found, n, before);
    if (fine) check_small_norm(&run, c);
    engine_norms_destroy(norms);
    run_close(&run);
}

/* A table of 2,000 x 32: what a sample of 4,096 numbers says of it. Without a beginning nothing is
 * known of a change. */
static void test_sample(void) {
    static const ModelSetting LARGE[] = {{"layers", "1"}, {"model", "32"}, {"heads", "2"},
                                         {"seq", "64"},   {"ffn", "64"},   {"vocab", "2000"}};
    const Case c = {
        .path = "models/gpt.lua", .settings = LARGE, .n_settings = 6, .t = 2, .b = BATCH};
    Run run;
    check_begin("an estimate from a sample");
    const bool started = start(&run, &c);
    CHECK(started, "%s", diag_text(run.diag));
    if (!started) return;
    EngineNorms *norms = engine_norms_create(run.engine);
    const int at = find_name(&run, "wte");
    const int64_t count = type_elements(&run.types[at]);
    const ParameterNorm *found;
    int n;
    for (int round = 0; round < 2; round++) {
        const float *before = run_weight(&run, at);
        if (round == 0) engine_norms_begin(norms);
        const bool fine = run_steps_from(&run, STEPS + round, 1, 1e-2) &&
                          engine_norms_end(norms, run.norms[STEPS + round], &found, &n, run.diag);
        CHECK(fine, "%s", diag_text(run.diag));
        const double change = norm_of(run_weight(&run, at), before, count);
        for (int i = 0; fine && i < n; i++) {
            if (round == 1) CHECK(isnan(found[i].change), "%s: %g", found[i].name, found[i].change);
            if (round == 1 || strcmp(found[i].name, "wte") != 0) continue;
            CHECK(is_near(found[i].change, change, 0.15) && found[i].change != change,
                  "an estimate of %g, not %g", found[i].change, change);
        }
    }
    engine_norms_destroy(norms);
    run_close(&run);
}

/* --- the gradient noise scale --- */

static void test_estimates(void) {
    static const int SMALL[][2] = {{1, 1}, {2, 1}, {3, 1},  {4, 2},
                                   {7, 1}, {8, 2}, {36, 6}, {512, 16}};
    const double trace = 48, signal = 3; /* 16 samples */
    NoiseScale scale = {0};
    check_begin("noise: estimates");
    for (size_t i = 0; i < sizeof(SMALL) / sizeof(SMALL[0]); i++) {
        CHECK(noise_small_batch(SMALL[i][0]) == SMALL[i][1], "of %d: %d", SMALL[i][0],
              noise_small_batch(SMALL[i][0]));
    }
    CHECK(noise_scale_samples(&scale) == 0 && noise_scale_error(&scale) == 0, "of nothing");
    CHECK(noise_scale_add(&scale, 2, signal + trace / 2, 8, signal + trace / 8), "left out");
    CHECK(is_near(noise_scale_samples(&scale), 16, 1e-12) && noise_scale_error(&scale) == 0,
          "a scale of %g, error %g", noise_scale_samples(&scale), noise_scale_error(&scale));
    /* Norms that are off by a tenth, this way and that, and of batches of other sizes. */
    for (int i = 0; i < 400; i++) {
        const int small = 1 + i % 3, large = small * 4;
        const double off = i & 4 ? 1.1 : 0.9;
        noise_scale_add(&scale, small, (signal + trace / small) * off, large,
                        signal + trace / large);
    }
    const double found = noise_scale_samples(&scale), error = noise_scale_error(&scale);
    CHECK(fabs(found - 16) < 2 * error * found && error > 0.02 && error < 0.2,
          "a scale of %g, error %g", found, error);
    const NoiseScale before = scale;
    CHECK(!noise_scale_add(&scale, 1, (double)INFINITY, 8, 1) &&
              !noise_scale_add(&scale, 1, 1, 8, (double)NAN) &&
              !noise_scale_add(&scale, 8, 1, 8, 1) && !noise_scale_add(&scale, 1, 0, 8, 1) &&
              memcmp(&before, &scale, sizeof(scale)) == 0,
          "what is no measurement is one");
    /* A batch whose gradients' norm is not below its part's has no scale. */
    scale = (NoiseScale){0};
    noise_scale_add(&scale, 1, 1, 8, 2);
    CHECK(noise_scale_samples(&scale) == 0, "a scale of %g", noise_scale_samples(&scale));
}

/* All that a batch is made of. */
typedef struct Batch {
    int32_t *tokens, *labels;
    float *reference, *numbers[N_TOKEN_NUMBERS];
} Batch;

static Batch make_batch(Run *run, int step) {
    const Plan *plan = run->plan;
    const int64_t rows = plan->global_batch;
    Batch batch = {.tokens = ARENA_ARRAY(run->arena, int32_t, rows * plan_row(plan)),
                   .labels = ARENA_ARRAY(run->arena, int32_t, rows * plan->seq),
                   .reference = ARENA_ARRAY(run->arena, float, rows)};
    for (int64_t i = 0; i < rows; i++) batch.reference[i] = -9 - 0.7f * (float)(i % 5);
    for (int i = 0; i < N_TOKEN_NUMBERS; i++) {
        batch.numbers[i] = ARENA_ARRAY(run->arena, float, rows * plan->seq);
    }
    fill_batch(plan, step, batch.tokens, batch.labels);
    fill_numbers(plan, step, batch.numbers);
    return batch;
}

static void give(Run *run, const Batch *batch) {
    engine_set_reference(run->engine, batch->reference);
    for (int i = 0; i < N_TOKEN_NUMBERS; i++) {
        engine_set_numbers(run->engine, (TokenNumbers)i, batch->numbers[i]);
    }
}

/* A batch of these rows of `from`. */
static Batch pick(Run *run, const Batch *from, const int *rows) {
    const int64_t seq = run->plan->seq, row = plan_row(run->plan);
    Batch to = make_batch(run, 0);
    for (int r = 0; r < run->plan->global_batch; r++) {
        memcpy(to.tokens + r * row, from->tokens + rows[r] * row, (size_t)row * sizeof(int32_t));
        memcpy(to.labels + r * seq, from->labels + rows[r] * seq, (size_t)seq * sizeof(int32_t));
        to.reference[r] = from->reference[rows[r]];
        for (int i = 0; i < N_TOKEN_NUMBERS; i++) {
            memcpy(to.numbers[i] + r * seq, from->numbers[i] + rows[r] * seq,
                   (size_t)seq * sizeof(float));
        }
    }
    return to;
}

/* The gradients of a batch, one after the other: returns how many numbers; 0: reported. */
static int64_t take_gradients(Run *run, const Batch *batch, float *out, double *out_norm) {
    StepResult result;
    int64_t n = 0;
    give(run, batch);
    if (!engine_step(run->engine, 1, batch->tokens, batch->labels, 0, &result, run->diag)) return 0;
    *out_norm = result.grad_norm;
    for (int i = 0; out && i < run->n_params; i++) {
        if (!engine_read_gradient(run->engine, run->names[i], out + n)) return 0;
        n += type_elements(&run->types[i]);
    }
    return n;
}

static double square_of(const float *a, const float *b, int64_t n) {
    const double norm = norm_of(a, b, n);
    return norm * norm;
}

/* Each sample's gradient by itself: what parts of a batch have for a norm, and what the noise is,
 * which the measurements of all parts of 2 together say exactly. */
static void test_samples(void) {
    enum { N_PARTS = BATCH / 2 };
    const Layout layout = {.t = 1, .d = 1, .p = 1, .micro_batch = BATCH, 1, "1f1b"};
    Run run;
    float *each[BATCH], *parts[N_PARTS], *mean;
    int64_t n = 0;
    double norm = NAN, unused, trace = 0, estimates[2] = {0};
    check_begin("noise: each sample's gradient by itself");
    const bool made =
        run_plan(&run, "models/gpt.lua", GPT, 6, &layout, BATCH, true) && run_start(&run);
    CHECK(made, "%s", diag_text(run.diag));
    for (int i = 0; made && i < run.n_params; i++) n += type_elements(&run.types[i]);
    mean = ARENA_ARRAY(run.arena, float, n + 1);
    const Batch batch = made ? make_batch(&run, 0) : (Batch){0};
    bool fine = made && take_gradients(&run, &batch, mean, &norm) == n;
    for (int s = 0; s < BATCH; s++) {
        const int rows[BATCH] = {s, s, s, s, s, s, s, s};
        each[s] = ARENA_ARRAY(run.arena, float, n + 1);
        const Batch copies = fine ? pick(&run, &batch, rows) : (Batch){0};
        fine = fine && take_gradients(&run, &copies, each[s], &unused) == n;
    }
    CHECK(fine, "%s", diag_text(run.diag));
    EngineNoise *noise = fine ? engine_noise_create(run.engine, 1) : NULL;
    if (fine) give(&run, &batch);
    for (int k = 0; fine && k < N_PARTS; k++) {
        double small = NAN;
        parts[k] = ARENA_ARRAY(run.arena, float, n);
        for (int64_t i = 0; i < n; i++) parts[k][i] = (each[2 * k][i] + each[2 * k + 1][i]) / 2;
        trace += 2 * square_of(parts[k], mean, n) / (N_PARTS - 1);
        CHECK(engine_noise_measure(noise, 3, N_PARTS + k, batch.tokens, batch.labels, &small,
                                   run.diag),
              "%s", diag_text(run.diag));
        const double expects = norm_of(parts[k], NULL, n);
        CHECK(is_near(small, expects, 1e-5), "part %d: %g, not %g", k, small, expects);
        NoiseScale one = {0};
        noise_scale_add(&one, engine_noise_small_batch(noise), small * small,
                        engine_noise_batch(noise), norm * norm);
        estimates[0] += one.sums[NOISE_TRACE] / N_PARTS;
        estimates[1] += one.sums[NOISE_SIGNAL] / N_PARTS;
    }
    const double signal = square_of(mean, NULL, fine ? n : 0) - trace / BATCH;
    CHECK(!fine || (is_near(estimates[0], trace, 1e-4) && is_near(estimates[1], signal, 1e-4)),
          "noise %g, not %g; signal %g, not %g", estimates[0], trace, estimates[1], signal);
    engine_noise_destroy(noise);
    run_close(&run);
}

static const ModelSetting PAIRS[] = {{"layers", "1"},   {"model", "16"},      {"heads", "2"},
                                     {"kv_heads", "2"}, {"seq", "6"},         {"ffn", "16"},
                                     {"vocab", "15"},   {"preference", "dpo"}};
static const ModelSetting POLICY[] = {{"layers", "1"},   {"model", "16"},    {"heads", "2"},
                                      {"kv_heads", "2"}, {"seq", "6"},       {"ffn", "16"},
                                      {"vocab", "15"},   {"policy", "grpo"}, {"kl", "0.1"}};

/* What samples have beside their tokens goes with them; pairs stay pairs. */
static void test_beside(const char *name, const ModelSetting *settings, int n_settings,
                        int rows_together, const int *rows) {
    const Layout layout = {.t = 1, .d = 2, .p = 1, .micro_batch = 2, 1, "1f1b"};
    Run run;
    double whole = NAN, expects = NAN, small = NAN;
    check_begin(name);
    const bool made =
        run_plan(&run, "models/llama.lua", settings, n_settings, &layout, BATCH, true) &&
        run_start(&run);
    CHECK(made, "%s", diag_text(run.diag));
    if (made) {
        const Batch batch = make_batch(&run, 3), part = pick(&run, &batch, rows);
        EngineNoise *noise = engine_noise_create(run.engine, rows_together);
        take_gradients(&run, &part, NULL, &expects);
        take_gradients(&run, &batch, NULL, &whole);
        CHECK(engine_noise_measure(noise, 1, 1, batch.tokens, batch.labels, &small, run.diag), "%s",
              diag_text(run.diag));
        CHECK(is_near(small, expects, 1e-6) && !is_near(small, whole, 1e-3), "%g, not %g; all %g",
              small, expects, whole);
        StepResult result; /* of what was set before */
        CHECK(engine_step(run.engine, 1, batch.tokens, batch.labels, 0, &result, run.diag) &&
                  result.grad_norm == whole,
              "then %g, not %g", result.grad_norm, whole);
        engine_noise_destroy(noise);
    }
    run_close(&run);
}

/* A run that measures and one that does not, to the bit; with a loss scale that is too large at
 * first, where measured gradients are not finite, either. */
static void test_unchanged(const Case *of) {
    enum { MORE = 10 };
    Case with_scale = *of, *c = &with_scale;
    Run run, other;
    int n_finite = 0;
    char name[96];
    snprintf(name, sizeof(name), "noise: nothing changes: %s", c->name);
    check_begin(name);
    run_ema_decay = c->split ? 0 : 0.9;
    c->overflows = c->scaled;
    bool fine = start(&run, c) && start(&other, c);
    run_ema_decay = 0;
    EngineNoise *noise = fine ? engine_noise_create(run.engine, 1) : NULL;
    for (int step = STEPS; fine && step < STEPS + MORE; step++) {
        const Batch batch = make_batch(&run, step);
        double norm;
        fine = engine_noise_measure(noise, step + 1, step, batch.tokens, batch.labels, &norm,
                                    run.diag) &&
               run_steps_from(&run, step, 1, 1e-2) && run_steps_from(&other, step, 1, 1e-2);
        n_finite += isfinite(norm) != 0;
        CHECK(!fine || run.scales[step] == other.scales[step], "loss scale %g, not %g",
              run.scales[step], other.scales[step]);
    }
    CHECK(fine, "%s%s", diag_text(run.diag), diag_text(other.diag));
    CHECK(c->scaled ? n_finite > 1 && n_finite < MORE - 1 : n_finite == MORE, "%d were finite",
          n_finite);
    if (fine) compare_to_the_bit(&run, &other, 0, c->scaled ? 0 : STEPS + MORE);
    fine = fine && engine_swap_averages(run.engine, run.diag) &&
           engine_swap_averages(other.engine, other.diag);
    if (fine) compare_to_the_bit(&run, &other, 0, 0);
    engine_noise_destroy(noise);
    run_close(&run);
    run_close(&other);
}

static void test_noise(void) {
    static const int PAIR_ROWS[] = {4, 5, 6, 7, 4, 5, 6, 7}; /* pairs 2 and 3 */
    static const int ROWS[] = {2, 3, 2, 3, 2, 3, 2, 3};
    test_estimates();
    test_samples();
    test_beside("noise: pairs and their references", PAIRS, 8, 2, PAIR_ROWS);
    test_beside("noise: numbers of tokens", POLICY, 9, 1, ROWS);
    for (int i = 0; i < N_CASES; i++) {
        const Case *c = &CASES[i];
        if (c->d > 1 && (c->scaled || c->split || c->e || c->zero == 2)) test_unchanged(c);
    }
}

/* --- the log and its page --- */

static void test_page(void) {
    /* Four steps: block 1's gradient grows in the third. */
    ParameterNorm norms[] = {{"wte", 8, 1, 0.08},
                             {"blocks.0.w", 3, 0.3, 0.003},
                             {"blocks.0.v", 4, 0.4, 0.004},
                             {"blocks.1.w", 5, 0.5, 0.05},
                             {"moe.bias", 1, NAN, INFINITY}};
    enum { N = sizeof(norms) / sizeof(norms[0]) };
    char path[] = "/tmp/test_norms_XXXXXX.jsonl";
    Diag *diag = diag_create();
    StrBuf page = strbuf_create();
    close(mkstemps(path, 6));
    check_begin("the log, and its page");
    RunLog *log = run_log_open(path, diag);
    for (int step = 1; log && step <= 4; step++) {
        StepMetrics metrics = {.step = step, .loss = 2, .norms = norms};
        norms[3].gradient = step == 3 ? 4 : 0.5;
        metrics.n_norms = step == 2 ? 0 : N;
        metrics.small_batch = step == 2 ? 4 : 0;
        metrics.small_grad_norm = 1.5;
        metrics.noise_scale = 310.25;
        CHECK(run_log_write(log, &metrics, diag), "%s", diag_text(diag));
    }
    run_log_close(log);
    size_t length;
    Arena *arena = arena_create();
    const char *text = file_read(arena, path, 1 << 20, &length, diag);
    CHECK(text && strstr(text, "\"norms\":{\"wte\":[8,1,0.08],\"blocks.0.w\":[3,0.3,0.003],"), "%s",
          text ? text : diag_text(diag));
    CHECK(text && strstr(text, "\"moe.bias\":[1,null,null]}}\n"), "no end of an object");
    CHECK(text && strstr(text, ",\"small_batch\":4,\"small_grad_norm\":1.5,"
                               "\"noise_scale\":310.25,\"noise_error\":null}\n"),
          "%s", text ? text : "");
    CHECK(show_run_html(&page, path, diag), "%s", diag_text(diag));
    CHECK(strstr(page.text, "<title>blocks.1, step 3: 8</title>") &&
              strstr(page.text, "full colour: 8<"),
          "no map of gradients");
    CHECK(strstr(page.text, "<title>blocks.0, step 1: 0.1 %</title>") &&
              strstr(page.text, "<title>wte, step 4: 1 %</title>"),
          "no map of changes");
    CHECK(!strstr(page.text, "moe.bias, "), "what was not told is drawn");
    /* Not trusted: other things in its place, names of markup. */
    FILE *file = fopen(path, "w");
    fprintf(file, "{\"step\":1,\"norms\":[1,2]}\n{\"step\":2,\"norms\":{\"<b>&.3.x\":[1,2,3],"
                  "\"a\":7,\"b\":[1,2],\"c\":[\"x\",{},null],\"d\":[1e300,-1e300,1]}}\n");
    fclose(file);
    page.length = 0;
    CHECK(show_run_html(&page, path, diag) && !strstr(page.text, "<b>") &&
              strstr(page.text, "&lt;b&gt;&amp;.3"),
          "%s", diag_text(diag));
    unlink(path);
    arena_destroy(arena);
    strbuf_destroy(&page);
    diag_destroy(diag);
}

static void test_plot(void) {
    enum { N = 128 };
    double x[N], y[N];
    StrBuf out = strbuf_create();
    check_begin("a curve as text");
    for (int i = 0; i < N; i++) x[i] = i + 1, y[i] = i == 60 ? NAN : 2.0 * i;
    plot_put(&out, x, y, N, false);
    /* Two steps a column. */
    CHECK(strncmp(out.text, "      253 |", 11) == 0 && strstr(out.text, "\n        1 |"), "%s",
          out.text);
    int lines = 0, stars = 0;
    for (const char *c = out.text; *c; c++) lines += *c == '\n', stars += *c == '*';
    CHECK(lines == 13 && stars >= 64, "%d lines, %d stars", lines, stars);
    CHECK(strstr(out.text, "           1                                                          "
                           "  128\n"),
          "%s", out.text);
    out.length = 0;
    plot_put(&out, x, y, N, true);
    CHECK(strstr(out.text, "\u2502") && !strchr(out.text, '*'), "%s", out.text);
    /* First ones far above the others are cut off. */
    out.length = 0;
    for (int i = 0; i < N; i++) y[i] = i < 4 ? 1000 : 10 - i * 0.01;
    plot_put(&out, x, y, N, false);
    CHECK(strncmp(out.text, "    9.915 |**", 13) == 0, "%s", out.text);
    /* Odd ones: a single number, all alike, one step, nothing. */
    out.length = 0;
    for (int i = 0; i < N; i++) y[i] = i == 5 ? 1 : NAN;
    plot_put(&out, x, y, N, true);
    CHECK(out.length == 0, "%s", out.text);
    for (int i = 0; i < N; i++) y[i] = 0;
    plot_put(&out, x, y, N, true);
    plot_put(&out, x, y, 2, false);
    x[1] = x[0];
    plot_put(&out, x, y, 2, true);
    CHECK(out.length > 0, "nothing of numbers that are alike");
    strbuf_destroy(&out);
}

/* --- several processes --- */

/* The only process that has this rank: of the others it has no memory. */
static bool measure_alone(Job *job, int rank, char said[SAID_BYTES]) {
    static const Case CASE = {GPT_MODEL, .t = 2, .d = 2, .zero = 1};
    Run run;
    unsigned char *memory[WORLD];
    const ParameterNorm *whole, *found;
    int n = 0, n_whole, n_alike = 0;
    const bool fine = start(&run, &CASE);
    Control *control = join(job, rank, said);
    if (!fine || !control) return false;
    Engine *engine = run.engine;
    EngineNorms *norms = engine_norms_create(engine);
    engine_norms_begin(norms);
    bool good = run_steps_from(&run, STEPS, 1, 1e-2) &&
                engine_norms_end(norms, run.norms[STEPS], &whole, &n_whole, run.diag);
    for (int r = 0; r < WORLD; r++) {
        memory[r] = engine->ranks[r].memory;
        if (r != rank) engine->ranks[r].memory = NULL;
    }
    engine->is_first = rank == 0;
    engine->control = control;
    EngineNorms *own = engine_norms_create(engine);
    good = good && engine_norms_end(own, run.norms[STEPS], &found, &n, run.diag);
    for (int i = 0; good && i < n; i++) {
        n_alike += is_near(found[i].weight, whole[i].weight, 1e-12) &&
                   is_near(found[i].gradient, whole[i].gradient, 1e-12) && isnan(found[i].change);
    }
    snprintf(said, SAID_BYTES, "%d: %d of %d alike", good, n_alike == n_whole ? 1 : n_alike,
             n == n_whole ? 1 : n);
    for (int r = 0; r < WORLD; r++) engine->ranks[r].memory = memory[r];
    engine->control = NULL;
    engine_norms_destroy(norms);
    engine_norms_destroy(own);
    run_close(&run);
    const bool closed = control_close(control);
    control_destroy(control);
    return closed;
}

static void test_processes(void) {
    check_begin("four processes");
    Job job = job_create(WORLD, measure_alone);
    job.options.connect_s = job.options.operation_s = job.options.lost_s = 60; /* busy machines */
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
    for (int r = 0; r < WORLD; r++) check_said(&job, r, r == 0 ? "1: 1 of 1 alike" : "1: 0 of 0");
}

int main(void) {
    test_processes();
    for (int i = 0; i < N_CASES; i++) test_case(&CASES[i]);
    test_sample();
    test_noise();
    test_page();
    test_plot();
    return check_report();
}
