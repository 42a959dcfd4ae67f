/* Lifetimes: no two values that are alive together share memory.
 *
 * Values that take over one another's memory (an update in place, an elementwise result in place of
 * an operand that dies) form one Storage: the newest member is its current value, and reading an
 * older one is a defect. What is left is to prove that storages that live at the same time are
 * apart, by sweeping over time with the living storages ordered by address.
 *
 * An accumulator is read for the last time in the update, and the next step overwrites it: after
 * that the update may use its memory for values of its own. One that nothing is added to is never
 * overwritten and has to stay the zero that it was at the start. How large gradients are
 * (gradient_of_square) has to stay to the step's end.
 *
 * Time is 2 * id + 1 at node `id`; what a receive or the host writes before a segment starts is
 * there at 2 * (first id of the segment), what they read after it lives to 2 * (last id) + 2. Of a
 * group of messages all results are there from the first one's time, all operands to the last
 * one's; a result may take the place of its own operand where no other message reads that.
 */
#include "ir/gradient.h"
#include "ir/message_group.h"
#include "planner/verify/verify.h"

#include <limits.h>
#include <stdlib.h>

typedef struct Storage {
    Buffer buffer;
    int space; /* which memory: persistent, the host's, a chunk's frame, a segment's scratch */
    int first, last; /* times */
    Value first_value, current;
    bool is_half; /* of another, which has all of its memory (verify_masters.c) */
    int pinned;   /* segment at whose end a message or the host reads it; -1: none */
} Storage;

typedef struct Lifetimes {
    Verifier *v;
    int stage;
    const Program *program;
    const Graph *graph;
    Storage *storages;
    int n_storages;
    int *storage_of; /* by value index */
    int segment_first[N_SEGMENTS], segment_last[N_SEGMENTS];
    bool *written; /* by node: does another update it in place? */
} Lifetimes;

static int value_index(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

static const char *where(Lifetimes *l) {
    return verify_stage_text(l->v, l->stage);
}

static const char *text(Lifetimes *l, Value value) {
    return verify_value_text(l->v, l->stage, value);
}

/* Scratch of a segment, then frames of a chunk, then what persists, here or with the host, then
 * frames there. */
static int space_of(const Buffer *buffer, const Node *node) {
    if (buffer->region == REGION_SCRATCH) return verify_segment(node);
    if (buffer->region == REGION_FRAME) return N_SEGMENTS + buffer->chunk;
    if (buffer->region == REGION_HOST_FRAME) return N_SEGMENTS + MAX_CHUNKS + 2 + buffer->chunk;
    return N_SEGMENTS + MAX_CHUNKS + (buffer->region == REGION_HOST);
}

static bool same_place(const Storage *storage, const Buffer *buffer, const Node *node) {
    return storage->space == space_of(buffer, node) &&
           storage->buffer.offset_bytes == buffer->offset_bytes &&
           storage->buffer.bytes == buffer->bytes;
}

static void read_operand(Lifetimes *l, const Node *node, int operand) {
    Value value = node->inputs[operand];
    Storage *storage = &l->storages[l->storage_of[value_index(value)]];
    int segment = verify_segment(node), time = 2 * (message_group_end(l->graph, node->id) - 1) + 1;
    if (!value_equal(storage->current, value)) {
        verify_defect(l->v, node->loc, "%s: %s reads %s, which %s has overwritten in place",
                      where(l), text(l, (Value){(Node *)node, 0}), text(l, value),
                      text(l, storage->current));
    }
    if (node->op == OP_SEND || node->op == OP_OUTPUT || gradient_of_square(value.node)) {
        storage->pinned = segment;
        time = 2 * l->segment_last[segment] + 2;
    }
    if (time > storage->last) storage->last = time;
}

/* Does another message of the node's group, which runs at the same time, read the storage? */
static bool group_reads(const Lifetimes *l, const Node *node, int storage) {
    int first = message_group_begin(l->graph, node->id);
    for (int n = first, end = message_group_end(l->graph, first); n < end; n++) {
        const Node *other = l->graph->nodes[n];
        for (int i = 0; other != node && i < other->n_inputs; i++) {
            if (l->storage_of[value_index(other->inputs[i])] == storage) return true;
        }
    }
    return false;
}

/* May output `output` take the place of operand `operand`, for all that the node reads? */
static bool may_take(Lifetimes *l, const Node *node, int output, int operand) {
    int alias = op_alias(node, output);
    int storage = l->storage_of[value_index(node->inputs[operand])];
    if (alias >= 0 ? alias != operand : !op_may_reuse(node, operand)) return false;
    /* An earlier result may have it already. */
    if (output > 0 && l->storages[storage].current.node == node) return false;
    if (l->storages[storage].pinned == verify_segment(node)) return false;
    if (group_reads(l, node, storage)) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        /* The same memory as another operand, too, must be read no later than it is written. */
        if (i == operand || l->storage_of[value_index(node->inputs[i])] != storage) continue;
        if (alias >= 0 || !op_may_reuse(node, i)) return false;
    }
    return true;
}

