/* gpu_run: the same commands that tests give to the emulator, on a real GPU, when PERILUNE_TEST_GPU
 * is set (make test-gpu). Memory is then pinned host memory, which the device reads and writes at
 * the same addresses, so that tests need not know where they run. Slow, and enough for small cases.
 */
#ifndef TESTS_SUPPORT_GPU_RUN_H
#define TESTS_SUPPORT_GPU_RUN_H

#include "runtime/cuda/command.h"

/* Is it asked for? Ends the program, with why, where it is and there is no GPU. */
bool gpu_run_wanted(void);

/* Does the GPU run the command? Not products where PERILUNE_TEST_GPU is "kernels": tools that look
 * at every access of own kernels cannot follow the library's. */
bool gpu_run_takes(const Command *command);

/* 64-byte aligned; device memory in the sense above, or plain memory. */
void *gpu_run_alloc(size_t bytes);
void gpu_run_free(void *memory);

/* Always where commands run here. On a GPU: has cuBLASLt the product? Says so in a line where not:
 * what a device lacks, training leaves to kernels. */
bool gpu_run_has_product(const GemmCommand *gemm);

/* Do own kernels on wgmma run? Always where commands run here; on a GPU of sm_90. */
bool gpu_run_has_wgmma(void);

/* One launch (generated ones too), product, copy or fill; waits for its end. */
bool gpu_run_command(const Command *command, const char **out_why);

#endif
