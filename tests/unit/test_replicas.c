/* Replicas of what ZeRO divides (axis r): what is trained with r and d against one rank. Catches
 * shards that lack another replica's share of a gradient, a norm that counts a replica again,
 * samples that two replicas have or none, shards divided over r, random numbers of other rows.
 *
 * fp32; four steps. train_compare.h says what must agree and how closely. Every plan is made,
 * proved, printed, parsed, printed again, proved again, and run as parsed.
 */
#include "tests/unit/broken_text.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { STEPS = 4, GLOBAL_BATCH = 8 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    ModelSetting settings[10]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define SIZES {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"}, {"seq", "8"}, \
              {"layers", "3"}
static const Variant VARIANTS[] = {
    {"gpt dropout", "models/gpt.lua", {SIZES, {"vocab", "61"}, {"ffn", "64"}, {"dropout", "0.1"}}},
    {"experts", "tests/models/experts.lua", {{"experts", "4"}}},
    {"llama by muon", "models/llama.lua",
     {SIZES, {"vocab", "64"}, {"ffn", "64"}, {"optimizer", "muon"}}},
    {"llama by lamb", "models/llama.lua",
     {SIZES, {"vocab", "64"}, {"ffn", "64"}, {"optimizer", "lamb"}}},
};
/* clang-format on */
enum { GPT, EXPERTS, MUON, LAMB, N_VARIANTS };

typedef struct Case {
    int variant, c, e, r, zero;
    Recompute recompute;
    Layout layout;
} Case;

