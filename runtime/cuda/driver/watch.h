/* Waiting for work of several processes: the device is asked now and then, NCCL and the other
 * ranks are asked whether all is well, and the job is told what this rank waits for. */
#ifndef RUNTIME_CUDA_DRIVER_WATCH_H
#define RUNTIME_CUDA_DRIVER_WATCH_H

#include "runtime/cuda/driver/nccl.h"
#include "runtime/cuda/driver/replay.h"
#include "runtime/engine_internal.h"

typedef struct StepWatch {
    Engine *engine;
    const RankContext *rank; /* this process's */
    const CudaDevice *device;
    NcclWorld *world;
    const volatile uint32_t *progress; /* [N_STREAM_KINDS]: messages done, as EmitMemory has it */
    cudaStream_t stream;               /* to wait for */
} StepWatch;

/* Returns when the stream, which works on `replay`, has nothing left to do. False: reported; with
 * *out_lost the device still waits for a rank that is gone, and the world is to be aborted. */
bool cuda_watch_stream(const StepWatch *watch, const Replay *replay, bool *out_lost, Diag *diag);

#endif
