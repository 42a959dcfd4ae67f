/* Products of matrices so small that a library's call takes longer than its arithmetic, as there
 * are many of in one node: the dot product of each row with another (norms over several axes), the
 * mixing of a few residual streams at each position. f32, row-major; gemm.h has what sizes and
 * strides mean. Sums are in an order that depends on the sizes alone.
 */
#ifndef RUNTIME_CPU_SMALL_PRODUCT_H
#define RUNTIME_CPU_SMALL_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct SmallProduct {
    bool ta, tb;
    int64_t m, n, k;
    float alpha, beta;
    int64_t lda, ldb, ldc;
} SmallProduct;

/* Is it one of these? Sizes are 1 or more. */
bool small_product_does(const SmallProduct *p);

/* C = alpha op(A) op(B) + beta C; with beta = 0, C is not read. */
void small_product(const SmallProduct *p, const float *a, const float *b, float *c);

#endif
