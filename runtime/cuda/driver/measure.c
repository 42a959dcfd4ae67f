#include "runtime/cuda/driver/measure.h"

#include "ir/base/clock.h"
#include "runtime/cuda/devices.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/kernels/state.h"

#include <string.h>

enum { CALLS = 1000 };

static cudaStream_t stream_of(const CudaMeasure *measure) {
    return measure->context.streams[0];
}

static bool capture(CudaMeasure *measure, bool (*issue)(void *user, Diag *diag), void *user,
                    int repeats, cudaGraphExec_t *out, Diag *diag) {
    const CuApi *api = measure->device.api;
    cudaGraph_t graph = NULL;
    bool fine = true;
    if (!cuda_check(
            api, api->cudaStreamBeginCapture(stream_of(measure), cudaStreamCaptureModeThreadLocal),
            diag, "beginning a capture")) {
        return false;
    }
    for (int i = 0; fine && i < repeats; i++) fine = issue(user, diag);
    cudaError_t status = api->cudaStreamEndCapture(stream_of(measure), &graph);
    fine = fine && cuda_check(api, status, diag, "ending a capture") &&
           cuda_check(api, api->cudaGraphInstantiate(out, graph, 0), diag, "making a graph");
    if (graph) api->cudaGraphDestroy(graph);
    return fine;
}

/* Microseconds of one launch; -1: reported. */
static double time_launch(CudaMeasure *measure, cudaGraphExec_t graph, Diag *diag) {
    const CuApi *api = measure->device.api;
    float milliseconds = 0;
    bool fine =
        cuda_check(api, api->cudaEventRecord(measure->begin, stream_of(measure)), diag, "timing") &&
        cuda_check(api, api->cudaGraphLaunch(graph, stream_of(measure)), diag, "a launch") &&
        cuda_check(api, api->cudaEventRecord(measure->end, stream_of(measure)), diag, "timing") &&
        cuda_check(api, api->cudaEventSynchronize(measure->end), diag, "a launch") &&
        cuda_check(api, api->cudaEventElapsedTime(&milliseconds, measure->begin, measure->end),
                   diag, "timing");
    return fine ? 1e3 * (double)milliseconds : -1;
}

static double time_repeats(CudaMeasure *measure, bool (*issue)(void *user, Diag *diag), void *user,
                           int repeats, int n_samples, Diag *diag) {
    cudaGraphExec_t graph = NULL;
    double samples[MEASURE_MOST_SAMPLES], us = -1;
    bool fine = capture(measure, issue, user, repeats, &graph, diag) &&
                time_launch(measure, graph, diag) >= 0; /* warms up */
    for (int s = 0; fine && s < n_samples; s++) {
        samples[s] = time_launch(measure, graph, diag);
        fine = samples[s] >= 0;
    }
    if (fine) us = measure_median(samples, n_samples) / repeats;
    if (graph) measure->device.api->cudaGraphExecDestroy(graph);
    return us;
}

double cuda_measure_graph(CudaMeasure *measure, bool (*issue)(void *user, Diag *diag), void *user,
                          Diag *diag) {
    const CuApi *api = measure->device.api;
    double sample_us = measure->options->quick ? 2e3 : 8e3;
    /* Outside a graph first: libraries load what they load lazily. */
    if (!issue(user, diag) ||
        !cuda_check(api, api->cudaStreamSynchronize(stream_of(measure)), diag, "a first run")) {
        return -1;
    }
    double once = time_repeats(measure, issue, user, 1, 1, diag);
    if (once < 0) return -1;
    int repeats = once < sample_us ? (int)(sample_us / (once > 1 ? once : 1)) : 1;
    return time_repeats(measure, issue, user, repeats, measure->options->quick ? 3 : 5, diag);
}

/* --- calls --- */

static bool issue_call(void *user, Diag *diag) {
    CudaMeasure *measure = user;
    const CuApi *api = measure->device.api;
    SetScalarArgs arguments = {.out = measure->memory, .value = 1};
    void *args[1] = {&arguments};
    dim3 one = {1, 1, 1};
    return cuda_check(
        api,
        api->cudaLaunchKernel((const void *)measure->device.kernels[KERNEL_set_scalar], one, one,
                              args, 0, stream_of(measure)),
        diag, "launching a kernel");
}

