/* The fake's own rules (tests/support/fake_cuda.h): each one broken must be reported, and what is
 * right must not be. What the proofs of captured steps are worth depends on it. */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip the fake of CUDA: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/kernels/args.h"
#include "tests/emulate/emulate.h"
#include "tests/support/dag_check.h"
#include "tests/support/fake_cuda.h"

#include <stdlib.h>
#include <string.h>

enum { N_STREAMS = 3, N_EVENTS = 4, BYTES = 256 };

static const CuApi *api;
static cudaStream_t streams[N_STREAMS];
static cudaEvent_t events[N_EVENTS];
static void *memory[2];

static void begin(const char *name) {
    check_begin(name);
    api = fake_cuda_create(&(FakeOptions){.memory_bytes = 1 << 20, .poison = true, .seed = 3});
    for (int s = 0; s < N_STREAMS; s++) {
        api->cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking);
    }
    for (int e = 0; e < N_EVENTS; e++) {
        api->cudaEventCreateWithFlags(&events[e], cudaEventDisableTiming);
    }
    for (int m = 0; m < 2; m++) api->cudaMalloc(&memory[m], BYTES);
}

/* Exactly the defect that has `text` in it; NULL: none. */
static void end(const char *text) {
    int n = fake_cuda_n_defects();
    CHECK(n == (text != NULL), "%d defects: %s", n, fake_cuda_defect(0));
    if (text) {
        CHECK(strstr(fake_cuda_defect(0), text), "says: %s", fake_cuda_defect(0));
    }
    fake_cuda_destroy();
    check_end();
}

static void capture(int origin) {
    cudaError_t status =
        api->cudaStreamBeginCapture(streams[origin], cudaStreamCaptureModeThreadLocal);
    CHECK(status == cudaSuccess, "begin gives %d", status);
}

static cudaGraph_t end_capture(int origin, cudaError_t expected) {
    cudaGraph_t graph = NULL;
    cudaError_t status = api->cudaStreamEndCapture(streams[origin], &graph);
    CHECK(status == expected, "end gives %d, not %d", status, expected);
    CHECK((graph != NULL) == (expected == cudaSuccess), "graph");
    return graph;
}

static cudaError_t fill(int stream, int byte) {
    return api->cudaMemsetAsync(memory[0], byte, BYTES, streams[stream]);
}

static void fork_to(int from, int to, int event) {
    api->cudaEventRecord(events[event], streams[from]);
    api->cudaStreamWaitEvent(streams[to], events[event], 0);
}

/* A good one: two streams fork from the origin and join it. */
static void check_good(void) {
    cudaGraphExec_t exec = NULL;
    size_t count = 0;
    begin("a fork and a join");
    capture(0);
    fill(0, 1);
    fork_to(0, 1, 0);
    api->cudaStreamWaitEvent(streams[2], events[0], 0);
    api->cudaMemcpyAsync(memory[1], memory[0], BYTES, cudaMemcpyDeviceToDevice, streams[1]);
    fork_to(2, 0, 1);
    fork_to(1, 0, 2);
    fill(0, 2);
    cudaGraph_t graph = end_capture(0, cudaSuccess);
    CHECK(*(unsigned char *)memory[0] == 0xff, "captured work has run");
    CHECK(api->cudaGraphGetNodes(graph, NULL, &count) == cudaSuccess && count == 3, "%zu nodes",
          count);
    CHECK(api->cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "instantiate");
    CHECK(api->cudaGraphLaunch(exec, streams[0]) == cudaSuccess, "launch");
    CHECK(*(unsigned char *)memory[0] == 2 && *(unsigned char *)memory[1] == 1, "not in order");
    const FakeGraph *recorded = fake_cuda_graph(0);
    FakeDag dag = fake_dag_build(recorded, -1);
    CHECK(fake_dag_is_before(recorded, &dag, 0, 1) && fake_dag_is_before(recorded, &dag, 1, 2),
          "paths");
    fake_dag_free(&dag);
    for (int wait = 0; wait < recorded->n_waits; wait++) {
        dag = fake_dag_build(recorded, wait);
        bool broken = dag.n_outside || dag.n_unjoined;
        /* Wait 1 is of a stream that does nothing, wait 2 its join. */
        CHECK(broken == (wait == 0 || wait == 3), "without wait %d", wait);
        fake_dag_free(&dag);
    }
    api->cudaGraphExecDestroy(exec);
    api->cudaGraphDestroy(graph);
    for (int s = 0; s < N_STREAMS; s++) api->cudaStreamDestroy(streams[s]);
    for (int e = 0; e < N_EVENTS; e++) api->cudaEventDestroy(events[e]);
    for (int m = 0; m < 2; m++) api->cudaFree(memory[m]);
    fake_cuda_check_leaks();
    end(NULL);
}

