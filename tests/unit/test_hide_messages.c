/* What lies beside all-to-alls in a plan for GPUs, and what prices hide of them. Catches work that
 * stays behind a message's reader though it does not need it, memory that is written again while a
 * message still reads it, time that is hidden beside nothing or twice, other software's habits
 * priced as ours. */
#include "tests/unit/train_fixture.h"

#include "frontend/lua/cluster_read.h"
#include "planner/cost/message_clock.h"
#include "planner/cost/model_cost.h"
#include "tests/unit/check.h"
#include "tests/unit/model_request.h"

#include <math.h>

enum { BATCH = 8 };
static const ModelSetting SETTINGS[] = {{"experts", "4"}, {"layers", "4"}};
static const Layout LAYOUT = {1, 1, 1, 1, 1, "1f1b", false, NULL, 0};

static bool plan(Run *run, bool cuda, int parts) {
    run_experts = 2;
    run_expert_parts = parts;
    bool done = run_plan_for(run, "tests/models/experts.lua", SETTINGS, 2, &LAYOUT, BATCH, true,
                             cuda, DTYPE_F32);
    run_experts = run_expert_parts = 1;
    return done;
}

static bool reads(const Node *node, const Node *from) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i].node == from) return true;
    }
    return false;
}

static int find_reader(const Graph *graph, int message) {
    for (int n = message + 1; n < graph->n_nodes; n++) {
        if (reads(graph->nodes[n], graph->nodes[message])) return n;
    }
    return graph->n_nodes;
}

/* Products between the all-to-alls of a phase of the last block, which has a shared expert, and
 * their readers; *out_most: of the message that has most. */
static int count_beside(const Graph *graph, Phase phase, int *out_most) {
    int total = 0;
    *out_most = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_ALL_TO_ALL || node->phase != phase || node->block != 3) continue;
        int count = 0;
        for (int k = n + 1, end = find_reader(graph, n); k < end; k++) {
            count += graph->nodes[k]->op == OP_MATMUL;
        }
        total += count;
        if (count > *out_most) *out_most = count;
    }
    return total;
}

static bool overlaps(const Buffer *a, const Buffer *b) {
    return a->region == b->region && a->offset_bytes < b->offset_bytes + b->bytes &&
           b->offset_bytes < a->offset_bytes + a->bytes;
}

/* Nodes between a message and its reader write nothing of its operand's memory. */
static void check_memory(const Plan *of) {
    const Program *program = &of->programs[0];
    const Graph *graph = program->graph;
    int n_messages = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_ALL_TO_ALL) continue;
        Value sent = node->inputs[0];
        const Buffer *buffer = &program->buffers[sent.node->id * MAX_OUTPUTS + sent.output];
        n_messages++;
        for (int k = n + 1, end = find_reader(graph, n); k < end; k++) {
            for (int o = 0; o < graph->nodes[k]->n_outputs; o++) {
                const Buffer *made = &program->buffers[k * MAX_OUTPUTS + o];
                CHECK(!overlaps(made, buffer), "%%%d writes what the message %%%d sends", k, n);
            }
        }
    }
    CHECK(n_messages > 0, "no all-to-all");
}

static void test_order(void) {
    Run waits, run;
    int most, most_backward;
    check_begin("work lies beside all-to-alls, forward and backward, and what they send stays");
    bool made = plan(&run, true, 1);
    CHECK(made, "%s", diag_text(run.diag));
    if (made) {
        const Graph *graph = run.plan->programs[0].graph;
        int forward = count_beside(graph, PHASE_FORWARD, &most);
        int backward = count_beside(graph, PHASE_BACKWARD, &most_backward);
        CHECK(forward == 3, "%d products of the shared expert's three", forward);
        CHECK(backward >= 9 && most_backward >= 3,
              "%d products, %d at once: six of the shared expert's and gradients of three weights",
              backward, most_backward);
        check_memory(run.plan);
    }
    check_end();
    check_begin("on CPUs, where nothing overlaps, nothing moves");
    made = plan(&waits, false, 1);
    CHECK(made && count_beside(waits.plan->programs[0].graph, PHASE_FORWARD, &most) == 0,
          "products stand between a message and its reader");
    run_close(&waits);
    run_close(&run);
    check_end();
}

