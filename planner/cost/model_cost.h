/* Model costs: what a model's parts cost on one rank of a cluster, by how they are divided.
 *
 * A model is blocks of a few kinds (usually one), what comes before them (embedding) and what comes
 * after (final norm, head, loss). The forward graph is thinned to one block per kind, lowered by
 * the planner's own passes for a tensor degree, and every node is priced by its local sizes; so any
 * model that the front end can describe is priced, and by what would really run. The lowering is
 * done for one sequence, or for one in each lane: with b times as many, what has the batch axis
 * grows b-fold.
 *
 * Costs depend on (t, c, e, sequence parallel, recomputation, b, lanes) only; they are made when
 * first asked for and kept. Data, pipeline and chunk degrees are arithmetic on top (step_cost.h).
 */
#ifndef PLANNER_COST_MODEL_COST_H
#define PLANNER_COST_MODEL_COST_H

#include "ir/base/crew.h"
#include "planner/clusters/cluster.h"
#include "planner/cost/muon_cost.h"
#include "planner/cost/weight_shapes.h"
#include "planner/planner.h"

/* One phase (forward or backward) of one segment for one micro-batch on one rank. */
typedef struct PhaseCost {
    double us;            /* all of it: device or host, whichever is slower, and messages */
    double product_us;    /* of it: matrix products */
    double attention_us;  /* attention */
    double memory_us;     /* everything that is bound by memory */
    double collective_us; /* messages of axes t, c and e that nothing hides */
    double within_us;     /* of such messages what runs beside work of the same phase and part */
    double edge_us;       /* what a chunk's first and last block wait for besides, with lanes */
    double exchange_us;   /* all-to-alls of experts' rows, hidden or not */
    double beside_us;     /* of exchange_us, what costs nothing beside another micro-batch's work */
    double host_us;       /* what the host waits beyond the device */
    double flops;         /* of products and attention, as run (recomputation counted) */
    double collective_bytes; /* that axes t, c and e carry: whole tensors, summed */
    int n_ops, n_collectives;
} PhaseCost;

/* How a parameter is updated over the d data-parallel ranks. */
typedef enum UpdateKind {
    UPDATE_ALONE,      /* d is 1 */
    UPDATE_REDUCED,    /* gradients are summed over d */
    UPDATE_DIVIDED,    /* ZeRO-1: scattered, and parameters gathered */
    UPDATE_REPLICATED, /* the same, and shards summed over r */
    N_UPDATE_KINDS
} UpdateKind;

/* Of a segment's or stage's parameters those that e divides, which are the same over d alone. */
typedef struct ExpertWeights {
    int64_t n_weights, n_small, n_frozen;
    int64_t n_parameters, parameter_bytes, gradient_bytes, optimizer_bytes, offloaded_bytes;
    int64_t low_gradients, upper_bytes, frozen_bytes;
} ExpertWeights;

/* Bytes are of one rank. Gradients are counted in f32; of low_gradients of them, --gradients bf16
 * makes 2 bytes each where nothing is added to them: kept, if a step has one micro-batch, and sent,
 * with ZeRO-2 and 3 as well (lower_gradients.c). In 16 bits, a parameter that is multiplied by is a
 * master (f32) and a copy: ZeRO-1 divides the master as well as the optimizer's state. Copies that
 * --masters split makes halves of their masters, upper_bytes of parameter_bytes, take no memory
 * where both are divided alike. Frozen parameters are counted for themselves: only ZeRO-3 divides
 * them. */
