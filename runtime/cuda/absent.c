/* What the program says where it was built without CUDA. */
#ifndef HAVE_CUDA
#include "runtime/engine_internal.h"

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
#endif
