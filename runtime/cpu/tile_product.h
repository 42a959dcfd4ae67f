/* Matrix products on a processor's tiles (tiles.h): C = alpha op(A) op(B) + beta C as gemm.h has
 * it, of f32, bf16 or f16, with sums in f32.
 *
 * C is cut into blocks of up to 512 rows, of which each thread computes some: it packs 256 (of f16
 * and f32: 128) of k at a time into memory of its own, which lasts, and adds up there, so C is
 * written once. Where k is short A's rows stay packed for all columns, else there are up to 512.
 * The order of sums depends on k alone: not on the blocks, not on the threads.
 */
#ifndef RUNTIME_CPU_TILE_PRODUCT_H
#define RUNTIME_CPU_TILE_PRODUCT_H

#include "ir/type.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct TileProduct {
    int64_t batch, m, n, k;
    bool ta, tb;
    DType dtype, out_dtype;               /* of A and B; of C: f32, or theirs */
    float alpha, beta;                    /* beta 0: C is not read */
    int64_t lda, ldb, ldc;                /* numbers from one stored row to the next */
    int64_t stride_a, stride_b, stride_c; /* from one of the batch to the next */
} TileProduct;

/* Are there tiles, and is this product one that is faster on them? Sizes are 1 or more. */
bool tile_product_does(const TileProduct *p);

/* Where tiles are ready, of any size. False: no memory for packed operands. */
bool tile_product(const TileProduct *p, const void *a, const void *b, void *c);

#endif
