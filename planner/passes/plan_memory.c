/* plan_memory: where every value of a stage program lives.
 *
 * Values that share memory form one Storage: an in-place update shares its operand's, and an op
 * that may work in place takes over an operand that dies with it. A storage is persistent, part of
 * its chunk's frame (kept from forward to backward), or scratch of one segment: forward(c),
 * backward(c), weights(c) or update. Scratch is packed by exact lifetimes, largest first at the
 * lowest offset that is free for the whole lifetime, of what lies together for each; segments never
 * run at once, so they share the region.
 *
 * Where backwards are cut in two (split_backward.c) a frame lives until its W: some of its values
 * die in the backward, and what that keeps for the W takes their room, by exact lifetimes. What one
 * chunk hands to another of its stage is kept in the earlier one's frame, which lives longer.
 *
 * A gradient's shard (shard_update.c) must not lie in scratch, or its message would wait for the
 * end of the backward that uses the same memory. It takes room of accumulators that were read for
 * the last time before, and memory of its own where there is none yet. What else the update makes
 * of shards goes there, too.
 *
 * With --offload leaves that only the update touches lie in the host's memory, one after the other
 * (planner/plan/offload.h). What is kept there for a backward (offload_activations.c) has a frame
 * of its own there.
 */
#include "ir/gradient.h"
#include "ir/masters.h"
#include "ir/message_group.h"
#include "planner/passes/pass.h"
#include "planner/passes/room.h"
#include "planner/plan/offload.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct Storage {
    Region region;
    BufferClass class;
    int64_t bytes, offset;
    int chunk, segment;
    int first, last;        /* node ids: written, last read */
    struct Storage *behind; /* lies right behind it (join_gradients); NULL: any may */
    bool follows;           /* another, which it is placed with */
    int64_t largest;        /* bytes of it and of those that follow it, each */
} Storage;

typedef struct Planner {
    Program *program;
    const Graph *graph;
    bool cuda;
    const bool *on_host; /* by id of a leaf */
    Arena *arena;
    Storage *storages;
    int n_storages;
    int *storage_of;  /* by value index, -1: none */
    int *last_use;    /* by value index */
    bool *keep;       /* by value index: read in a later part, by another chunk or by the host */
    int *frame;       /* by value index: the chunk in whose frame it is kept */
    int *group_first; /* by id of a message in a group: the group's first node */
    bool *last_alone; /* likewise: it alone of the group reads its operand, for the last time */
    bool splits;      /* there are nodes of phase weights, for which frames keep values, too */
    int64_t gradient_bytes; /* laid out by pack_gradients */
} Planner;

enum { FOREVER = INT_MAX, UPDATE_SEGMENT = 3 * MAX_CHUNKS };

