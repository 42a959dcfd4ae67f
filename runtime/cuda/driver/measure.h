/* What the files that measure CUDA devices share. */
#ifndef RUNTIME_CUDA_DRIVER_MEASURE_H
#define RUNTIME_CUDA_DRIVER_MEASURE_H

#include "runtime/cuda/driver/replay.h"
#include "runtime/measure/measure.h"

/* Workspace: as much as plans of larger models have for the libraries. */
enum { MEASURE_MOST_DEVICES = 16, LIBRARY_WORKSPACE = 32 << 20 };

typedef struct CudaMeasure {
    const MeasureOptions *options;
    DeviceProfile *profile;
    MeasureProgress progress;
    Arena *arena;
    Diag *diag; /* what ends the measurement */
    CudaDevice device;
    ReplayContext context; /* its stream 0 is the one that everything runs on */
    cudaEvent_t begin, end;
    void *state;           /* a DeviceState, zeroed */
    unsigned char *memory; /* for all operands */
    int64_t memory_bytes;
    unsigned char *host; /* pinned, for what an update keeps there; NULL: no rows ask for it */
} CudaMeasure;

/* Median microseconds of one `issue`, captured so many times into one graph that a launch takes
 * some milliseconds: as it runs in training. -1: reported to `diag`. */
double cuda_measure_graph(CudaMeasure *measure, bool (*issue)(void *user, Diag *diag), void *user,
                          Diag *diag);

/* Fill a row's times through the kernels that training runs; on failure they stay 0, so that the
 * row is dropped. */
void cuda_measure_attention(CudaMeasure *measure, ProfileAttention *row);
/* c = a + b by the kernel of add_n, `bytes` read and written. */
double cuda_measure_triad(CudaMeasure *measure, int64_t bytes, Diag *diag);
/* AdamW of what lies in measure->host, where 3 / 2 of the row's bytes fit. */
void cuda_measure_host(CudaMeasure *measure, ProfileHost *row);
/* Bytes that these take, for choosing what fits. */
int64_t cuda_measure_attention_bytes(const ProfileAttention *row);

/* Messages and collectives among all devices of this process, by NCCL; rows are added and filled.
 * One device, or no NCCL: nothing to do. */
bool cuda_measure_links(CudaMeasure *measure, int n_devices);

/* In the list's order, before anything is measured. */
void cuda_measure_list_links(const MeasureList *list, const CuApi *api, int n_devices);

#endif
