#ifdef HAVE_CUDA

/* Libraries, kernels and their launches; NVRTC, whose cubins are the sources themselves. */
#include "tests/support/fake_internal.h"
#include "tests/support/generated_run.h"

#include <stdlib.h>
#include <string.h>

enum { FREE_SHARED_BYTES = 48 * 1024, MOST_SHARED_BYTES = 227 * 1024, MOST_THREADS = 1024 };

/* What the fake's NVRTC makes; name and source follow, each with its zero. */
typedef struct FakeCubin {
    char magic[8];
    uint64_t hash, name_bytes, source_bytes;
} FakeCubin;
static const char CUBIN_MAGIC[8] = {'\177', 'E', 'L', 'F', 'F', 'A', 'K', 'E'};

/* Libraries */

static cudaError_t load_library(cudaLibrary_t *out, const void *code, enum cudaJitOption *options,
                                void **values, unsigned n_options,
                                enum cudaLibraryOption *library_options, void **library_values,
                                unsigned n_library_options) {
    (void)options, (void)values, (void)library_options, (void)library_values;
    if (!code || n_options || n_library_options) return cudaErrorInvalidValue;
    if (fake_check_no_capture("cudaLibraryLoadData")) return cudaErrorStreamCaptureUnsupported;
    FakeLibrary *library = fake_new(FAKE_IS_LIBRARY, sizeof(*library));
    *out = (cudaLibrary_t)library;
    if (memcmp(code, CUBIN_MAGIC, sizeof(CUBIN_MAGIC)) != 0) return cudaSuccess; /* a fatbin */
    FakeCubin cubin;
    memcpy(&cubin, code, sizeof(cubin));
    const char *name = (const char *)code + sizeof(cubin);
    library->generated = (GeneratedKernel){
        .name = strdup(name), .source = strdup(name + cubin.name_bytes), .hash = cubin.hash};
    return cudaSuccess;
}

static cudaError_t unload_library(cudaLibrary_t library) {
    return fake_end(library, FAKE_IS_LIBRARY, "cudaLibraryUnload") ? cudaSuccess
                                                                   : cudaErrorInvalidValue;
}

static FakeFunction *add_function(FakeLibrary *library, KernelId kernel,
                                  const GeneratedKernel *generated) {
    for (int i = 0; i < library->n_functions; i++) {
        FakeFunction *known = &library->functions[i];
        if (known->kernel == kernel && known->generated == generated) return known;
    }
    FakeFunction *function = &library->functions[library->n_functions++];
    *function = (FakeFunction){kernel, generated, FREE_SHARED_BYTES, false};
    return function;
}

static cudaError_t get_kernel(cudaKernel_t *out, cudaLibrary_t library, const char *name) {
    FakeLibrary *l = fake_get(library, FAKE_IS_LIBRARY, "cudaLibraryGetKernel");
    if (!l) return cudaErrorInvalidResourceHandle;
    if (l->generated.name) {
        if (strcmp(l->generated.name, name) != 0) return cudaErrorSymbolNotFound;
        *out = (cudaKernel_t)add_function(l, (KernelId)0, &l->generated);
        return cudaSuccess;
    }
    for (int k = 0; k < N_KERNELS; k++) {
        if (strcmp(KERNELS[k].name, name) != 0) continue;
        *out = (cudaKernel_t)add_function(l, (KernelId)k, NULL);
        return cudaSuccess;
    }
    return cudaErrorSymbolNotFound;
}

FakeFunction *fake_function(const void *kernel, const char *function) {
    for (FakeObject *object = fake->objects; object; object = object->next) {
        FakeLibrary *library = (FakeLibrary *)object;
        if (object->kind != FAKE_IS_LIBRARY) continue;
        for (int i = 0; i < library->n_functions; i++) {
            if ((const void *)&library->functions[i] != kernel) continue;
            if (object->live) return &library->functions[i];
            fake_defect("%s: a kernel of a library that was unloaded", function);
            return NULL;
        }
    }
    fake_defect("%s: what it was given is no kernel", function);
    return NULL;
}

