/* Matrix products. */
#include "runtime/cuda/bind.h"

bool cuda_bind_matmul(Binding *b) {
    GemmCommand gemm = {.in_dtype = b->in_local[0].dtype,
                        .out_dtype = b->out_local[0].dtype,
                        .a = b->in[0],
                        .b = b->in[1],
                        .d = b->out[0],
                        .product = b->node,
                        .beta = b->node->n_inputs == 3 && !b->overwrite ? 1 : 0};
    if (b->in_local[1].dtype != gemm.in_dtype) {
        return bind_fail(b, "has operands of different dtypes");
    }
    if (!matmul_layout(b->node, &b->in_local[0], &b->in_local[1], &gemm.layout)) {
        return bind_fail(b, "has operands whose axes are not grouped");
    }
    return cuda_push_gemm(b, &gemm);
}
