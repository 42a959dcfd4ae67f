#ifdef HAVE_CUDA

/* Streams, events, captures and graphs, by CUDA's rules (cudaStreamCaptureModeThreadLocal). */
#include "tests/support/fake_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Is this thread capturing? */
static bool is_capturing(void) {
    return fake->capture && pthread_equal(fake->capture->thread, pthread_self());
}

cudaError_t fake_check_no_capture(const char *function) {
    if (!is_capturing()) return cudaSuccess;
    fake_defect("%s is called while a stream is captured", function);
    fake->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

/* Work on a stream that does not wait for the legacy one. */
static void check_legacy(const char *function) {
    if (!fake->legacy_work) return;
    fake_defect("%s, while %s may not have ended: nothing has waited for it", function,
                fake->legacy_work);
    fake->legacy_work = NULL;
}

/* The stream of a call that gives it work. *out_stream NULL: outside a capture. */
static cudaError_t check_work(cudaStream_t stream, const char *function, FakeStream **out_stream) {
    *out_stream = NULL;
    if (!stream) {
        if (!is_capturing()) return cudaSuccess;
        fake_defect("%s on the legacy stream while a stream is captured", function);
        fake->capture->invalid = true;
        return cudaErrorStreamCaptureImplicit;
    }
    FakeStream *s = fake_get(stream, FAKE_IS_STREAM, function);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->capturing) {
        if (fake->capture->invalid) return cudaErrorStreamCaptureInvalidated;
        *out_stream = s;
        return cudaSuccess;
    }
    if (!is_capturing()) {
        check_legacy(function);
        return cudaSuccess;
    }
    fake_defect("%s on stream %d, which is not part of the capture in progress", function,
                s->number);
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t fake_issue(FakeNode *node, cudaStream_t stream, const char *function) {
    FakeStream *capturing;
    cudaError_t status = check_work(stream, function, &capturing);
    if (status == cudaSuccess && capturing) {
        node->stream = capturing->chain;
        node->command = fake->command;
        fake_graph_push_node(fake->capture->graph, node);
        return cudaSuccess;
    }
    if (status == cudaSuccess) {
        fake->n_eager++;
        if (!fake_cuda_run_node(node)) status = cudaErrorLaunchFailure;
    }
    if (node->kind == FAKE_KERNEL) free(node->launch.args);
    if (node->kind == FAKE_NCCL) free(node->message.more);
    return status;
}

void fake_check_loaded(cudaStream_t stream, bool *loaded, const char *function) {
    const FakeStream *s = (const FakeStream *)stream;
    if (!s || !s->capturing) {
        *loaded = true;
    } else if (!*loaded) {
        fake_defect("%s is captured before it has run: its kernels are loaded lazily", function);
        *loaded = true;
    }
}

/* Streams */

enum { FAKE_GREATEST_PRIORITY = -5 };

static cudaError_t stream_create(cudaStream_t *out, unsigned flags) {
    FakeStream *stream = fake_new(FAKE_IS_STREAM, sizeof(*stream));
    stream->number = fake->n_streams++;
    *out = (cudaStream_t)stream;
    if (flags == cudaStreamNonBlocking) return cudaSuccess;
    fake_defect("cudaStreamCreateWithFlags: a stream that waits for the legacy stream");
    return cudaSuccess;
}

static cudaError_t stream_create_urgent(cudaStream_t *out, unsigned flags, int priority) {
    if (priority < FAKE_GREATEST_PRIORITY || priority > 0) {
        fake_defect("cudaStreamCreateWithPriority: %d is no priority", priority);
        return cudaErrorInvalidValue;
    }
    return stream_create(out, flags);
}

static cudaError_t priority_range(int *least, int *greatest) {
    *least = 0;
    *greatest = FAKE_GREATEST_PRIORITY;
    return cudaSuccess;
}

static cudaError_t stream_destroy(cudaStream_t stream) {
    const FakeStream *s = (const FakeStream *)stream;
    if (!fake_end(stream, FAKE_IS_STREAM, "cudaStreamDestroy")) {
        return cudaErrorInvalidResourceHandle;
    }
    if (s->capturing) fake_defect("cudaStreamDestroy: stream %d is captured", s->number);
    return cudaSuccess;
}

static cudaError_t wait_for_stream(cudaStream_t stream, const char *function) {
    if (stream && !fake_get(stream, FAKE_IS_STREAM, function)) {
        return cudaErrorInvalidResourceHandle;
    }
    if (!stream) fake->legacy_work = NULL;
    if (fake->hung) fake_defect("%s would wait for another rank for ever", function);
    return fake_check_no_capture(function);
}

static cudaError_t stream_synchronize(cudaStream_t stream) {
    return wait_for_stream(stream, "cudaStreamSynchronize");
}

static cudaError_t stream_query(cudaStream_t stream) {
    if (fake->hung) return cudaErrorNotReady;
    return wait_for_stream(stream, "cudaStreamQuery");
}

/* Events */

static cudaError_t event_create(cudaEvent_t *out, unsigned flags) {
    FakeEvent *event = fake_new(FAKE_IS_EVENT, sizeof(*event));
    event->number = fake->n_events++;
    event->timed = !(flags & cudaEventDisableTiming);
    *out = (cudaEvent_t)event;
    return cudaSuccess;
}

static cudaError_t event_destroy(cudaEvent_t event) {
    return fake_end(event, FAKE_IS_EVENT, "cudaEventDestroy") ? cudaSuccess
                                                              : cudaErrorInvalidResourceHandle;
}

static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
    FakeStream *capturing;
    FakeEvent *e = fake_get(event, FAKE_IS_EVENT, "cudaEventRecord");
    if (!e) return cudaErrorInvalidResourceHandle;
    cudaError_t status = check_work(stream, "cudaEventRecord", &capturing);
    if (status != cudaSuccess) return status;
    e->recorded = true;
    e->capture = capturing ? fake->capture->id : 0;
    e->seconds = now();
    if (!capturing) return cudaSuccess;
    e->record = fake->capture->graph->n_records;
    fake_graph_push(fake->capture->graph, FAKE_RECORD, capturing->chain, e->record);
    return cudaSuccess;
}

