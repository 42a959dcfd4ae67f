/* Groups of messages (ir/message_group.h). Would catch: a group of messages that cannot go together
 * and is not refused, by name; operands and results of a group in the same memory, though its
 * messages run at once; workspace for one of them only, or for what needs none; a block's messages
 * that were not joined, or were although the plan is to have them apart; messages of the update
 * that were not, were beyond what a group may have, or have others wait; times and counts that do
 * not know of groups; tensors that are sent one by one though they lie one behind the other. */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include "ir/message_group.h"
#include "planner/cost/cost.h"
#include "planner/plan/update_groups.h"

static const ModelSetting TINY[] = {{"layers", "3"}, {"model", "32"}, {"heads", "4"},
                                    {"seq", "16"},   {"vocab", "64"}, {"ffn", "98"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]) };
static const Layout DATA = {1, 4, 1, 2, 1, "1f1b", false, NULL, 0};

/* Weights of which 0 and 1 are divided over d, 2 and 3 over t. */
#define WEIGHT(id, axes)                                                                           \
    "  %" #id " = param() {name=\"w" #id "\", init=\"zeros\", decay=0} : f32[" axes "] @b0\n"
#define GATHERED "%4 = all_gather(%0) {axis=a, mesh=\"d\"} : f32[a=4, b=4/t] @b0\n  "