/* Outside a graph: what the launching thread needs, or the device, whichever is longer. */
static bool measure_call(CudaMeasure *measure, ProfileCall *row) {
    const CuApi *api = measure->device.api;
    double start = 0;
    for (int round = 0; round < 2; round++) { /* the first one warms up */
        start = clock_now_us();
        for (int i = 0; i < CALLS; i++) {
            if (!issue_call(measure, measure->diag)) return false;
        }
        if (!cuda_check(api, api->cudaStreamSynchronize(stream_of(measure)), measure->diag,
                        "launching kernels")) {
            return false;
        }
    }
    row->us = (clock_now_us() - start) / CALLS;
    row->graph_us = time_repeats(measure, issue_call, measure, CALLS, 5, measure->diag);
    return row->graph_us >= 0;
}

/* --- products --- */

typedef struct ProductIssue {
    CudaMeasure *measure;
    GemmCommand command;
    const GemmEntry *entry;
    void *workspace;
} ProductIssue;

static bool issue_product(void *user, Diag *diag) {
    ProductIssue *product = user;
    CudaMeasure *measure = product->measure;
    return cuda_check_blas(measure->device.api,
                           gemm_issue(measure->context.gemms, product->entry, &product->command,
                                      product->workspace, stream_of(measure)),
                           diag, "a matrix product");
}

