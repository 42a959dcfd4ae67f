/* Weights that ZeRO-1 and 2 gather beside a step's first forward, in plans for GPUs: which they
 * are, when their groups begin, and that training, validation and what is read of weights have the
 * bits of plans for CPUs, whose updates gather them. Would catch: weights of the step before; a
 * gather for each micro-batch or none in validation; one that begins after its reader, or in memory
 * that is still read; one on two chunks of a stage; groups that leave nothing to be beside.
 */
#include "planner/plan/update_groups.h"
#include "tests/unit/broken_text.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include "ir/message_group.h"

static const ModelSetting TINY[] = {{"layers", "4"}, {"model", "32"}, {"heads", "4"},
                                    {"seq", "16"},   {"vocab", "64"}, {"dropout", "0.1"}};
static const ModelSetting HEADS[] = {{"layers", "4"}, {"model", "32"}, {"heads", "4"},
                                     {"seq", "16"},   {"vocab", "64"}, {"kv_heads", "2"}};
static const ModelSetting EXPERTS[] = {{"layers", "2"}, {"model", "32"}, {"heads", "4"},
                                       {"seq", "16"},   {"vocab", "64"}, {"experts", "4"}};
static const ModelSetting WIDE[] = {{"layers", "6"}, {"model", "512"}, {"heads", "4"},
                                    {"seq", "16"},   {"vocab", "512"}, {"ffn", "9216"}};
static const ModelSetting LARGE[] = {{"layers", "6"}, {"model", "512"}, {"heads", "4"},
                                     {"seq", "16"},   {"vocab", "512"}, {"ffn", "16384"}};
enum { N_SETTINGS = 6, STEPS = 3, IN_CHUNKS = 3 };

/* As options of a plan; 0: what is usual. */
typedef struct Case {
    const char *model;
    const ModelSetting *settings;
    Layout layout;
    int zero, c, e, r, lanes, loss_parts;
    Recompute recompute;
    DType precision;
} Case;

static const Case CASES[] = {
    {"models/gpt.lua", TINY, {1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, .zero = 1},
    {"models/gpt.lua",
     TINY,
     {1, 3, 1, 2, 1, "1f1b", false, NULL, 0},
     .zero = 1}, /* padded shards */
    {"models/gpt.lua",
     TINY,
     {1, 4, 1, 1, 1, "1f1b", false, NULL, 0},
     .zero = 2,
     .precision = DTYPE_F16},
    {"models/llama.lua", HEADS, {2, 2, 2, 2, 2, "interleaved", true, NULL, 0}, .zero = 2},
    /* the embedding is the head, on another stage or on the same */
    {"models/gpt.lua", TINY, {1, 2, 2, 1, 1, "1f1b", false, NULL, 0}, .zero = 1},
    {"models/gpt.lua", TINY, {1, 2, 2, 1, 2, "zb-v", false, NULL, 0}, .zero = 1},
    {"models/llama.lua", HEADS, {1, 2, 2, 1, 1, "zb-h1", false, NULL, 0}, .zero = 1},
    {"models/llama.lua",
     HEADS,
     {1, 2, 1, 2, 1, "1f1b", false, NULL, 0},
     .zero = 1,
     .loss_parts = 4},
    {"models/llama.lua",
     HEADS,
     {1, 2, 2, 2, 1, "1f1b", false, NULL, 0},
     .zero = 2,
     .loss_parts = 2},
    {"models/llama.lua", HEADS, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, .zero = 1, .c = 2},
    {"models/llama.lua",
     HEADS,
     {1, 2, 1, 2, 1, "1f1b", false, NULL, 0},
     .zero = 1,
     .r = 2,
     .lanes = 2},
    {"models/gpt.lua",
     TINY,
     {1, 2, 1, 2, 1, "1f1b", false, NULL, 0},
     .zero = 1,
     .recompute = RECOMPUTE_FULL},
    {"models/gpt.lua",
     TINY,
     {2, 2, 1, 2, 1, "1f1b", true, NULL, 0},
     .zero = 2,
     .recompute = RECOMPUTE_SELECTIVE},
    {"models/moe.lua", EXPERTS, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, .zero = 1, .e = 2},
};

static const Case WIDE_CASE = {
    "models/llama.lua", WIDE, {1, 4, 1, 1, 1, "1f1b", false, NULL, 0}, .zero = 1};

static const Case LARGE_CASE = {
    "models/llama.lua", LARGE, {1, 4, 1, 1, 1, "1f1b", false, NULL, 0}, .zero = 1};

static void use(const Case *of) {
    run_zero = of ? of->zero : 0;
    run_context = of && of->c ? of->c : 1;
    run_experts = of && of->e ? of->e : 1;
    run_replicas = of && of->r ? of->r : 1;
    run_lanes = of && of->lanes ? of->lanes : 1;
    run_loss_parts = of && of->loss_parts ? of->loss_parts : 1;
    run_recompute = of ? of->recompute : RECOMPUTE_NONE;
    run_vocab_multiple = 1;
}

static bool plan(Run *run, const Case *of, bool cuda) {
    DType precision = of->precision ? of->precision : DTYPE_BF16;
    use(of);
    int ranks = of->layout.d * run_experts * run_replicas;
    bool done = run_plan_for(run, of->model, of->settings, N_SETTINGS, &of->layout,
                             2 * of->layout.micro_batch * ranks, true, cuda, precision);
    use(NULL);
    CHECK(done, "%s: %s", of->model, diag_text(run->diag));
    return done;
}

static bool is_gather(const Node *node) {
    return node->op == OP_ALL_GATHER && node->n_inputs == 2;
}

static int first_reader(const Graph *graph, const Node *of) {
    for (int n = of->id + 1; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->nodes[n]->n_inputs; i++) {
            if (graph->nodes[n]->inputs[i].node == of) return n;
        }
    }
    return graph->n_nodes;
}

