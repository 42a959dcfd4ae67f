/* CuApi: the CUDA libraries as one typed table of functions, loaded when the program runs.
 *
 * Nothing links against CUDA, so one binary runs everywhere; headers are needed at build time only
 * (HAVE_CUDA). Tests fill the same table with a recording fake. CuPlaces says where libraries are
 * looked for.
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

/* Where a library is looked for, in this order; lists of folders are separated by colons, NULL or
 * "" is none. A file that is in one of the first two, which people name, and cannot be loaded ends
 * the search. */
typedef struct CuPlaces {
    const char *given;    /* PERILUNE_CUDA_LIBRARIES */
    const char *packages; /* PERILUNE_SITE_PACKAGES: nvidia/X/lib below them, as in PyPI's wheels */
    bool loader;          /* the loader's own path */
    const char *toolkit;  /* CUDA_HOME's, or /usr/local/cuda's */
    const char *python;   /* lib/python3.X/site-packages below them, and the same */
} CuPlaces;

/* dlopen's handle and the path; NULL: *out_why says what the loader said. */
void *cu_library_open(CuLibrary library, const CuPlaces *places, char *out_path, size_t path_size,
                      char *out_why, size_t why_size);
/* What `python` is for the python3 that a PATH finds first; "": it finds none. */
void cu_python_prefixes(const char *path, char *out, size_t size);

/* Is the driver's library there? Cheap, unlike loading the others. */
bool cu_driver_present(void);

/* Loads all libraries once; what is not found has its path NULL and its functions NULL. The table
 * stays the program's. */
const CuApi *cu_api_load(void);

#endif