/* Compiles all that are loaded, at once. */
bool fake_compile_generated(void) {
    int count = 0, capacity = 16;
    const GeneratedKernel **kernels = malloc((size_t)capacity * sizeof(const GeneratedKernel *));
    if (!kernels) BUG("out of memory");
    for (const FakeObject *object = fake->objects; object; object = object->next) {
        const FakeLibrary *library = (const FakeLibrary *)object;
        if (object->kind != FAKE_IS_LIBRARY || !object->live || !library->generated.name) continue;
        if (count == capacity) {
            capacity *= 2;
            kernels = realloc(kernels, (size_t)capacity * sizeof(const GeneratedKernel *));
            if (!kernels) BUG("out of memory");
        }
        kernels[count++] = &library->generated;
    }
    const char *why = "";
    bool good = generated_host_compile_kernels(kernels, count, &why);
    if (!good) fake_defect("compiling generated kernels: %s", why);
    free(kernels);
    return good;
}

/* Launches */

static const char *name_of(const FakeFunction *function) {
    return function->generated ? function->generated->name : KERNELS[function->kernel].name;
}

static cudaError_t set_attribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    FakeFunction *function = fake_function(kernel, "cudaFuncSetAttribute");
    if (!function) return cudaErrorInvalidDeviceFunction;
    if (fake_check_no_capture("cudaFuncSetAttribute")) return cudaErrorStreamCaptureUnsupported;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > MOST_SHARED_BYTES) {
        fake_defect("cudaFuncSetAttribute: %d bytes of shared memory for %s", value,
                    name_of(function));
        return cudaErrorInvalidValue;
    }
    function->most_shared_bytes = value; /* lowers it, too */
    return cudaSuccess;
}

static cudaError_t get_attributes(struct cudaFuncAttributes *out, const void *kernel) {
    FakeFunction *function = fake_function(kernel, "cudaFuncGetAttributes");
    if (!function) return cudaErrorInvalidDeviceFunction;
    if (fake_check_no_capture("cudaFuncGetAttributes")) return cudaErrorStreamCaptureUnsupported;
    function->loaded = true;
    *out = (struct cudaFuncAttributes){.maxDynamicSharedSizeBytes = function->most_shared_bytes};
    return cudaSuccess;
}

static bool check_shape(const FakeFunction *function, dim3 grid, dim3 block, size_t shared) {
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
        fake_defect("%s: a grid of %u x %u x %u blocks", name_of(function), grid.x, grid.y, grid.z);
        return false;
    }
    if (!block.x || block.x > MOST_THREADS || block.y != 1 || block.z != 1) {
        fake_defect("%s: a block of %u x %u x %u threads", name_of(function), block.x, block.y,
                    block.z);
        return false;
    }
    if (shared > (size_t)function->most_shared_bytes) {
        fake_defect("%s: %zu bytes of shared memory, allowed are %d", name_of(function), shared,
                    function->most_shared_bytes);
        return false;
    }
    return true;
}

/* Kernels load lazily: at the latest when they are launched, but not in a capture. */
static bool check_loaded(FakeFunction *function) {
    char what[192];
    snprintf(what, sizeof(what), "%s, not loaded before,", name_of(function));
    if (!function->loaded && fake_check_no_capture(what)) return false;
    function->loaded = true;
    return true;
}

static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                          cudaStream_t stream) {
    FakeFunction *function = fake_function(kernel, "cudaLaunchKernel");
    if (!function) return cudaErrorInvalidDeviceFunction;
    if (!args || !args[0]) {
        fake_defect("%s: a launch without arguments", name_of(function));
        return cudaErrorInvalidValue;
    }
    if (!check_shape(function, grid, block, shared)) return cudaErrorInvalidConfiguration;
    if (!check_loaded(function)) return cudaErrorStreamCaptureUnsupported;
    size_t bytes = function->generated ? sizeof(FusedArgs) : KERNELS[function->kernel].args_bytes;
    FakeNode node = {.kind = FAKE_KERNEL,
                     .launch = {.function = function,
                                .grid = {grid.x, grid.y, grid.z},
                                .threads = (int)block.x,
                                .shared_bytes = (int)shared,
                                .args = malloc(bytes),
                                .args_bytes = bytes}};
    if (!node.launch.args) BUG("out of memory");
    memcpy(node.launch.args, args[0], bytes);
    return fake_issue(&node, stream, name_of(function));
}

void fake_fill_nvrtc(CuApi *api);

void fake_fill_kernels(CuApi *api) {
    api->cudaLibraryLoadData = load_library;
    api->cudaLibraryUnload = unload_library;
    api->cudaLibraryGetKernel = get_kernel;
    api->cudaFuncGetAttributes = get_attributes;
    api->cudaFuncSetAttribute = set_attribute;
    api->cudaLaunchKernel = launch;
    fake_fill_nvrtc(api);
}

