/* Expert parallelism: what is trained with e, which divides experts among ranks with sequences of
 * their own, against one rank. Catches rows that come to another rank's expert or back to another
 * token, sequences that two ranks have or none, gradients of experts that are summed over e (or not
 * over d), those of all else that are not, a norm that counts an expert twice, shards of ZeRO that
 * cross experts.
 *
 * fp32; five steps. train_compare.h says what must agree and how closely. Every plan is made,
 * proved, printed, parsed, printed again, proved again, and run as parsed.
 */
#include "tests/unit/train_compare.h"

enum { STEPS = 4, GLOBAL_BATCH = 8 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name;
    ModelSetting settings[8]; /* up to the first without a key */
} Variant;

static const Variant VARIANTS[] = {
    {"experts", {{"experts", "8"}}},
    {"experts by muon", {{"experts", "4"}, {"optimizer.kind", "muon"}}},
};

typedef struct Case {
    int variant, c, e, zero;
    Recompute recompute;
    Layout layout;
} Case;

static const Case CASES[] = {
    {0, 1, 2, 0, RECOMPUTE_NONE, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}},
    {0, 1, 4, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}},
    {0, 1, 2, 1, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {0, 1, 2, 3, RECOMPUTE_FULL, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}},
    {0, 1, 2, 2, RECOMPUTE_NONE, {2, 1, 2, 2, 1, "1f1b", false, NULL, 0}},
    {0, 1, 2, 0, RECOMPUTE_SELECTIVE, {1, 1, 2, 1, 2, "zb-chunked", false, NULL, 0}},
    {0, 2, 2, 1, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {1, 1, 2, 1, RECOMPUTE_NONE, {2, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static bool plan(Run *run, int variant, const Layout *layout) {
    const Variant *of = &VARIANTS[variant];
    int count = 0;
    while (of->settings[count].key) count++;
    return run_plan(run, "tests/models/experts.lua", of->settings, count, layout, GLOBAL_BATCH,
                    true);
}

static bool train(Run *run) {
    return run_start(run) && run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static void set_case(const Case *of) {
    run_context = of ? of->c : 1;
    run_experts = of ? of->e : 1;
    run_zero = of ? of->zero : 0;
    run_recompute = of ? of->recompute : RECOMPUTE_NONE;
}

static void check_with_e(const Case *of, Run *one) {
    char name[160];
    Run run;
    set_case(of);
    check_begin(layout_name(VARIANTS[of->variant].name, &of->layout, name, sizeof(name)));
    bool done = plan(&run, of->variant, &of->layout) && train(&run);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) compare_runs(&run, one, STEPS);
    run_close(&run);
    check_end();
    set_case(NULL);
}

static void check_variant(int variant) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    Run one;
    bool done = plan(&one, variant, &alone) && train(&one);
    check_begin(VARIANTS[variant].name);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    check_end();
    for (int i = 0; done && i < N_CASES; i++) {
        if (CASES[i].variant == variant) check_with_e(&CASES[i], &one);
    }
    run_close(&one);
}

int main(void) {
    for (int v = 0; v < (int)(sizeof(VARIANTS) / sizeof(VARIANTS[0])); v++) check_variant(v);
    compare_print_worst();
    return check_report();
}
