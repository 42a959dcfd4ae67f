/* Arguments of transpose.cu, reduce.cu and layout.cu; see args.h. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_LAYOUT_H
#define RUNTIME_CUDA_KERNELS_ARGS_LAYOUT_H

#include "runtime/cuda/kernels/index.h"

/* transpose.cu */

/* out[i] = x[from(i)], in units of 2, 4, 8 or 16 bytes. One thread per unit. */
typedef struct TransposeCopyArgs {
    const void *x;
    void *out;
    uint32_t count;
    IndexMap from;
} TransposeCopyArgs;

/* out[r out_stride + c] = x[c x_stride + r] for r < rows, c < columns, of matrices that lie at
 * x_at(i) and out_at(i). Elements; grid.x = matrices x row tiles x column tiles, columns fastest.
 */
typedef struct TransposeTileArgs {
    const void *x;
    void *out;
    int64_t rows, columns, x_stride, out_stride;
    FastDivisor row_tiles, column_tiles;
    IndexMap x_at, out_at;
} TransposeTileArgs;

enum { TRANSPOSE_TILE = 32, TRANSPOSE_PAIR_TILE = 64, TRANSPOSE_THREADS = 256 };

/* reduce.cu */

/* A sum after merging neighbouring dimensions: output number row * width + column (columns) or
 * row (rows) sums x[row_at(row) + run_at(run) + column] over all runs (and, of rows, columns). With
 * n_chunks > 1, f32 partial sums of each of them go to out [chunk, output]. */
typedef struct ReduceArgs {
    const void *x;
    void *out;
    int64_t n_outputs;
    uint32_t n_chunks, n_runs, width;
    int32_t vector;      /* 16 bytes at a time: width, and so all offsets, are multiples of it */
    int32_t out_dtype;   /* a DType */
    int32_t add;         /* to the f32 that is there; out_dtype is f32 */
    int32_t block_each;  /* rows: a block per output; else a warp */
    FastDivisor divisor; /* columns: tiles of a row; rows: vectors (or elements) of a run */
    IndexMap row_at, run_at;
    int64_t x_apart, out_apart; /* columns: bytes to what the grid's next z reads, and writes */
} ReduceArgs;

/* out[i] = sum over chunks of partial [chunk, i], in f64; of the grid's next z, partial begins
 * behind, and out is out_apart bytes further on. */
typedef struct ReduceFinishArgs {
    const float *partial;
    void *out;
    int64_t n_outputs;
    uint32_t n_chunks;
    int32_t out_dtype, add; /* as in ReduceArgs */
    int64_t out_apart;
} ReduceFinishArgs;

/* out[row] = sum of a[row, i] b[row, i], i < k, of n rows; a warp each. */
typedef struct DotsArgs {
    const void *a, *b;
    void *out;
    int64_t n;
    uint32_t k;
    int32_t vector, out_dtype, add; /* as in ReduceArgs */
} DotsArgs;

enum { REDUCE_THREADS = 256 };

/* layout.cu */

/* Moves rows of `width` units of 2, 4, 8 or 16 bytes: out[p out_part + r out_row + i] =
 * in[p in_part + r in_row + i] for part p, row r, i < width, where p width + i < limit; beyond it,
 * `fill` is written in each 4 bytes or, with cut, nothing. count = parts * rows * width. */
typedef struct CopyRowsArgs {
    const void *in;
    void *out;
    int64_t in_part, in_row, out_part, out_row, limit;
    uint32_t count;
    FastDivisor width, rows;
    int32_t cut;
    uint32_t fill;
} CopyRowsArgs;

/* *out = value, of a DType. One thread. */
typedef struct SetScalarArgs {
    void *out;
    float value;
    int32_t dtype;
} SetScalarArgs;

enum { ADD_N_OPERANDS = 496, COPY_THREADS = 256 };

/* out[k][i] = in[k][i] of n units each, 0 from operand n_operands on. */
enum { STACK_OPERANDS = 496 };
typedef struct StackArgs {
    void *out;
    int64_t n;
    int32_t n_operands;
    const void *in[STACK_OPERANDS];
} StackArgs;

/* out[i] = sum over operands of in[k][i], in f64, rounded once. out may be one of the operands. */
typedef struct AddNArgs {
    void *out;
    int64_t n;
    int32_t n_operands;
    int32_t vector; /* operands and results are aligned to 16 bytes */
    const void *in[ADD_N_OPERANDS];
} AddNArgs;

#endif
