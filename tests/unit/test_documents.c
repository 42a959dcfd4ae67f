/* Attention within documents of packed sequences: sequences in which documents stand one after
 * another against the same documents as sequences of their own, and every layout against one rank.
 * An encoder's, which is not causal, have separators between them, which none of them sees.
 *
 * Would catch: a key of another document that is seen, or one of its own that is not; gradients
 * that cross from one to the next; positions that are not counted anew; separators that texts see;
 * places of documents that a rank of c, a later stage, a recomputed block, a lane or a second
 * micro-batch has of others.
 *
 * fp32. train_compare.h says what must agree and how closely.
 */
#include "tests/unit/train_compare.h"

enum { STEPS = 4, PACKED = 3, LENGTH = 8, SEPARATOR = 5 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    ModelSetting settings[16]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define SIZES {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"}, {"layers", "3"}
#define LLAMA {"kv_heads", "2"}, {"ffn", "64"}
static const Variant VARIANTS[] = {
    {"gpt", "models/gpt.lua", {SIZES, {"ffn", "64"}}},
    {"llama window", "models/llama.lua", {SIZES, LLAMA, {"window", "5"}}},
    {"gemma", "models/gemma.lua", {SIZES, LLAMA, {"window", "4"}}},
    {"hybrid", "models/hybrid.lua",
     {SIZES, LLAMA, {"pattern", "MDA"}, {"state_groups", "2"}, {"state_heads", "2"},
      {"state_keys", "8"}, {"state_values", "10"}}},
    {"attention beside a state space", "models/hybrid.lua",
     {SIZES, LLAMA, {"pattern", "P"}, {"state_groups", "2"}, {"state_heads", "2"},
      {"state_keys", "8"}, {"state_values", "10"}, {"state_gate_last", "true"}}},
    {"decays of keys", "models/hybrid.lua",
     {SIZES, LLAMA, {"pattern", "GK"}, {"state_groups", "2"}, {"state_heads", "2"},
      {"state_keys", "8"}, {"state_values", "10"}}},
    {"short convolutions", "models/hybrid.lua", {SIZES, LLAMA, {"pattern", "CA"}, {"taps", "3"}}},
};
/* Padding has a position of its own (RoBERTa's), or the first of a text. */
static const Variant ENCODERS[] = {
    {"bert", "models/bert.lua", {SIZES, {"ffn", "64"}, {"mask_token", "7"}}},
    {"roberta", "models/bert.lua",
     {SIZES, {"ffn", "64"}, {"mask_token", "7"}, {"pad_token", "5"}, {"pre_norm", "true"}}},
    {"modernbert", "models/modernbert.lua",
     {SIZES, {"ffn", "64"}, {"mask_token", "7"}, {"window", "5"}, {"rotary_local_base", "50"}}},
};
/* clang-format on */
enum { N_ENCODERS = sizeof(ENCODERS) / sizeof(ENCODERS[0]) };
enum { N_VARIANTS = sizeof(VARIANTS) / sizeof(VARIANTS[0]) };

static bool plan(Run *run, const Variant *variant, const char *seq, const char *vocab,
                 const char *documents, const Layout *layout, int global_batch) {
    ModelSetting settings[19];
    int n = 0;
    for (; variant->settings[n].key; n++) settings[n] = variant->settings[n];
    settings[n++] = (ModelSetting){"seq", seq};
    settings[n++] = (ModelSetting){"vocab", vocab};
    settings[n++] = (ModelSetting){"documents", documents};
    return run_plan(run, variant->path, settings, n, layout, global_batch, true) && run_start(run);
}

/* --- packed, and one by one --- */

/* Documents of LENGTH tokens. */
static bool train_documents(Run *run) {
    int64_t n = run->plan->global_batch * run->plan->seq;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    for (int step = 0; step < STEPS; step++) {
        StepResult result;
        fill_batch(run->plan, step, tokens, labels);
        for (int64_t i = 0; i < n; i++) {
            if (i % LENGTH == LENGTH - 1) tokens[i] = SEPARATOR;
            if (i % LENGTH != LENGTH - 1 && tokens[i] == SEPARATOR) tokens[i]++;
        }
        if (!engine_step(run->engine, step + 1, tokens, labels, LEARNING_RATE, &result,
                         run->diag)) {
            return false;
        }
        run->losses[step] = result.loss;
        run->norms[step] = result.grad_norm;
        if (step == 0) run_keep_gradients(run);
    }
    return true;
}

/* Texts of LENGTH - 1 tokens, each before a separator that has no label, or by itself. */
static bool train_texts(Run *run, bool packed) {
    enum { FIRST = 8, MOST = PACKED * LENGTH * 8 };
    int32_t tokens[MOST], labels[MOST];
    int64_t text = packed ? LENGTH : LENGTH - 1;
    for (int step = 0; step < STEPS; step++) {
        StepResult result;
        for (int64_t i = 0, n = 0; i < run->plan->global_batch * run->plan->seq; i++) {
            bool ends = packed && i % text == text - 1;
            tokens[i] = ends ? SEPARATOR : (int32_t)(FIRST + (n * 7919 + step * 31) % 53);
            labels[i] = ends ? -1 : (int32_t)(FIRST + (n * 6007 + step * 17) % 53);
            n += !ends;
        }
        if (!engine_step(run->engine, step + 1, tokens, labels, LEARNING_RATE, &result,
                         run->diag)) {
            return false;
        }
        run->losses[step] = result.loss;
        run->norms[step] = result.grad_norm;
        if (step == 0) run_keep_gradients(run);
    }
    return true;
}

/* A table has rows for all positions of a sequence, of which documents use the first. */
static void compare_tables(const Run *packed, const Run *alone) {
    for (int i = 0; i < packed->n_params; i++) {
        int k = 0;
        while (k < alone->n_params && strcmp(alone->names[k], packed->names[i]) != 0) k++;
        int64_t used = type_elements(&alone->types[k]), all = type_elements(&packed->types[i]);
        const float *gradient = packed->gradients[i];
        if (!gradient || is_key_bias(packed, packed->names[i])) continue; /* frozen; zero */
        double error = relative_distance(gradient, alone->gradients[k], used);
        CHECK(error < 1e-5, "gradient of '%s' differs by %.3g of its norm", packed->names[i],
              error);
        CHECK(largest(gradient + used, all - used) == 0, "'%s' has positions beyond a document's",
              packed->names[i]);
    }
}

static bool train_alone(Run *run, const Variant *variant, bool encoder, const Layout *layout,
                        int batch) {
    bool planned = plan(run, variant, encoder ? "7" : "8", "61", "-1", layout, batch);
    return planned && (encoder ? train_texts(run, false) : train_documents(run));
}

static bool train_packed(Run *run, const Variant *variant, bool encoder, const Layout *layout,
                         int batch) {
    bool planned = plan(run, variant, "24", "61", "5", layout, batch);
    return planned && (encoder ? train_texts(run, true) : train_documents(run));
}

static void check_packed(const Variant *variant, bool encoder, int c, int p) {
    enum { BATCH = 2 };
    const Layout one = {1, 1, 1, PACKED * BATCH, 1, "1f1b", false, NULL, 0};
    const Layout layout = {1, 1, p, 1, 1, "1f1b", false, NULL, 0};
    char name[128];
    Run packed = {0}, alone = {0};
    snprintf(name, sizeof(name), "%s, c=%d p=%d: packed documents are as they are alone",
             variant->name, c, p);
    check_begin(name);
    run_context = 1;
    bool done = train_alone(&alone, variant, encoder, &one, PACKED * BATCH);
    CHECK(done, "alone: %s", diag_text(alone.diag));
    run_context = c;
    done = done && train_packed(&packed, variant, encoder, &layout, BATCH);
    run_context = 1;
    CHECK(done, "packed: %s", packed.diag ? diag_text(packed.diag) : "");
    if (done) {
        compare_losses(&packed, &alone, STEPS);
        compare_tables(&packed, &alone);
    }
    run_close(&packed);
    run_close(&alone);
    check_end();
}

/* --- layouts --- */

typedef struct Case {
    int c, zero;
    Recompute recompute;
    Layout layout;
    int lanes; /* 0: one */
} Case;

/* Of 8 tokens one ends a document: they are longer and shorter than a chunk of c. */
static const Case CASES[] = {
    {2, 0, RECOMPUTE_NONE, {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 0},
    {3, 0, RECOMPUTE_SELECTIVE, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}, 0},
    {2, 1, RECOMPUTE_FULL, {1, 2, 2, 1, 1, "1f1b", false, NULL, 0}, 0},
    {1, 3, RECOMPUTE_NONE, {2, 2, 1, 1, 1, "1f1b", true, NULL, 0}, 0},
    {1, 0, RECOMPUTE_NONE, {1, 1, 3, 1, 1, "zb-h1", false, NULL, 0}, 0},
    {2, 0, RECOMPUTE_NONE, {1, 1, 2, 1, 2, "zb-v", false, NULL, 0}, 0},
    {2, 0, RECOMPUTE_SELECTIVE, {1, 1, 2, 2, 1, "1f1b", false, NULL, 0}, 2},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]), GLOBAL_BATCH = 4 };

