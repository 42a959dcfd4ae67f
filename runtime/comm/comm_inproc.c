/* Ranks as threads of one process. A member shows the others its buffers in an Offer, all meet, and
 * each reads from the others' memory directly. Small messages are copied into the offer instead, so
 * that one meeting is enough and nobody waits for readers. */
#include "runtime/comm/comm.h"

#include "ir/base/diag.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_reduce.h"

#include <stdlib.h>
#include <string.h>

enum { STAGED_BYTES = 8192 }; /* the largest message that is copied into its offer */

typedef struct Offer {
    CommCall call;
    const void *in;
    const void *out; /* all_reduce: the others read their slices' results here */
} Offer;

/* Two offers, used in turn: a member that is one operation ahead writes the other one. It cannot be
 * two ahead, since operation k+1 meets only after all have finished reading in k. */
typedef struct Member {
    _Alignas(CACHE_LINE_BYTES) Offer offers[2];
    uint32_t n_operations; /* its own; the low bit selects the offer */
    const void **inputs;   /* [n_members] */
    _Alignas(CACHE_LINE_BYTES) char staged[2][STAGED_BYTES];
} Member;

typedef struct ThreadGroup {
    CommGroup base;
    Member *members;
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t generation; /* meetings held */
    _Atomic int n_arrived;
} ThreadGroup;

typedef struct Slot {
    const void *bytes;
    size_t n_bytes;
} Slot;

typedef struct ThreadChannel {
    CommChannel base;
    Slot *slots;
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t n_sent;
    uint32_t next_slot; /* the sender's; not n_sent mod n_slots, which jumps when n_sent wraps */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t n_received;
    uint32_t next_read; /* the receiver's */
} ThreadChannel;

/* --- meeting and comparing calls --- */

typedef struct Meeting {
    ThreadGroup *group;
    uint32_t generation;
} Meeting;

static bool meeting_is_over(const void *state) {
    const Meeting *meeting = state;
    return atomic_load_explicit(&meeting->group->generation, memory_order_acquire) !=
           meeting->generation;
}

/* Returns when all members have come; what each wrote before is then visible to all. */
static bool meet(ThreadGroup *group, int member, CommOperation operation) {
    CommWorld *world = group->base.world;
    if (comm_world_is_aborted(world)) return false;
    Meeting meeting = {group, atomic_load_explicit(&group->generation, memory_order_acquire)};
    int n_before = atomic_fetch_add_explicit(&group->n_arrived, 1, memory_order_acq_rel);
    if (n_before + 1 == group->base.n_members) {
        atomic_store_explicit(&group->n_arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&group->generation, meeting.generation + 1, memory_order_release);
        wait_signal(&group->base.event);
        return true;
    }
    switch (wait_until(&world->policy, &group->base.event, meeting_is_over, &meeting)) {
    case WAIT_READY: return true;
    case WAIT_ABORTED: return false;
    case WAIT_TIMED_OUT: break;
    }
    return comm_fail(world, "group '%s': member %d: %s waited %g s for the others (%d of %d came)",
                     group->base.name, member, comm_operation_name(operation),
                     world->policy.timeout_s, atomic_load(&group->n_arrived),
                     group->base.n_members);
}

static bool check_calls_match(const ThreadGroup *group, int member, unsigned turn) {
    const CommCall *own = &group->members[member].offers[turn].call;
    for (int i = 0; i < group->base.n_members; i++) {
        const CommCall *other = &group->members[i].offers[turn].call;
        if (!comm_calls_match(own, other)) {
            return comm_fail_mismatch(&group->base, member, own, i, other);
        }
    }
    return true;
}

/* One collective call of one member, after all have met. */
typedef struct Exchange {
    ThreadGroup *group;
    const CommCall *call;
    int member;
    unsigned turn;
    bool staged; /* the inputs are copies: no need to wait for their readers */
} Exchange;

static bool exchange_begin(Exchange *exchange, const void *in, void *out, size_t in_bytes) {
    ThreadGroup *group = exchange->group;
    const CommCall *call = exchange->call;
    Member *own = &group->members[exchange->member];
    unsigned turn = exchange->turn = own->n_operations++ & 1;
    bool is_read = call->operation != COMM_BROADCAST || exchange->member == call->root;
    exchange->staged = in_bytes <= STAGED_BYTES;
    own->offers[turn] = (Offer){*call, is_read ? in : NULL, out};
    if (exchange->staged && is_read && in && in_bytes) {
        memcpy(own->staged[turn], in, in_bytes);
        own->offers[turn].in = own->staged[turn];
    }
    return meet(group, exchange->member, call->operation) &&
           check_calls_match(group, exchange->member, turn);
}

static const Offer *offer_of(const Exchange *exchange, int member) {
    return &exchange->group->members[member].offers[exchange->turn];
}

