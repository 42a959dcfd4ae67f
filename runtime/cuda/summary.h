/* What a plan becomes on CUDA devices: nodes, streams, events and kernels of one rank's step, with
 * predicted times. Computed from the commands; needs no device. */
#ifndef RUNTIME_CUDA_SUMMARY_H
#define RUNTIME_CUDA_SUMMARY_H

#include "ir/base/strbuf.h"
#include "planner/plan/plan.h"
#include "runtime/cuda/command.h"

/* Predicted times of a stage's nodes, which its commands share. */
typedef struct CudaPrices {
    const char *name;      /* of the device */
    double launch_us;      /* of a command that does next to nothing */
    const double *node_us; /* by id: each time that a rank runs the node */
} CudaPrices;

/* All commands of one kernel, or of products or copies of one kind. */
typedef struct CudaKernelRow {
    const char *name; /* "layernorm_forward_bf16", "product 4096 x 4096 x 1024", "all_reduce t" */
    int64_t count;
    double flops, bytes, us; /* of all of them together */
} CudaKernelRow;

typedef struct CudaSummary {
    int stage, rank; /* whose */
    int64_t n_nodes; /* of the captured graph; a step is one launch instead of so many */
    bool in_pieces;  /* too many: captured in pieces (plan_graph_in_pieces) */
    int n_streams, n_events, n_waits; /* waits: about, in pieces of a pipeline */
    int64_t n_messages;               /* calls of NCCL */
    int64_t graph_bytes;              /* device memory of the graphs, about */
    double us;                        /* of all commands one after the other */
    int n_rows;
    CudaKernelRow *rows; /* longest first */
    int n_generated;     /* kernels that NVRTC compiles */
} CudaSummary;

struct KernelCache;
struct EpilogueCheck;
struct AttentionCheck;
/* The commands of a training step of the stage's first rank, at made-up addresses: not to be run.
 * `check`: which epilogues products may have; NULL: all, but for what the plan's device section has
 * found slower, and bias gradients where it has them. `attention`: which kernels do it; NULL:
 * own ones, none on wgmma. */
bool cuda_emit_stage(const Plan *plan, int stage, const struct EpilogueCheck *check,
                     const struct AttentionCheck *attention, Arena *arena,
                     struct KernelCache *generated, CommandList *out, Diag *diag);

/* The stage with the most nodes. */
int cuda_largest_stage(const Plan *plan);
/* Of that stage. False: reported. Rows live in the arena. */
bool cuda_summarize(const Plan *plan, const CudaPrices *prices, Arena *arena, CudaSummary *out,
                    Diag *diag);
void cuda_summary_print(StrBuf *out, const CudaSummary *summary, const CudaPrices *prices);

#endif
