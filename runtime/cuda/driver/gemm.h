/* Matrix products on a device, by cuBLASLt.
 *
 * A GemmTable holds every product shape of an engine, prepared once: descriptor, layouts and the
 * algorithm chosen, so that issuing one is a single call. Row-major operands are handed over as
 * the transposed column-major problem. bf16, f16 and f32 operands accumulate in f32; f32 ones in
 * full f32, or TF32 where asked; fp8 ones with scales of blocks too, on devices that have such
 * products. Entries are not to be issued by two threads at once.
 */
#ifndef RUNTIME_CUDA_DRIVER_GEMM_H
#define RUNTIME_CUDA_DRIVER_GEMM_H

#include "runtime/cuda/driver/device.h"

typedef struct GemmEntry GemmEntry;

/* What cuBLASLt may count on: arenas align better, but parts of a tensor may not. */
enum { GEMM_ALIGN = 64 };

typedef struct GemmTable {
    const CudaDevice *device;
    Arena *arena;
    bool tf32;
    int64_t workspace_bytes; /* what each product uses at most of what it is given */
    int count, capacity;
    GemmEntry **entries;
    const PlanDevice *stored; /* algorithms to prefer; NULL: none */
    int n_used, n_stored;     /* entries that were found, not only asked about; those with one */
    bool refused;             /* one was not accepted; it was said */
} GemmTable;

GemmTable *gemm_table_create(const CudaDevice *device, bool tf32, int64_t workspace_bytes,
                             Arena *arena);
void gemm_table_destroy(GemmTable *table);

/* The entry of a command's shape, made where it is new. NULL: cuBLASLt has no algorithm for it. */
GemmEntry *gemm_table_find(GemmTable *table, const GemmCommand *command, Diag *diag);

/* Has cuBLASLt an algorithm for it? */
bool gemm_table_supports(GemmTable *table, const GemmCommand *command);
/* Is it a product with a bias gradient that was found faster than both apart when the plan was
 * tuned for this device? */
bool gemm_table_sums_bias(GemmTable *table, const GemmCommand *command);

/* Is `joined` to be issued for several like `one`? Not where the plan was tuned and they were found
 * faster one by one. */
bool gemm_table_joins(GemmTable *table, const GemmCommand *one, const GemmCommand *joined);

cublasStatus_t gemm_issue(const GemmTable *table, const GemmEntry *entry,
                          const GemmCommand *command, void *workspace, cudaStream_t stream);

/* Was the device section written for this device and version of cuBLASLt? */
bool gemm_device_matches(const CudaDevice *device, const PlanDevice *stored);
/* Entries made from now on take their algorithm from a plan's device section, if it matches and
 * has one that cuBLASLt accepts; else the heuristic's first choice. `stored` outlives the table. */
void gemm_table_use(GemmTable *table, const PlanDevice *stored);

/* For choosing among the heuristic's candidates, best first by its own estimate (tune.c). */
int gemm_entry_count_candidates(const GemmEntry *entry);
void gemm_entry_choose(GemmEntry *entry, int candidate);
/* The entry's product and the algorithm chosen. */
PlanAlgo gemm_entry_algo(const GemmEntry *entry);

#endif
