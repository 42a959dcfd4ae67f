/* CuApi: the CUDA libraries as one typed table of functions, loaded when the program runs.
 *
 * Nothing links against CUDA, so one binary runs everywhere; headers are needed at build time only
 * (HAVE_CUDA). Tests fill the same table with a recording fake. Searched, in order: the folders of
 * PERILUNE_CUDA_LIBRARIES (colon-separated), the loader's own path, /usr/local/cuda/lib64, and
 * Python's site-packages/nvidia/X/lib folders (PyPI's wheels) of the folders in
 * PERILUNE_SITE_PACKAGES.
 */
#ifndef RUNTIME_CUDA_DRIVER_API_H
#define RUNTIME_CUDA_DRIVER_API_H

#include "runtime/cuda/command.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>
#include <nvrtc.h>
#include <stdbool.h>

typedef enum CuLibrary {
    LIBRARY_cudart,
    LIBRARY_cublasLt,
    LIBRARY_nvrtc,
    LIBRARY_nccl,
    LIBRARY_cudnn,
    N_LIBRARIES
} CuLibrary;

typedef struct CuApi {
#define CUDA_FN(library, function) __typeof__(function) *function;
#include "runtime/cuda/driver/api.def"
#undef CUDA_FN
    const char *path[N_LIBRARIES];  /* what was loaded; NULL: not found */
    const char *error[N_LIBRARIES]; /* why not, "" when loaded */
    /* Told before each command is issued, by tests and traces; may be NULL. */
    void (*announce)(void *user, const Command *command);
    void *announce_user;
} CuApi;

const char *cu_library_name(CuLibrary library);

/* Is the driver's library there? Cheap, unlike loading the others. */
bool cu_driver_present(void);

/* Loads all libraries once; what is not found has its path NULL and its functions NULL. The table
 * stays the program's. */
const CuApi *cu_api_load(void);

#endif