static cudaError_t event_synchronize(cudaEvent_t event) {
    const FakeEvent *e = fake_get(event, FAKE_IS_EVENT, "cudaEventSynchronize");
    if (!e) return cudaErrorInvalidResourceHandle;
    if (!e->recorded) fake_defect("cudaEventSynchronize: event %d was never recorded", e->number);
    return fake_check_no_capture("cudaEventSynchronize");
}

static cudaError_t event_elapsed(float *out_ms, cudaEvent_t first, cudaEvent_t last) {
    const FakeEvent *a = fake_get(first, FAKE_IS_EVENT, "cudaEventElapsedTime");
    const FakeEvent *b = fake_get(last, FAKE_IS_EVENT, "cudaEventElapsedTime");
    if (!a || !b) return cudaErrorInvalidResourceHandle;
    if (!a->timed || !b->timed || !a->recorded || !b->recorded) {
        fake_defect("cudaEventElapsedTime: an event without a time");
        return cudaErrorInvalidResourceHandle;
    }
    *out_ms = (float)(1e3 * (b->seconds - a->seconds));
    return cudaSuccess;
}

/* A wait of a stream that was not captured takes it into the capture. */
static cudaError_t wait_captured(FakeStream *stream, const FakeEvent *event) {
    FakeCapture *capture = fake->capture;
    if (!capture || event->capture != capture->id) {
        fake_defect("cudaStreamWaitEvent: event %d was recorded in a capture that has ended",
                    event->number);
        return cudaErrorCapturedEvent;
    }
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!stream->capturing) {
        stream->capturing = true;
        stream->chain = capture->graph->n_streams++;
    }
    fake_graph_push(capture->graph, FAKE_WAIT, stream->chain, event->record);
    return cudaSuccess;
}

static cudaError_t wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    const char *function = "cudaStreamWaitEvent";
    const FakeEvent *e = fake_get(event, FAKE_IS_EVENT, function);
    if (!e || flags) return cudaErrorInvalidResourceHandle;
    if (!e->recorded) {
        /* CUDA waits for nothing then. */
        fake_defect("%s: event %d was never recorded", function, e->number);
        return cudaSuccess;
    }
    FakeStream *s = stream ? fake_get(stream, FAKE_IS_STREAM, function) : NULL;
    if (stream && !s) return cudaErrorInvalidResourceHandle;
    if (s && e->capture) return wait_captured(s, e);
    if (s && s->capturing) {
        fake_defect("%s: captured stream %d waits for event %d, recorded outside the capture",
                    function, s->number, e->number);
        fake->capture->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    FakeStream *capturing;
    return check_work(stream, function, &capturing);
}

/* Captures */

