#include "runtime/cuda/driver/watch.h"

#include "runtime/launch/control.h"

#include <stdio.h>
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

/* What people call the tensor that a message carries: the parameter, or what is summed for it; ""
 * for activations. */
static const char *tensor_name(const RankContext *rank, const Node *message, Arena *arena) {
    const Node *made = message->n_inputs ? message->inputs[0].node : NULL;
    const Node *named = made && node_attr(made, ATTR_name) ? made : NULL;
    for (int i = 0; made && !named && i < made->n_inputs; i++) {
        const Node *input = made->inputs[i].node;
        if (input->op == OP_ACCUMULATOR || input->op == OP_PARAM) named = input;
    }
    if (!named) return "";
    int first = named->block == NO_BLOCK ? 0 : rank->stage->first_block[named->chunk];
    return arena_printf(arena, " of %s", node_logical_name(named, first, arena));
}

static void tell_progress(const StepWatch *watch, const Replay *replay) {
    char text[CONTROL_TEXT_BYTES] = "computing";
    int index = 0;
    const Command *command = pending_message(watch, replay, &index);
    if (command) {
        Arena *arena = arena_create();
        const Node *node = command->info.node;
        snprintf(text, sizeof(text), "in %s%d.%d %s%s, %s:%d", task_kind_word(command->info.task),
                 node->chunk, command->info.micro, OPS[node->op].name,
                 tensor_name(watch->rank, node, arena), node->loc.file ? node->loc.file : "?",
                 node->loc.line);
        arena_destroy(arena);
    }
    control_update_progress(watch->engine->control, watch->engine->input.step, 0, index,
                            command != NULL, text);
}

bool cuda_watch_stream(const StepWatch *watch, const Replay *replay, bool *out_lost, Diag *diag) {
    const struct timespec pause = {0, 20 * 1000};
    const double TELL_EVERY_SECONDS = 0.25;
    const CuApi *api = watch->device->api;
    double told = engine_now();
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
        if (engine_now() - told > TELL_EVERY_SECONDS) {
            tell_progress(watch, replay);
            told = engine_now();
        }
        nanosleep(&pause, NULL);
    }
}
