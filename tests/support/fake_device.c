#ifdef HAVE_CUDA

/* The fake's device, memory and copies. */
#include "tests/support/fake_internal.h"

#include <string.h>

static cudaError_t last_error;

static cudaError_t note(cudaError_t status) {
    if (status != cudaSuccess) last_error = status;
    return status;
}

static cudaError_t runtime_version(int *out) {
    *out = CUDART_VERSION;
    return cudaSuccess;
}

static int count_devices(void) {
    return fake->options.n_devices ? fake->options.n_devices : 1;
}

static cudaError_t device_count(int *out) {
    *out = count_devices();
    return cudaSuccess;
}

static cudaError_t check_device(int device) {
    return note(device >= 0 && device < count_devices() ? cudaSuccess : cudaErrorInvalidDevice);
}

static cudaError_t peer_attribute(int *out, enum cudaDeviceP2PAttr attr, int from, int to) {
    int last = count_devices() - 1, together = fake->options.nvlink_devices;
    if (from == to || check_device(from) || check_device(to)) return note(cudaErrorInvalidDevice);
    bool nvlink = together > 0 && from / together == to / together;
    bool apart = fake->options.last_apart && (from == last || to == last);
    switch (attr) {
    case cudaDevP2PAttrPerformanceRank: *out = apart ? 2 : !nvlink; return cudaSuccess;
    case cudaDevP2PAttrAccessSupported: *out = !apart; return cudaSuccess;
    case cudaDevP2PAttrNativeAtomicSupported: *out = nvlink && !apart; return cudaSuccess;
    default: return note(cudaErrorInvalidValue);
    }
}

enum { SHARED_BYTES = 227 * 1024, PROCESSORS = 132 };

static cudaError_t properties(struct cudaDeviceProp *out, int device) {
    if (check_device(device)) return cudaErrorInvalidDevice;
    memset(out, 0, sizeof(*out));
    strcpy(out->name, "Fake H200");
    out->major = 9;
    out->multiProcessorCount = PROCESSORS;
    out->totalGlobalMem = (size_t)fake->options.memory_bytes;
    out->sharedMemPerBlock = 48 * 1024;
    out->sharedMemPerBlockOptin = SHARED_BYTES;
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}

static cudaError_t attribute(int *out, enum cudaDeviceAttr attr, int device) {
    if (device != 0) return note(cudaErrorInvalidDevice);
    *out = attr == cudaDevAttrMaxSharedMemoryPerBlockOptin ? SHARED_BYTES
           : attr == cudaDevAttrMultiProcessorCount        ? PROCESSORS
           : attr == cudaDevAttrComputeCapabilityMajor     ? 9
                                                           : 0;
    return cudaSuccess;
}

static cudaError_t set_device(int device) {
    return check_device(device);
}

static cudaError_t device_synchronize(void) {
    fake->legacy_work = NULL;
    fake->uploads = false;
    if (fake->hung) fake_defect("cudaDeviceSynchronize would wait for another rank for ever");
    return note(fake_check_no_capture("cudaDeviceSynchronize"));
}

static const char *error_string(cudaError_t status) {
    static __thread char text[64];
    snprintf(text, sizeof(text), "the fake's error %d", (int)status);
    return text;
}

static cudaError_t get_last_error(void) {
    cudaError_t status = last_error;
    last_error = cudaSuccess;
    return status;
}

static cudaError_t memory_info(size_t *out_free, size_t *out_total) {
    *out_total = (size_t)fake->options.memory_bytes;
    *out_free = *out_total - (size_t)fake->used_bytes;
    return cudaSuccess;
}

static cudaError_t allocate(void **out, size_t bytes) {
    cudaError_t status = fake_check_no_capture("cudaMalloc");
    return note(status ? status : fake_allocate(out, bytes, true));
}

static cudaError_t release(void *at) {
    cudaError_t status = fake_check_no_capture("cudaFree");
    return note(status ? status : fake_release(at, true, "cudaFree"));
}

static cudaError_t allocate_host(void **out, size_t bytes, unsigned flags) {
    cudaError_t status = fake_check_no_capture("cudaHostAlloc");
    bool mapped = flags & cudaHostAllocMapped;
    if (status == cudaSuccess)
        status = mapped ? fake_allocate_mapped(out, bytes) : fake_allocate(out, bytes, false);
    return note(status);
}

static cudaError_t release_host(void *at) {
    cudaError_t status = fake_check_no_capture("cudaFreeHost");
    return note(status ? status : fake_release(at, false, "cudaFreeHost"));
}

/* Which sides of a copy lie on the device. */
static cudaError_t check_copy(const void *to, const void *from, size_t bytes,
                              enum cudaMemcpyKind kind, const char *function) {
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (bytes == 0) return cudaSuccess;
    if ((to_device && !fake_memory_has(to, (int64_t)bytes, true)) ||
        (from_device && !fake_memory_has(from, (int64_t)bytes, true))) {
        fake_defect("%s: %zu bytes that are not all in one allocation", function, bytes);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaError_t status = fake_check_no_capture("cudaMemcpy");
    if (status == cudaSuccess) status = check_copy(to, from, bytes, kind, "cudaMemcpy");
    if (status == cudaSuccess) memmove(to, from, bytes);
    /* From pageable memory: the call returns once the bytes are in a buffer of the driver's. */
    if (kind == cudaMemcpyHostToDevice && !fake_memory_has(from, (int64_t)bytes, false)) {
        fake->legacy_work = "cudaMemcpy from pageable memory";
    }
    return note(status);
}

static cudaError_t copy_async(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    FakeNode node = {.kind = FAKE_COPY, .copy = {to, from, (int64_t)bytes}};
    cudaError_t status = check_copy(to, from, bytes, kind, "cudaMemcpyAsync");
    return note(status ? status : fake_issue(&node, stream, "cudaMemcpyAsync"));
}

static cudaError_t fill_async(void *to, int byte, size_t bytes, cudaStream_t stream) {
    FakeNode node = {.kind = FAKE_FILL, .fill = {to, byte, (int64_t)bytes}};
    if (bytes && !fake_memory_has(to, (int64_t)bytes, true)) {
        fake_defect("cudaMemsetAsync: %zu bytes that are not all in one allocation", bytes);
        return note(cudaErrorInvalidValue);
    }
    if (!stream) fake->legacy_work = "cudaMemsetAsync";
    return note(fake_issue(&node, stream, "cudaMemsetAsync"));
}

void fake_fill_device(CuApi *api) {
    last_error = cudaSuccess;
    api->cudaRuntimeGetVersion = runtime_version;
    api->cudaDriverGetVersion = runtime_version;
    api->cudaGetDeviceCount = device_count;
    api->cudaGetDeviceProperties = properties;
    api->cudaDeviceGetAttribute = attribute;
    api->cudaDeviceGetP2PAttribute = peer_attribute;
    api->cudaSetDevice = set_device;
    api->cudaDeviceSynchronize = device_synchronize;
    api->cudaGetErrorString = error_string;
    api->cudaGetLastError = get_last_error;
    api->cudaMemGetInfo = memory_info;
    api->cudaMalloc = allocate;
    api->cudaFree = release;
    api->cudaHostAlloc = allocate_host;
    api->cudaFreeHost = release_host;
    api->cudaMemcpy = copy;
    api->cudaMemcpyAsync = copy_async;
    api->cudaMemsetAsync = fill_async;
}

#endif
