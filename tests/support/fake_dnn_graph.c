#ifdef HAVE_CUDA

/* cuDNN: reading an operation graph's descriptors. */
#include "tests/support/fake_dnn.h"

#include <string.h>

const FakeAttribute *fake_dnn_find(const FakeDescriptor *descriptor,
                                   cudnnBackendAttributeName_t name) {
    for (int i = 0; i < descriptor->n_attributes; i++) {
        if (descriptor->attributes[i].name == name) return &descriptor->attributes[i];
    }
    return NULL;
}

FakeDescriptor *fake_dnn_child(const FakeDescriptor *descriptor, cudnnBackendAttributeName_t name) {
    const FakeAttribute *attribute = fake_dnn_find(descriptor, name);
    return attribute ? *(FakeDescriptor **)attribute->values : NULL;
}

static bool read_value(const FakeDescriptor *descriptor, cudnnBackendAttributeName_t name,
                       int64_t count, size_t bytes, void *out) {
    const FakeAttribute *attribute = fake_dnn_find(descriptor, name);
    if (!attribute || attribute->count != count) return false;
    memcpy(out, attribute->values, bytes);
    return true;
}

int64_t fake_tensor_bytes(const FakeTensor *tensor) {
    int64_t last = 0;
    for (int i = 0; i < 4; i++) last += (tensor->dims[i] - 1) * tensor->strides[i];
    return (last + 1) * (fake_tensor_is_low(tensor) ? 2 : 4);
}

static bool read_tensor(const FakeDescriptor *descriptor, FakeTensor *out) {
    int64_t alignment = 0;
    bool good =
        read_value(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, sizeof(out->id), &out->id) &&
        read_value(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, 1, sizeof(out->dtype), &out->dtype) &&
        read_value(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, sizeof(out->dims), out->dims) &&
        read_value(descriptor, CUDNN_ATTR_TENSOR_STRIDES, 4, sizeof(out->strides), out->strides) &&
        read_value(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, sizeof(alignment), &alignment);
    read_value(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 1, sizeof(bool), &out->is_virtual);
    read_value(descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 1, sizeof(bool), &out->by_value);
    for (int i = 0; i < 4; i++) good = good && out->dims[i] > 0 && out->strides[i] > 0;
    bool known = fake_tensor_is_low(out) || out->dtype == CUDNN_DATA_FLOAT ||
                 (out->dtype == CUDNN_DATA_INT32 && (out->is_virtual || out->by_value)) ||
                 (out->dtype == CUDNN_DATA_BOOLEAN && out->is_virtual);
    return good && known && alignment == 16 && !(out->is_virtual && out->by_value) &&
           (!out->by_value || (!fake_tensor_is_low(out) && fake_tensor_bytes(out) == 4));
}

/* The place of the tensor that an operation names; -1: it names none, or one that is wrong. */
static int find_tensor(FakeDnnGraph *graph, const FakeDescriptor *operation,
                       cudnnBackendAttributeName_t name, bool *out_good) {
    const FakeDescriptor *descriptor = fake_dnn_child(operation, name);
    FakeTensor tensor = {0};
    if (!descriptor) return -1;
    if (descriptor->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR || !descriptor->finalized ||
        !read_tensor(descriptor, &tensor) || graph->n_tensors == FAKE_DNN_MOST_TENSORS) {
        *out_good = false;
        return -1;
    }
    for (int i = 0; i < graph->n_tensors; i++) {
        FakeTensor *known = &graph->tensors[i];
        if (known->id != tensor.id) continue;
        tensor.written = known->written;
        tensor.slot = known->slot;
        *out_good = *out_good && memcmp(known, &tensor, sizeof(tensor)) == 0;
        return i;
    }
    if (!tensor.is_virtual) tensor.slot = graph->n_given++;
    *out_good = *out_good && graph->n_given <= FAKE_MOST_OPERANDS;
    graph->tensors[graph->n_tensors] = tensor;
    return graph->n_tensors++;
}

/* May x's dimensions be repeated to make y's? */
static bool extends(const FakeTensor *x, const FakeTensor *y) {
    for (int i = 0; i < 4; i++) {
        if (x->dims[i] != y->dims[i] && x->dims[i] != 1) return false;
    }
    return true;
}

static bool check_pointwise(const FakeDnnGraph *graph, const FakeOp *op,
                            const FakeDescriptor *how) {
    const FakeTensor *t = graph->tensors, *y = &t[op->y];
    cudnnDataType_t compute = CUDNN_DATA_INT32;
    read_value(how, CUDNN_ATTR_POINTWISE_MATH_PREC, 1, sizeof(compute), &compute);
    bool two = op->b >= 0, three = op->select >= 0;
    if (op->x < 0 || !extends(&t[op->x], y) || (two && !extends(&t[op->b], y))) return false;
    switch (op->mode) {
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_ADD:
        if (two && y->dtype == CUDNN_DATA_INT32 && t[op->b].dtype == CUDNN_DATA_INT32)
            return !three && compute == CUDNN_DATA_INT32 && t[op->x].dtype == CUDNN_DATA_INT32;
        return two && !three && compute == CUDNN_DATA_FLOAT;
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_DIV: return two && !three && compute == CUDNN_DATA_FLOAT;
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG: return !two && !three && compute == CUDNN_DATA_FLOAT;
    case CUDNN_POINTWISE_GEN_INDEX:
        return !two && !three && y->dtype == CUDNN_DATA_INT32 && op->axis >= 0 && op->axis < 4;
    case CUDNN_POINTWISE_CMP_GE:
    case CUDNN_POINTWISE_CMP_GT:
        return two && !three && y->dtype == CUDNN_DATA_BOOLEAN && compute == CUDNN_DATA_BOOLEAN &&
               t[op->x].dtype == CUDNN_DATA_INT32 && t[op->b].dtype == CUDNN_DATA_INT32;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return two && three && t[op->select].dtype == CUDNN_DATA_BOOLEAN &&
               extends(&t[op->select], y);
    default: return false;
    }
}