static void check_captures(void) {
    begin("work on another stream during a capture");
    capture(0);
    CHECK(fill(1, 1) == cudaErrorStreamCaptureUnsupported, "not refused");
    end_capture(0, cudaSuccess);
    end("stream 1, which is not part of the capture");

    begin("a captured stream waits for an event from outside");
    api->cudaEventRecord(events[0], streams[1]);
    capture(0);
    CHECK(api->cudaStreamWaitEvent(streams[0], events[0], 0) == cudaErrorStreamCaptureIsolation,
          "not refused");
    end_capture(0, cudaErrorStreamCaptureInvalidated);
    end("recorded outside the capture");

    begin("a stream waits for an event of a capture that has ended");
    capture(0);
    api->cudaEventRecord(events[0], streams[0]);
    end_capture(0, cudaSuccess);
    CHECK(api->cudaStreamWaitEvent(streams[1], events[0], 0) == cudaErrorCapturedEvent,
          "not refused");
    end("a capture that has ended");

    begin("a stream that is not joined");
    capture(0);
    fork_to(0, 1, 0);
    fill(1, 1);
    end_capture(0, cudaErrorStreamCaptureUnjoined);
    end("1 streams are not joined");

    begin("work on the legacy stream during a capture");
    capture(0);
    CHECK(api->cudaMemsetAsync(memory[0], 1, BYTES, NULL) == cudaErrorStreamCaptureImplicit,
          "not refused");
    end_capture(0, cudaErrorStreamCaptureInvalidated);
    end("legacy stream");

    begin("a capture in a capture");
    capture(0);
    CHECK(api->cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeThreadLocal) ==
              cudaErrorIllegalState,
          "not refused");
    end_capture(0, cudaSuccess);
    end("another capture is in progress");

    begin("a capture ended on another stream");
    capture(0);
    end_capture(1, cudaErrorStreamCaptureUnmatched);
    end_capture(0, cudaSuccess);
    end("no capture began on stream 1");
}

static cudaError_t call_in_capture(int which) {
    void *out = NULL;
    switch (which) {
    case 0: return api->cudaStreamSynchronize(streams[1]);
    case 1: return api->cudaDeviceSynchronize();
    case 2: return api->cudaMalloc(&out, BYTES);
    case 3: return api->cudaMemcpy(memory[0], memory[1], BYTES, cudaMemcpyDeviceToDevice);
    case 4: return api->cudaFree(memory[0]);
    default: return api->cudaStreamQuery(streams[0]);
    }
}

static void check_calls_in_capture(void) {
    static const char *const NAMES[] = {
        "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMalloc", "cudaMemcpy", "cudaFree",
        "cudaStreamQuery"};
    for (int i = 0; i < 6; i++) {
        char name[64], text[64];
        snprintf(name, sizeof(name), "%s during a capture", NAMES[i]);
        snprintf(text, sizeof(text), "%s is called while a stream is captured", NAMES[i]);
        begin(name);
        capture(0);
        CHECK(call_in_capture(i) == cudaErrorStreamCaptureUnsupported, "not refused");
        end_capture(0, cudaErrorStreamCaptureInvalidated);
        end(text);
    }
}

static void check_handles(void) {
    cudaGraph_t graph;
    begin("an event waited for that was never recorded");
    CHECK(api->cudaStreamWaitEvent(streams[0], events[0], 0) == cudaSuccess, "CUDA allows it");
    end("event 0 was never recorded");

    begin("an event used after its destruction");
    api->cudaEventDestroy(events[1]);
    CHECK(api->cudaEventRecord(events[1], streams[0]) != cudaSuccess, "not refused");
    end("the event was destroyed before");

    begin("a stream destroyed twice");
    api->cudaStreamDestroy(streams[1]);
    CHECK(api->cudaStreamDestroy(streams[1]) != cudaSuccess, "not refused");
    end("the stream was destroyed before");

    begin("a graph destroyed twice");
    capture(0);
    graph = end_capture(0, cudaSuccess);
    api->cudaGraphDestroy(graph);
    CHECK(api->cudaGraphDestroy(graph) != cudaSuccess, "not refused");
    end("the graph was destroyed before");

    begin("an event in place of a stream");
    CHECK(fill(0, 1) == cudaSuccess, "fill");
    CHECK(api->cudaMemsetAsync(memory[0], 1, BYTES, (cudaStream_t)events[0]) != cudaSuccess,
          "not refused");
    end("is no stream");

    begin("what is left at the end");
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == N_STREAMS + N_EVENTS + 2, "%d defects", fake_cuda_n_defects());
    fake_cuda_forget_defects();
    end(NULL);
}

