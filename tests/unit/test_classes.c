/* Classes of whole texts and rewards of answers, from rows to gradients. Catches: a class that is
 * read at another token than the text's first or last, a text that sees its class, a row that is
 * cut without the token that ends it, texts in one row whose classes are mixed up, a loss or a
 * share of right ones that is over a rank's texts, a reward that is not the last token's; a set or
 * a number that is another text's or class's, weights whose sum is of a rank's texts.
 */
#include "frontend/commands/score_metrics.h"
#include "frontend/commands/train_classes.h"
#include "frontend/commands/train_pairs.h"
#include "ir/class_names.h"
#include "runtime/data/class_rows.h"
#include "runtime/data/dataset.h"
#include "runtime/data/pack.h"
#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/corpus_labels.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

/* --- names --- */

static void test_names(void) {
    static const struct {
        const char *list;
        int count;
    } CASES[] = {{"3", 3},       {"2", 2},           {"1", 0},
                 {"0", 0},       {"4096", 4096},     {"4097", 0},
                 {"", 0},        {"a", 0},           {"a,b", 2},
                 {"a, b ,c", 3}, {"a,,b", 0},        {"a,b,", 0},
                 {",", 0},       {"a,a", 0},         {"a, a", 0},
                 {"1,2", 0},     {"a,2", 0},         {"2nd,1st", 2},
                 {"a\nb,c", 0},  {"99999999999", 0}, {"good film,bad", 2}};
    check_begin("classes: names, or how many there are");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        CHECK(class_names_count(CASES[i].list) == CASES[i].count, "'%s': %d", CASES[i].list,
              class_names_count(CASES[i].list));
    }
    CHECK(strcmp(class_names_at("a, b ,c", 1).text, "b") == 0, "b");
    CHECK(strcmp(class_names_at("12", 11).text, "11") == 0, "11");
    CHECK(strcmp(class_names_at("a,b", 2).text, "") == 0, "none");
    CHECK(class_names_find("a, b ,c", "b", 1) == 1 && class_names_find("a,b", "ab", 2) == -1 &&
              class_names_find("ab,b", "a", 1) == -1,
          "names");
    CHECK(class_names_find("12", "11", 2) == 11 && class_names_find("12", "12", 2) == -1 &&
              class_names_find("12", "01", 2) == -1 && class_names_find("12", "", 0) == -1 &&
              class_names_find("12", "99999999999", 11) == -1,
          "numbers");
}

/* --- rows --- */

/* "ab1|c0": texts and their classes; E and B stand around them, / begins a second text. */
static TokenBuffer make_texts(const char *texts, Diag *diag) {
    TokenBuffer buffer = {.token_bytes = 2};
    bool begins = true;
    for (const char *at = texts; *at; at++) {
        uint32_t token = (uint32_t)*at;
        if (*at == '|') {
            begins = true;
            continue;
        }
        bool second = *at == '/';
        if (second) token = (uint32_t) * ++at;
        bool is_class = *at >= '0' && *at <= '9';
        if (is_class) token -= '0';
        unsigned char mark =
            (unsigned char)((is_class ? TOKEN_COUNTS : 0) | (begins ? TOKEN_BEGINS : 0) |
                            (second ? TOKEN_SECOND : 0) |
                            (token == 'E' || token == 'B' ? TOKEN_AROUND : 0));
        CHECK(token_buffer_put(&buffer, &token, &mark, 1, diag), "%s", diag_text(diag));
        begins = false;
    }
    return buffer;
}

/* The row that begins at `row`, as a dataset gives it and a model sees it. */
static void read_row(const TokenBuffer *buffer, size_t row, const ClassRowOptions *options,
                     int32_t *tokens, int32_t *labels) {
    for (size_t i = 0; i < options->seq; i++) {
        size_t next = row + i + 1;
        bool counted = next < buffer->n_tokens && buffer->marks[next] & TOKEN_COUNTS;
        tokens[i] = (int32_t)token_buffer_at(buffer, row + i);
        labels[i] = counted ? (int32_t)token_buffer_at(buffer, next) : DATASET_NO_LABEL;
    }
    class_row_finish(tokens, labels, (int64_t)options->seq, options->first, (int32_t)options->pad);
}