/* Each before all that read it, once in a program; copies in 16 bits, and all of them.
 */
static void check_program(const Graph *graph, int *n_once) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!is_gather(node)) continue;
        const Node *leaf = node->inputs[1].node;
        bool once = node_is_once(node);
        CHECK(once == node_is_copy(leaf), "%%%d, over %s", n, node_string(leaf, ATTR_name));
        CHECK(node->phase == (once ? PHASE_FORWARD : PHASE_UPDATE), "%%%d", n);
        *n_once += once;
        for (int k = 0; once && k < graph->n_nodes; k++) {
            const Node *other = graph->nodes[k];
            CHECK(k == n || !is_gather(other) || other->inputs[1].node != leaf, "%%%d, %%%d", n, k);
        }
    }
}

static void check_plans(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Run run;
        int n_once = 0;
        check_begin("copies come once, in the forward");
        if (plan(&run, &CASES[i], true)) {
            for (int s = 0; s < run.plan->n_programs; s++) {
                check_program(run.plan->programs[s].graph, &n_once);
            }
            CHECK(n_once > 8, "%d", n_once);
        }
        run_close(&run);
        check_end();
    }
}

static double validate(Run *run) {
    const Plan *of = run->plan;
    size_t n = (size_t)of->global_batch * (size_t)of->seq;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n), *labels = tokens;
    double loss = NAN;
    labels = ARENA_ARRAY(run->arena, int32_t, n);
    fill_batch(of, 77, tokens, labels);
    CHECK(engine_evaluate(run->engine, tokens, labels, &loss, run->diag), "%s",
          diag_text(run->diag));
    return loss;
}

/* Validated, trained, validated, trained on. */
static bool train(Run *run, const Case *of, bool cuda, double out_validated[3]) {
    if (!plan(run, of, cuda) || !run_start(run)) return false;
    out_validated[0] = validate(run);
    if (!run_steps(run, STEPS - 1, 1e-2)) return false;
    out_validated[1] = validate(run);
    if (!run_steps_from(run, STEPS - 1, 1, 1e-2)) return false;
    out_validated[2] = validate(run);
    return true;
}

static void check_bits(const Case *of) {
    Run early, late;
    double a[3], b[3];
    check_begin("training and validation have the bits of gathers in the update");
    bool done = train(&early, of, true, a);
    CHECK(done, "%s: %s", of->model, diag_text(early.diag));
    done = train(&late, of, false, b) && done;
    CHECK(done, "%s: %s", of->model, diag_text(late.diag));
    for (int i = 0; done && i < STEPS; i++) {
        CHECK(early.losses[i] == late.losses[i], "%s: loss %d is %.9g, not %.9g", of->model, i,
              early.losses[i], late.losses[i]);
        CHECK(a[i] == b[i], "%s: validation %d is %.9g, not %.9g", of->model, i, a[i], b[i]);
    }
    for (int i = 0; done && i < early.n_params; i++) {
        size_t n = (size_t)type_elements(&early.types[i]);
        float *other = ARENA_ARRAY(late.arena, float, n);
        CHECK(engine_read_parameter(late.engine, early.names[i], other) &&
                  memcmp(run_weight(&early, i), other, n * sizeof(float)) == 0,
              "%s: '%s' differs", of->model, early.names[i]);
    }
    run_close(&early);
    run_close(&late);
    check_end();
}

/* Full from so many bytes on, never more than a group of the update unless alone; each begins
 * before what reads the one before it, which has work beside the next then. */
