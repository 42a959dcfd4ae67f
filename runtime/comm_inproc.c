/* Ranks as threads of one process. A member shows the others its buffers in an Offer, all meet, and
 * each reads from the others' memory directly. Small messages are copied into the offer instead, so
 * that one meeting is enough and nobody waits for readers. */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/comm.h"

#include "ir/base/diag.h"
#include "runtime/comm_wait.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    STAGED_BYTES = 8192,    /* the largest message that is copied into its offer */
    BLOCK_FLOATS = 2048,    /* reduced at a time: 8 KiB of sums stay in the first-level cache */
    SLICE_ALIGN_BYTES = 64, /* one cache line: no two members write to the same one */
    REASON_BYTES = 512,
};

typedef enum Operation {
    OP_ALL_REDUCE,
    OP_ALL_GATHER,
    OP_REDUCE_SCATTER,
    OP_ALL_TO_ALL,
    OP_BROADCAST,
    OP_BARRIER
} Operation;

static const char *const operation_names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                              "all_to_all", "broadcast",  "barrier"};

/* What must be the same on all members. */
typedef struct Call {
    Operation operation;
    ReduceKind kind;
    DType dtype;
    int root;
    size_t outer, axis_local, axis_total, inner; /* without axes: inner is the count */
    bool to_strips;
} Call;

typedef struct Offer {
    Call call;
    const void *in;
    const void *out; /* all_reduce: the others read their slices' results here */
} Offer;

/* Two offers, used in turn: a member that is one operation ahead writes the other one. It cannot be
 * two ahead, since operation k+1 meets only after all have finished reading in k. */
typedef struct Member {
    _Alignas(CACHE_LINE_BYTES) Offer offers[2];
    uint32_t n_operations; /* its own; the low bit selects the offer */
    _Alignas(CACHE_LINE_BYTES) char staged[2][STAGED_BYTES];
} Member;

struct CommGroup {
    CommGroup *next;
    CommWorld *world;
    char *name;
    int n_members;
    bool deals;
    Member *members;
    WaitEvent event;
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t generation; /* meetings held */
    _Atomic int n_arrived;
};

typedef struct Slot {
    const void *bytes;
    size_t n_bytes;
} Slot;

struct CommChannel {
    CommChannel *next;
    CommWorld *world;
    char *name;
    uint32_t n_slots;
    Slot *slots;
    WaitEvent event;
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t n_sent;
    uint32_t next_slot; /* the sender's; not n_sent mod n_slots, which jumps when n_sent wraps */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t n_received;
    uint32_t next_read; /* the receiver's */
};

struct CommWorld {
    WaitPolicy policy;
    atomic_bool aborted;
    pthread_mutex_t lock; /* over the reason and the lists */
    char reason[REASON_BYTES];
    CommGroup *groups;
    CommChannel *channels;
};

