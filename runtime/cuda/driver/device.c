#include "runtime/cuda/driver/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written by make: one fatbin for each file of kernels/. */
extern const char *const CUDA_FATBINS[];
extern const int N_CUDA_FATBINS;

static const CuApi *replaced;

const CuApi *cuda_api(void) {
    return replaced ? replaced : cu_api_load();
}

bool cuda_api_is_real(void) {
    return !replaced;
}

void cuda_api_replace(const CuApi *api) {
    replaced = api;
}

bool cuda_check(const CuApi *api, cudaError_t status, Diag *diag, const char *what) {
    size_t free_bytes, all_bytes;
    char left[48] = "";
    if (status == cudaSuccess) return true;
    if (status == cudaErrorMemoryAllocation &&
        api->cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess) {
        snprintf(left, sizeof(left), " (%.2f GiB are free)", (double)free_bytes / (1 << 30));
    }
    diag_error(diag, NO_LOC, "CUDA: %s: %s%s", what, api->cudaGetErrorString(status), left);
    return false;
}

bool cuda_check_blas(const CuApi *api, cublasStatus_t status, Diag *diag, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    diag_error(diag, NO_LOC, "cuBLASLt: %s: %s", what, api->cublasLtGetStatusString(status));
    return false;
}

/* A driver runs what is made for its own major version and for earlier ones. */
static void describe_driver(const CuApi *api, cudaError_t status, char *out, size_t size) {
    int driver = 0, major = CUDART_VERSION / 1000;
    /* 0: there is none, though the status calls that too old. */
    if (api->cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
        snprintf(out, size, "the NVIDIA driver is for CUDA %d.%d: one for CUDA %d is needed",
                 driver / 1000, driver / 10 % 100, major);
    } else if (status == cudaErrorInsufficientDriver) {
        snprintf(out, size, CUDA_NO_DRIVER);
    } else {
        snprintf(out, size, "no NVIDIA driver for CUDA %d was found: %s", major,
                 api->cudaGetErrorString(status));
    }
}

bool cuda_usable(const CuApi *api, int *out_n_devices, const char **out_why) {
    static char why[320];
    *out_n_devices = 0;
    *out_why = why;
    for (int i = LIBRARY_cudart; i <= LIBRARY_nvrtc; i++) {
        if (api->path[i]) continue;
        snprintf(why, sizeof(why),
                 "CUDA's library %s was not found (%s); set PERILUNE_CUDA_LIBRARIES to its folder",
                 cu_library_name((CuLibrary)i), api->error[i]);
        return false;
    }
    cudaError_t status = api->cudaGetDeviceCount(out_n_devices);
    if (status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary) {
        *out_n_devices = 0;
        describe_driver(api, status, why, sizeof(why));
        return false;
    }
    if (status != cudaSuccess || *out_n_devices == 0) {
        *out_n_devices = 0;
        const char *text =
            status == cudaSuccess ? "the driver lists none" : api->cudaGetErrorString(status);
        const char *hint = status == cudaErrorSystemNotReady
                               ? "; machines with NVSwitch need NVIDIA's Fabric Manager"
                               : "";
        snprintf(why, sizeof(why), "no GPU was found: %s%s", text, hint);
        return false;
    }
    why[0] = '\0';
    return true;
}

static bool read_properties(CudaDevice *device, Diag *diag) {
    const CuApi *api = device->api;
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    if (!cuda_check(api, api->cudaGetDeviceProperties(&properties, device->ordinal), diag,
                    "reading the device's properties") ||
        !cuda_check(api, api->cudaMemGetInfo(&free_bytes, &total_bytes), diag,
                    "reading the device's free memory")) {
        return false;
    }
    snprintf(device->name, sizeof(device->name), "%.*s", (int)sizeof(device->name) - 1,
             properties.name);
    snprintf(device->arch, sizeof(device->arch), "sm_%d%d", properties.major, properties.minor);
    device->n_processors = properties.multiProcessorCount;
    device->memory_bytes = (int64_t)total_bytes;
    device->free_bytes = (int64_t)free_bytes;
    device->most_shared_bytes = (int64_t)properties.sharedMemPerBlockOptin;
    if (properties.major >= 8) return true;
    diag_error(diag, NO_LOC, "device %d, %s, is %s: sm_80 (A100) or newer is needed",
               device->ordinal, device->name, device->arch);
    return false;
}

/* Every row of kernels.def must be in one of the fatbins. Those that lack it leave an error behind,
 * which later calls must not find. */
static bool find_kernels(CudaDevice *device, Diag *diag) {
    const CuApi *api = device->api;
    for (int k = 0; k < N_KERNELS; k++) {
        cudaError_t status = cudaErrorSymbolNotFound;
        for (int i = 0; i < device->n_fatbins && status != cudaSuccess; i++) {
            status =
                api->cudaLibraryGetKernel(&device->kernels[k], device->fatbins[i], KERNELS[k].name);
        }
        api->cudaGetLastError();
        if (status == cudaSuccess) continue;
        diag_error(diag, NO_LOC, "CUDA: kernel %s is not among those built for %s: %s",
                   KERNELS[k].name, device->arch, api->cudaGetErrorString(status));
        return false;
    }
    return true;
}

