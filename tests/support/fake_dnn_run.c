#ifdef HAVE_CUDA

/* cuDNN: running an operation graph, one operation after the other, with sums in f64 that are
 * rounded to what each tensor holds. */
#include "runtime/cpu/vec_low.h"
#include "tests/support/fake_dnn.h"
#include "tests/support/reference_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One run; values of each tensor, in the order of its dimensions. */
typedef struct DnnRun {
    const FakeDnnGraph *graph;
    double *values[FAKE_DNN_MOST_TENSORS];
} DnnRun;

static int64_t count_of(const FakeTensor *tensor) {
    return tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
}

/* The index of element i of `of`, one number for each dimension. */
static void split(const FakeTensor *of, int64_t i, int64_t index[4]) {
    for (int d = 3; d >= 0; d--) {
        index[d] = i % of->dims[d];
        i /= of->dims[d];
    }
}

/* The element at an index, with dimensions of 1 repeated. */
static int64_t join(const FakeTensor *of, const int64_t index[4]) {
    int64_t i = 0;
    for (int d = 0; d < 4; d++) i = i * of->dims[d] + (of->dims[d] == 1 ? 0 : index[d]);
    return i;
}

static int64_t place_of(const FakeTensor *tensor, int64_t i) {
    int64_t index[4], place = 0;
    split(tensor, i, index);
    for (int d = 0; d < 4; d++) place += index[d] * tensor->strides[d];
    return place;
}

static double *allocate(const FakeTensor *tensor) {
    double *values = malloc((size_t)count_of(tensor) * sizeof(double));
    if (!values) BUG("out of memory for a tensor");
    return values;
}

/* Of numbers: indices and masks only pass. */
static DType dtype_of(const FakeTensor *tensor) {
    return tensor->dtype == CUDNN_DATA_BFLOAT16 ? DTYPE_BF16
           : tensor->dtype == CUDNN_DATA_HALF   ? DTYPE_F16
                                                : DTYPE_F32;
}

static double read_element(const FakeTensor *tensor, const void *at, int64_t place) {
    return (double)vec_get(at, dtype_of(tensor), place);
}

static void write_element(const FakeTensor *tensor, void *at, int64_t place, double value) {
    vec_put(at, dtype_of(tensor), place, (float)value); /* rounded before */
}

static double round_to(const FakeTensor *tensor, double x) {
    DType dtype = dtype_of(tensor);
    return dtype == DTYPE_F32 ? (double)(float)x : reference_rounded(dtype, x);
}

static double pointwise(const FakeOp *op, const int64_t index[4], double x, double b, bool select) {
    switch (op->mode) {
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_GEN_INDEX: return (double)index[op->axis];
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_CMP_GT: return x > b;
    default: return select ? x : b; /* BINARY_SELECT: the graph's reader knows no other */
    }
}

static void run_pointwise(const DnnRun *run, const FakeOp *op, double *y) {
    const FakeTensor *t = run->graph->tensors;
    for (int64_t i = 0; i < count_of(&t[op->y]); i++) {
        int64_t index[4];
        split(&t[op->y], i, index);
        double x = run->values[op->x][join(&t[op->x], index)];
        double b = op->b < 0 ? 0 : run->values[op->b][join(&t[op->b], index)];
        bool select = op->select >= 0 && run->values[op->select][join(&t[op->select], index)] != 0;
        y[i] = pointwise(op, index, x, b, select);
    }
}

/* Neighbours become one: all of a dimension, or the query heads of a key head. */
static void run_reduction(const DnnRun *run, const FakeOp *op, double *y) {
    const FakeTensor *from = &run->graph->tensors[op->x], *to = &run->graph->tensors[op->y];
    bool sum = op->mode == CUDNN_REDUCE_TENSOR_ADD;
    for (int64_t i = 0; i < count_of(to); i++) y[i] = sum ? 0 : -INFINITY;
    for (int64_t i = 0; i < count_of(from); i++) {
        int64_t index[4];
        double x = run->values[op->x][i];
        split(from, i, index);
        for (int d = 0; d < 4; d++) index[d] /= from->dims[d] / to->dims[d];
        double *at = &y[join(to, index)];
        *at = sum ? *at + x : x > *at ? x : *at;
    }
}