typedef struct SegmentCost {
    PhaseCost forward, backward; /* backward includes what is recomputed */
    PhaseCost weights;           /* of a split layout: what backward then leaves to W */
    double model_flops;          /* one rank's share of forward + backward, nothing recomputed */
    int64_t kept_bytes;          /* one micro-batch's share of a frame */
    int64_t weights_bytes;       /* likewise of a split layout, from backward to weights */
    int64_t peak_bytes;          /* the most of it while the backward turns one into the other */
    int64_t scratch_bytes;       /* the most that lives within forward, backward or update */
    int64_t parameter_bytes;     /* that compute reads: whole on every rank of axis d */
    int64_t upper_bytes;
    int64_t gradient_bytes, low_gradients;
    int64_t optimizer_bytes; /* optimizer state and masters: what ZeRO-1 divides over d */
    int64_t offloaded_bytes; /* of them: in the host's memory */
    int64_t n_parameters;
    int64_t largest_weight;               /* parameters of the largest */
    int64_t of_shape[WEIGHT_SHAPES];      /* of these, by the layout's shapes */
    int64_t frozen_bytes, largest_frozen; /* of the largest: its bytes */
    ExpertWeights experts;                /* of these */
    int n_weights;                        /* that ZeRO divides: all but */
    int n_small;                          /* gains, biases and their like */
    int n_tensor;                         /* whose gradients are summed over t in the update */
    int n_frozen;                         /* that ZeRO-3 divides */
    double update_us;     /* the optimizer's, not divided over d, but for Muon's products: */
    double low_update_us; /* what of it gradients that are kept in bf16 save */
    MuonCost muon;
    int64_t norm_bytes; /* that LAMB reads beside its moments' and its step's memory */
    /* What the executor emits (count_calls.h): for each micro-batch, and once a step. */
    int micro_calls, update_calls[N_UPDATE_KINDS];
} SegmentCost;

/* Parameters of no block that blocks read: on every stage that has a reader of them, once. */
typedef struct SharedWeight {
    SegmentCost cost;   /* memory and update; nothing forward or backward */
    bool before, after; /* read it, too */
    int *n_readers;     /* [n_blocks + 1]: how many of the first blocks do */
} SharedWeight;

/* A chunk's frame is the most of what is kept and of what more its neediest part needs meanwhile;
 * backwards go from part to part, each turning what its forward kept into what its W reads. */
typedef struct FrameCost {
    int64_t kept, weights, kept_rise, weights_rise;
    int64_t host; /* of --offload activations: not in `kept` */
} FrameCost;
static inline void frame_cost_add(FrameCost *sum, const SegmentCost *segment, int count) {
    int64_t kept_rise = segment->peak_bytes - segment->kept_bytes;
    int64_t weights_rise = segment->peak_bytes - segment->weights_bytes;
    sum->kept += count * segment->kept_bytes;
    sum->weights += count * segment->weights_bytes;
    if (segment->peak_bytes > 0 && kept_rise > sum->kept_rise) sum->kept_rise = kept_rise;
    if (segment->peak_bytes > 0 && weights_rise > sum->weights_rise) {
        sum->weights_rise = weights_rise;
    }
}
static inline int64_t frame_cost_bytes(const FrameCost *of) {
    int64_t kept = of->kept + of->kept_rise, weights = of->weights + of->weights_rise;
    return kept > weights ? kept : weights;
}

typedef struct LayoutBound LayoutBound; /* step_bound.h */

typedef struct LayoutCost {
    bool priced; /* else there is nothing here yet but what it is, and its bounds */
    bool can_split;
    /* What a micro-batch takes in all blocks and both ends, and with its backward in two; 0: not
     * asked for (model_costs_time). */
    double work_us, split_work_us;
    const LayoutBound *bound, *split_bound; /* NULL: not known, or there is no such layout */
    const struct LayoutCost
        *split; /* the same with backwards in two; NULL: not asked for, or none */
    const struct OffloadCost
        *offload; /* of --offload activations; NULL: nothing goes (offload_cost.h) */
    int t, c, e, lanes, micro_batch;
    bool sequence_parallel;
    Recompute recompute;
    WeightShapes shapes;
    SegmentCost before, after;
    SegmentCost *kinds; /* [n_kinds] */
    SegmentCost tied;   /* of the parameters that before and after both count */
    int n_shared;
    SharedWeight *shared;             /* of neither segment: see shared_weights.h */
    int update_calls[N_UPDATE_KINDS]; /* every stage's, beside its parameters': the norm */
    int n_border_values;              /* that cross a pipeline border forward */
    int n_border_gradients;           /* and backward: fewer where some need none */
    int64_t border_padding_bytes;     /* of a slot for the former, beyond what is sent: all values
                                       * get as much room as the largest */
    int64_t border_bytes;             /* one micro-batch across it, one rank */
    /* Where documents begin, and end where attention is not causal: what so many nodes make anew in
     * every chunk, each as large as tokens, and what it keeps of each. */
    int n_documents;
    int64_t documents_bytes;
    int64_t workspace_bytes; /* of kernels and messages; part of no scratch_bytes */
    int64_t zero_bytes;      /* more of it where ZeRO-1 sends shards */
    int64_t input_bytes;     /* tokens and labels of one micro-batch, and scalars */
} LayoutCost;