static int value_index(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

static int64_t align(int64_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static int segment_of(const Node *node) {
    return node->phase == PHASE_UPDATE ? UPDATE_SEGMENT
                                       : (int)node->phase * MAX_CHUNKS + node->chunk;
}

static void find_uses(Planner *p) {
    for (int n = 0; n < p->graph->n_nodes; n++) {
        const Node *node = p->graph->nodes[n];
        p->splits |= node->phase == PHASE_WEIGHTS;
        for (int i = 0; i < node->n_inputs; i++) {
            int value = value_index(node->inputs[i]);
            const Node *from = node->inputs[i].node;
            bool host = node->op == OP_OUTPUT;
            bool to_end = node->op == OP_SEND || (host && node->phase == PHASE_UPDATE);
            if (p->last_use[value] < n) p->last_use[value] = to_end ? FOREVER : n;
            bool later = from->phase < node->phase && node->phase < PHASE_UPDATE;
            bool other = from->chunk != node->chunk && node->phase < PHASE_UPDATE;
            bool kept = later || other || (from->phase == PHASE_FORWARD && host);
            if (kept && (!p->keep[value] || node->chunk < p->frame[value])) {
                p->frame[value] = node->chunk < from->chunk ? node->chunk : from->chunk;
                p->keep[value] = true;
            }
        }
    }
}

/* A run reads how large gradients were when the step is done. */
static void keep_squares(Planner *p) {
    for (int n = 0; n < p->graph->n_nodes; n++) {
        if (gradient_of_square(p->graph->nodes[n])) p->last_use[n * MAX_OUTPUTS] = FOREVER;
    }
}

/* What the host reads of a forward is there until its chunk's task ends. */
static void keep_outputs(Planner *p) {
    int ends[UPDATE_SEGMENT + 1] = {0};
    for (int n = 0; n < p->graph->n_nodes; n++) ends[segment_of(p->graph->nodes[n])] = n;
    for (int n = 0; n < p->graph->n_nodes; n++) {
        const Node *node = p->graph->nodes[n];
        if (node->op != OP_OUTPUT || node->phase != PHASE_FORWARD) continue;
        int value = value_index(node->inputs[0]), end = ends[segment_of(node)];
        if (p->last_use[value] < end) p->last_use[value] = end;
    }
}

/* A shard of a weight until the weight is read, or to the end of the task that gathers it. */
static void keep_once(Planner *p, const Node *gather, int reader) {
    int end = gather->id;
    while (end + 1 < p->graph->n_nodes && end < reader &&
           segment_of(p->graph->nodes[end + 1]) == segment_of(gather)) {
        end++;
    }
    int value = value_index(gather->inputs[0]);
    if (p->last_use[value] < end) p->last_use[value] = end;
}

/* On a GPU a message runs beside what follows it in its block, or with lanes in the next one, too
 * (hide_messages.c): what it reads has to stay until its result is waited for, or what is written
 * there meanwhile would wait for it. */
static void keep_sent(Planner *p) {
    const bool lanes = graph_has_lanes(p->graph);
    int *waited = ARENA_ARRAY(p->arena, int, p->graph->n_nodes + 1); /* by id of a message */
    for (int n = p->graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = p->graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) waited[node->inputs[i].node->id] = n;
    }
    for (int n = 0; n < p->graph->n_nodes; n++) {
        const Node *node = p->graph->nodes[n];
        if (node_is_once(node) && node->op == OP_ALL_GATHER) keep_once(p, node, waited[n]);
        if (!node_overlaps(node)) continue;
        const Node *reader = p->graph->nodes[waited[n]];
        int value = value_index(node->inputs[0]);
        bool here = waited[n] > n && segment_of(reader) == segment_of(node);
        here &= lanes || reader->block == node->block;
        if (here && p->last_use[value] < reader->id) p->last_use[value] = reader->id;
    }
}

static bool reads_alone(const Graph *graph, int first, int end, int node) {
    for (int k = first; k < end; k++) {
        bool same = value_equal(graph->nodes[k]->inputs[0], graph->nodes[node]->inputs[0]);
        if (k != node && same) return false;
    }
    return true;
}

/* Messages of a group run at the same time: all operands stay to the last one. */
static void keep_groups(Planner *p) {
    const Graph *graph = p->graph;
    for (int n = 0, end; n < graph->n_nodes; n = end) {
        end = message_group_end(graph, n);
        for (int k = n; k < end && end > n + 1; k++) {
            int value = value_index(graph->nodes[k]->inputs[0]);
            p->group_first[k] = n;
            p->last_alone[k] = p->last_use[value] == k && reads_alone(graph, n, end, k);
            if (p->last_use[value] < end - 1) p->last_use[value] = end - 1;
        }
    }
}

/* A value on its way to the host stays until the next block of its task is done, beside which it
 * is copied: what is written there would wait for it. */
static void keep_offloaded(Planner *p) {
    const Graph *graph = p->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        int value, end = n, next = NO_BLOCK;
        if (node->op != OP_OFFLOAD) continue;
        for (int k = n + 1; k < graph->n_nodes; k++) {
            const Node *other = graph->nodes[k];
            bool work = OPS[other->op].flags & KERNEL && !(OPS[other->op].flags & COLLECTIVE);
            if (segment_of(other) != segment_of(node)) break;
            if (!work || other->op == OP_OFFLOAD || other->block == NO_BLOCK) continue;
            if (next == NO_BLOCK && other->block != node->block) next = other->block;
            if (next != NO_BLOCK && other->block == next) end = k;
            if (next != NO_BLOCK && other->block != next && other->block != node->block) break;
        }
        value = value_index(node->inputs[0]);
        if (p->last_use[value] < end) p->last_use[value] = end;
    }
}

