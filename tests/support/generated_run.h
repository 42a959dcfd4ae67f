/* generated_run: generated kernels (runtime/cuda/codegen.h) on the host. The very sources that
 * NVRTC compiles for a device are compiled by a C++ compiler, many at once, and their grids run
 * thread after thread. They share nothing: no fibers are needed.
 *
 * Built with AddressSanitizer where the test is: what a kernel touches beyond its operands is
 * found.
 */
#ifndef TESTS_SUPPORT_GENERATED_RUN_H
#define TESTS_SUPPORT_GENERATED_RUN_H

#include "runtime/cuda/codegen.h"

/* Runs a whole grid. One at a time. */
typedef void GeneratedFunction(Grid grid, int threads, const void *args);

/* Why generated kernels cannot be compiled here; NULL: they can. */
const char *generated_host_missing(void);
/* Compiles those of the cache's kernels that were not compiled before. False: *out_why says why. */
bool generated_host_compile(const KernelCache *cache, const char **out_why);
/* The same for a list of kernels. */
bool generated_host_compile_kernels(const GeneratedKernel *const *kernels, int count,
                                    const char **out_why);
/* NULL: not compiled. */
GeneratedFunction *generated_host_function(const GeneratedKernel *kernel);
/* CudaRunHooks.launch_generated (cuda_kernel_run.h); user is the KernelCache, whose kernels are
 * compiled when one is first needed. Threads take turns. */
bool generated_host_launch(void *user, const LaunchCommand *launch, const char **out_why);

#endif
