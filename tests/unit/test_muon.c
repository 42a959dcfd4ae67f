/* Muon in whole models: which parameters it takes, that no layout changes what it does, that a
 * checkpoint carries it from one layout to another, and that plans whose steps are made of the
 * wrong things are refused.
 *
 * Would catch: a table, gain, bias or head that is orthogonalised; a Gram matrix that is not summed
 * over the ranks which divide it; rows and columns that hang on the mesh; a shared weight whose
 * stages come apart; a state that is left out of a checkpoint; with ZeRO a matrix that is another's
 * in a stack, products that all ranks repeat, states that are whole.
 */
#include "planner/verify/verify.h"
#include "runtime/engine_internal.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { STEPS = 5, GLOBAL_BATCH = 16 };
static const double LEARNING_RATE = 2e-3;

#define SIZES                                                                                      \
    {"optimizer", "muon"}, {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"},             \
        {"seq", "16"}, {"vocab", "61"}, {                                                          \
        "layers", "4"                                                                              \
    }

typedef struct Variant {
    const char *name, *path;
    ModelSetting settings[12];
} Variant;

static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
static const Layout TWO = {2, 1, 1, 4, 1, "1f1b", false, NULL, 0};
static const Layout FOUR = {1, 4, 1, 4, 1, "1f1b", false, NULL, 0};

static bool start(Run *run, const Variant *variant, const Layout *layout) {
    int n = 0;
    while (variant->settings[n].key) n++;
    return run_plan(run, variant->path, variant->settings, n, layout, GLOBAL_BATCH, true) &&
           run_start(run);
}

/* Weights that blocks share, that penalties reach, or that only some blocks have. */
static const Variant UNUSUAL[] = {
    {"shared weights", "tests/models/shared.lua", {{"optimizer", "muon"}, {"layers", "5"}}},
    {"penalties", "tests/models/penalties.lua", {{"optimizer", "muon"}, {"layers", "5"}}},
    {"parts of axes", "tests/models/parts.lua", {{"optimizer", "muon"}, {"layers", "4"}}},
    {"odd matrices", "tests/models/muon.lua", {{"optimizer", "muon"}, {"layers", "4"}}},
    {"parallel branches", "tests/models/parallel.lua", {{"optimizer", "muon"}, {"layers", "4"}}},
};

static void test_layouts(void) {
    static const LayoutCase CASES[] = {
        {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 0},
        {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 1},
        {{2, 1, 2, 2, 2, "interleaved", false, NULL, 0}, RECOMPUTE_NONE, 0},
        {{2, 2, 2, 2, 1, "gpipe", true, NULL, 0}, RECOMPUTE_SELECTIVE, 1},
        {{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 2},
        {{1, 2, 2, 2, 2, "interleaved", false, NULL, 0}, RECOMPUTE_NONE, 3},
    };
    for (size_t v = 0; v < sizeof(UNUSUAL) / sizeof(UNUSUAL[0]); v++) {
        Run one;
        bool ready =
            start(&one, &UNUSUAL[v], &ALONE) && run_steps_keeping(&one, STEPS, LEARNING_RATE);
        for (size_t c = v % LAYOUT_STEP; c < sizeof(CASES) / sizeof(CASES[0]); c += LAYOUT_STEP) {
            char name[160];
            Run run;
            run_recompute = CASES[c].recompute;
            run_zero = CASES[c].zero;
            check_begin(layout_name(UNUSUAL[v].name, &CASES[c].layout, name, sizeof(name)));
            bool done = ready && start(&run, &UNUSUAL[v], &CASES[c].layout) &&
                        run_steps_keeping(&run, STEPS, LEARNING_RATE);
            run_recompute = RECOMPUTE_NONE;
            run_zero = 0;
            CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
            if (done) compare_runs(&run, &one, STEPS);
            if (ready) run_close(&run);
            check_end();
        }
        run_close(&one);
    }
}

/* With c=2, against one rank. */
static void check_divided(const Variant *variant, const Layout *layout) {
    Run one;
    bool ready = start(&one, variant, &ALONE) && run_steps_keeping(&one, STEPS, LEARNING_RATE);
    for (run_zero = 1; run_zero < N_ZERO_STAGES; run_zero++) {
        char name[80];
        Run run;
        snprintf(name, sizeof(name), "Muon, %s: t=%d, c=2, d=%d, p=%d, zero %d", variant->name,
                 layout->t, layout->d, layout->p, run_zero);
        check_begin(name);
        run_context = 2;
        bool done =
            ready && start(&run, variant, layout) && run_steps_keeping(&run, STEPS, LEARNING_RATE);
        run_context = 1;
        CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
        if (done) compare_runs(&run, &one, STEPS);
        if (ready) run_close(&run);
        check_end();
    }
    run_zero = 0;
    run_close(&one);
}

/* Whoever shares weights divides stacks: ranks of c, too, and all together. Five blocks leave some
 * without a matrix. */
static void test_context(void) {
    static const Variant gpt = {"gpt", "models/gpt.lua", {SIZES, {"layers", "5"}, {"ffn", "64"}}};
    static const Variant pooled = {"pooled", "tests/models/pooled.lua", {{"layers", "4"}}};
    static const Layout LAYOUT = {2, 2, 1, 4, 1, "1f1b", true, NULL, 0};
    check_divided(&gpt, &LAYOUT);
    static const Layout CHUNKS = {1, 2, 2, 2, 2, "zb-v", false, NULL, 0};
    check_divided(&pooled, &CHUNKS);
    /* Two ranks could divide one matrix of a pair, but four the other not: neither is. */
    static const Variant uneven = {
        "pooled, uneven", "tests/models/pooled.lua", {{"model", "6"}, {"ffn", "9"}}};
    static const Layout DATA = {1, 2, 1, 4, 1, "1f1b", false, NULL, 0};
    check_divided(&uneven, &DATA);
}

/* A stack of matrices of both chunks of a stage, which t divides on its way back to each. */
static void test_chunks(void) {
    static const Variant pooled = {
        "pooled", "tests/models/pooled.lua", {{"layers", "4"}, {"model", "64"}}};
    static const Layout CHUNKS = {2, 2, 2, 2, 2, "interleaved", true, NULL, 0};
    Run run, one;
    check_begin("Muon, matrices of two chunks in one stack that t divides");
    bool ready = start(&one, &pooled, &ALONE) && run_steps_keeping(&one, STEPS, LEARNING_RATE);
    run_zero = 1;
    bool done =
        ready && start(&run, &pooled, &CHUNKS) && run_steps_keeping(&run, STEPS, LEARNING_RATE);
    run_zero = 0;
    CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
    if (done) compare_runs(&run, &one, STEPS);
    if (ready) run_close(&run);
    run_close(&one);
    check_end();
}

/* Of what the optimizer keeps a state `kind`/NAME, as one text. */
static const char *list_states(const Run *run, const char *kind) {
    LogicalList list = engine_list_leaves(run->engine, true);
    const char *names = "";
    size_t length = strlen(kind);
    for (int i = 0; i < list.count; i++) {
        const char *name = list.items[i].name;
        if (strncmp(name, kind, length) != 0) continue;
        names = arena_printf(run->arena, "%s%s%s", names, names[0] ? " " : "", name + length);
    }
    return names;
}

static void expect_states(const char *what, const Variant *variant, const char *muon,
                          const char *adam) {
    Run run;
    check_begin(what);
    bool ready = start(&run, variant, &TWO);
    CHECK(ready, "%s", diag_text(run.diag));
    if (ready) {
        const char *has = list_states(&run, "muon_m/");
        CHECK(strcmp(has, muon) == 0, "Muon has: %s", has);
        has = list_states(&run, "adam_m/");
        CHECK(strcmp(has, adam) == 0, "AdamW has: %s", has);
    }
    run_close(&run);
    check_end();
}

static void test_choice(void) {
    const Variant llama = {"", "models/llama.lua", {SIZES, {"kv_heads", "2"}, {"layers", "1"}}};
    const Variant other = {"", "tests/models/muon.lua", {{"optimizer", "muon"}}};
    expect_states("Muon takes matrices, but no tables, gains and heads", &llama,
                  "blocks.0.attn.wq blocks.0.attn.wk blocks.0.attn.wv blocks.0.attn.wo "
                  "blocks.0.mlp.wgate blocks.0.mlp.wup blocks.0.mlp.wdown",
                  "wte blocks.0.norm1.gain blocks.0.norm2.gain norm_f.gain head");
    expect_states("a layer can say otherwise", &other, "blocks.0.mlp.w1 mixed turned head",
                  "wte wpe blocks.0.attn.wq blocks.0.attn.wk blocks.0.attn.wv blocks.0.attn.wo "
                  "blocks.0.mlp.w2 experts");
}

/* Elements that a rank has of what the update's products make, and of the momenta. */
static void count_work(const Run *run, double *products, double *states) {
    const Graph *graph = run->plan->programs[0].graph;
    *products = *states = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        const Node *state = node->op == OP_MUON_MOMENTUM ? node->inputs[0].node : NULL;
        bool product = node->phase == PHASE_UPDATE && node->op == OP_MATMUL;
        Type local = type_local(&node->types[0], &node->shardings[0], &graph->mesh);
        if (product) *products += (double)type_elements(&local);
        if (!state) continue;
        local = type_local(&state->types[0], &state->shardings[0], &graph->mesh);
        *states += (double)type_elements(&local);
    }
}

/* Four blocks have four matrices of a kind, and eight where wk and wv are alike: d=4 divides both.
 */
static void test_divided(void) {
    static const Variant gpt = {"gpt", "models/gpt.lua", {SIZES, {"ffn", "64"}}};
    double products, states, all_products, all_states;
    Run whole, run;
    bool ready = start(&whole, &gpt, &FOUR);
    for (run_zero = 1; run_zero < N_ZERO_STAGES; run_zero++) {
        char name[80];
        snprintf(name, sizeof(name), "zero %d divides Muon's products and states", run_zero);
        check_begin(name);
        bool done = ready && start(&run, &gpt, &FOUR);
        CHECK(done, "%s%s", diag_text(whole.diag), ready ? diag_text(run.diag) : "");
        if (done) {
            count_work(&whole, &all_products, &all_states);
            count_work(&run, &products, &states);
            CHECK(products == all_products / 4, "%g of %g elements", products, all_products);
            CHECK(states == all_states / 4, "%g of %g elements", states, all_states);
        }
        if (ready) run_close(&run);
        check_end();
    }
    run_zero = 0;
    run_close(&whole);
}

/* No side of a matrix that d=4 divides: 30, 6 heads of 5, 66. */
static const Variant UNEVEN = {"gpt, sides of 30 and 66",
                               "models/gpt.lua",
                               {SIZES, {"model", "30"}, {"heads", "6"}, {"ffn", "66"}}};

/* What reads stacks of matrices is a message that leaves every rank whole ones, of its own alone;
 * `out_padded`: those that hold padding. */
static int count_gathered(const Run *run, int *out_padded) {
    const Graph *graph = run->plan->programs[0].graph;
    int gathered = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs && node->phase == PHASE_UPDATE; i++) {
            const Node *from = node->inputs[i].node;
            if (from->op != OP_STACK || from->types[0].rank < 2) continue;
            *out_padded += node_attr(from, ATTR_padded) != NULL;
            gathered += node->op != OP_ALL_TO_ALL;
        }
    }
    return gathered;
}