static cudaError_t begin_capture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    FakeStream *s = fake_get(stream, FAKE_IS_STREAM, "cudaStreamBeginCapture");
    if (!s) return cudaErrorInvalidResourceHandle;
    if (fake->capture) {
        fake_defect("cudaStreamBeginCapture: another capture is in progress");
        return cudaErrorIllegalState;
    }
    if (mode != cudaStreamCaptureModeThreadLocal) {
        fake_defect("cudaStreamBeginCapture: not in the thread's own mode");
    }
    fake->capture = calloc(1, sizeof(*fake->capture));
    FakeGraph *graph = calloc(1, sizeof(*graph));
    if (!fake->capture || !graph) BUG("out of memory");
    *fake->capture = (FakeCapture){
        .id = ++fake->n_captures, .graph = graph, .origin = s, .thread = pthread_self()};
    if (fake->n_graphs == fake->graph_capacity) {
        fake->graph_capacity = fake->graph_capacity ? 2 * fake->graph_capacity : 16;
        fake->graphs = realloc(fake->graphs, (size_t)fake->graph_capacity * sizeof(FakeGraph *));
        if (!fake->graphs) BUG("out of memory");
    }
    fake->graphs[fake->n_graphs++] = graph;
    graph->n_streams = 1;
    s->capturing = true;
    s->chain = 0;
    fake->command = NULL;
    return cudaSuccess;
}

static cudaError_t finish_capture(const FakeCapture *capture) {
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    FakeDag dag = fake_dag_build(capture->graph, -1);
    int n_unjoined = dag.n_unjoined;
    fake_dag_free(&dag);
    if (!n_unjoined) return cudaSuccess;
    fake_defect("cudaStreamEndCapture: %d streams are not joined to the origin", n_unjoined);
    return cudaErrorStreamCaptureUnjoined;
}

static cudaError_t end_capture(cudaStream_t stream, cudaGraph_t *out) {
    *out = NULL;
    FakeStream *s = fake_get(stream, FAKE_IS_STREAM, "cudaStreamEndCapture");
    if (!s) return cudaErrorInvalidResourceHandle;
    if (!fake->capture || fake->capture->origin != s) {
        fake_defect("cudaStreamEndCapture: no capture began on stream %d", s->number);
        return fake->capture ? cudaErrorStreamCaptureUnmatched : cudaErrorIllegalState;
    }
    FakeCapture *capture = fake->capture;
    cudaError_t status = finish_capture(capture);
    for (FakeObject *object = fake->objects; object; object = object->next) {
        if (object->kind == FAKE_IS_STREAM) ((FakeStream *)object)->capturing = false;
    }
    if (status == cudaSuccess) {
        FakeGraphHandle *handle = fake_new(FAKE_IS_GRAPH, sizeof(*handle));
        handle->graph = capture->graph;
        *out = (cudaGraph_t)handle;
    }
    free(capture);
    fake->capture = NULL;
    fake->command = NULL;
    return status;
}

/* Graphs */

static bool has_messages(const FakeGraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i].kind == FAKE_NCCL) return true;
    }
    return false;
}

static cudaError_t instantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    const FakeGraphHandle *handle = fake_get(graph, FAKE_IS_GRAPH, "cudaGraphInstantiate");
    const unsigned long long known =
        cudaGraphInstantiateFlagUseNodePriority | cudaGraphInstantiateFlagDeviceLaunch;
    if (!handle || flags & ~known) return cudaErrorInvalidValue;
    if (flags & cudaGraphInstantiateFlagDeviceLaunch &&
        (fake->options.no_device_graphs || has_messages(handle->graph))) {
        return cudaErrorNotSupported; /* as where NCCL has host functions in it */
    }
    FakeExec *exec = fake_new(FAKE_IS_EXEC, sizeof(*exec));
    exec->graph = handle->graph;
    exec->dag = fake_dag_build(handle->graph, -1);
    *out = (cudaGraphExec_t)exec;
    if (fake->n_instantiated == fake->instantiated_capacity) {
        fake->instantiated_capacity =
            fake->instantiated_capacity ? 2 * fake->instantiated_capacity : 16;
        fake->instantiated = realloc(fake->instantiated, (size_t)fake->instantiated_capacity *
                                                             sizeof(const FakeGraph *));
        if (!fake->instantiated) BUG("out of memory");
    }
    fake->instantiated[fake->n_instantiated++] = handle->graph;
    return cudaSuccess;
}

/* A graph's launch and upload: on a stream that is not captured. */
static FakeExec *check_launch(cudaGraphExec_t exec, cudaStream_t stream, const char *function) {
    FakeExec *e = fake_get(exec, FAKE_IS_EXEC, function);
    if (stream && !fake_get(stream, FAKE_IS_STREAM, function)) return NULL;
    return fake_check_no_capture(function) ? NULL : e;
}

