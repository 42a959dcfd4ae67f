/* Compiling generated kernels by NVRTC: from sources to cubins of one architecture, on all cores.
 * Needs the library, but no device and no driver.
 *
 * Cubins are kept on disk, by hash of source, architecture, NVRTC's version and options, in
 * ${XDG_CACHE_HOME:-~/.cache}/perilune/kernels. The cache is not trusted: an entry whose length or
 * checksum is wrong, or that is another source's, is compiled again; a cache that cannot be written
 * is no error. Entries are written whole or not at all.
 */
#ifndef RUNTIME_CUDA_DRIVER_COMPILE_H
#define RUNTIME_CUDA_DRIVER_COMPILE_H

#include "runtime/cuda/codegen.h"
#include "runtime/cuda/driver/api.h"

typedef struct CompileRequest {
    const CuApi *api;
    const char *arch;   /* "sm_90" */
    const char *folder; /* of the cache; NULL: none */
    int n_threads;      /* 0: one per core */
    /* Told every two seconds while compiling; may be NULL. */
    void (*progress)(void *user, int n_done, int n_total);
    void *progress_user;
} CompileRequest;

typedef struct Cubin {
    const void *data;
    size_t bytes;
} Cubin;

typedef struct CompileStats {
    int n_compiled, n_from_cache;
    double seconds;
} CompileStats;

/* The cache's folder, NULL where neither XDG_CACHE_HOME nor HOME says one. */
const char *compile_cache_folder(Arena *arena);

/* out_cubins[i] is of kernels[i], owned by the arena. False: reported, with the first error of
 * NVRTC's log and where the source was left to be looked at. out_stats may be NULL. */
bool compile_kernels(const CompileRequest *request, const GeneratedKernel *const *kernels,
                     int n_kernels, Arena *arena, Cubin *out_cubins, CompileStats *out_stats,
                     Diag *diag);

#endif