/* Does what lives to `last` die with the node, which may lie on it? */
static bool dies_with(const Planner *p, const Node *node, int last) {
    return last == node->id ||
           (p->last_alone[node->id] && last == message_group_end(p->graph, node->id) - 1);
}

static BufferClass persistent_class(const Node *node) {
    switch (node->op) {
    case OP_PARAM: return CLASS_PARAMETER;
    case OP_VARIABLE: return CLASS_OPTIMIZER;
    case OP_STATE: return node_is_copy(node) ? CLASS_PARAMETER : CLASS_OPTIMIZER;
    case OP_ACCUMULATOR: return CLASS_GRADIENT;
    default: return CLASS_INPUT;
    }
}

static bool same_local_shape(const Planner *p, Value a, Value b) {
    const Mesh *mesh = &p->graph->mesh;
    return value_type(a)->dtype == value_type(b)->dtype &&
           type_equal(value_type(a), value_type(b)) &&
           type_local_bytes(value_type(a), value_sharding(a), mesh) ==
               type_local_bytes(value_type(b), value_sharding(b), mesh);
}

static bool is_behind(const Node *node) {
    return node->phase == PHASE_BACKWARD || node->phase == PHASE_WEIGHTS;
}

/* May a result of the node live in this storage? A frame in its own backward and weights, scratch
 * of its own segment, and an accumulator in the update: the next step overwrites it. */
static bool is_near(const Storage *storage, const Node *node) {
    switch (storage->region) {
    case REGION_FRAME: return is_behind(node) && storage->chunk == node->chunk;
    case REGION_SCRATCH: return storage->segment == segment_of(node);
    case REGION_PERSISTENT: return storage->class == CLASS_GRADIENT && node->phase == PHASE_UPDATE;
    default: return false;
    }
}

/* The storage of operand i, if result `o` of the node may take it over; else -1. Results after the
 * first only in frames of a backward in two, which would grow for the length of the node: how
 * scratch is laid out decides which products of a GPU are one (join_products.h). */
static int find_reusable(const Planner *p, const Node *node, int i, int o) {
    Value in = node->inputs[i], out = node_value((Node *)node, o);
    if (!op_may_reuse(node, i) || OPS[in.node->op].flags & PERSISTENT) return -1;
    if (in.node->op == OP_INPUT) return -1;
    int at = p->storage_of[value_index(in)];
    const Storage *storage = &p->storages[at];
    if (o > 0 && !p->keep[value_index(out)]) return -1;
    for (int k = 0; k < o; k++) {
        if (p->storage_of[node->id * MAX_OUTPUTS + k] == at) return -1; /* an earlier one has it */
    }
    int frame = p->frame[value_index(out)];
    bool kept_here = storage->region == REGION_FRAME && storage->chunk == frame;
    if (p->keep[value_index(out)] && !kept_here) return -1;
    if (!dies_with(p, node, storage->last)) return -1;
    return is_near(storage, node) && same_local_shape(p, in, out) ? at : -1;
}

/* A storage that output `o` of the node takes over, or -1. A product's is taken first: on a GPU the
 * product may do the node's work too, and must not write what it reads (an activation's input). */
static int find_shared(const Planner *p, const Node *node, int o) {
    int alias = op_alias(node, o), found = -1;
    if (alias >= 0) return p->storage_of[value_index(node->inputs[alias])];
    for (int i = 0; o == 0 && p->cuda && i < node->n_inputs && found < 0; i++) {
        if (node->inputs[i].node->op == OP_MATMUL) found = find_reusable(p, node, i, o);
    }
    for (int i = 0; i < node->n_inputs && found < 0; i++) {
        found = find_reusable(p, node, i, o);
    }
    return found;
}

