#include "ir/op.h"

/* Sums are cut into parts that many blocks work on: of 64 elements each or more, up to 2 MiB. */
static int64_t sum_bytes(int64_t elements) {
    enum { LEAST = 64, MOST = 2 << 20 };
    int64_t bytes = elements / LEAST * dtype_bytes(DTYPE_F32);
    return bytes < MOST ? bytes : MOST;
}

/* Norms of many gradients are taken together, in up to 16384 parts of 32768 elements each. */
static int64_t norm_bytes(int64_t elements) {
    enum { PART = 32768, MOST_PARTS = 16384 };
    return elements > PART ? MOST_PARTS * dtype_bytes(DTYPE_F32) : 0;
}

int64_t op_cuda_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs) {
    (void)outputs;
    switch (node->op) {
    case OP_REDUCE_SUM: return sum_bytes(type_elements(&inputs[0]));
    case OP_SUMSQ: return norm_bytes(type_elements(&inputs[0]));
    default: return 0;
    }
}
