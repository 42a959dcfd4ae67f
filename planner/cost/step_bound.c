#include "planner/cost/step_bound.h"

#include <math.h>

/* Shares of weights are rounded (float). */
static const double ROUNDING = 1 - 1e-6;

/* A block's weights on one rank: stage_weight_bytes (stage_weights.c) has no less. */
static double weight_bytes(const BlockBound *block, Replicas replicas, int most_zero, bool low) {
    double bytes = 0;
    for (int part = 0; part < N_BOUND_PARTS; part++) {
        int n_ranks = part == 0 ? replicas.experts : replicas.others;
        for (int i = 0; i < N_BOUND_CLASSES; i++) { /* 0, 1, 2: divided from ZeRO-1, 2, 3 on */
            double whole =
                (double)(block->weights[part][i] - (i == 1 && low ? block->low[part] : 0));
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
                         double base_bytes, double end_bytes, double limit_bytes) {
    double scratch = fmax((double)of->scratch_bytes, end_bytes);
    double room = limit_bytes - base_bytes - scratch + lost_bytes;
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
        bool has_end = s == path_stage(shape_path(&shape), shape.p * shape.n_chunks - 1);
        double end = has_end ? (double)bound->after_scratch : 0;
        if (base + end > limit_bytes) return false;
        double lost_bytes = lost * (double)bound->border_bytes;
        n_kind += count_room(&bound->kind, slots, lost_bytes, kind_weights, base, end, limit_bytes);
        n_all += count_room(&bound->all, slots, lost_bytes, all_weights, base, end, limit_bytes);
        if (n_kind >= bound->kind.n_blocks && n_all >= bound->all.n_blocks) return true;
    }
    return false;
}

static double segment_work_us(const SegmentCost *segment) {
    return segment->forward.us + segment->backward.us + segment->weights.us;
}

double layout_work_us(const ModelCosts *costs, const LayoutCost *layout) {
    double us = segment_work_us(&layout->before) + segment_work_us(&layout->after);
    for (int b = 0; b < costs->n_blocks; b++) {
        us += segment_work_us(&layout->kinds[costs->kind_of_block[b]]);
    }
    return us;
}
