/* Masked diffusion, from shares that are hidden to what is written. Would catch: shares that are
 * not uniform, cluster, or follow the layout; another part hidden than the share; labels or weights
 * in another place than their token's; prompts, separators or the mask hidden; a loss that is not
 * the published mean, or whose gradient forgets the weights; whatever depends on the layout; tokens
 * that stay in another order than the model's sureness, or are seen from the wrong position.
 */
#include "frontend/commands/generate_diffusion.h"
#include "frontend/commands/train_diffusion.h"
#include "runtime/data/dataset.h"
#include "tests/unit/train_compare.h"

enum { BATCH = 8, SEQ = 16, VOCAB = 48, MASK = 47, N_LABELS = BATCH * SEQ };
const CliCommand CLI_COMMANDS[] = {{0}}; /* main.c's, which options are parsed for */
static const Layout ONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};

/* --- data --- */

static void test_shares(void) {
    enum { N_ROWS = 64, N_PARTS = 8, N_SEEDS = 2000 };
    check_begin("diffusion: shares of rows lie evenly, and are uniform over seeds");
    for (int64_t first = 0; first < 5000; first += 997) {
        int parts[N_PARTS] = {0};
        for (int i = 0; i < N_ROWS; i++) {
            double share = diffusion_share(7, first + i, 0, 1);
            CHECK(share >= DIFFUSION_LEAST && share < 1, "row %d: %g", i, share);
            parts[(int)(share * N_PARTS)]++;
        }
        for (int p = 0; p < N_PARTS; p++) {
            CHECK(abs(parts[p] - N_ROWS / N_PARTS) <= 2, "part %d has %d", p, parts[p]);
        }
    }
    double sum = 0, squares = 0, both = 0;
    for (int seed = 0; seed < N_SEEDS; seed++) {
        double share = diffusion_share((uint64_t)seed, 3, 0, 1);
        sum += share, squares += share * share;
        both += share * diffusion_share((uint64_t)seed + 1, 3, 0, 1);
    }
    CHECK(fabs(sum / N_SEEDS - 0.5) < 0.03, "mean %g", sum / N_SEEDS);
    CHECK(fabs(squares / N_SEEDS - 1.0 / 3) < 0.03, "of squares %g", squares / N_SEEDS);
    CHECK(fabs(both / N_SEEDS - 0.25) < 0.03, "with the next seed %g", both / N_SEEDS);
    for (int draw = 0; draw < 4; draw++) {
        double apart = diffusion_share(7, -5, draw, 4) - diffusion_share(7, -5, 0, 4);
        double turn = fmod(apart / (1 - DIFFUSION_LEAST) + 1, 1);
        CHECK(fabs(turn - 0.25 * draw) < 1e-9, "draw %d is %g further", draw, turn);
    }
}

/* Of a row, all tokens counted but [4, 9) and, where it is the first of masked data, token 0. */
static void check_row(const Diffusion *how, uint64_t key, double share, bool first_counts,
                      double *hidden, double *n) {
    enum { LONG = 512 };
    int32_t own[LONG], tokens[LONG], labels[LONG];
    float weights[LONG];
    const int ahead = how->shifted ? 1 : 0;
    for (int i = 0; i < LONG; i++) {
        own[i] = tokens[i] = (int32_t)((key + 11 * (uint64_t)i) % VOCAB);
        labels[i] = i >= 3 && i < 8 ? DATASET_NO_LABEL : 5;
    }
    int64_t n_labels =
        diffusion_apply(how, key, share, first_counts, tokens, labels, weights, LONG);
    int64_t expected = 0;
    for (int i = 0; i < LONG; i++) {
        bool counts = i == 0 ? first_counts && !how->shifted : i < 4 || i >= 9;
        counts = counts && own[i] != MASK && !(how->kept && how->kept[own[i]]);
        const bool is_hidden = tokens[i] != own[i];
        expected += counts;
        CHECK(!is_hidden || (counts && tokens[i] == MASK), "token %d is %d", i, tokens[i]);
        if (i < ahead) continue;
        CHECK(labels[i - ahead] == (counts ? own[i] : DATASET_NO_LABEL), "label of %d is %d", i,
              labels[i - ahead]);
        CHECK(weights[i - ahead] == (is_hidden ? (float)(1 / share) : 0), "weight of %d is %g", i,
              (double)weights[i - ahead]);
        *hidden += is_hidden;
        *n += counts;
    }
    if (ahead) {
        CHECK(labels[LONG - 1] == DATASET_NO_LABEL && weights[LONG - 1] == 0, "the last label");
    }
    CHECK(n_labels == expected, "%d labels, not %d", (int)n_labels, (int)expected);
}