static bool check_reduction(const FakeDnnGraph *graph, const FakeOp *op) {
    if (op->x < 0) return false;
    const FakeTensor *x = &graph->tensors[op->x], *y = &graph->tensors[op->y];
    if (op->mode != CUDNN_REDUCE_TENSOR_ADD && op->mode != CUDNN_REDUCE_TENSOR_MAX) return false;
    for (int i = 0; i < 4; i++) {
        if (x->dims[i] % y->dims[i]) return false;
    }
    return true;
}

static bool check_product(const FakeDnnGraph *graph, const FakeOp *op) {
    if (op->x < 0 || op->b < 0) return false;
    const FakeTensor *a = &graph->tensors[op->x], *b = &graph->tensors[op->b];
    const FakeTensor *c = &graph->tensors[op->y];
    return a->dims[0] == c->dims[0] && b->dims[0] == c->dims[0] && a->dims[1] == c->dims[1] &&
           c->dims[1] % b->dims[1] == 0 && a->dims[2] == c->dims[2] && b->dims[3] == c->dims[3] &&
           a->dims[3] == b->dims[2];
}

static bool check_reshape(const FakeDnnGraph *graph, const FakeOp *op) {
    if (op->x < 0) return false;
    const FakeTensor *x = &graph->tensors[op->x], *y = &graph->tensors[op->y];
    int64_t count_x = 1, count_y = 1;
    for (int i = 0; i < 4; i++) count_x *= x->dims[i], count_y *= y->dims[i];
    FakeTensor same = *y; /* elements may change their type: places are compared */
    same.dtype = x->dtype;
    return count_x == count_y && fake_tensor_bytes(x) == fake_tensor_bytes(&same);
}

static bool read_op(FakeDnnGraph *graph, const FakeDescriptor *d, FakeOp *op) {
    bool good = true;
    const FakeDescriptor *how = NULL;
    *op = (FakeOp){.type = d->type, .x = -1, .b = -1, .select = -1, .y = -1};
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        how = fake_dnn_child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        op->x = find_tensor(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &good);
        op->b = find_tensor(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &good);
        op->select = find_tensor(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, &good);
        op->y = find_tensor(graph, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &good);
        if (how) read_value(how, CUDNN_ATTR_POINTWISE_AXIS, 1, sizeof(op->axis), &op->axis);
        return good && how && op->y >= 0 &&
               read_value(how, CUDNN_ATTR_POINTWISE_MODE, 1, sizeof(op->mode), &op->mode) &&
               check_pointwise(graph, op, how);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        how = fake_dnn_child(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
        op->x = find_tensor(graph, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &good);
        op->y = find_tensor(graph, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &good);
        return good && how && op->y >= 0 &&
               read_value(how, CUDNN_ATTR_REDUCTION_OPERATOR, 1, sizeof(op->mode), &op->mode) &&
               check_reduction(graph, op);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        graph->n_products++;
        op->x = find_tensor(graph, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, &good);
        op->b = find_tensor(graph, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, &good);
        op->y = find_tensor(graph, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, &good);
        return good && op->y >= 0 && fake_dnn_child(d, CUDNN_ATTR_OPERATION_MATMUL_DESC) &&
               check_product(graph, op);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        op->x = find_tensor(graph, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &good);
        op->y = find_tensor(graph, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &good);
        return good && op->y >= 0 && check_reshape(graph, op);
    default: return false;
    }
}

/* What is virtual is written once, before it is read; nothing is written twice. */
static bool check_flow(FakeDnnGraph *graph, const FakeOp *op) {
    const int reads[] = {op->x, op->b, op->select};
    for (int i = 0; i < 3; i++) {
        const FakeTensor *read = reads[i] >= 0 ? &graph->tensors[reads[i]] : NULL;
        if (read && read->is_virtual && !read->written) return false;
    }
    FakeTensor *y = &graph->tensors[op->y];
    bool fresh = !y->written && !y->by_value;
    y->written = true;
    return fresh;
}

bool fake_dnn_read_graph(const FakeDescriptor *descriptor, FakeDnnGraph *out) {
    const FakeAttribute *ops = fake_dnn_find(descriptor, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    *out = (FakeDnnGraph){0};
    if (!ops || ops->count < 1 || ops->count > FAKE_DNN_MOST_OPS) {
        fake_defect("an operation graph of %lld operations", ops ? (long long)ops->count : 0);
        return false;
    }
    for (int i = 0; i < ops->count; i++) {
        FakeOp *op = &out->ops[out->n_ops++];
        if (read_op(out, ((FakeDescriptor **)ops->values)[i], op) && check_flow(out, op)) continue;
        fake_defect("operation %d of an operation graph: its parts do not fit each other", i);
        return false;
    }
    return true;
}

#endif