static bool load_kernels(CudaDevice *device, Diag *diag) {
    const CuApi *api = device->api;
    if (N_CUDA_FATBINS > MAX_FATBINS) BUG("more than %d kernel files", MAX_FATBINS);
    for (int i = 0; i < N_CUDA_FATBINS; i++) {
        if (!cuda_check(api,
                        api->cudaLibraryLoadData(&device->fatbins[i], CUDA_FATBINS[i], NULL, NULL,
                                                 0, NULL, NULL, 0),
                        diag, "loading the kernels")) {
            return false;
        }
        device->n_fatbins++;
    }
    return find_kernels(device, diag);
}

bool cuda_device_open(CudaDevice *device, const CuApi *api, int ordinal, Diag *diag) {
    int n_devices;
    const char *why;
    *device = (CudaDevice){.api = api, .ordinal = ordinal};
    if (!cuda_usable(api, &n_devices, &why)) {
        diag_error(diag, NO_LOC, "%s", why);
        return false;
    }
    /* Launchers may show each process its own device alone; two processes on one are NCCL's to
     * refuse. */
    if (n_devices == 1) device->ordinal = ordinal = 0;
    if (ordinal < 0 || ordinal >= n_devices) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        diag_error(diag, NO_LOC, "there is no GPU number %d: this process sees %d%s%s", ordinal,
                   n_devices, visible ? ", as CUDA_VISIBLE_DEVICES is " : "",
                   visible ? visible : "");
        return false;
    }
    return cuda_check(api, api->cudaSetDevice(ordinal), diag, "choosing the device") &&
           read_properties(device, diag) && load_kernels(device, diag);
}

bool cuda_device_start_blas(CudaDevice *device, Diag *diag) {
    const CuApi *api = device->api;
    return cuda_check_blas(api, api->cublasLtCreate(&device->blas), diag, "starting");
}

void cuda_device_close(CudaDevice *device) {
    const CuApi *api = device->api;
    if (!api) return;
    if (device->blas) api->cublasLtDestroy(device->blas);
    for (int i = 0; i < device->n_fatbins; i++) api->cudaLibraryUnload(device->fatbins[i]);
    *device = (CudaDevice){0};
}

bool cuda_prepare_kernel(const CudaDevice *device, cudaKernel_t kernel, const LaunchCommand *launch,
                         Diag *diag) {
    const CuApi *api = device->api;
    struct cudaFuncAttributes now;
    int bytes = launch->shared_bytes;
    const char *name = launch->generated ? launch->generated->name : KERNELS[launch->kernel].name;
    if (bytes > device->most_shared_bytes) {
        diag_error(diag, NO_LOC, "kernel %s needs %d bytes of shared memory; %s has %lld", name,
                   bytes, device->name, (long long)device->most_shared_bytes);
        return false;
    }
    if (!cuda_check(api, api->cudaFuncGetAttributes(&now, (const void *)kernel), diag,
                    "loading a kernel")) {
        return false;
    }
    if (now.maxDynamicSharedSizeBytes >= bytes) return true;
    return cuda_check(api,
                      api->cudaFuncSetAttribute((const void *)kernel,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                      diag, "allowing a kernel its shared memory");
}

cudaError_t cuda_launch(const CudaDevice *device, cudaKernel_t kernel, const LaunchCommand *launch,
                        cudaStream_t stream) {
    void *args[1] = {(void *)launch->args};
    dim3 grid = {launch->grid.x, launch->grid.y, launch->grid.z};
    dim3 block = {(unsigned)launch->threads, 1, 1};
    return device->api->cudaLaunchKernel((const void *)kernel, grid, block, args,
                                         (size_t)launch->shared_bytes, stream);
}

bool cuda_fill_repeated(const CudaDevice *device, void *memory, int64_t bytes, const void *part,
                        int64_t part_bytes, cudaStream_t stream, Diag *diag) {
    static const char WHAT[] = "filling memory with numbers";
    const CuApi *api = device->api;
    unsigned char *to = memory;
    int64_t done = part_bytes < bytes ? part_bytes : bytes;
    bool fine = cuda_check(
        api, api->cudaMemcpyAsync(to, part, (size_t)done, cudaMemcpyHostToDevice, stream), diag,
        WHAT);
    while (fine && done < bytes) {
        int64_t more = bytes - done < done ? bytes - done : done;
        fine = cuda_check(
            api,
            api->cudaMemcpyAsync(to + done, to, (size_t)more, cudaMemcpyDeviceToDevice, stream),
            diag, WHAT);
        done += more;
    }
    return cuda_check(api, api->cudaStreamSynchronize(stream), diag, WHAT) && fine;
}

bool cuda_fill_numbers(const CudaDevice *device, void *memory, int64_t bytes, cudaStream_t stream,
                       Diag *diag) {
    enum { WORDS = 1 << 18 };
    uint16_t *words = malloc(WORDS * sizeof(*words));
    uint32_t state = 1;
    if (!words) BUG("out of memory");
    for (int i = 0; i < WORDS; i++) {
        state = state * 1664525u + 1013904223u;
        words[i] = (uint16_t)(0x3f00 | (state >> 24) | (state >> 8 & 0x8000));
    }
    bool fine = cuda_fill_repeated(device, memory, bytes, words, WORDS * (int64_t)sizeof(*words),
                                   stream, diag);
    free(words);
    return fine;
}
