/* Copies of a chunk's blocks beside its work: the same three streams as copy_clock.h's, block by
 * block.
 */
#include "planner/cost/offload_cost.h"

#include <math.h>

/* Blocks of a chunk. */
typedef struct OffloadWay {
    const ModelCosts *costs;
    const LayoutCost *layout;
    int first, n_blocks;
} OffloadWay;

static const SegmentCost *segment_at(const OffloadWay *way, int i) {
    return &way->layout->kinds[way->costs->kind_of_block[way->first + i]];
}

static const OffloadBlock *block_at(const OffloadWay *way, int i) {
    static const OffloadBlock STAYS = {.back_us = -INFINITY};
    const OffloadCost *offload = way->layout->offload;
    if (i + 1 >= way->n_blocks) return &STAYS;
    bool first = way->first + i == 0;
    return first ? &offload->first : &offload->kinds[way->costs->kind_of_block[way->first + i]];
}

/* What goes out behind a block: what it made, for itself and the next one, and what the chunk's
 * first was given. Before the next block's go, these have to be away (copy_clock.h). */
static double forward_waits_us(const OffloadWay *way, double before_us, double after_us) {
    double us = before_us, work_us = before_us + after_us, away_us = 0;
    for (int i = 0; i < way->n_blocks; i++) {
        double out_us = block_at(way, i)->own_us + block_at(way, i + 1)->in_us;
        if (i == 0) out_us += block_at(way, 0)->in_us;
        us += segment_at(way, i)->forward.us;
        work_us += segment_at(way, i)->forward.us;
        if (out_us > 0) away_us = us = fmax(us, away_us);
        away_us += out_us;
    }
    return fmax(us + after_us, away_us) - work_us;
}

/* What a block reads begins to come back with the backward of the one behind it. */
static double backward_waits_us(const OffloadWay *way, double after_us) {
    double us = after_us, work_us = after_us, free_us = 0, begun_us = 0;
    for (int i = way->n_blocks - 1; i >= 0; i--) {
        double own_us = begun_us + block_at(way, i)->back_us;
        if (i > 0) {
            const OffloadBlock *next = block_at(way, i - 1);
            begun_us = fmax(us, free_us);
            free_us = begun_us + next->own_us + next->in_us;
        }
        us = fmax(us, own_us) + segment_at(way, i)->backward.us;
        work_us += segment_at(way, i)->backward.us;
    }
    return us - work_us;
}

OffloadChunk offload_chunk(const ModelCosts *costs, const LayoutCost *layout, int first,
                           int n_blocks, bool begins, bool ends) {
    const OffloadWay way = {costs, layout, first, n_blocks};
    const OffloadCost *offload = layout->offload;
    OffloadChunk sum = {0};
    if (!offload || n_blocks < 2) return sum;
    bool pair = n_blocks == 2 && costs->n_kinds == 1;
    const int64_t *scratch = pair ? offload->pair_scratch : offload->chain_scratch;
    for (int i = 0; i < n_blocks; i++) {
        int64_t bytes = scratch[costs->kind_of_block[first + i]];
        sum.host_bytes += block_at(&way, i)->host_bytes;
        sum.n_calls += block_at(&way, i)->n_calls;
        if (bytes > sum.scratch_bytes) sum.scratch_bytes = bytes;
    }
    sum.forward_us = forward_waits_us(&way, begins ? layout->before.forward.us : 0,
                                      ends ? layout->after.forward.us : 0);
    sum.backward_us = backward_waits_us(&way, ends ? layout->after.backward.us : 0);
    return sum;
}
