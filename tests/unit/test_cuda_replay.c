/* Kernels made ready for replay, on the fake of CUDA.
 *
 * Would catch: a small launch of a kernel taking away the shared memory that a larger launch of the
 * same kernel has asked for, in either order; more shared memory than there is, not refused with a
 * line that says so.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip replay: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/device.h"
#include "runtime/cuda/driver/replay.h"
#include "runtime/cuda/kernels/args.h"
#include "tests/emulate/emulate.h"
#include "tests/support/fake_cuda.h"

#include <string.h>

/* Two launches of one kernel with so many bytes of shared memory each. */
static void check_shared(const char *name, int first_bytes, int second_bytes, const char *refusal) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    CudaDevice device = {0};
    DeviceState *state = NULL;
    CommandList list = {0};
    Replay replay = {0};
    ReplayContext context = {.device = &device, .arena = arena};
    const CuApi *api = fake_cuda_create(&(FakeOptions){.memory_bytes = 1 << 20});
    check_begin(name);
    bool good = cuda_device_open(&device, api, 0, diag) &&
                api->cudaMalloc((void **)&state, sizeof(*state) + sizeof(float)) == cudaSuccess;
    CopyScalarArgs args = {.state = state, .to = (float *)(state + 1)};
    Access accesses[] = {{(uintptr_t)state, sizeof(*state), false},
                         {(uintptr_t)args.to, sizeof(float), true}};
    for (int i = 0; i < 2; i++) {
        Command command = {.kind = COMMAND_LAUNCH, .accesses = accesses, .n_accesses = 2};
        command.launch = (LaunchCommand){.kernel = KERNEL_copy_scalar,
                                         .grid = {1, 1, 1},
                                         .threads = 1,
                                         .shared_bytes = i ? second_bytes : first_bytes,
                                         .args = &args,
                                         .args_bytes = sizeof(args)};
        command_list_push(&list, &command);
    }
    CHECK(good, "%s", diag_text(diag));
    bool done = good && replay_prepare(&replay, &context, &list, diag) &&
                replay_capture(&replay, REPLAY_GRAPH, diag) && replay_launch(&replay, diag) &&
                replay_wait(&replay, diag);
    CHECK(done == !refusal, "%s", diag_text(diag));
    if (refusal) CHECK(strstr(diag_text(diag), refusal), "it says: %s", diag_text(diag));
    replay_destroy(&replay);
    replay_context_destroy(&context);
    command_list_release(&list);
    api->cudaFree(state);
    cuda_device_close(&device);
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
    fake_cuda_destroy();
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    if (emulate_missing()) {
        printf("skip replay: %s\n", emulate_missing());
        return 0;
    }
    check_shared("a little shared memory", 1000, 40000, NULL);
    check_shared("much shared memory, then less", 100000, 60000, NULL);
    check_shared("much shared memory, then more", 60000, 100000, NULL);
    check_shared("more shared memory than there is", 100000, 240000,
                 "kernel copy_scalar needs 240000 bytes of shared memory; ");
    return check_report();
}
#endif