static void test_rows(void) {
    unsigned char kept[VOCAB] = {0};
    kept[3] = 1;
    for (int shifted = 0; shifted < 2; shifted++) {
        check_begin(shifted ? "diffusion: shifted labels" : "diffusion: what is hidden");
        for (double share = 0.1; share < 1; share += 0.4) {
            double hidden = 0, n = 0;
            for (uint64_t key = 0; key < 100; key++) {
                Diffusion how = {MASK, shifted, key % 2 ? kept : NULL};
                check_row(&how, key * 77, share, key % 3 > 0, &hidden, &n);
            }
            CHECK(fabs(hidden - n * share) < 5 * sqrt(n * share * (1 - share)),
                  "share %g: %g of %g", share, hidden, n);
        }
    }
}

/* What is behind the last answer of a packed row. */
static void test_packed(void) {
    enum { N = 8 };
    for (int packed = 0; packed < 2; packed++) {
        check_begin(packed ? "diffusion: what is behind the last answer is to be said"
                           : "diffusion: rows that are cut out");
        float weights[N];
        int64_t n_labels;
        TrainDiffusion d = {.how = {.mask = MASK},
                            .packed = packed,
                            .seq = N,
                            .weights = weights,
                            .n_labels = &n_labels,
                            .n_draws = 1};
        int32_t tokens[N] = {1, 9, 2, 3, 4, 9, 8, 8}, labels[N] = {-1, -1, 3, 4, -1, -1, -1, -1};
        const int32_t own[N] = {
            -1, -1, -1, 3, 4, packed ? 9 : -1, packed ? 8 : -1, packed ? 8 : -1};
        train_diffusion_fill(&d, 5, 5, false, 0, tokens, labels);
        CHECK(memcmp(labels, own, sizeof(own)) == 0 && n_labels == 2 + 3 * packed, "%d labels",
              (int)n_labels);
    }
}

/* --- losses and gradients --- */

static bool start(Run *run, const char *diffusion, bool by_row, const char *documents,
                  const Layout *layout, int batch) {
    const ModelSetting settings[] = {{"seq", "16"},
                                     {"model", "32"},
                                     {"layers", "4"},
                                     {"vocab", "48"},
                                     {"heads", "4"},
                                     {"kv_heads", "4"},
                                     {"ffn", "32"},
                                     {"init_std", "0.1"},
                                     {"optimizer.eps", "1e-6"},
                                     {"diffusion", diffusion},
                                     {"mask_token", "-1"},
                                     {"documents", documents},
                                     {"diffusion_by_row", by_row ? "true" : "false"}};
    bool ready = run_plan(run, "models/llama.lua", settings, sizeof(settings) / sizeof(settings[0]),
                          layout, batch, true) &&
                 run_start(run);
    CHECK(ready, "%s: %s", diffusion, diag_text(run->diag));
    return ready;
}

/* Prompts and answers of several lengths; the last row has no answer. */
static void fill(TrainDiffusion *d, int64_t first, int32_t *tokens, int32_t *labels) {
    for (int row = 0; row < BATCH; row++) {
        int32_t *t = tokens + row * SEQ, *l = labels + row * SEQ;
        for (int i = 0; i < SEQ; i++) {
            t[i] = (5 * row + 3 * i * i + 7 * i) % (VOCAB - 1);
            l[i] = row < BATCH - 1 && i >= row && i < 2 * row + 4 ? 1 : DATASET_NO_LABEL;
        }
        train_diffusion_fill(d, first + row, (uint64_t)(first + row), false, row, t, l);
    }
}

