#include "runtime/cuda/driver/watch.h"

#include "ir/base/clock.h"
#include "runtime/describe_call.h"
#include "runtime/launch/control.h"

#include <time.h>

/* What the device waits for: the first message, in plan order, that has not been done. */
static const Command *pending_message(const StepWatch *watch, const Replay *replay,
                                      int *out_index) {
    uint32_t n_seen[N_STREAM_KINDS] = {0};
    for (int i = 0; i < replay->list.count; i++) {
        const Command *command = &replay->list.items[i];
        if (command->kind < COMMAND_COLLECTIVE) continue;
        *out_index = i;
        if (++n_seen[command->stream] > watch->progress[command->stream]) return command;
    }
    return NULL;
}

static void tell_progress(const StepWatch *watch, const Replay *replay) {
    char text[CONTROL_TEXT_BYTES] = "computing";
    int index = 0;
    const Command *command = pending_message(watch, replay, &index);
    if (command) {
        describe_call(watch->rank, command->info.node, command->info.task,
                      command->info.node->chunk, command->info.micro, text, sizeof(text));
    }
    control_update_progress(watch->engine->control, watch->engine->input.step, 0, index,
                            command != NULL, text);
}

bool cuda_watch_stream(const StepWatch *watch, const Replay *replay, bool *out_lost, Diag *diag) {
    const struct timespec pause = {0, 20 * 1000};
    const double TELL_EVERY_SECONDS = 0.25;
    const CuApi *api = watch->device->api;
    double told = clock_now();
    *out_lost = false;
    for (;;) {
        const char *why = NULL;
        cudaError_t status = api->cudaStreamQuery(watch->stream);
        if (status != cudaErrorNotReady) return cuda_check(api, status, diag, "running a step");
        *out_lost = true;
        if (control_failed(watch->engine->control, &why)) {
            if (why) diag_error(diag, NO_LOC, "%s", why);
            return false;
        }
        if (!nccl_world_check(watch->world, diag)) {
            control_report(watch->engine->control, diag_text(diag));
            return false;
        }
        *out_lost = false;
        if (clock_now() - told > TELL_EVERY_SECONDS) {
            tell_progress(watch, replay);
            told = clock_now();
        }
        nanosleep(&pause, NULL);
    }
}
