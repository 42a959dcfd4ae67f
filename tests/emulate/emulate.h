/* emulate: CUDA kernels on the host, for tests without a GPU.
 *
 * The very .cu files of runtime/cuda/kernels are compiled by g++ (dialect.h gives it the CUDA C
 * that they use) and run here: blocks one after the other, each thread of a block on a stack of
 * its own (scheduler.cpp), switched at barriers, shuffles and matrix instructions. Pointers are
 * host pointers; under AddressSanitizer an access outside an operand or outside dynamic shared
 * memory ends the program. Copies of cp.async land when they are waited for, not before.
 *
 * The order in which threads run between barriers changes with emulate_set_order, so that a missing
 * barrier changes a result between two orders, or the comparison with a reference.
 */
#ifndef TESTS_EMULATE_EMULATE_H
#define TESTS_EMULATE_EMULATE_H

#ifdef __cplusplus
#include "tests/emulate/dialect.h"
#else
#include "runtime/cuda/command.h"
#include "tests/emulate/scheduler.h"

/* Why nothing can be emulated here (no C++ compiler when this was built); NULL: it can. */
const char *emulate_missing(void);

/* Runs the whole grid. False: emulate_error() says which kernel did what wrong: threads that wait
 * at different barriers, more threads or shared memory than devices have, an empty grid,
 * misaligned ldmatrix or cp.async. `args` is the struct that the kernel takes. */
__attribute__((warn_unused_result)) bool emulate_launch(KernelId kernel, Grid grid, int threads,
                                                        int shared_bytes, const void *args);

/* Kernels of probe.cu, for the test of the emulator itself. */
extern const struct EmulateProbe {
    const char *name;
    EmulateEntry *entry;
} EMULATE_PROBES[];
#endif

#endif