static void check_refused(void) {
    static const struct {
        const char *nodes, *why;
    } CASES[] = {
        {GATHERED "%5 = all_gather(%1) {axis=a, mesh=\"d\", joined=1} : f32[a=4, b=4] @b0", NULL},
        {"%4 = all_gather(%0) {axis=a, mesh=\"d\", joined=1} : f32[a=4, b=4/t] @b0",
         "is joined to the node before it, which is no message of its kind"},
        {GATHERED "%5 = reduce_scatter(%3) {axis=a, mesh=\"d\", joined=1} : f32[a=4/d, b=4] @b0",
         "is joined to the node before it, which is no message of its kind"},
        {GATHERED "%5 = all_gather(%2) {axis=a, mesh=\"t\", joined=1} : f32[a=4, b=4] @b0",
         "is joined to a message of another communicator"},
        {GATHERED "%5 = all_gather(%1) {axis=a, mesh=\"d\", joined=1} : f32[a=4, b=4] @b1",
         "is joined to a message of another task or block"},
        {GATHERED "%5 = all_gather(%1) {axis=a, mesh=\"d\", joined=2} : f32[a=4, b=4] @b0",
         "'joined' is 1 or not there"},
        {"%4 = all_reduce(%3) {mesh=\"d\"} : f32[a=4, b=4] @b0\n"
         "  %5 = all_reduce(%3) {mesh=\"d\", joined=1} : f32[a=4, b=4] @b0",
         "is joined to another message outside the update"},
        {"%4 = all_gather(%1) {axis=a, mesh=\"d\"} : f32[a=4, b=4] @b0\n"
         "  %5 = all_gather(%4) {axis=b, mesh=\"d\", joined=1} : f32[a=4, b=4] @b0",
         "reads what its own group of messages brings"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        int line = 1;
        const char *text =
            arena_printf(arena, "graph \"g\" mesh(t=2, d=2, p=1) {\nforward:\n%s%s%s%s  %s\n}\n",
                         WEIGHT(0, "a=4/d, b=4/t"), WEIGHT(1, "a=4/d, b=4"),
                         WEIGHT(2, "a=4/t, b=4"), WEIGHT(3, "a=4, b=4"), CASES[i].nodes);
        check_begin(arena_printf(arena, "a group: %s", CASES[i].why ? CASES[i].why : "sound"));
        const Graph *graph = graph_parse(arena, "case", &text, &line, diag);
        CHECK(graph, "%s", diag_text(diag));
        bool sound = graph && graph_verify(graph, diag);
        CHECK(sound == !CASES[i].why, "%s", diag_text(diag));
        if (CASES[i].why) CHECK(strstr(diag_text(diag), CASES[i].why), "%s", diag_text(diag));
        check_end();
        arena_destroy(arena);
        diag_destroy(diag);
    }
}

static bool plan(Run *run, bool joins) {
    run_zero = ZERO_PARAMETERS;
    run_join_messages = joins;
    bool done =
        run_plan_for(run, "models/llama.lua", TINY, N_TINY, &DATA, 8, true, true, DTYPE_BF16);
    run_zero = 0;
    run_join_messages = true;
    return done;
}

/* Of each block: its gathers in forward and backward, and its reductions. */
static void check_joined(void) {
    for (int joins = 0; joins < 2; joins++) {
        Run run;
        check_begin(joins ? "a block has three messages" : "or one for each weight");
        bool done = plan(&run, joins);
        CHECK(done, "%s", diag_text(run.diag));
        const Graph *graph = done ? run.plan->programs[0].graph : NULL;
        int n_groups = 0;
        for (int n = 0, end; done && n < graph->n_nodes; n = end) {
            end = message_group_end(graph, n);
            if (end == n + 1 || graph->nodes[n]->phase == PHASE_UPDATE) continue;
            CHECK(end - n == 7, "%%%d: a group of %d", n, end - n); /* but for gains */
            n_groups++;
        }
        CHECK(n_groups == (joins ? 3 * 3 : 0), "%d groups", n_groups);
        run_close(&run);
        check_end();
    }
}

/* The second reduction's result where the first one's operand lies. */
static void check_damaged(void) {
    Run run;
    check_begin("a group's results do not lie on its operands");
    bool done = plan(&run, true), found = false;
    CHECK(done, "%s", diag_text(run.diag));
    const Program *program = done ? &run.plan->programs[0] : NULL;
    for (int n = 1; done && n < program->graph->n_nodes && !found; n++) {
        const Node *node = program->graph->nodes[n], *before = program->graph->nodes[n - 1];
        found = node->op == OP_REDUCE_SCATTER && node_is_joined(node);
        if (!found) continue;
        Buffer *from = &program->buffers[before->inputs[0].node->id * MAX_OUTPUTS];
        Buffer *to = &program->buffers[n * MAX_OUTPUTS];
        CHECK(from->region == to->region, "regions %d and %d", from->region, to->region);
        to->offset_bytes = from->offset_bytes;
        CHECK(!verify_plan(run.plan, run.diag), "it was taken for sound");
        CHECK(strstr(diag_text(run.diag), "alive together"), "%s", diag_text(run.diag));
    }
    CHECK(!done || found, "no reduction is joined");
    run_close(&run);
    check_end();
}

static void check_workspace(void) {
    Run apart, joined;
    check_begin("workspace for all messages of a group at once");
    bool done = plan(&apart, false);
    CHECK(done, "%s", diag_text(apart.diag));
    done = plan(&joined, true) && done;
    CHECK(done, "%s", diag_text(joined.diag));
    if (done) {
        Workspace one = program_workspace(apart.plan->programs[0].graph, true);
        Workspace all = program_workspace(joined.plan->programs[0].graph, true);
        /* In f32; what four ranks divide by its first axis, into equal parts, needs none: all but
         * [98, 32] and [32, 32]. */
        CHECK(one.bytes[WORKSPACE_DATA] == 98 * 32 * 4, "%lld",
              (long long)one.bytes[WORKSPACE_DATA]);
        CHECK(all.bytes[WORKSPACE_DATA] == (98 + 32) * 32 * 4, "%lld",
              (long long)all.bytes[WORKSPACE_DATA]);
    }
    run_close(&apart);
    run_close(&joined);
    check_end();
}

/* --- in the update --- */

static bool plan_update_in(Run *run, const char *model, const ModelSetting *settings,
                           int n_settings, int zero, bool cuda, DType precision) {
    run_zero = zero;
    bool done = run_plan_for(run, model, settings, n_settings, &DATA, 8, true, cuda, precision);
    run_zero = 0;
    CHECK(done, "%s", diag_text(run->diag));
    return done;
}

static bool plan_update(Run *run, const char *model, const ModelSetting *settings, int n_settings,
                        int zero, bool cuda) {
    return plan_update_in(run, model, settings, n_settings, zero, cuda, DTYPE_BF16);
}

static bool is_gradient_sum(const Node *node) {
    bool sum = node->op == OP_ALL_REDUCE || node->op == OP_REDUCE_SCATTER;
    return node->phase == PHASE_UPDATE && sum && node->inputs[0].node->phase != PHASE_UPDATE;
}

/* Units and messages of one kind: sums of gradients, or weights that come back. */
static void count_units(const Graph *graph, OpKind op, int *out_units, int *out_messages) {
    *out_units = *out_messages = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool here = node->op == op && node->phase == PHASE_UPDATE &&
                    (op == OP_ALL_GATHER || is_gradient_sum(node));
        *out_messages += here;
        *out_units += here && !node_is_joined(node);
    }
}

/* All of a small model's are one, or of 64 each. On CPUs each has its own. There the 37 weights
 * with copies are gathered by the update, which on GPUs the next step does (test_gather_once.c).
 * Gains and positions, which have none, are divided in f32 alone. */