static size_t element_bytes(const Exchange *exchange) {
    return (size_t)dtype_bytes(exchange->call->dtype);
}

/* out[place..place+n) = reduction of all members' in[at..at+n). */
static void reduce_range(const Exchange *exchange, size_t at, size_t n, void *out, size_t place) {
    const size_t size = element_bytes(exchange);
    const void **inputs = exchange->group->members[exchange->member].inputs;
    if (n == 0) return;
    for (int j = 0; j < exchange->group->base.n_members; j++) {
        inputs[j] = (const char *)offer_of(exchange, j)->in + at * size;
    }
    comm_reduce(exchange->call->kind, exchange->call->dtype, inputs,
                exchange->group->base.n_members, n, (char *)out + place * size);
}

/* --- collectives, after the meeting; each ends with another one where inputs are not copies --- */

/* Each member reduces one slice in place of all, then takes the other slices from the others'
 * results: every input is read once. */
static bool all_reduce(const Exchange *exchange, void *out) {
    const CommCall *call = exchange->call;
    const CommGroup *group = &exchange->group->base;
    const size_t n = (size_t)group->n_members, count = call->inner, size = element_bytes(exchange);
    if (exchange->staged) {
        reduce_range(exchange, 0, count, out, 0);
        return true;
    }
    size_t slice = comm_slice(group, count, call->dtype);
    size_t begin = comm_min((size_t)exchange->member * slice, count);
    reduce_range(exchange, begin, comm_min(slice, count - begin), out, begin);
    if (!meet(exchange->group, exchange->member, COMM_ALL_REDUCE)) return false;
    for (size_t i = 1; i < n; i++) { /* starting at different members spreads the reads */
        size_t j = ((size_t)exchange->member + i) % n;
        size_t from = comm_min(j * slice, count);
        const char *other = offer_of(exchange, (int)j)->out;
        memcpy((char *)out + from * size, other + from * size,
               comm_min(slice, count - from) * size);
    }
    return true;
}

static bool all_gather(const Exchange *exchange, void *out) {
    const CommCall *call = exchange->call;
    const CommGroup *group = &exchange->group->base;
    const size_t row = call->inner * element_bytes(exchange);
    for (int i = 0; i < group->n_members; i++) {
        int j = (exchange->member + i) % group->n_members;
        CommPart parts[2];
        const int n_parts = comm_parts_of(group, j, call->axis_local, call->axis_total, parts);
        for (int p = 0; p < n_parts; p++) {
            const char *from = (const char *)offer_of(exchange, j)->in + parts[p].at * row;
            char *place = (char *)out + parts[p].place * row;
            size_t bytes = parts[p].rows * row;
            if (!bytes || from == place) continue;
            for (size_t o = 0; o < call->outer; o++) {
                memcpy(place + o * call->axis_total * row, from + o * call->axis_local * row,
                       bytes);
            }
        }
    }
    return true;
}

static bool reduce_scatter(const Exchange *exchange, void *out) {
    const CommCall *call = exchange->call;
    const size_t inner = call->inner, size = element_bytes(exchange);
    CommPart parts[2];
    const int n_parts = comm_parts_of(&exchange->group->base, exchange->member, call->axis_local,
                                      call->axis_total, parts);
    for (size_t o = 0; o < call->outer; o++) {
        size_t done = 0;
        for (int p = 0; p < n_parts; p++) {
            size_t from = (o * call->axis_total + parts[p].place) * inner;
            size_t place = (o * call->axis_local + parts[p].at) * inner;
            reduce_range(exchange, from, parts[p].rows * inner, out, place);
            done += parts[p].rows;
        }
        memset((char *)out + (o * call->axis_local + done) * inner * size, 0,
               (call->axis_local - done) * inner * size);
    }
    return true;
}

/* The rows of one block, which is dealt out where the group deals, to or from a strip. */
static void copy_block(const Exchange *exchange, const char *from, char *place, int block,
                       int strip) {
    const CommCall *call = exchange->call;
    const CommGroup *group = &exchange->group->base;
    const size_t n = (size_t)group->n_members, row = call->inner * element_bytes(exchange);
    CommPart parts[2];
    const int n_parts = comm_parts_of(group, block, call->axis_local, call->axis_total, parts);
    for (size_t o = 0; o < call->outer && row; o++) {
        for (int p = 0; p < n_parts; p++) {
            const size_t first = o * call->axis_total;
            for (size_t r = 0; r < parts[p].rows; r++) {
                const size_t in_block = (first + parts[p].place + r) * row;
                const size_t in_strip = (first + (parts[p].at + r) * n + (size_t)strip) * row;
                memcpy(place + (call->to_strips ? in_strip : in_block),
                       from + (call->to_strips ? in_block : in_strip), row);
            }
        }
    }
}