static bool train(Run *run, const Variant *variant, const Layout *layout) {
    return plan(run, variant, "24", "8", "5", layout, GLOBAL_BATCH) &&
           run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static void check_layout(const Variant *variant, const Case *of, Run *one) {
    char name[160];
    Run run;
    run_context = of->c;
    run_zero = of->zero;
    run_recompute = of->recompute;
    run_lanes = of->lanes ? of->lanes : 1;
    check_begin(layout_name(variant->name, &of->layout, name, sizeof(name)));
    bool done = train(&run, variant, &of->layout);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) compare_runs(&run, one, STEPS);
    run_close(&run);
    check_end();
    run_context = 1;
    run_zero = 0;
    run_recompute = RECOMPUTE_NONE;
    run_lanes = 1;
}

static void check_layouts(const Variant *variant) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    Run one;
    bool done = train(&one, variant, &alone);
    check_begin(variant->name);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    check_end();
    for (int i = 0; done && i < N_CASES; i += LAYOUT_STEP) check_layout(variant, &CASES[i], &one);
    run_close(&one);
}

/* Losses in bf16 are those of f32 as closely as with one document, and the same with d. */
static void check_low(const Variant *variant) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    const Layout divided = {2, 2, 1, 1, 1, "1f1b", true, NULL, 0};
    Run one, run;
    char name[64];
    snprintf(name, sizeof(name), "%s in bf16, t=2 d=2", variant->name);
    check_begin(name);
    bool done = train(&one, variant, &alone);
    run_precision = DTYPE_BF16;
    run_context = 2;
    done = train(&run, variant, &divided) && done;
    run_precision = DTYPE_F32;
    run_context = 1;
    CHECK(done, "%s%s", diag_text(one.diag), diag_text(run.diag));
    for (int step = 0; done && step < STEPS; step++) {
        double error = fabs(run.losses[step] - one.losses[step]) / one.losses[step];
        CHECK(error < 5e-3, "loss of step %d is %.6f, in f32 %.6f", step + 1, run.losses[step],
              one.losses[step]);
    }
    run_close(&one);
    run_close(&run);
    check_end();
}

int main(void) {
    for (int v = 0; v < N_VARIANTS; v++) check_packed(&VARIANTS[v], false, 1, 1);
    check_packed(&VARIANTS[0], false, 2, 3);
    for (int v = 0; v < N_ENCODERS; v++) check_packed(&ENCODERS[v], true, 1, 1);
    check_packed(&ENCODERS[1], true, 2, 3);
    for (int v = 0; v < 2; v++) check_layouts(&VARIANTS[v]);
    for (int v = 0; v < N_ENCODERS; v++) check_layouts(&ENCODERS[v]);
    check_low(&VARIANTS[1]);
    check_low(&ENCODERS[0]);
    compare_print_worst();
    return check_report();
}
