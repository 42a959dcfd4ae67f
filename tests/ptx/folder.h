/* Kernels from a folder of PTX instead of from their sources: PERILUNE_TEST_PTX=build/ptx. */
#ifndef TESTS_PTX_FOLDER_H
#define TESTS_PTX_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The folder; NULL: none is asked for. */
const char *ptx_folder(void);

/* NULL, or why it failed: valid until the next launch. */
const char *ptx_folder_launch(const char *kernel, const uint32_t grid[3], int threads,
                              int shared_bytes, const void *args, size_t args_bytes,
                              unsigned order);

#ifdef __cplusplus
}
#endif

#endif
