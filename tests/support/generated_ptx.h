/* Generated kernels as the PTX that NVRTC makes of them, run by tests/ptx. */
#ifndef TESTS_SUPPORT_GENERATED_PTX_H
#define TESTS_SUPPORT_GENERATED_PTX_H

#include "tests/support/generated_run.h"

/* One text of several kernels, by NVRTC; they can be run from then on. False: *out_why says why,
 * until the next call. */
bool generated_ptx_compile(const char *source, const char **out_why);
bool generated_ptx_run(const GeneratedKernel *kernel, Grid grid, int threads, const void *args,
                       const char **out_why);

#endif
