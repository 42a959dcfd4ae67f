#include "planner/cost/layout_bound.h"

#include <string.h>

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

/* A piece of scratch: from node `first` to `last` what a value needs, or several in turn. Those
 * that live at one time lie beside each other, whatever their sizes are. */
typedef struct ScratchLife {
    Value value;
    int first, last;
} ScratchLife;

/* Of each segment's nodes: pieces that any of them reads or writes. */
struct ScratchLives {
    int *n; /* [segment + 2]: BEFORE is -2 */
    ScratchLife **of;
};

/* Pieces as the program has them. Values in one place that meet are one piece, as no two lie there
 * at once: the least of them stands for all. */
typedef struct PieceFinder {
    const Program *program;
    int *piece_of; /* by value */
    ScratchLife *pieces;
    int n_pieces;
} PieceFinder;

static int find_piece(PieceFinder *f, Value value, int last) {
    const Buffer *buffers = f->program->buffers;
    const Buffer *at = &buffers[value.node->id * MAX_OUTPUTS + value.output];
    for (int i = 0; i < value.node->n_inputs; i++) {
        Value in = value.node->inputs[i];
        const Buffer *from = &buffers[in.node->id * MAX_OUTPUTS + in.output];
        int piece = f->piece_of[in.node->id * MAX_OUTPUTS + in.output];
        if (from->region != REGION_SCRATCH || from->offset_bytes != at->offset_bytes) continue;
        if (piece < 0) continue;
        if (f->pieces[piece].last < last) f->pieces[piece].last = last;
        if (at->bytes < from->bytes) f->pieces[piece].value = value;
        return piece;
    }
    f->pieces[f->n_pieces] = (ScratchLife){value, value.node->id, last};
    return f->n_pieces++;
}

static void find_pieces(PieceFinder *f, Arena *work) {
    const Graph *graph = f->program->graph;
    int n_values = graph->n_nodes * MAX_OUTPUTS;
    int *last = ARENA_ARRAY(work, int, n_values + 1);
    f->piece_of = ARENA_ARRAY(work, int, n_values + 1);
    f->pieces = ARENA_ARRAY(work, ScratchLife, n_values + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++)
            last[node->inputs[i].node->id * MAX_OUTPUTS + node->inputs[i].output] = n;
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        for (int o = 0; o < node->n_outputs; o++) {
            int at = n * MAX_OUTPUTS + o;
            bool scratch = f->program->buffers[at].region == REGION_SCRATCH;
            int end = last[at] > n ? last[at] : n;
            f->piece_of[at] = scratch ? find_piece(f, node_value(node, o), end) : -1;
        }
    }
}

static void add_life(ScratchLives *lives, int segment, const ScratchLife *piece, int *seen) {
    if (*seen == segment) return;
    *seen = segment;
    lives->of[segment][lives->n[segment]++] = *piece;
}

const ScratchLives *scratch_lives_create(const Lowered *lowered, int n_kinds, Arena *arena) {
    enum { NONE = -1 };
    Arena *work = arena_create();
    PieceFinder f = {.program = &lowered->plan->programs[0]};
    const Graph *graph = f.program->graph;
    find_pieces(&f, work);
    ScratchLives *lives = ARENA_NEW(arena, ScratchLives);
    int n_segments = n_kinds + 2;
    int *seen = ARENA_ARRAY(work, int, n_segments *(f.n_pieces + 1));
    lives->n = ARENA_ARRAY(arena, int, n_segments);
    lives->of = ARENA_ARRAY(arena, ScratchLife *, n_segments);
    for (int i = 0; i < n_segments; i++) {
        lives->of[i] = ARENA_ARRAY(arena, ScratchLife, f.n_pieces + 1);
        for (int k = 0; k < f.n_pieces; k++) seen[i * f.n_pieces + k] = NONE;
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (lowered->places.shared[n] >= 0) continue;
        int segment = lowered->segment[n] + 2;
        for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
            Value value =
                i < node->n_inputs ? node->inputs[i] : node_value(node, i - node->n_inputs);
            int piece = f.piece_of[value.node->id * MAX_OUTPUTS + value.output];
            if (piece < 0) continue;
            add_life(lives, segment, &f.pieces[piece], &seen[segment * f.n_pieces + piece]);
        }
    }
    arena_destroy(work);
    return lives;
}

/* The most that lives at once: scratch has no less (count_memory). work: [n_nodes + 1] zeros, and
 * so it is left. */
static int64_t scratch_bytes(const Measure *m, int segment, int64_t *work) {
    const ScratchLives *lives = m->lowered->lives;
    int64_t now = 0, most = 0;
    for (int i = 0; i < lives->n[segment + 2]; i++) {
        const ScratchLife *life = &lives->of[segment + 2][i];
        int64_t bytes = value_bytes(m, life->value);
        work[life->first] += bytes;
        work[life->last + 1] -= bytes;
    }
    for (int n = 0; n <= m->graph->n_nodes; n++) {
        now += work[n];
        work[n] = 0;
        if (now > most) most = now;
    }
    return most;
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
    int64_t *work = ARENA_ARRAY(arena, int64_t, program->graph->n_nodes + 2);
    for (int k = 0; k < costs->n_kinds; k++) kinds[k].scratch_bytes = scratch_bytes(&m, k, work);
    bound->after_scratch = scratch_bytes(&m, SEGMENT_AFTER, work);
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