static void check_groups(void) {
    const int64_t most = update_group_bytes(4), enough = weight_group_bytes(4);
    Run run;
    check_begin("groups are full, in the order of their readers, and begin one ahead");
    bool done = plan(&run, &WIDE_CASE, true);
    const Graph *graph = done ? run.plan->programs[0].graph : NULL;
    int n_groups = 0, turn = -1, last = -1, end;
    bool full = true;
    for (int n = 0; done && n < graph->n_nodes; n = end) {
        const Node *node = graph->nodes[n];
        int64_t bytes = 0;
        end = message_group_end(graph, n);
        if (!is_gather(node) || !node_is_once(node)) continue;
        int first = graph->n_nodes;
        for (int k = n; k < end; k++) {
            const Node *member = graph->nodes[k];
            int reader = first_reader(graph, member);
            if (reader < first) first = reader;
            bytes += type_local_bytes(&member->types[0], &member->shardings[0], &graph->mesh);
            CHECK(reader >= last, "%%%d is read before what came before it", k);
            last = reader;
        }
        CHECK(full, "a group before %%%d was not full", n);
        full = bytes >= enough || end - n == MESSAGE_GROUP_MOST;
        CHECK(bytes <= most || end == n + 1, "%%%d: %lld bytes", n, (long long)bytes);
        CHECK(turn < 0 || n < turn, "%%%d begins when %%%d has read what came before", n, turn);
        turn = first;
        n_groups++;
    }
    CHECK(!done || n_groups >= 6, "%d groups", n_groups);
    run_close(&run);
    check_end();
}

/* Three weights of a block are too large for a group; those of attention and the tables, 13 MiB in
 * all, are groups of 8 MiB all the same, each before the first that reads one of it. */
static void check_beside_large(void) {
    enum { N_LARGE = 18, N_SMALL = 2 };
    Run run;
    int n_groups = 0, n_alone = 0;
    check_begin("small weights go together past large ones");
    bool done = plan(&run, &LARGE_CASE, true);
    const Graph *graph = done ? run.plan->programs[0].graph : NULL;
    for (int n = 0, end; done && n < graph->n_nodes; n = end) {
        end = message_group_end(graph, n);
        if (!is_gather(graph->nodes[n]) || !node_is_once(graph->nodes[n])) continue;
        n_groups++;
        n_alone += end == n + 1;
    }
    CHECK(!done || (n_groups == N_LARGE + N_SMALL && n_alone == N_LARGE), "%d, of them %d alone",
          n_groups, n_alone);
    run_close(&run);
    check_end();
}

/* With attention and mlp side by side, recomputation moves readers past each other. */
static void check_moved_readers(void) {
    const Layout layout = {1, 4, 1, 1, 1, "1f1b", false, NULL, 0};
    const ModelSetting wide = {"model", "512"};
    Run run;
    check_begin("groups are in the order of readers that are in another one than weights");
    run_zero = 1;
    run_recompute = RECOMPUTE_SELECTIVE;
    bool done = run_plan_for(&run, "tests/models/parallel.lua", &wide, 1, &layout, 8, true, true,
                             DTYPE_BF16);
    use(NULL);
    CHECK(done, "%s", diag_text(run.diag));
    run_close(&run);
    check_end();
}

/* f32 has no copies; ZeRO-0 and 3 have no updated weights to gather; on CPUs nothing overlaps. */
static void check_none(void) {
    static const struct {
        int zero;
        DType precision;
        bool cuda;
    } NONE[] = {
        {1, DTYPE_F32, true}, {0, DTYPE_BF16, true}, {3, DTYPE_BF16, true}, {1, DTYPE_BF16, false}};
    for (size_t i = 0; i < sizeof(NONE) / sizeof(NONE[0]); i++) {
        Run run;
        Case of = CASES[0];
        of.zero = NONE[i].zero, of.precision = NONE[i].precision;
        check_begin("nothing comes early where it cannot");
        if (of.precision == DTYPE_F32) of.precision = 0;
        use(&of);
        bool done = run_plan_for(&run, of.model, of.settings, N_SETTINGS, &of.layout, 16, true,
                                 NONE[i].cuda, NONE[i].precision);
        use(NULL);
        CHECK(done, "%s", diag_text(run.diag));
        const Graph *graph = done ? run.plan->programs[0].graph : NULL;
        for (int n = 0; done && n < graph->n_nodes; n++) {
            CHECK(!node_is_once(graph->nodes[n]), "%%%d", n);
        }
        run_close(&run);
        check_end();
    }
}

static void check_damage(void) {
    static const BrokenText CHANGES[] = {
        /* the rounding before a gather, for each micro-batch */
        {"to_upper(", " {once=1}", "", "is no part of a weight's way"},
        {"to_upper(", "once=1", "once=2", "is no part of a weight's way"},
        /* of other micro-batches than the one that it is joined to */
        {"joined=1", ", once=1, joined=1", ", joined=1", "of other micro-batches"},
        /* another weight's shard */
        {"= all_gather(%", "all_gather(%", "all_gather(%1", ""},
    };
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        Run run;
        check_begin("damaged plans are refused");
        if (plan(&run, &CASES[0], true)) check_broken_text(&run, &CHANGES[i]);
        run_close(&run);
        check_end();
    }
}