static int find_taken(Lifetimes *l, const Node *node, int output, const Buffer *buffer) {
    int alias = op_alias(node, output);
    for (int i = 0; i < node->n_inputs; i++) {
        int index = l->storage_of[value_index(node->inputs[i])];
        if (alias >= 0 && i != alias) continue;
        if (!same_place(&l->storages[index], buffer, node)) continue;
        /* What lives across steps changes only where the op says so; but an accumulator's first
         * share overwrites it, so the update may use its memory. */
        const Node *first = l->storages[index].first_value.node;
        bool free_to_use = node->phase == PHASE_UPDATE &&
                           (first->op == OP_ACCUMULATOR ? l->written[first->id]
                                                        : !(OPS[first->op].flags & PERSISTENT));
        if (alias < 0 && buffer->region == REGION_PERSISTENT && !free_to_use) continue;
        if (may_take(l, node, output, i)) return index;
    }
    return -1;
}

/* For ever, but for the update's own values, and accumulators once the update has read them. */
static void set_persistent_life(const Lifetimes *l, const Node *node, Storage *storage) {
    if (!(OPS[node->op].flags & PERSISTENT) && node->phase == PHASE_UPDATE) return;
    storage->first = -1;
    storage->last = INT_MAX;
    int update = l->segment_first[N_SEGMENTS - 1];
    bool ends = node->op == OP_ACCUMULATOR && node_string(node, ATTR_of)[0] && update >= 0 &&
                l->written[node->id];
    if (ends) storage->last = 2 * update;
}

static void write_output(Lifetimes *l, const Node *node, int output) {
    Value value = {(Node *)node, output};
    const Buffer *buffer = &l->program->buffers[value_index(value)];
    int taken = find_taken(l, node, output, buffer), segment = verify_segment(node);
    if (taken >= 0) {
        Storage *storage = &l->storages[taken];
        storage->current = value;
        if (storage->last < 2 * node->id + 1) storage->last = 2 * node->id + 1;
        l->storage_of[value_index(value)] = taken;
        return;
    }
    int alias = op_alias(node, output);
    if (alias >= 0) {
        verify_defect(l->v, node->loc, "%s: %s must update %s in place, and may not here", where(l),
                      text(l, value), text(l, node->inputs[alias]));
    }
    Storage storage = {.buffer = *buffer,
                       .space = space_of(buffer, node),
                       .first = 2 * node->id + 1,
                       .last = 2 * node->id + 1,
                       .first_value = value,
                       .current = value,
                       .is_half = node_is_upper(node),
                       .pinned = -1};
    for (int n = node->id; node_is_joined(l->graph->nodes[n]); n--) storage.first = 2 * n - 1;
    if (node->op == OP_RECV) storage.first = 2 * l->segment_first[segment];
    if (node->op == OP_INPUT) {
        storage.first = buffer->region == REGION_SCRATCH ? 2 * l->segment_first[segment] : -1;
    }
    bool stays = buffer->region == REGION_PERSISTENT || buffer->region == REGION_HOST;
    if (stays) set_persistent_life(l, node, &storage);
    l->storage_of[value_index(value)] = l->n_storages;
    l->storages[l->n_storages++] = storage;
}

typedef struct Event {
    int space, time, end; /* end: 0 for the start of a life, 1 for its end */
    int storage;
} Event;

/* Lives are closed intervals: at one time starts come first, so that they meet what ends there. */
static int by_time(const void *left, const void *right) {
    const Event *a = left, *b = right;
    if (a->space != b->space) return a->space < b->space ? -1 : 1;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    if (a->end != b->end) return a->end - b->end;
    return a->storage < b->storage ? -1 : a->storage > b->storage;
}

