#include "runtime/cuda/driver/attention_graph.h"

typedef cudnnBackendDescriptor_t Descriptor;

/* [batch, heads, rows, columns], in elements. */
typedef struct View {
    int64_t dims[4], strides[4];
} View;

/* --- descriptors --- */

Descriptor attention_graph_descriptor(DnnGraph *graph, cudnnBackendDescriptorType_t type) {
    Descriptor descriptor = NULL;
    if (graph->status != CUDNN_STATUS_SUCCESS) return NULL;
    if (graph->n_descriptors == MAX_ATTENTION_DESCRIPTORS) BUG("too many descriptors");
    graph->status = graph->api->cudnnBackendCreateDescriptor(type, &descriptor);
    if (graph->status != CUDNN_STATUS_SUCCESS) return NULL;
    return graph->descriptors[graph->n_descriptors++] = descriptor;
}

void attention_graph_set(DnnGraph *graph, Descriptor descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (graph->status != CUDNN_STATUS_SUCCESS) return;
    graph->status = graph->api->cudnnBackendSetAttribute(descriptor, name, type, count, values);
}

void attention_graph_finalize(DnnGraph *graph, Descriptor descriptor) {
    if (graph->status != CUDNN_STATUS_SUCCESS) return;
    graph->status = graph->api->cudnnBackendFinalize(descriptor);
}

static void set_child(DnnGraph *graph, Descriptor descriptor, cudnnBackendAttributeName_t name,
                      Descriptor child) {
    if (child) {
        attention_graph_set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &child);
    }
}

/* --- tensors --- */

static View packed(int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
    return (View){{batch, heads, rows, columns},
                  {heads * rows * columns, rows * columns, columns, 1}};
}

/* As values lie in the arena: [batch, seq, heads, head], `group` heads for each of the shape's key
 * heads; of the part's sequences and key heads. */
static View laid_out(const AttentionShape *s, AttentionPart part, int64_t group, int64_t head) {
    int64_t row = s->kv_heads * group * head;
    return (View){{part.batch, part.kv_heads * group, s->seq, head}, {s->seq * row, head, row, 1}};
}

/* A gradient of the same, where those of q, k and v lie side by side. */
static View side_by_side(const AttentionShape *s, View view) {
    int64_t row = s->gradient_row;
    if (!row) return view;
    view.strides[0] = s->seq * row;
    view.strides[2] = row;
    return view;
}

static View transposed(View view) {
    return (View){{view.dims[0], view.dims[1], view.dims[3], view.dims[2]},
                  {view.strides[0], view.strides[1], view.strides[3], view.strides[2]}};
}

static Descriptor make_tensor(DnnGraph *graph, int64_t id, cudnnDataType_t dtype, View view,
                              bool is_virtual, bool by_value) {
    static const int64_t ALIGNMENT = 16;
    Descriptor tensor = attention_graph_descriptor(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    attention_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                        &dtype);
    attention_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
                        view.dims);
    attention_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4,
                        view.strides);
    attention_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    attention_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
                        &ALIGNMENT);
    attention_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                        &is_virtual);
    attention_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                        &by_value);
    attention_graph_finalize(graph, tensor);
    return tensor;
}

static Descriptor given(DnnGraph *graph, AttentionTensor id, cudnnDataType_t dtype, View view) {
    graph->given[id] = true;
    return make_tensor(graph, id, dtype, view, false, false);
}

static Descriptor number(DnnGraph *graph, AttentionTensor id, cudnnDataType_t dtype) {
    graph->given[id] = true;
    return make_tensor(graph, id, dtype, packed(1, 1, 1, 1), false, true);
}

/* A value that only the graph sees. */
static Descriptor passing(DnnGraph *graph, cudnnDataType_t dtype, View view) {
    int64_t id = N_ATTENTION_TENSORS + graph->n_virtual++;
    return make_tensor(graph, id, dtype, view, true, false);
}

/* --- operations --- */

static Descriptor push_operation(DnnGraph *graph, Descriptor operation, Descriptor result) {
    attention_graph_finalize(graph, operation);
    if (graph->n_operations == MAX_ATTENTION_OPERATIONS) BUG("too many operations");
    graph->operations[graph->n_operations++] = operation;
    return result;
}

