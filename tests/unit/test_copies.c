/* engine_check_copies: ranks that hold the same weights, states and variables hold the same bits.
 *
 * Every bit pattern that two ranks have in common is damaged on one of them, leaf by leaf, under
 * layouts that divide them in all ways; who has what in common is found from shards here, not from
 * axes. Would catch: a leaf, a rank or a way of dividing that is left out; a rank taken for
 * another; parts that differ by right taken for copies; processes that come to different ends.
 */
#include "runtime/engine_internal.h"
#include "tests/unit/control_job.h"
#include "tests/unit/train_fixture.h"

static const ModelSetting GPT[] = {{"layers", "2"}, {"model", "8"}, {"heads", "2"},
                                   {"seq", "4"},    {"ffn", "16"},  {"vocab", "16"}};
static const ModelSetting MOE[] = {{"layers", "2"},      {"model", "8"},      {"heads", "2"},
                                   {"kv_heads", "2"},    {"seq", "4"},        {"vocab", "16"},
                                   {"experts", "4"},     {"ffn", "16"},       {"shared", "true"},
                                   {"expert_ffn", "8"},  {"shared_ffn", "8"}, {"bias", "true"},
                                   {"scores", "sigmoid"}};

typedef struct Case {
    const char *name, *path;
    const ModelSetting *settings;
    int n_settings;
    Layout layout;
    int zero, context, experts, replicas;
    DType precision;
} Case;

#define GPT_MODEL "models/gpt.lua", GPT, 6
static const Case CASES[] = {
    {"t=2 d=2 p=2, tied weights",
     GPT_MODEL,
     {2, 2, 2, 1, 1, "1f1b", false, NULL, 0},
     0,
     1,
     1,
     1,
     DTYPE_F32},
    {"t=2 d=2, sequence-parallel, bf16",
     GPT_MODEL,
     {2, 2, 1, 1, 1, "1f1b", true, NULL, 0},
     0,
     1,
     1,
     1,
     DTYPE_BF16},
    {"d=3, three copies",
     GPT_MODEL,
     {1, 3, 1, 1, 1, "1f1b", false, NULL, 0},
     0,
     1,
     1,
     1,
     DTYPE_F32},
    {"t=2 d=2 p=2, ZeRO-1",
     GPT_MODEL,
     {2, 2, 2, 1, 1, "1f1b", false, NULL, 0},
     1,
     1,
     1,
     1,
     DTYPE_BF16},
    {"t=2 d=2, ZeRO-2", GPT_MODEL, {2, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 2, 1, 1, 1, DTYPE_F32},
    {"t=2 d=2, ZeRO-3", GPT_MODEL, {2, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 3, 1, 1, 1, DTYPE_F32},
    {"d=2 r=2, ZeRO-3 twice",
     GPT_MODEL,
     {1, 2, 1, 1, 1, "1f1b", false, NULL, 0},
     3,
     1,
     1,
     2,
     DTYPE_F32},
    {"c=2 d=2", GPT_MODEL, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 0, 2, 1, 1, DTYPE_F32},
    {"e=2 d=2, experts",
     "models/moe.lua",
     MOE,
     13,
     {1, 2, 1, 1, 1, "1f1b", false, NULL, 0},
     0,
     1,
     2,
     1,
     DTYPE_F32},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]), STEPS = 2, WORLD = 4 };

static bool start(Run *run, const Case *c) {
    run_zero = c->zero;
    run_context = c->context;
    run_experts = c->experts;
    run_replicas = c->replicas;
    run_precision = c->precision;
    const int batch = 2 * c->layout.d * c->experts * c->replicas;
    return run_plan(run, c->path, c->settings, c->n_settings, &c->layout, batch, false) &&
           run_start(run) && run_steps(run, STEPS, 1e-2);
}

static bool is_same_part(const Shard *a, const Shard *b) {
    bool same = a->local.rank == b->local.rank;
    for (int i = 0; same && i < a->local.rank; i++) {
        same = a->local.dims[i] == b->local.dims[i] &&
               memcmp(&a->span[i], &b->span[i], sizeof(a->span[i])) == 0;
    }
    return same;
}

/* How many ranks have it: the same part of what has this name. */
static int count_holders(const Engine *engine, const RankContext *rank, const Node *leaf,
                         Arena *arena) {
    const Shard own = engine_leaf_shard(rank, leaf);
    const char *name = engine_logical_name(rank, leaf, arena);
    int count = 0;
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *other = &engine->ranks[r];
        const Graph *graph = other->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (!engine_is_lasting(node) ||
                strcmp(engine_logical_name(other, node, arena), name) != 0) {
                continue;
            }
            const Shard shard = engine_leaf_shard(other, node);
            count += is_same_part(&own, &shard);
        }
    }
    return count;
}

