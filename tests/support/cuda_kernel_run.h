/* cuda_kernel_run: every node of a graph through cuda_bind, on all ranks of its mesh, without a
 * plan and without a GPU: launches go to the emulator (tests/emulate), matrix products to a plain
 * loop, the rest to what the test gives.
 *
 * Values, leaves and comparisons are kernel_run's: run->base.
 *
 *     CudaKernelRun run;
 *     bool good = cuda_kernel_run_create(&run, reference, -1, NULL, diag) &&
 *                 cuda_kernel_run_step(&run);
 *     CHECK(good, "%s", good ? "" : cuda_kernel_run_reason(&run));
 *     error = cuda_kernel_run_error(&run, value, 0, true);
 *     cuda_kernel_run_destroy(&run);
 *
 * Workspace is of exactly cuda_workspace_bytes and holds not-a-number at first.
 */
#ifndef TESTS_SUPPORT_CUDA_KERNEL_RUN_H
#define TESTS_SUPPORT_CUDA_KERNEL_RUN_H

#include "runtime/cuda/bind.h"
#include "tests/support/kernel_run.h"

/* What commands need beyond the emulator; each may be NULL where no such command comes. False:
 * failed, and *out_why says why. */
typedef struct CudaRunHooks {
    void *user;
    struct KernelCache *generated;   /* for binders of generated kernels */
    const AttentionCheck *attention; /* NULL: own kernels, none on wgmma */
    bool own_products;               /* by own kernels */
    bool together;                   /* KernelRun.together */
    int64_t most_workspace_bytes;    /* of a node that would have more; 0: any */
    bool (*launch_generated)(void *user, const LaunchCommand *launch, const char **out_why);
    /* All members' commands, by member. */
    bool (*collective)(void *user, const CollectiveCommand *const *members, int n_members,
                       const char **out_why);
} CudaRunHooks;

/* Executes one launch, product, copy or fill on host memory. */
bool cuda_run_command(const Command *command, const CudaRunHooks *hooks, const char **out_why);

typedef struct CudaKernelRun {
    KernelRun base;
    CudaRunHooks hooks;
    DeviceState *state;
    Plan plan; /* what cuda_find_group reads: the mesh, and communicator "all" over all stages */
    CommandList lists[KERNEL_MAX_RANKS];
    int *first_command[KERNEL_MAX_RANKS]; /* [n_nodes + 1] */
    int n_workspaces;
    void **workspaces;
    unsigned order; /* of threads: see emulate_set_order */
    const char *why;
} CudaKernelRun;

/* Binds all nodes; in_place as kernel_run_create's; hooks may be NULL. False: reported. */
bool cuda_kernel_run_create(CudaKernelRun *run, const Reference *reference, int in_place,
                            const CudaRunHooks *hooks, Diag *diag);
/* Runs all commands once, node by node. False: cuda_kernel_run_reason says why. */
bool cuda_kernel_run_step(CudaKernelRun *run);
const char *cuda_kernel_run_reason(const CudaKernelRun *run);
void cuda_kernel_run_destroy(CudaKernelRun *run);

/* As kernel_run_error; partial values are combined over the ranks that hold a share, in float64,
 * then compared. */
double cuda_kernel_run_error(const CudaKernelRun *run, Value value, double floor_abs,
                             bool pads_are_zero);

#endif