/* Of the model's own logits: the mean over labels of weight x -log p, or over rows of such means.
 */
static double expect(Run *run, const TrainDiffusion *d, const int32_t *tokens,
                     const int32_t *labels, bool by_row) {
    float *logits = ARENA_ARRAY(run->arena, float, N_LABELS *VOCAB);
    double sum = 0, n_labels = 0, rows = 0, n_rows = 0;
    CHECK(engine_logits(run->engine, tokens, logits, run->diag), "%s", diag_text(run->diag));
    for (int row = 0; row < BATCH; row++) {
        const double share = diffusion_share(d->seed, 1 + row, 0, 1);
        double of_row = 0, n = 0;
        for (int i = 0; i < SEQ; i++) {
            const int at = row * SEQ + i, token = i + d->how.shifted;
            if (labels[at] < 0) continue;
            n++;
            if (tokens[row * SEQ + token] != MASK) continue;
            double total = 0;
            for (int v = 0; v < VOCAB; v++) total += exp((double)logits[at * VOCAB + v]);
            of_row += (log(total) - (double)logits[at * VOCAB + labels[at]]) / share;
        }
        sum += of_row, n_labels += n;
        if (n > 0) rows += of_row / n, n_rows++;
    }
    return by_row ? rows / n_rows : sum / n_labels;
}

static void check_losses(const char *diffusion, bool by_row) {
    static const char *const MOVED[] = {"wte", "head", "blocks.1.attn.wk", "blocks.2.mlp.wdown"};
    int32_t tokens[N_LABELS], labels[N_LABELS];
    Run run;
    TrainDiffusion d;
    StepResult result;
    double evaluated = 0;
    if (start(&run, diffusion, by_row, "-1", &ONE, BATCH)) {
        CHECK(train_diffusion_of(run.plan, run.arena, &d, run.diag) && d.hides, "%s",
              diag_text(run.diag));
        fill(&d, 1, tokens, labels);
        const double each = expect(&run, &d, tokens, labels, false);
        train_diffusion_give(&d, run.engine, BATCH, false);
        CHECK(engine_evaluate(run.engine, tokens, labels, &evaluated, run.diag) &&
                  fabs(evaluated - each) < 2e-6 * each,
              "%s: evaluated %.8g, not %.8g", diffusion, evaluated, each);
        const double wanted = expect(&run, &d, tokens, labels, by_row);
        CHECK(by_row ? fabs(wanted - each) > 1e-2 : wanted == each, "%g by row, %g", wanted, each);
        train_diffusion_give(&d, run.engine, BATCH, true);
        CHECK(engine_step(run.engine, 1, tokens, labels, 0, &result, run.diag) &&
                  fabs(result.loss - wanted) < 2e-6 * wanted,
              "%s: %.8g, not %.8g", diffusion, result.loss, wanted);
        for (size_t i = 0; i < sizeof(MOVED) / sizeof(MOVED[0]); i++) {
            RunBatch batch = {tokens, labels};
            double norm, slope;
            bool there = run_slope_of(&run, MOVED[i], run_loss, &batch, 4e-3, &norm, &slope);
            CHECK(there && norm > 1e-3 && fabs(slope - norm) < 2e-3 * norm,
                  "%s: slope %g, gradient %g", MOVED[i], slope, norm);
        }
    }
    run_close(&run);
}

static void test_losses(void) {
    check_begin("diffusion: losses are LLaDA's, gradients are theirs");
    check_losses("masked", false);
    check_losses("masked", true);
    check_losses("shifted", false);
}

/* --- layouts --- */

enum { STEPS = 4, GLOBAL_BATCH = 16 };

typedef struct Case {
    const char *diffusion, *documents;
    Layout layout;
    int c, zero;
    Recompute recompute;
    int loss_parts, lanes;
} Case;

