/* States and masters in the host's memory (--offload): which are, how many of them, that exactly
 * their bytes leave the arena, that no bit of training changes under any layout or optimizer, nor
 * of a checkpoint, whichever way it was written and is read, and that plans are refused which let
 * anything but the update touch what lies there.
 *
 * Would catch: a leaf on the host that a product, message or norm reads; a state that stays on the
 * device though its parameter's others went; a share other than was asked for; leaves that overlap
 * on the host; one that is initialised, saved, loaded or reported at its old place; a plan's text
 * that forgets the region; a price that does not know of the bus, or of a node's memory.
 */
#include "planner/cost/cost.h"
#include "planner/plan/offload.h"
#include "planner/simulate/simulate.h"
#include "planner/verify/verify.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { STEPS = 4, GLOBAL_BATCH = 16, N_SETTINGS = 9 };
static const Layout ALONE = {1, 1, 1, 8, 1, "1f1b", false, NULL, 0};

static const char *optimizer = "adamw"; /* of what is started from now on */
static DType precision = DTYPE_BF16;
static bool for_cuda = true;

static bool plan(Run *run, int percent, const Layout *layout, bool text) {
    const ModelSetting settings[N_SETTINGS] = {{"optimizer", optimizer},
                                               {"optimizer.eps", "1e-6"},
                                               {"model", "32"},
                                               {"heads", "4"},
                                               {"seq", "16"},
                                               {"vocab", "64"},
                                               {"layers", "4"},
                                               {"ffn", "72"},
                                               {"tied", "true"}};
    run_offload = percent;
    bool fine = run_plan_for(run, "models/gpt.lua", settings, N_SETTINGS, layout, GLOBAL_BATCH,
                             text, for_cuda, precision);
    run_offload = 0;
    return fine;
}

static bool start(Run *run, int percent, const Layout *layout) {
    return plan(run, percent, layout, percent > 0) && run_start(run);
}

/* --- which are, and what they take --- */

/* Leaves on the host of program 0: states and parameters. */
typedef struct Count {
    int states, params;
    int64_t bytes; /* each as it is laid out */
} Count;

