#include "runtime/cuda/devices.h"

#include "runtime/cuda/driver/device.h"

#include <stdio.h>
#include <string.h>

static void put_version(char *out, size_t size, int64_t major, int64_t minor, int64_t patch) {
    if (patch < 0) {
        snprintf(out, size, "%lld.%lld", (long long)major, (long long)minor);
    } else {
        snprintf(out, size, "%lld.%lld.%lld", (long long)major, (long long)minor, (long long)patch);
    }
}

/* Libraries number their versions each in its own way. */
static void read_version(const CuApi *api, CuLibrary library, char *out, size_t size) {
    int number = 0, minor = 0;
    int64_t v;
    switch (library) {
    case LIBRARY_cudart:
        if (api->cudaRuntimeGetVersion(&number) != cudaSuccess) return;
        put_version(out, size, number / 1000, number / 10 % 100, -1);
        return;
    case LIBRARY_cublasLt: /* 130100: 13.1.0 */
        v = (int64_t)api->cublasLtGetVersion();
        put_version(out, size, v / 10000, v / 100 % 100, v % 100);
        return;
    case LIBRARY_nvrtc:
        if (api->nvrtcVersion(&number, &minor) != NVRTC_SUCCESS) return;
        put_version(out, size, number, minor, -1);
        return;
    case LIBRARY_nccl: /* 22809: 2.28.9 */
        if (api->ncclGetVersion(&number) != ncclSuccess) return;
        put_version(out, size, number / 10000, number / 100 % 100, number % 100);
        return;
    case LIBRARY_cudnn: /* 91900: 9.19.0 */
        v = (int64_t)api->cudnnGetVersion();
        put_version(out, size, v / 10000, v / 100 % 100, v % 100);
        return;
    case N_LIBRARIES: return;
    }
}

/* NVRTC is there, but does it compile? It needs a file that it loads only then. */
static void try_nvrtc(const CuApi *api, CudaLibraryReport *out) {
    static const char *const OLDEST[] = {"--gpu-architecture=sm_80"};
    nvrtcProgram program = NULL;
    size_t bytes = 0;
    char log[512] = "";
    nvrtcResult status = api->nvrtcCreateProgram(
        &program, "extern \"C\" __global__ void nothing() {}", "nothing.cu", 0, NULL, NULL);
    if (status == NVRTC_SUCCESS) status = api->nvrtcCompileProgram(program, 1, OLDEST);
    if (status != NVRTC_SUCCESS) {
        if (program && api->nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS &&
            bytes <= sizeof(log)) {
            api->nvrtcGetProgramLog(program, log);
        }
        log[strcspn(log, "\n")] = '\0';
        out->broken = true;
        snprintf(out->why, sizeof(out->why), "%s does not compile: %.200s",
                 api->path[LIBRARY_nvrtc], *log ? log : api->nvrtcGetErrorString(status));
    }
    if (program) api->nvrtcDestroyProgram(&program);
}

static void report_libraries(const CuApi *api, CudaReport *out) {
    out->n_libraries = N_LIBRARIES;
    for (int i = 0; i < N_LIBRARIES; i++) {
        CudaLibraryReport *library = &out->libraries[i];
        library->name = cu_library_name((CuLibrary)i);
        library->found = api->path[i] != NULL;
        library->optional = i > LIBRARY_nvrtc;
        if (library->found) {
            snprintf(library->path, sizeof(library->path), "%s", api->path[i]);
            read_version(api, (CuLibrary)i, library->version, sizeof(library->version));
            if (i == LIBRARY_nvrtc) try_nvrtc(api, library);
        } else {
            snprintf(library->why, sizeof(library->why), "%s", api->error[i] ? api->error[i] : "");
        }
    }
}

static void report_versions(const CuApi *api, CudaReport *out) {
    int driver = 0, runtime = 0;
    if (!api->path[LIBRARY_cudart]) return;
    if (api->cudaRuntimeGetVersion(&runtime) == cudaSuccess && runtime > 0) {
        put_version(out->runtime, sizeof(out->runtime), runtime / 1000, runtime / 10 % 100, -1);
    }
    if (api->cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) { /* 0: no driver */
        put_version(out->driver, sizeof(out->driver), driver / 1000, driver / 10 % 100, -1);
    }
}

