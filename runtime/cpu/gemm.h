/* Matrix products: C = alpha op(A) op(B) + beta C, row-major f32, bf16 or f16, on a
 * processor's tiles (tile_product.h) or through oneDNN.
 *
 * op(A) is [m, k] and op(B) [k, n]; with ta (tb) the operand is stored transposed, so A is [k, m]
 * (B is [n, k]). lda, ldb, ldc: elements from one stored row to the next.
 * m, n or k may be 0: with k = 0 the product is zero, so C becomes beta C. With beta = 0, C is not
 * read and may hold anything. C may not overlap A or B.
 *
 * gemm.c is the only file that knows oneDNN's API. Products run on the calling thread's OpenMP
 * threads; but on tiles the order of sums, and so the last bits, may depend on how many there are.
 * Several threads may call at once. The first call with a shape may allocate inside oneDNN.
 */
#ifndef RUNTIME_CPU_GEMM_H
#define RUNTIME_CPU_GEMM_H

#include "ir/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False when refused (negative sizes, too small leading dimensions, out of memory):
 * gemm_status_text says why for the calling thread's last refused call; C may be half written. */
bool gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
              int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* `batch` products; operand i begins at a + i stride_a, b + i stride_b, c + i stride_c (elements;
 * a stride of 0 for A or B shares the operand). Small products run one per thread, large ones one
 * after the other on all threads. */
bool gemm_f32_batched(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                      const float *a, int64_t lda, int64_t stride_a, const float *b, int64_t ldb,
                      int64_t stride_b, float beta, float *c, int64_t ldc, int64_t stride_c,
                      int64_t batch);

/* Products of bf16 or f16, added up in f32: C = op(A) op(B), or C += op(A) op(B), for `batch`
 * matrices that lie packed, one after the other. C is f32, or of the operands' dtype and rounded
 * once. No size is 0. Where neither tiles nor oneDNN have a kernel on this CPU (f16: oneDNN has
 * none), the operands are widened block by block (gemm_widened.h). */
typedef struct GemmShape {
    int64_t batch, m, n, k;
    bool ta, tb;
    DType dtype, out_dtype; /* of A and B; of C */
    bool accumulate;        /* only where C is f32 */
} GemmShape;

/* Prepared products, each shape once; one thread runs them. */
typedef struct GemmPlans GemmPlans;
typedef struct GemmPlan GemmPlan;
GemmPlans *gemm_plans_create(void); /* NULL: out of memory */
void gemm_plans_destroy(GemmPlans *plans);
/* Owned by `plans`, for as many OpenMP threads as the caller has now. NULL: gemm_status_text. */
const GemmPlan *gemm_plan_low(GemmPlans *plans, const GemmShape *shape);
/* workspace: gemm_widened_workspace_bytes of the shape. */
bool gemm_run_low(const GemmPlan *plan, const uint16_t *a, const uint16_t *b, void *c,
                  void *workspace);
/* For tests: plans made from now on behave as on a CPU with kernels for neither bf16 nor f16. */
void gemm_refuse_native_low(bool refuse);

const char *gemm_status_text(void);

/* Writes for example "oneDNN 2.6.3"; cut to size_bytes. */
void gemm_library_version(char *out_text, size_t size_bytes);

/* Frees the products prepared so far. For a clean end of process; nothing may be in flight. */
void gemm_release_cache(void);

#endif
