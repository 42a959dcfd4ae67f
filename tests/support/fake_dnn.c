#ifdef HAVE_CUDA

/* cuDNN's backend: descriptors that keep what they are told, engines for graphs of two or five
 * products (attention and its gradient), plans, execution. Where it is not found it has no
 * functions to call. */
#include "tests/support/fake_dnn.h"

#include <stdlib.h>
#include <string.h>

typedef struct DnnHandle {
    FakeObject object;
    cudaStream_t stream;
} DnnHandle;

static size_t version(void) {
    return (size_t)fake->options.cudnn_version;
}

static const char *error_string(cudnnStatus_t status) {
    static __thread char text[64];
    snprintf(text, sizeof(text), "the fake's status %d", (int)status);
    return text;
}

static void last_error_string(char *out, size_t size) {
    if (size) out[0] = '\0';
}

static cudnnStatus_t create(cudnnHandle_t *out) {
    *out = fake_new(FAKE_IS_DNN, sizeof(DnnHandle));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnHandle_t handle) {
    return fake_end(handle, FAKE_IS_DNN, "cudnnDestroy") ? CUDNN_STATUS_SUCCESS
                                                         : CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
    DnnHandle *dnn = fake_get(handle, FAKE_IS_DNN, "cudnnSetStream");
    if (!dnn || !fake_get(stream, FAKE_IS_STREAM, "cudnnSetStream")) return CUDNN_STATUS_BAD_PARAM;
    dnn->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* --- descriptors --- */

static cudnnStatus_t descriptor_create(cudnnBackendDescriptorType_t type,
                                       cudnnBackendDescriptor_t *out) {
    FakeDescriptor *descriptor = fake_new(FAKE_IS_DNN_DESCRIPTOR, sizeof(*descriptor));
    descriptor->type = type;
    *out = descriptor;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t descriptor_destroy(cudnnBackendDescriptor_t descriptor) {
    return fake_end(descriptor, FAKE_IS_DNN_DESCRIPTOR, "cudnnBackendDestroyDescriptor")
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_BAD_PARAM;
}

static size_t bytes_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_INT64: return 8;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_HEUR_MODE: return 4;
    case CUDNN_TYPE_BOOLEAN: return 1;
    default: return 0;
    }
}

/* Descriptors are finalized before others are made from them. */
static bool check_children(int64_t count, const void *values) {
    for (int64_t i = 0; i < count; i++) {
        const FakeDescriptor *child = fake_get(((void *const *)values)[i], FAKE_IS_DNN_DESCRIPTOR,
                                               "cudnnBackendSetAttribute");
        if (!child || !child->finalized) return false;
    }
    return true;
}

static cudnnStatus_t descriptor_set(cudnnBackendDescriptor_t descriptor,
                                    cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t type, int64_t count,
                                    const void *values) {
    const char *function = "cudnnBackendSetAttribute";
    FakeDescriptor *d = fake_get(descriptor, FAKE_IS_DNN_DESCRIPTOR, function);
    size_t bytes = bytes_of(type) * (size_t)count;
    if (!d) return CUDNN_STATUS_BAD_PARAM;
    if (d->finalized || !bytes || d->n_attributes == FAKE_DNN_MOST_ATTRIBUTES ||
        fake_dnn_find(d, name) ||
        (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && !check_children(count, values))) {
        fake_defect("%s: attribute %d of a descriptor of kind %d", function, name, d->type);
        return CUDNN_STATUS_BAD_PARAM;
    }
    FakeAttribute *attribute = &d->attributes[d->n_attributes++];
    *attribute = (FakeAttribute){name, type, count, malloc(bytes)};
    if (!attribute->values) BUG("out of memory");
    memcpy(attribute->values, values, bytes);
    return CUDNN_STATUS_SUCCESS;
}

/* --- engines --- */

enum { N_PRODUCTS_FORWARD = 2, N_PRODUCTS_BACKWARD = 5 };

static bool is_backward(const FakeDnnGraph *graph) {
    return graph->n_products == N_PRODUCTS_BACKWARD;
}

/* Of the gradient the first one adds up in whatever order. */
static int count_engines(const FakeDnnGraph *graph) {
    return is_backward(graph) ? 2 : graph->n_products == N_PRODUCTS_FORWARD;
}