static bool all_to_all(const Exchange *exchange, void *out) {
    const int n = exchange->group->base.n_members, member = exchange->member;
    for (int i = 0; i < n; i++) { /* starting at different members spreads the reads */
        const int j = (member + i) % n;
        const bool strips = exchange->call->to_strips;
        copy_block(exchange, offer_of(exchange, j)->in, out, strips ? member : j,
                   strips ? j : member);
    }
    return true;
}

static bool broadcast(const Exchange *exchange, void *out) {
    const CommCall *call = exchange->call;
    if (exchange->member != call->root && call->inner) {
        memcpy(out, offer_of(exchange, call->root)->in, call->inner * element_bytes(exchange));
    }
    return true;
}

static bool barrier(const Exchange *exchange, void *out) {
    (void)exchange, (void)out;
    return true;
}

static bool collect(CommGroup *base, int member, const CommCall *call, const void *in, void *out,
                    size_t n_in) {
    static bool (*const DO[N_COMM_OPERATIONS])(const Exchange *, void *) = {
        all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, barrier};
    Exchange exchange = {.group = (ThreadGroup *)base, .call = call, .member = member};
    return exchange_begin(&exchange, in, out, n_in * element_bytes(&exchange)) &&
           DO[call->operation](&exchange, out) &&
           (exchange.staged || meet(exchange.group, member, call->operation));
}

/* --- channels --- */

/* Unsigned differences stay right when the counters wrap. */
static uint32_t n_unread(const ThreadChannel *channel) {
    return atomic_load_explicit(&channel->n_sent, memory_order_acquire) -
           atomic_load_explicit(&channel->n_received, memory_order_acquire);
}

static bool has_free_slot(const void *state) {
    const ThreadChannel *channel = state;
    return n_unread(channel) < channel->base.n_slots;
}

static bool has_message(const void *state) {
    return n_unread(state) > 0;
}

static bool send(CommChannel *base, void *slot_base, size_t slot_bytes, const void *source,
                 size_t bytes) {
    ThreadChannel *channel = (ThreadChannel *)base;
    if (!comm_channel_wait(base, has_free_slot, "send", bytes)) return false;
    void *place = (char *)slot_base + channel->next_slot * slot_bytes;
    if (bytes && place != source) memcpy(place, source, bytes);
    channel->slots[channel->next_slot] = (Slot){place, bytes};
    channel->next_slot = (channel->next_slot + 1) % base->n_slots;
    atomic_fetch_add_explicit(&channel->n_sent, 1, memory_order_release);
    wait_signal(&base->event);
    return true;
}

static bool receive(CommChannel *base, void *destination, size_t bytes) {
    ThreadChannel *channel = (ThreadChannel *)base;
    if (!comm_channel_wait(base, has_message, "receive", bytes)) return false;
    Slot slot = channel->slots[channel->next_read];
    if (slot.n_bytes != bytes) {
        return comm_fail(base->world, "channel '%s': receive of %zu bytes meets a message of %zu",
                         base->name, bytes, slot.n_bytes);
    }
    if (bytes) memcpy(destination, slot.bytes, bytes);
    channel->next_read = (channel->next_read + 1) % base->n_slots;
    atomic_fetch_add_explicit(&channel->n_received, 1, memory_order_release);
    wait_signal(&base->event);
    return true;
}

/* --- life --- */

static void do_nothing(CommWorld *world) {
    (void)world;
}

static void destroy_group(CommGroup *base) {
    ThreadGroup *group = (ThreadGroup *)base;
    for (int i = 0; i < base->n_members; i++) free(group->members[i].inputs);
    free(group->members);
}

static void destroy_channel(CommChannel *base) {
    free(((ThreadChannel *)base)->slots);
}

static const CommFilling INPROC = {.collect = collect,
                                   .send = send,
                                   .receive = receive,
                                   .wake = do_nothing,
                                   .destroy_world = do_nothing,
                                   .destroy_group = destroy_group,
                                   .destroy_channel = destroy_channel};

CommWorld *comm_world_create(int n_ranks) {
    CommWorld *world = comm_allocate(sizeof(*world));
    comm_world_init(world, &INPROC, n_ranks);
    return world;
}

CommGroup *comm_group_create(CommWorld *world, int n_members, const char *name) {
    ThreadGroup *group = comm_allocate(sizeof(*group));
    comm_group_init(&group->base, world, n_members, name);
    group->members = comm_allocate(sizeof(Member) * (size_t)n_members);
    for (int i = 0; i < n_members; i++) {
        group->members[i].inputs = comm_allocate(sizeof(void *) * (size_t)n_members);
    }
    return &group->base;
}

CommChannel *comm_channel_create(CommWorld *world, int n_slots, const char *name) {
    ThreadChannel *channel = comm_allocate(sizeof(*channel));
    comm_channel_init(&channel->base, world, n_slots, name);
    channel->slots = comm_allocate(sizeof(Slot) * (size_t)n_slots);
    return &channel->base;
}