/* Rows as a model sees them: "ab..|c...", with a class's number above the token that has it. */
static void check_rows(const char *texts, ClassRowOptions options, const char *expected,
                       const char *classes, const char *why) {
    Diag *diag = diag_create();
    TokenBuffer buffer = make_texts(texts, diag);
    ClassTotals totals;
    int64_t counts[10] = {0};
    char seen[256] = "", labels_seen[256] = "";
    size_t n = 0, seq = options.seq;
    bool good = class_rows(&buffer, &options, counts, 10, &totals, diag);
    CHECK(good == (why == NULL), "%s: %s", texts, diag_text(diag));
    CHECK(!why || strstr(diag_text(diag), why), "'%s' is not in '%s'", why, diag_text(diag));
    for (size_t row = 0; good && row + seq <= buffer.n_tokens; row += seq) {
        int32_t tokens[64], labels[64];
        read_row(&buffer, row, &options, tokens, labels);
        if (row > 0) seen[n] = labels_seen[n] = '|', n++;
        for (size_t i = 0; i < seq; i++, n++) {
            seen[n] = (char)tokens[i];
            labels_seen[n] = labels[i] < 0 ? ' ' : (char)('0' + labels[i]);
        }
    }
    if (good) {
        CHECK(strcmp(seen, expected) == 0, "%s: '%s', not '%s'", texts, seen, expected);
        CHECK(strcmp(labels_seen, classes) == 0, "%s: '%s', not '%s'", texts, labels_seen, classes);
    }
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

static void test_rows(void) {
    check_begin("classes: a text a row, which is told of at its first or last token");
    const ClassRowOptions last = {.seq = 4, .pad = '.'};
    ClassRowOptions first = last, pairs = last;
    first.first = true;
    pairs.seq = 9;
    check_rows("ab1|c0", last, "ab..|c...", " 1  |0   ", NULL);
    check_rows("ab1|c0", first, "ab..|c...", "1   |0   ", NULL);
    check_rows("abc2|abcde1", last, "abc.|abc.", "  2 |  1 ", NULL);
    check_rows("abcdE1|abE3", last, "abE.|abE.", "  1 |  3 ", NULL);
    check_rows("BabE1", last, "BaE.", "  1 ", NULL);
    check_rows("BabEE1", last, "", "", "text 1: rows of 4 tokens have no room for one of it");
    check_rows("Bab/EcdE1", pairs, "BabEcdE..", "      1  ", NULL);
    check_rows("Babcdef/EcE1", pairs, "BabcdEcE.", "       1 ", NULL);
    check_rows("Bab/EcdefghE1", pairs, "BabEcdeE.", "       1 ", NULL);
    check_rows("Babcd/EefghE1", pairs, "BabEefgE.", "       1 ", NULL);
    check_rows("Babcde/EfghE1", pairs, "BabcEfgE.", "       1 ", NULL);
    check_rows("abcdefgh/ijklmnop1", pairs, "abcdijkl.", "       1 ", NULL);
    check_rows("1|a2", last, "a...", "2   ", NULL);
    check_rows("1|2", last, "", "", "no text with a class");
    check_rows("a.b1", last, "a.b.", "  1 ", NULL);
    check_rows("ab1|a.b1", first, "", "", "text 2 has the token 46, which stands behind texts");
}

/* Texts of length 1 to 9, packed: each of them and its class is there once. */
static void check_packed(bool first) {
    enum { SEQ = 12, N = 40 };
    Diag *diag = diag_create();
    char texts[1024] = "";
    size_t n = 0;
    for (int i = 0; i < N; i++) { /* a text is so many of a letter, its class the letter's */
        int letter = i % 10;
        for (int k = 0; k < 1 + i % 9; k++) texts[n++] = (char)('a' + letter);
        texts[n++] = (char)('0' + letter);
        texts[n++] = '|';
    }
    texts[n - 1] = '\0';
    TokenBuffer buffer = make_texts(texts, diag);
    ClassRowOptions options = {
        .seq = SEQ, .pad = '.', .first = first, .shuffles = true, .documents = true};
    PackOptions packing = {.seq = SEQ, .padding = '.'};
    ClassTotals totals;
    PackTotals packed;
    int64_t counts[10] = {0};
    int n_seen = 0;
    CHECK(class_rows(&buffer, &options, counts, 10, &totals, diag) &&
              pack_documents(&buffer, &packing, &packed, diag) && totals.n_texts == N,
          "%s", diag_text(diag));
    CHECK(packed.n_windows <= N / 2 + 1, "%d windows", (int)packed.n_windows);
    for (size_t row = 0; row < buffer.n_tokens; row += SEQ) {
        int32_t tokens[SEQ], labels[SEQ];
        read_row(&buffer, row, &options, tokens, labels);
        for (int i = 0; i < SEQ; i++) {
            bool begins = tokens[i] != '.' && (i == 0 || tokens[i - 1] == '.');
            bool ends = tokens[i] != '.' && i + 1 < SEQ && tokens[i + 1] == '.';
            bool told = first ? begins : ends;
            CHECK(told ? labels[i] == tokens[i] - 'a' : labels[i] == DATASET_NO_LABEL,
                  "row %zu, %d: token %d has label %d", row / SEQ, i, tokens[i], labels[i]);
            n_seen += told;
        }
    }
    CHECK(n_seen == N, "%d texts", n_seen);
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

static void test_packed(void) {
    check_begin("classes: packed texts keep their classes");
    check_packed(false);
    check_packed(true);
}

static void test_order(void) {
    check_begin("classes: data in the order of their classes are shuffled, each text once");
    enum { N = 400 };
    Diag *diag = diag_create();
    char texts[3 * N + 1] = "";
    for (int i = 0; i < N; i++) memcpy(texts + 3 * i, i < N / 2 ? "a0|" : "b1|", 3);
    texts[3 * N - 1] = '\0';
    TokenBuffer buffer = make_texts(texts, diag);
    ClassRowOptions options = {.seq = 2, .pad = '.', .shuffles = true};
    ClassTotals totals;
    int64_t counts[2] = {0};
    int in_tail = 0;
    CHECK(class_rows(&buffer, &options, counts, 2, &totals, diag), "%s", diag_text(diag));
    CHECK(counts[0] == N / 2 && counts[1] == N / 2, "%d and %d", (int)counts[0], (int)counts[1]);
    for (int i = N - N / 10; i < N; i++) {
        uint32_t text = token_buffer_at(&buffer, (size_t)(2 * i));
        in_tail += text == 'b';
        CHECK(token_buffer_at(&buffer, (size_t)(2 * i + 1)) == text - 'a', "row %d", i);
    }
    CHECK(in_tail > N / 40 && in_tail < N / 10 - N / 40, "%d of %d in the tail", in_tail, N / 10);
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

/* Labels are of the tokens behind them: an answer's last one is behind its last label. */
static void test_ends(void) {
    check_begin("classes: a reward is read at the answer's last token");
    static const struct {
        int32_t before[12], after[12];
    } CASES[] = {{{-1, 7, 8, -1, -1, -1, -1, -1, -1, -1, 9, 5},
                  {-1, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1, 0}},
                 {{3, -1, 4, -1, -1, 6, 5, -1, -1, -1, -1, -1},
                  {-1, -1, -1, 0, -1, -1, -1, 0, -1, -1, -1, -1}}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        int32_t labels[12];
        memcpy(labels, CASES[i].before, sizeof(labels));
        train_pairs_mark_ends(labels, 6, 2);
        for (int k = 0; k < 12; k++) {
            CHECK(labels[k] == CASES[i].after[k], "case %zu, %d: %d", i, k, labels[k]);
        }
    }
}

/* --- losses --- */

enum { BATCH = 8, SEQ = 16, VOCAB = 48, MODEL = 32, CLASSES = 3 };

static int length_of(int row) {
    return 3 + (5 * row + row / 3) % (SEQ - 4);
}

/* Texts of lengths of their own, of which one is not told of. */
static void fill_classes(bool first, int32_t *tokens, int32_t *labels) {
    for (int i = 0; i < BATCH * SEQ; i++) {
        int row = i / SEQ, k = i % SEQ, last = length_of(row) - 1;
        tokens[i] = k <= last ? 1 + (5 * row + 3 * k * k) % (VOCAB - 1) : 0;
        labels[i] =
            k == (first ? 0 : last) && row != 3 ? (row * row + 1) % CLASSES : DATASET_NO_LABEL;
    }
}

/* Chosen and rejected answers: where each one's last token is, the label is 0. */
static void fill_rewards(int32_t *tokens, int32_t *labels) {
    fill_classes(false, tokens, labels);
    for (int i = 0; i < BATCH * SEQ; i++) {
        labels[i] = i % SEQ == length_of(i / SEQ) - 1 ? 0 : DATASET_NO_LABEL;
    }
}

typedef struct Case {
    const char *model, *key, *value;
    Layout layout;
    int c, e, zero, lanes;
    DType precision;
} Case;

static bool is_reward(const Case *of) {
    return strcmp(of->key, "preference") == 0;
}
static bool is_first(const Case *of) {
    return strcmp(of->model, "bert") == 0 || strcmp(of->model, "modernbert") == 0;
}

static ModelSetting besides[3]; /* settings of the case besides; without a key: none */

static bool start(Run *run, const Case *of) {
    char path[64];
    ModelSetting settings[16] = {{"seq", "16"},   {"model", "32"}, {"layers", "4"},
                                 {"vocab", "48"}, {"heads", "4"},  {of->key, of->value}};
    int n = 6;
    bool plain = strcmp(of->model, "gpt") == 0 || is_first(of);
    if (!plain) settings[n++] = (ModelSetting){"kv_heads", "4"};
    if (!plain) settings[n++] = (ModelSetting){"ffn", "32"};
    if (is_first(of)) settings[n++] = (ModelSetting){"mask_token", "1"};
    if (strcmp(of->model, "modernbert") == 0) settings[n++] = (ModelSetting){"pooling", "mean"};
    if (strcmp(of->model, "moe") == 0) settings[n++] = (ModelSetting){"balance", "0.0"};
    for (int i = 0; i < 3 && besides[i].key; i++) settings[n++] = besides[i];
    snprintf(path, sizeof(path), "models/%s.lua", of->model);
    run_context = of->c;
    run_experts = of->e;
    run_zero = of->zero;
    run_lanes = of->lanes ? of->lanes : 1;
    run_precision = of->precision;
    bool ready = run_plan(run, path, settings, n, &of->layout, BATCH, true) && run_start(run);
    CHECK(ready, "%s %s: %s", of->model, of->value, diag_text(run->diag));
    run_context = run_experts = run_lanes = 1;
    run_zero = 0;
    run_precision = DTYPE_F32;
    return ready;
}

static void fill(const Case *of, int32_t *tokens, int32_t *labels) {
    if (is_reward(of)) {
        fill_rewards(tokens, labels);
    } else {
        fill_classes(is_first(of), tokens, labels);
    }
}

/* Of logits [BATCH, SEQ, CLASSES], in float64; *out_right: the share. */
static double expected_loss(const float *logits, const int32_t *labels, double *out_right) {
    double sum = 0, n = 0;
    *out_right = 0;
    for (int i = 0; i < BATCH * SEQ; i++) {
        const float *at = logits + i * CLASSES;
        double total = 0;
        int best = 0;
        if (labels[i] < 0) continue;
        for (int v = 0; v < CLASSES; v++) total += exp((double)at[v]);
        for (int v = 1; v < CLASSES; v++) best = at[v] > at[best] ? v : best;
        sum += log(total) - (double)at[labels[i]];
        *out_right += best == labels[i];
        n++;
    }
    *out_right /= n;
    return sum / n;
}

static double value_named(const StepResult *result, const char *name) {
    for (int i = 0; i < result->n_values; i++) {
        if (strcmp(result->values[i].name, name) == 0) return result->values[i].value;
    }
    return NAN;
}

static void check_gradient(Run *run, const Case *of, const char *name) {
    int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
    double norm, slope;
    fill(of, tokens, labels);
    if (!run_slope(run, name, tokens, labels, &norm, &slope)) return;
    CHECK(norm > 1e-4 && fabs(slope - norm) < 0.01 * norm, "%s: %s: slope %g, gradient %g",
          of->model, name, slope, norm);
}

static const Layout ONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};

static void test_classes(void) {
    static const Case CASES[] = {{"llama", "classes", "a,b,c", {0}, 1, 1, 0, 1, DTYPE_F32},
                                 {"gpt", "classes", "3", {0}, 1, 1, 0, 1, DTYPE_F32},
                                 {"bert", "classes", "3", {0}, 1, 1, 0, 1, DTYPE_F32},
                                 {"modernbert", "classes", "3", {0}, 1, 1, 0, 1, DTYPE_F32}};
    check_begin("classes: losses are what logits say, gradients are theirs");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Case of = CASES[i];
        Run run;
        int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
        float logits[BATCH * SEQ * CLASSES];
        double right, evaluated = 0;
        StepResult result;
        of.layout = ONE;
        fill(&of, tokens, labels);
        if (start(&run, &of)) {
            float *score = ARENA_ARRAY(run.arena, float, MODEL *CLASSES);
            for (int k = 0; k < MODEL * CLASSES; k++) { /* 0.02 would tell little */
                score[k] = (float)((k * k + 5 * k) % 19 - 9) / 30;
            }
            engine_write_parameter(run.engine, "score", score);
            CHECK(engine_logits(run.engine, tokens, logits, run.diag), "%s", diag_text(run.diag));
            double expected = expected_loss(logits, labels, &right);
            CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag), "%s",
                  diag_text(run.diag));
            CHECK(fabs(result.loss - expected) < 3e-6 * expected, "%s: %.8g, not %.8g", of.model,
                  result.loss, expected);
            CHECK(fabs(value_named(&result, "accuracy") - right) < 1e-6 && right > 0 && right < 1,
                  "%s: accuracy %g, not %g", of.model, value_named(&result, "accuracy"), right);
            CHECK(engine_evaluate(run.engine, tokens, labels, &evaluated, run.diag) &&
                      fabs(evaluated - expected) < 3e-6 * expected,
                  "%s: evaluated %.8g", of.model, evaluated);
            check_gradient(&run, &of, "score");
            /* ModernBERT's loss bends along its table's, which a norm makes larger. */
            const bool pooled = strcmp(of.model, "bert") == 0, bends = is_first(&of) && !pooled;
            check_gradient(&run, &of, bends ? "blocks.1.attn.wv" : "wte");
            if (is_first(&of)) check_gradient(&run, &of, pooled ? "pooler.w" : "head.w");
        }
        run_close(&run);
    }
}

