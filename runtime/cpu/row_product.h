/* Products of a few rows: C [m, n] = A [m, k] B, where reading B once takes all the time.
 *
 * B is [k, n], or with tb [n, k]; f32, bf16 or f16, A alike, C one of these and rounded once. Sums
 * are f32, in an order that depends on k alone: a row has the same bits whatever rows are beside
 * it, and on any number of threads. With several products, packed one after the other, those whose
 * A is zero read no B: experts that nothing goes to.
 */
#ifndef RUNTIME_CPU_ROW_PRODUCT_H
#define RUNTIME_CPU_ROW_PRODUCT_H

#include "ir/type.h"

#include <stdbool.h>

enum { ROW_PRODUCT_MOST = 8 }; /* rows; with more a matrix product is faster */

typedef struct RowProduct {
    int64_t batch, m, n, k;
    bool tb;
    DType dtype, out_dtype; /* of A and B; of C */
} RowProduct;

/* Is it one of these? */
static inline bool row_product_does(const RowProduct *p) {
    return p->m <= ROW_PRODUCT_MOST;
}

void row_product(const RowProduct *p, const void *a, const void *b, void *c);

#endif
