/* In place of the emulator where no C++ compiler was found. */
#include "tests/emulate/emulate.h"

const struct EmulateProbe EMULATE_PROBES[] = {{NULL, NULL}};

const char *emulate_missing(void) {
    return "no C++ compiler to build the kernels for the host with (make deps-test)";
}

bool emulate_launch(KernelId kernel, Grid grid, int threads, int shared_bytes, const void *args) {
    (void)kernel, (void)grid, (void)threads, (void)shared_bytes, (void)args;
    return false;
}

bool emulate_run(EmulateEntry *entry, const char *name, const uint32_t grid[3], int threads,
                 int shared_bytes, const void *args) {
    (void)entry, (void)name, (void)grid, (void)threads, (void)shared_bytes, (void)args;
    return false;
}

const char *emulate_error(void) {
    return emulate_missing();
}

void emulate_set_order(unsigned order) {
    (void)order;
}
