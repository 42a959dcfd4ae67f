#include "runtime/comm/comm.h"

#include "ir/base/diag.h"
#include "runtime/comm/comm_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void *comm_allocate(size_t bytes) {
    size_t whole_lines = (bytes + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
    void *memory = aligned_alloc(CACHE_LINE_BYTES, whole_lines ? whole_lines : CACHE_LINE_BYTES);
    if (!memory) BUG("out of memory (asked for %zu bytes)", bytes);
    return memset(memory, 0, whole_lines);
}

static char *copy_text(const char *text) {
    char *copy = strdup(text);
    if (!copy) BUG("out of memory");
    return copy;
}

/* --- the world --- */

void comm_world_init(CommWorld *world, const CommFilling *filling, int n_ranks) {
    world->filling = filling;
    world->policy = (WaitPolicy){wait_choose_spins(n_ranks), 300, &world->aborted};
    pthread_mutex_init(&world->lock, NULL);
}

void comm_world_destroy(CommWorld *world) {
    if (!world) return;
    const CommFilling *filling = world->filling;
    filling->destroy_world(world);
    for (CommGroup *group = world->groups, *next; group; group = next) {
        next = group->next;
        filling->destroy_group(group);
        free(group->name);
        free(group);
    }
    for (CommChannel *channel = world->channels, *next; channel; channel = next) {
        next = channel->next;
        filling->destroy_channel(channel);
        free(channel->name);
        free(channel);
    }
    pthread_mutex_destroy(&world->lock);
    free(world);
}

void comm_world_set_timeout(CommWorld *world, double seconds) {
    world->policy.timeout_s = seconds;
}

void comm_world_abort(CommWorld *world, const char *reason) {
    pthread_mutex_lock(&world->lock);
    if (!atomic_load_explicit(&world->aborted, memory_order_relaxed)) {
        snprintf(world->reason, sizeof world->reason, "%s", reason);
        atomic_store_explicit(&world->aborted, true, memory_order_release);
        for (CommGroup *group = world->groups; group; group = group->next) {
            wait_signal(&group->event);
        }
        for (CommChannel *channel = world->channels; channel; channel = channel->next) {
            wait_signal(&channel->event);
        }
        world->filling->wake(world);
    }
    pthread_mutex_unlock(&world->lock);
}

