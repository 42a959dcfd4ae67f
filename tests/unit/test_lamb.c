/* LAMB in whole models: which parameters it adapts, that no layout changes what it does, that norms
 * travel together, that a checkpoint goes from AdamW to it, and that plans whose steps are made of
 * the wrong things are refused. Steps against formulas are test_update's.
 *
 * Would catch: a norm of one rank's shard, or one that counts copies of an element; a bias that is
 * adapted; a trust ratio that is another parameter's; a message for each parameter; moments that
 * move on where a step is left out.
 */
#include "planner/verify/verify.h"
#include "runtime/engine_internal.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { STEPS = 4, GLOBAL_BATCH = 8 };
static const double LEARNING_RATE = 2e-3;

#define SIZES                                                                                      \
    {"optimizer", "lamb"}, {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"},             \
        {"seq", "16"}, {"vocab", "61"}, {                                                          \
        "layers", "4"                                                                              \
    }

typedef struct Variant {
    const char *name, *path;
    ModelSetting settings[10];
} Variant;

static const Variant GPT = {"gpt", "models/gpt.lua", {SIZES, {"ffn", "70"}}};
static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
static const Layout TWO = {2, 1, 1, 4, 1, "1f1b", false, NULL, 0};

static bool start(Run *run, const Variant *variant, const Layout *layout) {
    int n = 0;
    while (variant->settings[n].key) n++;
    return run_plan(run, variant->path, variant->settings, n, layout, GLOBAL_BATCH, true) &&
           run_start(run);
}

/* Weights of many kinds: shared by blocks, of penalties, of experts, and some of each for c, e. */
static const Variant UNUSUAL[] = {
    {"shared weights", "tests/models/shared.lua", {{"optimizer", "lamb"}, {"layers", "5"}}},
    {"penalties", "tests/models/penalties.lua", {{"optimizer", "lamb"}, {"layers", "5"}}},
    {"experts", "tests/models/experts.lua", {{"optimizer", "lamb"}, {"experts", "4"}}},
};

typedef struct Case {
    LayoutCase at;
    int variant, c, e;
} Case;

static void test_layouts(void) {
    static const Case CASES[] = {
        {{{2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 1}, 0, 1, 1},
        {{{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 2}, 0, 1, 1},
        {{{2, 1, 2, 2, 2, "interleaved", false, NULL, 0}, RECOMPUTE_NONE, 0}, 1, 1, 1},
        {{{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 3}, 1, 1, 1},
        {{{2, 2, 1, 1, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 1}, 2, 1, 2},
        {{{1, 2, 1, 1, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 2}, 2, 2, 2},
    };
    for (size_t v = 0; v < sizeof(UNUSUAL) / sizeof(UNUSUAL[0]); v++) {
        Run one;
        bool ready =
            start(&one, &UNUSUAL[v], &ALONE) && run_steps_keeping(&one, STEPS, LEARNING_RATE);
        for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
            const Case *c = &CASES[k];
            char name[160];
            Run run;
            if (c->variant != (int)v) continue;
            run_recompute = c->at.recompute;
            run_zero = c->at.zero;
            run_context = c->c;
            run_experts = c->e;
            check_begin(layout_name(UNUSUAL[v].name, &c->at.layout, name, sizeof(name)));
            bool done = ready && start(&run, &UNUSUAL[v], &c->at.layout) &&
                        run_steps_keeping(&run, STEPS, LEARNING_RATE);
            run_recompute = RECOMPUTE_NONE;
            run_zero = 0;
            run_context = run_experts = 1;
            CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
            if (done) compare_runs(&run, &one, STEPS);
            if (ready) run_close(&run);
            check_end();
        }
        run_close(&one);
    }
}

/* What does not decay has Adam's step. */
static void test_choice(void) {
    Run run;
    check_begin("LAMB adapts what decays");
    bool ready = start(&run, &GPT, &ALONE);
    CHECK(ready, "%s", diag_text(run.diag));
    const Graph *graph = ready ? run.plan->programs[0].graph : NULL;
    int n_lamb = 0, n_adam = 0;
    for (int n = 0; graph && n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!op_is_optimizer(node->op)) continue;
        bool decays = node_float(node->inputs[0].node, ATTR_decay, 1) != 0;
        n_lamb += node->op == OP_LAMB;
        n_adam += node->op == OP_ADAMW;
        CHECK(node->op == (decays ? OP_LAMB : OP_ADAMW), "'%s' has %s",
              node_string(node->inputs[0].node, ATTR_name), OPS[node->op].name);
    }
    CHECK(n_lamb == 2 + 6 * 4 && n_adam > 0, "%d with LAMB, %d with AdamW", n_lamb, n_adam);
    run_close(&run);
    check_end();
}

static int count_messages(const Run *run, int rank) {
    const Graph *graph = run->plan->programs[0].graph;
    int count = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        count +=
            node->phase == PHASE_UPDATE && node->op == OP_ALL_REDUCE && node->types[0].rank == rank;
    }
    return count;
}

/* Over t and d some parameters are divided over both, some over one: a vector for each set, and
 * the parts of the gradients' norm, which are numbers. */
static void test_messages(void) {
    static const Layout BOTH = {2, 2, 1, 2, 1, "1f1b", false, NULL, 0};
    Run lamb, adam;
    Variant other = GPT;
    other.settings[0].value = "adamw";
    check_begin("norms travel together");
    run_zero = 1;
    bool ready = start(&lamb, &GPT, &BOTH);
    ready = start(&adam, &other, &BOTH) && ready;
    run_zero = 0;
    CHECK(ready, "%s%s", diag_text(lamb.diag), diag_text(adam.diag));
    if (ready) {
        int numbers = count_messages(&lamb, 0), vectors = count_messages(&lamb, 1);
        int others = count_messages(&adam, 1);
        CHECK(numbers <= count_messages(&adam, 0) + 1, "%d messages of a number", numbers);
        CHECK(vectors > others && vectors <= others + 4, "%d messages of vectors, AdamW has %d",
              vectors, others);
    }
    run_close(&lamb);
    run_close(&adam);
    check_end();
}

static void test_low(DType precision, const Layout *layout, int zero) {
    char name[160], full[176];
    Run one, wide, run;
    bool ready = start(&wide, &GPT, &ALONE) && run_steps(&wide, STEPS, LEARNING_RATE);
    run_precision = precision;
    ready = start(&one, &GPT, &ALONE) && run_steps(&one, STEPS, LEARNING_RATE) && ready;
    run_zero = zero;
    layout_name(dtype_name(precision), layout, name, sizeof(name));
    snprintf(full, sizeof(full), "LAMB in %s", name);
    check_begin(full);
    bool done = start(&run, &GPT, layout) && run_steps(&run, STEPS, LEARNING_RATE) && ready;
    run_zero = 0;
    run_precision = DTYPE_F32;
    CHECK(done, "%s%s", diag_text(one.diag), diag_text(run.diag));
    for (int step = 0; done && step < STEPS; step++) {
        double error = fabs(run.losses[step] - one.losses[step]) / one.losses[step];
        CHECK(error < 2e-3, "loss %g in step %d, on one rank %g", run.losses[step], step + 1,
              one.losses[step]);
        error = fabs(run.losses[step] - wide.losses[step]) / wide.losses[step];
        CHECK(error < 5e-3, "loss %g in step %d, in f32 %g", run.losses[step], step + 1,
              wide.losses[step]);
    }
    run_close(&run);
    run_close(&one);
    run_close(&wide);
    check_end();
}

/* Moments are Adam's, so either goes on with the other's checkpoint, under another layout. */
static void test_checkpoint(void) {
    static const Layout TO = {1, 2, 2, 2, 1, "1f1b", false, NULL, 0};
    const TrainingPlace place = {.step = 3, .samples = 3 * GLOBAL_BATCH, .data = "a text"};
    TrainingPlace found = {0};
    char path[] = "/tmp/perilune-lamb-XXXXXX";
    int file = mkstemp(path);
    Run whole, first, second, adam;
    Variant other = GPT;
    other.settings[0].value = "adamw";
    check_begin("a checkpoint goes on under another layout, and with AdamW");
    bool fine = start(&whole, &GPT, &ALONE) && run_steps(&whole, 6, LEARNING_RATE);
    run_zero = 2;
    Layout divided = TWO;
    divided.d = 2;
    divided.micro_batch = 2;
    fine = start(&first, &GPT, &divided) && run_steps(&first, 3, LEARNING_RATE) && fine;
    run_zero = 1;
    fine = fine && engine_save_state(first.engine, path, &place, first.diag);
    fine = start(&second, &GPT, &TO) && fine;
    run_zero = 0;
    fine = start(&adam, &other, &TO) && fine;
    fine = fine && engine_load_state(second.engine, path, &found, second.diag) &&
           engine_load_state(adam.engine, path, &found, adam.diag) &&
           run_steps_from(&second, 3, 3, LEARNING_RATE);
    CHECK(fine, "%s%s%s%s", diag_text(whole.diag), diag_text(first.diag), diag_text(second.diag),
          diag_text(adam.diag));
    if (fine) compare_weights(&second, &whole);
    run_close(&whole);
    run_close(&first);
    run_close(&second);
    run_close(&adam);
    if (file >= 0) close(file);
    unlink(path);
    check_end();
}

/* --- plans that are broken on purpose --- */

static Node *find_node(Plan *plan, OpKind op, int number) {
    Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->phase == PHASE_UPDATE && node->op == op && number-- == 0) return node;
    }
    BUG("no such node");
}

static void swap_inputs(Node *a, Node *b, int operand) {
    Value held = a->inputs[operand];
    a->inputs[operand] = b->inputs[operand];
    b->inputs[operand] = held;
}

/* wk and wv of a block are numbers 3 and 4: wte, wpe, wq come before. */
static void others_norm(Plan *plan) {
    swap_inputs(find_node(plan, OP_LAMB, 3), find_node(plan, OP_LAMB, 4), 7);
}
static void others_gradient(Plan *plan) {
    swap_inputs(find_node(plan, OP_LAMB_MOMENTS, 3), find_node(plan, OP_LAMB_MOMENTS, 4), 5);
}
static void others_moment(Plan *plan) {
    Node *state = find_node(plan, OP_LAMB_MOMENTS, 3)->inputs[2].node;
    for (int i = 0; i < state->n_attrs; i++) {
        if (state->attrs[i].key == ATTR_of) state->attrs[i].s = "attn.wo";
    }
}
static void norms_mixed_up(Plan *plan) {
    Node *lamb = find_node(plan, OP_LAMB, 3);
    Value held = lamb->inputs[6];
    lamb->inputs[6] = lamb->inputs[7];
    lamb->inputs[7] = held;
}
static void norm_of_one_rank(Plan *plan) {
    find_node(plan, OP_LAMB_MOMENTS, 3)->shardings[3].partial = 0;
}
static void stacked_as_another(Plan *plan) {
    Node *stack = find_node(plan, OP_STACK, 0);
    Value held = stack->inputs[0];
    stack->inputs[0] = stack->inputs[1];
    stack->inputs[1] = held;
}
static void part_of_another(Plan *plan) {
    Node *narrow = find_node(plan, OP_NARROW, 0);
    for (int i = 0; i < narrow->n_attrs; i++) {
        if (narrow->attrs[i].key == ATTR_first) narrow->attrs[i].i++;
    }
}
static void another_beta(Plan *plan) {
    Node *lamb = find_node(plan, OP_LAMB, 3);
    for (int i = 0; i < lamb->n_attrs; i++) {
        if (lamb->attrs[i].key == ATTR_beta2) lamb->attrs[i].f = 0.9;
    }
}
static void without_factor(Plan *plan) {
    Node *moments = find_node(plan, OP_LAMB_MOMENTS, 3);
    moments->inputs[3] = find_node(plan, OP_LAMB, 3)->inputs[4];
}

typedef struct Damage {
    const char *name;
    void (*damage)(Plan *plan);
    const char *message;
    bool whole; /* of a plan without ZeRO */
} Damage;

static const char NOT_ITS[] = "its moments and norms are not those of";
static const Damage DAMAGES[] = {
    {"another weight's norm", others_norm, NOT_ITS, false},
    {"another weight's gradient", others_gradient, "which is not its gradient", true},
    {"another weight's moment", others_moment, "which is no state of it", true},
    {"norms mixed up", norms_mixed_up, NOT_ITS, false},
    {"the norm of one rank's shard", norm_of_one_rank, "its norms are not over the ranks", false},
    {"norms in another order", stacked_as_another, NOT_ITS, false},
    {"a part that is another's", part_of_another, NOT_ITS, false},
    {"a step of another definition", another_beta, NOT_ITS, false},
    {"gradients without the factor", without_factor, "and the step by", false},
};

static void test_damage(const Damage *damage) {
    static const Layout BOTH = {2, 2, 1, 2, 1, "1f1b", false, NULL, 0};
    int n = 0;
    Run run;
    check_begin(damage->name);
    while (GPT.settings[n].key) n++;
    run_zero = !damage->whole;
    bool ready = run_plan(&run, GPT.path, GPT.settings, n, &BOTH, GLOBAL_BATCH, false);
    run_zero = 0;
    CHECK(ready, "%s", diag_text(run.diag));
    if (ready) {
        damage->damage(run.plan);
        CHECK(!verify_plan(run.plan, run.diag), "not found");
        CHECK(strstr(diag_text(run.diag), damage->message), "%s", diag_text(run.diag));
    }
    run_close(&run);
    check_end();
}

int main(void) {
    static const Layout ZERO = {1, 4, 1, 2, 1, "1f1b", false, NULL, 0};
    test_choice();
    test_messages();
    test_layouts();
    test_low(DTYPE_BF16, &ZERO, ZERO_PARAMETERS);
    test_low(DTYPE_F16, &TWO, ZERO_NOTHING);
    test_checkpoint();
    for (size_t i = 0; i < sizeof(DAMAGES) / sizeof(DAMAGES[0]); i++) test_damage(&DAMAGES[i]);
    compare_print_worst();
    return check_report();
}
