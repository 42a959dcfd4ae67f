#include "tests/support/generated_ptx.h"

#ifndef HAVE_CUDA

bool generated_ptx_compile(const char *source, const char **out_why) {
    (void)source;
    *out_why = "built without CUDA";
    return false;
}

bool generated_ptx_run(const GeneratedKernel *kernel, Grid grid, int threads, const void *args,
                       const char **out_why) {
    (void)kernel, (void)grid, (void)threads, (void)args;
    *out_why = "built without CUDA";
    return false;
}

#else

#include "runtime/cuda/driver/api.h"
#include "tests/ptx/ptx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What training does not need of NVRTC. */
typedef struct PtxFunctions {
    nvrtcResult (*size)(nvrtcProgram, size_t *);
    nvrtcResult (*get)(nvrtcProgram, char *);
} PtxFunctions;

static Arena *arena; /* for the whole program */
static PtxModule *module;
static char why_text[1024];

static bool load_functions(const CuApi *api, PtxFunctions *out) {
    void *library = api->path[LIBRARY_nvrtc] ? dlopen(api->path[LIBRARY_nvrtc], RTLD_NOW) : NULL;
    void *size = library ? dlsym(library, "nvrtcGetPTXSize") : NULL;
    void *get = library ? dlsym(library, "nvrtcGetPTX") : NULL;
    memcpy(&out->size, &size, sizeof size);
    memcpy(&out->get, &get, sizeof get);
    return size && get;
}

bool generated_ptx_compile(const char *source, const char **out_why) {
    const char *options[] = {"--gpu-architecture=compute_90", "--std=c++17", "--fmad=false"};
    const CuApi *api = cu_api_load();
    PtxFunctions functions;
    nvrtcProgram program;
    size_t bytes = 0;
    *out_why = why_text;
    if (!load_functions(api, &functions)) {
        snprintf(why_text, sizeof why_text, "NVRTC: %s",
                 api->path[LIBRARY_nvrtc] ? "has no nvrtcGetPTX" : api->error[LIBRARY_nvrtc]);
        return false;
    }
    if (!arena) {
        arena = arena_create();
        module = ptx_module_create(arena);
    }
    bool good = api->nvrtcCreateProgram(&program, source, NULL, 0, NULL, NULL) == NVRTC_SUCCESS;
    good = good && api->nvrtcCompileProgram(program, 3, options) == NVRTC_SUCCESS &&
           functions.size(program, &bytes) == NVRTC_SUCCESS;
    char *text = good ? arena_alloc(arena, bytes + 1) : NULL;
    good = good && functions.get(program, text) == NVRTC_SUCCESS;
    if (good)
        ptx_module_add(module, "generated.ptx", text);
    else
        snprintf(why_text, sizeof why_text, "NVRTC does not compile the generated kernels");
    api->nvrtcDestroyProgram(&program);
    return good;
}

bool generated_ptx_run(const GeneratedKernel *kernel, Grid grid, int threads, const void *args,
                       const char **out_why) {
    Diag *diag = diag_create();
    PtxLaunch launch = {.kernel = ptx_module_find(module, kernel->name, diag),
                        .grid = {grid.x, grid.y, grid.z},
                        .threads = threads,
                        .args = args,
                        .args_bytes = sizeof(FusedArgs)};
    bool good = launch.kernel && ptx_launch(&launch);
    if (!good)
        snprintf(why_text, sizeof why_text, "%s", launch.kernel ? ptx_error() : diag_text(diag));
    *out_why = why_text;
    diag_destroy(diag);
    return good;
}

#endif
