/* Arguments of product.cu; see args.h. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_PRODUCT_H
#define RUNTIME_CUDA_KERNELS_ARGS_PRODUCT_H

#include "runtime/cuda/kernels/state.h"

/* d[batch, m, n] = a x b; matrices of a batch lie one after the other. a_m, a_k: from one of m, and
 * of k, to the next in a; of b alike. A thread for each element. */
typedef struct ProductArgs {
    const void *a, *b;
    void *d;
    int64_t batch, m, n, k;
    int64_t a_m, a_k, b_k, b_n;
    int32_t out_dtype; /* a DType */
    int32_t add;       /* to the f32 that is there; out_dtype is f32 */
} ProductArgs;

enum { PRODUCT_THREADS = 256 };

#endif