static void test_parts(void) {
    Run run;
    check_begin("of two runs of slots, one's products lie beside the other's messages");
    bool made = plan(&run, true, 2);
    CHECK(made, "%s", diag_text(run.diag));
    if (made) {
        const Graph *graph = run.plan->programs[0].graph;
        int n_messages = 0, most;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            n_messages +=
                node->op == OP_ALL_TO_ALL && node->phase == PHASE_FORWARD && node->block == 3;
        }
        CHECK(n_messages == 4, "%d all-to-alls forward; dispatch and combine, twice", n_messages);
        /* Each of the runs' three, and the shared expert's. */
        int beside = count_beside(graph, PHASE_FORWARD, &most);
        CHECK(beside >= 6, "%d products", beside);
        check_memory(run.plan);
    }
    run_close(&run);
    check_end();
}

/* Each rank's shares of an expert's weights leave it once, as search and prices count them. */
static void test_gradients(void) {
    const Layout layout = {1, 2, 1, 1, 1, "1f1b", false, NULL, 0};
    int counts[3] = {0};
    check_begin("gradients of weights travel over d once, however many runs make shares of them");
    for (int parts = 1; parts <= 4; parts *= 2) {
        Run run;
        run_experts = 2, run_expert_parts = parts, run_zero = ZERO_GRADIENTS;
        bool made = run_plan_for(&run, "tests/models/experts.lua", SETTINGS, 2, &layout, BATCH,
                                 true, true, DTYPE_F32);
        run_experts = run_expert_parts = 1, run_zero = 0;
        CHECK(made, "%s", diag_text(run.diag));
        for (int n = 0; made && n < run.plan->programs[0].graph->n_nodes; n++) {
            counts[parts / 2] += run.plan->programs[0].graph->nodes[n]->op == OP_REDUCE_SCATTER;
        }
        run_close(&run);
    }
    CHECK(counts[0] > 0 && counts[1] == counts[0] && counts[2] == counts[0],
          "%d, in two runs %d, in four %d", counts[0], counts[1], counts[2]);
    check_end();
}

static void swap_sources(Node *a, Node *b) {
    Attr held = *node_attr(a, ATTR_source);
    for (int i = 0; i < a->n_attrs; i++) {
        if (a->attrs[i].key == ATTR_source) a->attrs[i] = *node_attr(b, ATTR_source);
    }
    for (int i = 0; i < b->n_attrs; i++) {
        if (b->attrs[i].key == ATTR_source) b->attrs[i] = held;
    }
}

/* Four values of several kinds leave the first stage, some of them made behind a message over c. */
static void test_sends(void) {
    static const ModelSetting WIDE[] = {{"model", "512"}};
    static const Layout TWO_STAGES = {1, 2, 2, 1, 1, "gpipe", false, NULL, 0};
    Run run;
    check_begin("what goes to another stage leaves in the order in which that one takes it");
    run_context = 2, run_recompute = RECOMPUTE_FULL;
    bool done = run_plan_for(&run, "tests/models/parts.lua", WIDE, 1, &TWO_STAGES, 4, true, true,
                             DTYPE_BF16);
    run_context = 1, run_recompute = RECOMPUTE_NONE;
    CHECK(done, "%s", diag_text(run.diag));
    Graph *graph = done ? run.plan->programs[run.plan->stages[0].program].graph : NULL;
    Node *first = NULL;
    int n_sent = 0;
    for (int n = 0; done && n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_SEND) continue;
        CHECK(node_int(node, ATTR_source, -1) == n_sent, "%%%d is value %d", n, n_sent);
        if (n_sent++ == 1) swap_sources(first, node);
        if (n_sent == 1) first = node;
    }
    CHECK(!done || n_sent == 4, "%d values", n_sent);
    if (done) {
        CHECK(!verify_plan(run.plan, run.diag), "values 1, 0, 2, 3 pass");
        CHECK(strstr(diag_text(run.diag), "crosses a border of stages out of order"), "%s",
              diag_text(run.diag));
    }
    run_close(&run);
    check_end();
}

static void check_refusal(const char *path, int parts, const char *message) {
    Run run;
    check_begin(message);
    run_expert_parts = parts;
    bool made = run_plan_for(&run, path, NULL, 0, &LAYOUT, BATCH, false, true, DTYPE_F32);
    run_expert_parts = 1;
    CHECK(!made && strstr(diag_text(run.diag), message), "says: %s", diag_text(run.diag));
    run_close(&run);
    check_end();
}

