#include "tests/emulate/emulate.h"
#include "tests/ptx/folder.h"

extern EmulateEntry *const EMULATE_ENTRIES[N_KERNELS];

const char *emulate_missing(void) {
    return NULL;
}

bool emulate_launch(KernelId kernel, Grid grid, int threads, int shared_bytes, const void *args) {
    const uint32_t blocks[3] = {grid.x, grid.y, grid.z};
    const KernelInfo *info = &KERNELS[kernel];
    if (!ptx_folder()) {
        return emulate_run(EMULATE_ENTRIES[kernel], info->name, blocks, threads, shared_bytes,
                           args);
    }
    const char *why = ptx_folder_launch(info->name, blocks, threads, shared_bytes, args,
                                        info->args_bytes, emulate_order());
    if (why) emulate_report(why);
    return !why;
}
