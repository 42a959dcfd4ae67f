/* Losses of answers by their advantages (nn.policy), from numbers of labels to gradients. Would
 * catch: a loss that is another than the published one, a mean over other tokens, a clip on the
 * wrong side or of the wrong sign of advantage, a gradient that goes through what is clipped or
 * through scores that stand for old ones, numbers that go to another row, position or input, and
 * whatever depends on the layout.
 */
#include "runtime/data/dataset.h"
#include "tests/unit/train_compare.h"

enum { BATCH = 8, SEQ = 16, VOCAB = 48, N_LABELS = BATCH * SEQ };
static const Layout ONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};

/* --- losses --- */

typedef struct Loss {
    const char *kind, *clip, *clip_high, *kl;
} Loss;

static const Loss LOSSES[] = {{"grpo", "0.2", "0.0", "0.0"},    {"grpo", "0.2", "0.5", "0.4"},
                              {"dapo", "0.2", "0.5", "0.0"},    {"dapo", "0.3", "0.0", "0.2"},
                              {"dr_grpo", "0.2", "0.0", "0.0"}, {"dr_grpo", "0.2", "0.5", "0.3"},
                              {"gspo", "0.2", "0.0", "0.0"},    {"gspo", "0.2", "0.5", "0.4"}};
enum { N_LOSSES = sizeof(LOSSES) / sizeof(LOSSES[0]) };

static bool is_kind(const Loss *how, const char *kind) {
    return strcmp(how->kind, kind) == 0;
}

static int answer_length(int row) {
    return 3 + (5 * row + row / 2) % 10;
}

/* Prompts of 2 or 3 tokens, answers of different lengths. */
static void fill(int32_t *tokens, int32_t *labels) {
    for (int i = 0; i < N_LABELS; i++) {
        int row = i / SEQ, k = i % SEQ;
        tokens[i] = (5 * row + 3 * k * k + 7 * k) % VOCAB;
        labels[i] = DATASET_NO_LABEL;
    }
    for (int row = 0; row < BATCH; row++) {
        int first = 1 + row % 2;
        for (int k = first; k < first + answer_length(row); k++) {
            labels[row * SEQ + k] = tokens[row * SEQ + k + 1];
        }
    }
}

/* What comes with labels. Where there is none, any number. */
typedef struct Numbers {
    float of[N_TOKEN_NUMBERS][N_LABELS];
} Numbers;

/* By how much a label's log-probability has risen: to both sides of what clips allow, in each
 * answer, or by the answer, as gspo looks at it; never near where a clip begins. */
static double rise_of(const Loss *how, int row, int k) {
    static const double RISES[] = {0.6, -0.5, 0.06, -0.1, 0.32, -0.45, 0.34};
    if (is_kind(how, "gspo")) return RISES[row % 7] + 0.02 * (k % 3 - 1);
    return RISES[(row + k) % 7];
}

static void make_numbers(const Loss *how, const float *scores, Numbers *out) {
    for (int i = 0; i < N_LABELS; i++) {
        int row = i / SEQ, k = i % SEQ;
        double sign = (row / 2 + k / 3) % 2 ? 1 : -1, score = (double)scores[i];
        out->of[TOKEN_ADVANTAGES][i] = (float)(sign * (0.5 + 0.1 * row + 0.03 * k));
        out->of[TOKEN_CENTERED_REWARDS][i] = (float)(-sign * (0.3 + 0.02 * row + 0.05 * k));
        out->of[TOKEN_OLD_SCORES][i] = (float)(score - rise_of(how, row, k));
        out->of[TOKEN_REFERENCE_SCORES][i] = (float)(score + 0.07 * (row - 4) + 0.05 * (k % 5));
    }
}

static void set_numbers(Engine *engine, const Numbers *numbers) {
    for (int i = 0; i < N_TOKEN_NUMBERS; i++) {
        engine_set_numbers(engine, (TokenNumbers)i, numbers->of[i]);
    }
}

