/* Matrix products on a device, by cuBLASLt.
 *
 * A GemmTable holds every product shape of an engine, prepared once: descriptor, layouts and the
 * algorithm chosen, so that issuing one is a single call. Row-major operands are handed over as
 * the transposed column-major problem. bf16 and f32 operands accumulate in f32; f32 ones in full
 * f32, or TF32 where asked. Entries are not to be issued by two threads at once.
 */
#ifndef RUNTIME_CUDA_DRIVER_GEMM_H
#define RUNTIME_CUDA_DRIVER_GEMM_H

#include "runtime/cuda/driver/device.h"

typedef struct GemmEntry GemmEntry;

typedef struct GemmTable {
    const CudaDevice *device;
    Arena *arena;
    bool tf32;
    int64_t workspace_bytes; /* what each product may use */
    int count, capacity;
    GemmEntry **entries;
} GemmTable;

GemmTable *gemm_table_create(const CudaDevice *device, bool tf32, int64_t workspace_bytes,
                             Arena *arena);
void gemm_table_destroy(GemmTable *table);

/* The entry of a command's shape, made where it is new. NULL: cuBLASLt has no algorithm for it. */
const GemmEntry *gemm_table_find(GemmTable *table, const GemmCommand *command, Diag *diag);

/* Has cuBLASLt an algorithm for it? */
bool gemm_table_supports(GemmTable *table, const GemmCommand *command);

cublasStatus_t gemm_issue(const GemmTable *table, const GemmEntry *entry,
                          const GemmCommand *command, void *workspace, cudaStream_t stream);

/* Times the candidates of every entry on the device, on memory that may be written over, and keeps
 * each one's fastest. */
bool gemm_table_tune(GemmTable *table, void *scratch, int64_t scratch_bytes, void *workspace,
                     cudaStream_t stream, Diag *diag);

#endif