static void test_uneven(void) {
    static const LayoutCase CASES[] = {{{1, 4, 1, 4, 1, "1f1b", false, NULL, 0}, 0, 1},
                                       {{1, 4, 1, 4, 1, "1f1b", false, NULL, 0}, 0, 2},
                                       {{2, 4, 1, 2, 1, "1f1b", true, NULL, 0}, 0, 3},
                                       {{1, 4, 2, 2, 2, "interleaved", false, NULL, 0}, 0, 1}};
    Run one, run;
    bool ready = start(&one, &UNEVEN, &ALONE) && run_steps_keeping(&one, STEPS, LEARNING_RATE);
    for (size_t c = 0; c < sizeof(CASES) / sizeof(CASES[0]); c++) {
        char name[160], full[200];
        int n_padded = 0, n_gathered = 0;
        layout_name(UNEVEN.name, &CASES[c].layout, name, sizeof(name));
        run_zero = CASES[c].zero;
        snprintf(full, sizeof(full), "%s, zero %d", name, run_zero);
        check_begin(full);
        bool done = ready && start(&run, &UNEVEN, &CASES[c].layout) &&
                    run_steps_keeping(&run, STEPS, LEARNING_RATE);
        run_zero = 0;
        CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
        if (done) compare_runs(&run, &one, STEPS);
        if (done) n_gathered = count_gathered(&run, &n_padded);
        CHECK(n_padded > 0 && n_gathered == 0, "%d stacks are gathered, %d padded", n_gathered,
              n_padded);
        if (ready) run_close(&run);
        check_end();
    }
    run_close(&one);
}