typedef struct Expected {
    double loss, entropy, clipped, kl;
    int cut[2];      /* clipped, at 1 - clip and at 1 + clip_high */
    int outside;     /* ratios that are beyond a clip, which does not count */
    double distance; /* of a ratio's logarithm from where a clip begins, the least */
} Expected;

/* How much a token's loss counts in the mean: of each answer's mean, of all tokens, or of each
 * answer's sum over seq. */
static double weight_of(const Loss *how, int length, int n_answered) {
    if (is_kind(how, "dapo")) return 1.0 / n_answered;
    if (is_kind(how, "dr_grpo")) return 1.0 / N_LABELS;
    return 1.0 / ((double)BATCH * length);
}

static const float *worth_of(const Loss *how, const Numbers *numbers) {
    bool centered = is_kind(how, "dr_grpo");
    return numbers->of[centered ? TOKEN_CENTERED_REWARDS : TOKEN_ADVANTAGES];
}

static void expect_token(const Loss *how, double risen, double worth, double below, double weight,
                         Expected *out) {
    double low = 1 - atof(how->clip), kl = atof(how->kl);
    double high = 1 + atof(atof(how->clip_high) > 0 ? how->clip_high : how->clip);
    double ratio = exp(risen), allowed = fmin(fmax(ratio, low), high);
    double gain = fmin(ratio * worth, allowed * worth), divergence = exp(below) - below - 1;
    out->loss += weight * (kl * divergence - gain);
    out->clipped += allowed * worth < ratio * worth;
    out->cut[worth > 0] += allowed * worth < ratio * worth;
    out->outside += allowed * worth > ratio * worth;
    out->kl += divergence;
    out->distance = fmin(out->distance, fmin(fabs(risen - log(low)), fabs(risen - log(high))));
}

static void expect(const Loss *how, const int32_t *labels, const float *scores,
                   const Numbers *numbers, Expected *out) {
    const float *olds = numbers->of[TOKEN_OLD_SCORES], *worth = worth_of(how, numbers);
    int n_answered = 0;
    for (int i = 0; i < N_LABELS; i++) n_answered += labels[i] >= 0;
    *out = (Expected){.distance = 1};
    for (int row = 0; row < BATCH; row++) {
        double risen[SEQ], mean = 0;
        int length = answer_length(row);
        for (int k = 0; k < SEQ; k++) {
            const int i = row * SEQ + k;
            double score = (double)scores[i];
            risen[k] = labels[i] < 0 || olds[i] == 0 ? 0 : score - (double)olds[i];
            mean += risen[k] / length;
        }
        for (int k = 0; k < SEQ; k++) {
            const int i = row * SEQ + k;
            double score = (double)scores[i];
            if (labels[i] < 0) continue;
            expect_token(how, is_kind(how, "gspo") ? mean : risen[k], (double)worth[i],
                         (double)numbers->of[TOKEN_REFERENCE_SCORES][i] - score,
                         weight_of(how, length, n_answered), out);
            out->entropy -= score;
        }
    }
    out->entropy /= n_answered;
    out->clipped /= n_answered;
    out->kl /= n_answered;
}

static int fill_settings(const char *model, const Loss *loss, ModelSetting out[16]) {
    const ModelSetting common[] = {{"seq", "16"},
                                   {"model", "32"},
                                   {"layers", "4"},
                                   {"vocab", "48"},
                                   {"heads", "4"},
                                   {"ffn", "32"},
                                   {"tied", "false"},
                                   {"optimizer.eps", "1e-6"},
                                   {"policy", loss->kind},
                                   {"clip", loss->clip},
                                   {"clip_high", loss->clip_high},
                                   {"kl", loss->kl}};
    int n = sizeof(common) / sizeof(common[0]);
    memcpy(out, common, sizeof(common));
    if (strcmp(model, "gpt") != 0) out[n++] = (ModelSetting){"kv_heads", "4"};
    return n;
}