static const Case CASES[] = {
    {"masked", "-1", {2, 2, 2, 2, 1, "1f1b", true, NULL, 0}, 1, 1, RECOMPUTE_FULL, 1, 1},
    {"masked", "-1", {1, 2, 1, 2, 1, "gpipe", false, NULL, 0}, 2, 3, RECOMPUTE_NONE, 1, 1},
    {"masked", "-1", {2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, 1, 0, RECOMPUTE_SELECTIVE, 3, 1},
    {"masked", "-1", {2, 1, 2, 4, 1, "zb-h1", false, NULL, 0}, 1, 0, RECOMPUTE_NONE, 1, 2},
    {"shifted", "7", {2, 1, 2, 2, 2, "interleaved", true, NULL, 0}, 1, 0, RECOMPUTE_NONE, 1, 1},
    {"shifted", "7", {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 2, 2, RECOMPUTE_FULL, 1, 1},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static void check_layout(const Case *c, Run *one) {
    char name[160], title[200];
    Run run;
    run_context = c->c;
    run_zero = c->zero;
    run_recompute = c->recompute;
    run_loss_parts = c->loss_parts;
    run_lanes = c->lanes;
    snprintf(title, sizeof(title), "diffusion %s, %s, %d parts, %d lanes", c->diffusion,
             layout_name("llama", &c->layout, name, sizeof(name)), c->loss_parts, c->lanes);
    check_begin(title);
    bool done = start(&run, c->diffusion, false, c->documents, &c->layout, GLOBAL_BATCH);
    run_context = run_loss_parts = run_lanes = 1;
    run_zero = 0;
    run_recompute = RECOMPUTE_NONE;
    done = done && run_steps_keeping(&run, STEPS, 1e-3);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) compare_runs(&run, one, STEPS);
    run_close(&run);
    check_end();
}

static void test_layouts(void) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    for (int c = 0, next; c < N_CASES; c = next) {
        Run one;
        check_begin("diffusion on one rank");
        bool done =
            start(&one, CASES[c].diffusion, false, CASES[c].documents, &alone, GLOBAL_BATCH) &&
            run_steps_keeping(&one, STEPS, 1e-3);
        CHECK(done, "%s", diag_text(one.diag));
        check_end();
        for (next = c; next < N_CASES && CASES[next].diffusion == CASES[c].diffusion; next++) {
            if (done && (next - c) % VARIANT_STEP == 0) check_layout(&CASES[next], &one);
        }
        run_close(&one);
    }
}

/* --- writing --- */

/* One pass as in the paper, by a sort of all hidden tokens of [first, end) by their probability. */
static void unmask(Run *run, int32_t *row, int first, int end, int count, double enough,
                   int shifted) {
    float *logits = ARENA_ARRAY(run->arena, float, N_LABELS *VOCAB);
    int32_t tokens[N_LABELS] = {0}, said[SEQ];
    double sure[SEQ];
    bool was_hidden[SEQ];
    memcpy(tokens, row, SEQ * sizeof(*row));
    CHECK(engine_logits(run->engine, tokens, logits, run->diag), "%s", diag_text(run->diag));
    for (int k = first; k < end; k++) {
        const float *at = logits + (k - shifted) * VOCAB;
        double total = 0;
        was_hidden[k] = row[k] == MASK;
        said[k] = 0;
        for (int v = 0; v < MASK; v++) {
            if (at[v] > at[said[k]]) said[k] = v;
            total += exp((double)at[v]);
        }
        sure[k] = exp((double)at[said[k]]) / total;
    }
    for (int k = first; k < end; k++) {
        int before = 0;
        for (int j = first; j < end; j++) {
            before += was_hidden[j] && (sure[j] > sure[k] || (sure[j] == sure[k] && j < k));
        }
        if (was_hidden[k] && (before < count || sure[k] > enough)) row[k] = said[k];
    }
}

/* Both rows of the writer, whose prompts are of three tokens, in blocks of `block` of ten. */
static void check_writing(Run *run, const char *diffusion, int block, int steps, double enough,
                          const int *passes) {
    enum { BEGUN = 3, LENGTH = 10, N_TEXTS = 2 };
    const int shifted = strcmp(diffusion, "shifted") == 0;
    CliArgs *args = ARENA_NEW(run->arena, CliArgs);
    args->arena = run->arena;
    args->values[OPT_LENGTH] = (CliValue){.given = true, .integer = LENGTH};
    args->values[OPT_TEMPERATURE] = (CliValue){.given = true, .real = 0};
    args->values[OPT_DIFFUSION_BLOCK] = (CliValue){.given = true, .integer = block};
    args->values[OPT_DIFFUSION_SURE] = (CliValue){.given = true, .real = enough};
    args->values[OPT_DIFFUSION_STEPS] = (CliValue){.given = true, .integer = steps};
    GenerateText from = {.n_choices = VOCAB,
                         .end = NO_TOKEN,
                         .answer_end = NO_TOKEN,
                         .image_token = NO_TOKEN,
                         .text = strbuf_create()};
    int32_t expected[SEQ];
    for (int i = 0; i < SEQ; i++) expected[i] = i < BEGUN ? 5 + 9 * i : MASK;
    for (int i = 0; i < BEGUN; i++) token_list_add(&from.tokens, (uint32_t)expected[i]);
    from.n_prompt_tokens = BEGUN;
    GenerateWriter w = {.n_texts = N_TEXTS};
    w.engine = (GenerateEngine){.plan = run->plan,
                                .engine = run->engine,
                                .n_texts = N_TEXTS,
                                .context = SEQ,
                                .diffuses = true,
                                .shifted = shifted,
                                .mask = MASK};
    w.engine.tokens = ARENA_ARRAY(run->arena, int32_t, N_LABELS);
    w.engine.windows = ARENA_ARRAY(run->arena, float, N_LABELS *VOCAB);
    generate_writer_start(&w, args, &from);
    w.live[0] = w.live[1] = true;
    GenerateDiffusion d = {0};
    CHECK(generate_diffusion_begin(&d, &w, args, run->diag), "%s", diag_text(run->diag));
    for (int first = 0, b = 0; first < LENGTH; first += block, b++) {
        const int end = first + block < LENGTH ? first + block : LENGTH, n = end - first;
        CHECK(!generate_diffusion_is_done(&d) && generate_diffusion_write(&d, run->diag), "%s",
              diag_text(run->diag));
        for (int pass = 0; pass < passes[b]; pass++) {
            const int count = n / passes[b] + (pass < n % passes[b]);
            unmask(run, expected, BEGUN + first, BEGUN + end, count, enough, shifted);
        }
        for (int i = 0; i < BEGUN + end; i++) {
            const uint32_t *one = w.texts[0].tokens.items, *other = w.texts[1].tokens.items;
            CHECK((int)one[i] == expected[i] && one[i] == other[i], "token %d is %u, not %d", i,
                  one[i], expected[i]);
        }
    }
    CHECK(generate_diffusion_is_done(&d) && w.n_written == N_TEXTS * LENGTH, "wrote %d",
          (int)w.n_written);
    CHECK((w.engine.n_windows < LENGTH) == (steps < LENGTH || enough < 1), "%d passes",
          (int)w.engine.n_windows);
    generate_writer_release(&w);
    generate_text_release(&from);
}

static void test_writing(void) {
    for (int shifted = 0; shifted < 2; shifted++) {
        const char *diffusion = shifted ? "shifted" : "masked";
        Run run;
        check_begin(shifted ? "diffusion: writing, from the position before"
                            : "diffusion: writing, the surest first");
        if (start(&run, diffusion, false, "-1", &ONE, BATCH)) {
            check_writing(&run, diffusion, 10, 10, 1, (const int[]){10});
            check_writing(&run, diffusion, 10, 4, 1, (const int[]){4});
            check_writing(&run, diffusion, 4, 5, 1, (const int[]){2, 2, 1});
            check_writing(&run, diffusion, 3, 1, 1, (const int[]){1, 1, 1, 1});
            check_writing(&run, diffusion, 5, 10, 0.07, (const int[]){5, 5});
        }
        run_close(&run);
    }
}

int main(void) {
    test_shares();
    test_rows();
    test_packed();
    test_losses();
    test_layouts();
    test_writing();
    compare_print_worst();
    return check_report();
}