/* What the optimizer computes is none of the model's work. */
static void test_flops(void) {
    static const Variant muon = {"gpt", "models/gpt.lua", {SIZES}};
    static const Variant adamw = {"gpt", "models/gpt.lua", {SIZES, {"optimizer", "adamw"}}};
    Run runs[2];
    check_begin("Muon's products are no FLOPs of the model");
    bool ready = start(&runs[0], &muon, &TWO);
    ready = start(&runs[1], &adamw, &TWO) && ready;
    CHECK(ready && runs[0].plan->model_flops == runs[1].plan->model_flops, "%s%s",
          diag_text(runs[0].diag), diag_text(runs[1].diag));
    run_close(&runs[0]);
    run_close(&runs[1]);
    check_end();
}

/* In 16 bits the steps of all layouts are those of one rank to what 8 bits of fraction leave. */
static void test_low(DType precision) {
    static const Variant gpt = {"gpt", "models/gpt.lua", {SIZES, {"ffn", "70"}}};
    static const Layout LAYOUTS[] = {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
                                     {4, 1, 1, 4, 1, "1f1b", false, NULL, 0},
                                     {1, 2, 2, 2, 1, "1f1b", false, NULL, 0},
                                     {2, 2, 1, 2, 1, "1f1b", false, NULL, 0}};
    Run one, wide;
    bool ready = start(&wide, &gpt, &ALONE) && run_steps(&wide, STEPS, LEARNING_RATE);
    run_precision = precision;
    ready = start(&one, &gpt, &ALONE) && run_steps(&one, STEPS, LEARNING_RATE) && ready;
    for (size_t l = 0; l < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); l += LAYOUT_STEP) {
        char name[160], full[176];
        Run run;
        run_zero = l == 3;
        layout_name(dtype_name(precision), &LAYOUTS[l], name, sizeof(name));
        snprintf(full, sizeof(full), "Muon in %s", name);
        check_begin(full);
        bool done =
            ready && start(&run, &gpt, &LAYOUTS[l]) && run_steps(&run, STEPS, LEARNING_RATE);
        run_zero = 0;
        CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
        for (int step = 0; done && step < STEPS; step++) {
            double error = fabs(run.losses[step] - one.losses[step]) / one.losses[step];
            CHECK(error < 2e-3, "loss %g in step %d, on one rank %g", run.losses[step], step + 1,
                  one.losses[step]);
            error = fabs(run.losses[step] - wide.losses[step]) / wide.losses[step];
            CHECK(error < 5e-3, "loss %g in step %d, in f32 %g", run.losses[step], step + 1,
                  wide.losses[step]);
        }
        if (ready) run_close(&run);
        check_end();
    }
    run_precision = DTYPE_F32;
    run_close(&one);
    run_close(&wide);
}

