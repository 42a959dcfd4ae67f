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
    return cuda_push_gemm(b, &gemm);
}