static void check_memory(void) {
    void *out = NULL;
    size_t free_bytes, total_bytes;
    begin("more memory than the device has");
    CHECK(api->cudaMalloc(&out, 2 << 20) == cudaErrorMemoryAllocation, "not refused");
    api->cudaMemGetInfo(&free_bytes, &total_bytes);
    CHECK(total_bytes == 1 << 20 && free_bytes == total_bytes - 2 * BYTES, "%zu of %zu", free_bytes,
          total_bytes);
    CHECK((uintptr_t)memory[0] % 64 == 0 && *(unsigned char *)memory[0] == 0xff, "memory");
    end(NULL);

    begin("memory freed twice");
    api->cudaFree(memory[0]);
    CHECK(api->cudaFree(memory[0]) == cudaErrorInvalidValue, "not refused");
    end("was not allocated, or freed before");

    begin("a fill beyond an allocation");
    CHECK(api->cudaMemsetAsync(memory[0], 0, BYTES + 1, streams[0]) == cudaErrorInvalidValue,
          "not refused");
    end("not all in one allocation");

    begin("host memory taken for the device's");
    CHECK(api->cudaMemcpy(memory[0], &out, sizeof(out), cudaMemcpyDeviceToDevice) ==
              cudaErrorInvalidValue,
          "not refused");
    end("not all in one allocation");
}

/* Kernels */

static const void *find_kernel(const char *name) {
    static const char fatbin[64];
    cudaLibrary_t library;
    cudaKernel_t kernel = NULL;
    api->cudaLibraryLoadData(&library, fatbin, NULL, NULL, 0, NULL, NULL, 0);
    api->cudaLibraryGetKernel(&kernel, library, name);
    return (const void *)kernel;
}

/* The legacy stream is one that others do not wait for. */
static void check_legacy(void) {
    unsigned char bytes[BYTES] = {0};
    begin("a copy from pageable memory, waited for");
    api->cudaMemcpy(memory[0], bytes, BYTES, cudaMemcpyHostToDevice);
    api->cudaStreamSynchronize(NULL);
    fill(0, 1);
    end(NULL);

    begin("a copy from pageable memory that nothing waits for");
    api->cudaMemcpy(memory[0], bytes, BYTES, cudaMemcpyHostToDevice);
    fill(0, 1);
    end("cudaMemcpy from pageable memory may not have ended");

    begin("a fill on the legacy stream that nothing waits for");
    api->cudaMemsetAsync(memory[0], 1, BYTES, NULL);
    fill(0, 1);
    end("cudaMemsetAsync may not have ended");
}

