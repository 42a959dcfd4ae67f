/* Memory beyond the arenas: what a run holds besides the arenas that its plan lays out. On the CPU
 * of one machine, in one process; on a GPU, of each device. Estimates: plan_library.c says from
 * what.
 */
#ifndef PLANNER_PLAN_PLAN_LIBRARY_H
#define PLANNER_PLAN_PLAN_LIBRARY_H

#include "planner/plan/plan.h"

enum {
    CUDA_CONTEXT_BYTES = 512 << 20, /* CUDA's context with its libraries' kernels: assumed */
    FORWARD_EMISSIONS = 2           /* a forward task is emitted for training and for evaluation */
};

/* Does the executor emit a call for it? A search counts by this, too (count_calls.h). */
bool node_is_called(const Node *node);

/* In all, for the CPU; for a CUDA plan what the device holds that holds most of it. */
int64_t plan_library_bytes(const Plan *plan);

/* Of a plan for the CPU with a process for each rank: of one of this stage, without what its
 * connections keep (engine_message_bytes). */
int64_t plan_process_library_bytes(const Plan *plan, int stage);

/* Of a CUDA plan: beyond the arena, on a device of this stage. */
int64_t plan_stage_library_bytes(const Plan *plan, int stage);

/* Of a CUDA plan: what a device keeps of a rank's graphs where they are replayed in pieces. */
int64_t plan_pieces_bytes(const Plan *plan, const Stage *stage);

/* What the fullest rank needs: its arena and what lies beyond it. */
int64_t plan_fullest_bytes(const Plan *plan);

#endif
