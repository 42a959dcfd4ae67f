/* Losses of pairs of answers, from rows of data to gradients. Would catch: a pair whose rows are
 * exchanged or taken from two pairs, a mean over rows or tokens in place of pairs, a loss that is
 * another than the published one, a gradient that is not its, numbers of the reference that go to
 * another row, and whatever depends on the layout.
 */
#include "runtime/data/preferences.h"
#include "runtime/data/token_mask.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

/* --- rows --- */

/* Documents of tokens, 'a' to 'z' what is asked, 'A' to 'Z' what is answered, one behind '|'. */
static TokenBuffer make_documents(const char *text, Diag *diag) {
    TokenBuffer buffer = {.token_bytes = 2};
    bool begins = true;
    for (; *text; text++) {
        uint32_t token = (unsigned char)*text;
        unsigned char mark =
            (unsigned char)((token < 'a' ? TOKEN_COUNTS : 0) | (begins ? TOKEN_BEGINS : 0));
        begins = token == '|';
        if (!begins) token_buffer_put(&buffer, &token, &mark, 1, diag);
    }
    return buffer;
}

static void check_rows(const char *documents, size_t seq, const char *expected,
                       const char *totals) {
    Diag *diag = diag_create();
    TokenBuffer buffer = make_documents(documents, diag);
    PreferenceTotals all;
    char text[256] = "", told[128] = "";
    if (preference_rows(&buffer, &(PreferenceOptions){seq, '.'}, &all, diag)) {
        size_t n = 0;
        for (size_t i = 0; i < buffer.n_tokens; i++) {
            uint32_t token = token_buffer_at(&buffer, i);
            bool counts = buffer.marks[i] & TOKEN_COUNTS;
            CHECK(counts == (token >= 'A' && token <= 'Z'), "%s: token %zu", documents, i);
            if (i && i % seq == 0) text[n++] = '|';
            text[n++] = (char)token;
        }
        text[n] = '\0';
        snprintf(told, sizeof(told), "%d pairs %d equal %d prompts %d answers", (int)all.n_pairs,
                 (int)all.n_equal, (int)all.n_prompts, (int)all.n_answers);
    } else {
        snprintf(told, sizeof(told), "%.100s", diag_text(diag));
    }
    CHECK(strcmp(text, expected) == 0, "%s: '%s', not '%s'", documents, text, expected);
    CHECK(strstr(told, totals), "%s: '%s', not '%s'", documents, told, totals);
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

static void test_rows(void) {
    check_begin("preferences: rows of a prompt and an answer, cut where they are too long");
    check_rows("abC|abDE", 6, "abC...|abDE..", "1 pairs 0 equal 0 prompts 0 answers");
    check_rows("abC|abDE|xY|xZ", 4, "abC.|abDE|xY..|xZ..", "2 pairs 0 equal 0 prompts 0 answers");
    check_rows("abcdX|abcdYZ", 4, "cdX.|cdYZ", "1 pairs 0 equal 1 prompts 0 answers");
    check_rows("abcdX|abcdVWXYZ", 4, "dX..|dVWX", "1 pairs 0 equal 1 prompts 1 answers");
    check_rows("aX|aX|bX|bY", 3, "bX.|bY.", "1 pairs 1 equal");
    check_rows("aXbYcc|aXbZ", 6, "aXbY..|aXbZ..", "1 pairs 0 equal");
    check_rows("aX|aX", 3, "", "1 are twice the same answer");
    check_rows("aX|X", 3, "", "pair 1: the rejected answer has no prompt");
    check_rows("a|aX", 3, "", "pair 1: the chosen answer has no token that counts");
}

/* --- losses --- */

enum { BATCH = 8, SEQ = 16, VOCAB = 48, MODEL = 32, N_VALUES = 4 };

typedef struct Loss {
    const char *kind, *beta, *smoothing, *gamma;
} Loss;

static const Loss LOSSES[] = {{"dpo", "0.3", "0.0", "0.0"},   {"dpo", "0.3", "0.1", "0.0"},
                              {"ipo", "0.4", "0.0", "0.0"},   {"simpo", "2.0", "0.0", "0.5"},
                              {"simpo", "2.0", "0.2", "0.5"}, {"orpo", "0.5", "0.0", "0.0"}};
enum { N_LOSSES = sizeof(LOSSES) / sizeof(LOSSES[0]) };

static const float REFERENCE[BATCH] = {-20, -21.5f, -33, -30, -18, -18.25f, -25, -29};

static int answer_length(int row) {
    return 4 + (3 * row + row / 2) % 9;
}

/* Pairs have prompts of 3 tokens and answers of their own. */
static void fill(int32_t *tokens, int32_t *labels) {
    for (int i = 0; i < BATCH * SEQ; i++) {
        int row = i / SEQ, k = i % SEQ;
        tokens[i] = (k < 3 ? 7 * (row / 2) + k : 5 * row + 3 * k * k) % VOCAB;
        labels[i] = DATASET_NO_LABEL;
    }
    for (int row = 0; row < BATCH; row++) {
        for (int k = 2; k < 2 + answer_length(row); k++) {
            labels[row * SEQ + k] = tokens[row * SEQ + k + 1];
        }
    }
}

static double minus_log_sigmoid(double x) {
    return log1p(exp(-x));
}

/* As TRL's DPOTrainer, CPOTrainer and ORPOTrainer compute it; values: chosen_reward,
 * rejected_reward, reward_accuracy, reward_margin, in the order of their names. */
static double expected_loss(const Loss *how, const float *scores, double values[N_VALUES]) {
    double beta = atof(how->beta), share = atof(how->smoothing), gamma = atof(how->gamma), sum = 0;
    memset(values, 0, N_VALUES * sizeof(*values));
    for (int i = 0; i < BATCH; i += 2) {
        double reward[2], mean[2], loss = 0;
        bool compares = strcmp(how->kind, "dpo") == 0 || strcmp(how->kind, "ipo") == 0;
        for (int k = 0; k < 2; k++) {
            double score = (double)scores[i + k] - (compares ? (double)REFERENCE[i + k] : 0);
            mean[k] = score / answer_length(i + k);
            reward[k] = beta * (strcmp(how->kind, "dpo") == 0 ? score : mean[k]);
        }
        double margin = reward[0] - reward[1];
        if (strcmp(how->kind, "ipo") == 0) {
            loss = pow(mean[0] - mean[1] - 1 / (2 * beta), 2);
        } else if (strcmp(how->kind, "orpo") == 0) {
            double odds = mean[0] - mean[1] - (log1p(-exp(mean[0])) - log1p(-exp(mean[1])));
            loss = -mean[0] + beta * minus_log_sigmoid(odds);
        } else {
            double x = margin - gamma;
            loss = (1 - share) * minus_log_sigmoid(x) + share * minus_log_sigmoid(-x);
        }
        sum += loss;
        values[0] += reward[0] * 2 / BATCH;
        values[1] += reward[1] * 2 / BATCH;
        values[2] += (margin > 0) * 2.0 / BATCH;
        values[3] += margin * 2 / BATCH;
    }
    return sum * 2 / BATCH;
}

static bool start(Run *run, const char *model, const Loss *loss, const Layout *layout) {
    char path[64];
    ModelSetting settings[16] = {{"seq", "16"},         {"model", "32"},
                                 {"layers", "4"},       {"vocab", "48"},
                                 {"heads", "4"},        {"ffn", "32"},
                                 {"tied", "false"},     {"preference", loss->kind},
                                 {"beta", loss->beta},  {"label_smoothing", loss->smoothing},
                                 {"gamma", loss->gamma}};
    int n = 11;
    if (strcmp(model, "gpt") != 0) settings[n++] = (ModelSetting){"kv_heads", "4"};
    snprintf(path, sizeof(path), "models/%s.lua", model);
    bool ready = run_plan(run, path, settings, n, layout, BATCH, true) && run_start(run);
    CHECK(ready, "%s %s: %s", model, loss->kind, diag_text(run->diag));
    if (ready) engine_set_reference(run->engine, REFERENCE);
    return ready;
}

static void check_gradient(Run *run, const char *name, const char *which) {
    int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
    double norm, slope;
    fill(tokens, labels);
    if (!run_slope(run, name, tokens, labels, &norm, &slope)) return;
    CHECK(norm > 1e-4 && fabs(slope - norm) < 0.01 * norm, "%s: %s: slope %g, gradient %g", which,
          name, slope, norm);
}

/* -sum of log softmax(logits)[label] of each row is its score. */
static void check_scores(Run *run, const int32_t *tokens, const int32_t *labels,
                         const float *scores) {
    float *logits = ARENA_ARRAY(run->arena, float, BATCH *SEQ *VOCAB);
    CHECK(engine_logits(run->engine, tokens, logits, run->diag), "%s", diag_text(run->diag));
    for (int row = 0; row < BATCH; row++) {
        double sum = 0;
        for (int k = 0; k < SEQ; k++) {
            const float *at = logits + (row * SEQ + k) * VOCAB;
            double total = 0;
            if (labels[row * SEQ + k] < 0) continue;
            for (int v = 0; v < VOCAB; v++) total += exp((double)at[v]);
            sum += (double)at[labels[row * SEQ + k]] - log(total);
        }
        CHECK(fabs(sum - (double)scores[row]) < 1e-5 * fabs(sum), "row %d: %g, not %g", row,
              (double)scores[row], sum);
    }
}

static void test_losses(void) {
    static const Layout ONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};
    check_begin("preferences: losses are the published ones, gradients are theirs");
    for (int l = 0; l < N_LOSSES; l++) {
        Run run;
        int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
        float scores[BATCH];
        double values[N_VALUES], evaluated = 0;
        StepResult result;
        fill(tokens, labels);
        if (start(&run, "llama", &LOSSES[l], &ONE)) {
            const char *kind = LOSSES[l].kind;
            CHECK(engine_row_scores(run.engine, tokens, labels, scores, run.diag), "%s",
                  diag_text(run.diag));
            check_scores(&run, tokens, labels, scores);
            double expected = expected_loss(&LOSSES[l], scores, values);
            CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag), "%s",
                  diag_text(run.diag));
            CHECK(fabs(result.loss - expected) < 3e-6 * fabs(expected), "%s: %.8g, not %.8g", kind,
                  result.loss, expected);
            for (int i = 0; i < N_VALUES; i++) {
                CHECK(result.n_values == N_VALUES &&
                          fabs(result.values[i].value - values[i]) < 1e-5 * (1 + fabs(values[i])),
                      "%s: %s is %.8g, not %.8g", kind, result.values[i].name,
                      result.values[i].value, values[i]);
            }
            CHECK(engine_evaluate(run.engine, tokens, labels, &evaluated, run.diag) &&
                      fabs(evaluated - expected) < 3e-6 * fabs(expected),
                  "%s: evaluated %.8g", kind, evaluated);
            check_gradient(&run, "wte", kind);
            check_gradient(&run, "head", kind);
        }
        run_close(&run);
    }
}

