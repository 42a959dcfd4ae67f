/* CudaDevice: one opened GPU: its properties, kernels, matrix-product library. Every call can fail;
 * failures are reported through diag with what was tried. */
#ifndef RUNTIME_CUDA_DRIVER_DEVICE_H
#define RUNTIME_CUDA_DRIVER_DEVICE_H

#include "ir/base/diag.h"
#include "runtime/cuda/command.h"
#include "runtime/cuda/driver/api.h"

enum { MAX_FATBINS = 64 };

/* What libraries may ask of the memory that they work in; where a piece of a workspace begins at
 * less, they have it from a little later on than it is given. */
enum { WORKSPACE_ALIGN = 256 };

typedef struct CudaDevice {
    const CuApi *api;
    int ordinal;
    char name[128], arch[16]; /* "NVIDIA H200", "sm_90" */
    int n_processors;
    int64_t memory_bytes, free_bytes; /* free_bytes: when opened */
    int64_t most_shared_bytes;        /* of one block */
    cudaLibrary_t fatbins[MAX_FATBINS];
    int n_fatbins;
    cudaKernel_t kernels[N_KERNELS];
    cublasLtHandle_t blas; /* NULL before cuda_device_start_blas */
} CudaDevice;

/* Reports `what` and CUDA's text where status is not success; returns whether it was. */
bool cuda_check(const CuApi *api, cudaError_t status, Diag *diag, const char *what);
bool cuda_check_blas(const CuApi *api, cublasStatus_t status, Diag *diag, const char *what);

#define CUDA_NO_DRIVER "no NVIDIA driver was found (libcuda.so.1)"
/* Can a device be used with this table? false: *out_why says in one line what is missing. */
bool cuda_usable(const CuApi *api, int *out_n_devices, const char **out_why);

/* Opens device `ordinal` of this process: loads the kernels. */
bool cuda_device_open(CudaDevice *device, const CuApi *api, int ordinal, Diag *diag);
/* Starts cuBLASLt, which GemmTables need. */
bool cuda_device_start_blas(CudaDevice *device, Diag *diag);
void cuda_device_close(CudaDevice *device);

/* Loads the kernel and allows it the shared memory of the launch; what it was allowed before is
 * never lessened. */
bool cuda_prepare_kernel(const CudaDevice *device, cudaKernel_t kernel, const LaunchCommand *launch,
                         Diag *diag);

/* Issues it on the stream, captured or not. */
cudaError_t cuda_launch(const CudaDevice *device, cudaKernel_t kernel, const LaunchCommand *launch,
                        cudaStream_t stream);

/* `part`, on the host, again and again. Returns when the memory holds it. */
bool cuda_fill_repeated(const CudaDevice *device, void *memory, int64_t bytes, const void *part,
                        int64_t part_bytes, cudaStream_t stream, Diag *diag);

/* Numbers between 0.5 and 2 of either sign, read as bf16 or as f32, and between 1.75 and 2 as f16,
 * for what is measured: zeros take less power than training does, and so run faster. Returns when
 * the memory holds them. */
bool cuda_fill_numbers(const CudaDevice *device, void *memory, int64_t bytes, cudaStream_t stream,
                       Diag *diag);

/* The table that engines use: the libraries', or what a test has put there instead. */
const CuApi *cuda_api(void);
bool cuda_api_is_real(void);
void cuda_api_replace(const CuApi *api);

#endif
