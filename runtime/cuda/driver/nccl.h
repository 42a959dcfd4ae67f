/* NCCL among the ranks of a plan, one process and one GPU each.
 *
 * A communicator for each mesh axis, each group of tied stages and each direction of each pipeline
 * link that the rank takes part in, made at once and in the same order on all ranks. All are
 * non-blocking: every call is polled to its end or to the time-out, so that a lost rank ends the
 * run instead of hanging it. Pairs that send to each other are connected then, too: when a world is
 * there NCCL has taken the memory that it takes.
 */
#ifndef RUNTIME_CUDA_DRIVER_NCCL_H
#define RUNTIME_CUDA_DRIVER_NCCL_H

#include "runtime/cuda/driver/replay.h"

/* How processes tell each other a communicator's id: bytes of ranks[0] to all of ranks. */
typedef struct NcclExchange {
    void *user;
    bool (*broadcast)(void *user, const int *ranks, int n_ranks, void *bytes, size_t n_bytes,
                      Diag *diag);
    /* Why the job has failed, or NULL: asked while this rank waits for others. NULL: never. */
    const char *(*failed)(void *user);
} NcclExchange;

typedef struct NcclOptions {
    double timeout_seconds; /* of making a communicator or of one call; 0: 300 */
    bool no_registration;   /* message memory is not registered with the network and NVLink */
    bool several_hosts;     /* nor is it then, where NCCL could wait for ever (nccl.c) */
} NcclOptions;

typedef struct NcclWorld NcclWorld;

/* Once a process: NCCL keeps what it reads of the environment. */
NcclWorld *nccl_world_create(const CudaDevice *device, const Plan *plan, int rank,
                             const NcclExchange *exchange, const NcclOptions *options, Arena *arena,
                             Diag *diag);
/* Device memory for a rank's arena, which NCCL can register; nccl_world_free gives it back, after
 * nccl_world_destroy where graphs were captured: what NCCL has registered for them it lets go of
 * only as its communicators end. */
bool nccl_world_allocate(NcclWorld *world, size_t bytes, void **out, Diag *diag);
void nccl_world_free(NcclWorld *world, void *memory);

/* Issues collectives and messages; the world must outlive it. */
Messenger nccl_world_messenger(NcclWorld *world);
/* Has a communicator failed since the last call? Reports it by name. */
bool nccl_world_check(NcclWorld *world, Diag *diag);
/* After every graph that uses them has been destroyed: NCCL waits for that, an aborted communicator
 * for ever. `abort`: without waiting for other ranks, whatever the device still waits for. */
void nccl_world_destroy(NcclWorld *world, bool abort);

#endif
