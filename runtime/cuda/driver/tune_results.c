#include "runtime/cuda/driver/tune_results.h"

#include "runtime/cpu/philox.h"
#include "runtime/cpu/vec_low.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char WHAT[] = "comparing attention's results";

static void *allocate(int64_t bytes) {
    void *memory = malloc((size_t)bytes);
    if (!memory) BUG("out of memory");
    return memory;
}

/* The part that is repeated has a prime length: no two rows, or tensors, get the same numbers. */
bool tune_fill_normal(const Tuner *tuner, void *memory, int64_t bytes, DType dtype) {
    enum { PART = 1000003 };
    static const PhiloxStream STREAM = {.seed = 1};
    int64_t part_bytes = PART * dtype_bytes(dtype);
    float *numbers = allocate(PART * (int64_t)sizeof(float));
    uint16_t *rounded = allocate(part_bytes);
    philox_normal_run(&STREAM, 0, 1, PART, numbers);
    vec_low_store(dtype, numbers, rounded, PART);
    bool fine = cuda_fill_repeated(&tuner->device, memory, bytes, rounded, part_bytes,
                                   tuner->stream, tuner->diag);
    free(numbers);
    free(rounded);
    return fine;
}

bool tune_spoil(const Tuner *tuner, const TuneTensor *tensor) {
    const CuApi *api = tuner->device.api;
    size_t bytes = (size_t)(tensor->count * dtype_bytes(tensor->dtype));
    return cuda_check(api, api->cudaMemsetAsync(tensor->at, 0xff, bytes, tuner->stream),
                      tuner->diag, WHAT);
}

/* What of a tensor is compared. */
typedef struct Parts {
    int64_t begin_bytes, end_bytes, end_at;
} Parts;

static Parts parts_of(const TuneTensor *tensor) {
    int64_t bytes = tensor->count * dtype_bytes(tensor->dtype), most = TUNE_COMPARED_BYTES;
    int64_t begin = bytes < most ? bytes : most, rest = bytes - begin;
    int64_t end = rest < most ? rest : most;
    return (Parts){begin, end, bytes - end};
}

/* From malloc; NULL: reported. */
static void *fetch(const Tuner *tuner, const TuneTensor *tensor) {
    const CuApi *api = tuner->device.api;
    Parts parts = parts_of(tensor);
    char *host = allocate(parts.begin_bytes + parts.end_bytes);
    const char *at = tensor->at;
    bool fine = cuda_check(api,
                           api->cudaMemcpyAsync(host, at, (size_t)parts.begin_bytes,
                                                cudaMemcpyDeviceToHost, tuner->stream),
                           tuner->diag, WHAT);
    if (fine && parts.end_bytes) {
        fine = cuda_check(api,
                          api->cudaMemcpyAsync(host + parts.begin_bytes, at + parts.end_at,
                                               (size_t)parts.end_bytes, cudaMemcpyDeviceToHost,
                                               tuner->stream),
                          tuner->diag, WHAT);
    }
    fine = cuda_check(api, api->cudaStreamSynchronize(tuner->stream), tuner->diag, WHAT) && fine;
    if (fine) return host;
    free(host);
    return NULL;
}

bool tune_keep(const Tuner *tuner, TuneTensor *tensor) {
    free(tensor->kept);
    tensor->kept = fetch(tuner, tensor);
    return tensor->kept != NULL;
}

/* |a - b| / |b| over `count` elements from `first` on. */
static double relative_distance(const void *a, const void *b, DType dtype, int64_t first,
                                int64_t count) {
    const double least = 1e-3;
    double difference = 0, size = 0;
    for (int64_t i = first; i < first + count; i++) {
        double x = (double)vec_get(a, dtype, i), y = (double)vec_get(b, dtype, i);
        difference += (x - y) * (x - y);
        size += y * y;
    }
    /* Anything not finite is in the sums. */
    if (!isfinite(difference) || !isfinite(size)) return INFINITY;
    return sqrt(difference) / fmax(sqrt(size), least * sqrt((double)count));
}

bool tune_compare(const Tuner *tuner, const TuneTensor *tensor, TuneDistance *out) {
    Parts parts = parts_of(tensor);
    int64_t count = (parts.begin_bytes + parts.end_bytes) / dtype_bytes(tensor->dtype);
    void *now = fetch(tuner, tensor);
    if (!now) return false;
    *out = (TuneDistance){.whole = relative_distance(now, tensor->kept, tensor->dtype, 0, count)};
    for (int64_t i = 0; i < count; i += TUNE_PIECE) {
        int64_t n = count - i < TUNE_PIECE ? count - i : TUNE_PIECE;
        out->worst = fmax(out->worst, relative_distance(now, tensor->kept, tensor->dtype, i, n));
    }
    free(now);
    return true;
}

bool tune_compare_bits(const Tuner *tuner, const TuneTensor *tensor, bool *out) {
    Parts parts = parts_of(tensor);
    void *now = fetch(tuner, tensor);
    if (!now) return false;
    *out = memcmp(now, tensor->kept, (size_t)(parts.begin_bytes + parts.end_bytes)) == 0;
    free(now);
    return true;
}