static void check_update(void) {
    static const struct {
        int zero;
        DType precision;
        int n[3]; /* messages that are all_reduce, reduce_scatter, all_gather on CPUs */
        bool early;
    } CASES[] = {{0, DTYPE_BF16, {52, 0, 0}, false}, {1, DTYPE_BF16, {15, 37, 37}, true},
                 {2, DTYPE_BF16, {15, 0, 37}, true}, {3, DTYPE_BF16, {15, 0, 0}, false},
                 {1, DTYPE_F32, {0, 52, 52}, false}, {2, DTYPE_F32, {0, 0, 52}, false}};
    static const OpKind OF[] = {OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER};
    static const ModelSetting GPT[] = {{"layers", "3"}, {"model", "32"}, {"heads", "4"},
                                       {"seq", "16"},   {"vocab", "64"}, {"ffn", "98"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (int cuda = 0; cuda < 2; cuda++) {
            Run run;
            check_begin(cuda ? "messages of the update are one of each kind"
                             : "and on CPUs as many as there are tensors");
            bool done = plan_update_in(&run, "models/gpt.lua", GPT, 6, CASES[i].zero, cuda,
                                       CASES[i].precision);
            for (int k = 0, n_units, n; k < 3 && done; k++) {
                count_units(run.plan->programs[0].graph, OF[k], &n_units, &n);
                int most = CASES[i].n[k];
                if (OF[k] == OP_ALL_GATHER && CASES[i].early && cuda) most = 0;
                CHECK(n == most, "ZeRO-%d: %d %s", CASES[i].zero, n, OPS[OF[k]].name);
                int expected = cuda ? (most > 0) : most;
                CHECK(n_units == expected, "ZeRO-%d: %d units of %s", CASES[i].zero, n_units,
                      OPS[OF[k]].name);
            }
            run_close(&run);
            check_end();
        }
    }
}

static int64_t whole_bytes(const Graph *graph, const Node *node) {
    Value whole = node->op == OP_ALL_GATHER ? node_value((Node *)node, 0) : node->inputs[0];
    return type_local_bytes(value_type(whole), value_sharding(whole), &graph->mesh);
}

/* As many bytes as four ranks have at once, at most, but for a tensor that is larger; the next unit
 * of the kind would not have had room. Small ones on both sides of a large one go together. */
static void check_sizes(void) {
    static const ModelSetting WIDE[] = {{"layers", "6"}, {"model", "512"}, {"heads", "4"},
                                        {"seq", "16"},   {"vocab", "512"}, {"ffn", "9216"}};
    const int64_t most = update_group_bytes(4);
    for (int zero = 0; zero < 2; zero++) {
        Run run;
        check_begin("units are full, and no larger than they may be");
        bool done = plan_update(&run, "models/gpt.lua", WIDE, 6, zero, true);
        const Graph *graph = done ? run.plan->programs[0].graph : NULL;
        int n_large = 0, n_full = 0, end;
        int64_t before[N_OPS] = {0};
        for (int n = 0; done && n < graph->n_nodes; n = end) {
            const Node *node = graph->nodes[n];
            int64_t bytes = 0;
            end = message_group_end(graph, n);
            if (!is_gradient_sum(node)) continue;
            for (int k = n; k < end; k++) bytes += whole_bytes(graph, graph->nodes[k]);
            n_large += bytes > most;
            CHECK(bytes <= most || end == n + 1, "%%%d: %lld bytes", n, (long long)bytes);
            if (bytes > most) continue;
            int64_t sum = before[node->op] + whole_bytes(graph, node);
            CHECK(before[node->op] == 0 || sum > most, "%%%d: had room before", n);
            n_full += before[node->op] > 0;
            before[node->op] = bytes;
        }
        CHECK(!done || (n_large == 12 && n_full > 0), "%d large ones, %d full ones", n_large,
              n_full);
        run_close(&run);
        check_end();
    }
}

/* Norms of LAMB's and Muon's tensors: all of these would have to be kept until the last is there.
 */
static void check_norms_apart(void) {
    static const char *const OPTIMIZERS[] = {"lamb", "muon"};
    for (int o = 0; o < 2; o++) {
        Run run;
        ModelSetting settings[N_TINY + 1];
        memcpy(settings, TINY, sizeof(TINY));
        settings[N_TINY] = (ModelSetting){"optimizer", OPTIMIZERS[o]};
        check_begin(o ? "what Muon is still to read does not wait" : "nor what LAMB is");
        bool done = plan_update(&run, "models/llama.lua", settings, N_TINY + 1, 1, true);
        const Graph *graph = done ? run.plan->programs[0].graph : NULL;
        int n_norms = 0;
        for (int n = 0; done && n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            bool norm =
                node->op == OP_ALL_REDUCE && node->phase == PHASE_UPDATE && !is_gradient_sum(node);
            n_norms += norm;
            CHECK(!norm || !node_is_joined(node), "%%%d is joined", n);
        }
        CHECK(!done || n_norms >= 2, "%d norms", n_norms);
        run_close(&run);
        check_end();
    }
}

/* A sum takes the place of its own operand, and of no other's. */
static void check_in_place(void) {
    Run run;
    check_begin("sums of a group lie on their gradients");
    bool done = plan_update(&run, "models/llama.lua", TINY, N_TINY, 0, true);
    Program *program = done ? &run.plan->programs[0] : NULL;
    int last = -1, n_sums = 0;
    for (int n = 0; done && n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        if (!is_gradient_sum(node)) continue;
        Value from = node->inputs[0];
        const Buffer *in = &program->buffers[from.node->id * MAX_OUTPUTS + from.output];
        const Buffer *out = &program->buffers[n * MAX_OUTPUTS];
        CHECK(in->region == out->region && in->offset_bytes == out->offset_bytes,
              "%%%d needs memory of its own", n);
        n_sums++;
        last = node_is_joined(node) ? n : last;
    }
    CHECK(!done || (n_sums > 2 && last > 0), "%d sums", n_sums);
    if (last > 0) { /* on the one before it, which is sent at the same time */
        const Node *before = program->graph->nodes[last - 1];
        Value from = before->inputs[0];
        program->buffers[last * MAX_OUTPUTS].offset_bytes =
            program->buffers[from.node->id * MAX_OUTPUTS + from.output].offset_bytes;
        CHECK(!verify_plan(run.plan, run.diag), "it was taken for sound");
    }
    run_close(&run);
    check_end();
}

/* Two messages of a group read the same; one of them may not be written over it. */
static void check_read_twice(void) {
    Run run;
    check_begin("what two of a group read is not overwritten by either");
    bool done = plan_update(&run, "models/llama.lua", TINY, N_TINY, 0, true);
    Program *program = done ? &run.plan->programs[0] : NULL;
    bool found = false;
    for (int n = 1; done && n < program->graph->n_nodes && !found; n++) {
        Node *node = program->graph->nodes[n], *before = program->graph->nodes[n - 1];
        bool alike = node_is_joined(node) && is_gradient_sum(node) &&
                     type_equal(&node->types[0], &before->types[0]);
        if (!alike) continue;
        found = true;
        before->inputs[0] = node->inputs[0];
        CHECK(!verify_plan(run.plan, run.diag), "it was taken for sound");
        CHECK(strstr(diag_text(run.diag), "overlap") || strstr(diag_text(run.diag), "overwritten"),
              "%s", diag_text(run.diag));
    }
    CHECK(!done || found, "no two sums of a shape");
    run_close(&run);
    check_end();
}

/* With latencies alone. */
static void check_prices(void) {
    Run run;
    check_begin("a group has two latencies, priced with its first message");
    bool done = plan(&run, true);
    CHECK(done, "%s", diag_text(run.diag));
    const Device device = {.name = "slow to start",
                           .flops_per_second = 1e12,
                           .memory_bytes_per_second = 1e12,
                           .link_latency_us = 100,
                           .link_bytes_per_second = 1e18};
    const Graph *graph = done ? run.plan->programs[0].graph : NULL;
    const double *us = done ? cost_nodes(run.plan, 0, &device, run.arena) : NULL;
    for (int n = 0, end; done && n < graph->n_nodes; n = end) {
        end = message_group_end(graph, n);
        if (end == n + 1) continue;
        int n_passes = graph->nodes[n]->op == OP_ALL_REDUCE ? 2 : 1;
        CHECK(fabs(us[n] - 2 * n_passes * 3 * 100) < 1, "%%%d: %g us", n, us[n]);
        for (int k = n + 1; k < end; k++) CHECK(us[k] == 0, "%%%d: %g us", k, us[k]);
    }
    run_close(&run);
    check_end();
}

int main(void) {
    check_refused();
    check_joined();
    check_damaged();
    check_workspace();
    check_update();
    check_sizes();
    check_norms_apart();
    check_in_place();
    check_read_twice();
    check_prices();
    return check_report();
}