typedef struct ModelCosts {
    const char *model;
    const Cluster *cluster;
    int n_blocks, n_kinds;
    int *kind_of_block; /* [n_blocks] */
    int64_t seq, vocab, n_parameters, n_trained;
    /* Of a checkpoint's tensors: weights in f32, and the optimizer's state. */
    int64_t saved_weight_bytes, saved_state_bytes;
    int64_t source;          /* what an encoder reads of a sample, beside seq; 0: there is none */
    int64_t n_experts;       /* that e can divide; 0: none */
    int offload_activations; /* percent of what blocks keep */
    bool has_pairs;          /* rows of the batch are pairs: micro-batches are even */
    bool is_random;          /* draws numbers in each micro-batch */
    double n_active_parameters; /* that a token meets: less where there are experts */
    double model_flops;         /* one sequence, forward + backward, whole model */
    struct ModelCostsCache *cache;
} ModelCosts;

/* What the cost of a layout depends on; splits: with its backwards in two as well. */
typedef struct LayoutKey {
    int t, c, e, micro_batch, lanes;
    bool sequence_parallel;
    Recompute recompute;
    bool splits;
} LayoutKey;

/* `request->forward` was built with a batch of 1; its options give precision, device and seed; mesh
 * and batch are ignored. NULL: reported. Kept in `arena`. Not thread-safe. */
ModelCosts *model_costs_create(Arena *arena, const PlanRequest *request, const Cluster *cluster,
                               Diag *diag);

/* Layouts without e are those of `alike`, whose request differs in what e=1 leaves alone
 * (parts_if_divided): what is known of them there is not made again. It has to last as long. */
void model_costs_share(ModelCosts *costs, const ModelCosts *alike);

/* NULL: the model cannot be divided like this; *out_reason says why (owned by `costs`). */
const LayoutCost *model_costs_at(ModelCosts *costs, int t, bool sequence_parallel,
                                 Recompute recompute, int micro_batch, const char **out_reason);
/* The same with c ranks that divide each sequence, and e that divide experts and the batch; b is a
 * rank's micro-batch, whose sequences are in so many lanes. */
const LayoutCost *model_costs_divided(ModelCosts *costs, int t, int c, int e,
                                      bool sequence_parallel, Recompute recompute, int micro_batch,
                                      int lanes, const char **out_reason);

/* Plans all these layouts at once, by a crew, and finds their bounds; a micro-batch is a multiple
 * of its lanes. */
void model_costs_plan(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew);
/* As model_costs_divided, but it need not be priced yet. can_split: if the key says `splits`. */
const LayoutCost *model_costs_place(ModelCosts *costs, const LayoutKey *key,
                                    const char **out_reason);
/* Prices such a layout now; with its backwards in two, too, if `splits`. */
void model_costs_price(ModelCosts *costs, const LayoutCost *layout, bool splits);

/* Finds out what these, which are planned, take, but for those that are priced: sooner than that.
 */
void model_costs_time(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew);

/* Makes the costs of all these layouts at once, likewise. The functions above and below then find
 * them. */
void model_costs_prepare(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew);

/* Sets layout->split of one that model_costs_at returned; with full recomputation there is none. */
void model_costs_split(ModelCosts *costs, const LayoutCost *layout);

#endif
