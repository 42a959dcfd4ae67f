/* The operation graphs of attention, given to cuDNN itself without a GPU: it finalizes every
 * tensor, operation and graph, and, told what an A100 and an H100 are like, has engines for them
 * that add up in one order.
 *
 * Would catch: an operation, type or stride that cuDNN does not take, a graph that is not the
 * pattern that its engines know.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip cuDNN's graphs: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/attention.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef struct Case {
    const char *name;
    AttentionShape shape;
} Case;

#define SIZES(b, s, kv, g, h)                                                                      \
    .dtype = DTYPE_BF16, .batch = b, .seq = s, .kv_heads = kv, .group = g, .head = h
static const Case CASES[] = {
    {"head 64", {SIZES(2, 256, 8, 1, 64), .causal = true, .scale = 0.125f}},
    {"head 128, groups of 4", {SIZES(1, 1024, 2, 4, 128), .causal = true, .scale = 0.1f}},
    {"head 64, 200 positions, not causal", {SIZES(3, 200, 4, 1, 64), .scale = 0.125f}},
    {"head 64, f16",
     {.dtype = DTYPE_F16,
      .batch = 2,
      .seq = 256,
      .kv_heads = 8,
      .group = 1,
      .head = 64,
      .causal = true,
      .scale = 0.125f}},
    {"a window, head 128, groups of 4",
     {SIZES(1, 1024, 2, 4, 128), .causal = true, .scale = 0.1f, .window = 200}},
    {"a window, head 64", {SIZES(2, 256, 8, 1, 64), .causal = true, .scale = 0.125f, .window = 20}},
    {"head 192, values 128",
     {SIZES(1, 1024, 16, 1, 192), .causal = true, .scale = 0.1f, .values = 128}},
    {"head 24, values 16, groups of 2",
     {SIZES(2, 256, 4, 2, 24), .causal = true, .scale = 0.2f, .values = 16}},
    {"head 8, 16 positions", {SIZES(1, 16, 4, 1, 8), .causal = true, .scale = 0.3f}},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

/* What cuDNN asks of a device, as it writes it down itself: compute capability, processors, shared
 * memory of a block. */
typedef struct Device {
    const char *name;
    int version, n_processors, shared_bytes;
} Device;
static const Device DEVICES[] = {{"A100", 800, 108, 166912}, {"H100", 900, 132, 232448}};

static cudnnBackendDescriptor_t describe_device(DnnGraph *graph, const Device *device) {
    char text[1024];
    int length = snprintf(
        text, sizeof(text),
        "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
        "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
        "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
        "\"supportCoopLaunch\":1,\"totalGlobalMem\":85000000000,\"smClockRateKHz\":1980000,"
        "\"memClockRateKHz\":2619000,\"l2CacheSize\":52428800,\"cudaDeviceId\":0,"
        "\"deviceVer\":%d,\"driverVer\":13000,\"deviceName\":\"NVIDIA %s\"}",
        device->n_processors, device->shared_bytes, device->version, device->name);
    cudnnBackendDescriptor_t descriptor =
        attention_graph_descriptor(graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    attention_graph_set(graph, descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                        CUDNN_TYPE_CHAR, length, text);
    attention_graph_finalize(graph, descriptor);
    return descriptor;
}

static const char *error_of(const DnnGraph *graph) {
    static char text[512];
    graph->api->cudnnGetLastErrorString(text, sizeof(text));
    return text;
}

static bool build(const CuApi *api, const Case *c, bool backward, DnnGraph *graph) {
    AttentionShape shape = c->shape;
    shape.backward = backward;
    attention_graph_build(api, NULL, &shape, (AttentionPart){shape.batch, shape.kv_heads}, graph);
    CHECK(graph->status == CUDNN_STATUS_SUCCESS, "%s", error_of(graph));
    return graph->status == CUDNN_STATUS_SUCCESS;
}

static void test_graphs(const CuApi *api) {
    for (int i = 0; i < 2 * N_CASES; i++) {
        const Case *c = &CASES[i / 2];
        DnnGraph graph;
        char name[128];
        snprintf(name, sizeof(name), "cuDNN takes the graph of %s, %s", c->name,
                 i % 2 ? "backward" : "forward");
        check_begin(name);
        bool built = build(api, c, i % 2, &graph);
        int expected = (i % 2 ? 17 : 10) + 4 * c->shape.causal + 5 * (c->shape.window > 0) +
                       (i % 2 && c->shape.group > 1) * 2;
        CHECK(!built || graph.n_operations == expected, "%d operations, not %d", graph.n_operations,
              expected);
        attention_graph_destroy(&graph);
        check_end();
    }
}

static void check_engines(const CuApi *api, const Case *c, bool backward, const Device *device) {
    enum { MOST = 8 };
    cudnnBackendDescriptor_t engines[MOST];
    DnnGraph graph;
    bool built = build(api, c, backward, &graph);
    int count =
        built ? attention_find_engines(&graph, describe_device(&graph, device), MOST, engines) : 0;
    if (backward && c->shape.head > 128 && device->version < 900) { /* as find_limit says */
        CHECK(count == 0, "%d engines for long heads on %s", count, device->name);
    } else {
        CHECK(count > 0, "no engine: %s", error_of(&graph));
        bool repeats = false;
        for (int i = 0; i < count && !repeats; i++) {
            repeats = attention_engine_repeats(&graph, engines[i]);
        }
        CHECK(repeats, "none of %d engines adds up in one order", count);
    }
    attention_graph_destroy(&graph);
}

/* cuDNN looks for the driver's library before it compiles; CUDA comes with one that only has the
 * names, which is enough for its engines to say what they take. */
static bool have_driver(void) {
    char path[600];
    const char *home = getenv("CUDA_HOME");
    if (cu_driver_present()) return true;
    snprintf(path, sizeof(path), "%s/lib64/stubs/libcuda.so", home ? home : "/usr/local/cuda");
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL && cu_driver_present();
}

static void test_engines(const CuApi *api) {
    if (!have_driver()) {
        puts("skip cuDNN's engines: neither a driver nor CUDA's stub of it");
        return;
    }
    for (int i = 0; i < 2 * N_CASES; i += VARIANT_STEP) {
        for (int d = 0; d < 2; d++) {
            char name[128];
            snprintf(name, sizeof(name), "cuDNN has an engine for %s, %s, on %s", CASES[i / 2].name,
                     i % 2 ? "backward" : "forward", DEVICES[d].name);
            check_begin(name);
            check_engines(api, &CASES[i / 2], i % 2, &DEVICES[d]);
            check_end();
        }
    }
}

int main(void) {
    const CuApi *api = cu_api_load();
    if (!api->path[LIBRARY_cudnn]) {
        printf("skip cuDNN's graphs: %s\n", api->error[LIBRARY_cudnn]);
        return 0;
    }
    test_graphs(api);
    test_engines(api);
    return check_report();
}
#endif
