/* Groups of messages (ir/message_group.h). Would catch: a group of messages that cannot go together
 * and is not refused, by name; operands and results of a group in the same memory, though its
 * messages run at once; workspace for one of them only; a block's messages that were not joined, or
 * were although the plan is to have them apart; times and counts that do not know of groups. */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include "ir/message_group.h"
#include "planner/cost/cost.h"

static const ModelSetting TINY[] = {{"layers", "3"}, {"model", "32"}, {"heads", "4"},
                                    {"seq", "16"},   {"vocab", "64"}, {"ffn", "96"}};
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
            if (end == n + 1) continue;
            CHECK(end - n == 9, "%%%d: a group of %d", n, end - n);
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
        /* of f32: three of [32, 96], two of [32, 32], two of half as many, two gains, which are
         * less than what each begins at a multiple of */
        CHECK(one.bytes[WORKSPACE_DATA] == 32 * 96 * 4, "%lld",
              (long long)one.bytes[WORKSPACE_DATA]);
        CHECK(all.bytes[WORKSPACE_DATA] == (3 * 32 * 96 + 3 * 32 * 32) * 4 + 2 * ALIGN_BYTES,
              "%lld", (long long)all.bytes[WORKSPACE_DATA]);
    }
    run_close(&apart);
    run_close(&joined);
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
        CHECK(fabs(us[n] - 2 * 3 * 100) < 1, "%%%d: %g us", n, us[n]);
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
    check_prices();
    return check_report();
}
