/* Expert parallelism: what is trained with e, which divides experts among ranks with sequences of
 * their own, against one rank. Catches rows that come to another rank's expert or back to another
 * token, sequences that two ranks have or none, gradients of experts that are summed over e (or not
 * over d), those of all else that are not, a norm that counts an expert twice, shards of ZeRO that
 * cross experts, slots that two runs of them have or none (--expert-parts).
 *
 * fp32; five steps. train_compare.h says what must agree and how closely. Every plan is made,
 * proved, printed, parsed, printed again, proved again, and run as parsed.
 */
#include "tests/unit/broken_text.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

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
    int parts; /* runs of experts' slots */
} Case;

static const Case CASES[] = {
    {0, 1, 2, 0, RECOMPUTE_NONE, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 1},
    {0, 1, 4, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}, 1},
    {0, 1, 2, 1, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 1},
    {0, 1, 2, 3, RECOMPUTE_FULL, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1},
    {0, 1, 2, 2, RECOMPUTE_NONE, {2, 1, 2, 2, 1, "1f1b", false, NULL, 0}, 1},
    {0, 1, 2, 2, RECOMPUTE_NONE, {1, 1, 2, 2, 2, "zb-v", false, NULL, 0}, 1},
    {0, 1, 2, 0, RECOMPUTE_SELECTIVE, {1, 1, 2, 1, 2, "zb-chunked", false, NULL, 0}, 1},
    {0, 2, 2, 1, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 1},
    {1, 1, 2, 1, RECOMPUTE_NONE, {2, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 1},
    {0, 1, 1, 0, RECOMPUTE_NONE, {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 2},
    {1, 1, 2, 0, RECOMPUTE_SELECTIVE, {2, 1, 2, 1, 2, "zb-chunked", true, NULL, 0}, 3},
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
    run_expert_parts = of ? of->parts : 1;
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

/* What reads an all-to-all's result reads its operand. */
static void check_unsent(const Run *run) {
    char operand[16], found[64] = "", missing[64] = "";
    int result = 0;
    StrBuf text = strbuf_create();
    plan_print(&text, run->plan);
    const char *first = strstr(text.text, " = all_to_all(");
    while (first && first[-1] != '%') first--;
    bool there = first && sscanf(first, "%d = all_to_all(%%%15[0-9])", &result, operand) == 2;
    CHECK(there, "no all-to-all");
    snprintf(found, sizeof(found), "(%%%d, ", result);
    snprintf(missing, sizeof(missing), "(%%%s, ", there ? operand : "");
    if (there) check_broken_text(run, &(BrokenText){found, found, missing, ""});
    strbuf_destroy(&text);
}

static void check_changed(const char *from, const char *to) {
    const Layout layout = {1, 2, 1, 1, 1, "1f1b", false, NULL, 0};
    Run run;
    run_experts = 2;
    bool made = plan(&run, 0, &layout);
    CHECK(made, "%s", diag_text(run.diag));
    if (made && from) check_broken_text(&run, &(BrokenText){from, from, to, ""});
    if (made && !from) check_unsent(&run);
    run_close(&run);
    run_experts = 1;
}

static void check_broken(void) {
    static const struct {
        const char *name, *from, *to;
    } CHANGES[] = {
        {"another e than its programs have", "\ne=2", "\ne=4"},
        {"no e", "\ne=2", "\ne=1"},
        {"rows that are not sent to their experts", NULL, NULL},
        {"rows sent over other ranks", "over=[batch], mesh=\"e\"", "over=[batch], mesh=\"d\""},
        {"rows sent the other way", "{axis=experts, over=[batch]", "{axis=batch, over=[experts]"},
        {"rows sent along another axis", "{axis=experts, over=[batch]",
         "{axis=experts, over=[model]"},
        {"rows sent along an axis that they lack", "over=[batch], mesh=\"e\"",
         "over=[seq], mesh=\"e\""},
        {"all experts on all ranks", "experts=8/e, batch=4/d", "experts=8, batch=4/d"},
        {"tokens of fewer ranks", "batch=4/de", "batch=4/d"},
        {"gradients that lack e's shares", "{mesh=\"de\"}", "{mesh=\"d\"}"},
        {"gradients of experts summed over e", "{mesh=\"d\"}", "{mesh=\"de\"}"},
    };
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        char name[96];
        snprintf(name, sizeof(name), "refused: %s", CHANGES[i].name);
        check_begin(name);
        check_changed(CHANGES[i].from, CHANGES[i].to);
        check_end();
    }
}

static void check_refusal(int e, const Layout *layout, const char *message) {
    Run run;
    run_experts = e;
    check_begin(message);
    CHECK(!plan(&run, 0, layout), "was planned");
    CHECK(strstr(diag_text(run.diag), message), "says: %s", diag_text(run.diag));
    run_experts = 1;
    run_close(&run);
    check_end();
}

/* What e and d have divided is whole in a file, and divided anew by t and another e. */
static void check_checkpoint(void) {
    static const Layout before = {1, 2, 1, 1, 1, "1f1b", false, NULL, 0},
                        after = {2, 1, 1, 2, 1, "1f1b", true, NULL, 0},
                        alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    const TrainingPlace place = {.step = 2, .samples = 2 * GLOBAL_BATCH, .data = "a text"};
    TrainingPlace there = {0};
    char path[64];
    Run one, run;
    check_begin("a checkpoint of e=2 d=2 with ZeRO is gone on from with t=2 e=4");
    snprintf(path, sizeof(path), "/tmp/perilune-experts-%d", (int)getpid());
    bool fine = plan(&one, 0, &alone) && run_start(&one) && run_steps(&one, STEPS, LEARNING_RATE);
    CHECK(fine, "%s", diag_text(one.diag));
    run_experts = 2, run_zero = 1;
    fine = plan(&run, 0, &before) && run_start(&run) && run_steps(&run, 2, LEARNING_RATE) &&
           engine_save_state(run.engine, path, &place, run.diag);
    CHECK(fine, "%s", diag_text(run.diag));
    run_close(&run);
    run_experts = 4, run_zero = 0;
    fine = plan(&run, 0, &after) && run_start(&run) &&
           engine_load_state(run.engine, path, &there, run.diag) &&
           run_steps_from(&run, 2, STEPS - 2, LEARNING_RATE);
    CHECK(fine, "%s", diag_text(run.diag));
    run_experts = 1;
    for (int i = 0; i < 2; i++) run.losses[i] = one.losses[i], run.norms[i] = one.norms[i];
    if (fine) compare_losses(&run, &one, STEPS);
    if (fine) compare_weights(&run, &one);
    unlink(path);
    run_close(&run);
    run_close(&one);
    check_end();
}

int main(void) {
    const Layout alone = {1, 1, 1, 1, 1, "1f1b", false, NULL, 0};
    const Layout by_t = {2, 1, 1, 1, 1, "1f1b", false, NULL, 0};
    check_broken();
    check_refusal(3, &alone, "global batch 8 is not a multiple of micro-batch 1 x d x e 3");
    check_refusal(8, &by_t, "axis 'experts' is 8, which t=2 x e=8 does not divide; e=4 would do");
    check_checkpoint();
    for (int v = 0; v < (int)(sizeof(VARIANTS) / sizeof(VARIANTS[0])); v++) check_variant(v);
    compare_print_worst();
    return check_report();
}
