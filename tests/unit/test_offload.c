/* States, masters and activations in the host's memory (--offload): which are, how many of them,
 * that exactly their bytes leave the arena, that no bit of training changes under any layout or
 * optimizer, nor of a checkpoint, whichever way it was written and is read, and that plans are
 * refused which let anything but the update touch what lies there.
 *
 * Would catch: a leaf on the host that a product, message or norm reads; a state that stays on the
 * device though its parameter's others went; a share other than was asked for; leaves that overlap
 * on the host; one that is initialised, saved, loaded or reported at its old place; a plan's text
 * that forgets the region; a price that does not know of the bus, or of a node's memory. Of
 * activations: a value that is read before it is back, or whose place is taken before it is away;
 * frames of two micro-batches in one place; a value that goes and is kept, too.
 */
#include "frontend/lua/cluster_read.h"
#include "planner/cost/cost.h"
#include "planner/plan/offload.h"
#include "planner/simulate/simulate.h"
#include "planner/verify/verify.h"
#include "tests/unit/broken_text.h"
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

/* --- activations --- */

typedef struct ActivationCase {
    LayoutCase at;
    const char *path, *layers;
    int percent, states, context;
    DType precision;
} ActivationCase;

static bool plan_activations(Run *run, const ActivationCase *c, int percent, bool text) {
    const bool wide = c->precision == DTYPE_FP8; /* whole blocks of 128 */
    const ModelSetting settings[] = {
        {"optimizer.eps", "1e-6"}, {"model", wide ? "128" : "32"}, {"heads", "4"},
        {"vocab", "64"},           {"seq", wide ? "128" : "16"},   {"layers", c->layers},
        {"dropout", "0.1"},        {"ffn", wide ? "128" : "72"}};
    run_recompute = c->at.recompute;
    run_zero = c->at.zero;
    run_context = c->context;
    run_offload = c->states;
    run_offload_activations = percent;
    bool fine = run_plan_for(run, c->path, settings, sizeof(settings) / sizeof(settings[0]),
                             &c->at.layout, GLOBAL_BATCH, text, true, c->precision);
    run_recompute = RECOMPUTE_NONE;
    run_zero = run_offload = run_offload_activations = 0;
    run_context = 1;
    return fine;
}

static int64_t frames_of(const Plan *plan, int stage, bool host) {
    const Stage *s = &plan->stages[stage];
    int64_t sum = 0;
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        sum += s->frame_slots[pool] *
               (host ? plan_host_slot_bytes(plan, s, pool) : plan_slot_bytes(plan, s, pool));
    }
    return sum;
}

/* What frames lose is on the host, but for what the pools of several chunks round up. */
static void compare_frames(const Plan *far, const Plan *near) {
    int64_t moved = 0;
    for (int s = 0; s < far->n_stages; s++) {
        int64_t host = frames_of(far, s, true);
        int64_t less = frames_of(near, s, false) - frames_of(far, s, false);
        CHECK(far->n_chunks > 1 || less == host,
              "stage %d: frames have %lld bytes less, %lld on the "
              "host",
              s, (long long)less, (long long)host);
        CHECK(plan_host_frames_bytes(far, &far->stages[s]) == host, "stage %d", s);
        moved += host;
    }
    CHECK(moved > 0, "nothing is on the host");
}