static bool report_device(const CuApi *api, int ordinal, CudaDeviceReport *out) {
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    *out = (CudaDeviceReport){.ordinal = ordinal};
    if (api->cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) return false;
    snprintf(out->name, sizeof(out->name), "%.*s", (int)sizeof(out->name) - 1, properties.name);
    snprintf(out->arch, sizeof(out->arch), "sm_%d%d", properties.major, properties.minor);
    snprintf(out->pci, sizeof(out->pci), "%04x:%02x:%02x.0", (unsigned)properties.pciDomainID,
             (unsigned)properties.pciBusID, (unsigned)properties.pciDeviceID);
    out->n_processors = properties.multiProcessorCount;
    out->memory_bytes = (int64_t)properties.totalGlobalMem;
    out->enough = properties.major >= 8;
    if (api->cudaSetDevice(ordinal) == cudaSuccess &&
        api->cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
        out->memory_bytes = (int64_t)total_bytes;
        out->free_bytes = (int64_t)free_bytes;
    }
    return true;
}

static void report_link(const CuApi *api, int from, int to, CudaLinkReport *out) {
    int rank, access, atomics;
    if (from == to ||
        api->cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, from, to) !=
            cudaSuccess ||
        api->cudaDeviceGetP2PAttribute(&access, cudaDevP2PAttrAccessSupported, from, to) !=
            cudaSuccess ||
        api->cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) !=
            cudaSuccess) {
        return;
    }
    *out = (CudaLinkReport){true, access != 0, atomics != 0, rank};
}

static void report_links(const CuApi *api, CudaReport *out) {
    for (int from = 0; from < out->n_devices; from++) {
        for (int to = 0; to < out->n_devices; to++) {
            report_link(api, out->devices[from].ordinal, out->devices[to].ordinal,
                        &out->links[from][to]);
        }
    }
}

bool cuda_report(CudaReport *out) {
    const CuApi *api = cuda_api();
    const char *why;
    int n_devices;
    bool usable = false;
    memset(out, 0, sizeof(*out));
    out->built = true;
    report_libraries(api, out);
    report_versions(api, out);
    if (!cuda_usable(api, &n_devices, &why)) {
        snprintf(out->why, sizeof(out->why), "%s", why);
        return false;
    }
    for (int i = 0; i < n_devices && i < MAX_CUDA_DEVICES; i++) {
        CudaDeviceReport *device = &out->devices[out->n_devices];
        if (!report_device(api, i, device)) continue;
        out->n_devices++;
        usable |= device->enough;
    }
    report_links(api, out);
    api->cudaSetDevice(0); /* as it was */
    if (out->libraries[LIBRARY_nvrtc].broken) {
        snprintf(out->why, sizeof(out->why), "%s", out->libraries[LIBRARY_nvrtc].why);
        return false;
    }
    if (usable) return true;
    snprintf(out->why, sizeof(out->why), "no GPU here is sm_80 (A100) or newer");
    return false;
}

void cuda_software(int ordinal, StrBuf *out) {
    static const char *const NAMES[N_LIBRARIES] = {[LIBRARY_cudart] = "CUDA runtime",
                                                   [LIBRARY_cublasLt] = "cuBLASLt",
                                                   [LIBRARY_nvrtc] = "NVRTC",
                                                   [LIBRARY_nccl] = "NCCL",
                                                   [LIBRARY_cudnn] = "cuDNN"};
    const CuApi *api = cuda_api();
    struct cudaDeviceProp properties;
    int driver = 0;
    if (!api->path[LIBRARY_cudart]) return;
    if (api->cudaGetDeviceProperties(&properties, ordinal) == cudaSuccess) {
        strbuf_printf(out, "a GPU\t%.*s (sm_%d%d)\n", 64, properties.name, properties.major,
                      properties.minor);
    }
    if (api->cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
        strbuf_printf(out, "a driver for CUDA\t%d.%d\n", driver / 1000, driver / 10 % 100);
    }
    for (int i = 0; i < N_LIBRARIES; i++) {
        char version[32] = "";
        if (!api->path[i]) continue;
        read_version(api, (CuLibrary)i, version, sizeof(version));
        if (*version) strbuf_printf(out, "%s\t%s\n", NAMES[i], version);
    }
}
