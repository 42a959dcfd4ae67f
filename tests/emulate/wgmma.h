/* wgmma for g++: what runtime/cuda/kernels/wgmma.cuh calls on the host.
 *
 * An operation is done when it is waited for. Until then its accumulators are not numbers, and its
 * tiles and fragments must stay as they were when it was issued: so an early use, a buffer filled
 * too soon and a fragment changed too soon are found. Not found: that the four warps of a group,
 * who come together here at a wait, need not on a device; tiles written by plain stores and not
 * handed over; registers changed between a fence and what is issued after others.
 */
#ifndef TESTS_EMULATE_WGMMA_H
#define TESTS_EMULATE_WGMMA_H

#include "tests/emulate/scheduler.h"

typedef void EmulateUnpack(uint32_t pair, float &low, float &high);

/* What one thread gives. d: n / 2 accumulators of its own; a: its four words of a [64, 16], or
 * NULL: in shared memory, at a_matrix. b is [16, n]. In memory k is along rows, or, transposed,
 * rows are k's. */
struct EmulateWgmma {
    float *d;
    const uint32_t *a;
    uint64_t a_matrix, b_matrix;
    int n;
    bool a_transposed, transposed, add;
    EmulateUnpack *unpack;
};

void emulate_wgmma(const EmulateWgmma &what, EmulateSite site);
void emulate_wgmma_fence(void);
void emulate_wgmma_commit(void);
void emulate_wgmma_wait(int pending, EmulateSite site);
/* What this thread wrote into shared memory is there for wgmma. */
void emulate_fence_proxy(void);
/* It wrote, by cp.async; a block begins, no operation is under way. */
void emulate_wgmma_written(int thread);
void emulate_wgmma_begin(int n_threads);

#endif