bool comm_fail(CommWorld *world, const char *format, ...) {
    char reason[COMM_REASON_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    comm_world_abort(world, reason);
    return false;
}

bool comm_world_is_aborted(const CommWorld *world) {
    return atomic_load_explicit(&world->aborted, memory_order_acquire);
}

double comm_waited_seconds(void) {
    return wait_thread_seconds();
}

const char *comm_world_reason(const CommWorld *world) {
    return comm_world_is_aborted(world) ? world->reason : "";
}

/* --- groups and channels --- */

void comm_group_init(CommGroup *group, CommWorld *world, int n_members, const char *name) {
    if (n_members < 1) BUG("group '%s' of %d members", name, n_members);
    group->world = world;
    group->name = copy_text(name);
    group->n_members = n_members;
    pthread_mutex_lock(&world->lock);
    group->next = world->groups;
    world->groups = group;
    pthread_mutex_unlock(&world->lock);
}

void comm_group_set_dealing(CommGroup *group) {
    group->deals = true;
}

void comm_channel_init(CommChannel *channel, CommWorld *world, int n_slots, const char *name) {
    if (n_slots < 1) BUG("channel '%s' of %d slots", name, n_slots);
    channel->world = world;
    channel->name = copy_text(name);
    channel->n_slots = (uint32_t)n_slots;
    pthread_mutex_lock(&world->lock);
    channel->next = world->channels;
    world->channels = channel;
    pthread_mutex_unlock(&world->lock);
}

bool comm_channel_wait(CommChannel *channel, bool (*ready)(const void *), const char *operation,
                       size_t bytes) {
    CommWorld *world = channel->world;
    switch (wait_until(&world->policy, &channel->event, ready, channel)) {
    case WAIT_READY: return true;
    case WAIT_ABORTED: return false;
    case WAIT_TIMED_OUT: break;
    }
    return comm_fail(world, "channel '%s': %s of %zu bytes waited %g s for the other end",
                     channel->name, operation, bytes, world->policy.timeout_s);
}

/* Rows of `member` that exist, of its axis_local. */
static size_t rows_of(int member, size_t axis_local, size_t axis_total) {
    size_t begin = comm_min((size_t)member * axis_local, axis_total);
    return comm_min(axis_local, axis_total - begin);
}

int comm_parts_of(const CommGroup *group, int member, size_t axis_local, size_t axis_total,
                  CommPart out[2]) {
    const size_t own = (size_t)member, last = 2 * (size_t)group->n_members - 1;
    if (!group->deals) {
        out[0] = (CommPart){0, own * axis_local, rows_of(member, axis_local, axis_total)};
        return 1;
    }
    const size_t chunk = axis_local / 2;
    out[0] = (CommPart){0, own * chunk, chunk};
    out[1] = (CommPart){chunk, (last - own) * chunk, chunk};
    return 2;
}

size_t comm_slice(const CommGroup *group, size_t count, DType dtype) {
    const size_t n = (size_t)group->n_members;
    const size_t align = SLICE_ALIGN_BYTES / (size_t)dtype_bytes(dtype);
    size_t slice = (count + n - 1) / n;
    return (slice + align - 1) / align * align;
}

/* --- calls --- */

const char *comm_operation_name(CommOperation operation) {
    static const char *const NAMES[N_COMM_OPERATIONS] = {
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier"};
    return NAMES[operation];
}

bool comm_calls_match(const CommCall *a, const CommCall *b) {
    return a->operation == b->operation && a->kind == b->kind && a->dtype == b->dtype &&
           a->root == b->root && a->outer == b->outer && a->axis_local == b->axis_local &&
           a->axis_total == b->axis_total && a->inner == b->inner && a->to_strips == b->to_strips;
}

static void describe_call(char *text, size_t size, const CommCall *call) {
    snprintf(text, size, "%s(%s, kind %d, root %d, outer %zu, axis %zu of %zu, inner %zu%s)",
             comm_operation_name(call->operation), dtype_name(call->dtype), (int)call->kind,
             call->root, call->outer, call->axis_local, call->axis_total, call->inner,
             call->to_strips ? ", to strips" : "");
}

bool comm_fail_mismatch(const CommGroup *group, int member, const CommCall *own, int other,
                        const CommCall *theirs) {
    char own_text[160], other_text[160];
    describe_call(own_text, sizeof own_text, own);
    describe_call(other_text, sizeof other_text, theirs);
    return comm_fail(group->world, "group '%s': member %d calls %s, member %d calls %s",
                     group->name, member, own_text, other, other_text);
}

static bool collect(CommGroup *group, int member, const CommCall *call, const void *in, void *out,
                    size_t n_in) {
    if (member < 0 || member >= group->n_members) {
        BUG("group '%s' has no member %d", group->name, member);
    }
    if (comm_world_is_aborted(group->world)) return false;
    return group->world->filling->collect(group, member, call, in, out, n_in);
}

bool comm_all_reduce(CommGroup *group, int member, ReduceKind kind, DType dtype, const void *in,
                     void *out, size_t count) {
    CommCall call = {.operation = COMM_ALL_REDUCE, .kind = kind, .dtype = dtype, .inner = count};
    return collect(group, member, &call, in, out, count);
}

bool comm_all_gather(CommGroup *group, int member, DType dtype, const void *in, void *out,
                     size_t outer, size_t axis_local, size_t axis_total, size_t inner) {
    CommCall call = {.operation = COMM_ALL_GATHER,
                     .dtype = dtype,
                     .outer = outer,
                     .axis_local = axis_local,
                     .axis_total = axis_total,
                     .inner = inner};
    return collect(group, member, &call, in, out, outer * axis_local * inner);
}

bool comm_reduce_scatter(CommGroup *group, int member, ReduceKind kind, DType dtype, const void *in,
                         void *out, size_t outer, size_t axis_local, size_t axis_total,
                         size_t inner) {
    CommCall call = {.operation = COMM_REDUCE_SCATTER,
                     .kind = kind,
                     .dtype = dtype,
                     .outer = outer,
                     .axis_local = axis_local,
                     .axis_total = axis_total,
                     .inner = inner};
    return collect(group, member, &call, in, out, outer * axis_total * inner);
}

bool comm_all_to_all(CommGroup *group, int member, DType dtype, const void *in, void *out,
                     size_t outer, size_t rows, size_t width, bool to_strips) {
    const size_t n = (size_t)group->n_members;
    CommCall call = {.operation = COMM_ALL_TO_ALL,
                     .dtype = dtype,
                     .outer = outer,
                     .axis_local = rows,
                     .axis_total = n * rows,
                     .inner = width,
                     .to_strips = to_strips};
    return collect(group, member, &call, in, out, outer * n * rows * width);
}

bool comm_broadcast(CommGroup *group, int member, int root, DType dtype, void *buffer,
                    size_t count) {
    CommCall call = {.operation = COMM_BROADCAST, .dtype = dtype, .root = root, .inner = count};
    if (root < 0 || root >= group->n_members) {
        BUG("group '%s' has no member %d", group->name, root);
    }
    return collect(group, member, &call, buffer, buffer, count);
}

bool comm_barrier(CommGroup *group, int member) {
    CommCall call = {.operation = COMM_BARRIER};
    return collect(group, member, &call, NULL, NULL, 0);
}

bool comm_channel_send(CommChannel *channel, void *slot_base, size_t slot_bytes, const void *source,
                       size_t bytes) {
    if (bytes > slot_bytes) {
        return comm_fail(channel->world, "channel '%s': send of %zu bytes into slots of %zu bytes",
                         channel->name, bytes, slot_bytes);
    }
    return channel->world->filling->send(channel, slot_base, slot_bytes, source, bytes);
}

bool comm_channel_recv(CommChannel *channel, void *destination, size_t bytes) {
    return channel->world->filling->receive(channel, destination, bytes);
}