static Count count_on_host(const Plan *plan) {
    const Program *program = &plan->programs[0];
    Count count = {0};
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        const Buffer *buffer = &program->buffers[n * MAX_OUTPUTS];
        bool leaf = OPS[node->op].flags & PERSISTENT;
        if (!leaf || buffer->region != REGION_HOST) continue;
        count.states += node->op == OP_STATE;
        count.params += node->op == OP_PARAM;
        count.bytes += (buffer->bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    return count;
}

/* Of 68 parameters (16 in each of four blocks, two tables and a norm's two), 49 have copies: all of
 * a block but its norms', and the words' table, which is the head's, too. Muon has one state of the
 * 24 matrices of blocks. */
static void test_which(void) {
    static const struct {
        const char *name, *optimizer;
        DType precision;
        Layout layout;
        int zero, percent, states, params;
    } CASES[] = {
        {"one rank", "adamw", DTYPE_BF16, {1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 0, 100, 136, 49},
        {"nothing", "adamw", DTYPE_BF16, {1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 0, 0, 0, 0},
        {"f32 has no masters",
         "adamw",
         DTYPE_F32,
         {1, 1, 1, 8, 1, "1f1b", false, NULL, 0},
         0,
         100,
         136,
         0},
        {"lion, t", "lion", DTYPE_BF16, {2, 1, 1, 8, 1, "1f1b", true, NULL, 0}, 0, 100, 68, 49},
        {"sgd, ZeRO-1", "sgd", DTYPE_BF16, {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 100, 68, 49},
        {"muon", "muon", DTYPE_BF16, {1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 0, 100, 112, 49},
        {"lamb", "lamb", DTYPE_BF16, {1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 0, 100, 136, 49},
        {"ZeRO-2", "adamw", DTYPE_BF16, {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 2, 100, 136, 49},
        {"ZeRO-3", "adamw", DTYPE_BF16, {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 3, 100, 136, 49},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        Run all, none;
        run_zero = CASES[k].zero;
        optimizer = CASES[k].optimizer;
        precision = CASES[k].precision;
        check_begin(CASES[k].name);
        bool fine = plan(&all, CASES[k].percent, &CASES[k].layout, true);
        fine = plan(&none, 0, &CASES[k].layout, true) && fine;
        CHECK(fine, "%s%s", diag_text(all.diag), diag_text(none.diag));
        if (fine) {
            Count count = count_on_host(all.plan);
            int64_t less = none.plan->stages[0].arena_bytes - all.plan->stages[0].arena_bytes;
            int64_t host = plan_host_bytes(all.plan, &all.plan->stages[0]);
            CHECK(count.states == CASES[k].states && count.params == CASES[k].params,
                  "%d states and %d parameters, not %d and %d", count.states, count.params,
                  CASES[k].states, CASES[k].params);
            CHECK(host == count.bytes, "%lld bytes of the host's, leaves have %lld",
                  (long long)host, (long long)count.bytes);
            CHECK(less == host, "%lld bytes less, %lld on the host", (long long)less,
                  (long long)host);
            CHECK(plan_host_bytes(none.plan, &none.plan->stages[0]) == 0, "unasked");
        }
        run_close(&all);
        run_close(&none);
        check_end();
    }
    run_zero = 0;
    precision = DTYPE_BF16;
}

/* As near to what was asked for as leaves allow. */
static void test_share(void) {
    optimizer = "adamw";
    Run all;
    check_begin("a share of the bytes");
    bool fine = plan(&all, 100, &ALONE, false);
    CHECK(fine, "%s", diag_text(all.diag));
    double whole = fine ? (double)plan_host_bytes(all.plan, &all.plan->stages[0]) : 1;
    for (int percent = 1; fine && percent < 100; percent += 7) {
        Run run;
        CHECK(plan(&run, percent, &ALONE, true), "%s", diag_text(run.diag));
        double share = (double)plan_host_bytes(run.plan, &run.plan->stages[0]) / whole;
        CHECK(fabs(share - percent / 100.0) < 0.03, "%d %%: %.3f", percent, share);
        CHECK(run.plan->offload == percent, "the plan says %d", run.plan->offload);
        run_close(&run);
    }
    run_close(&all);
    check_end();
}

/* --- training --- */

static void test_training(const char *with, double rate) {
    static const struct {
        LayoutCase at;
        int percent;
        DType precision;
    } CASES[] = {
        {{{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0}, 100, DTYPE_BF16},
        {{{2, 2, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 3}, 50, DTYPE_BF16},
        {{{1, 2, 2, 2, 1, "zb-h1", false, NULL, 0}, RECOMPUTE_NONE, 2}, 100, DTYPE_F32},
        {{{2, 1, 2, 4, 2, "interleaved", false, NULL, 0}, RECOMPUTE_FULL, 0}, 70, DTYPE_BF16},
        {{{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_SELECTIVE, 1}, 100, DTYPE_BF16},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k += VARIANT_STEP) {
        char title[200];
        Run run, other;
        run_recompute = CASES[k].at.recompute;
        run_zero = CASES[k].at.zero;
        precision = CASES[k].precision;
        optimizer = with;
        int length = snprintf(title, sizeof(title), "%d %%, ZeRO-%d, %s, ", CASES[k].percent,
                              run_zero, dtype_name(precision));
        layout_name(optimizer, &CASES[k].at.layout, title + length, sizeof(title) - (size_t)length);
        check_begin(title);
        bool done =
            start(&run, CASES[k].percent, &CASES[k].at.layout) && run_steps(&run, STEPS, rate);
        done = start(&other, 0, &CASES[k].at.layout) && run_steps(&other, STEPS, rate) && done;
        CHECK(done, "%s%s", diag_text(run.diag), diag_text(other.diag));
        if (done) {
            compare_to_the_bit(&run, &other, 0, STEPS);
            compare_memory(&run);
            compare_memory(&other);
        }
        run_close(&run);
        run_close(&other);
        check_end();
    }
    run_recompute = RECOMPUTE_NONE;
    run_zero = 0;
    precision = DTYPE_BF16;
}

/* --- checkpoints --- */

/* Two steps, a checkpoint, and two more from it, elsewhere or not: as if none of it had been. */
static void test_checkpoint(int from, int to, bool behind) {
    static const Layout OTHER = {2, 2, 1, 4, 1, "1f1b", false, NULL, 0};
    char path[64], title[120];
    Run near, first, second;
    TrainingPlace place;
    snprintf(path, sizeof(path), "/tmp/perilune_offload_%d.st", (int)getpid());
    snprintf(title, sizeof(title), "a checkpoint with %d %% on the host%s, read with %d", from,
             behind ? ", behind training" : "", to);
    check_begin(title);
    optimizer = "adamw";
    bool fine = start(&near, 0, &ALONE) && run_steps(&near, STEPS, 2e-3);
    fine = start(&first, from, &ALONE) && run_steps(&first, 2, 2e-3) && fine;
    fine = fine && run_save(&first, path, 2, behind);
    fine = start(&second, to, &ALONE) && fine;
    fine = fine && engine_load_state(second.engine, path, &place, second.diag) &&
           run_steps_from(&second, 2, STEPS - 2, 2e-3);
    CHECK(fine, "%s%s%s", diag_text(near.diag), diag_text(first.diag), diag_text(second.diag));
    if (fine) compare_to_the_bit(&second, &near, 2, STEPS);
    run_close(&second);
    run_zero = 1;
    fine = start(&second, to, &OTHER) && fine;
    run_zero = 0;
    fine = fine && engine_load_state(second.engine, path, &place, second.diag);
    CHECK(fine, "%s", diag_text(second.diag));
    for (int i = 0; fine && i < first.n_params; i++) {
        const int64_t n = type_elements(&first.types[i]);
        float *ours = ARENA_ARRAY(second.arena, float, n); /* in another order there */
        CHECK(engine_read_parameter(second.engine, first.names[i], ours) &&
                  memcmp(ours, run_weight(&first, i), (size_t)n * sizeof(float)) == 0,
              "'%s' differs under another layout", first.names[i]);
    }
    unlink(path);
    run_close(&near);
    run_close(&first);
    run_close(&second);
    check_end();
}

/* --- plans that are wrong --- */

static Node *find(const Plan *plan, OpKind op, const char *name) {
    const Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        const char *own = node->op == op ? node_string(node, ATTR_name) : "";
        if (strcmp(own, name) == 0) return node;
    }
    return NULL;
}

static Buffer *buffer_of(const Plan *plan, const Node *node, int output) {
    return &plan->programs[0].buffers[node->id * MAX_OUTPUTS + output];
}

typedef enum Damage {
    READ_BY_PRODUCTS,
    READ_BY_NORMS,
    A_GRADIENT,
    SCRATCH,
    WRITTEN_NEAR,
    TOGETHER,
    BEYOND,
    NO_MULTIPLE,
    N_DAMAGES
} Damage;

static void damage(const Plan *plan, Damage how) {
    Program *program = &plan->programs[0];
    Node *master = find(plan, OP_PARAM, "blocks.#.mlp.w1");
    Node *copy = find(plan, OP_STATE, "blocks.#.mlp.w1.bf16"),
         *gain = find(plan, OP_PARAM, "blocks.#.ln1.gain");
    if (!master || !copy || !gain) return;
    switch (how) {
    case READ_BY_PRODUCTS: buffer_of(plan, copy, 0)->region = REGION_HOST; break;
    case READ_BY_NORMS: buffer_of(plan, gain, 0)->region = REGION_HOST; break;
    case A_GRADIENT:
        for (int n = 0; n < program->graph->n_nodes; n++) {
            const Node *node = program->graph->nodes[n];
            if (node->op == OP_ACCUMULATOR) buffer_of(plan, node, 0)->region = REGION_HOST;
        }
        break;
    case SCRATCH:
        for (int n = 0; n < program->graph->n_nodes; n++) {
            const Node *node = program->graph->nodes[n];
            if (node->op == OP_MATMUL) buffer_of(plan, node, 0)->region = REGION_HOST;
        }
        break;
    case WRITTEN_NEAR:
        for (int n = 0; n < program->graph->n_nodes; n++) {
            const Node *node = program->graph->nodes[n];
            if (!op_is_optimizer(node->op) || node->inputs[0].node != master) continue;
            buffer_of(plan, node, 0)->region = REGION_PERSISTENT;
        }
        break;
    case TOGETHER: {
        const Node *other = find(plan, OP_PARAM, "blocks.#.mlp.w2");
        int64_t offset = buffer_of(plan, other, 0)->offset_bytes;
        for (int n = 0; n < program->graph->n_nodes; n++) {
            const Node *node = program->graph->nodes[n];
            if (node != master && (!op_is_optimizer(node->op) || node->inputs[0].node != master)) {
                continue;
            }
            buffer_of(plan, node, 0)->offset_bytes = offset;
        }
        break;
    }
    case BEYOND: program->host_bytes -= ALIGN_BYTES; break;
    default: program->host_bytes += 8;
    }
}

static void test_refused(void) {
    static const struct {
        Damage how;
        const char *name, *expected;
    } CASES[] = {
        {READ_BY_PRODUCTS, "a copy that products read", "is not the update's alone"},
        {READ_BY_NORMS, "a gain that the forward reads", "is not the update's alone"},
        {A_GRADIENT, "gradients on the host", "is not the update's alone"},
        {SCRATCH, "a product's result on the host", "is not the update's alone"},
        {WRITTEN_NEAR, "a master that is written elsewhere", "must update"},
        {TOGETHER, "two masters in one place", "of host, alive together"},
        {BEYOND, "a leaf beyond the region", "are outside its region: host has"},
        {NO_MULTIPLE, "a region of odd size", "is no multiple of 256 bytes"},
    };
    optimizer = "adamw";
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        Run run;
        check_begin(CASES[k].name);
        bool fine = plan(&run, 100, &ALONE, false);
        CHECK(fine, "%s", diag_text(run.diag));
        if (fine) {
            Diag *diag = diag_create();
            damage(run.plan, CASES[k].how);
            bool sound = verify_plan(run.plan, diag);
            CHECK(!sound && strstr(diag_text(diag), CASES[k].expected), "not said: %s; but: %s",
                  CASES[k].expected, diag_text(diag));
            diag_destroy(diag);
        }
        run_close(&run);
        check_end();
    }
}

/* Halves of what products read stay with them; their states go. */
static void test_halves(void) {
    Run run;
    check_begin("parameters in halves stay");
    optimizer = "adamw";
    run_split_masters = true;
    bool fine = plan(&run, 100, &ALONE, true);
    run_split_masters = false;
    CHECK(fine, "%s", diag_text(run.diag));
    if (fine) {
        Count count = count_on_host(run.plan);
        CHECK(count.states == 136 && count.params == 24, "%d states, %d parameters", count.states,
              count.params);
    }
    run_close(&run);
    check_end();
}

/* --- prices --- */

/* A step takes as much longer as the bus needs for what lies there, less what the device's own
 * memory had needed for it. */
static void test_price(void) {
    Run all, none;
    check_begin("the bus has its price");
    optimizer = "adamw";
    bool fine = plan(&all, 100, &ALONE, false);
    fine = plan(&none, 0, &ALONE, false) && fine;
    CHECK(fine, "%s%s", diag_text(all.diag), diag_text(none.diag));
    Device device = {.name = "slow bus",
                     .flops_per_second = 1e12,
                     .memory_bytes_per_second = 1e11,
                     .host_bytes_per_second = 1e9,
                     .link_bytes_per_second = 1e9};
    double host = fine ? (double)plan_host_bytes(all.plan, &all.plan->stages[0]) : 0, us[2] = {0};
    for (int i = 0; fine && i < 2; i++) {
        ProgramCost cost = cost_program(i ? none.plan : all.plan, 0, &device, all.arena);
        for (int part = 0; part < N_UPDATE_PARTS; part++) us[i] += cost.update[part].us;
    }
    /* Padding is not moved; gradients and copies are, meanwhile. */
    CHECK(us[0] > 0.95 * host / 1e9 * 1e6 && us[0] < 1.2 * host / 1e9 * 1e6 && us[1] < us[0] / 20,
          "%.1f us with the bus, %.1f without; %.0f bytes", us[0], us[1], host);
    device.host_bytes_per_second = 1e12; /* faster than its own memory is */
    double fast = 0;
    if (fine) {
        ProgramCost cost = cost_program(all.plan, 0, &device, all.arena);
        for (int part = 0; part < N_UPDATE_PARTS; part++) fast += cost.update[part].us;
        CHECK(fast < us[1], "%.2f us with a bus that is faster than memory, %.2f without", fast,
              us[1]);
    }
    run_close(&all);
    run_close(&none);
    check_end();
}

int main(void) {
    static const struct {
        const char *optimizer;
        double rate;
    } KINDS[] = {{"adamw", 2e-3}, {"lion", 3e-4}, {"sgd", 0.05}, {"lamb", 5e-3}, {"muon", 2e-3}};
    test_which();
    test_share();
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i += VARIANT_STEP) {
        test_training(KINDS[i].optimizer, KINDS[i].rate);
    }
    test_checkpoint(100, 0, false);
    test_checkpoint(0, 50, true);
    test_checkpoint(100, 30, true);
    test_refused();
    test_halves();
    test_price();
    return check_report();
}