static void test_rewards(void) {
    check_begin("classes: rewards' losses are Bradley and Terry's, gradients are theirs");
    Case of = {"llama", "preference", "reward", {0}, 1, 1, 0, 1, DTYPE_F32};
    Run run;
    int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
    float scores[BATCH] = {0}, logits[BATCH * SEQ];
    double expected = 0, right = 0, margin = 0;
    StepResult result;
    of.layout = ONE;
    fill(&of, tokens, labels);
    if (start(&run, &of)) {
        CHECK(engine_row_scores(run.engine, tokens, labels, scores, run.diag) &&
                  engine_logits(run.engine, tokens, logits, run.diag),
              "%s", diag_text(run.diag));
        for (int row = 0; row < BATCH; row++) {
            float at_end = logits[row * SEQ + length_of(row) - 1];
            CHECK(fabsf(scores[row] - at_end) < 1e-6f, "row %d: %g, not %g", row,
                  (double)scores[row], (double)at_end);
        }
        for (int i = 0; i < BATCH; i += 2) {
            double more = (double)scores[i] - (double)scores[i + 1];
            expected += log1p(exp(-more)) * 2 / BATCH;
            right += (more > 0) * 2.0 / BATCH;
            margin += more * 2 / BATCH;
        }
        CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag), "%s",
              diag_text(run.diag));
        CHECK(fabs(result.loss - expected) < 3e-6 * expected, "%.8g, not %.8g", result.loss,
              expected);
        CHECK(fabs(value_named(&result, "reward_accuracy") - right) < 1e-6 &&
                  fabs(value_named(&result, "reward_margin") - margin) < 1e-6,
              "accuracy %g, not %g; margin %g, not %g", value_named(&result, "reward_accuracy"),
              right, value_named(&result, "reward_margin"), margin);
        check_gradient(&run, &of, "score");
        check_gradient(&run, &of, "wte");
    }
    run_close(&run);
}