static void *allocate(size_t bytes) {
    size_t whole_lines = (bytes + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
    void *memory = aligned_alloc(CACHE_LINE_BYTES, whole_lines);
    if (!memory) BUG("out of memory (asked for %zu bytes)", bytes);
    return memset(memory, 0, whole_lines);
}

static char *copy_text(const char *text) {
    char *copy = strdup(text);
    if (!copy) BUG("out of memory");
    return copy;
}

/* --- the world --- */

CommWorld *comm_world_create(int n_ranks) {
    CommWorld *world = allocate(sizeof(*world));
    world->policy = (WaitPolicy){wait_choose_spins(n_ranks), 300, &world->aborted};
    pthread_mutex_init(&world->lock, NULL);
    return world;
}

void comm_world_destroy(CommWorld *world) {
    if (!world) return;
    for (CommGroup *group = world->groups, *next; group; group = next) {
        next = group->next;
        free(group->members);
        free(group->name);
        free(group);
    }
    for (CommChannel *channel = world->channels, *next; channel; channel = next) {
        next = channel->next;
        free(channel->slots);
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
    }
    pthread_mutex_unlock(&world->lock);
}

/* Always false, so that callers can return it. */
__attribute__((format(printf, 2, 3))) static bool fail(CommWorld *world, const char *format, ...) {
    char reason[REASON_BYTES];
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

/* --- groups: meeting and comparing calls --- */

CommGroup *comm_group_create(CommWorld *world, int n_members, const char *name) {
    if (n_members < 1) BUG("group '%s' of %d members", name, n_members);
    CommGroup *group = allocate(sizeof(*group));
    group->world = world;
    group->name = copy_text(name);
    group->n_members = n_members;
    group->members = allocate(sizeof(Member) * (size_t)n_members);
    pthread_mutex_lock(&world->lock);
    group->next = world->groups;
    world->groups = group;
    pthread_mutex_unlock(&world->lock);
    return group;
}

void comm_group_set_dealing(CommGroup *group) {
    group->deals = true;
}

typedef struct Meeting {
    CommGroup *group;
    uint32_t generation;
} Meeting;

static bool meeting_is_over(const void *state) {
    const Meeting *meeting = state;
    return atomic_load_explicit(&meeting->group->generation, memory_order_acquire) !=
           meeting->generation;
}

/* Returns when all members have come; what each wrote before is then visible to all. */
static bool meet(CommGroup *group, int member, Operation operation) {
    CommWorld *world = group->world;
    if (comm_world_is_aborted(world)) return false;
    Meeting meeting = {group, atomic_load_explicit(&group->generation, memory_order_acquire)};
    int n_before = atomic_fetch_add_explicit(&group->n_arrived, 1, memory_order_acq_rel);
    if (n_before + 1 == group->n_members) {
        atomic_store_explicit(&group->n_arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&group->generation, meeting.generation + 1, memory_order_release);
        wait_signal(&group->event);
        return true;
    }
    switch (wait_until(&world->policy, &group->event, meeting_is_over, &meeting)) {
    case WAIT_READY: return true;
    case WAIT_ABORTED: return false;
    case WAIT_TIMED_OUT: break;
    }
    return fail(world, "group '%s': member %d: %s waited %g s for the others (%d of %d came)",
                group->name, member, operation_names[operation], world->policy.timeout_s,
                atomic_load(&group->n_arrived), group->n_members);
}

static bool same_call(const Call *a, const Call *b) {
    return a->operation == b->operation && a->kind == b->kind && a->dtype == b->dtype &&
           a->root == b->root && a->outer == b->outer && a->axis_local == b->axis_local &&
           a->axis_total == b->axis_total && a->inner == b->inner && a->to_strips == b->to_strips;
}

static int describe_call(char *text, size_t size, const Call *call) {
    return snprintf(text, size, "%s(%s, kind %d, root %d, outer %zu, axis %zu of %zu, inner %zu%s)",
                    operation_names[call->operation], dtype_name(call->dtype), (int)call->kind,
                    call->root, call->outer, call->axis_local, call->axis_total, call->inner,
                    call->to_strips ? ", to strips" : "");
}

static bool check_calls_match(CommGroup *group, int member, unsigned turn) {
    const Call *own = &group->members[member].offers[turn].call;
    for (int i = 0; i < group->n_members; i++) {
        const Call *other = &group->members[i].offers[turn].call;
        if (same_call(own, other)) continue;
        char own_text[160], other_text[160];
        describe_call(own_text, sizeof own_text, own);
        describe_call(other_text, sizeof other_text, other);
        return fail(group->world, "group '%s': member %d calls %s, member %d calls %s", group->name,
                    member, own_text, i, other_text);
    }
    return true;
}

/* One collective call of one member, after all have met. */
typedef struct Exchange {
    CommGroup *group;
    int member;
    unsigned turn;
    bool staged; /* the inputs are copies: no need to wait for their readers */
} Exchange;

static size_t element_bytes(DType dtype) {
    return (size_t)dtype_bytes(dtype);
}

static bool exchange_begin(Exchange *exchange, CommGroup *group, int member, Call call,
                           const void *in, void *out, size_t in_elements) {
    const size_t in_bytes = in_elements * element_bytes(call.dtype);
    if (member < 0 || member >= group->n_members) {
        BUG("group '%s' has no member %d", group->name, member);
    }
    /* Once aborted, slower members may still be reading the offers. */
    if (comm_world_is_aborted(group->world)) return false;
    Member *own = &group->members[member];
    unsigned turn = own->n_operations++ & 1;
    *exchange = (Exchange){group, member, turn, in_bytes <= STAGED_BYTES};
    own->offers[turn] = (Offer){call, in, out};
    if (exchange->staged && in && in_bytes) {
        memcpy(own->staged[turn], in, in_bytes);
        own->offers[turn].in = own->staged[turn];
    }
    return meet(group, member, call.operation) && check_calls_match(group, member, turn);
}

static const Offer *offer_of(const Exchange *exchange, int member) {
    return &exchange->group->members[member].offers[exchange->turn];
}

static bool exchange_end(const Exchange *exchange) {
    const Call *call = &offer_of(exchange, exchange->member)->call;
    return exchange->staged || meet(exchange->group, exchange->member, call->operation);
}

/* --- reductions --- */

/* A member's input: elements [at, at + n) as f32, in place or widened into `wide`. */
static const float *read_offer(const Exchange *exchange, int member, size_t at, size_t n,
                               float *wide) {
    const Offer *offer = offer_of(exchange, member);
    return vec_tile(offer->in, offer->call.dtype, (int64_t)at, (int64_t)n, wide);
}

static void add_to(float *restrict sums, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) sums[i] += x[i];
}

static void max_to(float *restrict tops, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) tops[i] = x[i] > tops[i] || x[i] != x[i] ? x[i] : tops[i];
}

