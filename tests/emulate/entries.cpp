/* The kernels of kernels.def by number, for launch.c. */
#include "runtime/cuda/kernels/args.h"
#include "tests/emulate/scheduler.h"

#define KERNEL(name, args) void name(args);
#include "runtime/cuda/kernels.def"
#undef KERNEL

#define KERNEL(name, type)                                                                         \
    static void enter_##name(const void *args) {                                                   \
        ::name(*static_cast<const type *>(args));                                                  \
    }
#include "runtime/cuda/kernels.def"
#undef KERNEL

extern "C" {
extern EmulateEntry *const EMULATE_ENTRIES[];
EmulateEntry *const EMULATE_ENTRIES[] = {
#define KERNEL(name, args) enter_##name,
#include "runtime/cuda/kernels.def"
#undef KERNEL
};
}