static Storage new_storage(const Planner *p, const Node *node, int o) {
    int value = node->id * MAX_OUTPUTS + o;
    Storage storage = {.region = REGION_SCRATCH, .class = CLASS_SCRATCH, .chunk = node->chunk};
    storage.bytes = align(type_local_bytes(&node->types[o], &node->shardings[o], &p->graph->mesh));
    storage.largest = storage.bytes;
    storage.segment = segment_of(node);
    storage.first = node->op == OP_RECV ? -1 : node->id; /* written before the segment starts */
    if (node_is_joined(node)) storage.first = p->group_first[node->id];
    storage.last = p->last_use[value] > node->id ? p->last_use[value] : node->id;
    if (node->op == OP_OFFLOAD) {
        storage.region = REGION_HOST_FRAME;
        storage.class = CLASS_ACTIVATION;
        return storage;
    }
    if (OPS[node->op].flags & PERSISTENT) {
        storage.region = p->on_host[node->id] ? REGION_HOST : REGION_PERSISTENT;
        storage.class = persistent_class(node);
    } else if (p->keep[value] || node->op == OP_INPUT) {
        storage.region = REGION_FRAME;
        storage.class = node->op == OP_INPUT ? CLASS_INPUT : CLASS_ACTIVATION;
        if (p->keep[value]) storage.chunk = p->frame[value];
    }
    return storage;
}

/* A parameter and its upper half have one, whichever comes first: *half is its index, -1 before. */
static int storage_of_halves(Planner *p, const Node *parameter, int *half) {
    if (*half < 0) {
        *half = p->n_storages++;
        p->storages[*half] = new_storage(p, parameter, 0);
    }
    return *half;
}

static void make_storages(Planner *p) {
    const Node **pairs = master_pairs(p->graph, p->arena);
    int *storage_of = ARENA_ARRAY(p->arena, int, p->graph->n_nodes + 1);
    for (int n = 0; n < p->graph->n_nodes; n++) storage_of[n] = -1;
    for (int n = 0; n < p->graph->n_nodes; n++) {
        const Node *node = p->graph->nodes[n];
        const Node *parameter = node->op == OP_PARAM && pairs[n] ? node : pairs[n];
        for (int o = 0; o < node->n_outputs; o++) {
            int value = n * MAX_OUTPUTS + o;
            int shared = parameter ? storage_of_halves(p, parameter, &storage_of[parameter->id])
                                   : find_shared(p, node, o);
            if (shared < 0) {
                shared = p->n_storages++;
                p->storages[shared] = new_storage(p, node, o);
            } else if (p->last_use[value] > p->storages[shared].last) {
                p->storages[shared].last = p->last_use[value];
            }
            p->storage_of[value] = shared;
        }
    }
}

/* Gradients of q, k and v that CUDA's backend may multiply as one operand lie one behind the other,
 * the last one first (stack_products.h), each until it has been read. */
static void join_gradients(Planner *p) {
    for (int n = 0; n < p->graph->n_nodes; n++) {
        const Node *node = p->graph->nodes[n];
        const int *made = &p->storage_of[n * MAX_OUTPUTS];
        bool scratch = program_stacked_bytes(p->graph, node) > 0;
        for (int o = 0; scratch && o < node->n_outputs; o++)
            scratch = p->storages[made[o]].region == REGION_SCRATCH;
        for (int o = 1; scratch && o < node->n_outputs; o++) {
            Storage *storage = &p->storages[made[o]], *next = &p->storages[made[o - 1]];
            storage->behind = next;
            next->follows = true;
            if (next->largest > storage->largest) storage->largest = next->largest;
        }
    }
}

/* An accumulator into which nothing is added (a shared weight whose use on this stage has no
 * gradient) is zero from the start, and no first share makes it so again: nothing may borrow it.
 * Nor one of no parameter, which the engine may read after a step, or a forward alone. */
static void keep_untouched_accumulators(Planner *p) {
    const Graph *graph = p->graph;
    bool *written = ARENA_ARRAY(p->arena, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int o = 0; o < node->n_outputs; o++) {
            int alias = op_alias(node, o);
            if (alias >= 0) written[node->inputs[alias].node->id] = true;
        }
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *leaf = graph->nodes[n];
        if (leaf->op != OP_ACCUMULATOR || (written[n] && node_string(leaf, ATTR_of)[0])) continue;
        p->storages[p->storage_of[n * MAX_OUTPUTS]].last = FOREVER;
    }
}

