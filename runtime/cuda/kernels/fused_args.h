/* What a generated kernel takes (codegen.h): everything that may differ between two nodes of the
 * same pattern. Plain C; its text is also the beginning of every generated source. */
#ifndef RUNTIME_CUDA_KERNELS_FUSED_ARGS_H
#define RUNTIME_CUDA_KERNELS_FUSED_ARGS_H

#include "runtime/cuda/kernels/state.h"

enum {
    FUSED_MAX_IN = 8,
    FUSED_MAX_OUT = 5,
    FUSED_MAX_DIMS = 6,
    FUSED_MAX_IMMEDIATES = 32,
    FUSED_MAX_NUMBERS = 64,
    FUSED_THREADS = 256, /* of a block */
};

/* Sizes and strides count elements. A chunk is what one thread takes at once, consecutive along the
 * last dimension; chunks never cross its end unless there is only one dimension. */
typedef struct FusedArgs {
    const DeviceState *state; /* dropout only */
    int64_t n_chunks;
    const void *in[FUSED_MAX_IN];
    void *out[FUSED_MAX_OUT];
    int64_t dims[FUSED_MAX_DIMS];
    /* n / dims[d] = n * multiplier[d] >> shift[d], for n below 2^31. */
    uint32_t multiplier[FUSED_MAX_DIMS], shift[FUSED_MAX_DIMS];
    int64_t stride[FUSED_MAX_IN][FUSED_MAX_DIMS];
    /* Dropout: element (i0, i1, ..) has number offset + sum of i_d stride[d] in the whole tensor.
     */
    uint64_t global_offset, global_stride[FUSED_MAX_DIMS];
    /* In the order of the instructions that have one: a factor, a term, dropout's p and stream. */
    float immediate[FUSED_MAX_IMMEDIATES];
    uint32_t key[FUSED_MAX_IMMEDIATES];
    /* Of a rule (ir/rule.h): what its numbers follow from. */
    const float *factor, *rate, *updates;
    double rate_scale, decay;
} FusedArgs;

#endif
