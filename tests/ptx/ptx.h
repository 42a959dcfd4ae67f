/* PTX on the host: what nvcc makes of the kernels, instruction by instruction, for tests without a
 * GPU.
 *
 * The emulator (tests/emulate) runs the kernels' sources as C++; this runs their PTX, inline
 * assembly, register lists and all, and sees what no source shows. Warps run in lockstep: the lanes
 * whose program counter is lowest go first, so that branches meet again where they do on a device.
 * Pointers are host pointers. A launch fails, with kernel, line, block and thread, where
 *
 *   - a register is read that nothing wrote, or that an operation under way is still to write
 *   - an address is not a multiple of what is accessed, or beyond the block's shared memory
 *   - two threads access the same bytes of shared memory, one of them writing, with nothing between
 *     that orders them; a thread reads bytes that a copy under way is still to write
 *   - a warp is not whole where an instruction wants it so, or threads wait at different barriers
 *   - tiles are multiplied by wgmma that were not handed over to it, or change meanwhile
 *
 * PTX ISA 9.0. Only what these kernels use is known; anything else is an error that names it.
 */
#ifndef TESTS_PTX_PTX_H
#define TESTS_PTX_PTX_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

typedef struct PtxModule PtxModule;
typedef struct PtxKernel PtxKernel;

/* `text` is a file's, and stays; `path` is for messages. A kernel is read when it is first asked
 * for: reports and returns NULL where it is not there or not understood. */
PtxModule *ptx_module_create(Arena *arena);
void ptx_module_add(PtxModule *module, const char *path, const char *text);
const PtxKernel *ptx_module_find(PtxModule *module, const char *name, Diag *diag);

typedef struct PtxLaunch {
    const PtxKernel *kernel;
    unsigned grid[3];
    int threads, shared_bytes; /* of a block */
    const void *args;          /* the kernel's one argument, a struct */
    size_t args_bytes;
    unsigned order; /* 0: blocks and warps in ascending order; 1: descending */
} PtxLaunch;

/* Runs the whole grid. False: ptx_error() says what is wrong. */
bool ptx_launch(const PtxLaunch *launch);
const char *ptx_error(void);

#endif