static void run_product(const DnnRun *run, const FakeOp *op, double *y) {
    const FakeTensor *a = &run->graph->tensors[op->x], *b = &run->graph->tensors[op->b];
    const FakeTensor *c = &run->graph->tensors[op->y];
    int64_t group = c->dims[1] / b->dims[1];
    for (int64_t i = 0; i < count_of(c); i++) {
        int64_t index[4];
        double sum = 0;
        split(c, i, index);
        int64_t row_a = ((index[0] * a->dims[1] + index[1]) * a->dims[2] + index[2]) * a->dims[3];
        int64_t head_b = index[0] * b->dims[1] + index[1] / group;
        for (int64_t k = 0; k < a->dims[3]; k++) {
            sum += run->values[op->x][row_a + k] *
                   run->values[op->b][(head_b * b->dims[2] + k) * b->dims[3] + index[3]];
        }
        y[i] = sum;
    }
}

/* The same memory, seen with other dimensions and strides. */
static void run_reshape(const DnnRun *run, const FakeOp *op, double *y) {
    const FakeTensor *from = &run->graph->tensors[op->x], *to = &run->graph->tensors[op->y];
    FakeTensor same = *from;
    same.dtype = CUDNN_DATA_FLOAT;
    double *memory = calloc((size_t)fake_tensor_bytes(&same) / 4, sizeof(double));
    if (!memory) BUG("out of memory for a tensor");
    for (int64_t i = 0; i < count_of(from); i++) memory[place_of(from, i)] = run->values[op->x][i];
    for (int64_t i = 0; i < count_of(to); i++) y[i] = memory[place_of(to, i)];
    free(memory);
}

static void run_op(DnnRun *run, const FakeOp *op) {
    const FakeTensor *to = &run->graph->tensors[op->y];
    double *y = run->values[op->y] = allocate(to);
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: run_pointwise(run, op, y); break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: run_reduction(run, op, y); break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: run_product(run, op, y); break;
    default: run_reshape(run, op, y);
    }
    for (int64_t i = 0; i < count_of(to); i++) y[i] = round_to(to, y[i]);
}

/* The library may write anything to its workspace. */
static void spoil(const FakeAttention *attention) {
    enum { SOME = 4096 };
    size_t bytes = (size_t)attention->workspace_bytes;
    if (bytes) memset(attention->workspace, 0xff, bytes < SOME ? bytes : SOME);
}

bool fake_run_attention(const FakeAttention *attention) {
    DnnRun run = {.graph = attention->graph};
    const FakeDnnGraph *graph = run.graph;
    spoil(attention);
    for (int t = 0; t < graph->n_tensors; t++) {
        const FakeTensor *tensor = &graph->tensors[t];
        if (tensor->is_virtual || tensor->written) continue;
        run.values[t] = allocate(tensor);
        for (int64_t i = 0; i < count_of(tensor); i++) {
            run.values[t][i] = tensor->by_value ? (double)attention->numbers[tensor->slot]
                                                : read_element(tensor, attention->at[tensor->slot],
                                                               place_of(tensor, i));
        }
    }
    for (int i = 0; i < graph->n_ops; i++) run_op(&run, &graph->ops[i]);
    for (int t = 0; t < graph->n_tensors; t++) {
        const FakeTensor *tensor = &graph->tensors[t];
        bool result = !tensor->is_virtual && tensor->written;
        for (int64_t i = 0; result && i < count_of(tensor); i++) {
            write_element(tensor, attention->at[tensor->slot], place_of(tensor, i),
                          run.values[t][i]);
        }
        free(run.values[t]);
    }
    return true;
}

#endif