/* NVRTC */

typedef struct FakeProgram {
    FakeObject object;
    char *name, *source;
    bool compiled;
} FakeProgram;

/* Version 0.1: what it makes is nobody else's in a cache of cubins. */
static nvrtcResult nvrtc_version(int *out_major, int *out_minor) {
    *out_major = 0;
    *out_minor = 1;
    return NVRTC_SUCCESS;
}

static const char *nvrtc_error_string(nvrtcResult status) {
    return status == NVRTC_SUCCESS ? "success" : "the fake's error";
}

static nvrtcResult create_program(nvrtcProgram *out, const char *source, const char *name,
                                  int n_headers, const char *const *headers,
                                  const char *const *names) {
    (void)headers, (void)names;
    if (!source || !name || n_headers) return NVRTC_ERROR_INVALID_INPUT;
    FakeProgram *program = fake_new(FAKE_IS_PROGRAM, sizeof(*program));
    program->name = strdup(name);
    program->source = strdup(source);
    if (!program->name || !program->source) BUG("out of memory");
    char *end = strstr(program->name, ".cu");
    if (end) *end = '\0';
    *out = (nvrtcProgram)program;
    return NVRTC_SUCCESS;
}

static nvrtcResult destroy_program(nvrtcProgram *program) {
    FakeProgram *p = (FakeProgram *)*program;
    if (!fake_end(p, FAKE_IS_PROGRAM, "nvrtcDestroyProgram")) return NVRTC_ERROR_INVALID_PROGRAM;
    free(p->name);
    free(p->source);
    *program = NULL;
    return NVRTC_SUCCESS;
}

static nvrtcResult compile_program(nvrtcProgram program, int n_options,
                                   const char *const *options) {
    FakeProgram *p = fake_get(program, FAKE_IS_PROGRAM, "nvrtcCompileProgram");
    if (!p || n_options < 1 || strncmp(options[0], "--gpu-architecture=sm_", 22) != 0) {
        return NVRTC_ERROR_INVALID_OPTION;
    }
    p->compiled = true;
    return NVRTC_SUCCESS;
}

static nvrtcResult cubin_size(nvrtcProgram program, size_t *out) {
    const FakeProgram *p = fake_get(program, FAKE_IS_PROGRAM, "nvrtcGetCUBINSize");
    if (!p || !p->compiled) return NVRTC_ERROR_INVALID_PROGRAM;
    *out = sizeof(FakeCubin) + strlen(p->name) + 1 + strlen(p->source) + 1;
    return NVRTC_SUCCESS;
}

static nvrtcResult get_cubin(nvrtcProgram program, char *out) {
    const FakeProgram *p = fake_get(program, FAKE_IS_PROGRAM, "nvrtcGetCUBIN");
    if (!p || !p->compiled) return NVRTC_ERROR_INVALID_PROGRAM;
    FakeCubin cubin = {.hash = UINT64_C(14695981039346656037),
                       .name_bytes = strlen(p->name) + 1,
                       .source_bytes = strlen(p->source) + 1};
    for (const char *c = p->source; *c; c++) { /* FNV-1a */
        cubin.hash = (cubin.hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    }
    memcpy(cubin.magic, CUBIN_MAGIC, sizeof(CUBIN_MAGIC));
    memcpy(out, &cubin, sizeof(cubin));
    memcpy(out + sizeof(cubin), p->name, cubin.name_bytes);
    memcpy(out + sizeof(cubin) + cubin.name_bytes, p->source, cubin.source_bytes);
    return NVRTC_SUCCESS;
}

static nvrtcResult log_size(nvrtcProgram program, size_t *out) {
    (void)program;
    *out = 1;
    return NVRTC_SUCCESS;
}

static nvrtcResult get_log(nvrtcProgram program, char *out) {
    (void)program;
    *out = '\0';
    return NVRTC_SUCCESS;
}

void fake_fill_nvrtc(CuApi *api) {
    api->nvrtcVersion = nvrtc_version;
    api->nvrtcGetErrorString = nvrtc_error_string;
    api->nvrtcCreateProgram = create_program;
    api->nvrtcDestroyProgram = destroy_program;
    api->nvrtcCompileProgram = compile_program;
    api->nvrtcGetCUBINSize = cubin_size;
    api->nvrtcGetCUBIN = get_cubin;
    api->nvrtcGetProgramLogSize = log_size;
    api->nvrtcGetProgramLog = get_log;
}

#endif
