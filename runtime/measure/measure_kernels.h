/* Times of single ops: a graph of one node is bound as training binds it, and called. */
#ifndef RUNTIME_MEASURE_MEASURE_KERNELS_H
#define RUNTIME_MEASURE_MEASURE_KERNELS_H

#include "runtime/measure/measure.h"

/* One node, bound several times over as many sets of operands: calls in turn find their operands
 * where those of a training step are, which is not the first-level cache. */
typedef struct KernelSets KernelSets;

/* Room that one row needs, in floats, and what is set to it. */
int64_t measure_kernel_floats(const ProfileKernel *row);
/* `memory` of at least that many floats, 64-byte aligned; what is in it is written over. NULL:
 * reported. Owned by `arena`. */
KernelSets *measure_kernel_prepare(const ProfileKernel *row, float *memory, int64_t floats,
                                   Arena *arena, Diag *diag);
/* The next set's call; `sets` is a KernelSets. */
bool measure_kernel_run(const void *sets);

#endif