/* Of one node's results the last one comes first: gradients of q, k and v then lie as accumulators
 * of their weights do, which are in the order of the backward (join_products.h). */
static int by_size(const void *left, const void *right) {
    const Storage *a = *(Storage *const *)left, *b = *(Storage *const *)right;
    if (a->largest != b->largest) return a->largest < b->largest ? 1 : -1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return a < b ? 1 : -1;
}

static int64_t find_room(const Room *room, const Storage *storage, int64_t offset) {
    return room_find(room, (Life){storage->first, storage->last}, storage->bytes, offset);
}

static void take_room(Room *room, const Storage *storage) {
    room_add(room, (Life){storage->first, storage->last}, storage->bytes, storage->offset);
}

static bool is_shard(const Node *node) {
    for (int i = 0; i < node->types[0].rank; i++) {
        if (mesh_is_replicas(node->shardings[0].mesh[i])) return true;
    }
    return false;
}

/* May the storage take room of accumulators? Shards over d of the update only. */
static bool may_borrow(const Planner *p, const Storage *storage) {
    if (storage->region != REGION_SCRATCH || storage->segment != UPDATE_SEGMENT) return false;
    const Node *node = p->graph->nodes[storage->first];
    bool large = node->op == OP_REDUCE_SCATTER || node->op == OP_SLICE ||
                 node->op == OP_ROUND_BLOCKS || op_is_cast(node->op);
    return large && is_shard(node);
}

static int by_end(const void *left, const void *right) {
    const Storage *a = *(Storage *const *)left, *b = *(Storage *const *)right;
    if (a->last != b->last) return a->last < b->last ? -1 : 1;
    return a < b ? -1 : 1;
}

static bool is_gradient(const Storage *storage) {
    return storage->region == REGION_PERSISTENT && storage->class == CLASS_GRADIENT;
}

/* Lays out the accumulators, one after the other as they fall free, so that what is free is in one
 * piece, and there, in the order of time, what borrows from them. False: nothing does. */
static bool pack_gradients(Planner *p) {
    Storage **order = ARENA_ARRAY(p->arena, Storage *, p->n_storages + 1);
    int count = 0, n_borrowers = 0;
    int64_t end = 0;
    for (int i = 0; i < p->n_storages; i++) {
        Storage *storage = &p->storages[i];
        n_borrowers += may_borrow(p, storage);
        if (!is_gradient(storage)) continue;
        storage->first = -1;
        order[count++] = storage;
    }
    qsort(order, (size_t)count, sizeof(*order), by_end);
    Room *room = room_create(p->graph->n_nodes, p->arena);
    for (int i = 0; i < count; i++) {
        order[i]->offset = end;
        end += order[i]->bytes;
        take_room(room, order[i]);
    }
    for (int i = 0; n_borrowers && i < p->n_storages; i++) {
        Storage *storage = &p->storages[i];
        if (!may_borrow(p, storage)) continue;
        bool message = p->graph->nodes[storage->first]->op == OP_REDUCE_SCATTER;
        int64_t offset = find_room(room, storage, 0), needed = offset + storage->bytes;
        if (needed > end && !message) continue;
        storage->region = REGION_PERSISTENT;
        storage->class = CLASS_GRADIENT;
        storage->offset = offset;
        take_room(room, storage);
        if (needed > end) end = needed;
    }
    p->gradient_bytes = n_borrowers ? end : 0;
    return n_borrowers > 0;
}

/* Where a storage, and what lies behind it, have room; returns where they end. */
static int64_t find_rooms(const Room *room, Storage *first) {
    int64_t offset = 0, end = 0;
    for (bool moved = true; moved;) {
        moved = false;
        end = offset;
        for (Storage *at = first; at && !moved; at = at->behind) {
            at->offset = find_room(room, at, end);
            moved = at->offset > end;
            offset += at->offset - end;
            end = at->offset + at->bytes;
        }
    }
    return end;
}