/* From a layout with, or without, ZeRO to one without, or with. */
static void test_checkpoint(const char *what, const Variant *variant, const Layout *from,
                            int zero_before, int zero_after) {
    static const Layout TO = {1, 4, 2, 2, 1, "1f1b", false, NULL, 0};
    const TrainingPlace place = {.step = 3, .samples = 3 * GLOBAL_BATCH, .data = "a text"};
    TrainingPlace found = {0};
    char path[] = "/tmp/perilune-muon-XXXXXX";
    int file = mkstemp(path);
    Run whole, first, second;
    check_begin(what);
    bool fine = start(&whole, variant, &ALONE) && run_steps(&whole, 6, LEARNING_RATE);
    run_zero = zero_before;
    fine = start(&first, variant, from) && run_steps(&first, 3, LEARNING_RATE) && fine;
    fine = fine && engine_save_state(first.engine, path, &place, first.diag);
    run_zero = zero_after;
    fine = start(&second, variant, &TO) && fine;
    run_zero = 0;
    fine = fine && engine_load_state(second.engine, path, &found, second.diag) &&
           run_steps_from(&second, 3, 3, LEARNING_RATE);
    CHECK(fine, "%s%s%s", diag_text(whole.diag), diag_text(first.diag), diag_text(second.diag));
    for (int step = 3; fine && step < 6; step++) {
        CHECK(fabs(second.losses[step] - whole.losses[step]) < 1e-5 * whole.losses[step],
              "loss %.9g in step %d, not %.9g", second.losses[step], step + 1, whole.losses[step]);
    }
    if (fine) compare_weights(&second, &whole);
    check_end();
    run_close(&whole);
    run_close(&first);
    run_close(&second);
    if (file >= 0) close(file);
    unlink(path);
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

static Value learning_rate(Plan *plan) {
    return find_node(plan, OP_MUON, 0)->inputs[3];
}

/* Of two weights of one shape: those of wk and wv. */
static void others_direction(Plan *plan) {
    Node *a = find_node(plan, OP_MUON, 1), *b = find_node(plan, OP_MUON, 2);
    Buffer *buffers = plan->programs[0].buffers, *x = &buffers[a->id * MAX_OUTPUTS];
    Buffer *y = &buffers[b->id * MAX_OUTPUTS], held = *x;
    Value param = a->inputs[0];
    if (!type_equal(value_type(param), value_type(b->inputs[0]))) BUG("not alike");
    a->inputs[0] = b->inputs[0];
    b->inputs[0] = param;
    *x = *y;
    *y = held;
}
static void others_gradient(Plan *plan) {
    Node *a = find_node(plan, OP_MUON_MOMENTUM, 1), *b = find_node(plan, OP_MUON_MOMENTUM, 2);
    Value held = a->inputs[2];
    a->inputs[2] = b->inputs[2];
    b->inputs[2] = held;
}
static void not_of_one_momentum(Plan *plan) {
    find_node(plan, OP_MUL, 0)->inputs[1] = learning_rate(plan);
}
static void gram_of_one_rank(Plan *plan) {
    find_node(plan, OP_MATMUL, 0)->shardings[0].partial = 0;
}
static void size_of_one_rank(Plan *plan) {
    Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_SUMSQ || node->inputs[0].node->op != OP_MUON_MOMENTUM) continue;
        node->shardings[0].partial = 0;
        return;
    }
}
static void no_factor(Plan *plan) {
    find_node(plan, OP_MUON_MOMENTUM, 0)->inputs[1] = learning_rate(plan);
}