/* --- layouts --- */

#define ALONE                                                                                      \
    { 1, 1, 1, 8, 1, "1f1b", false, NULL, 0 }
#define SPLIT                                                                                      \
    { 2, 2, 2, 2, 1, "1f1b", true, NULL, 0 }

static void test_layouts(void) {
    static const Case CASES[] = {
        {"llama", "classes", "3", ALONE, 1, 1, 0, 1, DTYPE_F32},
        {"llama", "classes", "3", SPLIT, 1, 1, 0, 1, DTYPE_F32},
        {"llama", "classes", "3", {1, 2, 1, 2, 1, "gpipe", false, NULL, 0}, 2, 1, 2, 1, DTYPE_F32},
        {"llama", "classes", "3", {2, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, 2, 1, 0, 1, DTYPE_F32},
        {"llama", "classes", "3", {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 1, 3, 2, DTYPE_F32},
        {"llama", "classes", "3", {2, 1, 2, 2, 1, "1f1b", true, NULL, 0}, 1, 1, 0, 1, DTYPE_BF16},
        {"moe", "classes", "3", ALONE, 1, 1, 0, 1, DTYPE_F32},
        {"moe", "classes", "3", {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 2, 1, 1, DTYPE_F32},
        {"bert", "classes", "3", ALONE, 1, 1, 0, 1, DTYPE_F32},
        {"bert", "classes", "3", SPLIT, 1, 1, 0, 1, DTYPE_F32},
        {"bert", "classes", "3", {1, 1, 2, 2, 1, "1f1b", false, NULL, 0}, 2, 1, 0, 1, DTYPE_F32},
        {"modernbert", "classes", "3", ALONE, 1, 1, 0, 1, DTYPE_F32},
        {"modernbert", "classes", "3", SPLIT, 1, 1, 0, 1, DTYPE_F32},
        {"modernbert",
         "classes",
         "3",
         {1, 1, 2, 2, 1, "1f1b", false, NULL, 0},
         2,
         1,
         0,
         1,
         DTYPE_F32},
        {"llama", "preference", "reward", ALONE, 1, 1, 0, 1, DTYPE_F32},
        {"llama", "preference", "reward", SPLIT, 1, 1, 0, 1, DTYPE_F32},
        {"llama",
         "preference",
         "reward",
         {1, 2, 1, 2, 1, "gpipe", false, NULL, 0},
         2,
         1,
         2,
         1,
         DTYPE_F32},
    };
    check_begin("classes: losses, gradients and shares are those of one rank on every layout");
    double loss = 0, norm = 0, right = 0;
    for (size_t l = 0; l < sizeof(CASES) / sizeof(CASES[0]); l++) {
        const Case *of = &CASES[l];
        Run run;
        int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
        StepResult result;
        fill(of, tokens, labels);
        if (start(&run, of)) {
            const char *share = is_reward(of) ? "reward_accuracy" : "accuracy";
            double most = of->precision == DTYPE_F32 ? 2e-5 : 0.05, evaluated;
            CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag),
                  "layout %zu: %s", l, diag_text(run.diag));
            bool one = of->layout.micro_batch == BATCH;
            if (one) {
                loss = result.loss;
                norm = result.grad_norm;
                right = value_named(&result, share);
            }
            CHECK(fabs(result.loss - loss) <= most * loss, "layout %zu: %.8g, not %.8g", l,
                  result.loss, loss);
            CHECK(fabs(result.grad_norm - norm) <= most * norm, "layout %zu: norm %.8g, not %.8g",
                  l, result.grad_norm, norm);
            CHECK(of->precision != DTYPE_F32 || fabs(value_named(&result, share) - right) < 1e-6,
                  "layout %zu: %g right, not %g", l, value_named(&result, share), right);
            CHECK(engine_evaluate(run.engine, tokens, labels, &evaluated, run.diag) &&
                      fabs(evaluated - loss) <= most * loss,
                  "layout %zu: evaluated %.8g, not %.8g", l, evaluated, loss);
        }
        run_close(&run);
    }
}

/* --- sets, numbers and weights --- */

typedef struct ScoreCase {
    const char *model, *classes, *kind, *weights, *smoothing;
} ScoreCase;

static void set_more(const ScoreCase *of) {
    int n = 0;
    memset(besides, 0, sizeof(besides));
    if (strcmp(of->kind, "one") != 0) besides[n++] = (ModelSetting){"class_kind", of->kind};
    if (of->weights) besides[n++] = (ModelSetting){"class_weights", of->weights};
    if (of->smoothing) besides[n++] = (ModelSetting){"class_smoothing", of->smoothing};
}

static float wanted_at(int row, int class) {
    return 0.7f * (float)((row * row + 3 * class) % 7) - 2;
}

/* What is told of the batch's texts, which train_classes gives to the engine; labels become rows of
 * the table where there is one. */
static bool give_scores(Run *run, TrainClasses *classes, int32_t *labels) {
    const Node *share = NULL;
    for (int p = 0; p < run->plan->n_programs; p++) {
        const Graph *graph = run->plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (graph->nodes[n]->op == OP_LABEL_SHARE) share = graph->nodes[n];
        }
    }
    if (!train_classes_of(run->plan, share, run->arena, classes, run->diag)) return false;
    const bool one = classes->labels == CLASS_ONE;
    ClassTable *table = &classes->table;
    table->items = memory_zeroed((size_t)(BATCH * table->n_words), sizeof(*table->items));
    for (int row = 0; row < BATCH; row++) {
        uint32_t *words = table->items + (ptrdiff_t)row * table->n_words;
        words[0] = 1;
        for (int i = 0; i < classes->n && !one; i++) {
            const float number = wanted_at(row, i);
            if (classes->labels == CLASS_NUMBERS) memcpy(&words[1 + i], &number, sizeof(number));
            if (classes->labels == CLASS_SETS && number > 0) words[1 + i / 32] |= 1u << i % 32;
        }
        for (int k = 0; k < SEQ && !one; k++) {
            if (labels[row * SEQ + k] >= 0) labels[row * SEQ + k] = row;
        }
        train_classes_take(classes, labels + (ptrdiff_t)row * SEQ, row);
    }
    table->n = BATCH;
    train_classes_give(classes, run->plan, run->engine);
    return true;
}

