/* Recomputation: the same bits as without it, on one rank and on meshes; and frames that hold what
 * they should. Catches a copy that reads a value of another time or another rounding, a mask drawn
 * anew, a message left out, a value kept for nothing, a block computed again too early.
 */
#include "planner/recompute.h"
#include "ir/base/file.h"
#include "planner/pass.h"
#include "tests/unit/check.h"
#include "tests/unit/train_compare.h"

enum { STEPS = 3, GLOBAL_BATCH = 16, MOST_SETTINGS = 12 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    int most_t; /* what its heads allow */
    DType precision;
    ModelSetting settings[MOST_SETTINGS]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define COMMON {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {"layers", "5"}
/* clang-format on */
static const Variant VARIANTS[] = {
    {"gpt dropout",
     "models/gpt.lua",
     4,
     DTYPE_F32,
     {COMMON, {"vocab", "61"}, {"ffn", "64"}, {"dropout", "0.1"}}},
    {"gpt bf16 dropout",
     "models/gpt.lua",
     4,
     DTYPE_BF16,
     {COMMON, {"vocab", "64"}, {"dropout", "0.1"}}},
    {"gpt untied rmsnorm relu",
     "models/gpt.lua",
     4,
     DTYPE_F32,
     {COMMON, {"vocab", "50"}, {"tied", "false"}, {"norm", "rmsnorm"}, {"act", "relu"}}},
    {"llama gqa",
     "models/llama.lua",
     2,
     DTYPE_F32,
     {COMMON, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}},
    {"llama bf16 dropout",
     "models/llama.lua",
     4,
     DTYPE_BF16,
     {COMMON, {"vocab", "64"}, {"kv_heads", "4"}, {"dropout", "0.1"}, {"ffn", "88"}}},
};

static const Layout LAYOUTS[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel */
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},        {2, 1, 1, 8, 1, "1f1b", false, NULL, 0},
    {4, 1, 1, 4, 1, "1f1b", true, NULL, 0},         {1, 2, 1, 2, 1, "1f1b", false, NULL, 0},
    {1, 1, 2, 2, 1, "1f1b", false, NULL, 0},        {1, 1, 4, 2, 1, "gpipe", false, NULL, 0},
    {1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, {2, 1, 2, 4, 1, "1f1b", true, NULL, 0},
    {2, 2, 2, 2, 2, "interleaved", true, NULL, 0},
};

static int count_settings(const Variant *variant) {
    int count = 0;
    while (count < MOST_SETTINGS && variant->settings[count].key) count++;
    return count;
}

static bool train(Run *run, const Variant *variant, const Layout *layout, RecomputeMode mode) {
    run_precision = variant->precision;
    run_recompute = mode;
    return run_plan(run, variant->path, variant->settings, count_settings(variant), layout,
                    GLOBAL_BATCH, true) &&
           run_start(run) && run_steps(run, STEPS, LEARNING_RATE);
}

static void compare_bits(Run *run, Run *none) {
    for (int step = 0; step < STEPS; step++) {
        CHECK(run->losses[step] == none->losses[step] && run->norms[step] == none->norms[step],
              "step %d: loss %.9g and norm %.9g, without %.9g and %.9g", step + 1,
              run->losses[step], run->norms[step], none->losses[step], none->norms[step]);
    }
    for (int i = 0; i < run->n_params; i++) {
        size_t bytes = (size_t)type_elements(&run->types[i]) * sizeof(float);
        CHECK(memcmp(run_weight(run, i), run_weight(none, i), bytes) == 0, "'%s' differs",
              run->names[i]);
    }
}

/* Frames of all chunks of a stage. */
static int64_t frame_bytes(const Plan *plan, int stage) {
    int64_t bytes = 0;
    for (int c = 0; c < plan->n_chunks; c++) {
        bytes += plan->programs[plan->stages[stage].program].frame_bytes[c];
    }
    return bytes;
}

static void check_layout(const Variant *variant, const Layout *layout) {
    char name[160], full[200];
    Run none;
    bool done = train(&none, variant, layout, RECOMPUTE_NONE);
    layout_name(variant->name, layout, name, sizeof(name));
    check_begin(name);
    CHECK(done, "%s", diag_text(none.diag));
    for (int mode = RECOMPUTE_SELECTIVE; done && mode <= RECOMPUTE_FULL; mode++) {
        Run run;
        snprintf(full, sizeof(full), "the bits without recomputation: %s, %s", name,
                 recompute_mode_name((RecomputeMode)mode));
        check_begin(full);
        bool again = train(&run, variant, layout, (RecomputeMode)mode);
        CHECK(again, "%s", diag_text(run.diag));
        if (again) compare_bits(&run, &none);
        for (int s = 0; again && s < run.plan->n_stages; s++) {
            CHECK(frame_bytes(run.plan, s) < frame_bytes(none.plan, s),
                  "stage %d keeps %lld bytes, without %lld", s,
                  (long long)frame_bytes(run.plan, s), (long long)frame_bytes(none.plan, s));
        }
        run_close(&run);
        check_end();
    }
    run_close(&none);
}

int main(void) {
    for (size_t v = 0; v < sizeof(VARIANTS) / sizeof(VARIANTS[0]); v++) {
        for (size_t l = 0; l < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); l++) {
            if (LAYOUTS[l].t <= VARIANTS[v].most_t) check_layout(&VARIANTS[v], &LAYOUTS[l]);
        }
    }
    check_end();
    return check_report();
}