static bool start(Run *run, const char *model, const Loss *loss, const Layout *layout, int batch) {
    char path[64];
    ModelSetting settings[16];
    int n = fill_settings(model, loss, settings);
    snprintf(path, sizeof(path), "models/%s.lua", model);
    bool ready = run_plan(run, path, settings, n, layout, batch, true) && run_start(run);
    CHECK(ready, "%s %s: %s", model, loss->kind, diag_text(run->diag));
    return ready;
}

/* log softmax(logits)[label] is its score; where there is no label, there is none. */
static void check_scores(Run *run, const int32_t *tokens, const int32_t *labels,
                         const float *scores) {
    float *logits = ARENA_ARRAY(run->arena, float, N_LABELS *VOCAB);
    CHECK(engine_logits(run->engine, tokens, logits, run->diag), "%s", diag_text(run->diag));
    for (int i = 0; i < N_LABELS; i++) {
        const float *at = logits + i * VOCAB;
        double total = 0, expected = 0;
        for (int v = 0; v < VOCAB; v++) total += exp((double)at[v]);
        if (labels[i] >= 0) expected = (double)at[labels[i]] - log(total);
        CHECK(fabs(expected - (double)scores[i]) <= 2e-6 * fabs(expected), "label %d: %g, not %g",
              i, (double)scores[i], expected);
    }
}

static void check_value(const StepResult *result, const char *kind, const char *name,
                        double expected) {
    for (int i = 0; i < result->n_values; i++) {
        if (strcmp(result->values[i].name, name) != 0) continue;
        CHECK(fabs(result->values[i].value - expected) < 2e-6 * (1 + fabs(expected)),
              "%s: %s is %.8g, not %.8g", kind, name, result->values[i].value, expected);
        return;
    }
    CHECK(false, "%s: no value '%s'", kind, name);
}

/* One step that moves nothing, and the loss of an evaluation. */
static void check_step(Run *run, const Loss *how, const int32_t *tokens, const int32_t *labels,
                       const Expected *expected) {
    StepResult result;
    double evaluated = 0;
    bool kl = atof(how->kl) > 0;
    CHECK(engine_step(run->engine, 1, tokens, labels, 0, &result, run->diag), "%s",
          diag_text(run->diag));
    CHECK(fabs(result.loss - expected->loss) < 1e-6, "%s: %.8g, not %.8g", how->kind, result.loss,
          expected->loss);
    CHECK(result.n_values == (kl ? 3 : 2), "%s: %d values", how->kind, result.n_values);
    check_value(&result, how->kind, "entropy", expected->entropy);
    check_value(&result, how->kind, "clipped", expected->clipped);
    if (kl) check_value(&result, how->kind, "kl", expected->kl);
    CHECK(engine_evaluate(run->engine, tokens, labels, &evaluated, run->diag) &&
              fabs(evaluated - expected->loss) < 1e-6,
          "%s: evaluated %.8g, not %.8g", how->kind, evaluated, expected->loss);
}

static const char *const MOVED[] = {"wte", "head", "blocks.1.attn.wv", "blocks.2.mlp.wdown"};

/* Of the last step, by what `value` changes. Steps are so short that no ratio comes to a clip. */
static void check_gradients(Run *run, RunValue *value, void *user, const char *which) {
    for (size_t i = 0; i < sizeof(MOVED) / sizeof(MOVED[0]); i++) {
        double norm, slope;
        bool there = run_slope_of(run, MOVED[i], value, user, 4e-3, &norm, &slope);
        CHECK(there && norm > 1e-3 && fabs(slope - norm) < 2e-3 * norm,
              "%s: %s: slope %g, gradient %g", which, MOVED[i], slope, norm);
    }
}