static const Case CASES[] = {
    {GPT, 1, 1, 2, 1, RECOMPUTE_NONE, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}},
    {GPT, 1, 1, 2, 2, RECOMPUTE_NONE, {2, 2, 1, 1, 1, "1f1b", true, NULL, 0}},
    {GPT, 1, 1, 4, 3, RECOMPUTE_FULL, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {GPT, 1, 1, 2, 3, RECOMPUTE_NONE, {1, 2, 2, 1, 2, "zb-v", false, NULL, 0}},
    {GPT, 2, 1, 2, 2, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {GPT, 1, 1, 2, 1, RECOMPUTE_NONE, {1, 3, 1, 1, 1, "1f1b", false, NULL, 0}}, /* padded */
    {EXPERTS, 1, 2, 2, 2, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {EXPERTS, 2, 2, 2, 3, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {MUON, 1, 1, 2, 1, RECOMPUTE_NONE, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}},
    {MUON, 1, 1, 2, 3, RECOMPUTE_NONE, {1, 2, 2, 1, 1, "1f1b", false, NULL, 0}},
    {LAMB, 1, 1, 2, 2, RECOMPUTE_NONE, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

/* r = 2 x d = 3 divides another batch. */
static int batch_of(const Case *of) {
    return of->layout.d == 3 ? 12 : GLOBAL_BATCH;
}

static void set_case(const Case *of) {
    run_context = of ? of->c : 1;
    run_experts = of ? of->e : 1;
    run_replicas = of ? of->r : 1;
    run_zero = of ? of->zero : 0;
    run_recompute = of ? of->recompute : RECOMPUTE_NONE;
}

static bool plan(Run *run, int variant, const Layout *layout, int global_batch) {
    const Variant *of = &VARIANTS[variant];
    int count = 0;
    while (of->settings[count].key) count++;
    return run_plan(run, of->path, of->settings, count, layout, global_batch, true);
}

static bool train(Run *run) {
    return run_start(run) && run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static bool is_over(const Node *node, const char *mesh) {
    return OPS[node->op].flags & COLLECTIVE && node_attr(node, ATTR_mesh) &&
           strcmp(node_string(node, ATTR_mesh), mesh) == 0;
}

/* Over r there are sums alone, in the update of shards; nothing is divided over it but the batch.
 */
static void check_messages(const Run *run) {
    const Graph *graph = run->plan->programs[0].graph;
    int n_shards = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool divided = false;
        for (int i = 0; i < node->types[0].rank; i++) {
            divided |= mesh_is_replicas(node->shardings[0].mesh[i]);
        }
        if (!is_over(node, "r")) continue;
        CHECK(node->op == OP_ALL_REDUCE, "%s over r", OPS[node->op].name);
        n_shards += divided && node->phase == PHASE_UPDATE;
    }
    CHECK(n_shards > 0, "no shard is summed over r");
}

static void check_case_of(const Case *of, Run *one) {
    char name[160];
    Run run;
    set_case(of);
    check_begin(layout_name(VARIANTS[of->variant].name, &of->layout, name, sizeof(name)));
    bool done = plan(&run, of->variant, &of->layout, batch_of(of)) && train(&run);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) compare_runs(&run, one, STEPS);
    if (done) check_messages(&run);
    run_close(&run);
    check_end();
    set_case(NULL);
}

static void check_cases(int variant, int global_batch) {
    const Layout alone = {1, 1, 1, global_batch, 1, "1f1b", false, NULL, 0};
    Run one;
    bool done = plan(&one, variant, &alone, global_batch) && train(&one);
    check_begin(VARIANTS[variant].name);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    check_end();
    for (int i = 0; done && i < N_CASES; i++) {
        const Case *of = &CASES[i];
        if (of->variant == variant && batch_of(of) == global_batch) check_case_of(of, &one);
    }
    run_close(&one);
}

static void check_broken(void) {
    static const BrokenText CHANGES[] = {
        {" r=2", " r=2", " r=4", ""},
        {" r=2", " r=2", "", ""},
        {"batch=8/rd", "batch=8/rd", "batch=8/d", ""}, /* samples that two replicas have */
        {"update", "{mesh=\"r\"}", "{mesh=\"d\"}", ""},
        {"update", "all_reduce(", "stop_gradient(", ""},
    };
    const Case with = {GPT, 1, 1, 2, 2, RECOMPUTE_NONE, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}};
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        Run run;
        char name[128];
        snprintf(name, sizeof(name), "refused: '%s' for '%s'", CHANGES[i].to, CHANGES[i].from);
        check_begin(name);
        set_case(&with);
        bool made = plan(&run, GPT, &with.layout, GLOBAL_BATCH);
        CHECK(made, "%s", diag_text(run.diag));
        if (made) check_broken_text(&run, &CHANGES[i]);
        run_close(&run);
        set_case(NULL);
        check_end();
    }
}

static void check_refusal(int d, int zero, const char *message) {
    const Layout layout = {1, d, 1, 1, 1, "1f1b", false, NULL, 0};
    Run run;
    run_replicas = 2, run_zero = zero;
    check_begin(message);
    CHECK(!plan(&run, GPT, &layout, GLOBAL_BATCH), "was planned");
    CHECK(strstr(diag_text(run.diag), message), "says: %s", diag_text(run.diag));
    run_replicas = 1, run_zero = 0;
    run_close(&run);
    check_end();
}

/* What d has divided, and r repeats, is whole in a file. */
static void check_checkpoint(void) {
    static const Case
        FROM = {GPT, 1, 1, 2, 3, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
        TO = {GPT, 1, 1, 2, 1, RECOMPUTE_NONE, {2, 2, 1, 2, 1, "1f1b", false, NULL, 0}};
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    const TrainingPlace place = {.step = 2, .samples = 2 * GLOBAL_BATCH, .data = "a text"};
    TrainingPlace there = {0};
    char path[64];
    Run one, run;
    check_begin("a checkpoint of r=2 d=2 with ZeRO-3 is continued by t=2 r=2 d=2 with ZeRO-1");
    snprintf(path, sizeof(path), "/tmp/perilune-replicas-%d", (int)getpid());
    bool fine = plan(&one, GPT, &alone, GLOBAL_BATCH) && run_start(&one) &&
                run_steps(&one, STEPS, LEARNING_RATE);
    CHECK(fine, "%s", diag_text(one.diag));
    set_case(&FROM);
    fine = plan(&run, GPT, &FROM.layout, GLOBAL_BATCH) && run_start(&run) &&
           run_steps(&run, 2, LEARNING_RATE) &&
           engine_save_state(run.engine, path, &place, run.diag);
    CHECK(fine, "%s", diag_text(run.diag));
    run_close(&run);
    set_case(&TO);
    fine = plan(&run, GPT, &TO.layout, GLOBAL_BATCH) && run_start(&run) &&
           engine_load_state(run.engine, path, &there, run.diag) &&
           run_steps_from(&run, 2, STEPS - 2, LEARNING_RATE);
    CHECK(fine, "%s", diag_text(run.diag));
    set_case(NULL);
    for (int i = 0; i < 2; i++) run.losses[i] = one.losses[i], run.norms[i] = one.norms[i];
    if (fine) compare_losses(&run, &one, STEPS);
    if (fine) compare_weights(&run, &one);
    unlink(path);
    run_close(&run);
    run_close(&one);
    check_end();
}

int main(void) {
    check_refusal(2, 0,
                  "r=2 repeats what --zero divides over d, and --zero is 0: d=4 alone says "
                  "the same");
    check_refusal(1, 1, "r=2 repeats what --zero divides over d, and d is 1");
    check_broken();
    check_checkpoint();
    check_cases(GPT, 12);
    for (int v = 0; v < N_VARIANTS; v++) check_cases(v, GLOBAL_BATCH);
    compare_print_worst();
    return check_report();
}