/* The living storages of one space by address; they are apart. */
typedef struct Living {
    int *items, count;
} Living;

/* The first position whose storage starts at `offset` or later. */
static int lower_bound(const Lifetimes *l, const Living *living, int64_t offset) {
    int low = 0, high = living->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (l->storages[living->items[middle]].buffer.offset_bytes < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void report_overlap(Lifetimes *l, const Storage *a, const Storage *b) {
    verify_defect(l->v, a->first_value.node->loc,
                  "%s: %s and %s overlap: bytes %lld+%lld and %lld+%lld of %s, alive together",
                  where(l), text(l, b->first_value), text(l, a->first_value),
                  (long long)b->buffer.offset_bytes, (long long)b->buffer.bytes,
                  (long long)a->buffer.offset_bytes, (long long)a->buffer.bytes,
                  region_name(a->buffer.region));
}

/* False: it overlaps a living one; reported, and it is not let in. */
static bool enter(Lifetimes *l, Living *living, int index) {
    const Storage *storage = &l->storages[index];
    int at = lower_bound(l, living, storage->buffer.offset_bytes);
    int64_t end = storage->buffer.offset_bytes + storage->buffer.bytes;
    for (int i = at - 1; i <= at; i++) {
        if (i < 0 || i >= living->count) continue;
        const Storage *other = &l->storages[living->items[i]];
        if (other->buffer.offset_bytes >= end ||
            other->buffer.offset_bytes + other->buffer.bytes <= storage->buffer.offset_bytes) {
            continue;
        }
        report_overlap(l, storage, other);
        return false;
    }
    for (int i = living->count++; i > at; i--) living->items[i] = living->items[i - 1];
    living->items[at] = index;
    return true;
}

static void leave(const Lifetimes *l, Living *living, int index) {
    int at = lower_bound(l, living, l->storages[index].buffer.offset_bytes);
    if (at == living->count || living->items[at] != index) return; /* was not let in */
    living->count--;
    for (int i = at; i < living->count; i++) living->items[i] = living->items[i + 1];
}

static void sweep(Lifetimes *l) {
    Event *events = ARENA_ARRAY(l->v->scratch, Event, 2 * (size_t)l->n_storages + 1);
    Living living = {ARENA_ARRAY(l->v->scratch, int, l->n_storages + 1), 0};
    int n_events = 0;
    for (int i = 0; i < l->n_storages; i++) {
        const Storage *s = &l->storages[i];
        if (s->is_half) continue;
        events[n_events++] = (Event){s->space, s->first, 0, i};
        events[n_events++] = (Event){s->space, s->last, 1, i};
    }
    qsort(events, (size_t)n_events, sizeof(*events), by_time);
    for (int i = 0; i < n_events; i++) {
        if (i && events[i].space != events[i - 1].space) living.count = 0;
        if (events[i].end) {
            leave(l, &living, events[i].storage);
        } else {
            enter(l, &living, events[i].storage);
        }
    }
}

void verify_lifetimes(Verifier *v, int stage) {
    const Program *program = &v->plan->programs[v->plan->stages[stage].program];
    const Graph *graph = program->graph;
    size_t n_values = (size_t)graph->n_nodes * MAX_OUTPUTS;
    Lifetimes l = {.v = v, .stage = stage, .program = program, .graph = graph};
    l.storages = ARENA_ARRAY(v->scratch, Storage, n_values + 1);
    l.storage_of = ARENA_ARRAY(v->scratch, int, n_values + 1);
    l.written = ARENA_ARRAY(v->scratch, bool, graph->n_nodes + 1);
    for (int s = 0; s < N_SEGMENTS; s++) l.segment_first[s] = -1;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        int segment = verify_segment(node);
        if (l.segment_first[segment] < 0) l.segment_first[segment] = n;
        l.segment_last[segment] = n;
        for (int k = 0; k < node->n_outputs; k++) {
            int alias = op_alias(node, k);
            if (alias >= 0) l.written[node->inputs[alias].node->id] = true;
        }
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) read_operand(&l, node, i);
        for (int k = 0; k < node->n_outputs; k++) write_output(&l, node, k);
    }
    sweep(&l);
}