/* How far a text is from what is wanted of it, of classes without weights. */
static double score_loss(const ScoreCase *of, const float *x, int row, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double wanted = (double)wanted_at(row, i), apart = fabs((double)x[i] - wanted);
        if (strcmp(of->kind, "sets") == 0) {
            sum += log1p(exp(wanted > 0 ? -(double)x[i] : (double)x[i])) / n;
        } else if (strcmp(of->kind, "mse") == 0) {
            sum += apart * apart / n;
        } else if (strcmp(of->kind, "mae") == 0) {
            sum += apart / n;
        } else {
            sum += (apart < 1 ? apart * apart / 2 : apart - 0.5) / n;
        }
    }
    return sum;
}

/* As torch.nn.functional.cross_entropy(weight=, label_smoothing=) has it; *out_weight: what the
 * text counts. */
static double weighed_loss(const float *x, int class, const double *weights, double smoothing,
                           double *out_weight) {
    double total = 0, all = 0;
    for (int i = 0; i < CLASSES; i++) total += exp((double)x[i]);
    for (int i = 0; i < CLASSES; i++) {
        all += smoothing / CLASSES * weights[i] * (log(total) - (double)x[i]);
    }
    *out_weight = weights[class];
    return all + (1 - smoothing) * weights[class] * (log(total) - (double)x[class]);
}