/* log(sum_j exp(x_j)) = m + log(sum_j exp(x_j - m)), m the largest; in f64, since it serves rows,
 * not whole tensors. */
static float join_lse(const Exchange *exchange, size_t at) {
    int n = exchange->group->n_members;
    float wide, top = *read_offer(exchange, 0, at, 1, &wide);
    for (int j = 1; j < n; j++) {
        float x = *read_offer(exchange, j, at, 1, &wide);
        top = x > top || x != x ? x : top;
    }
    if (!isfinite(top)) return top; /* all empty, infinite, or not a number */
    double sum = 0;
    for (int j = 0; j < n; j++) {
        sum += exp((double)*read_offer(exchange, j, at, 1, &wide) - (double)top);
    }
    return (float)((double)top + log(sum)); // cppcheck-suppress invalidFunctionArg ; sum >= 1
}

/* out[place..place+n) = reduction of all members' in[at..at+n). Goes through a block of its own
 * because out may be one of the inputs, and to be rounded once. */
static void reduce_range(const Exchange *exchange, ReduceKind kind, size_t at, size_t n, void *out,
                         size_t place) {
    const DType dtype = offer_of(exchange, exchange->member)->call.dtype;
    float block[BLOCK_FLOATS], wide[BLOCK_FLOATS];
    for (size_t done = 0; done < n; done += BLOCK_FLOATS) {
        size_t length = n - done < BLOCK_FLOATS ? n - done : BLOCK_FLOATS;
        size_t from = at + done;
        if (kind == REDUCE_LSE) {
            for (size_t i = 0; i < length; i++) block[i] = join_lse(exchange, from + i);
        } else {
            memcpy(block, read_offer(exchange, 0, from, length, wide), length * sizeof(float));
            for (int j = 1; j < exchange->group->n_members; j++) {
                const float *x = read_offer(exchange, j, from, length, wide);
                if (kind == REDUCE_SUM)
                    add_to(block, x, length);
                else
                    max_to(block, x, length);
            }
        }
        if (dtype_is_low(dtype))
            vec_low_store(dtype, block, (uint16_t *)out + place + done, (int64_t)length);
        else
            memcpy((float *)out + place + done, block, length * sizeof(float));
    }
}

/* --- collectives --- */

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Rows of `member` that exist, of its axis_local. */
static size_t rows_of(int member, size_t axis_local, size_t axis_total) {
    size_t begin = min_size((size_t)member * axis_local, axis_total);
    return min_size(axis_local, axis_total - begin);
}

/* Rows that lie together both with the member and in the whole. */
typedef struct Part {
    size_t at, place, rows; /* with the member, in the whole */
} Part;

static int parts_of(const CommGroup *group, int member, size_t axis_local, size_t axis_total,
                    Part out[2]) {
    const size_t own = (size_t)member, last = 2 * (size_t)group->n_members - 1;
    if (!group->deals) {
        out[0] = (Part){0, own * axis_local, rows_of(member, axis_local, axis_total)};
        return 1;
    }
    const size_t chunk = axis_local / 2;
    out[0] = (Part){0, own * chunk, chunk};
    out[1] = (Part){chunk, (last - own) * chunk, chunk};
    return 2;
}

/* Each member reduces one slice in place of all, then takes the other slices from the others'
 * results: every input is read once. */
static bool all_reduce_slices(const Exchange *exchange, ReduceKind kind, void *out, size_t count,
                              size_t size) {
    CommGroup *group = exchange->group;
    const size_t n = (size_t)group->n_members, align = SLICE_ALIGN_BYTES / size;
    size_t slice = (count + n - 1) / n;
    slice = (slice + align - 1) / align * align;
    size_t begin = min_size((size_t)exchange->member * slice, count);
    reduce_range(exchange, kind, begin, min_size(slice, count - begin), out, begin);
    if (!meet(group, exchange->member, OP_ALL_REDUCE)) return false;
    for (size_t i = 1; i < n; i++) { /* starting at different members spreads the reads */
        size_t j = ((size_t)exchange->member + i) % n;
        size_t from = min_size(j * slice, count);
        const char *other = offer_of(exchange, (int)j)->out;
        memcpy((char *)out + from * size, other + from * size,
               min_size(slice, count - from) * size);
    }
    return exchange_end(exchange);
}

