/* What one lowered program costs: time, FLOPs, memory and messages of each part of the model, for a
 * micro-batch of any size. model_cost.c lowers programs and keeps what they cost.
 */
#ifndef PLANNER_COST_LAYOUT_COST_H
#define PLANNER_COST_LAYOUT_COST_H

#include "planner/cost/shared_weights.h"

typedef struct ScratchLives ScratchLives; /* layout_bound.h */

/* A program lowered for one sequence, and which segment each of its nodes belongs to. */
typedef struct Lowered {
    int t, c, e, lanes;
    bool sequence_parallel, zero, split; /* zero: over two ranks of d; split: backwards in two */
    int offload; /* a chain of which activations go to the host: OFFLOAD_*, + 1; 0: none */
    Recompute recompute;
    const Plan *plan; /* NULL: cannot be */
    const char *reason;
    int *segment; /* by node id of the program: SEGMENT_*, or the kind of block */
    LeafPlaces places;
    const ScratchLives *lives; /* as leaves */
    struct CachedCost *costs;  /* of model_cost.c: what was asked for of it */
    int64_t data_bytes;        /* what messages over d are packed in */
    LayoutCost *leaves; /* parameters of its parts, and what belongs to them; once `priced` what a
                         * step emits for them, too; of those with zero: NULL */
} Lowered;

/* The graph with b times as many sequences, in `arena`. */
Graph *graph_scale_batch(const Graph *graph, int b, Arena *arena);

/* A copy of a graph that is for one number of sequences after the other; zero: of none yet. */
typedef struct BatchScaler {
    const Graph *of;
    Arena *arena;
    Graph *graph;
    int64_t **dims, *lengths; /* of axis `batch` in it; as they were */
    int n;
} BatchScaler;
/* As graph_scale_batch, in the scaler; good until the next. */
Graph *batch_scaler_graph(BatchScaler *scaler, const Graph *of, int b);
void batch_scaler_end(BatchScaler *scaler);

/* A value's bytes on one rank, were axis `batch` so many times as long. */
int64_t value_bytes_of_batch(Value value, int batch, int n_more, const Mesh *mesh);

/* What crosses from one block to the next, forward, likewise. */
typedef struct Crossing {
    int64_t bytes, largest;
    int n_values;
} Crossing;
Crossing measure_border(const Graph *graph, int n_kinds, int batch, int n_more, Arena *arena);

/* The part of `out` that a node of the program belongs to. */
SegmentCost *lowered_segment(const Lowered *lowered, int node, LayoutCost *out);

/* What lowered->leaves is. */
LayoutCost *layout_cost_count_parameters(const Lowered *lowered, int n_kinds, Arena *arena);

/* Fills in what a micro-batch of out->micro_batch sequences costs; out->kinds and out->shared are
 * there, with room for all, and zero. mask_elements: of dropout, by kind; then before and after. */
void layout_cost_price(const ModelCosts *costs, const Lowered *lowered, BatchScaler *scaler,
                       const double *mask_elements, LayoutCost *out);

/* Of the same only what forward, backward and weights take. */
void layout_cost_time(const ModelCosts *costs, const Lowered *lowered, BatchScaler *scaler,
                      LayoutCost *out);

/* What recomputes is compared with what does not: the model's FLOPs are the latter's, and there is
 * software that runs the whole forward of a block again. */
void layout_cost_compare(const ModelCosts *costs, const LayoutCost *none, LayoutCost *out);

#endif
