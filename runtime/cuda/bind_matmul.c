/* Matrix products. */
#include "runtime/cuda/bind.h"

/* Of fp8: each operand's 128 numbers along k have a scale, or its tiles of 128 x 128 do. */
static bool bind_scales(Binding *b, GemmCommand *gemm) {
    ScaledProduct product;
    if (!bind_scaled_product(b, &product)) return false;
    gemm->layout = product.layout;
    gemm->scales_a = (GemmScales){b->in[2], product.forms[0]};
    gemm->scales_b = (GemmScales){b->in[3], product.forms[1]};
    return true;
}

/* A number for each pair of rows: no library's product is made for these. */
static bool bind_dots(Binding *b, const MatmulLayout *layout, bool add) {
    static const KernelsByDtype DOTS = KERNELS_BY_DTYPE(dots);
    DType dtype = b->in_local[0].dtype;
    DotsArgs args = {.a = b->in[0],
                     .b = b->in[1],
                     .out = b->out[0],
                     .n = layout->batch,
                     .k = (uint32_t)layout->k,
                     .vector = layout->k % (16 / dtype_bytes(dtype)) == 0,
                     .out_dtype = (int32_t)b->out_local[0].dtype,
                     .add = add};
    Grid grid = {cuda_blocks(layout->batch, REDUCE_THREADS / 32), 1, 1};
    return cuda_push_launch(b, kernel_for_dtype(&DOTS, dtype), grid, REDUCE_THREADS, 0, &args,
                            sizeof(args));
}

bool cuda_bind_matmul(Binding *b) {
    GemmCommand gemm = {.in_dtype = b->in_local[0].dtype,
                        .out_dtype = b->out_local[0].dtype,
                        .a = b->in[0],
                        .b = b->in[1],
                        .d = b->out[0],
                        .product = b->node,
                        .beta = matmul_accumulator(b->node) >= 0 && !b->overwrite ? 1 : 0};
    if (matmul_is_scaled(b->node)) return bind_scales(b, &gemm) && cuda_push_gemm(b, &gemm);
    if (b->in_local[1].dtype != gemm.in_dtype) {
        return bind_fail(b, "has operands of different dtypes");
    }
    if (!matmul_layout(b->node, &b->in_local[0], &b->in_local[1], &gemm.layout)) {
        return bind_fail(b, "has operands whose axes are not grouped");
    }
    if (matmul_is_dots(&gemm.layout)) return bind_dots(b, &gemm.layout, gemm.beta != 0);
    return cuda_push_gemm(b, &gemm);
}
