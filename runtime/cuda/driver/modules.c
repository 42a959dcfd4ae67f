#include "runtime/cuda/driver/modules.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Module {
    const GeneratedKernel *source;
    cudaLibrary_t library;
    cudaKernel_t kernel;
} Module;

struct GeneratedModules {
    const CudaDevice *device;
    int count;
    Module *modules; /* by address of `source`, ascending */
};

static void print_progress(void *user, int n_done, int n_total) {
    (void)user;
    fprintf(stderr, "compiling kernels for this GPU: %d of %d\n", n_done, n_total);
}

static int compare_modules(const void *a, const void *b) {
    const Module *x = a, *y = b;
    return (x->source > y->source) - (x->source < y->source);
}

static bool load(GeneratedModules *modules, const KernelCache *cache, const Cubin *cubins,
                 Diag *diag) {
    const CuApi *api = modules->device->api;
    int n = kernel_cache_count(cache);
    for (int i = 0; i < n; i++) {
        Module *module = &modules->modules[i];
        *module = (Module){.source = kernel_cache_get(cache, i)};
        if (!cuda_check(api,
                        api->cudaLibraryLoadData(&module->library, cubins[i].data, NULL, NULL, 0,
                                                 NULL, NULL, 0),
                        diag, "loading a generated kernel")) {
            return false;
        }
        modules->count++;
        if (!cuda_check(
                api,
                api->cudaLibraryGetKernel(&module->kernel, module->library, module->source->name),
                diag, "finding a generated kernel")) {
            return false;
        }
    }
    qsort(modules->modules, (size_t)n, sizeof(*modules->modules), compare_modules);
    return true;
}

GeneratedModules *generated_modules_load(const CudaDevice *device, const KernelCache *cache,
                                         Arena *arena, Diag *diag) {
    int n = kernel_cache_count(cache);
    GeneratedModules *modules = ARENA_NEW(arena, GeneratedModules);
    *modules = (GeneratedModules){.device = device, .modules = ARENA_ARRAY(arena, Module, n + 1)};
    const GeneratedKernel **kernels = ARENA_ARRAY(arena, const GeneratedKernel *, n + 1);
    Cubin *cubins = ARENA_ARRAY(arena, Cubin, n + 1);
    CompileRequest request = {.api = device->api,
                              .arch = device->arch,
                              .folder = compile_cache_folder(arena),
                              .progress = print_progress};
    for (int i = 0; i < n; i++) kernels[i] = kernel_cache_get(cache, i);
    if (compile_kernels(&request, kernels, n, arena, cubins, NULL, diag) &&
        load(modules, cache, cubins, diag)) {
        return modules;
    }
    generated_modules_unload(modules);
    return NULL;
}

void generated_modules_unload(GeneratedModules *modules) {
    const CuApi *api = modules->device->api;
    for (int i = 0; i < modules->count; i++) api->cudaLibraryUnload(modules->modules[i].library);
    modules->count = 0;
}

cudaKernel_t generated_modules_find(const GeneratedModules *modules,
                                    const GeneratedKernel *kernel) {
    const Module key = {.source = kernel};
    const Module *found = bsearch(&key, modules->modules, (size_t)modules->count,
                                  sizeof(*modules->modules), compare_modules);
    return found ? found->kernel : NULL;
}