static double expected_score(const ScoreCase *of, const float *logits, const int32_t *labels,
                             int n) {
    double weights[CLASSES] = {1, 1, 1}, sum = 0, count = 0;
    if (of->weights) class_weights_read(of->weights, CLASSES, weights);
    for (int i = 0; i < BATCH * SEQ; i++) {
        double weight = 1;
        if (labels[i] < 0) continue;
        sum += strcmp(of->kind, "one") == 0
                   ? weighed_loss(logits + i * n, labels[i], weights,
                                  of->smoothing ? atof(of->smoothing) : 0, &weight)
                   : score_loss(of, logits + i * n, i / SEQ, n);
        count += weight;
    }
    return sum / count;
}

static const ScoreCase SCORES[] = {
    {"bert", "a,b,c", "sets", NULL, NULL},  {"llama", "40", "sets", NULL, NULL},
    {"llama", "1", "mse", NULL, NULL},      {"modernbert", "x,y", "mae", NULL, NULL},
    {"gpt", "2", "huber", NULL, NULL},      {"llama", "3", "one", "1,3.5,0.25", NULL},
    {"bert", "3", "one", "2,0.5,1", "0.1"}, {"gpt", "3", "one", NULL, "0.3"}};

/* A score that is far from 0 and alike nowhere. */
static void write_score(Run *run, int n) {
    float *score = ARENA_ARRAY(run->arena, float, MODEL *n);
    for (int k = 0; k < MODEL * n; k++) score[k] = (float)((k * k + 5 * k) % 19 - 9) / 30;
    engine_write_parameter(run->engine, "score", score);
}

