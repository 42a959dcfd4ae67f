#include "runtime/engine_norms.h"

#include "ir/gradient.h"
#include "ir/masters.h"
#include "ir/param_index.h"
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/halves.h"
#include "runtime/engine_internal.h"
#include "runtime/launch/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 18,  /* numbers looked at together */
    SAMPLE_RUNS = 16, /* a sample is so many stretches, evenly apart */
    RUN = NORM_SAMPLE / SAMPLE_RUNS,
    ITEMS_AT_ONCE = 256 /* whose sums a rank tells in one message */
};

/* Of what this process' ranks have of a parameter. */
typedef struct Sums {
    double weight, gradient, change;
} Sums;

/* A parameter that trains, in the program of its first stage. */
typedef struct Item {
    const Node *param, *square; /* square NULL: it has no gradient */
    int stage;
} Item;

struct EngineNorms {
    Engine *engine;
    int n;
    Item *items;          /* [n] */
    Sums *sums;           /* [n] */
    Sums *all;            /* [world * ITEMS_AT_ONCE], on the first of several processes */
    ParameterNorm *norms; /* [n] */
    float *samples;       /* of ranks, then items, as they come */
    float *room;          /* [PIECE] */
    uint16_t *halves;     /* [2 * PIECE]; NULL: no parameter is in halves */
    Arena *arena;
    bool begun;
};

static const Node *find_square(const Graph *graph, const Node *param) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *of = gradient_of_square(graph->nodes[n]);
        if (of && leaf_is_of(of, param)) return graph->nodes[n];
    }
    return NULL;
}

static int64_t local_count(const EngineNorms *norms, const Item *item) {
    const Node *param = item->param;
    const int64_t bytes =
        type_local_bytes(&param->types[0], &param->shardings[0], &norms->engine->plan->mesh);
    return bytes / dtype_bytes(param->types[0].dtype);
}

static bool has(const RankContext *rank, const Item *item) {
    return engine_is_local(rank) &&
           engine_owns(rank, item->stage, node_value((Node *)item->param, 0));
}

static int64_t sample_count(int64_t n) {
    return n < NORM_SAMPLE ? n : NORM_SAMPLE;
}

EngineNorms *engine_norms_create(Engine *engine) {
    Arena *arena = arena_create();
    EngineNorms *norms = ARENA_NEW(arena, EngineNorms);
    const LogicalList leaves = engine_list_leaves(engine, false);
    norms->engine = engine;
    norms->arena = arena;
    norms->items = ARENA_ARRAY(arena, Item, leaves.count);
    norms->norms = ARENA_ARRAY(arena, ParameterNorm, leaves.count);
    norms->sums = ARENA_ARRAY(arena, Sums, leaves.count);
    norms->room = ARENA_ARRAY(arena, float, PIECE);
    int64_t n_samples = 0;
    for (int i = 0; i < leaves.count; i++) {
        const Logical *leaf = &leaves.items[i];
        if (node_is_frozen(leaf->node)) continue;
        const Plan *plan = engine->plan;
        const Graph *graph = plan->programs[plan->stages[leaf->stage].program].graph;
        const Item item = {leaf->node, find_square(graph, leaf->node), leaf->stage};
        const bool split = master_upper(graph, leaf->node) != NULL;
        if (split && !norms->halves) norms->halves = ARENA_ARRAY(arena, uint16_t, 2 * PIECE);
        for (int r = 0; r < engine->n_ranks; r++) {
            if (has(&engine->ranks[r], &item)) n_samples += sample_count(local_count(norms, &item));
        }
        norms->norms[norms->n].name = leaf->name;
        norms->items[norms->n++] = item;
    }
    norms->samples = ARENA_ARRAY(arena, float, n_samples + 1);
    if (engine->control && engine->is_first) {
        norms->all = ARENA_ARRAY(arena, Sums, control_world(engine->control) * ITEMS_AT_ONCE);
    }
    return norms;
}

void engine_norms_destroy(EngineNorms *norms) {
    if (norms) arena_destroy(norms->arena);
}

/* Numbers [first, first + count) of what the rank has of a parameter of `n` there. */
static void load(EngineNorms *norms, const RankContext *rank, const Item *item, int64_t n,
                 int64_t first, int64_t count, float *out) {
    Engine *engine = norms->engine;
    const DType dtype = item->param->types[0].dtype;
    const unsigned char *at = executor_address(rank, node_value((Node *)item->param, 0), 0);
    if (!master_upper(rank->program->graph, item->param)) {
        const size_t from = (size_t)dtype_size(dtype, first);
        const void *numbers =
            engine->backend->view(engine, at + from, (size_t)dtype_size(dtype, count));
        weights_load(dtype, numbers, 0, out, count);
        return;
    }
    const size_t bytes = (size_t)count * sizeof(uint16_t);
    for (int half = 0; half < 2; half++) {
        const size_t from = (size_t)(half * n + first) * sizeof(uint16_t);
        memcpy(norms->halves + half * count, engine->backend->view(engine, at + from, bytes),
               bytes);
    }
    halves_join(norms->halves, count, 0, out, count);
}

/* So many numbers of a parameter's `n`, in their order -> out[sample_count(n)]. */
static void load_sample(EngineNorms *norms, const RankContext *rank, const Item *item, int64_t n,
                        float *out) {
    if (n <= NORM_SAMPLE) {
        load(norms, rank, item, n, 0, n, out);
        return;
    }
    for (int64_t i = 0; i < SAMPLE_RUNS; i++) {
        const int64_t first = i * (n - RUN) / (SAMPLE_RUNS - 1);
        load(norms, rank, item, n, first, RUN, out + i * RUN);
    }
}