static int64_t pack_segment(Planner *p, Storage **order, int count) {
    Room *room = room_create(p->graph->n_nodes, p->arena);
    int64_t peak = 0;
    qsort(order, (size_t)count, sizeof(*order), by_size);
    for (int i = 0; i < count; i++) {
        int64_t end = find_rooms(room, order[i]);
        for (Storage *at = order[i]; at; at = at->behind) take_room(room, at);
        if (end > peak) peak = end;
    }
    return peak;
}

/* Of scratch, and not placed with another? */
static bool is_packed(const Planner *p, int storage) {
    return p->storages[storage].region == REGION_SCRATCH && !p->storages[storage].follows;
}

/* Values of scratch, segment by segment. */
static void pack_scratch(Planner *p) {
    Storage **order = ARENA_ARRAY(p->arena, Storage *, p->n_storages + 1);
    int end[UPDATE_SEGMENT + 2] = {0}; /* of each segment's, one behind the other in `order` */
    for (int i = 0; i < p->n_storages; i++) end[p->storages[i].segment + 1] += is_packed(p, i);
    for (int segment = 0; segment <= UPDATE_SEGMENT; segment++) end[segment + 1] += end[segment];
    for (int i = 0; i < p->n_storages; i++) {
        if (is_packed(p, i)) order[end[p->storages[i].segment]++] = &p->storages[i];
    }
    for (int segment = 0, begin = 0; segment <= UPDATE_SEGMENT; begin = end[segment++]) {
        int count = end[segment] - begin;
        int64_t peak = count ? pack_segment(p, order + begin, count) : 0;
        if (peak > p->program->scratch_bytes) p->program->scratch_bytes = peak;
    }
}

/* Frames from whose values some die in the backward, and others come to be kept: by lifetimes, but
 * inputs, which lie apart. */
static void pack_frames(Planner *p) {
    Storage **order = ARENA_ARRAY(p->arena, Storage *, p->n_storages + 1);
    for (int chunk = 0; chunk < MAX_CHUNKS; chunk++) {
        int64_t *bytes = &p->program->frame_bytes[chunk], base;
        int count = 0;
        for (int i = 0; i < p->n_storages; i++) {
            Storage *storage = &p->storages[i];
            if (storage->region != REGION_FRAME || storage->chunk != chunk) continue;
            if (storage->class != CLASS_INPUT) {
                order[count++] = storage;
                continue;
            }
            storage->offset = *bytes;
            *bytes += storage->bytes;
        }
        if (count == 0) continue;
        base = *bytes;
        *bytes += pack_segment(p, order, count);
        for (int i = 0; i < count; i++) order[i]->offset += base;
    }
}

static void place_persistent(Program *program, Storage *storage) {
    storage->offset = program->persistent_bytes;
    program->persistent_bytes += storage->bytes;
    program->class_bytes[storage->class] += storage->bytes;
}

static void place_storages(Planner *p) {
    Program *program = p->program;
    bool packed = pack_gradients(p); /* gradients have their place then, from 0 on */
    program->persistent_bytes = program->class_bytes[CLASS_GRADIENT] = p->gradient_bytes;
    for (int i = 0; i < p->n_storages; i++) {
        Storage *storage = &p->storages[i];
        if (storage->region == REGION_HOST) {
            storage->offset = program->host_bytes;
            program->host_bytes += storage->bytes;
        } else if (storage->region == REGION_PERSISTENT && !(packed && is_gradient(storage))) {
            place_persistent(program, storage);
        } else if (storage->region == REGION_HOST_FRAME) {
            storage->offset = program->host_frame_bytes[storage->chunk];
            program->host_frame_bytes[storage->chunk] += storage->bytes;
        } else if (storage->region == REGION_FRAME && !p->splits) {
            storage->offset = program->frame_bytes[storage->chunk];
            program->frame_bytes[storage->chunk] += storage->bytes;
        }
    }
    if (p->splits) pack_frames(p);
    pack_scratch(p);
}