static void test_losses(void) {
    check_begin("policy: losses are the published ones, gradients are theirs");
    for (int l = 0; l < N_LOSSES; l++) {
        const Loss *how = &LOSSES[l];
        Run run;
        int32_t tokens[N_LABELS], labels[N_LABELS];
        float scores[N_LABELS];
        static Numbers numbers;
        Expected expected;
        fill(tokens, labels);
        RunBatch batch = {tokens, labels};
        if (start(&run, "llama", how, &ONE, BATCH)) {
            CHECK(engine_token_scores(run.engine, tokens, labels, scores, run.diag), "%s",
                  diag_text(run.diag));
            check_scores(&run, tokens, labels, scores);
            make_numbers(how, scores, &numbers);
            set_numbers(run.engine, &numbers);
            expect(how, labels, scores, &numbers, &expected);
            CHECK(expected.cut[0] > 2 && expected.cut[1] > 2 && expected.outside > 5 &&
                      expected.clipped < 0.6 && expected.distance > 0.04,
                  "%s: clips %d and %d, not %d, %g from the next", how->kind, expected.cut[0],
                  expected.cut[1], expected.outside, expected.distance);
            check_step(&run, how, tokens, labels, &expected);
            check_gradients(&run, run_loss, &batch, how->kind);
        }
        run_close(&run);
    }
}

/* --- old scores that are 0: as they are now --- */

typedef struct Surrogate {
    const Loss *how;
    const Numbers *numbers;
    const int32_t *tokens, *labels;
} Surrogate;

/* Where all ratios are 1, the gradient is that of -mean(A log p), of gspo of each answer's mean
 * advantage times its mean log p. */
static double surrogate(Run *run, void *user) {
    const Surrogate *s = user;
    const float *worth = worth_of(s->how, s->numbers);
    float scores[N_LABELS];
    double sum = 0;
    int n_answered = 0;
    if (!engine_token_scores(run->engine, s->tokens, s->labels, scores, run->diag)) return NAN;
    for (int i = 0; i < N_LABELS; i++) n_answered += s->labels[i] >= 0;
    for (int row = 0; row < BATCH; row++) {
        double all_worth = 0, all = 0, products = 0;
        const int length = answer_length(row);
        for (int i = row * SEQ; i < (row + 1) * SEQ; i++) {
            if (s->labels[i] < 0) continue;
            all_worth += (double)worth[i];
            all += (double)scores[i];
            products += (double)worth[i] * (double)scores[i];
        }
        if (is_kind(s->how, "gspo")) products = all_worth * all / length;
        sum -= weight_of(s->how, length, n_answered) * products;
    }
    return sum;
}

static void test_as_now(void) {
    check_begin("policy: old scores that are 0 are as the scores are now");
    for (int l = 0; l < N_LOSSES; l++) {
        const Loss *how = &LOSSES[l];
        Run run;
        int32_t tokens[N_LABELS], labels[N_LABELS];
        float scores[N_LABELS];
        static Numbers numbers;
        Expected expected;
        Surrogate of = {how, &numbers, tokens, labels};
        if (atof(how->kl) > 0) continue;
        fill(tokens, labels);
        if (start(&run, "gpt", how, &ONE, BATCH)) {
            CHECK(engine_token_scores(run.engine, tokens, labels, scores, run.diag), "%s",
                  diag_text(run.diag));
            make_numbers(how, scores, &numbers);
            set_numbers(run.engine, &numbers);
            for (int i = 0; i < N_LABELS; i += 2) numbers.of[TOKEN_OLD_SCORES][i] = 0;
            expect(how, labels, scores, &numbers, &expected);
            check_step(&run, how, tokens, labels, &expected);
            engine_set_numbers(run.engine, TOKEN_OLD_SCORES, NULL); /* zeros */
            memset(numbers.of[TOKEN_OLD_SCORES], 0, sizeof(numbers.of[TOKEN_OLD_SCORES]));
            expect(how, labels, scores, &numbers, &expected);
            CHECK(expected.clipped == 0 && expected.outside == 0, "%g", expected.clipped);
            check_step(&run, how, tokens, labels, &expected);
            for (size_t i = 0; i < 2; i++) {
                double norm, slope;
                bool there = run_slope_of(&run, MOVED[i], surrogate, &of, 4e-3, &norm, &slope);
                CHECK(there && norm > 1e-3 && fabs(slope - norm) < 2e-3 * norm,
                      "%s: %s: slope %g, gradient %g", how->kind, MOVED[i], slope, norm);
            }
        }
        run_close(&run);
    }
}

