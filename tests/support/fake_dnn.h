/* The fake's cuDNN: what an operation graph says, read from its descriptors and nothing else, and
 * the running of it, operation by operation. */
#ifndef TESTS_SUPPORT_FAKE_DNN_H
#define TESTS_SUPPORT_FAKE_DNN_H
#ifdef HAVE_CUDA

#include "tests/support/fake_internal.h"

enum { FAKE_DNN_MOST_TENSORS = 64, FAKE_DNN_MOST_OPS = 32, FAKE_DNN_MOST_ATTRIBUTES = 16 };

typedef struct FakeAttribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *values;
} FakeAttribute;

typedef struct FakeDescriptor {
    FakeObject object;
    cudnnBackendDescriptorType_t type;
    bool finalized;
    int n_attributes;
    FakeAttribute attributes[FAKE_DNN_MOST_ATTRIBUTES];
    struct FakeDnnGraph *graph; /* of an operation graph, and of what is made from one */
    int engine;                 /* of a configuration, an engine, a plan */
    bool loaded;                /* a plan: it has run */
} FakeDescriptor;

typedef struct FakeTensor {
    int64_t id, dims[4], strides[4];
    cudnnDataType_t dtype;
    bool is_virtual, by_value, written;
    int slot; /* among those that are given */
} FakeTensor;

/* Tensors by their place in the graph; -1: none. */
typedef struct FakeOp {
    cudnnBackendDescriptorType_t type;
    int mode; /* of a pointwise operation or a reduction */
    int64_t axis;
    int x, b, select, y;
} FakeOp;

typedef struct FakeDnnGraph {
    int n_tensors, n_given, n_ops, n_products;
    FakeTensor tensors[FAKE_DNN_MOST_TENSORS];
    FakeOp ops[FAKE_DNN_MOST_OPS];
} FakeDnnGraph;

/* NULL: not set. */
const FakeAttribute *fake_dnn_find(const FakeDescriptor *descriptor,
                                   cudnnBackendAttributeName_t name);
FakeDescriptor *fake_dnn_child(const FakeDescriptor *descriptor, cudnnBackendAttributeName_t name);
/* The graph of an operation graph's descriptor; false: its parts do not fit each other, a defect
 * says how. */
bool fake_dnn_read_graph(const FakeDescriptor *descriptor, FakeDnnGraph *out);
static inline bool fake_tensor_is_low(const FakeTensor *tensor) {
    return tensor->dtype == CUDNN_DATA_BFLOAT16 || tensor->dtype == CUDNN_DATA_HALF;
}
/* Bytes from the first to behind the last element. */
int64_t fake_tensor_bytes(const FakeTensor *tensor);

#endif
#endif
