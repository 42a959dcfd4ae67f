#include "planner/cost/step_bound.h"

#include <math.h>
#include <string.h>

/* Shares of weights are rounded (float). */
static const double ROUNDING = 1 - 1e-6;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A lowered program, and the segments' frames and scratch at another micro-batch. */
typedef struct Measure {
    const Graph *graph;
    const Lowered *lowered;
    const Buffer *buffers;
    int batch, n_more; /* the axis, and how many times as long it is */
} Measure;

static const Buffer *buffer_of(const Measure *m, Value value) {
    return &m->buffers[value.node->id * MAX_OUTPUTS + value.output];
}

static int64_t value_bytes(const Measure *m, Value value) {
    return value_bytes_of_batch(value, m->batch, m->n_more, &m->graph->mesh);
}

/* As count_memory and count_split_frames (layout_cost.c) have it: which values have a place of
 * their own in a frame depends on types and lives, and not on the size of a micro-batch. */
static void count_kept(const Measure *m, BlockBound *kinds) {
    int64_t frame_end = 0;
    for (int n = 0; n < m->graph->n_nodes; n++) {
        Node *node = m->graph->nodes[n];
        int segment = m->lowered->segment[n];
        for (int o = 0; o < node->n_outputs; o++) {
            const Buffer *buffer = buffer_of(m, node_value(node, o));
            if (buffer->region != REGION_FRAME) continue;
            if (m->lowered->split && node->phase != PHASE_FORWARD) continue;
            if (!m->lowered->split && buffer->offset_bytes < frame_end) continue;
            if (!m->lowered->split) frame_end = buffer->offset_bytes + buffer->bytes;
            if (buffer->class == CLASS_INPUT || segment < 0) continue;
            if (m->lowered->places.shared[n] >= 0) continue;
            kinds[segment].kept_bytes += value_bytes(m, node_value(node, o));
        }
    }
}

/* While a node runs its operands and results are there, those at once that do not share memory. */
static void count_scratch(const Measure *m, BlockBound *kinds) {
    enum { MOST = 16 };
    for (int n = 0; n < m->graph->n_nodes; n++) {
        Node *node = m->graph->nodes[n];
        int64_t offsets[MOST], bytes = 0;
        int segment = m->lowered->segment[n], n_seen = 0;
        if (segment < 0 || m->lowered->places.shared[n] >= 0) continue;
        for (int i = 0; i < node->n_inputs + node->n_outputs && n_seen < MOST; i++) {
            Value value =
                i < node->n_inputs ? node->inputs[i] : node_value(node, i - node->n_inputs);
            const Buffer *buffer = buffer_of(m, value);
            bool known = buffer->region != REGION_SCRATCH;
            for (int k = 0; k < n_seen && !known; k++) known = offsets[k] == buffer->offset_bytes;
            if (known) continue;
            offsets[n_seen++] = buffer->offset_bytes;
            bytes += value_bytes(m, value);
        }
        if (bytes > kinds[segment].scratch_bytes) kinds[segment].scratch_bytes = bytes;
    }
}

/* What ZeRO divides from which stage on: [0] states, [1] gradients, [2] weights. */
static void put_classes(int64_t out[N_BOUND_CLASSES], int64_t optimizer, int64_t gradient,
                        int64_t parameter) {
    out[0] = optimizer;
    out[1] = gradient;
    out[2] = parameter;
}

static void count_weights(const SegmentCost *segment, BlockBound *out) {
    const ExpertWeights *of = &segment->experts;
    const int64_t each = dtype_bytes(DTYPE_F32) - dtype_bytes(DTYPE_BF16);
    put_classes(out->weights[0], of->optimizer_bytes - of->offloaded_bytes, of->gradient_bytes,
                of->parameter_bytes - of->upper_bytes + of->frozen_bytes);
    put_classes(out->weights[1], segment->optimizer_bytes - segment->offloaded_bytes,
                segment->gradient_bytes,
                segment->parameter_bytes - segment->upper_bytes + segment->frozen_bytes);
    for (int i = 0; i < N_BOUND_CLASSES; i++) out->weights[1][i] -= out->weights[0][i];
    out->low[0] = each * of->low_gradients;
    out->low[1] = each * segment->low_gradients - out->low[0];
}

static void take_least(BlockBound *least, const BlockBound *of) {
    least->kept_bytes = smaller(least->kept_bytes, of->kept_bytes);
    least->scratch_bytes = smaller(least->scratch_bytes, of->scratch_bytes);
    for (int part = 0; part < N_BOUND_PARTS; part++) {
        for (int i = 0; i < N_BOUND_CLASSES; i++)
            least->weights[part][i] = smaller(least->weights[part][i], of->weights[part][i]);
        if (of->low[part] > least->low[part]) least->low[part] = of->low[part];
    }
}

