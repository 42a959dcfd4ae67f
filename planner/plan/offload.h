/* Offload: the optimizer's states and masters in the memory of the machine that the device is in
 * (ZeRO-Offload: Ren et al. 2021, arXiv 2101.06840), the region `host` of a plan.
 *
 * No copies are made and nothing is computed elsewhere: the kernels of the update, each of which
 * reads and writes an element once, do so over the bus, in memory that the device addresses
 * (pinned). So no bit of a step changes, and no staging memory is needed; what it takes is the bus'
 * time, once a step, whatever the number of micro-batches.
 */
#ifndef PLANNER_PLAN_OFFLOAD_H
#define PLANNER_PLAN_OFFLOAD_H

#include "ir/op.h"

/* By id: may the leaf lie there? A state of an optimizer, or a parameter in f32 that products do
 * not read (they have a copy of it, which is not its half), which only the update changes and
 * only the update, and the cast that rounds a shard of it once a step, read. */
bool *offload_candidates(const Graph *graph, Arena *arena);

/* By id: of these, those that make up `percent` of their bytes, to half of the smallest: by size,
 * largest first. */
bool *offload_choose(const Graph *graph, int percent, Arena *arena);

#endif