/* What the operands of a pointwise operation are; b and select may be NULL. */
typedef struct Pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t compute;
    Descriptor x, b, select;
    int64_t axis; /* of GEN_INDEX */
} Pointwise;

static Descriptor add_pointwise(DnnGraph *graph, Pointwise p, Descriptor y) {
    Descriptor how = attention_graph_descriptor(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    attention_graph_set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
                        &p.mode);
    attention_graph_set(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
                        &p.compute);
    if (p.mode == CUDNN_POINTWISE_GEN_INDEX) {
        attention_graph_set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis);
    }
    attention_graph_finalize(graph, how);
    Descriptor operation =
        attention_graph_descriptor(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.select);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return push_operation(graph, operation, y);
}

/* y = mode(x, b), all in f32. */
static Descriptor add_float(DnnGraph *graph, cudnnPointwiseMode_t mode, Descriptor x, Descriptor b,
                            Descriptor y) {
    return add_pointwise(graph, (Pointwise){mode, CUDNN_DATA_FLOAT, x, b, NULL, 0}, y);
}

/* y = x summed, or its largest, along the axes of which y has one. */
static Descriptor add_reduction(DnnGraph *graph, cudnnReduceTensorOp_t operator, Descriptor x,
                                Descriptor y) {
    static const cudnnDataType_t COMPUTE = CUDNN_DATA_FLOAT;
    Descriptor how = attention_graph_descriptor(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    attention_graph_set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR,
                        CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operator);
    attention_graph_set(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                        &COMPUTE);
    attention_graph_finalize(graph, how);
    Descriptor operation =
        attention_graph_descriptor(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    return push_operation(graph, operation, y);
}

/* c = a b, of each head; b's heads are repeated where there are fewer. */
static Descriptor add_product(DnnGraph *graph, Descriptor a, Descriptor b, Descriptor c) {
    static const cudnnDataType_t COMPUTE = CUDNN_DATA_FLOAT;
    Descriptor how = attention_graph_descriptor(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    attention_graph_set(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &COMPUTE);
    attention_graph_finalize(graph, how);
    Descriptor operation =
        attention_graph_descriptor(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    return push_operation(graph, operation, c);
}

/* The same elements with other dimensions, each stride with its dimension: a transpose here. */
static Descriptor add_reshape(DnnGraph *graph, Descriptor x, Descriptor y) {
    Descriptor operation =
        attention_graph_descriptor(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_child(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    return push_operation(graph, operation, y);
}

/* --- attention --- */

/* What forward and backward share. */
typedef struct Attention {
    DnnGraph *graph;
    const AttentionShape *shape;
    AttentionPart part;
    cudnnDataType_t low; /* the shape's dtype */
    int64_t heads;       /* of the part's queries */
    View scores, rows;   /* [batch, heads, seq, seq] and [batch, heads, seq, 1] */
    int64_t value;       /* numbers of a head of values and outputs */
    View queries, keys;  /* as they lie in the arena, */
    View outs, values;   /* and so outputs and values */
    Descriptor scale;    /* a number */
} Attention;

static Descriptor new_scores(const Attention *a) {
    return passing(a->graph, CUDNN_DATA_FLOAT, a->scores);
}

static Descriptor new_rows(const Attention *a) {
    return passing(a->graph, CUDNN_DATA_FLOAT, a->rows);
}

/* The number of each score's row or column. */
static Descriptor add_index(const Attention *a, Descriptor scores, int64_t axis) {
    Pointwise index = {
        .mode = CUDNN_POINTWISE_GEN_INDEX, .compute = CUDNN_DATA_FLOAT, .x = scores, .axis = axis};
    return add_pointwise(a->graph, index, passing(a->graph, CUDNN_DATA_INT32, a->scores));
}

/* Scores become -infinity where not mode(x, b). */
static Descriptor keep_where(const Attention *a, Descriptor scores, cudnnPointwiseMode_t mode,
                             Descriptor x, Descriptor b) {
    DnnGraph *graph = a->graph;
    Pointwise compare = {.mode = mode, .compute = CUDNN_DATA_BOOLEAN, .x = x, .b = b};
    Pointwise select = {.mode = CUDNN_POINTWISE_BINARY_SELECT,
                        .compute = CUDNN_DATA_FLOAT,
                        .x = scores,
                        .b = number(graph, ATTENTION_MASKED, CUDNN_DATA_FLOAT)};
    select.select = add_pointwise(graph, compare, passing(graph, CUDNN_DATA_BOOLEAN, a->scores));
    return add_pointwise(graph, select, new_scores(a));
}

/* Those of later positions than the row's, */
static Descriptor hide_later(const Attention *a, Descriptor scores) {
    if (!a->shape->causal) return scores;
    Descriptor row = add_index(a, scores, 2), column = add_index(a, scores, 3);
    return keep_where(a, scores, CUDNN_POINTWISE_CMP_GE, row, column);
}

/* and of those that a window or more are before it. */
static Descriptor hide_earlier(const Attention *a, Descriptor scores) {
    if (!a->shape->window) return scores;
    Descriptor row = add_index(a, scores, 2), column = add_index(a, scores, 3);
    Pointwise add = {.mode = CUDNN_POINTWISE_ADD,
                     .compute = CUDNN_DATA_INT32,
                     .x = column,
                     .b = number(a->graph, ATTENTION_WINDOW, CUDNN_DATA_INT32)};
    column = add_pointwise(a->graph, add, passing(a->graph, CUDNN_DATA_INT32, a->scores));
    return keep_where(a, scores, CUDNN_POINTWISE_CMP_GT, column, row);
}

static Descriptor scaled_scores(const Attention *a, Descriptor q, Descriptor k_transposed) {
    Descriptor scores = add_product(a->graph, q, k_transposed, new_scores(a));
    return add_float(a->graph, CUDNN_POINTWISE_MUL, scores, a->scale, new_scores(a));
}

/* The rows' lse, as values lie in the arena. */
static Descriptor new_lse(const Attention *a) {
    return given(a->graph, ATTENTION_LSE, CUDNN_DATA_FLOAT,
                 laid_out(a->shape, a->part, a->shape->group, 1));
}

static Descriptor operand(const Attention *a, AttentionTensor id, View view) {
    return given(a->graph, id, a->low, view);
}

static Descriptor gradient(const Attention *a, AttentionTensor id, View view) {
    return operand(a, id, side_by_side(a->shape, view));
}

static void build_forward(const Attention *a) {
    DnnGraph *graph = a->graph;
    Descriptor q = operand(a, ATTENTION_Q, a->queries);
    Descriptor k_transposed = operand(a, ATTENTION_K, transposed(a->keys));
    Descriptor v = operand(a, ATTENTION_V, a->values);
    Descriptor scores = hide_earlier(a, hide_later(a, scaled_scores(a, q, k_transposed)));
    Descriptor most = add_reduction(graph, CUDNN_REDUCE_TENSOR_MAX, scores, new_rows(a));
    Descriptor less = add_float(graph, CUDNN_POINTWISE_SUB, scores, most, new_scores(a));
    Descriptor powers = add_float(graph, CUDNN_POINTWISE_EXP, less, NULL, new_scores(a));
    Descriptor sums = add_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, powers, new_rows(a));
    Descriptor logs = add_float(graph, CUDNN_POINTWISE_LOG, sums, NULL, new_rows(a));
    add_float(graph, CUDNN_POINTWISE_ADD, most, logs, new_lse(a));
    Descriptor weights =
        add_float(graph, CUDNN_POINTWISE_DIV, powers, sums, passing(graph, a->low, a->scores));
    add_product(graph, weights, v, operand(a, ATTENTION_O, a->outs));
}

/* delta = rowsum(o d_o)   (Dao et al. 2022, algorithm 4) */
static Descriptor add_delta(const Attention *a, Descriptor o, Descriptor d_o) {
    DnnGraph *graph = a->graph;
    View whole = packed(a->part.batch, a->heads, a->shape->seq, a->value);
    Descriptor product =
        add_float(graph, CUDNN_POINTWISE_MUL, d_o, o, passing(graph, CUDNN_DATA_FLOAT, whole));
    Descriptor sum = add_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, product, new_rows(a));
    /* Times what dropout would have left out: nothing. */
    return add_float(graph, CUDNN_POINTWISE_MUL, sum,
                     number(graph, ATTENTION_ONE, CUDNN_DATA_FLOAT),
                     given(graph, ATTENTION_DELTA, CUDNN_DATA_FLOAT, a->rows));
}

/* out = x^T rows, summed over the query heads of each key head; rows of `width` numbers. */
static void add_key_gradient(const Attention *a, Descriptor x, Descriptor rows, int64_t width,
                             Descriptor out) {
    DnnGraph *graph = a->graph;
    Descriptor x_transposed = add_reshape(graph, x, passing(graph, a->low, transposed(a->scores)));
    if (a->shape->group == 1) {
        add_product(graph, x_transposed, rows, out);
        return;
    }
    View whole = packed(a->part.batch, a->heads, a->shape->seq, width);
    Descriptor each = add_product(graph, x_transposed, rows, passing(graph, a->low, whole));
    add_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, each, out);
}

/* P = exp(scale q k^T - lse), dv = P^T do, dS = scale P (do v^T - delta), dk = dS^T q, dq = dS k */
static void build_backward(const Attention *a) {
    DnnGraph *graph = a->graph;
    Descriptor q = operand(a, ATTENTION_Q, a->queries);
    Descriptor k_transposed = operand(a, ATTENTION_K, transposed(a->keys));
    Descriptor v_transposed = operand(a, ATTENTION_V, transposed(a->values));
    Descriptor o = operand(a, ATTENTION_O, a->outs);
    Descriptor d_o = operand(a, ATTENTION_D_O, a->outs);
    Descriptor delta = add_delta(a, o, d_o);
    Descriptor scores = scaled_scores(a, q, k_transposed);
    scores = add_float(graph, CUDNN_POINTWISE_SUB, scores, new_lse(a), new_scores(a));
    scores = hide_earlier(a, hide_later(a, scores));
    Descriptor weights = add_float(graph, CUDNN_POINTWISE_EXP, scores, NULL, new_scores(a));
    add_key_gradient(a, weights, d_o, a->value, gradient(a, ATTENTION_DV, a->values));
    Descriptor x = add_product(graph, d_o, v_transposed, new_scores(a));
    x = add_float(graph, CUDNN_POINTWISE_SUB, x, delta, new_scores(a));
    x = add_float(graph, CUDNN_POINTWISE_MUL, x, weights, new_scores(a));
    x = add_float(graph, CUDNN_POINTWISE_MUL, x, a->scale, new_scores(a));
    add_key_gradient(a, x, q, a->shape->head, gradient(a, ATTENTION_DK, a->keys));
    Descriptor k = add_reshape(graph, k_transposed, passing(graph, a->low, a->keys));
    add_product(graph, x, k, gradient(a, ATTENTION_DQ, a->queries));
}

void attention_graph_build(const CuApi *api, cudnnHandle_t handle, const AttentionShape *s,
                           AttentionPart part, DnnGraph *out) {
    *out = (DnnGraph){.api = api, .status = CUDNN_STATUS_SUCCESS};
    int64_t heads = part.kv_heads * s->group, value = attention_values(s);
    Attention a = {.graph = out,
                   .shape = s,
                   .part = part,
                   .low = s->dtype == DTYPE_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
                   .heads = heads,
                   .scores = packed(part.batch, heads, s->seq, s->seq),
                   .rows = packed(part.batch, heads, s->seq, 1),
                   .value = value,
                   .queries = laid_out(s, part, s->group, s->head),
                   .keys = laid_out(s, part, 1, s->head),
                   .outs = laid_out(s, part, s->group, value),
                   .values = laid_out(s, part, 1, value),
                   .scale = number(out, ATTENTION_SCALE, CUDNN_DATA_FLOAT)};
    if (s->backward) {
        build_backward(&a);
    } else {
        build_forward(&a);
    }
    out->graph = attention_graph_descriptor(out, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    attention_graph_set(out, out->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                        CUDNN_TYPE_BACKEND_DESCRIPTOR, out->n_operations, out->operations);
    if (handle) {
        attention_graph_set(out, out->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                            &handle);
    }
    attention_graph_finalize(out, out->graph);
}

void attention_graph_destroy(DnnGraph *graph) {
    while (graph->n_descriptors > 0) {
        graph->api->cudnnBackendDestroyDescriptor(graph->descriptors[--graph->n_descriptors]);
    }
    graph->graph = NULL;
}