static Node *find_gather(const Graph *graph, const Node *but) {
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        bool alike = !but || (node != but && type_equal(&node->types[0], &but->types[0]));
        if (is_gather(node) && node_is_once(node) && alike) return node;
    }
    return NULL;
}

/* One that is a group by itself. */
static void check_each_micro(void) {
    static const BrokenText CHANGE = {
        "all_gather(", ", once=1} : bf16[ffn=", "} : bf16[ffn=", "for each micro-batch"};
    Run run;
    check_begin("no gather writes over a copy for each micro-batch");
    if (plan(&run, &WIDE_CASE, true)) check_broken_text(&run, &CHANGE);
    run_close(&run);
    check_end();
}

static void check_swapped(void) {
    static const char *const SAYS[] = {"which is not its new value", "in place",
                                       "which is done once a step in chunk"};
    for (int i = 0; i < 3; i++) {
        Run run;
        check_begin("weights go over their own copies, and stay in their chunk");
        bool done = plan(&run, &CASES[i < 2 ? 0 : IN_CHUNKS], true);
        const Graph *graph = done ? run.plan->programs[0].graph : NULL;
        Node *a = NULL, *b = NULL;
        for (int n = 0; done && n < graph->n_nodes && !b; n++) {
            a = graph->nodes[n];
            if (is_gather(a) && node_is_once(a) && a->block == 0) b = find_gather(graph, a);
        }
        CHECK(!done || b, "no two alike");
        if (b && i < 2) {
            Value held = a->inputs[i]; /* shards, or copies, of each other */
            a->inputs[i] = b->inputs[i];
            b->inputs[i] = held;
        } else if (b) {
            Node *reader = graph->nodes[first_reader(graph, a)];
            reader->chunk = a->chunk - 1;
        }
        if (b) {
            CHECK(!verify_plan(run.plan, run.diag), "taken for sound");
            CHECK(strstr(diag_text(run.diag), SAYS[i]), "%s", diag_text(run.diag));
        }
        run_close(&run);
        check_end();
    }
}

/* A leaf is moved ahead of the node `to`. */
static void move_leaf(Program *program, int from, int to) {
    const Graph *graph = program->graph;
    size_t of_node = MAX_OUTPUTS * sizeof(Buffer);
    Node *leaf = graph->nodes[from];
    Buffer moved[MAX_OUTPUTS], *buffers = program->buffers;
    memcpy(moved, &buffers[from * MAX_OUTPUTS], of_node);
    for (int n = from; n > to; n--) {
        graph->nodes[n] = graph->nodes[n - 1];
        graph->nodes[n]->id = n;
        memcpy(&buffers[n * MAX_OUTPUTS], &buffers[(n - 1) * MAX_OUTPUTS], of_node);
    }
    graph->nodes[to] = leaf;
    leaf->id = to;
    memcpy(&buffers[to * MAX_OUTPUTS], moved, of_node);
}

/* By a chunk that runs before the one that gathers it. */
static void check_read_too_early(void) {
    Run run;
    check_begin("no weights of the step before are read");
    bool done = plan(&run, &CASES[IN_CHUNKS], true);
    Program *program = done ? &run.plan->programs[0] : NULL;
    Node *early = NULL, *late = NULL;
    for (int n = 0; done && n < program->graph->n_nodes && !late; n++) {
        Node *node = program->graph->nodes[n];
        if (!is_gather(node) || node->block != 0) continue;
        if (!early) early = node;
        if (node->chunk > early->chunk) late = node;
    }
    CHECK(!done || late, "no block of a second chunk");
    if (late) {
        Node *reader = program->graph->nodes[first_reader(program->graph, early)];
        Node *leaf = late->inputs[1].node;
        CHECK(type_equal(&early->types[0], &late->types[0]) && leaf->id > reader->id, "no such");
        for (int i = 0; i < reader->n_inputs; i++) {
            if (reader->inputs[i].node == early) reader->inputs[i] = late->inputs[1];
        }
        move_leaf(program, leaf->id, reader->id);
        CHECK(!verify_plan(run.plan, run.diag), "taken for sound");
        CHECK(strstr(diag_text(run.diag), "as the step before left it"), "%s", diag_text(run.diag));
    }
    run_close(&run);
    check_end();
}

int main(void) {
    check_plans();
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) check_bits(&CASES[i]);
    check_groups();
    check_beside_large();
    check_moved_readers();
    check_none();
    check_damage();
    check_each_micro();
    check_swapped();
    check_read_too_early();
    return check_report();
}