static cudaError_t upload(cudaGraphExec_t exec, cudaStream_t stream) {
    return check_launch(exec, stream, "cudaGraphUpload") ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t launch(cudaGraphExec_t exec, cudaStream_t stream) {
    FakeExec *e = check_launch(exec, stream, "cudaGraphLaunch");
    if (!e) return cudaErrorInvalidValue;
    check_legacy("cudaGraphLaunch");
    if (fake->uploads) {
        fake_defect("cudaGraphLaunch, while NCCL may not have uploaded what messages need: nothing "
                    "has waited for the device");
        fake->uploads = false;
    }
    int count = ++fake->n_launched;
    if (count == fake->options.dies_at) _exit(FAKE_DIED);
    if (count == fake->options.fails_at) return cudaErrorLaunchFailure;
    fake->hung |= count == fake->options.hangs_at;
    if (fake->hung) return cudaSuccess;
    int *order = malloc((size_t)e->dag.n_nodes * sizeof(int) + 1);
    if (!order) BUG("out of memory");
    if (fake->options.in_order) {
        for (int i = 0; i < e->dag.n_nodes; i++) order[i] = i;
    } else {
        fake_dag_shuffle(&e->dag, fake->options.seed * 1000003u + ++e->n_launches, order);
    }
    bool good = fake_cuda_run(e->graph, order);
    free(order);
    return good ? cudaSuccess : cudaErrorLaunchFailure;
}

static cudaError_t get_nodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    const FakeGraphHandle *handle = fake_get(graph, FAKE_IS_GRAPH, "cudaGraphGetNodes");
    if (!handle || nodes) return cudaErrorInvalidValue;
    *count = (size_t)handle->graph->n_nodes;
    return cudaSuccess;
}

static cudaError_t print_dot(cudaGraph_t graph, const char *path, unsigned flags) {
    static const char *const NAMES[] = {"kernel", "product", "copy", "fill", "message"};
    const FakeGraphHandle *handle = fake_get(graph, FAKE_IS_GRAPH, "cudaGraphDebugDotPrint");
    FILE *file = handle ? fopen(path, "w") : NULL;
    (void)flags;
    if (!file) return cudaErrorInvalidValue;
    FakeDag dag = fake_dag_build(handle->graph, -1);
    fputs("digraph {\n", file);
    for (int i = 0; i < dag.n_nodes; i++) {
        const FakeNode *node = &handle->graph->nodes[i];
        fprintf(file, "n%d [label=\"%d %s, stream %d\"]\n", i, i, NAMES[node->kind], node->stream);
        for (int e = dag.first_edge[i]; e < dag.first_edge[i + 1]; e++) {
            fprintf(file, "n%d -> n%d\n", dag.edges[e], i);
        }
    }
    fputs("}\n", file);
    fake_dag_free(&dag);
    return fclose(file) ? cudaErrorInvalidValue : cudaSuccess;
}

static cudaError_t destroy_graph(cudaGraph_t graph) {
    return fake_end(graph, FAKE_IS_GRAPH, "cudaGraphDestroy") ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t destroy_exec(cudaGraphExec_t exec) {
    return fake_end(exec, FAKE_IS_EXEC, "cudaGraphExecDestroy") ? cudaSuccess
                                                                : cudaErrorInvalidValue;
}

void fake_fill_streams(CuApi *api) {
    api->cudaStreamCreateWithFlags = stream_create;
    api->cudaStreamCreateWithPriority = stream_create_urgent;
    api->cudaDeviceGetStreamPriorityRange = priority_range;
    api->cudaStreamDestroy = stream_destroy;
    api->cudaStreamSynchronize = stream_synchronize;
    api->cudaStreamQuery = stream_query;
    api->cudaStreamWaitEvent = wait_event;
    api->cudaStreamBeginCapture = begin_capture;
    api->cudaStreamEndCapture = end_capture;
    api->cudaEventCreateWithFlags = event_create;
    api->cudaEventDestroy = event_destroy;
    api->cudaEventRecord = event_record;
    api->cudaEventSynchronize = event_synchronize;
    api->cudaEventElapsedTime = event_elapsed;
    api->cudaGraphInstantiate = instantiate;
    api->cudaGraphUpload = upload;
    api->cudaGraphLaunch = launch;
    api->cudaGraphGetNodes = get_nodes;
    api->cudaGraphDebugDotPrint = print_dot;
    api->cudaGraphExecDestroy = destroy_exec;
    api->cudaGraphDestroy = destroy_graph;
}

#endif
