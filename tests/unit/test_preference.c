/* Losses of pairs of answers and of answers by themselves, from rows of data to gradients. Would
 * catch: a pair whose rows are exchanged or taken from two pairs, a mean over rows or tokens in
 * place of pairs, a loss that is another than the published one, a gradient that is not its,
 * numbers of the reference that go to another row, an answer that is put behind its own prompt to
 * measure the divergence, or is taken for one that is desirable, and whatever depends on the
 * layout.
 */
#include "frontend/commands/train_answers.h"
#include "runtime/data/preferences.h"
#include "runtime/data/token_mask.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

/* --- rows --- */

/* Documents of tokens, 'a' to 'z' what is asked, 'A' to 'Z' what is answered, one behind '|'; '+'
 * before those that are desirable. */
static TokenBuffer make_documents(const char *text, Diag *diag) {
    TokenBuffer buffer = {.token_bytes = 2};
    bool begins = true;
    for (; *text; text++) {
        const bool wanted = *text == '+';
        if (wanted) text++;
        uint32_t token = (unsigned char)*text;
        unsigned char mark =
            (unsigned char)((token < 'a' ? TOKEN_COUNTS : 0) | (begins ? TOKEN_BEGINS : 0) |
                            (wanted ? TOKEN_WANTED : 0));
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
    if (preference_rows(&buffer, &(PreferenceOptions){.seq = seq, .pad = '.'}, &all, diag)) {
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

/* Windows of two rows; '+' or '-' before each says whether its answer is desirable. */
static void check_unpaired(const char *documents, size_t seq, const char *expected) {
    Diag *diag = diag_create();
    TokenBuffer buffer = make_documents(documents, diag);
    PreferenceTotals all;
    const PreferenceOptions how = {.seq = seq, .pad = '.', .needs_others = true};
    char text[256] = "";
    size_t n = 0;
    if (unpaired_rows(&buffer, &how, &all, diag)) {
        int64_t n_wanted = 0;
        for (size_t i = 0; i < buffer.n_tokens; i++) {
            uint32_t token = token_buffer_at(&buffer, i);
            const size_t window = i / (2 * seq) * 2 * seq;
            const bool wanted = !(buffer.marks[window + seq] & TOKEN_COUNTS);
            bool counts = buffer.marks[i] & TOKEN_COUNTS;
            if (i % (2 * seq) != seq) {
                CHECK(counts == (token >= 'A' && token <= 'Z'), "%s: token %zu", documents, i);
            }
            if (i && i % seq == 0) text[n++] = '|';
            if (i == window) text[n++] = wanted ? '+' : '-';
            n_wanted += i == window && wanted;
            text[n++] = (char)token;
        }
        CHECK(all.n_wanted == n_wanted, "%s: %d are desirable, not %d", documents,
              (int)all.n_wanted, (int)n_wanted);
        text[n] = '\0';
    } else {
        snprintf(text, sizeof(text), "%.250s", diag_text(diag));
    }
    CHECK(expected[0] == '?' ? strstr(text, expected + 1) != NULL : strcmp(text, expected) == 0,
          "%s: '%s', not '%s'", documents, text, expected);
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

static void test_unpaired_rows(void) {
    check_begin("preferences: answers by themselves, and others' behind their prompts");
    check_unpaired("+aX|bY|+cZZ", 4, "+aX..|aZZ.|-bY..|bX..|+cZZ.|cY..");
    check_unpaired("+aX|aY|+bZ|bV", 3, "+aX.|aV.|-aY.|aV.|+bZ.|bY.|-bV.|bY.");
    check_unpaired("abcX|+dVWXYZ", 4, "-abcX|cVWX|+dVWX|dX..");
    check_unpaired("+aX|aY|bZ", 2, "+aX|aZ|-aY|aZ|-bZ|bY");
    check_unpaired("+aX|aY", 3, "?all answers are to the same prompt");
    check_unpaired("+aX|Y", 3, "?answer 2 has no prompt before it");
    check_unpaired("+aX|b", 3, "?answer 2 has no token that counts");
}

/* --- losses --- */

enum { BATCH = 8, SEQ = 16, VOCAB = 48, MODEL = 32, N_VALUES = 4 };

typedef struct Loss {
    const char *kind, *beta, *smoothing, *gamma, *rpo;
    bool online;
} Loss;

static const Loss LOSSES[] = {{"dpo", "0.3", "0.0", "0.0", "0.0", false},
                              {"dpo", "0.3", "0.1", "0.0", "0.0", false},
                              {"ipo", "0.4", "0.0", "0.0", "0.0", false},
                              {"simpo", "2.0", "0.0", "0.5", "0.0", false},
                              {"simpo", "2.0", "0.2", "0.5", "0.0", false},
                              {"orpo", "0.5", "0.0", "0.0", "0.0", false},
                              {"dpo", "0.3", "0.0", "0.0", "0.7", false},
                              {"ipo", "0.4", "0.0", "0.0", "0.2", false},
                              {"robust", "0.3", "0.2", "0.0", "0.0", false},
                              {"hinge", "0.1", "0.0", "0.0", "0.0", false},
                              {"sigmoid_norm", "2.0", "0.0", "0.0", "0.0", false},
                              {"apo_zero", "0.3", "0.0", "0.0", "0.0", false},
                              {"apo_down", "0.3", "0.0", "0.0", "0.0", false},
                              {"nca_pair", "0.3", "0.0", "0.0", "0.0", false},
                              {"sppo_hard", "0.3", "0.0", "0.0", "0.0", false},
                              {"dpo", "0.3", "0.0", "0.0", "0.0", true},
                              {"ipo", "0.4", "0.0", "0.0", "0.2", true},
                              {"simpo", "2.0", "0.2", "0.5", "0.0", true}};
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

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Of rewards, a of the chosen answer and b of the rejected one. */
static double loss_by_rewards(const char *kind, double beta, double share, double a, double b) {
    const double chosen = a / beta, rejected = b / beta, x = a - b; /* ratios of TRL's */
    if (strcmp(kind, "robust") == 0) {
        return ((1 - share) * minus_log_sigmoid(x) - share * minus_log_sigmoid(-x)) /
               (1 - 2 * share);
    }
    if (strcmp(kind, "hinge") == 0) return fmax(0, 1 - x);
    if (strcmp(kind, "apo_zero") == 0) return 1 - sigmoid(a) + sigmoid(b);
    if (strcmp(kind, "apo_down") == 0) return sigmoid(a) + 1 - sigmoid(x);
    if (strcmp(kind, "nca_pair") == 0) {
        return minus_log_sigmoid(a) + 0.5 * minus_log_sigmoid(-a) + 0.5 * minus_log_sigmoid(-b);
    }
    if (strcmp(kind, "sppo_hard") == 0) {
        return pow(chosen - 0.5 / beta, 2) + pow(rejected + 0.5 / beta, 2);
    }
    return (1 - share) * minus_log_sigmoid(x) + share * minus_log_sigmoid(-x);
}

/* As TRL's DPOTrainer, CPOTrainer and ORPOTrainer compute it; values: chosen_reward,
 * rejected_reward, reward_accuracy, reward_margin, in the order of their names. Means are over
 * pairs by their weights, which are 1 in the mean. */
static double expected_loss(const Loss *how, const float *scores, const double *weights,
                            double values[N_VALUES]) {
    double beta = atof(how->beta), share = atof(how->smoothing), gamma = atof(how->gamma), sum = 0;
    memset(values, 0, N_VALUES * sizeof(*values));
    for (int i = 0; i < BATCH; i += 2) {
        const double weight = weights[i / 2] * 2 / BATCH;
        double reward[2], mean[2], loss = 0;
        bool compares = strcmp(how->kind, "simpo") != 0 && strcmp(how->kind, "orpo") != 0;
        bool by_token = strcmp(how->kind, "ipo") == 0 || strcmp(how->kind, "sigmoid_norm") == 0;
        for (int k = 0; k < 2; k++) {
            double score = (double)scores[i + k] - (compares ? (double)REFERENCE[i + k] : 0);
            mean[k] = score / answer_length(i + k);
            reward[k] = beta * (compares && !by_token ? score : mean[k]);
        }
        double margin = reward[0] - reward[1];
        if (strcmp(how->kind, "ipo") == 0) {
            loss = pow(mean[0] - mean[1] - 1 / (2 * beta), 2);
        } else if (strcmp(how->kind, "orpo") == 0) {
            double odds = mean[0] - mean[1] - (log1p(-exp(mean[0])) - log1p(-exp(mean[1])));
            loss = -mean[0] + beta * minus_log_sigmoid(odds);
        } else {
            loss = loss_by_rewards(how->kind, beta, share, reward[0] - gamma, reward[1]);
        }
        sum += weight * (loss - atof(how->rpo) * (double)scores[i] / answer_length(i));
        values[0] += reward[0] * weight;
        values[1] += reward[1] * weight;
        values[2] += (margin > 0) * weight;
        values[3] += margin * weight;
    }
    return sum;
}

/* Of pairs: a tie, whose place the others take. */
static const double ALL_ALIKE[BATCH / 2] = {1, 1, 1, 1}, ONE_TIE[BATCH / 2] = {0.5, 0, 1.5, 2};

/* Of answers that the model wrote. */
static void set_weights(Run *run) {
    float *extra = ARENA_ARRAY(run->arena, float, BATCH *SEQ);
    for (int i = 0; i < BATCH; i += 2) extra[i * SEQ] = (float)(ONE_TIE[i / 2] - 1);
    engine_set_numbers(run->engine, TOKEN_EXTRA_WEIGHTS, extra);
}

static bool start(Run *run, const char *model, const Loss *loss, const Layout *layout) {
    char path[64];
    ModelSetting settings[16] = {{"seq", "16"},          {"model", "32"},
                                 {"layers", "4"},        {"vocab", "48"},
                                 {"heads", "4"},         {"ffn", "32"},
                                 {"tied", "false"},      {"preference", loss->kind},
                                 {"beta", loss->beta},   {"label_smoothing", loss->smoothing},
                                 {"gamma", loss->gamma}, {"rpo_alpha", loss->rpo}};
    int n = 12;
    if (strcmp(model, "gpt") != 0) settings[n++] = (ModelSetting){"kv_heads", "4"};
    if (loss->online) settings[n++] = (ModelSetting){"online", "true"};
    snprintf(path, sizeof(path), "models/%s.lua", model);
    bool ready = run_plan(run, path, settings, n, layout, BATCH, true) && run_start(run);
    CHECK(ready, "%s %s: %s", model, loss->kind, diag_text(run->diag));
    if (ready) engine_set_reference(run->engine, REFERENCE);
    if (ready && loss->online) set_weights(run);
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

/* Of online pairs kl, too, where there is a reference. */
static void check_values(const Loss *how, const StepResult *result, const float *scores,
                         const double values[N_VALUES]) {
    const bool diverges = how->online && strcmp(how->kind, "simpo") != 0;
    double kl = 0;
    for (int i = 0; i < BATCH; i++) {
        kl += ((double)scores[i] - (double)REFERENCE[i]) * ONE_TIE[i / 2] / BATCH;
    }
    CHECK(result->n_values == N_VALUES + diverges, "%s: %d values", how->kind, result->n_values);
    for (int i = 0, at = 0; i < result->n_values; i++) {
        const StepValue *found = &result->values[i];
        const double expected = strcmp(found->name, "kl") == 0 ? kl : values[at++];
        CHECK(fabs(found->value - expected) < 1e-5 * (1 + fabs(expected)),
              "%s: %s is %.8g, not %.8g", how->kind, found->name, found->value, expected);
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
            const double *weights = LOSSES[l].online ? ONE_TIE : ALL_ALIKE;
            CHECK(engine_row_scores(run.engine, tokens, labels, scores, run.diag), "%s",
                  diag_text(run.diag));
            check_scores(&run, tokens, labels, scores);
            double expected = expected_loss(&LOSSES[l], scores, weights, values);
            CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag), "%s",
                  diag_text(run.diag));
            CHECK(fabs(result.loss - expected) < 3e-6 * fabs(expected), "%s: %.8g, not %.8g", kind,
                  result.loss, expected);
            check_values(&LOSSES[l], &result, scores, values);
            CHECK(engine_evaluate(run.engine, tokens, labels, &evaluated, run.diag) &&
                      fabs(evaluated - expected) < 3e-6 * fabs(expected),
                  "%s: evaluated %.8g", kind, evaluated);
            check_gradient(&run, "wte", kind);
            check_gradient(&run, "head", kind);
        }
        run_close(&run);
    }
}

/* --- answers by themselves --- */

typedef struct Unpaired {
    const char *kind, *beta, *desirable, *undesirable;
    float distance; /* of the reference from the model, that is of row 0 of those beside answers */
} Unpaired;

static const Unpaired UNPAIRED[] = {{"kto", "0.3", "1.0", "1.0", 3},
                                    {"kto", "0.3", "0.7", "1.4", 3},
                                    {"kto", "0.3", "1.0", "1.0", -9},
                                    {"apo_zero_unpaired", "0.3", "1.0", "0.5", 3}};
enum { N_UNPAIRED = sizeof(UNPAIRED) / sizeof(UNPAIRED[0]) };
static const bool WANTED[BATCH] = {true, false, true, true, false, true, true, false};

static bool start_unpaired(Run *run, const char *model, const Unpaired *how, const Layout *layout) {
    char path[64];
    ModelSetting settings[16] = {{"seq", "16"},
                                 {"model", "32"},
                                 {"layers", "4"},
                                 {"vocab", "48"},
                                 {"heads", "4"},
                                 {"ffn", "32"},
                                 {"tied", "false"},
                                 {"preference", how->kind},
                                 {"beta", how->beta},
                                 {"desirable_weight", how->desirable},
                                 {"undesirable_weight", how->undesirable},
                                 {"kv_heads", "4"}};
    snprintf(path, sizeof(path), "models/%s.lua", model);
    bool ready = run_plan(run, path, settings, 12, layout, BATCH, true) && run_start(run);
    CHECK(ready, "%s %s: %s", model, how->kind, diag_text(run->diag));
    return ready;
}

/* Windows of an answer and, beside it, one of another length and tokens. */
static TrainAnswers take_all(Run *run, const float *beside, int32_t *tokens, int32_t *labels,
                             float *reference) {
    TrainAnswers answers = train_answers_of(run->plan, run->arena);
    int32_t own[BATCH * SEQ], own_labels[BATCH * SEQ];
    fill(own, own_labels);
    for (int row = 0; row < BATCH; row++) {
        int32_t window[2 * SEQ], marks[2 * SEQ];
        const int other = (row + BATCH - 1) % BATCH;
        const float scores[2] = {REFERENCE[row], beside[row]};
        memcpy(window, own + row * SEQ, sizeof(window) / 2);
        memcpy(window + SEQ, own + other * SEQ, sizeof(window) / 2);
        memcpy(marks, own_labels + row * SEQ, sizeof(marks) / 2);
        memcpy(marks + SEQ, own_labels + other * SEQ, sizeof(marks) / 2);
        for (int k = 0; k < 3; k++) window[SEQ + k] = own[row * SEQ + k];
        if (!WANTED[row]) marks[SEQ - 1] = window[SEQ];
        train_answers_take(&answers, row, window, marks, scores, tokens + row * SEQ,
                           labels + row * SEQ, &reference[row]);
    }
    return answers;
}

/* As TRL's KTOTrainer computes it, with the mean over the global batch; values: chosen_reward, of
 * kto kl, rejected_reward, reward_accuracy, reward_margin, in the order of their names. */
static double expected_of_answers(const Unpaired *how, const float *scores, double divergence,
                                  double values[N_VALUES + 1]) {
    const bool kto = strcmp(how->kind, "kto") == 0;
    double beta = atof(how->beta), loss = 0, sums[2] = {0}, right = 0;
    int counts[2] = {0};
    for (int i = 0; i < BATCH; i++) {
        const double ratio = (double)scores[i] - (double)REFERENCE[i];
        const double from = kto ? divergence : 0;
        const double side = WANTED[i] ? ratio - from : from - ratio;
        loss += atof(WANTED[i] ? how->desirable : how->undesirable) *
                (1 - 1 / (1 + exp(-beta * side))) / BATCH;
        sums[WANTED[i]] += beta * ratio;
        counts[WANTED[i]]++;
        right += (side > 0) / (double)BATCH;
    }
    const double chosen = sums[1] / counts[1], rejected = sums[0] / counts[0];
    int n = 0;
    values[n++] = chosen;
    if (kto) values[n++] = divergence;
    values[n++] = rejected;
    values[n++] = right;
    values[n] = chosen - rejected;
    return loss;
}

/* What the model says of the rows beside answers, less that, is what the reference says. */
static double set_beside(Run *run, float distance, float *beside) {
    int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
    float scores[BATCH], reference[BATCH], zeros[BATCH] = {0};
    const int64_t at_once = engine_forward_batch(run->engine);
    double sum = 0;
    TrainAnswers answers = take_all(run, zeros, tokens, labels, reference);
    for (int64_t row = 0; row < BATCH; row += at_once) {
        bool good = engine_row_scores(run->engine, answers.tokens + row * SEQ,
                                      answers.labels + row * SEQ, scores + row, run->diag);
        CHECK(good, "%s", diag_text(run->diag));
    }
    for (int i = 0; i < BATCH; i++) {
        beside[i] = scores[i] - distance + 0.4f * (float)(i % 3);
        sum += (double)scores[i] - (double)beside[i];
    }
    return sum > 0 ? sum / BATCH : 0;
}

static void test_unpaired(void) {
    static const Layout ONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};
    check_begin("preferences: answers by themselves count from the divergence of the batch");
    for (int l = 0; l < N_UNPAIRED; l++) {
        Run run;
        int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
        float scores[BATCH], beside[BATCH], reference[BATCH];
        double values[N_VALUES + 1], evaluated = 0;
        StepResult result;
        const Unpaired *how = &UNPAIRED[l];
        const int n_values = N_VALUES + (strcmp(how->kind, "kto") == 0);
        if (!start_unpaired(&run, "llama", how, &ONE)) continue;
        const double divergence = set_beside(&run, how->distance, beside);
        TrainAnswers answers = take_all(&run, beside, tokens, labels, reference);
        engine_set_reference(run.engine, reference);
        CHECK(divergence > 0 || how->distance < 0, "%g", divergence);
        CHECK(engine_row_scores(run.engine, tokens, labels, scores, run.diag) &&
                  train_answers_give(&answers, run.engine, run.diag) &&
                  engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag),
              "%s", diag_text(run.diag));
        double expected = expected_of_answers(how, scores, divergence, values);
        CHECK(fabs(result.loss - expected) < 3e-6 * expected, "%s: %.8g, not %.8g", how->kind,
              result.loss, expected);
        CHECK(result.n_values == n_values, "%s: %d values", how->kind, result.n_values);
        for (int i = 0; i < n_values && i < result.n_values; i++) {
            CHECK(fabs(result.values[i].value - values[i]) < 1e-5 * (1 + fabs(values[i])),
                  "%s: %s is %.8g, not %.8g", how->kind, result.values[i].name,
                  result.values[i].value, values[i]);
        }
        CHECK(engine_evaluate(run.engine, tokens, labels, &evaluated, run.diag) &&
                  fabs(evaluated - expected) < 3e-6 * expected,
              "%s: evaluated %.8g", how->kind, evaluated);
        check_gradient(&run, "wte", how->kind);
        check_gradient(&run, "head", how->kind);
        run_close(&run);
    }
}

