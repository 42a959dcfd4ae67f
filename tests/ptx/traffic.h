/* How well a kernel's accesses suit the memory of a GPU: sectors of 32 bytes that a warp touches in
 * global memory, and turns that its accesses to the 32 banks of shared memory take, against the
 * fewest that as many bytes could do with. Counted where PERILUNE_PTX_TRAFFIC is set; printed at
 * the end of the program, kernel by kernel, with the instructions that are worst.
 */
#ifndef TESTS_PTX_TRAFFIC_H
#define TESTS_PTX_TRAFFIC_H

#include "tests/ptx/module.h"

/* Whether it is set. */
bool traffic_wanted(void);
/* One access of a warp: `bytes` by each lane of the mask. */
void traffic_note(const PtxKernel *kernel, const Instruction *i, uint32_t mask,
                  const uint64_t addresses[32], int bytes, bool shared);

#endif
