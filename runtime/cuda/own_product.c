#include "runtime/cuda/own_product.h"

#include "runtime/cuda/kernels/args.h"

bool cuda_push_own_product(Binding *binding, const GemmCommand *gemm) {
    static const KernelsByDtype PRODUCT = KERNELS_BY_DTYPE(product);
    const MatmulLayout *l = &gemm->layout;
    if (gemm->c || gemm->bias || gemm->aux || gemm->apart.d || gemm->epilogue != EPILOGUE_SUM) {
        BUG("a product with more in it than a sum");
    }
    if (gemm->in_dtype == DTYPE_FP8)
        return bind_fail(binding, "has operands of fp8, and own products are of f32, bf16 and f16");
    ProductArgs args = {.a = gemm->a,
                        .b = gemm->b,
                        .d = gemm->d,
                        .batch = l->batch,
                        .m = l->m,
                        .n = l->n,
                        .k = l->k,
                        .a_m = l->transpose_a ? 1 : l->k,
                        .a_k = l->transpose_a ? l->m : 1,
                        .b_k = l->transpose_b ? 1 : l->n,
                        .b_n = l->transpose_b ? l->k : 1,
                        .out_dtype = (int32_t)gemm->out_dtype,
                        .add = gemm->beta != 0};
    Grid grid = {cuda_blocks(l->batch * l->m * l->n, PRODUCT_THREADS), 1, 1};
    return cuda_push_launch(binding, kernel_for_dtype(&PRODUCT, gemm->in_dtype), grid,
                            PRODUCT_THREADS, 0, &args, sizeof(args));
}