static const ActivationCase ACTIVATIONS[] = {
    {{{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
     "models/gpt.lua",
     "4",
     100,
     0,
     1,
     DTYPE_BF16},
    {{{2, 2, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_SELECTIVE, 3},
     "models/llama.lua",
     "4",
     100,
     100,
     1,
     DTYPE_BF16},
    {{{1, 1, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 0},
     "models/gpt.lua",
     "5",
     100,
     0,
     1,
     DTYPE_F32},
    {{{2, 1, 2, 2, 2, "interleaved", true, NULL, 0}, RECOMPUTE_NONE, 0},
     "models/gpt.lua",
     "8",
     60,
     0,
     1,
     DTYPE_F32},
    {{{1, 2, 2, 2, 1, "gpipe", false, NULL, 0}, RECOMPUTE_SELECTIVE, 1},
     "models/llama.lua",
     "5",
     100,
     50,
     1,
     DTYPE_F32},
    {{{2, 1, 1, 8, 1, "1f1b", true, NULL, 0}, RECOMPUTE_FULL, 0},
     "models/llama.lua",
     "4",
     100,
     0,
     2,
     DTYPE_BF16},
    {{{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
     "models/gpt.lua",
     "2",
     100,
     0,
     1,
     DTYPE_FP8},
};
enum { N_ACTIVATIONS = sizeof(ACTIVATIONS) / sizeof(ACTIVATIONS[0]) };

static void test_activations(const ActivationCase *c) {
    const int n_steps = c->precision == DTYPE_FP8 ? 2 : STEPS; /* of a wider model */
    char title[200];
    Run run, other;
    int length = snprintf(title, sizeof(title), "%d %% of what blocks keep, %s, ", c->percent,
                          dtype_name(c->precision));
    run_recompute = c->at.recompute, run_zero = c->at.zero, run_context = c->context;
    layout_name(c->path, &c->at.layout, title + length, sizeof(title) - (size_t)length);
    check_begin(title);
    bool done = plan_activations(&run, c, c->percent, true) && run_start(&run) &&
                run_steps(&run, n_steps, 2e-3);
    done = plan_activations(&other, c, 0, false) && run_start(&other) &&
           run_steps(&other, n_steps, 2e-3) && done;
    CHECK(done, "%s%s", diag_text(run.diag), diag_text(other.diag));
    if (done) {
        compare_to_the_bit(&run, &other, 0, n_steps);
        compare_memory(&run);
        compare_frames(run.plan, other.plan);
    }
    run_close(&run);
    run_close(&other);
    check_end();
}

/* Half of each block's bytes, to half of its smallest value. */
static void test_activation_share(void) {
    Run all, half;
    check_begin("a share of what blocks keep");
    bool fine = plan_activations(&all, &ACTIVATIONS[0], 100, false);
    fine = plan_activations(&half, &ACTIVATIONS[0], 50, true) && fine;
    CHECK(fine, "%s%s", diag_text(all.diag), diag_text(half.diag));
    if (fine) {
        double share = (double)frames_of(half.plan, 0, true) / (double)frames_of(all.plan, 0, true);
        CHECK(share > 0.4 && share < 0.6, "%.3f of the bytes", share);
        CHECK(half.plan->offload_activations == 50, "the plan says %d",
              half.plan->offload_activations);
        CHECK(plan_host_bytes(half.plan, &half.plan->stages[0]) == frames_of(half.plan, 0, true),
              "states are there, too");
    }
    run_close(&all);
    run_close(&half);
    check_end();
}

/* Plans that cannot be. */
static void test_no_activations(void) {
    static const struct {
        ActivationCase of;
        const char *name, *expected;
    } CASES[] = {
        {{{{1, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, RECOMPUTE_NONE, 0},
          "models/gpt.lua",
          "4",
          100,
          0,
          1,
          DTYPE_F32},
         "no activations with backwards in two",
         "--offload activations with schedule zb-h1"},
        {{{{1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, RECOMPUTE_NONE, 0},
          "models/gpt.lua",
          "4",
          100,
          0,
          1,
          DTYPE_F32},
         "nor of the only block of a chunk",
         "nothing goes: the last block of each chunk keeps its values"},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        Run run;
        check_begin(CASES[k].name);
        bool fine = plan_activations(&run, &CASES[k].of, 100, false);
        CHECK(!fine && strstr(diag_text(run.diag), CASES[k].expected), "not said: %s; but: %s",
              CASES[k].expected, diag_text(run.diag));
        run_close(&run);
        check_end();
    }
}

/* The k-th node of an op, from 0. */
static Node *find_op(const Plan *plan, OpKind op, int k) {
    const Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == op && k-- == 0) return graph->nodes[n];
    }
    BUG("no %s", OPS[op].name);
}

static Buffer *result_of(const Plan *plan, const Node *node) {
    return &plan->programs[0].buffers[node->id * MAX_OUTPUTS];
}

typedef enum FrameDamage {
    NEVER_GONE,
    NO_COPY,
    OTHER_CHUNK,
    ONE_PLACE,
    OVER_ANOTHER,
    FRAME_TOO_SHORT,
    FRAME_ODD,
    FRAME_HUGE,
    READ_THERE,
    FETCHED_NEAR,
    FETCHED_BY_OTHERS,
    N_FRAME_DAMAGES
} FrameDamage;

/* A node that reads what is fetched. */
static Node *reader_of(const Plan *plan, const Node *fetch) {
    const Graph *graph = plan->programs[0].graph;
    for (int n = fetch->id + 1; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->nodes[n]->n_inputs; i++) {
            if (graph->nodes[n]->inputs[i].node == fetch) return graph->nodes[n];
        }
    }
    BUG("nothing reads what is fetched");
}

static void damage_frame(const Plan *plan, FrameDamage how) {
    Program *program = &plan->programs[0];
    Node *gone = find_op(plan, OP_OFFLOAD, 0), *other = find_op(plan, OP_OFFLOAD, 1),
         *back = find_op(plan, OP_FETCH, 0), *next = find_op(plan, OP_FETCH, 1);
    switch (how) {
    case NEVER_GONE: result_of(plan, gone)->region = REGION_FRAME; break;
    case NO_COPY: result_of(plan, gone->inputs[0].node)->region = REGION_HOST_FRAME; break;
    case OTHER_CHUNK: result_of(plan, gone)->chunk = 1; break;
    case ONE_PLACE:
        result_of(plan, other)->offset_bytes = result_of(plan, gone)->offset_bytes;
        break;
    case OVER_ANOTHER:
        result_of(plan, next)->offset_bytes = result_of(plan, back)->offset_bytes;
        break;
    case FRAME_TOO_SHORT: program->host_frame_bytes[0] -= ALIGN_BYTES; break;
    case FRAME_ODD: program->host_frame_bytes[0] += 8; break;
    case FRAME_HUGE: program->host_frame_bytes[0] = INT64_MAX / ALIGN_BYTES * ALIGN_BYTES; break;
    case READ_THERE: {
        Node *reader = reader_of(plan, back);
        for (int i = 0; i < reader->n_inputs; i++) {
            if (reader->inputs[i].node == back) reader->inputs[i] = back->inputs[0];
        }
        break;
    }
    case FETCHED_NEAR: back->inputs[0] = back->inputs[0].node->inputs[0]; break;
    default:
        for (int k = 0; other->chunk == back->chunk; k++) other = find_op(plan, OP_OFFLOAD, k);
        back->inputs[0] = node_value(other, 0);
    }
}

static void test_activations_refused(void) {
    static const struct {
        FrameDamage how;
        const char *name, *expected;
    } CASES[] = {
        {NEVER_GONE, "a copy that stays", "is to lie in the host's memory, and does not"},
        {NO_COPY, "a product's result in the host's frames", "and is no copy"},
        {OTHER_CHUNK, "a copy in another chunk's frame", "goes to a frame of chunk 1"},
        {ONE_PLACE, "two copies in one place", "of host_frame, alive together"},
        {OVER_ANOTHER, "one fetched over another", "of scratch, alive together"},
        {FRAME_TOO_SHORT, "a copy beyond the frame", "are outside its region: host_frame has"},
        {FRAME_ODD, "a frame of odd size", "is no multiple of 256 bytes"},
        {FRAME_HUGE, "frames that no machine has", "in the host's memory: too many"},
        {READ_THERE, "a copy that is read where it is", "is in the host's memory"},
        {FETCHED_NEAR, "a value fetched that never went", "is not in the host's memory"},
        {FETCHED_BY_OTHERS, "one that another chunk fetches", "is its chunk's backward's"},
    };
    static const ActivationCase
        gpipe = {{{1, 1, 1, 4, 1, "gpipe", false, NULL, 0}, RECOMPUTE_NONE, 0},
                 "models/gpt.lua",
                 "4",
                 100,
                 0,
                 1,
                 DTYPE_F32},
        chunks = {{{1, 1, 2, 4, 2, "interleaved", false, NULL, 0}, RECOMPUTE_FULL, 0},
                  "models/gpt.lua",
                  "8",
                  100,
                  0,
                  1,
                  DTYPE_F32};
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        Run run;
        check_begin(CASES[k].name);
        bool others = CASES[k].how == FETCHED_BY_OTHERS;
        bool fine = plan_activations(&run, others ? &chunks : &gpipe, 100, true);
        CHECK(fine, "%s", diag_text(run.diag));
        if (fine) {
            damage_frame(run.plan, CASES[k].how);
            check_broken_plan(run.plan, CASES[k].expected);
        }
        run_close(&run);
        check_end();
    }
}

/* A task is as long as its copies where the bus is slow, and no longer than without where it is
 * fast; on a processor, where nothing is beside it, their sum. */
static void test_activation_price(void) {
    Run far, near;
    double us[4] = {0};
    check_begin("copies to the host have their price");
    bool fine = plan_activations(&far, &ACTIVATIONS[0], 100, false);
    fine = plan_activations(&near, &ACTIVATIONS[0], 0, false) && fine;
    CHECK(fine, "%s%s", diag_text(far.diag), diag_text(near.diag));
    if (fine) {
        Cluster cluster = *cluster_read(far.arena, "h100-dgx", NULL, far.diag);
        double moved = (double)frames_of(far.plan, 0, true);
        for (int k = 0; k < 4; k++) {
            cluster.node.host_bytes_per_second = k == 1 ? 1e15 : 1e5;
            cluster.node.host_fraction = 1;
            Device device = device_of_cluster(&cluster, DTYPE_BF16);
            if (k == 3) device.cluster = NULL;
            ProgramCost cost = cost_program(k ? far.plan : near.plan, 0, &device, far.arena);
            us[k] = cost.forward[0].us;
        }
        double bus_us = moved / 1e5 * 1e6;
        CHECK(us[1] >= us[0] && us[1] < 1.01 * us[0], "%.1f us with a fast bus, %.1f without",
              us[1], us[0]);
        CHECK(us[2] > 0.95 * bus_us && us[2] < bus_us + us[0] && us[3] > us[2],
              "%.1f us with a slow bus, which takes %.1f; %.1f one by one", us[2], bus_us, us[3]);
    }
    run_close(&far);
    run_close(&near);
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
            damage(run.plan, CASES[k].how);
            check_broken_plan(run.plan, CASES[k].expected);
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
    } KINDS[] = {{"adamw", 2e-3}, {"lion", 3e-4}, {"sgd", 0.05},
                 {"lamb", 5e-3},  {"muon", 2e-3}, {"ademamix", 2e-3}};
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
    const int n = VARIANT_STEP > 1 ? N_ACTIVATIONS - 1 : N_ACTIVATIONS; /* the last is wide: slow */
    for (int i = 0; i < n; i += VARIANT_STEP) test_activations(&ACTIVATIONS[i]);
    test_activation_share();
    test_no_activations();
    test_activations_refused();
    test_activation_price();
    return check_report();
}