static int64_t align(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

static int64_t product_bytes(const ProfileProduct *row) {
    return 4 * 256 + measure_product_elements(row) * (row->bf16 ? 2 : 4) + LIBRARY_WORKSPACE;
}

static void measure_product(CudaMeasure *measure, ProfileProduct *row) {
    Diag *ignored = diag_create(); /* a shape that cuBLASLt refuses is left out */
    DType dtype = row->bf16 ? DTYPE_BF16 : DTYPE_F32;
    int64_t size = row->bf16 ? 2 : 4;
    unsigned char *a = measure->memory + LIBRARY_WORKSPACE, *b = a + align(row->m * row->k * size);
    ProductIssue product = {.measure = measure,
                            .command = {.layout = {.batch = 1,
                                                   .m = row->m,
                                                   .n = row->n,
                                                   .k = row->k,
                                                   .transpose_a = row->ta,
                                                   .transpose_b = row->tb},
                                        .in_dtype = dtype,
                                        .out_dtype = dtype,
                                        .a = a,
                                        .b = b,
                                        .d = b + align(row->k * row->n * size)},
                            .workspace = measure->memory};
    product.entry = gemm_table_find(measure->context.gemms, &product.command, ignored);
    if (product.entry) row->us = cuda_measure_graph(measure, issue_product, &product, ignored);
    diag_destroy(ignored);
}

/* --- memory --- */

typedef struct CopyIssue {
    CudaMeasure *measure;
    int64_t bytes;
} CopyIssue;

static bool issue_copy(void *user, Diag *diag) {
    const CopyIssue *copy = user;
    const CudaMeasure *measure = copy->measure;
    const CuApi *api = measure->device.api;
    return cuda_check(api,
                      api->cudaMemcpyAsync(measure->memory + align(copy->bytes), measure->memory,
                                           (size_t)copy->bytes, cudaMemcpyDeviceToDevice,
                                           stream_of(measure)),
                      diag, "a copy");
}

static bool measure_memory(CudaMeasure *measure, ProfileMemory *row) {
    CopyIssue copy = {measure, row->bytes / 2};
    row->copy_us = cuda_measure_graph(measure, issue_copy, &copy, measure->diag);
    if (row->copy_us < 0) return false;
    row->triad_us = cuda_measure_triad(measure, row->bytes, measure->diag);
    return row->triad_us >= 0;
}

/* --- all of it --- */

static bool measure_rows(CudaMeasure *measure) {
    DeviceProfile *p = measure->profile;
    for (int i = 0; i < p->n_calls; i++) {
        measure_tell(&measure->progress, "starting a kernel");
        if (!measure_call(measure, &p->calls[i])) return false;
    }
    for (int i = 0; i < p->n_products; i++) {
        ProfileProduct *row = &p->products[i];
        measure_tell(&measure->progress, "product %lld x %lld x %lld, %s", (long long)row->m,
                     (long long)row->n, (long long)row->k, row->bf16 ? "bf16" : "f32");
        if (product_bytes(row) <= measure->memory_bytes) measure_product(measure, row);
    }
    for (int i = 0; i < p->n_attention; i++) {
        ProfileAttention *row = &p->attention[i];
        measure_tell(&measure->progress, "attention, sequence %lld", (long long)row->seq);
        if (cuda_measure_attention_bytes(row) <= measure->memory_bytes) {
            cuda_measure_attention(measure, row);
        }
    }
    int n_memory = 0;
    for (int i = 0; i < p->n_memory; i++) {
        ProfileMemory *row = &p->memory[i];
        measure_tell(&measure->progress, "memory, %lld KiB", (long long)row->bytes / 1024);
        if (row->bytes + 1024 > measure->memory_bytes) continue;
        if (!measure_memory(measure, row)) return false;
        p->memory[n_memory++] = *row;
    }
    p->n_memory = n_memory;
    for (int i = 0; i < p->n_host; i++) {
        measure_tell(&measure->progress, "the host's memory, %lld KiB",
                     (long long)p->host[i].bytes / 1024);
        cuda_measure_host(measure, &p->host[i]);
    }
    measure_drop_failed(p);
    if (p->n_products && p->n_memory) return true;
    diag_error(measure->diag, NO_LOC, "%s: no product or no copy could be measured",
               measure->device.name);
    return false;
}

static void *workspace_of(void *user, int rank, StreamKind stream) {
    (void)rank, (void)stream;
    return ((CudaMeasure *)user)->memory;
}

static cudaKernel_t no_generated(void *user, const GeneratedKernel *kernel) {
    (void)user, (void)kernel;
    return NULL;
}

/* What the largest row needs, at most 3/4 of what is free. */
static int64_t choose_memory(const CudaMeasure *measure) {
    const DeviceProfile *p = measure->profile;
    int64_t most = 64 << 20, limit = measure->device.free_bytes / 4 * 3;
    for (int i = 0; i < p->n_products; i++) {
        if (product_bytes(&p->products[i]) > most) most = product_bytes(&p->products[i]);
    }
    for (int i = 0; i < p->n_attention; i++) {
        int64_t bytes = cuda_measure_attention_bytes(&p->attention[i]);
        if (bytes > most) most = bytes;
    }
    for (int i = 0; i < p->n_memory; i++) {
        if (p->memory[i].bytes + 1024 > most) most = p->memory[i].bytes + 1024;
    }
    return most < limit ? most : limit;
}

static bool prepare_context(CudaMeasure *measure) {
    const CuApi *api = measure->device.api;
    measure->context = (ReplayContext){
        .device = &measure->device,
        .gemms = gemm_table_create(&measure->device, false, LIBRARY_WORKSPACE, measure->arena),
        .attentions = attention_table_create(&measure->device, measure->arena),
        .workspace = workspace_of,
        .workspace_user = measure,
        .generated = no_generated,
        .streams = ARENA_ARRAY(measure->arena, cudaStream_t, 1),
        .arena = measure->arena};
    if (!cuda_check(
            api,
            api->cudaStreamCreateWithFlags(&measure->context.streams[0], cudaStreamNonBlocking),
            measure->diag, "making a stream")) {
        return false;
    }
    measure->context.n_streams = 1;
    return cuda_check(api, api->cudaEventCreateWithFlags(&measure->begin, cudaEventDefault),
                      measure->diag, "making an event") &&
           cuda_check(api, api->cudaEventCreateWithFlags(&measure->end, cudaEventDefault),
                      measure->diag, "making an event");
}

/* For the largest row, each operand at a multiple of 256. */
static bool prepare_host(CudaMeasure *measure) {
    const DeviceProfile *p = measure->profile;
    void *host = NULL;
    int64_t most = 0;
    for (int i = 0; i < p->n_host; i++) {
        if (p->host[i].bytes > most) most = p->host[i].bytes;
    }
    if (most == 0) return true;
    size_t bytes = (size_t)(most + 3 * 256);
    if (!cuda_check(measure->device.api,
                    measure->device.api->cudaHostAlloc(&host, bytes, cudaHostAllocMapped),
                    measure->diag, "pinning memory to measure with")) {
        return false;
    }
    measure->host = memset(host, 0, bytes);
    return true;
}

static bool prepare_memory(CudaMeasure *measure) {
    const CuApi *api = measure->device.api;
    cudaStream_t stream = stream_of(measure);
    void *memory = NULL;
    measure->memory_bytes = choose_memory(measure);
    size_t bytes = (size_t)measure->memory_bytes;
    if (!cuda_check(api, api->cudaMalloc(&memory, bytes), measure->diag,
                    "allocating memory to measure with")) {
        return false;
    }
    measure->memory = memory;
    if (!prepare_host(measure)) return false;
    return cuda_check(api, api->cudaMalloc(&measure->state, sizeof(DeviceState)), measure->diag,
                      "allocating memory") &&
           cuda_fill_numbers(&measure->device, memory, measure->memory_bytes, stream,
                             measure->diag) &&
           cuda_check(api, api->cudaMemsetAsync(measure->state, 0, sizeof(DeviceState), stream),
                      measure->diag, "clearing memory");
}

static void finish(CudaMeasure *measure) {
    const CuApi *api = measure->device.api;
    if (!api) return;
    api->cudaDeviceSynchronize();
    gemm_table_destroy(measure->context.gemms);
    attention_table_destroy(measure->context.attentions);
    replay_context_destroy(&measure->context);
    if (measure->begin) api->cudaEventDestroy(measure->begin);
    if (measure->end) api->cudaEventDestroy(measure->end);
    if (measure->memory) api->cudaFree(measure->memory);
    if (measure->host) api->cudaFreeHost(measure->host);
    if (measure->state) api->cudaFree(measure->state);
    cuda_device_close(&measure->device);
}

static void list_rows(const MeasureList *list, const CuApi *api, int n_devices) {
    measure_list_calls(list, 1);
    measure_list_products(list, 1, true);
    measure_list_products(list, 1, false);
    measure_list_attention(list, 1, true);
    measure_list_attention(list, 1, false);
    measure_list_memory(list, 1);
    measure_list_host(list);
    cuda_measure_list_links(list, api, n_devices);
}

static void list_libraries(DeviceProfile *profile, Arena *arena) {
    CudaReport *report = arena_alloc(arena, sizeof(*report));
    cuda_report(report);
    ARENA_PUSH(arena, profile->libraries, profile->n_libraries, profile->libraries_capacity,
               arena_printf(arena, "driver %s", report->driver));
    for (int i = 0; i < report->n_libraries; i++) {
        const CudaLibraryReport *library = &report->libraries[i];
        if (!library->found) continue;
        ARENA_PUSH(arena, profile->libraries, profile->n_libraries, profile->libraries_capacity,
                   arena_printf(arena, "%s %s", library->name, library->version));
    }
}

bool measure_cuda(const MeasureOptions *options, Arena *arena, DeviceProfile *out, Diag *diag) {
    const CuApi *api = cuda_api();
    const char *why;
    int n_devices;
    *out = (DeviceProfile){.cuda = true};
    if (!cuda_usable(api, &n_devices, &why)) {
        diag_error(diag, NO_LOC, "--device cuda: %s", why);
        return false;
    }
    list_libraries(out, arena);
    CudaMeasure *measure = ARENA_NEW(arena, CudaMeasure);
    *measure = (CudaMeasure){.options = options, .profile = out, .arena = arena, .diag = diag};
    MeasureList list = {out, arena, options->quick, true, options->tiny};
    list_rows(&list, api, n_devices);
    measure->progress = (MeasureProgress){.options = options, .n_all = measure_list_count(out)};
    bool fine = cuda_device_open(&measure->device, api, 0, diag) &&
                cuda_device_start_blas(&measure->device, diag);
    if (fine) {
        out->name = arena_strdup(arena, measure->device.name);
        out->cores = measure->device.n_processors;
        fine = prepare_context(measure) && prepare_memory(measure) && measure_rows(measure) &&
               cuda_measure_links(measure, n_devices);
    }
    finish(measure);
    return fine;
}
