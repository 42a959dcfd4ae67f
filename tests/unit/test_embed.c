/* Vectors of whole texts, from rows to gradients. Catches: a text whose label says another one, one
 * that is cut where it had room, two that are the same in a row, a text that sees its neighbours or
 * its padding, a loss that is not over all answers of the row, or over those of others, means over
 * a rank's queries, numbers that are not sentence-transformers'.
 */
#include "frontend/commands/embed_scores.h"
#include "runtime/data/class_rows.h"
#include "runtime/data/dataset.h"
#include "runtime/data/token_mask.h"
#include "tests/unit/hf_fixture.h"

/* --- rows --- */

/* "ab0|c1": texts and their roles; E and B stand around them. */
static TokenBuffer make_texts(const char *texts, Diag *diag) {
    TokenBuffer buffer = {.token_bytes = 2};
    bool begins = true;
    for (const char *at = texts; *at; at++) {
        const bool role = *at >= '0' && *at <= '9';
        const uint32_t token = role ? (uint32_t)(*at - '0') : (uint32_t)*at;
        if (*at == '|') {
            begins = true;
            continue;
        }
        const unsigned char mark =
            (unsigned char)((role ? TOKEN_COUNTS : 0) | (begins ? TOKEN_BEGINS : 0) |
                            (*at == 'E' || *at == 'B' ? TOKEN_AROUND : 0));
        CHECK(token_buffer_put(&buffer, &token, &mark, 1, diag), "%s", diag_text(diag));
        begins = false;
    }
    return buffer;
}

/* Rows as a model sees them, those of one one behind the other: "ab.c...|", with the number of a
 * text above the token that has it. */