static void check_kernels(void) {
    DeviceState state = {.step_f32 = 7};
    float to = 0;
    CopyScalarArgs args = {.state = &state, .which = SCALAR_STEP, .to = &to};
    void *list[1] = {&args};
    const dim3 one = {1, 1, 1}, none = {0, 1, 1}, many = {2048, 1, 1};
    begin("a kernel runs when it is launched");
    const void *kernel = find_kernel("copy_scalar");
    CHECK(kernel && api->cudaLaunchKernel(kernel, one, one, list, 0, streams[0]) == cudaSuccess,
          "launch");
    CHECK(to == 7 && fake_cuda_n_eager() == 1, "%g", (double)to);
    CHECK(!find_kernel("no_such_kernel"), "found");
    end(NULL);

    begin("an empty grid");
    kernel = find_kernel("copy_scalar");
    CHECK(api->cudaLaunchKernel(kernel, none, one, list, 0, streams[0]), "not refused");
    end("copy_scalar: a grid of 0 x 1 x 1 blocks");

    begin("too many threads");
    kernel = find_kernel("copy_scalar");
    CHECK(api->cudaLaunchKernel(kernel, one, many, list, 0, streams[0]), "not refused");
    end("copy_scalar: a block of 2048 x 1 x 1 threads");

    begin("shared memory that was not asked for");
    kernel = find_kernel("copy_scalar");
    CHECK(api->cudaLaunchKernel(kernel, one, one, list, 50000, streams[0]), "not refused");
    end("copy_scalar: 50000 bytes of shared memory, allowed are 49152");

    begin("shared memory that was asked for");
    kernel = find_kernel("copy_scalar");
    api->cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000);
    CHECK(!api->cudaLaunchKernel(kernel, one, one, list, 50000, streams[0]), "refused");
    end(NULL);

    begin("more shared memory than there is");
    kernel = find_kernel("copy_scalar");
    CHECK(api->cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 240000),
          "not refused");
    end("240000 bytes of shared memory for copy_scalar");

    begin("a pointer that is no kernel");
    CHECK(api->cudaLaunchKernel(&state, one, one, list, 0, streams[0]), "not refused");
    end("what it was given is no kernel");
}

/* Proofs */

static void announce_fill(Command *command, const Access *access) {
    *command = (Command){.kind = COMMAND_FILL, .accesses = access, .n_accesses = 1};
    api->announce(api->announce_user, command);
}

/* Two fills on two streams, with an event between them or without. */
static void check_proof(bool ordered) {
    char why[256] = "";
    const Access access = access_to(memory[0], BYTES, true);
    Command commands[2];
    cudaGraphExec_t exec;
    capture(0);
    if (!ordered) fork_to(0, 1, 0);
    announce_fill(&commands[0], &access);
    fill(0, 1);
    if (ordered) fork_to(0, 1, 0);
    announce_fill(&commands[1], &access);
    fill(1, 2);
    fork_to(1, 0, 1);
    cudaGraph_t graph = end_capture(0, cudaSuccess);
    api->cudaGraphInstantiate(&exec, graph, 0);
    bool good = dag_check(fake_cuda_graph(0), why, sizeof(why));
    CHECK(good == ordered, "says: %s", why);
    if (!good) CHECK(strstr(why, "no path from node 0"), "says: %s", why);
}

static void check_proofs(void) {
    char why[256];
    cudaGraphExec_t exec;
    begin("two fills of the same memory, one after the other");
    const Access elsewhere = access_to(memory[1], BYTES, true);
    check_proof(true);
    end(NULL);
    begin("two fills of the same memory at once");
    check_proof(false);
    end(NULL);

    begin("work that nothing was announced for");
    capture(0);
    fill(0, 1);
    api->cudaGraphInstantiate(&exec, end_capture(0, cudaSuccess), 0);
    CHECK(!dag_check(fake_cuda_graph(0), why, sizeof(why)) && strstr(why, "not what was announced"),
          "says: %s", why);
    end(NULL);

    begin("an operation that writes something else than it says");
    Command command;
    capture(0);
    announce_fill(&command, &elsewhere);
    command.accesses = &elsewhere;
    fill(0, 1);
    api->cudaGraphInstantiate(&exec, end_capture(0, cudaSuccess), 0);
    CHECK(!dag_check_accesses(fake_cuda_graph(0), why, sizeof(why)) &&
              strstr(why, "writes what it does not say"),
          "says: %s", why);
    end(NULL);
}

static void check_hidden_read(void) {
    char why[256] = "";
    cudaGraphExec_t exec;
    begin("an operation that reads something else than it says");
    const Access access = access_to(memory[1], BYTES, true);
    Command command = {.kind = COMMAND_COPY, .accesses = &access, .n_accesses = 1};
    api->cudaMemsetAsync(memory[0], 5, BYTES, streams[0]);
    capture(0);
    api->announce(api->announce_user, &command);
    api->cudaMemcpyAsync(memory[1], memory[0], BYTES, cudaMemcpyDeviceToDevice, streams[0]);
    api->cudaGraphInstantiate(&exec, end_capture(0, cudaSuccess), 0);
    CHECK(!dag_check_accesses(fake_cuda_graph(0), why, sizeof(why)) &&
              strstr(why, "depends on what it does not say"),
          "says: %s", why);
    end(NULL);
}

/* Several ranks: each has a stream and one side of a communicator. */

