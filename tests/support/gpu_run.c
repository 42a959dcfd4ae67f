#include "tests/support/gpu_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of exactly this size, so that what is touched beyond is found. */
static void *plain_alloc(size_t bytes) {
    void *memory;
    return posix_memalign(&memory, 64, bytes ? bytes : 1) == 0 ? memory : NULL;
}

bool gpu_run_takes(const Command *command) {
    const char *wanted = getenv("PERILUNE_TEST_GPU");
    bool kernels = wanted && strcmp(wanted, "kernels") == 0;
    return gpu_run_wanted() && !(kernels && command->kind == COMMAND_GEMM);
}

#ifndef HAVE_CUDA
bool gpu_run_wanted(void) {
    if (!getenv("PERILUNE_TEST_GPU")) return false;
    puts("FAIL PERILUNE_TEST_GPU: built without CUDA");
    exit(1);
}

void *gpu_run_alloc(size_t bytes) {
    return plain_alloc(bytes);
}

void gpu_run_free(void *memory) {
    free(memory);
}

bool gpu_run_has_product(const GemmCommand *gemm) {
    (void)gemm;
    return true;
}

bool gpu_run_has_wgmma(void) {
    return true;
}

bool gpu_run_command(const Command *command, const char **out_why) {
    (void)command;
    *out_why = "built without CUDA";
    return false;
}
#else
#include "runtime/cuda/driver/gemm.h"
#include "runtime/cuda/driver/modules.h"
#include "runtime/cuda/epilogue.h"

enum { WORKSPACE_BYTES = 32 << 20, MAX_GENERATED = 4096 };

/* One device for the whole test program. */
typedef struct Gpu {
    bool ready;
    CudaDevice device;
    Arena *arena;
    Diag *diag;
    GemmTable *gemms;
    void *workspace;
    cudaStream_t stream;
    int n_generated;
    uint64_t hashes[MAX_GENERATED];
    cudaKernel_t kernels[MAX_GENERATED];
} Gpu;

static Gpu gpu;

static void open_gpu(void) {
    const CuApi *api = cuda_api();
    gpu.arena = arena_create();
    gpu.diag = diag_create();
    if (!cuda_device_open(&gpu.device, api, 0, gpu.diag) ||
        !cuda_device_start_blas(&gpu.device, gpu.diag) ||
        !cuda_check(api, api->cudaMalloc(&gpu.workspace, WORKSPACE_BYTES), gpu.diag,
                    "allocating workspace") ||
        !cuda_check(api, api->cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking),
                    gpu.diag, "making a stream")) {
        printf("FAIL the GPU: %s\n", diag_text(gpu.diag));
        exit(1);
    }
    gpu.gemms = gemm_table_create(&gpu.device, false, WORKSPACE_BYTES, gpu.arena);
    gpu.ready = true;
}

bool gpu_run_wanted(void) {
    if (!getenv("PERILUNE_TEST_GPU")) return false;
    if (!gpu.ready) open_gpu();
    return true;
}

bool gpu_run_has_wgmma(void) {
    return !gpu_run_wanted() || strcmp(gpu.device.arch, "sm_90") == 0;
}

void *gpu_run_alloc(size_t bytes) {
    void *memory = NULL;
    if (!gpu_run_wanted()) return plain_alloc(bytes);
    const CuApi *api = gpu.device.api;
    cudaError_t status = api->cudaHostAlloc(&memory, bytes ? bytes : 1, cudaHostAllocMapped);
    if (status == cudaSuccess) return memory;
    /* After a kernel that went astray nothing works in this process. */
    printf("FAIL the GPU is lost: %s; the case after the last that is named, and all that follow, "
           "were not run\n",
           api->cudaGetErrorString(status));
    exit(1);
}

void gpu_run_free(void *memory) {
    if (!gpu_run_wanted()) {
        free(memory);
    } else if (memory) {
        gpu.device.api->cudaFreeHost(memory);
    }
}

/* Compiled once for each source. */
static cudaKernel_t generated_kernel(const GeneratedKernel *kernel) {
    const CuApi *api = gpu.device.api;
    cudaLibrary_t library;
    Cubin cubin;
    for (int i = 0; i < gpu.n_generated; i++) {
        if (gpu.hashes[i] == kernel->hash) return gpu.kernels[i];
    }
    CompileRequest request = {
        .api = api, .arch = gpu.device.arch, .folder = compile_cache_folder(gpu.arena)};
    if (gpu.n_generated == MAX_GENERATED ||
        !compile_kernels(&request, &kernel, 1, gpu.arena, &cubin, NULL, gpu.diag) ||
        api->cudaLibraryLoadData(&library, cubin.data, NULL, NULL, 0, NULL, NULL, 0) !=
            cudaSuccess ||
        api->cudaLibraryGetKernel(&gpu.kernels[gpu.n_generated], library, kernel->name) !=
            cudaSuccess) {
        return NULL;
    }
    gpu.hashes[gpu.n_generated] = kernel->hash;
    return gpu.kernels[gpu.n_generated++];
}

static bool run_launch(const LaunchCommand *launch) {
    const CuApi *api = gpu.device.api;
    cudaKernel_t kernel = launch->generated ? generated_kernel(launch->generated)
                                            : gpu.device.kernels[launch->kernel];
    if (!kernel) return false;
    if (!cuda_prepare_kernel(&gpu.device, kernel, launch, gpu.diag)) return false;
    return cuda_check(api, cuda_launch(&gpu.device, kernel, launch, gpu.stream), gpu.diag,
                      launch->generated ? launch->generated->name : KERNELS[launch->kernel].name);
}

bool gpu_run_has_product(const GemmCommand *gemm) {
    const MatmulLayout *l = &gemm->layout;
    if (!gpu_run_wanted() || gemm_table_supports(gpu.gemms, gemm)) return true;
    printf("cuBLASLt has no product %lld x %lld x %lld%s, %s -> %s: not run\n", (long long)l->m,
           (long long)l->n, (long long)l->k, epilogue_name(gemm, gpu.arena),
           dtype_name(gemm->in_dtype), dtype_name(gemm->out_dtype));
    return false;
}

static bool run_gemm(const GemmCommand *command) {
    const GemmEntry *entry = gemm_table_find(gpu.gemms, command, gpu.diag);
    return entry &&
           cuda_check_blas(gpu.device.api,
                           gemm_issue(gpu.gemms, entry, command, gpu.workspace, gpu.stream),
                           gpu.diag, "a product");
}

bool gpu_run_command(const Command *command, const char **out_why) {
    const CuApi *api = gpu.device.api;
    bool good = false;
    switch (command->kind) {
    case COMMAND_LAUNCH: good = run_launch(&command->launch); break;
    case COMMAND_GEMM: good = run_gemm(&command->gemm); break;
    case COMMAND_COPY:
        good =
            api->cudaMemcpyAsync(command->copy.to, command->copy.from, (size_t)command->copy.bytes,
                                 cudaMemcpyDefault, gpu.stream) == cudaSuccess;
        break;
    case COMMAND_FILL:
        good = api->cudaMemsetAsync(command->fill.to, command->fill.byte,
                                    (size_t)command->fill.bytes, gpu.stream) == cudaSuccess;
        break;
    default: break;
    }
    good = good && cuda_check(api, api->cudaStreamSynchronize(gpu.stream), gpu.diag, "running");
    *out_why = good ? "" : diag_text(gpu.diag);
    return good;
}
#endif