static void check_rows(const char *texts, EmbedRowOptions options, bool first, const char *expected,
                       const char *numbers, const char *why) {
    enum { MOST = 256 };
    Diag *diag = diag_create();
    TokenBuffer buffer = make_texts(texts, diag);
    EmbedTotals totals;
    EmbedPool pool;
    char seen[MOST] = "", labels_seen[MOST] = "";
    size_t n = 0;
    const bool good = embed_rows(&buffer, &options, &pool, &totals, diag);
    CHECK(good == (why == NULL), "%s: %s", texts, diag_text(diag));
    CHECK(!why || strstr(diag_text(diag), why), "'%s' is not in '%s'", why, diag_text(diag));
    for (size_t row = 0; good && row + options.seq <= buffer.n_tokens; row += options.seq) {
        int32_t tokens[64], labels[64];
        for (size_t i = 0; i < options.seq; i++) {
            const size_t next = row + i + 1;
            const bool counted = next < buffer.n_tokens && buffer.marks[next] & TOKEN_COUNTS;
            tokens[i] = (int32_t)token_buffer_at(&buffer, row + i);
            labels[i] = counted ? (int32_t)token_buffer_at(&buffer, next) : DATASET_NO_LABEL;
        }
        class_row_finish(tokens, labels, (int64_t)options.seq, first, (int32_t)options.pad);
        if (row > 0) seen[n] = labels_seen[n] = '|', n++;
        for (size_t i = 0; i < options.seq; i++, n++) {
            seen[n] = (char)tokens[i];
            labels_seen[n] = labels[i] < 0 ? ' ' : (char)('0' + labels[i]);
        }
    }
    if (good) {
        CHECK(strcmp(seen, expected) == 0, "%s: '%s', not '%s'", texts, seen, expected);
        CHECK(strcmp(labels_seen, numbers) == 0, "%s: '%s', not '%s'", texts, labels_seen, numbers);
    }
    embed_release(&pool);
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

static void test_rows(void) {
    check_begin("embed: groups in rows, each text once and with its number");
    const EmbedRowOptions pairs = {.seq = 12, .groups = 2, .count = 2, .length = 11, .pad = '.'};
    EmbedRowOptions one = pairs, threes = pairs, few = pairs, last = pairs;
    one.groups = 1;
    threes.count = 3;
    threes.seq = 24;
    few.groups = 1;
    few.length = 3;
    last.last = true;
    check_rows("ab0|c1", one, false, "ab.c........", " 0 1        ", NULL);
    check_rows("ab0|c1", one, true, "ab.c........", "0  1        ", NULL);
    check_rows("ab0|c1|d0|e1", one, false, "d.e.........|ab.c........", "0 1         | 0 1        ",
               NULL);
    check_rows("BeE0|BfE1|BgE2", threes, true, "BeE.BfE.BgE.............",
               "0   2   4               ", NULL);
    check_rows("a0|b1|n2|c0|d1|n2", threes, false, "c.d.n.a.b.n.............",
               "0 2 4 1 3 5             ", NULL);
    check_rows("a0|b1|n2|c0|n1|d2", threes, false,
               "c.n.d...................|a.b.n...................",
               "0 2 4                   |0 2 4                   ", NULL);
    check_rows("BabcdE0|c1", few, false, "BaE.c.......", "  0 1       ", NULL);
    check_rows("abcdef0|gh1|ij0|kl1", pairs, false, "ij.kl.ab.gh.", " 0  2  1  3 ", NULL);
    check_rows("BaE0|BbE1|BcE0|BdE1", pairs, false, "", "",
               "no room for 2 groups of 2 texts, with a token");
    check_rows("ab0|c1|ab0|d1", pairs, false, "ab.d........|ab.c........",
               " 0 2        | 0 2        ", NULL);
    few.length = 2;
    check_rows("a0|BbE1", few, false, "", "",
               "text 2: texts of at most 2 tokens have no room for one beside the 2 around it");
    check_rows("a.b0|c1", last, false, "", "", "text 1 has the token 46, which stands behind");
    check_rows("ab.0|c1", pairs, false, "", "", "text 1 has the token 46, which stands behind");
    check_rows("ab.0|c1", last, false, "ab..c.......", "  0 2       ", NULL);
}

/* Rows of an epoch: each group of the first `kept` rows once, as it is in those, with others. */
static void check_epochs(EmbedPool *pool, const TokenBuffer *rows) {
    enum { KEPT = 7, SEQ = 24 };
    int times[3][26 * 256] = {{0}}, moved = 0; /* by the two letters of an answer */
    int32_t tokens[SEQ], labels[SEQ], again[SEQ], unused[SEQ];
    EmbedTotals totals = {0};
    embed_use_rows(pool, KEPT, &totals);
    /* Each query has four answers, some of them in rows that are kept. */
    CHECK(totals.n_apart == 40 - pool->n_groups && totals.n_shared == totals.n_apart,
          "%d groups apart, %d shared", (int)totals.n_apart, (int)totals.n_shared);
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int row = 0; row < KEPT; row++) {
            if (epoch > 0) embed_epoch_row(pool, 5, epoch, row, tokens, labels);
            bool same = true;
            for (int i = 0; i < SEQ; i++) {
                const int32_t first = (int32_t)token_buffer_at(rows, (size_t)(row * SEQ + i));
                if (epoch == 0) tokens[i] = first;
                same &= tokens[i] == first;
            }
            moved += !same;
            for (int i = 0; i + 1 < SEQ; i++) {
                if (tokens[i] < 'A' || tokens[i] > 'Z') continue;
                times[epoch][(tokens[i] - 'A') * 256 + tokens[i + 1]]++;
            }
        }
    }
    int lost = 0, more = 0;
    for (int i = 0; i < 26 * 256; i++) {
        for (int epoch = 1; epoch < 3; epoch++) {
            lost += times[epoch][i] < times[0][i];
            more += times[epoch][i] > (times[0][i] ? 2 : 0);
        }
    }
    /* A row more than there were, by what clashes, is left out in that epoch. */
    CHECK(more == 0 && lost <= 8 && moved > KEPT, "%d lost, %d more, %d moved", lost, more, moved);
    embed_epoch_row(pool, 5, 1, 3, tokens, labels);
    embed_epoch_row(pool, 5, 2, 3, again, unused);
    CHECK(memcmp(tokens, again, sizeof(tokens)) != 0, "epochs are alike");
    embed_epoch_row(pool, 5, 1, 3, again, unused);
    CHECK(memcmp(tokens, again, sizeof(tokens)) == 0 && memcmp(labels, unused, sizeof(labels)) == 0,
          "an epoch is another one the next time");
}