/* What cuDNN 9.19 says for H100: scores' gradients in 16 bits, with rows and columns padded to 64,
 * and, in groups, the gradients of every query head. */
static int64_t workspace_bytes(const FakeDnnGraph *graph) {
    int64_t bytes = 256;
    for (int t = 0; is_backward(graph) && t < graph->n_tensors; t++) {
        const FakeTensor *tensor = &graph->tensors[t];
        int64_t heads = tensor->dims[0] * tensor->dims[1];
        int64_t rows = (tensor->dims[2] + 63) / 64 * 64, columns = (tensor->dims[3] + 63) / 64 * 64;
        if (tensor->dtype == CUDNN_DATA_BOOLEAN) bytes += heads * rows * columns * 2;
    }
    for (int i = 0; i < graph->n_ops; i++) {
        const FakeTensor *from = &graph->tensors[graph->ops[i].x];
        if (graph->ops[i].type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR &&
            fake_tensor_is_low(from)) {
            bytes += fake_tensor_bytes(from);
        }
    }
    return bytes;
}

static cudnnStatus_t finalize_plan(FakeDescriptor *plan) {
    const FakeDescriptor *config = fake_dnn_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const FakeAttribute *handle = fake_dnn_find(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    if (!config || !config->graph || !handle ||
        !fake_get(*(void **)handle->values, FAKE_IS_DNN, "cudnnBackendFinalize")) {
        fake_defect("cudnnBackendFinalize: a plan without a configuration or a handle");
        return CUDNN_STATUS_BAD_PARAM;
    }
    /* It compiles and loads a kernel. */
    if (fake_check_no_capture("cudnnBackendFinalize")) return CUDNN_STATUS_EXECUTION_FAILED;
    plan->graph = config->graph;
    plan->engine = config->engine;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_heuristic(FakeDescriptor *heuristic) {
    const FakeDescriptor *graph = fake_dnn_child(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    if (!graph || !fake_dnn_find(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    heuristic->graph = graph->graph;
    return count_engines(graph->graph) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t finalize_graph(FakeDescriptor *descriptor) {
    descriptor->graph = malloc(sizeof(*descriptor->graph));
    if (!descriptor->graph) BUG("out of memory for an operation graph");
    return fake_dnn_read_graph(descriptor, descriptor->graph) ? CUDNN_STATUS_SUCCESS
                                                              : CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
    FakeDescriptor *d = fake_get(descriptor, FAKE_IS_DNN_DESCRIPTOR, "cudnnBackendFinalize");
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (!d || d->finalized) return CUDNN_STATUS_BAD_PARAM;
    if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) status = finalize_graph(d);
    if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) status = finalize_heuristic(d);
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) status = finalize_plan(d);
    d->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* Descriptors that are asked for are filled, and finalized with that. */
static void fill(void *const *into, const FakeDescriptor *from, int engine) {
    FakeDescriptor *d = fake_get(*into, FAKE_IS_DNN_DESCRIPTOR, "cudnnBackendGetAttribute");
    if (!d) return;
    d->graph = from->graph;
    d->engine = engine;
    d->finalized = true;
}

static cudnnStatus_t descriptor_get(cudnnBackendDescriptor_t const descriptor,
                                    cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t type, int64_t wanted,
                                    int64_t *out_count, void *out) {
    const char *function = "cudnnBackendGetAttribute";
    const FakeDescriptor *d = fake_get(descriptor, FAKE_IS_DNN_DESCRIPTOR, function);
    if (!d || !d->finalized || wanted < 1) return CUDNN_STATUS_BAD_PARAM;
    *out_count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        *out_count = count_engines(d->graph) < wanted ? count_engines(d->graph) : wanted;
        for (int i = 0; i < *out_count; i++) fill((void **)out + i, d, i);
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        fill(out, d, d->engine);
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
        bool any_order = is_backward(d->graph) && d->engine == 0;
        *(cudnnBackendNumericalNote_t *)out =
            any_order ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == CUDNN_TYPE_INT64) {
        *(int64_t *)out = 5 + d->engine;
        return CUDNN_STATUS_SUCCESS;
    }
    if ((name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE ||
         name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) &&
        type == CUDNN_TYPE_INT64) {
        *(int64_t *)out = workspace_bytes(d->graph);
        return CUDNN_STATUS_SUCCESS;
    }
    fake_defect("%s: attribute %d is not imitated", function, name);
    return CUDNN_STATUS_NOT_SUPPORTED;
}

/* --- execution --- */

static void *pointer_of(const FakeDescriptor *pack, int64_t id) {
    const FakeAttribute *ids = fake_dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const FakeAttribute *at = fake_dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int64_t i = 0; ids && at && i < ids->count && i < at->count; i++) {
        if (((const int64_t *)ids->values)[i] == id) return ((void **)at->values)[i];
    }
    return NULL;
}

/* Where the graph's tensors lie; false: a defect. */
static bool find_memory(const FakeDnnGraph *graph, const FakeDescriptor *pack, FakeAttention *out) {
    const FakeAttribute *ids = fake_dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    for (int t = 0; t < graph->n_tensors; t++) {
        const FakeTensor *tensor = &graph->tensors[t];
        if (tensor->is_virtual) continue;
        void *at = pointer_of(pack, tensor->id);
        out->at[tensor->slot] = at;
        if (at && tensor->by_value)
            out->numbers[tensor->slot] = tensor->dtype == CUDNN_DATA_INT32
                                             ? (float)*(const int32_t *)at
                                             : *(const float *)at;
        if (at && (tensor->by_value || ((uintptr_t)at % 16 == 0 &&
                                        fake_memory_has(at, fake_tensor_bytes(tensor), true)))) {
            continue;
        }
        fake_defect("cudnnBackendExecute: tensor %lld lies nowhere", (long long)tensor->id);
        return false;
    }
    if (ids && ids->count == graph->n_given) return true;
    fake_defect("cudnnBackendExecute: memory for a tensor that the graph does not have");
    return false;
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack) {
    const char *function = "cudnnBackendExecute";
    const DnnHandle *dnn = fake_get(handle, FAKE_IS_DNN, function);
    FakeDescriptor *p = fake_get(plan, FAKE_IS_DNN_DESCRIPTOR, function);
    const FakeDescriptor *given = fake_get(pack, FAKE_IS_DNN_DESCRIPTOR, function);
    FakeNode node = {.kind = FAKE_ATTENTION};
    if (!dnn || !p || !given || !p->finalized || !given->finalized || !p->graph) {
        fake_defect("%s: what it was given is not ready", function);
        return CUDNN_STATUS_BAD_PARAM;
    }
    const FakeAttribute *workspace = fake_dnn_find(given, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    node.attention.graph = p->graph;
    node.attention.repeats = !is_backward(p->graph) || p->engine != 0;
    node.attention.workspace_bytes = workspace_bytes(p->graph);
    if (workspace) node.attention.workspace = *(void **)workspace->values;
    if (!find_memory(p->graph, given, &node.attention)) return CUDNN_STATUS_BAD_PARAM;
    if (!fake_memory_has(node.attention.workspace, node.attention.workspace_bytes, true)) {
        fake_defect("%s: its workspace lies nowhere", function);
        return CUDNN_STATUS_BAD_PARAM;
    }
    fake_check_loaded(dnn->stream, &p->loaded, function);
    return fake_issue(&node, dnn->stream, function) ? CUDNN_STATUS_EXECUTION_FAILED
                                                    : CUDNN_STATUS_SUCCESS;
}

void fake_free_descriptor(FakeObject *object) {
    FakeDescriptor *d = (FakeDescriptor *)object;
    for (int i = 0; i < d->n_attributes; i++) free(d->attributes[i].values);
    if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) free(d->graph);
}

void fake_fill_cudnn(CuApi *api) {
    api->cudnnGetVersion = version;
    api->cudnnGetErrorString = error_string;
    api->cudnnGetLastErrorString = last_error_string;
    api->cudnnCreate = create;
    api->cudnnDestroy = destroy;
    api->cudnnSetStream = set_stream;
    api->cudnnBackendCreateDescriptor = descriptor_create;
    api->cudnnBackendDestroyDescriptor = descriptor_destroy;
    api->cudnnBackendSetAttribute = descriptor_set;
    api->cudnnBackendGetAttribute = descriptor_get;
    api->cudnnBackendFinalize = finalize;
    api->cudnnBackendExecute = execute;
}

#endif
