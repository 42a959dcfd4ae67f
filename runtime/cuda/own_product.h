/* Products by a plain kernel instead of cuBLASLt: for comparison, and for tools that look at every
 * access and cannot follow the library's kernels. Slow. */
#ifndef RUNTIME_CUDA_OWN_PRODUCT_H
#define RUNTIME_CUDA_OWN_PRODUCT_H

#include "runtime/cuda/bind.h"

/* A launch for a product as binders make it, with nothing in it but an addend in its place. False:
 * reported; of fp8, it has no such kernel. */
bool cuda_push_own_product(Binding *binding, const GemmCommand *gemm);

#endif