/* Where texts are there again, rows are of others; what is left has rows of its own. */
static void test_duplicates(void) {
    enum { N = 40, GROUPS = 4 };
    check_begin("embed: no text is twice in a row, each epoch has rows of its own");
    Diag *diag = diag_create();
    char texts[N * 8] = "";
    size_t n = 0;
    for (int i = 0; i < N; i++) { /* ten queries, each with four answers of its own */
        n += (size_t)snprintf(texts + n, sizeof(texts) - n, "%sq%c0|%c%c1", i ? "|" : "",
                              'a' + i % 10, 'A' + i % 26, 'a' + i / 26);
    }
    TokenBuffer buffer = make_texts(texts, diag);
    const EmbedRowOptions options = {
        .seq = 24, .groups = GROUPS, .count = 2, .length = 8, .pad = '.'};
    EmbedTotals totals;
    EmbedPool pool;
    CHECK(embed_rows(&buffer, &options, &pool, &totals, diag), "%s", diag_text(diag));
    CHECK(totals.n_groups == N && totals.n_cut == 0 && totals.n_kept == 4 * N &&
              totals.n_rows >= N / GROUPS && totals.n_rows < N / GROUPS + 3,
          "%d groups, %d rows", (int)totals.n_groups, (int)totals.n_rows);
    for (size_t row = 0; row < buffer.n_tokens; row += options.seq) {
        bool seen[256] = {false};
        for (size_t i = row; i < row + options.seq; i++) {
            if (token_buffer_at(&buffer, i) != 'q') continue;
            const uint32_t letter = token_buffer_at(&buffer, i + 1);
            CHECK(!seen[letter], "q%c is twice in row %zu", (int)letter, row / options.seq);
            seen[letter] = true;
        }
    }
    check_epochs(&pool, &buffer);
    embed_release(&pool);
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

/* What cannot be learned, and what validation has that is learned from. */
static void test_warnings(void) {
    static const EmbedRowOptions OPTIONS = {
        .seq = 12, .groups = 1, .count = 3, .length = 8, .pad = '.'};
    check_begin("embed: negatives that are answers, and texts of both parts, are counted");
    Diag *diag = diag_create();
    TokenBuffer buffer = make_texts("a0|b1|b2|c0|d1|c2|e0|e1|b2|f0|g1|n2", diag);
    EmbedTotals totals, parts = {0};
    EmbedPool pool;
    CHECK(embed_rows(&buffer, &OPTIONS, &pool, &totals, diag), "%s", diag_text(diag));
    CHECK(totals.n_torn == 2, "%d of 2", (int)totals.n_torn);
    embed_use_rows(&pool, 2, &parts);
    CHECK(parts.n_apart == 2 && parts.n_shared == 0, "%d of %d shared", (int)parts.n_shared,
          (int)parts.n_apart);
    embed_release(&pool);
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

/* --- scores --- */

static void test_scores(void) {
    static const double A[] = {1, 2, 3, 4, 5}, B[] = {5, 6, 7, 8, 7}, TIES[] = {1, 2, 2, 3, 3};
    check_begin("embed: correlations, and places of answers");
    /* scipy.stats: spearmanr, pearsonr */
    CHECK(fabs(embed_correlation(A, B, 5, true) - 0.8207826816681233) < 1e-12, "%.16g",
          embed_correlation(A, B, 5, true));
    CHECK(fabs(embed_correlation(A, TIES, 5, false) - 0.9449111825230682) < 1e-12, "%.16g",
          embed_correlation(A, TIES, 5, false));
    CHECK(isnan(embed_correlation(A, (double[5]){0}, 5, true)), "of nothing");
    /* Query 0 is nearest to its answer; 1 has two, the second and the third nearest. */
    EmbedText texts[] = {{.role = 0, .hash = 1},          {.role = 1, .hash = 2},
                         {.role = 0, .hash = 3},          {.role = 1, .hash = 4},
                         {.role = 0, .hash = 3},          {.role = 1, .hash = 5},
                         {.role = CORPUS_TEXT, .hash = 6}};
    float vectors[] = {1, 0, 1, 0, 0, 1, 0.9f, 0.3f, 0, 1, 0.9f, 0.2f, 0, 1};
    EmbedSource source = {.texts = texts, .n_texts = 7, .vectors = vectors};
    embed_scores_retrieval(&source, 2);
    CHECK(source.n_queries == 2 && source.n_answers == 4, "%d queries", (int)source.n_queries);
    CHECK(source.first_right == 0.5 && source.reciprocal_rank == 0.75 && source.recall == 1,
          "%g, %g, %g", source.first_right, source.reciprocal_rank, source.recall);
    const double gain = (1 / log2(3) + 1 / log2(4)) / (1 + 1 / log2(3));
    CHECK(fabs(source.gain - (1 + gain) / 2) < 1e-12, "%g", source.gain);
    memset(vectors, 0, sizeof(vectors));
    source = (EmbedSource){.texts = texts, .n_texts = 7, .vectors = vectors};
    embed_scores_retrieval(&source, 2);
    CHECK(source.first_right == 0, "vectors that are all the same are right");
}

/* --- losses --- */

enum { ROWS = 4, SEQ = 40, VOCAB = 48, WIDTH = 32, GROUP = 3, COUNT = 3, TEXTS = GROUP * COUNT };

/* Texts of one to four tokens, with 0 behind each; the third row lacks its last group. */
static void fill(bool first, int32_t *tokens, int32_t *labels) {
    for (int i = 0; i < ROWS * SEQ; i++) {
        tokens[i] = 0;
        labels[i] = DATASET_NO_LABEL;
    }
    for (int row = 0; row < ROWS; row++) {
        int at = row * SEQ;
        for (int k = 0; k < TEXTS; k++) {
            const int length = 1 + (k * k + row) % 4;
            if (row == 2 && k % GROUP == GROUP - 1) continue;
            for (int i = 0; i < length; i++) {
                tokens[at + i] = 1 + (7 * k + 5 * row + 3 * i * i) % (VOCAB - 1);
            }
            labels[at + (first ? 0 : length - 1)] = k;
            at += length + 1;
        }
    }
}

typedef struct Case {
    const char *model, *pooling, *symmetric, *dims;
    Layout layout;
    int c, zero;
    DType precision;
} Case;

static bool is_first(const Case *of) {
    return strcmp(of->pooling, "cls") == 0;
}

static bool start_case(Run *run, const Case *of) {
    char path[64];
    ModelSetting settings[20] = {{"seq", "40"},
                                 {"model", "32"},
                                 {"layers", "4"},
                                 {"vocab", "48"},
                                 {"heads", "4"},
                                 {"embedding", of->pooling},
                                 {"embed_group", "3"},
                                 {"embed_negatives", "1"},
                                 {"embed_temperature", "0.2"},
                                 {"embed_symmetric", of->symmetric},
                                 {"embed_dims", of->dims}};
    int n = 11;
    const bool decoder = strcmp(of->model, "llama") == 0;
    if (decoder) settings[n++] = (ModelSetting){"kv_heads", "4"};
    if (decoder) settings[n++] = (ModelSetting){"ffn", "32"};
    settings[n++] = decoder ? (ModelSetting){"documents", "0"} : (ModelSetting){"mask_token", "1"};
    if (strcmp(of->model, "bert") == 0) settings[n++] = (ModelSetting){"positions", "6"};
    snprintf(path, sizeof(path), "models/%s.lua", of->model);
    run_context = of->c;
    run_zero = of->zero;
    run_precision = of->precision;
    bool ready = run_plan(run, path, settings, n, &of->layout, ROWS, true) && run_start(run);
    CHECK(ready, "%s %s: %s", of->model, of->pooling, diag_text(run->diag));
    run_context = 1;
    run_zero = 0;
    run_precision = DTYPE_F32;
    return ready;
}

static double cosine(const float *a, const float *b, int dims) {
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < dims; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

/* The loss of a query among answers, or of an answer among queries, and whether it is the nearest
 * of them. v [TEXTS, WIDTH]; texts from `from` to `to` that are there. */
static double one_loss(const float *v, const bool *there, int text, int own, int from, int to,
                       int dims, bool *out_right) {
    double sum = 0, most = -INFINITY,
           of_own = cosine(v + text * WIDTH, v + own * WIDTH, dims) / 0.2;
    for (int k = from; k < to; k++) {
        if (!there[k]) continue;
        const double score = cosine(v + text * WIDTH, v + k * WIDTH, dims) / 0.2;
        sum += exp(score);
        if (score > most) most = score;
    }
    *out_right = of_own >= most;
    return log(sum) - of_own;
}

/* Of vectors [ROWS, TEXTS, WIDTH] in float64; *out_right: the share. */
static double expected_loss(const Case *of, const float *vectors, const int32_t *labels,
                            double *out_right) {
    static const int DIMS[] = {WIDTH, 16, 5};
    const int n_dims = strcmp(of->dims, "none") == 0 ? 1 : 3;
    const bool symmetric = strcmp(of->symmetric, "true") == 0;
    double sum = 0, n = 0;
    *out_right = 0;
    for (int row = 0; row < ROWS; row++) {
        const float *v = vectors + row * TEXTS * WIDTH;
        bool there[TEXTS] = {false}, right, unused;
        for (int i = 0; i < SEQ; i++) {
            if (labels[row * SEQ + i] >= 0) there[labels[row * SEQ + i]] = true;
        }
        for (int q = 0; q < GROUP; q++) {
            if (!there[q]) continue;
            for (int d = 0; d < n_dims; d++) {
                double loss = one_loss(v, there, q, q + GROUP, GROUP, TEXTS, DIMS[d], &right);
                double back = one_loss(v, there, q + GROUP, q, 0, GROUP, DIMS[d], &unused);
                sum += symmetric ? (loss + back) / 2 : loss;
                if (d == 0) *out_right += right;
            }
            n++;
        }
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

#define ONE {1, 1, 1, ROWS, 1, "1f1b", false, NULL, 0}, 1, 0, DTYPE_F32

/* A text has the vector that it has alone, at another place. */
static void check_alone(Run *run, const Case *of, const float *vectors) {
    int32_t tokens[ROWS * SEQ], labels[ROWS * SEQ], all[ROWS * SEQ], unused[ROWS * SEQ];
    static float alone[ROWS * TEXTS * WIDTH];
    fill(is_first(of), all, unused);
    for (int i = 0; i < ROWS * SEQ; i++) {
        tokens[i] = 0;
        labels[i] = DATASET_NO_LABEL;
    }
    int begin = SEQ, end; /* the second text of the second row */
    while (all[begin] != 0) begin++;
    end = ++begin;
    while (all[end] != 0) end++;
    for (int i = begin; i < end; i++) tokens[i - begin] = all[i];
    labels[is_first(of) ? 0 : end - begin - 1] = 4;
    CHECK(engine_vectors(run->engine, tokens, labels, alone, run->diag), "%s",
          diag_text(run->diag));
    for (int k = 0; k < WIDTH; k++) {
        const double a = (double)alone[4 * WIDTH + k], b = (double)vectors[(TEXTS + 1) * WIDTH + k];
        CHECK(fabs(a - b) < 1e-5, "%s: alone %g, among others %g", of->model, a, b);
    }
}

/* Of a decoder that sees the same token everywhere, each position has the same: so the mean of one
 * is that of four, unless what is behind them is in it. */
static void check_repeated(Run *run) {
    int32_t tokens[ROWS * SEQ] = {7, 0, 7, 7, 7, 7, 0}, labels[ROWS * SEQ];
    static float vectors[ROWS * TEXTS * WIDTH];
    for (int i = 0; i < ROWS * SEQ; i++) labels[i] = DATASET_NO_LABEL;
    labels[0] = 0, labels[5] = 1;
    CHECK(engine_vectors(run->engine, tokens, labels, vectors, run->diag), "%s",
          diag_text(run->diag));
    for (int k = 0; k < WIDTH; k++) {
        const double once = (double)vectors[k], often = (double)vectors[WIDTH + k];
        CHECK(fabs(once - often) < 1e-5, "once %g, four times %g", once, often);
    }
}

static void check_gradient(Run *run, const Case *of, const char *name) {
    int32_t tokens[ROWS * SEQ], labels[ROWS * SEQ];
    double norm, slope;
    fill(is_first(of), tokens, labels);
    if (!run_slope(run, name, tokens, labels, &norm, &slope)) return;
    CHECK(norm > 1e-4 && fabs(slope - norm) < 0.01 * norm, "%s: %s: slope %g, gradient %g",
          of->model, name, slope, norm);
}

static void test_losses(void) {
    static const Case CASES[] = {{"bert", "mean", "false", "none", ONE},
                                 {"bert", "cls", "true", "16,5", ONE},
                                 {"modernbert", "last", "true", "none", ONE},
                                 {"llama", "last", "false", "16,5", ONE},
                                 {"llama", "mean", "true", "none", ONE}};
    check_begin("embed: losses are what vectors say, gradients are theirs");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i += VARIANT_STEP) {
        const Case *of = &CASES[i];
        Run run;
        int32_t tokens[ROWS * SEQ], labels[ROWS * SEQ];
        static float vectors[ROWS * TEXTS * WIDTH];
        double right;
        StepResult result;
        fill(is_first(of), tokens, labels);
        if (start_case(&run, of)) {
            CHECK(engine_vectors(run.engine, tokens, labels, vectors, run.diag), "%s",
                  diag_text(run.diag));
            const double expected = expected_loss(of, vectors, labels, &right);
            CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag), "%s",
                  diag_text(run.diag));
            CHECK(fabs(result.loss - expected) < 3e-6 * expected, "%s %s: %.8g, not %.8g",
                  of->model, of->pooling, result.loss, expected);
            CHECK(fabs(value_named(&result, "accuracy") - right) < 1e-6 && right > 0 && right < 1,
                  "%s: accuracy %g, not %g", of->model, value_named(&result, "accuracy"), right);
            check_gradient(&run, of, "blocks.1.attn.wv");
            check_alone(&run, of, vectors);
            if (strcmp(of->model, "llama") == 0) check_repeated(&run);
        }
        run_close(&run);
    }
}

/* --- layouts --- */

static void test_layouts(void) {
    static const Case CASES[] = {
        {"bert", "mean", "true", "16,5", ONE},
        {"bert", "mean", "true", "16,5", {2, 2, 2, 1, 1, "1f1b", true, NULL, 0}, 1, 0, DTYPE_F32},
        {"bert", "mean", "true", "16,5", {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 2, 2, DTYPE_F32},
        {"bert", "mean", "true", "16,5", {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 1, 3, DTYPE_F32},
        {"bert", "mean", "true", "16,5", {2, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 0, DTYPE_BF16},
        {"llama", "mean", "false", "none", ONE},
        {"llama", "mean", "false", "none", {2, 2, 2, 1, 1, "1f1b", true, NULL, 0}, 1, 1, DTYPE_F32},
        {"llama",
         "mean",
         "false",
         "none",
         {1, 1, 2, 2, 1, "zb-h1", false, NULL, 0},
         2,
         0,
         DTYPE_F32},
    };
    check_begin(
        "embed: losses, gradients, shares and vectors are those of one rank on every layout");
    double loss = 0, norm = 0, right = 0;
    static float vectors[ROWS * TEXTS * WIDTH], whole[ROWS * TEXTS * WIDTH];
    for (size_t l = 0; l < sizeof(CASES) / sizeof(CASES[0]); l++) {
        const Case *of = &CASES[l];
        Run run;
        int32_t tokens[ROWS * SEQ], labels[ROWS * SEQ];
        StepResult result;
        const bool one = of->layout.micro_batch == ROWS;
        if (!one && l % LAYOUT_STEP) continue;
        fill(is_first(of), tokens, labels);
        if (start_case(&run, of)) {
            const double most = of->precision == DTYPE_F32 ? 2e-5 : 0.05;
            CHECK(engine_vectors(run.engine, tokens, labels, one ? whole : vectors, run.diag) &&
                      engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag),
                  "layout %zu: %s", l, diag_text(run.diag));
            if (one) {
                loss = result.loss;
                norm = result.grad_norm;
                right = value_named(&result, "accuracy");
            }
            CHECK(fabs(result.loss - loss) <= most * loss, "layout %zu: %.8g, not %.8g", l,
                  result.loss, loss);
            CHECK(fabs(result.grad_norm - norm) <= most * norm, "layout %zu: norm %.8g, not %.8g",
                  l, result.grad_norm, norm);
            CHECK(of->precision != DTYPE_F32 ||
                      fabs(value_named(&result, "accuracy") - right) < 1e-6,
                  "layout %zu: %g right, not %g", l, value_named(&result, "accuracy"), right);
            const int64_t n = engine_forward_batch(run.engine) * TEXTS * WIDTH;
            for (int64_t i = 0; !one && i < n;
                 i++) { /* the third row has texts that are not there */
                const int64_t text = i / WIDTH;
                if (text / TEXTS == 2 && text % GROUP == GROUP - 1) continue;
                CHECK(fabs((double)vectors[i] - (double)whole[i]) < (most > 1e-3 ? 0.02 : 1e-5),
                      "layout %zu: number %d of vectors is %g, not %g", l, (int)i,
                      (double)vectors[i], (double)whole[i]);
            }
        }
        run_close(&run);
    }
}

/* --- sentence-transformers --- */

static void test_reference(void) {
    static const char DIR[] = "tests/reference/hf_embed";
    const ModelSetting more[] = {{"embed_group", "3"}, {"embed_negatives", "1"}};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    Run run = {0};
    check_begin("embed: vectors, loss and gradients are sentence-transformers'");
    const char *path = in_scratch(arena, "weights.safetensors");
    /* Texts lie behind each other in one row, of more tokens than the model has positions. */
    bool fine = hf_import_open(arena, DIR, NULL, more, 2, &imported, diag);
    fine = fine && hf_import_write(&imported, path, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) {
        const HfConfig *config = &imported.config;
        ModelSetting all[64] = {{0}};
        SafetensorsInfo tokens, labels, vectors, wte, numbers;
        int n = config->n_settings;
        memcpy(all, config->settings, (size_t)n * sizeof(*all));
        const ModelSetting rows[] = {{"seq", "64"}, {"positions", "20"}, more[0], more[1]};
        memcpy(all + n, rows, sizeof(rows));
        Safetensors *expect =
            safetensors_open(arena_printf(arena, "%s/expect.safetensors", DIR), diag);
        const bool found = expect && safetensors_find(expect, "tokens", &tokens) &&
                           safetensors_find(expect, "labels", &labels) &&
                           safetensors_find(expect, "vectors", &vectors) &&
                           safetensors_find(expect, "wte", &wte) &&
                           safetensors_find(expect, "numbers", &numbers);
        CHECK(found && start_model(&run, config->family->script, all, n + 4) &&
                  engine_load(run.engine, path, run.diag),
              "%s%s", diag_text(diag), run.diag ? diag_text(run.diag) : "");
        if (found && run.engine) {
            int32_t given[BATCH * 64], told[BATCH * 64];
            float ours[BATCH * 9 * 16], error[9 * 16], gradient[37 * 16], theirs[37 * 16], of[2];
            StepResult result;
            for (int b = 0; b < BATCH; b++) { /* the row twice: means are the same */
                memcpy(given + 64 * b, tokens.data, tokens.n_bytes);
                memcpy(told + 64 * b, labels.data, labels.n_bytes);
            }
            memcpy(of, numbers.data, sizeof(of));
            CHECK(engine_vectors(run.engine, given, told, ours, run.diag) &&
                      engine_step(run.engine, 1, given, told, 0, &result, run.diag),
                  "%s", diag_text(run.diag));
            memcpy(error, vectors.data, sizeof(error));
            for (int i = 0; i < 9 * 16; i++) error[i] -= ours[i];
            CHECK(largest(error, 9 * 16) < 1e-5, "vectors differ by %.2e", largest(error, 9 * 16));
            CHECK(fabs(result.loss - (double)of[0]) < 1e-5 * (double)of[0], "loss %.8g, not %.8g",
                  result.loss, (double)of[0]);
            CHECK(fabs(result.grad_norm - (double)of[1]) < 1e-5 * (double)of[1],
                  "norm %.8g, not %.8g", result.grad_norm, (double)of[1]);
            CHECK(engine_read_gradient(run.engine, "wte", gradient), "the gradient is gone");
            memcpy(theirs, wte.data, sizeof(theirs));
            for (int i = 0; i < 37 * 16; i++) gradient[i] -= theirs[i];
            CHECK(largest(gradient, 37 * 16) < 1e-5 * largest(theirs, 37 * 16),
                  "gradients differ by %.2e", largest(gradient, 37 * 16));
        }
        safetensors_close(expect);
        if (run.arena) run_close(&run);
        hf_import_close(&imported);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    if (!mkdtemp(scratch)) return 1;
    Arena *arena = arena_create();
    test_rows();
    test_duplicates();
    test_warnings();
    test_scores();
    test_losses();
    test_layouts();
    test_reference();
    remove_folder(arena, scratch);
    arena_destroy(arena);
    return check_report();
}