const LayoutBound *layout_bound_make(const ModelCosts *costs, const Lowered *lowered, int n_more,
                                     Arena *arena) {
    const Program *program = &lowered->plan->programs[0];
    const Measure m = {program->graph, lowered, program->buffers,
                       axis_find(&program->graph->axes, "batch", 5), n_more};
    LayoutBound *bound = ARENA_NEW(arena, LayoutBound);
    BlockBound kinds[costs->n_kinds + 1];
    memset(kinds, 0, sizeof(kinds));
    count_kept(&m, kinds);
    count_scratch(&m, kinds);
    for (int b = 0; b < costs->n_blocks; b++) kinds[costs->kind_of_block[b]].n_blocks++;
    for (int k = 0; k < costs->n_kinds; k++) {
        BlockBound *of = &kinds[k];
        count_weights(&lowered->leaves->kinds[k], of);
        if (k == 0) bound->all = *of;
        take_least(&bound->all, of);
        bool more = of->n_blocks * of->kept_bytes > bound->kind.n_blocks * bound->kind.kept_bytes;
        if (k == 0 || more) bound->kind = *of;
    }
    bound->all.n_blocks = costs->n_blocks;
    bound->border_bytes =
        measure_border(program->graph, costs->n_kinds, m.batch, n_more, arena).bytes;
    return bound;
}

/* A block's weights on one rank: stage_weight_bytes (stage_weights.c) has no less. */
static double weight_bytes(const BlockBound *block, Replicas replicas, int most_zero, bool low) {
    double bytes = 0;
    for (int part = 0; part < N_BOUND_PARTS; part++) {
        int n_ranks = part == 0 ? replicas.experts : replicas.others;
        for (int i = 0; i < N_BOUND_CLASSES; i++) { /* 0, 1, 2: divided from ZeRO-1, 2, 3 on */
            double whole = (double)(block->weights[part][i] - (i == 1 && low ? block->low[part] : 0));
            bytes += most_zero > i && n_ranks > 1 ? whole / n_ranks : whole;
        }
    }
    return bytes * ROUNDING;
}

/* Of a stage's frames: so many times what its blocks keep, at least, of the three ways in which
 * chunks share slots (frames_of in step_cost.c); *out_lost: times a border, at most, that they have
 * less (frame_cost_add_borders).
 *
 * Chunk c keeps k n[c] and has F[c] slots; N are all chunks' together, N[but c] the others'. Each
 * alone: sum F[c] k n[c] >= min F k n. Together: N max k n[c] >= N k n / v. The largest, L, alone,
 * with x = n[L] and y the most of the others: F[L] x + N[but L] y is linear, on x >= y >= 0 and x +
 * (v - 1) y >= n least at a corner: (n, 0) or (n / v, n / v). */
static double least_slots(int schedule, const PipelineShape *shape, int stage, double *out_lost) {
    const Path path = shape_path(shape);
    int v = shape->n_chunks, last = shape->p * v - 1;
    double slots = INFINITY, all_alone = 0, most = 0;
    bool loses = false;
    for (int c = 0; c < v; c++) {
        double alone = schedule_frames(schedule, shape, stage, c);
        int g = path_global(path, stage, c);
        loses |= last > 0 && (g == 0 || path_turns(path, g - 1));
        all_alone += alone;
        slots = fmin(slots, alone);
        if (v == 1) continue;
        double others = schedule_frames_but(schedule, shape, stage, c);
        most = fmax(most, alone + others);
        slots = fmin(slots, (alone + others) / v);
    }
    double together = v > 1 ? schedule_frames_but(schedule, shape, stage, NO_CHUNK) : 0;
    *out_lost = loses ? fmax(fmax(all_alone, most), together) : 0;
    return v > 1 ? fmin(slots, together / v) : slots;
}

/* How many blocks there is room for beside base_bytes: no more than the model has. */
static double count_room(const BlockBound *of, double slots, double lost_bytes, double weights,
                         double base_bytes, double limit_bytes) {
    double room = limit_bytes - base_bytes - (double)of->scratch_bytes + lost_bytes;
    double each = weights + slots * (double)of->kept_bytes;
    if (room < 0) return 0;
    return each * of->n_blocks <= room ? of->n_blocks : floor(room / each);
}

bool step_may_fit(const ModelCosts *costs, const LayoutCost *layout, const Candidate *candidate,
                  int most_zero, double limit_bytes) {
    const LayoutBound *bound =
        schedule_splits(candidate->schedule) ? layout->split_bound : layout->bound;
    const PipelineShape shape = {candidate->p, candidate->n_chunks, candidate->n_micro,
                                 schedule_path(candidate->schedule)};
    if (!bound || costs->offload_activations) return true;
    const Replicas replicas = candidate_replicas_by_kind(candidate);
    bool low = candidate->n_micro == 1;
    double kind_weights = weight_bytes(&bound->kind, replicas, most_zero, low);
    double all_weights = weight_bytes(&bound->all, replicas, most_zero, low);
    double runtime = (double)runtime_least_bytes(costs->cluster), n_kind = 0, n_all = 0;
    for (int s = 0; s < shape.p; s++) {
        double lost, slots = least_slots(candidate->schedule, &shape, s, &lost);
        double base = runtime + (double)(step_border_slots(&shape, s) * bound->border_bytes);
        double lost_bytes = lost * (double)bound->border_bytes;
        n_kind += count_room(&bound->kind, slots, lost_bytes, kind_weights, base, limit_bytes);
        n_all += count_room(&bound->all, slots, lost_bytes, all_weights, base, limit_bytes);
        if (n_kind >= bound->kind.n_blocks && n_all >= bound->all.n_blocks) return true;
    }
    return false;
}