/* --- layouts --- */

typedef struct LayoutCase {
    Layout layout;
    int c, e, zero;
    DType precision;
    const char *model;
} LayoutCase;

/* For plans from now on. */
static void choose(const LayoutCase *c) {
    run_context = c->c;
    run_experts = c->e;
    run_zero = c->zero;
    run_precision = c->precision;
}

static void check_alike(size_t l, const StepResult *result, double loss, double norm, double most) {
    CHECK(fabs(result->loss - loss) <= most * loss, "layout %zu: %.8g, not %.8g", l, result->loss,
          loss);
    CHECK(fabs(result->grad_norm - norm) <= most * norm, "layout %zu: norm %.8g, not %.8g", l,
          result->grad_norm, norm);
}

/* Of pairs of data, and of answers that the model wrote: with a tie. */
static void test_layouts(const Loss *how) {
    static const LayoutCase CASES[] = {
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
        choose(&CASES[l]);
        if (start(&run, CASES[l].model, how, &CASES[l].layout)) {
            double most = run_precision == DTYPE_F32 ? 2e-5 : 0.05;
            CHECK(engine_row_scores(run.engine, tokens, labels, scores, run.diag) &&
                      engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag),
                  "layout %zu: %s", l, diag_text(run.diag));
            if (engine_forward_batch(run.engine) == BATCH && CASES[l].e == 1 && !CASES[l].zero) {
                loss = result.loss;
                norm = result.grad_norm;
                memcpy(first, scores, sizeof(scores));
            }
            check_alike(l, &result, loss, norm, most);
            for (int i = 0; i < engine_forward_batch(run.engine); i++) {
                double off = fabs((double)scores[i] - (double)first[i]);
                CHECK(off <= most * fabs((double)first[i]), "layout %zu: row %d: %g, not %g", l, i,
                      (double)scores[i], (double)first[i]);
            }
        }
        run_close(&run);
    }
    choose(&(LayoutCase){.c = 1, .e = 1, .precision = DTYPE_F32});
}