static void test_scores(void) {
    check_begin("classes: losses of sets, numbers and weighed classes are what logits say");
    for (size_t i = 0; i < sizeof(SCORES) / sizeof(SCORES[0]); i++) {
        const ScoreCase *score = &SCORES[i];
        Case of = {score->model, "classes", score->classes, ONE, 1, 1, 0, 1, DTYPE_F32};
        Run run;
        TrainClasses classes;
        int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
        StepResult result;
        double norm, slope;
        fill(&of, tokens, labels);
        set_more(score);
        if (start(&run, &of) && give_scores(&run, &classes, labels)) {
            const int n = classes.n;
            float *logits = ARENA_ARRAY(run.arena, float, BATCH *SEQ *n);
            write_score(&run, n);
            CHECK(engine_logits(run.engine, tokens, logits, run.diag), "%s", diag_text(run.diag));
            const double expected = expected_score(score, logits, labels, n);
            CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag), "%s",
                  diag_text(run.diag));
            CHECK(fabs(result.loss - expected) < 5e-6 * expected, "%zu: %s %s: %.8g, not %.8g", i,
                  of.model, score->kind, result.loss, expected);
            CHECK(run_slope(&run, "score", tokens, labels, &norm, &slope) && norm > 1e-4 &&
                      fabs(slope - norm) < 0.01 * norm,
                  "%zu: %s: slope %g, gradient %g", i, of.model, slope, norm);
            train_classes_release(&classes);
        } else {
            CHECK(false, "%zu: %s", i, diag_text(run.diag));
        }
        run_close(&run);
    }
    memset(besides, 0, sizeof(besides));
}

static void test_score_layouts(void) {
    static const struct {
        Layout layout;
        int c, e, zero, lanes;
    } LAYOUTS[] = {{ALONE, 1, 1, 0, 1},
                   {SPLIT, 1, 1, 0, 1},
                   {{1, 2, 1, 2, 1, "gpipe", false, NULL, 0}, 2, 1, 2, 1},
                   {{1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 1, 3, 2}};
    static const int OF[] = {0, 1, 2, 5}; /* of SCORES */
    check_begin("classes: losses of sets, numbers and weighed classes are alike on every layout");
    for (size_t i = 0; i < sizeof(OF) / sizeof(OF[0]); i++) {
        const ScoreCase *score = &SCORES[OF[i]];
        double loss = 0, norm = 0;
        set_more(score);
        for (int l = 0; l < 4; l++) {
            const Case of = {score->model,      "classes",        score->classes,
                             LAYOUTS[l].layout, LAYOUTS[l].c,     LAYOUTS[l].e,
                             LAYOUTS[l].zero,   LAYOUTS[l].lanes, DTYPE_F32};
            Run run;
            TrainClasses classes;
            int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
            StepResult result = {0};
            if (is_first(&of) && LAYOUTS[l].lanes > 1) continue;
            fill(&of, tokens, labels);
            if (start(&run, &of) && give_scores(&run, &classes, labels)) {
                write_score(&run, classes.n);
                CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag), "%s",
                      diag_text(run.diag));
                if (l == 0) loss = result.loss, norm = result.grad_norm;
                CHECK(fabs(result.loss - loss) < 2e-5 * loss && loss > 0.01 &&
                          fabs(result.grad_norm - norm) < 2e-5 * norm,
                      "%s %s, layout %d: loss %.8g and %.8g, norm %.8g and %.8g", of.model,
                      score->kind, l, result.loss, loss, result.grad_norm, norm);
                train_classes_release(&classes);
            }
            run_close(&run);
        }
    }
    memset(besides, 0, sizeof(besides));
}

/* --- what lines say --- */