void engine_norms_begin(EngineNorms *norms) {
    float *sample = norms->samples;
    for (int r = 0; r < norms->engine->n_ranks; r++) {
        const RankContext *rank = &norms->engine->ranks[r];
        for (int i = 0; i < norms->n; i++) {
            const Item *item = &norms->items[i];
            if (!has(rank, item)) continue;
            const int64_t n = local_count(norms, item);
            load_sample(norms, rank, item, n, sample);
            sample += sample_count(n);
        }
    }
    norms->begun = true;
}

/* The same sum however wide this machine's vectors are. */
static double sum_squares(const float *numbers, int64_t n) {
    enum { LANES = 16 };
    double sums[LANES] = {0}, sum = 0;
    int64_t at = 0;
    for (; at + LANES <= n; at += LANES) {
        for (int i = 0; i < LANES; i++) {
            const double x = numbers[at + i];
            sums[i] += x * x;
        }
    }
    for (; at < n; at++) sum += (double)numbers[at] * numbers[at];
    for (int i = 0; i < LANES; i++) sum += sums[i];
    return sum;
}

static double weight_squares(EngineNorms *norms, const RankContext *rank, const Item *item,
                             int64_t n) {
    double sum = 0;
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = n - at < PIECE ? n - at : PIECE;
        load(norms, rank, item, n, at, count, norms->room);
        sum += sum_squares(norms->room, count);
    }
    return sum;
}

static double change_squares(EngineNorms *norms, const RankContext *rank, const Item *item,
                             int64_t n, const float *before) {
    const int64_t count = sample_count(n);
    load_sample(norms, rank, item, n, norms->room);
    for (int64_t i = 0; i < count; i++) norms->room[i] -= before[i];
    return sum_squares(norms->room, count) * ((double)n / (double)count);
}

/* Is this the rank whose part of the sum counts, of those that have the same? */
static bool tells_square(const RankContext *rank, const Item *item) {
    const unsigned partial = item->square ? item->square->shardings[0].partial : 0;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        const int wanted = axis == MESH_P ? item->stage : 0;
        if (rank->coord.at[axis] != wanted && !(partial >> axis & 1)) return false;
    }
    return item->square && engine_is_local(rank);
}

static double gradient_squares(Engine *engine, const RankContext *rank, const Item *item) {
    float square;
    const void *at = executor_address(rank, node_value((Node *)item->square, 0), 0);
    memcpy(&square, engine->backend->view(engine, at, sizeof(square)), sizeof(square));
    return square;
}

static void sum_up(EngineNorms *norms) {
    Engine *engine = norms->engine;
    const float *sample = norms->samples;
    memset(norms->sums, 0, sizeof(*norms->sums) * (size_t)norms->n);
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *rank = &engine->ranks[r];
        for (int i = 0; i < norms->n; i++) {
            const Item *item = &norms->items[i];
            Sums *sums = &norms->sums[i];
            if (tells_square(rank, item)) sums->gradient += gradient_squares(engine, rank, item);
            if (!has(rank, item)) continue;
            const int64_t n = local_count(norms, item);
            sums->weight += weight_squares(norms, rank, item, n);
            if (norms->begun) sums->change += change_squares(norms, rank, item, n, sample);
            sample += sample_count(n);
        }
    }
}

/* What all processes have, on the first. False: the job failed. */
static bool add_others(EngineNorms *norms) {
    const Engine *engine = norms->engine;
    if (!engine->control) return true;
    const int world = control_world(engine->control);
    for (int first = 0; first < norms->n; first += ITEMS_AT_ONCE) {
        const int left = norms->n - first, count = left < ITEMS_AT_ONCE ? left : ITEMS_AT_ONCE;
        const size_t bytes = (size_t)count * sizeof(Sums);
        Sums *sums = &norms->sums[first];
        if (!control_gather(engine->control, sums, bytes, bytes, norms->all, NULL)) return false;
        for (int r = 1; engine->is_first && r < world; r++) {
            for (int i = 0; i < count; i++) {
                const Sums *part = &norms->all[r * count + i];
                sums[i].weight += part->weight;
                sums[i].gradient += part->gradient;
                sums[i].change += part->change;
            }
        }
    }
    return true;
}

bool engine_norms_end(EngineNorms *norms, double grad_norm, const ParameterNorm **out, int *out_n,
                      Diag *diag) {
    *out = norms->norms;
    *out_n = 0;
    sum_up(norms);
    if (engine_copy_failed(norms->engine, diag)) return false;
    if (!add_others(norms)) {
        engine_job_failed(norms->engine, diag);
        return false;
    }
    if (!norms->engine->is_first) {
        norms->begun = false;
        return true;
    }
    double total = 0;
    for (int i = 0; i < norms->n; i++) total += norms->sums[i].gradient;
    /* A loss scale may be another one by now, but all of them together are the gradients' norm. */
    const bool scaled = norms->engine->scales_loss && total > 0 && isfinite(total);
    const double scale = scaled && isfinite(grad_norm) ? grad_norm / sqrt(total) : 1;
    for (int i = 0; i < norms->n; i++) {
        const Sums *sums = &norms->sums[i];
        ParameterNorm *norm = &norms->norms[i];
        norm->weight = sqrt(sums->weight);
        norm->gradient = norms->items[i].square ? sqrt(sums->gradient) * scale : NAN;
        norm->change = norms->begun ? sqrt(sums->change) : NAN;
    }
    norms->begun = false;
    *out_n = norms->n;
    return true;
}