/* Two streams by hand: work 10, a message of 20 that needs it, work of 15 that does not, work of 5
 * that needs the message. */
static void test_clock(void) {
    static const double TOOK[] = {10, 20, 15, 5};
    Value reads_first = {0}, reads_message = {0};
    Attr mesh = attr_string(ATTR_mesh, "e");
    Node nodes[4] = {{.id = 0, .op = OP_MATMUL},
                     {.id = 1, .op = OP_ALL_TO_ALL, .n_inputs = 1, .attrs = &mesh, .n_attrs = 1},
                     {.id = 2, .op = OP_MATMUL},
                     {.id = 3, .op = OP_MATMUL, .n_inputs = 1}};
    Arena *arena = arena_create();
    MessageTimes times = message_times_create(&(Graph){.n_nodes = 4}, arena);
    MessageClock clock = {0};
    reads_first.node = &nodes[0], reads_message.node = &nodes[1];
    nodes[1].inputs = &reads_first, nodes[3].inputs = &reads_message;
    check_begin("a message costs what work beside it does not last");
    for (int i = 0; i < 4; i++) message_clock_add(&clock, &times, &nodes[i], TOOK[i]);
    CHECK(clock.us == 35, "ends at %g, not 35", clock.us);
    CHECK(message_clock_hidden_us(&clock) == 15, "%g are hidden, not 15",
          message_clock_hidden_us(&clock));
    check_end();
    arena_destroy(arena);
}

static const SegmentCost *price(Arena *arena, const char *software, int parts, Model *model) {
    Diag *diag = diag_create();
    Cluster *cluster = cluster_read(arena, "h100-dgx", software, diag);
    CHECK(cluster, "%s", diag_text(diag));
    PlanRequest request = model_request(model);
    request.options.expert_parts = parts;
    const char *why = "";
    ModelCosts *costs = model_costs_create(arena, &request, cluster, diag);
    const LayoutCost *of =
        costs ? model_costs_divided(costs, 1, 1, 8, false, RECOMPUTE_NONE, 1, 1, &why) : NULL;
    CHECK(of, "%s%s", diag_text(diag), why);
    diag_destroy(diag);
    return of ? &of->kinds[0] : NULL;
}

static void test_prices(void) {
    static const ModelSetting QWEN[] = {{"size", "qwen3-30b-a3b"}, {"layers", "1"}};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = model_load(arena, "models/moe.lua", QWEN, 2, 1, diag);
    check_begin("prices hide what is beside work, more of it in two runs, and nothing elsewhere");
    CHECK(model, "%s", diag_text(diag));
    const SegmentCost *one = model ? price(arena, NULL, 1, model) : NULL;
    const SegmentCost *two = model ? price(arena, NULL, 2, model) : NULL;
    const SegmentCost *other = model ? price(arena, "megatron-core-moe", 1, model) : NULL;
    if (one && two && other) {
        double sent = one->forward.exchange_us;
        CHECK(sent > 0 && one->forward.within_us < 0.05 * sent,
              "without a shared expert %g of %g us are hidden forward", one->forward.within_us,
              sent);
        CHECK(one->backward.within_us > 0.45 * sent && one->backward.within_us < 0.95 * sent,
              "%g of %g us backward: the message behind which gradients of weights come",
              one->backward.within_us, sent);
        CHECK(two->forward.within_us > 0.45 * sent && two->forward.within_us < 0.75 * sent,
              "%g of %g us in two runs: all but the first way there and the last way back",
              two->forward.within_us, sent);
        CHECK(two->forward.us < one->forward.us && two->backward.us < one->backward.us,
              "%g and %g us, and in one run %g and %g", two->forward.us, two->backward.us,
              one->forward.us, one->backward.us);
        CHECK(two->backward.within_us <= two->backward.exchange_us, "more is hidden than sent");
        CHECK(other->forward.within_us == 0 && other->backward.within_us == 0,
              "software that waits is priced as if it did not");
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    test_clock();
    test_order();
    test_parts();
    test_gradients();
    test_sends();
    check_refusal("tests/models/experts.lua", 9, "an expert has too few slots for so many parts");
    check_refusal("models/gpt.lua", 2, "the model routes no tokens to experts");
    test_prices();
    return check_report();
}
