/* What the program says where it was built without CUDA. */
#ifndef HAVE_CUDA
#include "runtime/cuda/devices.h"
#include "runtime/cuda/tune.h"
#include "runtime/engine_internal.h"
#include "runtime/measure/measure.h"

#include <string.h>

static bool create(Engine *engine, const EngineOptions *options, Diag *diag) {
    (void)engine, (void)options;
    diag_error(diag, NO_LOC,
               "this perilune was built without CUDA: build it where nvcc and CUDA's headers are");
    return false;
}

static void destroy(Engine *engine) {
    (void)engine;
}

bool engine_cuda_available(const char **out_why) {
    *out_why = "this perilune was built without CUDA: build it where nvcc and CUDA's headers are";
    return false;
}

const EngineBackend *cuda_backend(void) {
    static const EngineBackend ABSENT = {.name = "cuda", .create = create, .destroy = destroy};
    return &ABSENT;
}

bool cuda_report(CudaReport *out) {
    const char *why;
    memset(out, 0, sizeof(*out));
    engine_cuda_available(&why);
    snprintf(out->why, sizeof(out->why), "%s", why);
    return false;
}

void cuda_software(int ordinal, StrBuf *out) {
    (void)ordinal, (void)out;
}

bool measure_cuda(const MeasureOptions *options, Arena *arena, DeviceProfile *out, Diag *diag) {
    const char *why;
    (void)options, (void)arena, (void)out;
    engine_cuda_available(&why);
    diag_error(diag, NO_LOC, "--device cuda: %s", why);
    return false;
}

bool cuda_tune(const Plan *plan, const TuneOptions *options, Arena *arena, TuneResult *out,
               Diag *diag) {
    const char *why;
    (void)plan, (void)options, (void)arena, (void)out;
    engine_cuda_available(&why);
    diag_error(diag, NO_LOC, "%s", why);
    return false;
}
#endif
