#include "tests/emulate/emulate.h"

extern EmulateEntry *const EMULATE_ENTRIES[N_KERNELS];

const char *emulate_missing(void) {
    return NULL;
}

bool emulate_launch(KernelId kernel, Grid grid, int threads, int shared_bytes, const void *args) {
    const uint32_t blocks[3] = {grid.x, grid.y, grid.z};
    return emulate_run(EMULATE_ENTRIES[kernel], KERNELS[kernel].name, blocks, threads, shared_bytes,
                       args);
}
