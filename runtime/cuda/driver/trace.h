/* When the commands of a replay run, by events around each of them.
 *
 * Commands are issued one by one, not as a graph, so that gaps between short kernels are longer
 * than in training: durations are right, the step as a whole is an upper bound.
 */
#ifndef RUNTIME_CUDA_DRIVER_TRACE_H
#define RUNTIME_CUDA_DRIVER_TRACE_H

#include "runtime/cuda/driver/replay.h"
#include "runtime/engine.h"

/* Issues the list, waits for it, and gives its commands by rank, then beginning. Spans and events
 * are allocated in `arena`; the events are destroyed again. */
bool cuda_trace_replay(Replay *replay, Arena *arena, EngineSpan **out_spans, int *out_count,
                       Diag *diag);

/* Likewise, and adds what each rank's time went into: work[ranks of the plan]. What ran on another
 * stream at the same time counts, too. */
bool cuda_measure_replay(Replay *replay, WorkSums *work, Diag *diag);

#endif