static void test_labels(void) {
    static const struct {
        const char *line, *classes, *expected; /* of each class; NULL: refused */
        ClassLabels labels;
    } CASES[] = {{"{\"labels\": [\"c\", \"a\"]}", "a,b,c", "1 0 1", CLASS_SETS},
                 {"{\"labels\": []}", "a,b,c", "0 0 0", CLASS_SETS},
                 {"{\"labels\": [0, 1.0, true]}", "a,b,c", "0 1 1", CLASS_SETS},
                 {"{\"labels\": [0, 2]}", "a,b,c", "1 0 1", CLASS_SETS},
                 {"{\"labels\": [0, 1]}", "a,b", "0 1", CLASS_SETS},
                 {"{\"labels\": [\"39\", \"32\"]}", "40",
                  "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 1",
                  CLASS_SETS},
                 {"{\"a\": 1, \"b\": false, \"c\": 1.0}", "a,b,c", "1 0 1", CLASS_SETS},
                 {"{\"a\": 1, \"b\": 0}", "a,b,c", NULL, CLASS_SETS},
                 {"{\"labels\": [\"d\"]}", "a,b,c", NULL, CLASS_SETS},
                 {"{\"labels\": [\"a\", \"a\"]}", "a,b,c", NULL, CLASS_SETS},
                 {"{\"labels\": [3]}", "a,b,c", NULL, CLASS_SETS},
                 {"{\"labels\": [0.5, 0, 1]}", "a,b,c", NULL, CLASS_SETS},
                 {"{\"labels\": [true]}", "a,b,c", NULL, CLASS_SETS},
                 {"{\"labels\": \"a\"}", "a,b,c", NULL, CLASS_SETS},
                 {"{}", "a,b,c", NULL, CLASS_SETS},
                 {"{\"label\": -3.5}", "1", "-3.5", CLASS_NUMBERS},
                 {"{\"score\": 2}", "stars", "2", CLASS_NUMBERS},
                 {"{\"labels\": [1, 2.25]}", "x,y", "1 2.25", CLASS_NUMBERS},
                 {"{\"x\": 1e3, \"y\": 0}", "x,y", "1000 0", CLASS_NUMBERS},
                 {"{\"x\": 1}", "x,y", NULL, CLASS_NUMBERS},
                 {"{\"label\": 1}", "x,y", NULL, CLASS_NUMBERS},
                 {"{\"labels\": [1]}", "x,y", NULL, CLASS_NUMBERS},
                 {"{\"label\": 1e300}", "1", NULL, CLASS_NUMBERS},
                 {"{\"label\": \"3\"}", "1", NULL, CLASS_NUMBERS},
                 {"{\"label\": true}", "1", NULL, CLASS_NUMBERS}};
    check_begin("classes: sets and numbers of lines");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Diag *diag = diag_create();
        uint32_t words[1 + CLASS_MOST];
        char seen[256] = "";
        json_t *object = json_loads(CASES[i].line, JSON_DECODE_INT_AS_REAL, NULL);
        const int n = class_names_count_of(CASES[i].classes, CASES[i].labels);
        const CorpusOptions options = {
            .classes = CASES[i].classes, .n_classes = n, .labels = CASES[i].labels};
        bool good = corpus_read_labels(object, &options, words, NO_LOC, diag);
        for (int k = 0, at = 0; good && k < n; k++) {
            at += snprintf(seen + at, sizeof(seen) - (size_t)at, "%s%g", k ? " " : "",
                           (double)class_label_at(CASES[i].labels, words, k));
        }
        CHECK(good == (CASES[i].expected != NULL), "%s: %s", CASES[i].line, diag_text(diag));
        CHECK(!good || strcmp(seen, CASES[i].expected) == 0, "%s: %s", CASES[i].line, seen);
        json_decref(object);
        diag_destroy(diag);
    }
}

static void test_metrics(void) {
    check_begin("classes: correlations and precisions are those of scipy and scikit-learn");
    static const float SCORED[] = {0.1f, 0.4f, 0.35f, 0.8f}, HAS[] = {0, 0, 1, 1};
    static const float ALIKE[] = {0.5f, 0.5f, 0.5f, 0.2f};
    static const float A[] = {1, 2, 2, 3}, B[] = {1, 2, 4, 4.5f}, SAME[] = {1, 1, 1, 1};
    static const float WIDE[] = {1, 9, 2, 9, 2, 9, 3, 9};
    const struct {
        const char *name;
        double found, expected;
    } CASES[] = {{"precision", score_average_precision(SCORED, HAS, 4, 1), 0.83333333},
                 {"of equal scores", score_average_precision(ALIKE, HAS, 4, 1), 0.41666667},
                 {"Pearson", score_pearson(A, B, 4, 1), 0.86492289},
                 {"Spearman", score_spearman(A, B, 4, 1), 0.94868330},
                 {"of columns", score_spearman(WIDE, WIDE, 4, 2), 1},
                 {"R^2", score_r2(A, B, 4, 1), 0.23664122},
                 {"absolute", score_mean_error(A, B, 4, 1, 1), 0.875}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        CHECK(fabs(CASES[i].found - CASES[i].expected) < 1e-7, "%s: %.8f, not %.8f", CASES[i].name,
              CASES[i].found, CASES[i].expected);
    }
    CHECK(isnan(score_pearson(A, SAME, 4, 1)) && isnan(score_r2(A, SAME, 4, 1)) &&
              isnan(score_average_precision(A, (const float[4]){0}, 4, 1)),
          "of equal ones");
}

int main(void) {
    test_names();
    test_labels();
    test_metrics();
    test_rows();
    test_packed();
    test_order();
    test_ends();
    test_classes();
    test_rewards();
    test_layouts();
    test_scores();
    test_score_layouts();
    return check_report();
}
