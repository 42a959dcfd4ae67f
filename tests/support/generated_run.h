/* generated_run: generated kernels (runtime/cuda/codegen.h) on the host. The very sources that
 * NVRTC compiles for a device are compiled by a C++ compiler, many at once, and their grids run
 * thread after thread. They share nothing: no fibers are needed.
 *
 * With PERILUNE_TEST_PTX (tests/ptx/folder.h) they are compiled by NVRTC, and their PTX is run.
 *
 * Built with AddressSanitizer where the test is: what a kernel touches beyond its operands is
 * found.
 */
#ifndef TESTS_SUPPORT_GENERATED_RUN_H
#define TESTS_SUPPORT_GENERATED_RUN_H

#include "runtime/cuda/codegen.h"

/* Why generated kernels cannot be compiled here; NULL: they can. */
const char *generated_host_missing(void);
/* Compiles those of the cache's kernels that were not compiled before. False: *out_why says why. */
bool generated_host_compile(const KernelCache *cache, const char **out_why);
/* The same for a list of kernels. */
bool generated_host_compile_kernels(const GeneratedKernel *const *kernels, int count,
                                    const char **out_why);
bool generated_host_has(const GeneratedKernel *kernel);
/* A whole grid of a kernel that was compiled; `args` are FusedArgs. */
bool generated_host_run(const GeneratedKernel *kernel, Grid grid, int threads, const void *args,
                        const char **out_why);
/* CudaRunHooks.launch_generated (cuda_kernel_run.h); user is the KernelCache, whose kernels are
 * compiled when one is first needed. Threads take turns. */
bool generated_host_launch(void *user, const LaunchCommand *launch, const char **out_why);

#endif