/* --- layouts --- */

enum { STEPS = 4, GLOBAL_BATCH = 16 };
static const double LEARNING_RATE = 1e-3;

/* What the first rows' labels score before training, and values after it. */
typedef struct Told {
    float scores[GLOBAL_BATCH * SEQ];
    int n_scores, n_values;
    double values[3];
} Told;

static bool train(Run *run, Told *told) {
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, GLOBAL_BATCH * SEQ);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, GLOBAL_BATCH * SEQ);
    StepResult result;
    fill_batch(run->plan, 50, tokens, labels);
    told->n_scores = (int)engine_forward_batch(run->engine) * SEQ;
    if (!engine_token_scores(run->engine, tokens, labels, told->scores, run->diag) ||
        !run_steps_keeping(run, STEPS, LEARNING_RATE) ||
        !engine_step(run->engine, STEPS + 1, tokens, labels, 0, &result, run->diag)) {
        return false;
    }
    told->n_values = result.n_values;
    for (int i = 0; i < result.n_values; i++) told->values[i] = result.values[i].value;
    return true;
}

static void compare_told(const Told *ours, const Told *theirs, double limit) {
    int n = ours->n_scores < theirs->n_scores ? ours->n_scores : theirs->n_scores;
    for (int i = 0; i < n; i++) {
        double score = (double)theirs->scores[i], off = fabs((double)ours->scores[i] - score);
        CHECK(off <= limit * fabs(score), "label %d scores %g, on one rank %g", i,
              (double)ours->scores[i], score);
    }
    CHECK(ours->n_values == 3 && theirs->n_values == 3, "%d values", ours->n_values);
    for (int i = 0; i < 3; i++) {
        CHECK(fabs(ours->values[i] - theirs->values[i]) <= limit * (1 + fabs(theirs->values[i])),
              "value %d is %.8g, on one rank %.8g", i, ours->values[i], theirs->values[i]);
    }
}

/* bf16 rounds a ratio to 2^-9 at best, and what is clipped to the other side now and then. */
static void compare_roughly(const Run *run, const Run *one) {
    for (int step = 0; step < STEPS; step++) {
        double error = fabs((run->losses[step] - one->losses[step]) / one->losses[step]);
        CHECK(error < 0.02, "loss of step %d is %.8f, in f32 %.8f", step + 1, run->losses[step],
              one->losses[step]);
        error = fabs((run->norms[step] - one->norms[step]) / one->norms[step]);
        CHECK(error < 0.05, "norm of step %d is %.8f, in f32 %.8f", step + 1, run->norms[step],
              one->norms[step]);
    }
}

typedef struct Case {
    Layout layout;
    int c, e, zero;
    Recompute recompute;
    int loss_parts;
    DType precision;
} Case;

