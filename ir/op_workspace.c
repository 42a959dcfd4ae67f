#include "ir/op.h"

int64_t op_cuda_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs) {
    (void)node, (void)inputs, (void)outputs;
    return 0;
}