/* From rank 0 to rank 1. */
static void message(int rank, ncclComm_t comm) {
    if (rank == 0) {
        api->ncclSend((float *)memory[0] + 8, 8, ncclFloat32, 1, comm, streams[0]);
    } else {
        api->ncclRecv((float *)memory[1] + 8, 8, ncclFloat32, 0, comm, streams[1]);
    }
}

static const FakeGraph *rank_graph(int rank, ncclComm_t comm, bool reduce_first) {
    cudaGraphExec_t exec;
    message(rank, comm); /* connects */
    capture(rank);
    for (int i = 0; i < 2; i++) {
        if ((i == 0) == reduce_first) {
            api->ncclAllReduce(memory[rank], memory[rank], 8, ncclFloat32, ncclSum, comm,
                               streams[rank]);
        } else {
            message(rank, comm);
        }
    }
    api->cudaGraphInstantiate(&exec, end_capture(rank, cudaSuccess), 0);
    return fake_cuda_graph(fake_cuda_n_graphs() - 1);
}

static void check_messages(bool same_order) {
    char why[256] = "";
    ncclUniqueId id;
    ncclComm_t comms[2];
    const FakeGraph *graphs[2];
    begin(same_order ? "messages of two ranks" : "messages of two ranks in another order");
    api->ncclGetUniqueId(&id);
    for (int r = 0; r < 2; r++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        CHECK(!api->ncclCommInitRankConfig(&comms[r], 2, id, r, &config), "rank %d", r);
        for (int i = 0; i < 16; i++) ((float *)memory[r])[i] = (float)(10 * r + i);
    }
    for (int r = 0; r < 2; r++) graphs[r] = rank_graph(r, comms[r], same_order || r == 0);
    CHECK(dag_check_messages(graphs, 2, why, sizeof(why)) == same_order, "says: %s", why);
    CHECK(fake_cuda_launch_together(graphs, 2, 9) == same_order, "launch");
    if (same_order) {
        CHECK(((float *)memory[0])[3] == 16 && ((float *)memory[1])[3] == 16, "sum");
        CHECK(((float *)memory[1])[9] == 9, "sent");
    }
    end(same_order ? NULL : "messages that do not match");
}

static void check_comms(void) {
    ncclUniqueId id;
    ncclComm_t comm, other;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    cudaGraphExec_t exec;
    check_messages(true);
    check_messages(false);

    begin("a first message that is captured");
    api->ncclGetUniqueId(&id);
    api->ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    capture(0);
    message(0, comm);
    api->cudaGraphDestroy(end_capture(0, cudaSuccess));
    end("is captured before its ranks are connected");

    begin("two ranks of one number");
    api->ncclGetUniqueId(&id);
    api->ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    CHECK(api->ncclCommInitRankConfig(&other, 2, id, 0, &config) == ncclInvalidUsage,
          "not refused");
    end("rank 0 of 2 joins rank 0 of 2");

    begin("a message between operands that overlap, but not in place");
    api->ncclGetUniqueId(&id);
    api->ncclCommInitRankConfig(&comm, 2, id, 1, &config);
    CHECK(api->ncclAllGather((float *)memory[0] + 8, memory[0], 8, ncclFloat32, comm, streams[0]) ==
              ncclSuccess,
          "the own part in its place is refused");
    CHECK(api->ncclAllGather(memory[0], memory[0], 8, ncclFloat32, comm, streams[0]) ==
              ncclInvalidArgument,
          "not refused");
    api->ncclCommFinalize(comm);
    api->ncclCommDestroy(comm);
    end("overlap otherwise than in place");

    begin("a communicator that goes before its graph");
    api->ncclGetUniqueId(&id);
    api->ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    capture(0);
    api->ncclAllReduce(memory[0], memory[0], 8, ncclFloat32, ncclSum, comm, streams[0]);
    api->cudaGraphInstantiate(&exec, end_capture(0, cudaSuccess), 0);
    api->ncclCommFinalize(comm);
    api->ncclCommDestroy(comm);
    end("a graph that uses the communicator is still there");
}

int main(void) {
    if (emulate_missing()) {
        printf("skip the fake of CUDA: %s\n", emulate_missing());
        return 0;
    }
    check_good();
    check_captures();
    check_calls_in_capture();
    check_handles();
    check_memory();
    check_legacy();
    check_kernels();
    check_proofs();
    check_hidden_read();
    check_comms();
    return check_report();
}
#endif