bool comm_all_reduce(CommGroup *group, int member, ReduceKind kind, DType dtype, const void *in,
                     void *out, size_t count) {
    Exchange exchange;
    Call call = {.operation = OP_ALL_REDUCE, .kind = kind, .dtype = dtype, .inner = count};
    if (!exchange_begin(&exchange, group, member, call, in, out, count)) return false;
    if (!exchange.staged) {
        return all_reduce_slices(&exchange, kind, out, count, element_bytes(dtype));
    }
    reduce_range(&exchange, kind, 0, count, out, 0);
    return true;
}

bool comm_all_gather(CommGroup *group, int member, DType dtype, const void *in, void *out,
                     size_t outer, size_t axis_local, size_t axis_total, size_t inner) {
    Exchange exchange;
    Call call = {.operation = OP_ALL_GATHER,
                 .dtype = dtype,
                 .outer = outer,
                 .axis_local = axis_local,
                 .axis_total = axis_total,
                 .inner = inner};
    if (!exchange_begin(&exchange, group, member, call, in, out, outer * axis_local * inner)) {
        return false;
    }
    const int n = group->n_members;
    const size_t row = inner * element_bytes(dtype);
    for (int i = 0; i < n; i++) {
        int j = (member + i) % n;
        Part parts[2];
        const int n_parts = parts_of(group, j, axis_local, axis_total, parts);
        for (int p = 0; p < n_parts; p++) {
            const char *from = (const char *)offer_of(&exchange, j)->in + parts[p].at * row;
            char *place = (char *)out + parts[p].place * row;
            size_t bytes = parts[p].rows * row;
            if (!bytes || from == place) continue;
            for (size_t o = 0; o < outer; o++) {
                memcpy(place + o * axis_total * row, from + o * axis_local * row, bytes);
            }
        }
    }
    return exchange_end(&exchange);
}

bool comm_reduce_scatter(CommGroup *group, int member, ReduceKind kind, DType dtype, const void *in,
                         void *out, size_t outer, size_t axis_local, size_t axis_total,
                         size_t inner) {
    Exchange exchange;
    Call call = {.operation = OP_REDUCE_SCATTER,
                 .kind = kind,
                 .dtype = dtype,
                 .outer = outer,
                 .axis_local = axis_local,
                 .axis_total = axis_total,
                 .inner = inner};
    if (!exchange_begin(&exchange, group, member, call, in, out, outer * axis_total * inner)) {
        return false;
    }
    const size_t size = element_bytes(dtype);
    Part parts[2];
    const int n_parts = parts_of(group, member, axis_local, axis_total, parts);
    for (size_t o = 0; o < outer; o++) {
        size_t done = 0;
        for (int p = 0; p < n_parts; p++) {
            size_t from = (o * axis_total + parts[p].place) * inner;
            size_t place = (o * axis_local + parts[p].at) * inner;
            if (parts[p].rows) {
                reduce_range(&exchange, kind, from, parts[p].rows * inner, out, place);
            }
            done += parts[p].rows;
        }
        memset((char *)out + (o * axis_local + done) * inner * size, 0,
               (axis_local - done) * inner * size);
    }
    return exchange_end(&exchange);
}

bool comm_all_to_all(CommGroup *group, int member, DType dtype, const void *in, void *out,
                     size_t outer, size_t rows, size_t width, bool to_strips) {
    Exchange exchange;
    const size_t n = (size_t)group->n_members;
    Call call = {.operation = OP_ALL_TO_ALL,
                 .dtype = dtype,
                 .outer = outer,
                 .axis_local = rows,
                 .axis_total = n * rows,
                 .inner = width,
                 .to_strips = to_strips};
    if (!exchange_begin(&exchange, group, member, call, in, out, outer * n * rows * width)) {
        return false;
    }
    const size_t row = width * element_bytes(dtype), all = n * rows * row;
    /* From one row of a member's to the next, and from one member's first to the next one's. */
    const size_t in_row = to_strips ? row : n * row, in_part = to_strips ? rows * row : row;
    const size_t out_row = to_strips ? n * row : row, out_part = to_strips ? row : rows * row;
    for (size_t i = 0; i < n; i++) { /* starting at different members spreads the reads */
        size_t j = ((size_t)member + i) % n;
        const char *from = (const char *)offer_of(&exchange, (int)j)->in + (size_t)member * in_part;
        char *place = (char *)out + j * out_part;
        for (size_t o = 0; o < outer; o++) {
            for (size_t r = 0; r < rows && row; r++) {
                memcpy(place + o * all + r * out_row, from + o * all + r * in_row, row);
            }
        }
    }
    return exchange_end(&exchange);
}

