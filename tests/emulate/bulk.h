/* cp.async.bulk for g++: what runtime/cuda/kernels/turns.cuh calls on the host.
 *
 * A copy out of shared memory is made when it is waited for, and what it copies must be until then
 * what it was when it was started: so memory that is used again too early is found. Not found:
 * memory that was written and not handed over.
 */
#ifndef TESTS_EMULATE_BULK_H
#define TESTS_EMULATE_BULK_H

#include "tests/emulate/scheduler.h"

/* *to = *from, or += as f32: of the thread that calls. */
void emulate_bulk(void *to, const void *from, int bytes, bool add, EmulateSite site);
/* All that it has started are done. */
void emulate_bulk_wait(EmulateSite site);
/* A block begins; it ends: where a copy was started that nobody has waited for, or NULL. */
void emulate_bulk_begin(void);
const EmulateSite *emulate_bulk_left(void);

#endif
