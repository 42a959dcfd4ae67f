#include "runtime/cuda/driver/tuner.h"

#include "runtime/measure/measure.h"

/* A graph of 2 ms, so often that the device takes the clocks that it has in training: under its
 * power limit others are fastest than in a short burst. */
enum { GRAPH_US = 2000, MOST_REPEATS = 200 };
enum { WARM_LAUNCHES = 15, SAMPLE_LAUNCHES = 10, N_SAMPLES = 3 };

/* Waits for what lies between the events; its microseconds, or -1, reported: the device has
 * failed. */
static double elapsed(Tuner *tuner) {
    const CuApi *api = tuner->device.api;
    float milliseconds = 0;
    bool fine =
        cuda_check(api, api->cudaEventRecord(tuner->end, tuner->stream), tuner->diag, "timing") &&
        cuda_check(api, api->cudaEventSynchronize(tuner->end), tuner->diag,
                   "running what is timed") &&
        cuda_check(api, api->cudaEventElapsedTime(&milliseconds, tuner->begin, tuner->end),
                   tuner->diag, "timing");
    return fine ? 1e3 * (double)milliseconds : -1;
}

static bool mark_begin(Tuner *tuner) {
    const CuApi *api = tuner->device.api;
    return cuda_check(api, api->cudaEventRecord(tuner->begin, tuner->stream), tuner->diag,
                      "timing");
}

/* One, issued by itself. -1: it does not run. */
static double time_once(Tuner *tuner, TunedCall *call, const void *what) {
    for (int round = 0; round < 2; round++) { /* the first one loads what is loaded lazily */
        if (!mark_begin(tuner)) return -1;
        if (!call(tuner, what, round)) {
            tuner->device.api->cudaGetLastError(); /* forgets it */
            return -1;
        }
        double us = elapsed(tuner);
        if (us < 0 || round == 1) return us;
    }
    return -1;
}

/* NULL: it does not run so. */
static cudaGraphExec_t capture(Tuner *tuner, TunedCall *call, const void *what, int repeats) {
    const CuApi *api = tuner->device.api;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t launchable = NULL;
    if (api->cudaStreamBeginCapture(tuner->stream, cudaStreamCaptureModeThreadLocal) !=
        cudaSuccess) {
        api->cudaGetLastError();
        return NULL;
    }
    bool fine = true;
    for (int i = 0; fine && i < repeats; i++) {
        fine = call(tuner, what, i);
    }
    fine = api->cudaStreamEndCapture(tuner->stream, &graph) == cudaSuccess && fine &&
           api->cudaGraphInstantiate(&launchable, graph, 0) == cudaSuccess;
    if (graph) api->cudaGraphDestroy(graph);
    if (!fine) api->cudaGetLastError(); /* forgets it */
    return fine ? launchable : NULL;
}

/* Microseconds of so many launches; -1: reported. */
static double time_launches(Tuner *tuner, cudaGraphExec_t graph, int n) {
    const CuApi *api = tuner->device.api;
    if (!mark_begin(tuner)) return -1;
    for (int i = 0; i < n; i++) {
        if (!cuda_check(api, api->cudaGraphLaunch(graph, tuner->stream), tuner->diag,
                        "running what is timed"))
            return -1;
    }
    return elapsed(tuner);
}

/* The median microseconds of one within a graph of many. */
static double time_repeated(Tuner *tuner, TunedCall *call, const void *what, double once_us) {
    double samples[N_SAMPLES];
    bool brief = tuner->options->brief;
    int launches = brief ? 1 : SAMPLE_LAUNCHES;
    int repeats = once_us * MOST_REPEATS < GRAPH_US ? MOST_REPEATS : (int)(GRAPH_US / once_us);
    if (repeats < 1) repeats = 1;
    cudaGraphExec_t graph = capture(tuner, call, what, repeats);
    if (!graph) return -1;
    bool fine = time_launches(tuner, graph, brief ? 1 : WARM_LAUNCHES) >= 0;
    for (int s = 0; fine && s < N_SAMPLES; s++) {
        samples[s] = time_launches(tuner, graph, launches);
        fine = samples[s] >= 0;
    }
    tuner->device.api->cudaGraphExecDestroy(graph);
    return fine ? measure_median(samples, N_SAMPLES) / (repeats * launches) : -1;
}

bool tuner_time(Tuner *tuner, TunedCall *call, const void *what, double best_us, double *out_us) {
    *out_us = time_once(tuner, call, what);
    if (*out_us >= 0 && (best_us < 0 || *out_us < 2 * best_us + 50)) {
        *out_us = time_repeated(tuner, call, what, *out_us);
    }
    return diag_error_count(tuner->diag) == 0;
}

bool tuner_prepare(const Tuner *tuner, const CommandList *list) {
    for (int i = 0; i < list->count; i++) {
        const LaunchCommand *launch = &list->items[i].launch;
        cudaKernel_t kernel = tuner->device.kernels[launch->kernel];
        if (!cuda_prepare_kernel(&tuner->device, kernel, launch, tuner->diag)) return false;
    }
    return true;
}

bool tuner_launch(const Tuner *tuner, const CommandList *list) {
    bool fine = true;
    for (int i = 0; fine && i < list->count; i++) {
        const LaunchCommand *launch = &list->items[i].launch;
        fine = cuda_launch(&tuner->device, tuner->device.kernels[launch->kernel], launch,
                           tuner->stream) == cudaSuccess;
    }
    return fine;
}

int64_t tuner_operand_bytes(int64_t elements, DType dtype) {
    enum { GRANULE = 256 };
    int64_t bytes = elements * dtype_bytes(dtype);
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

unsigned char *tuner_operands(const Tuner *tuner, int64_t set_bytes, int repeat) {
    int64_t n_sets = tuner->memory_bytes / set_bytes;
    return tuner->memory + repeat % n_sets * set_bytes + ALIGN_BYTES;
}