static unsigned char *last_byte(const RankContext *rank, const Node *leaf) {
    const int64_t bytes = type_local_bytes(&leaf->types[0], &leaf->shardings[0], &rank->plan->mesh);
    return (unsigned char *)executor_address(rank, node_value((Node *)leaf, 0), 0) + bytes - 1;
}

/* Turns one bit over; all must be as before at the end. */
static void damage(Run *run, const RankContext *rank, const Node *leaf) {
    const char *name = engine_logical_name(rank, leaf, run->arena);
    const int n_holders = count_holders(run->engine, rank, leaf, run->arena);
    Diag *diag = diag_create();
    *last_byte(rank, leaf) ^= 0x10;
    const bool alike = engine_check_copies(run->engine, STEPS, diag);
    *last_byte(rank, leaf) ^= 0x10;
    const char *said = diag_text(diag);
    CHECK(alike == (n_holders == 1), "%s of rank %d, held by %d: found %s", name, rank->rank,
          n_holders, alike ? "alike" : said);
    if (!alike) {
        char quoted[128], number[32];
        snprintf(quoted, sizeof(quoted), "of '%s'", name);
        snprintf(number, sizeof(number), "rank %d and ranks", rank->rank);
        CHECK(strstr(said, "step 2: ") && strstr(said, quoted), "%s: said %s", name, said);
        CHECK(n_holders == 2 || (strstr(said, number) && strstr(said, "who are the most")),
              "%s of rank %d, held by %d: said %s", name, rank->rank, n_holders, said);
    }
    diag_destroy(diag);
}

static void test_case(const Case *c) {
    Run run;
    check_begin(c->name);
    if (!start(&run, c)) {
        CHECK(false, "%s", diag_text(run.diag));
        run_close(&run);
        return;
    }
    CHECK(engine_check_copies(run.engine, STEPS, run.diag), "%s", diag_text(run.diag));
    for (int r = 0; r < run.engine->n_ranks; r++) {
        const RankContext *rank = &run.engine->ranks[r];
        const Graph *graph = rank->program->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (engine_is_lasting(graph->nodes[n])) damage(&run, rank, graph->nodes[n]);
        }
    }
    CHECK(engine_check_copies(run.engine, STEPS, run.diag), "%s", diag_text(run.diag));
    run_close(&run);
}

/* --- several processes --- */

static const Case PROCESSES = {"", GPT_MODEL, {2, 2, 1, 1, 1, "1f1b", false, NULL, 0}, 0, 1, 1,
                               1,  DTYPE_F32};

/* The only process that has this rank: of the others it has no memory. */
static void keep_rank(Engine *engine, int rank, unsigned char *memory[WORLD]) {
    for (int r = 0; r < WORLD; r++) {
        memory[r] = engine->ranks[r].memory;
        if (r != rank) engine->ranks[r].memory = NULL;
    }
    engine->is_first = rank == 0;
}

/* A norm's gain, which all four have: rank 2's is another one. */
static void spoil(const RankContext *rank) {
    const Graph *graph = rank->program->graph;
    Arena *arena = arena_create();
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_PARAM &&
            strcmp(engine_logical_name(rank, node, arena), "blocks.1.ln2.gain") == 0) {
            *last_byte(rank, node) ^= 1;
        }
    }
    arena_destroy(arena);
}

static bool compare_processes(Job *job, int rank, char said[SAID_BYTES]) {
    Run run;
    unsigned char *memory[WORLD];
    bool fine = start(&run, &PROCESSES);
    Control *control = join(job, rank, said);
    if (!fine || !control) return false;
    Engine *engine = run.engine;
    keep_rank(engine, rank, memory);
    engine->control = control;
    const bool before = engine_check_copies(engine, 1, run.diag);
    if (rank == 2) spoil(&engine->ranks[rank]);
    const bool after = engine_check_copies(engine, 2, run.diag);
    snprintf(said, SAID_BYTES, "%d %d %s", before, after, diag_text(run.diag));
    for (int r = 0; r < WORLD; r++) engine->ranks[r].memory = memory[r];
    engine->control = NULL;
    run_close(&run);
    const bool closed = control_close(control);
    control_destroy(control);
    return closed;
}

static void test_processes(void) {
    check_begin("four processes");
    Job job = job_create(WORLD, compare_processes);
    job.options.connect_s = job.options.operation_s = job.options.lost_s = 60; /* busy machines */
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
    for (int r = 0; r < WORLD; r++) {
        check_said(&job, r, "1 0 ");
        check_said(&job, r,
                   "step 2: rank 2 (host-2) and ranks 0-1, 3, who are the most, hold "
                   "different numbers of 'blocks.1.ln2.gain'");
    }
}

int main(void) {
    test_processes();
    for (int i = 0; i < N_CASES; i++) test_case(&CASES[i]);
    return check_report();
}
