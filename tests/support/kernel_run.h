/* kernel_run: every node of a graph through cpu_bind, on all ranks of its mesh, without a plan.
 *
 * Ranks are threads that hold their shards of the values in memory of exactly that size. Leaves
 * come from a Reference; a partial leaf is split so that its reduction gives the whole. Memory that
 * kernels are to write starts as not-a-number, so that what they leave out is found.
 */
#ifndef TESTS_SUPPORT_KERNEL_RUN_H
#define TESTS_SUPPORT_KERNEL_RUN_H

#include "runtime/cpu/bind.h"
#include "tests/support/reference_eval.h"

enum { KERNEL_MAX_RANKS = 8 };

typedef struct KernelRank {
    struct KernelRun *run;
    MeshCoord coord;
    CommGroups groups;
    CpuContext cpu;
    void **buffers; /* [n_nodes * MAX_OUTPUTS], the rank's shards */
    GemmPlans *products;
    CpuCall *calls;
    int n_calls;
    bool failed;
} KernelRank;

typedef struct KernelRun {
    const Reference *reference; /* of the same graph: leaves, seed, step, overwrite, ... */
    StepState state;
    CommWorld *world;
    int n_ranks;
    KernelRank ranks[KERNEL_MAX_RANKS];
    int in_place;      /* output 0 of elementwise nodes lies in this operand where it may, the
                        * next in the next; -1: nowhere */
    bool together;     /* attention's gradients lie one behind the other, dv first, and are turned
                        * there by rotary ops that read them last */
    bool *overwritten; /* values that lie in an operand which they replaced */
} KernelRun;

/* Binds all nodes. False: reported. The reference's leaves are copied. */
bool kernel_run_create(KernelRun *run, const Reference *reference, int in_place, Diag *diag);
/* Runs all calls once. False when a kernel failed. */
bool kernel_run_step(KernelRun *run);
void kernel_run_destroy(KernelRun *run);

/* The largest |x - reference| / (|reference| + root mean square of the reference + floor_abs) over
 * all ranks that hold an element; infinite where only one is finite, or where padding is not zero
 * although `pads_are_zero`. What is bf16 or f16 may be half of what its neighbours are apart
 * off the reference's value before rounding, for nothing. Partial values are not compared: 0. */
double kernel_run_error(const KernelRun *run, Value value, double floor_abs, bool pads_are_zero);
/* Sets a leaf on all ranks from the reference. */
void kernel_run_set_leaf(KernelRun *run, Value leaf);

/* For runs on other devices (cuda_kernel_run.h): all but the binding of kernels; */
void kernel_run_prepare(KernelRun *run, const Reference *reference, int in_place, bool together);
/* what a node's kernel is told, but for backend and workspace; */
Binding kernel_run_binding(const KernelRun *run, const KernelRank *rank, Node *node, Diag *diag);
/* and visit() for each element of the rank's shard; `whole` is -1 in the padding. */
typedef void KernelVisitor(void *user, int64_t local, int64_t whole);
void kernel_run_visit(const KernelRank *rank, Value value, KernelVisitor *visit, void *user);

#endif
