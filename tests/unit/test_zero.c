/* ZeRO-2 and 3 in programs: which messages there are, and where they stand. What they compute is
 * test_equivalence's. Would catch: weights gathered twice for one block and phase, kept from
 * forward to backward, or gathered when they are read; a message that leaves its task or overtakes
 * another; a shard's sum that is added to before the share is there; bits that depend on the order.
 */
#include "tests/unit/check.h"
#include "tests/unit/train_compare.h"

#include "planner/passes/pass.h"

static const ModelSetting TINY[] = {{"layers", "4"}, {"model", "32"}, {"heads", "4"},
                                    {"seq", "16"},   {"vocab", "64"}, {"dropout", "0.1"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]), STEPS = 3 };

static const Layout DATA = {1, 4, 1, 2, 1, "1f1b", false, NULL, 0};
static const Layout BOTH = {2, 2, 2, 2, 2, "interleaved", true, NULL, 0};

static bool over_data(const Node *node) {
    return strcmp(node_string(node, ATTR_mesh), "d") == 0;
}

static bool is_gather(const Node *node) {
    return node->op == OP_ALL_GATHER && node->phase != PHASE_UPDATE && over_data(node);
}

static bool same_task(const Node *a, const Node *b) {
    return a->phase == b->phase && a->chunk == b->chunk;
}

static int first_reader(const Graph *graph, const Node *of) {
    for (int n = of->id + 1; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->nodes[n]->n_inputs; i++) {
            if (graph->nodes[n]->inputs[i].node == of) return n;
        }
    }
    return graph->n_nodes;
}

static bool read_by_other_task(const Graph *graph, const Node *of) {
    for (int n = of->id + 1; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->nodes[n]->n_inputs; i++) {
            const Node *node = graph->nodes[n];
            if (node->inputs[i].node == of && !same_task(node, of)) return true;
        }
    }
    return false;
}

/* Products and lookups between two nodes. */
static int work_between(const Graph *graph, int from, int to) {
    int count = 0;
    for (int n = from + 1; n < to; n++) {
        OpKind op = graph->nodes[n]->op;
        count += op == OP_MATMUL || op == OP_ATTENTION || op == OP_ATTENTION_GRAD;
    }
    return count;
}

static void check_gathers(const Graph *graph, bool cuda) {
    int n_gathers = 0, n_early = 0, last_reader = -1;
    const Node *last = NULL;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!is_gather(node)) continue;
        CHECK(OPS[node->inputs[0].node->op].flags & PERSISTENT, "%%%d gathers no weight", n);
        CHECK(!read_by_other_task(graph, node), "%%%d is kept for another task", n);
        for (int k = 0; k < n; k++) {
            const Node *other = graph->nodes[k];
            bool again = is_gather(other) && same_task(other, node) &&
                         other->block == node->block &&
                         value_equal(other->inputs[0], node->inputs[0]);
            CHECK(!again, "%%%d gathers what %%%d has gathered", n, k);
        }
        int reader = first_reader(graph, node);
        CHECK(reader < graph->n_nodes, "nobody reads %%%d", n);
        if (last && same_task(last, node)) {
            CHECK(reader >= last_reader, "%%%d overtakes %%%d", last->id, n);
        }
        n_gathers++;
        n_early += work_between(graph, n, reader) > 0;
        last = node, last_reader = reader;
    }
    CHECK(n_gathers > 0, "there are none");
    CHECK(cuda ? n_early > n_gathers / 3 : n_early == 0, "%d of %d stand before other products",
          n_early, n_gathers);
}

static void check_sums(const Graph *graph, bool cuda) {
    int n_sums = 0, n_late = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_ACCUMULATE || node->phase != PHASE_BACKWARD) continue;
        const Node *reduced = node->inputs[1].node;
        if (reduced->op != OP_REDUCE_SCATTER) {
            CHECK(value_sharding(node->inputs[1])->partial || graph->mesh.size[MESH_D] == 1 ||
                      type_elements(&node->types[0]) <= 64,
                  "%%%d adds up a whole gradient", n);
            continue;
        }
        CHECK(over_data(reduced) && same_task(reduced, node), "%%%d reduces elsewhere", n);
        n_sums++;
        n_late += work_between(graph, reduced->inputs[0].node->id, reduced->id) > 0;
    }
    CHECK(n_sums > 0, "there are none");
    CHECK(cuda ? n_late > n_sums / 3 : n_late < n_sums / 3, "%d of %d stand behind other products",
          n_late, n_sums);
}

static bool plan(Run *run, const char *model, const Layout *layout, bool cuda, DType precision) {
    return run_plan_for(run, model, TINY, N_TINY, layout, 8 * layout->d, false, cuda, precision);
}