/* One row at a time, too: answers by themselves are no pairs. */
static void test_unpaired_layouts(void) {
    static const LayoutCase CASES[] = {
        {{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 1, 1, 0, DTYPE_F32, "llama"},
        {{2, 2, 2, 1, 1, "1f1b", true, NULL, 0}, 1, 1, 0, DTYPE_F32, "llama"},
        {{1, 2, 1, 1, 1, "gpipe", false, NULL, 0}, 2, 1, 2, DTYPE_F32, "llama"},
        {{2, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, 2, 1, 0, DTYPE_F32, "llama"},
        {{2, 1, 2, 2, 1, "1f1b", true, NULL, 0}, 1, 1, 0, DTYPE_BF16, "llama"},
        {{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 1, 1, 0, DTYPE_F32, "moe"},
        {{1, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 1, 2, 1, DTYPE_F32, "moe"},
    };
    check_begin("preferences: answers by themselves are worth the same on every layout");
    double loss = 0, norm = 0;
    float beside[BATCH] = {0};
    for (size_t l = 0; l < sizeof(CASES) / sizeof(CASES[0]); l++) {
        Run run;
        int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
        float reference[BATCH];
        StepResult result;
        choose(&CASES[l]);
        if (start_unpaired(&run, CASES[l].model, &UNPAIRED[1], &CASES[l].layout)) {
            const double most = run_precision == DTYPE_F32 ? 2e-5 : 0.05;
            const bool first = engine_forward_batch(run.engine) == BATCH && CASES[l].e == 1;
            if (first && run_precision == DTYPE_F32) set_beside(&run, 3, beside);
            TrainAnswers answers = take_all(&run, beside, tokens, labels, reference);
            engine_set_reference(run.engine, reference);
            CHECK(train_answers_give(&answers, run.engine, run.diag) &&
                      engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag),
                  "layout %zu: %s", l, diag_text(run.diag));
            if (first) {
                loss = result.loss;
                norm = result.grad_norm;
            }
            check_alike(l, &result, loss, norm, most);
        }
        run_close(&run);
    }
    choose(&(LayoutCase){.c = 1, .e = 1, .precision = DTYPE_F32});
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
    test_unpaired_rows();
    test_losses();
    test_unpaired();
    test_layouts(&LOSSES[1]);
    test_layouts(&LOSSES[N_LOSSES - 3]);
    test_unpaired_layouts();
    test_halves();
    return check_report();
}
