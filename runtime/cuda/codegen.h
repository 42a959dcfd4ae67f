/* Generated kernels: from an elementwise program and its operands to the CUDA C of one kernel, and
 * to what one launch of it takes.
 *
 * A source depends on the pattern only: the program's ops, the dtypes, how many dimensions are left
 * after merging adjacent ones, how each operand steps along them (evenly through all, or along some
 * and not along others), elements per thread, 32- or 64-bit indices. Sizes, strides, addresses,
 * immediates and streams of random numbers come in FusedArgs, so that a few kernels serve all
 * layers, micro-batches and layouts.
 *
 * A thread takes 16 bytes of the narrowest operand at once, 8 elements where one is in 16 bits and
 * else 4; fewer where the last dimension or an address is no multiple of that. All arithmetic is
 * f32; only results are rounded to their dtype. Results are contiguous; one may lie exactly on an
 * operand of the same dtype that steps evenly through the space.
 *
 * A rule's numbers are computed by each block's first thread, in f64, while the operands are
 * loaded.
 */
#ifndef RUNTIME_CUDA_CODEGEN_H
#define RUNTIME_CUDA_CODEGEN_H

#include "ir/rule.h"
#include "runtime/binding.h"
#include "runtime/cuda/command.h"
#include "runtime/cuda/kernels/fused_args.h"

/* Kernels made so far, each source once, in the order they were first needed. Owned, like all it
 * gives out, by the arena. */
typedef struct KernelCache KernelCache;
KernelCache *kernel_cache_create(Arena *arena);
int kernel_cache_count(const KernelCache *cache);
const GeneratedKernel *kernel_cache_get(const KernelCache *cache, int i);

/* The iteration space is that of the results: dims[0] x .. x dims[n_dims - 1]. */
typedef struct FusedSpec {
    const Expr *expr;
    int n_dims;
    int64_t dims[SPACE_MOST_DIMS];
    /* Operands that the program does not read are left alone. Strides in elements; 0: broadcast. */
    const void *in[EXPR_MAX_INPUTS];
    DType in_dtype[EXPR_MAX_INPUTS];
    int64_t in_stride[EXPR_MAX_INPUTS][SPACE_MOST_DIMS];
    void *out[MAX_OUTPUTS];
    DType out_dtype[MAX_OUTPUTS];
    /* Dropout: where dimension d lies in the whole (see runtime/cpu/philox.h), the stream of each
     * instruction, and what changes from step to step. */
    uint64_t global_offset[SPACE_MOST_DIMS], global_stride[SPACE_MOST_DIMS];
    uint32_t key[EXPR_MAX_INSTRUCTIONS];
    const DeviceState *state;
    /* An optimizer that is a formula; NULL: none. Then nothing changes unless the factor is finite,
     * `expr` is the rule's, with what a copy needs, and results may be rounded as AdamW's second
     * moments. */
    const Rule *rule;
    const float *factor, *rate, *updates;
    double rate_scale, decay;
    bool out_above[MAX_OUTPUTS];
} FusedSpec;

typedef struct FusedLaunch {
    const GeneratedKernel *kernel;
    Grid grid; /* empty when the space is */
    int threads;
    FusedArgs args;
} FusedLaunch;

FusedLaunch codegen_fused(KernelCache *cache, const FusedSpec *spec);

#endif
