/* From the executor's walk to lists of resolved calls. */
#include "runtime/cpu/cpu_engine.h"

#include "runtime/describe_call.h"
#include "runtime/launch/control.h"

#include <stdlib.h>
#include <string.h>

static void set_capacity(CallList *list, int capacity) {
    size_t count = capacity ? (size_t)capacity : 1;
    list->calls = realloc(list->calls, count * sizeof(*list->calls));
    list->info = realloc(list->info, count * sizeof(*list->info));
    if (!list->calls || !list->info) BUG("out of memory for %d calls", capacity);
    list->capacity = capacity;
}

static void push(CallList *list, CpuCall call, const CallInfo *info) {
    if (list->count == list->capacity) set_capacity(list, list->count ? 2 * list->count : 256);
    list->info[list->count] = *info;
    list->calls[list->count++] = call;
}

/* Where a walk's calls go to. */
typedef struct CpuWalk {
    CpuRank *rank;
    CallList *list;
} CpuWalk;

typedef struct CopyArgs {
    const StepInput *input;
    InputSlice slice;
} CopyArgs;

static bool run_copy_input(const void *args) {
    const CopyArgs *a = args;
    const InputSlice *slice = &a->slice;
    const int32_t *from = slice->decode   ? a->input->decode[slice->decode - 1]
                          : slice->labels ? a->input->labels
                                          : a->input->tokens;
    if (slice->reference) {
        size_t bytes = (size_t)slice->count * sizeof(float);
        if (a->input->reference) {
            memcpy(slice->to, a->input->reference + slice->offset, bytes);
        } else {
            memset(slice->to, 0, bytes);
        }
        return true;
    }
    if (slice->numbers) from = (const int32_t *)a->input->numbers[slice->numbers - 1];
    for (int64_t row = 0; row < slice->rows; row++) {
        if (!from) {
            memset(slice->to + row * slice->to_pitch, 0, (size_t)slice->count * sizeof(int32_t));
            continue;
        }
        memcpy(slice->to + row * slice->to_pitch, from + slice->offset + row * slice->pitch,
               (size_t)slice->count * sizeof(int32_t));
    }
    return true;
}

static bool emit_input(void *user, const InputSlice *slice, const CallInfo *info) {
    CpuWalk *walk = user;
    CopyArgs *args = ARENA_NEW(walk->rank->context->arena, CopyArgs);
    *args = (CopyArgs){&walk->rank->engine->input, *slice};
    push(walk->list, (CpuCall){run_copy_input, args}, info);
    return true;
}

typedef struct MessageArgs {
    CommChannel *channel;
    MessageSlice slice;
} MessageArgs;

static bool run_send(const void *args) {
    const MessageArgs *a = args;
    return comm_channel_send(a->channel, a->slice.slots, a->slice.slot_bytes, a->slice.memory,
                             a->slice.bytes);
}

static bool run_recv(const void *args) {
    const MessageArgs *a = args;
    return comm_channel_recv(a->channel, a->slice.memory, a->slice.bytes);
}

static bool emit_message(void *user, const MessageSlice *slice, const CallInfo *info, Diag *diag) {
    CpuWalk *walk = user;
    CommChannel *channel = walk->rank->channels[slice->channel];
    if (!channel) {
        diag_error(diag, info->node->loc, "rank %d: %s %d has no channel",
                   walk->rank->context->rank, task_kind_word(info->kind), info->micro);
        return false;
    }
    MessageArgs *args = ARENA_NEW(walk->rank->context->arena, MessageArgs);
    *args = (MessageArgs){channel, *slice};
    push(walk->list, (CpuCall){slice->send ? run_send : run_recv, args}, info);
    return true;
}

static bool emit_node(void *user, Binding *binding, const CallInfo *info) {
    CpuWalk *walk = user;
    CpuCall call;
    binding->backend = &walk->rank->cpu;
    if (!cpu_bind(binding, &call)) return false;
    push(walk->list, call, info);
    return true;
}

/* Words for every call, now: none are to be made in a step. */
static void note_calls(const CpuRank *rank, CallList *list) {
    if (!rank->engine->control) return;
    CallNote *notes = ARENA_ARRAY(rank->context->arena, CallNote, list->count + 1);
    for (int i = 0; i < list->count; i++) {
        const CallInfo *info = &list->info[i];
        char text[CONTROL_TEXT_BYTES];
        describe_call(rank->context, info->node, info->kind, info->chunk, info->micro, text,
                      sizeof(text));
        notes[i].text = arena_strdup(rank->context->arena, text);
        notes[i].waits = info->node && (OPS[info->node->op].flags & COLLECTIVE ||
                                        info->node->op == OP_SEND || info->node->op == OP_RECV);
    }
    list->notes = notes;
}

/* The chunks of a plan for decoding run one at a time. */
static bool emit_decoding(CpuRank *rank, Diag *diag) {
    CpuWalk walk = {rank, &rank->forward};
    Emitter emitter = {&walk, emit_input, emit_message, emit_node};
    for (int chunk = 0; chunk < rank->context->plan->n_chunks; chunk++) {
        if (!executor_emit_chunk(rank->context, chunk, 0, &emitter, diag)) return false;
        rank->end_of_chunk[chunk] = rank->forward.count;
    }
    note_calls(rank, &rank->forward);
    return true;
}

bool cpu_emit(CpuRank *rank, Diag *diag) {
    CpuWalk walk = {rank, &rank->train};
    Emitter emitter = {&walk, emit_input, emit_message, emit_node};
    if (rank->context->plan->context) return emit_decoding(rank, diag);
    if (!executor_emit_train(rank->context, &emitter, diag)) return false;
    walk.list = &rank->forward;
    for (int micro = 0; micro < rank->context->plan->n_micro; micro++) {
        if (!executor_emit_forward(rank->context, micro, &emitter, diag)) return false;
        if (micro == 0) rank->n_first = rank->forward.count;
    }
    set_capacity(&rank->train, rank->train.count);
    set_capacity(&rank->forward, rank->forward.count);
    note_calls(rank, &rank->train);
    note_calls(rank, &rank->forward);
    return true;
}

void cpu_emit_release(CpuRank *rank) {
    free(rank->train.calls), free(rank->train.info);
    free(rank->forward.calls), free(rank->forward.info);
    rank->train = rank->forward = (CallList){0};
}