/* --- layouts --- */

static void test_layouts(void) {
    static const struct {
        Layout layout;
        int c, e, zero;
        DType precision;
        const char *model;
    } CASES[] = {
        {{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 1, 1, 0, DTYPE_F32, "llama"},
        {{2, 2, 2, 2, 1, "1f1b", true, NULL, 0}, 1, 1, 0, DTYPE_F32, "llama"},
        {{1, 2, 1, 2, 1, "gpipe", false, NULL, 0}, 2, 1, 2, DTYPE_F32, "llama"},
        {{2, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, 2, 1, 0, DTYPE_F32, "llama"},
        {{2, 1, 2, 2, 1, "1f1b", true, NULL, 0}, 1, 1, 0, DTYPE_BF16, "llama"},
        {{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 1, 1, 0, DTYPE_F32, "moe"},
        {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 2, 1, DTYPE_F32, "moe"},
    };
    check_begin("preferences: losses, gradients and scores are those of one rank on every layout");
    double loss = 0, norm = 0;
    float first[BATCH] = {0};
    for (size_t l = 0; l < sizeof(CASES) / sizeof(CASES[0]); l++) {
        Run run;
        int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
        float scores[BATCH];
        StepResult result;
        fill(tokens, labels);
        run_context = CASES[l].c;
        run_experts = CASES[l].e;
        run_zero = CASES[l].zero;
        run_precision = CASES[l].precision;
        if (start(&run, CASES[l].model, &LOSSES[1], &CASES[l].layout)) {
            double most = run_precision == DTYPE_F32 ? 2e-5 : 0.05;
            CHECK(engine_row_scores(run.engine, tokens, labels, scores, run.diag) &&
                      engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag),
                  "layout %zu: %s", l, diag_text(run.diag));
            if (engine_forward_batch(run.engine) == BATCH && CASES[l].e == 1 && !CASES[l].zero) {
                loss = result.loss;
                norm = result.grad_norm;
                memcpy(first, scores, sizeof(scores));
            }
            CHECK(fabs(result.loss - loss) <= most * loss, "layout %zu: %.8g, not %.8g", l,
                  result.loss, loss);
            CHECK(fabs(result.grad_norm - norm) <= most * norm, "layout %zu: norm %.8g, not %.8g",
                  l, result.grad_norm, norm);
            for (int i = 0; i < engine_forward_batch(run.engine); i++) {
                double off = fabs((double)scores[i] - (double)first[i]);
                CHECK(off <= most * fabs((double)first[i]), "layout %zu: row %d: %g, not %g", l, i,
                      (double)scores[i], (double)first[i]);
            }
        }
        run_close(&run);
    }
    run_context = run_experts = 1;
    run_zero = 0;
    run_precision = DTYPE_F32;
}

static void test_halves(void) {
    static const Layout HALF = {1, 2, 1, 1, 1, "1f1b", false, NULL, 0};
    const ModelSetting setting = {"preference", "simpo"};
    Run run;
    check_begin("preferences: no plan divides a pair");
    bool planned = run_plan(&run, "models/gpt.lua", &setting, 1, &HALF, BATCH, false);
    CHECK(!planned && strstr(diag_text(run.diag), "--micro-batch: 1; rows of the batch are pairs"),
          "%s", diag_text(run.diag));
    run_close(&run);
}

int main(void) {
    test_rows();
    test_losses();
    test_layouts();
    test_halves();
    return check_report();
}