static const Case CASES[] = {
    {{1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 1, 0, RECOMPUTE_FULL, 1, DTYPE_F32},
    {{2, 2, 2, 2, 1, "1f1b", true, NULL, 0}, 1, 1, 0, RECOMPUTE_NONE, 1, DTYPE_F32},
    {{1, 2, 1, 2, 1, "gpipe", false, NULL, 0}, 2, 1, 2, RECOMPUTE_NONE, 1, DTYPE_F32},
    {{2, 1, 2, 4, 1, "zb-h1", false, NULL, 0}, 2, 1, 0, RECOMPUTE_NONE, 1, DTYPE_F32},
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 1, 3, RECOMPUTE_SELECTIVE, 1, DTYPE_F32},
    {{1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, 1, 1, 0, RECOMPUTE_FULL, 1, DTYPE_F32},
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, 1, 1, 0, RECOMPUTE_SELECTIVE, 3, DTYPE_F32},
    {{1, 2, 2, 2, 1, "zb-h1", false, NULL, 0}, 1, 1, 0, RECOMPUTE_NONE, 2, DTYPE_F32},
    {{1, 1, 2, 4, 2, "zb-v", false, NULL, 0}, 2, 1, 1, RECOMPUTE_NONE, 1, DTYPE_F32},
    {{1, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 1, 0, RECOMPUTE_NONE, 1, DTYPE_BF16},
    {{2, 1, 2, 2, 1, "1f1b", true, NULL, 0}, 1, 1, 0, RECOMPUTE_NONE, 2, DTYPE_BF16},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };
static const Case EXPERTS[] = {
    /* whose losses are beside the answers' */
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 2, 1, RECOMPUTE_NONE, 1, DTYPE_F32},
    {{2, 1, 2, 2, 1, "1f1b", false, NULL, 0}, 1, 1, 0, RECOMPUTE_FULL, 1, DTYPE_F32},
};
enum { N_EXPERTS = sizeof(EXPERTS) / sizeof(EXPERTS[0]) };

static void check_layout(const char *model, const Loss *how, const Case *c, Run *one,
                         const Told *expected) {
    char name[160], title[200];
    Run run;
    static Told told;
    run_context = c->c;
    run_experts = c->e;
    run_zero = c->zero;
    run_recompute = c->recompute;
    run_loss_parts = c->loss_parts;
    run_precision = c->precision;
    snprintf(title, sizeof(title), "policy %s, %s, %d parts, %s", how->kind,
             layout_name(model, &c->layout, name, sizeof(name)), c->loss_parts,
             dtype_name(c->precision));
    check_begin(title);
    bool done = start(&run, model, how, &c->layout, GLOBAL_BATCH);
    run_context = run_experts = run_loss_parts = 1;
    run_zero = 0;
    run_recompute = RECOMPUTE_NONE;
    run_precision = DTYPE_F32;
    done = done && train(&run, &told);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        bool parts = engine_logits_width(run.engine) == 0; /* never all logits */
        CHECK(parts == (c->loss_parts > 1), "logits in parts: %d", parts);
    }
    if (done && c->precision == DTYPE_F32) compare_runs(&run, one, STEPS);
    if (done && c->precision != DTYPE_F32) compare_roughly(&run, one);
    if (done) compare_told(&told, expected, c->precision == DTYPE_F32 ? 1e-5 : 0.03);
    run_close(&run);
    check_end();
}

static void test_layouts(const char *model, const Case *cases, int n_cases) {
    static const Loss KINDS[] = {{"grpo", "0.2", "0.3", "0.2"},
                                 {"dapo", "0.2", "0.3", "0.1"},
                                 {"dr_grpo", "0.3", "0.0", "0.2"},
                                 {"gspo", "0.1", "0.2", "0.2"}};
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    for (size_t k = 0; k < sizeof(KINDS) / sizeof(KINDS[0]); k += VARIANT_STEP) {
        Run one;
        static Told expected;
        char name[64];
        snprintf(name, sizeof(name), "policy %s, %s on one rank", KINDS[k].kind, model);
        check_begin(name);
        bool done = start(&one, model, &KINDS[k], &alone, GLOBAL_BATCH) && train(&one, &expected);
        CHECK(done, "on one rank: %s", diag_text(one.diag));
        double clipped = expected.values[0];
        CHECK(clipped > 0.05 && clipped < 0.6, "%g of the ratios are clipped", clipped);
        check_end();
        for (int c = 0; done && c < n_cases; c += VARIANT_STEP) {
            check_layout(model, &KINDS[k], &cases[c], &one, &expected);
        }
        run_close(&one);
    }
}

int main(void) {
    test_losses();
    test_as_now();
    test_layouts("llama", CASES, N_CASES);
    test_layouts("moe", EXPERTS, N_EXPERTS);
    compare_print_worst();
    return check_report();
}
