/* Attention on a device, by cuDNN where it is there.
 *
 * An AttentionTable holds every shape of an engine, prepared once: the operation graph, the engine
 * that cuDNN's heuristic puts first among those that give the same bits each time, its compiled
 * plan. Issuing one is a single call, which may be captured. Not to be used by two threads at once.
 */
#ifndef RUNTIME_CUDA_DRIVER_ATTENTION_H
#define RUNTIME_CUDA_DRIVER_ATTENTION_H

#include "runtime/cuda/driver/attention_graph.h"
#include "runtime/cuda/driver/device.h"

typedef struct AttentionEntry AttentionEntry;

typedef struct AttentionTable {
    const CudaDevice *device;
    Arena *arena;
    cudnnHandle_t handle; /* NULL: nothing is cuDNN's, `why` says why */
    const char *why;
    int count, capacity;
    AttentionEntry **entries;
} AttentionTable;

/* Never fails: a table without a handle refuses everything. */
AttentionTable *attention_table_create(const CudaDevice *device, Arena *arena);
void attention_table_destroy(AttentionTable *table);

/* The entry of a command's shape and workspace, made where it is new. NULL: cuDNN does not do it
 * here, *out_why says why. */
const AttentionEntry *attention_table_find(AttentionTable *table, const AttentionCommand *command,
                                           const char **out_why);

/* An AttentionCheck's `choose`, for what nothing was measured of: cuDNN where it does it. */
AttentionKernels attention_table_choose(void *table, const AttentionCommand *command);

cudnnStatus_t attention_issue(const AttentionTable *table, const AttentionEntry *entry,
                              const AttentionCommand *command, cudaStream_t stream);
/* Reports `status` where it is not success; returns whether it was. */
bool attention_check(const AttentionTable *table, cudnnStatus_t status, Diag *diag);

/* Of cuDNN: what the entry's engine needs, with the rows' sums that are kept beside it. */
int64_t attention_entry_workspace_bytes(const AttentionEntry *entry);

/* The heuristic's engine configurations for a graph, best first: at most `most`, owned by the
 * graph. `device` describes one that is not here; NULL: the handle's. 0: none, the graph's status
 * may say why. */
int attention_find_engines(DnnGraph *graph, cudnnBackendDescriptor_t device, int most,
                           cudnnBackendDescriptor_t *out);
/* Does the configuration's engine add up in one order? */
bool attention_engine_repeats(DnnGraph *graph, cudnnBackendDescriptor_t config);

#endif