/* Of a stack of four matrices (and a vector of their sizes before it). */
static Node *find_stack(Plan *plan) {
    for (int i = 0;; i++) {
        Node *stack = find_node(plan, OP_STACK, i);
        if (stack->types[0].rank > 1) return stack;
    }
}
static void stacked_twice(Plan *plan) {
    find_stack(plan)->inputs[1] = find_stack(plan)->inputs[0];
}
static void part_of_another(Plan *plan) {
    Node *muon = find_node(plan, OP_MUON, 1), *part = muon->inputs[1].node;
    for (int i = 0; i < part->n_attrs; i++) {
        if (part->attrs[i].key == ATTR_first) part->attrs[i].i = 2;
    }
}
static void shared_no_more(Plan *plan) {
    Node *gram = find_node(plan, OP_MATMUL, 0);
    for (int i = 0; i < gram->n_attrs; i++) {
        if (gram->attrs[i].key == ATTR_shared) gram->attrs[i] = gram->attrs[--gram->n_attrs];
    }
}
static void shards_for_matrices(Plan *plan) {
    Node *exchange = find_node(plan, OP_ALL_TO_ALL, 0);
    exchange->shardings[0] = *value_sharding(exchange->inputs[0]);
}
/* Of all stacks and of what is made of them, each in memory of its own: types agree. */
static void longer_padding(Plan *plan) {
    const Graph *graph = plan->programs[0].graph;
    const Node *stack = find_stack(plan);
    int64_t length = node_int(stack, ATTR_length, 0);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        Type *type = &node->types[0];
        for (int i = 0; i < node->n_attrs; i++) {
            Attr *attr = &node->attrs[i];
            if (attr->key == ATTR_length && attr->i == length) attr->i += 4;
        }
        for (int i = 0; i < type->rank && node->phase == PHASE_UPDATE; i++) {
            if (type->dims[i] == length) type->dims[i] += 4;
        }
        Buffer *buffer = &plan->programs[0].buffers[node->id * MAX_OUTPUTS];
        int64_t bytes = type_local_bytes(type, &node->shardings[0], &graph->mesh);
        if (node->phase != PHASE_UPDATE || buffer->bytes >= bytes) continue;
        buffer->bytes = bytes;
        buffer->offset_bytes = plan->programs[0].scratch_bytes;
        plan->programs[0].scratch_bytes += (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    plan->programs[0].scratch_bytes += 1 << 20; /* for what messages pack */
    plan->stages[0].arena_bytes += 4 << 20;
}
static void size_of_another(Plan *plan) {
    Node *part = find_node(plan, OP_NARROW, 0);
    for (int i = 0; i < part->n_attrs; i++) {
        if (part->attrs[i].key == ATTR_first) part->attrs[i].i++;
    }
}

typedef struct Damage {
    const char *name;
    void (*damage)(Plan *plan);
    const char *message;
    int divided; /* 1: of a plan with ZeRO, 2: whose stacks are padded */
} Damage;

static const Damage DAMAGES[] = {
    {"a step that is another weight's", others_direction, "which is not its gradient", 0},
    {"another weight's gradient", others_gradient, "which is not its gradient", 0},
    {"a step of more than the momentum", not_of_one_momentum, "is not made of one momentum alone",
     0},
    {"a Gram matrix of one rank's share", gram_of_one_rank,
     "its sum is not over the ranks that divide what it sums away", 0},
    {"the size of one rank's share", size_of_one_rank, "its sum is not over the ranks", 0},
    {"gradients that keep the loss scale", no_factor, "which does not fit their loss scale", 0},
    {"a matrix twice in a stack", stacked_twice, "which is not its gradient", 1},
    {"another matrix of a stack", part_of_another, "which is not its gradient", 1},
    {"matrices of a stack that meet", shared_no_more, "", 1},
    {"shards taken for matrices", shards_for_matrices,
     "all_to_all is divided over d, and must be whole here", 1},
    {"the size of another matrix", size_of_another, "is not made of one momentum alone", 1},
    {"padding of more than ranks have", longer_padding, "do not stay as long as they are", 2},
};

static void test_damage(const Damage *damage) {
    static const Variant gpt = {"gpt", "models/gpt.lua", {SIZES}};
    const Variant *variant = damage->divided == 2 ? &UNEVEN : &gpt;
    int n = 0;
    Run run;
    check_begin(damage->name);
    while (variant->settings[n].key) n++;
    run_loss_scaling = (LossScaling){1024, 100};
    run_zero = damage->divided > 0;
    const Layout *layout = damage->divided ? &FOUR : &TWO;
    bool ready = run_plan(&run, variant->path, variant->settings, n, layout, GLOBAL_BATCH, false);
    run_zero = 0;
    run_loss_scaling = (LossScaling){0};
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
    test_choice();
    test_flops();
    test_divided();
    test_uneven();
    test_layouts();
    test_context();
    test_chunks();
    test_low(DTYPE_BF16);
    test_low(DTYPE_F16);
    static const Variant gpt = {"gpt", "models/gpt.lua", {SIZES}};
    test_checkpoint("a checkpoint with Muon's state goes on under another layout", &gpt, &TWO, 0,
                    0);
    test_checkpoint("one of padded stacks goes on where none are", &UNEVEN, &FOUR, 1, 0);
    test_checkpoint("and one of none goes on where they are", &UNEVEN, &TWO, 0, 2);
    for (size_t i = 0; i < sizeof(DAMAGES) / sizeof(DAMAGES[0]); i++) test_damage(&DAMAGES[i]);
    compare_print_worst();
    return check_report();
}