static void local_types(const Graph *graph, const Node *node, Type *inputs, Type *outputs) {
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        inputs[i] = type_local(value_type(input), value_sharding(input), &graph->mesh);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        outputs[o] = type_local(&node->types[o], &node->shardings[o], &graph->mesh);
    }
}

static void count_flops(Program *program) {
    const Graph *graph = program->graph;
    Arena *arena = arena_create();
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        Type *inputs = ARENA_ARRAY(arena, Type, node->n_inputs + 1), outputs[MAX_OUTPUTS];
        local_types(graph, node, inputs, outputs);
        double flops = OPS[node->op].flops(node, inputs, outputs);
        if (node->phase == PHASE_FORWARD) program->forward_flops[node->chunk] += flops;
        if (is_behind(node)) program->backward_flops[node->chunk] += flops;
        if (node->phase == PHASE_UPDATE) program->update_flops += flops;
    }
    arena_destroy(arena);
}

static int count_outputs(const Graph *graph) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) n += graph->nodes[i]->n_outputs;
    return n;
}

void plan_places(Program *program, int n_chunks, bool cuda, int offload, Arena *arena) {
    const Graph *graph = program->graph;
    int n_values = graph->n_nodes * MAX_OUTPUTS;
    Arena *work = arena_create();
    Planner p = {.program = program, .graph = graph, .cuda = cuda, .arena = work};
    p.storages = ARENA_ARRAY(work, Storage, count_outputs(graph) + 1);
    p.storage_of = ARENA_ARRAY(work, int, n_values + 1);
    p.last_use = ARENA_ARRAY(work, int, n_values + 1);
    p.keep = ARENA_ARRAY(work, bool, n_values + 1);
    p.frame = ARENA_ARRAY(work, int, n_values + 1);
    p.group_first = ARENA_ARRAY(work, int, graph->n_nodes + 1);
    p.last_alone = ARENA_ARRAY(work, bool, graph->n_nodes + 1);
    if (n_chunks > MAX_CHUNKS) BUG("%d chunks", n_chunks);
    p.on_host = offload_choose(graph, offload, work);
    find_uses(&p);
    keep_squares(&p);
    keep_outputs(&p);
    if (cuda) keep_sent(&p);
    if (cuda) keep_offloaded(&p);
    keep_groups(&p);
    make_storages(&p);
    if (cuda) join_gradients(&p);
    keep_untouched_accumulators(&p);
    place_storages(&p);
    program->buffers = ARENA_ARRAY(arena, Buffer, n_values + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int o = 0; o < node->n_outputs; o++) {
            const Storage *storage = &p.storages[p.storage_of[n * MAX_OUTPUTS + o]];
            program->buffers[n * MAX_OUTPUTS + o] = (Buffer){
                .region = storage->region,
                .class = storage->class,
                .offset_bytes = storage->offset,
                .bytes = type_local_bytes(&node->types[o], &node->shardings[o], &graph->mesh),
                .chunk = storage->chunk};
        }
    }
    arena_destroy(work);
}

void plan_memory(Program *program, int n_chunks, bool cuda, int offload, Arena *arena) {
    plan_places(program, n_chunks, cuda, offload, arena);
    program->scratch_bytes += program_workspace(program->graph, cuda).total;
    count_flops(program);
}

void plan_stage_layout(const Plan *plan, Stage *stage) {
    const Program *program = &plan->programs[stage->program];
    int64_t at = 0;
    stage->persistent_base = at;
    at += program->persistent_bytes;
    plan_choose_pools(plan, stage);
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        stage->frame_base[pool] = at;
        at += stage->frame_slots[pool] * plan_slot_bytes(plan, stage, pool);
    }
    stage->message_base = at;
    stage->message_bytes = 0;
    for (int i = 0; i < plan->n_channels; i++) {
        const Channel *channel = &plan->channels[i];
        if (&plan->stages[channel->from] == stage) {
            stage->message_bytes += channel->slots * channel->slot_bytes;
        }
    }
    at += stage->message_bytes;
    stage->scratch_base = at;
    stage->arena_bytes = at + program->scratch_bytes;
}
