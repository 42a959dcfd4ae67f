/* Offload cost: what copies of blocks' values to the host's memory and back (--offload activations)
 * cost a chunk, and what it keeps there.
 *
 * A block's copies are beside its neighbours' work, so a thin model with one block of each kind
 * does not show them: they are priced by two others (ThinModel's chains), of which one has two
 * blocks, as the shorter of the chunks that move anything, and one as many as it takes until more
 * of them need no more scratch. Everything else about blocks is as if all values stayed.
 */
#ifndef PLANNER_COST_OFFLOAD_COST_H
#define PLANNER_COST_OFFLOAD_COST_H

#include "planner/cost/model_cost.h"
#include "planner/cost/thin_model.h"

/* A chain has so many blocks of each run of one kind. */
enum { OFFLOAD_PAIR, OFFLOAD_CHAIN, N_OFFLOAD_CHAINS, OFFLOAD_CHAIN_BLOCKS = 4 };

/* Of a micro-batch, one block that is not its chunk's last. */
typedef struct OffloadBlock {
    int64_t host_bytes;   /* of what its backward reads */
    double own_us, in_us; /* one way: of what it made itself, and of what others did */
    double back_us;       /* from the first copy back to the backward's begin, so that no reader
                           * waits; may be less than 0 */
    int n_calls;
} OffloadBlock;

typedef struct OffloadCost {
    OffloadBlock first, *kinds;            /* the model's first, and others [n_kinds] */
    int64_t *pair_scratch, *chain_scratch; /* [n_kinds], in chunks of two blocks, and of more;
                                            * the former is 0 where kinds differ */
} OffloadCost;

/* What a chunk has of it, for each micro-batch. */
typedef struct OffloadChunk {
    double forward_us, backward_us; /* that its tasks wait for copies */
    int64_t host_bytes, scratch_bytes;
    int64_t n_calls;
} OffloadChunk;

/* Adds what a chain's plan says; n_more: of a micro-batch, for each sequence that it was planned
 * for. out->kinds and what scratch is of its chain are there, and zero. */
void offload_cost_price(const ModelCosts *costs, const Plan *plan, const ThinModel *chain,
                        int n_more, int which, OffloadCost *out);
OffloadCost *offload_cost_create(int n_kinds, Arena *arena);

/* Of blocks `first` to first + n_blocks - 1 of the model; begins, ends: so does the model. */
OffloadChunk offload_chunk(const ModelCosts *costs, const LayoutCost *layout, int first,
                           int n_blocks, bool begins, bool ends);

#endif
