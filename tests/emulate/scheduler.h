/* The threads of a block, run on one host thread. C, for the tests, and what dialect.h is made of.
 * One launch at a time: others wait. */
#ifndef TESTS_EMULATE_SCHEDULER_H
#define TESTS_EMULATE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void EmulateEntry(const void *args);

enum {
    EMULATE_MOST_THREADS = 1024,
    EMULATE_MOST_SHARED_BYTES = 227 * 1024, /* dynamic, of sm_90 and sm_100; sm_80: 163 KiB */
};

/* Runs `entry` for every thread of every block; false: see emulate_error. */
bool emulate_run(EmulateEntry *entry, const char *name, const uint32_t grid[3], int threads,
                 int shared_bytes, const void *args);
const char *emulate_error(void);
/* 0: blocks and threads run in ascending order; 1: descending; more: another mixture each. The same
 * order always gives the same run. */
void emulate_set_order(unsigned order);
unsigned emulate_order(void);
/* What emulate_error says, of a launch that something else did. */
void emulate_report(const char *why);

/* For kernels: */
typedef struct EmulateIndex {
    unsigned x, y, z;
} EmulateIndex;
extern EmulateIndex emulate_thread_index, emulate_block_index, emulate_block_size,
    emulate_grid_size;

/* Where a thread waits: all threads that wait together must have come to the same line. */
typedef struct EmulateSite {
    const char *what, *file;
    int line;
} EmulateSite;

/* Called once, when all have come: operands[lane] of each lane in the mask, else NULL; results are
 * written into the operands. For a block or four warps: the first of n operands. */
typedef void EmulateCombine(void *const *operands, int n);
void emulate_wait_warp(uint32_t mask, void *operand, EmulateCombine *combine, EmulateSite site);
void emulate_wait_block(void *operand, EmulateCombine *combine, EmulateSite site);
/* bar.sync, or bar.arrive, which does not wait: until so many threads have come, of whole warps. */
void emulate_named_barrier(int barrier, int threads, bool waits, EmulateSite site);
/* Of four warps, the first of which is a multiple of four. */
void emulate_wait_warpgroup(void *operand, EmulateCombine *combine, EmulateSite site);

void *emulate_dynamic_shared(void);
void emulate_copy_async(void *to, const void *from, int copy_bytes, int zero_bytes,
                        EmulateSite site);
void emulate_copy_async_commit(void);
/* Lands all but the last `pending` groups; -1: all, committed or not. */
void emulate_copy_async_wait(int pending);
/* Ends the launch with an error. */
void emulate_fail(EmulateSite site, const char *why);

#ifdef __cplusplus
}
#endif

#endif