static void check_programs(const char *model, const Layout *layout, Recompute recompute,
                           bool cuda) {
    char name[224];
    for (run_zero = ZERO_GRADIENTS; run_zero < N_ZERO_STAGES; run_zero++) {
        Run run;
        run_recompute = recompute;
        snprintf(name, sizeof(name), "messages over d, %s, %s: ", cuda ? "cuda" : "cpu", model);
        size_t at = strlen(name);
        layout_name("zero", layout, name + at, sizeof(name) - at);
        check_begin(name);
        bool done = plan(&run, model, layout, cuda, DTYPE_BF16);
        CHECK(done, "%s", diag_text(run.diag));
        for (int i = 0; done && i < run.plan->n_programs; i++) {
            const Graph *graph = run.plan->programs[i].graph;
            check_sums(graph, cuda);
            if (run_zero == ZERO_PARAMETERS) check_gathers(graph, cuda);
        }
        run_close(&run);
        check_end();
    }
    run_zero = 0;
    run_recompute = RECOMPUTE_NONE;
}

/* A GPU's plan also runs on a CPU: with all its messages in other places it has the same bits. */
static void check_bits(const char *model, const Layout *layout, Recompute recompute) {
    Run spread, plain;
    check_begin("where messages stand changes no bit");
    run_zero = ZERO_PARAMETERS;
    run_recompute = recompute;
    bool done = plan(&spread, model, layout, true, DTYPE_F32) && run_start(&spread) &&
                run_steps(&spread, STEPS, 1e-3);
    CHECK(done, "%s", diag_text(spread.diag));
    done = plan(&plain, model, layout, false, DTYPE_F32) && run_start(&plain) &&
           run_steps(&plain, STEPS, 1e-3) && done;
    CHECK(done, "%s", diag_text(plain.diag));
    for (int i = 0; done && i < STEPS; i++) {
        CHECK(spread.losses[i] == plain.losses[i], "loss of step %d: %.9g, not %.9g", i + 1,
              spread.losses[i], plain.losses[i]);
    }
    for (int i = 0; done && i < spread.n_params; i++) {
        size_t n = (size_t)type_elements(&spread.types[i]);
        float *other = ARENA_ARRAY(plain.arena, float, n); /* by name: each plan has its order */
        CHECK(engine_read_parameter(plain.engine, spread.names[i], other) &&
                  memcmp(run_weight(&spread, i), other, n * sizeof(float)) == 0,
              "'%s' differs", spread.names[i]);
    }
    run_close(&spread);
    run_close(&plain);
    run_zero = 0;
    run_recompute = RECOMPUTE_NONE;
    check_end();
}

/* Models whose sums of gradients chain, share a message or have few neighbours. */
static void check_models(void) {
    static const char *const MODELS[] = {"models/gpt.lua",
                                         "models/gemma.lua",
                                         "tests/models/no_blocks.lua",
                                         "tests/models/odd.lua",
                                         "tests/models/penalties.lua",
                                         "tests/models/shared.lua",
                                         "tests/models/summed.lua",
                                         "tests/models/neighbours.lua",
                                         "tests/models/skips.lua"};
    static const char *const OPTIMIZERS[] = {"adamw", "muon", "lamb"};
    const Layout layout = {1, 3, 1, 1, 1, "1f1b", false, NULL, 0}; /* 3: with padding */
    check_begin("sound plans of models of all kinds, with ZeRO-2 and 3, for a GPU");
    for (size_t m = 0; m < sizeof(MODELS) / sizeof(MODELS[0]); m++) {
        for (int o = 0; o < 3; o++) {
            for (run_zero = ZERO_GRADIENTS; run_zero < N_ZERO_STAGES; run_zero++) {
                Run run;
                const ModelSetting setting = {"optimizer", OPTIMIZERS[o]};
                bool done =
                    run_plan_for(&run, MODELS[m], &setting, 1, &layout, 6, true, true, DTYPE_BF16);
                CHECK(done, "%s, %s, zero %d: %s", MODELS[m], OPTIMIZERS[o], run_zero,
                      diag_text(run.diag));
                run_close(&run);
            }
        }
    }
    run_zero = 0;
    check_end();
}

/* d=3 divides neither the positions of a table nor its rows, but rows can be padded. */
static void check_positions(void) {
    static const ModelSetting SETTINGS[] = {
        {"seq", "32"}, {"model", "40"}, {"heads", "4"}, {"layers", "2"}};
    const Layout layout = {1, 3, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin("a table of positions is divided along what may be padded");
    run_zero = ZERO_OPTIMIZER;
    bool done = run_plan(&run, "models/gpt.lua", SETTINGS, 4, &layout, 12, true);
    run_zero = 0;
    CHECK(done, "%s", diag_text(run.diag));
    run_close(&run);
    check_end();
}

int main(void) {
    check_models();
    check_positions();
    static const char *const MODELS[] = {"models/gpt.lua", "models/llama.lua"};
    for (int m = 0; m < 2; m++) {
        for (int cuda = 0; cuda < 2; cuda++) {
            for (int r = 0; r < N_RECOMPUTES; r++) {
                check_programs(MODELS[m], &DATA, (Recompute)r, cuda);
                check_programs(MODELS[m], &BOTH, (Recompute)r, cuda);
            }
        }
        check_bits(MODELS[m], &DATA, RECOMPUTE_FULL);
        check_bits(MODELS[m], &BOTH, RECOMPUTE_SELECTIVE);
    }
    return check_report();
}