bool comm_broadcast(CommGroup *group, int member, int root, DType dtype, void *buffer,
                    size_t count) {
    Exchange exchange;
    Call call = {.operation = OP_BROADCAST, .dtype = dtype, .root = root, .inner = count};
    if (root < 0 || root >= group->n_members) {
        BUG("group '%s' has no member %d", group->name, root);
    }
    if (!exchange_begin(&exchange, group, member, call, member == root ? buffer : NULL, NULL,
                        count)) {
        return false;
    }
    if (member != root && count) {
        memcpy(buffer, offer_of(&exchange, root)->in, count * element_bytes(dtype));
    }
    return exchange_end(&exchange);
}

bool comm_barrier(CommGroup *group, int member) {
    Exchange exchange;
    return exchange_begin(&exchange, group, member, (Call){.operation = OP_BARRIER}, NULL, NULL, 0);
}

/* --- channels --- */

CommChannel *comm_channel_create(CommWorld *world, int n_slots, const char *name) {
    if (n_slots < 1) BUG("channel '%s' of %d slots", name, n_slots);
    CommChannel *channel = allocate(sizeof(*channel));
    channel->world = world;
    channel->name = copy_text(name);
    channel->n_slots = (uint32_t)n_slots;
    channel->slots = allocate(sizeof(Slot) * (size_t)n_slots);
    pthread_mutex_lock(&world->lock);
    channel->next = world->channels;
    world->channels = channel;
    pthread_mutex_unlock(&world->lock);
    return channel;
}

/* Unsigned differences stay right when the counters wrap. */
static uint32_t n_unread(const CommChannel *channel) {
    return atomic_load_explicit(&channel->n_sent, memory_order_acquire) -
           atomic_load_explicit(&channel->n_received, memory_order_acquire);
}

static bool has_free_slot(const void *state) {
    const CommChannel *channel = state;
    return n_unread(channel) < channel->n_slots;
}

static bool has_message(const void *state) {
    return n_unread(state) > 0;
}

static bool channel_wait(CommChannel *channel, bool (*ready)(const void *), const char *operation,
                         size_t bytes) {
    CommWorld *world = channel->world;
    switch (wait_until(&world->policy, &channel->event, ready, channel)) {
    case WAIT_READY: return true;
    case WAIT_ABORTED: return false;
    case WAIT_TIMED_OUT: break;
    }
    return fail(world, "channel '%s': %s of %zu bytes waited %g s for the other end", channel->name,
                operation, bytes, world->policy.timeout_s);
}

bool comm_channel_send(CommChannel *channel, void *slot_base, size_t slot_bytes, const void *source,
                       size_t bytes) {
    if (bytes > slot_bytes) {
        return fail(channel->world, "channel '%s': send of %zu bytes into slots of %zu bytes",
                    channel->name, bytes, slot_bytes);
    }
    if (!channel_wait(channel, has_free_slot, "send", bytes)) return false;
    void *place = (char *)slot_base + channel->next_slot * slot_bytes;
    if (bytes && place != source) memcpy(place, source, bytes);
    channel->slots[channel->next_slot] = (Slot){place, bytes};
    channel->next_slot = (channel->next_slot + 1) % channel->n_slots;
    atomic_fetch_add_explicit(&channel->n_sent, 1, memory_order_release);
    wait_signal(&channel->event);
    return true;
}

bool comm_channel_recv(CommChannel *channel, void *destination, size_t bytes) {
    if (!channel_wait(channel, has_message, "receive", bytes)) return false;
    Slot slot = channel->slots[channel->next_read];
    if (slot.n_bytes != bytes) {
        return fail(channel->world, "channel '%s': receive of %zu bytes meets a message of %zu",
                    channel->name, bytes, slot.n_bytes);
    }
    if (bytes) memcpy(destination, slot.bytes, bytes);
    channel->next_read = (channel->next_read + 1) % channel->n_slots;
    atomic_fetch_add_explicit(&channel->n_received, 1, memory_order_release);
    wait_signal(&channel->event);
    return true;
}
