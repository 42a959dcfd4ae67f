/* Arguments of collectives.cu; see args.h. Shapes as in runtime/comm/comm.h. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_COLLECTIVE_H
#define RUNTIME_CUDA_KERNELS_ARGS_COLLECTIVE_H

#include "runtime/cuda/kernels/index.h"

enum { COLLECTIVE_MEMBERS = 64, COLLECTIVE_THREADS = 256 };

/* out[k][i] = reduction of in[0][i], in[1][i], ... in this order, for i < count and k < n_outputs.
 * Any out may be the same memory as one in. kind: a ReduceKind. */
typedef struct AllReduceArgs {
    int64_t count;
    int32_t kind, n_members, n_outputs;
    int32_t vector; /* all pointers are aligned to 16 bytes */
    const void *in[COLLECTIVE_MEMBERS];
    void *out[COLLECTIVE_MEMBERS];
} AllReduceArgs;

/* out[k][row total + j part + i] = in[j][row part + i] for i < part where j part + i < total; in
 * units of 2, 4, 8 or 16 bytes. With `deals`, members have two chunks each of the axis (ir/mesh.h),
 * of part / 2 units. count = n_members * rows * part. in[j] may be its place in out[j]
 * if there is one row. */
typedef struct AllGatherArgs {
    int64_t total;
    uint32_t count;
    FastDivisor part, rows;
    int32_t n_members, deals;
    const void *in[COLLECTIVE_MEMBERS];
    void *out[COLLECTIVE_MEMBERS];
} AllGatherArgs;

/* Block m of a member: rows x width units, one after the other; with several outer indices, behind
 * those of all members for one. Strip m: row by row, beside those of the other members. to_strips:
 * strip j of out[k] = block k of in[j]; without it, block j of out[k] = strip k of in[j]. With
 * `deals`, the two halves of block m lie where c's chunks do (ir/mesh.h). In units of 2, 4, 8 or 16
 * bytes; count = members^2 outer rows width. */
typedef struct AllToAllArgs {
    uint32_t count;
    FastDivisor width, rows, outer, members;
    int32_t to_strips, deals;
    const void *in[COLLECTIVE_MEMBERS];
    void *out[COLLECTIVE_MEMBERS];
} AllToAllArgs;

/* out[k][row part + i] = reduction of in[0..n_members)[row total + (first + k) part + i], 0 where
 * (first + k) part + i >= total. part and total count elements, or vectors of 16 bytes. count =
 * n_outputs * rows * part. */
typedef struct ReduceScatterArgs {
    int64_t total;
    uint32_t count;
    FastDivisor part, rows;
    int32_t kind, n_members, first, vector, deals;
    const void *in[COLLECTIVE_MEMBERS];
    void *out[COLLECTIVE_MEMBERS];
} ReduceScatterArgs;

#endif
