/* offload_activations: what a forward keeps of a block for its backward lies in the host's memory
 * meanwhile, as Megatron-LM's fine-grained offloading and torchtitan have it.
 *
 * Such a value is copied out (`offload`) behind its block, beside the next block's work, and back
 * (`fetch`) at the beginning of the backward of the block behind, beside that one's. So a rank has
 * the values of two blocks at a time, in scratch, whose places follow from these nodes like any
 * other's (plan_memory), and a frame keeps nothing of them on the device.
 *
 * The last block of a chunk keeps its values: its copies would have no work beside them. So does
 * whatever others than its block's backward read, and what is small beside the block's largest
 * value, for which a copy of its own would cost more than it frees.
 */
#include "ir/message_group.h"
#include "planner/passes/pass.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_SHARE = 32 }; /* a value that is smaller than the block's largest by this stays */

typedef struct BlockNodes {
    int last_forward;   /* ids of work; -1: none */
    int first_backward; /* or of what reads a kept value, whichever comes first */
    int before;         /* the block whose backward comes right before; itself: none does */
} BlockNodes;

/* Of one value that may go: who reads it behind. */
typedef struct Kept {
    int block, first_reader; /* block -1: it stays */
} Kept;

typedef struct Offloader {
    PassContext *ctx;
    const Graph *in;
    Graph *out;
    ValueMap map, fetched; /* fetched: what the backward reads; no node: as the forward does */
    Kept *kept;            /* by value */
    BlockNodes *blocks;    /* [n_chunks * n_blocks] */
    int n_chunks, n_blocks;
    /* By id: values that go out behind the node, and come back before it; lists by `next`. */
    int *out_behind, *back_before, *next_out, *next_back;
} Offloader;

static bool is_work(const Node *node) {
    return OPS[node->op].flags & KERNEL && !(OPS[node->op].flags & COLLECTIVE);
}

static BlockNodes *block_of(const Offloader *o, int chunk, int block) {
    return &o->blocks[chunk * o->n_blocks + block];
}

static int64_t value_bytes(const Offloader *o, int value) {
    const Node *node = o->in->nodes[value / MAX_OUTPUTS];
    int output = value % MAX_OUTPUTS;
    return type_local_bytes(&node->types[output], &node->shardings[output], &o->in->mesh);
}

static void find_blocks(Offloader *o) {
    for (int n = 0; n < o->in->n_nodes; n++) {
        const Node *node = o->in->nodes[n];
        if (node->chunk >= o->n_chunks) o->n_chunks = node->chunk + 1;
        if (node->block >= o->n_blocks) o->n_blocks = node->block + 1;
    }
    o->blocks = ARENA_ARRAY(o->ctx->arena, BlockNodes, o->n_chunks * o->n_blocks + 1);
    for (int i = 0; i < o->n_chunks * o->n_blocks; i++) o->blocks[i] = (BlockNodes){-1, -1, -1};
    for (int n = 0; n < o->in->n_nodes; n++) {
        const Node *node = o->in->nodes[n];
        if (node->block == NO_BLOCK || node->chunk < 0 || !is_work(node)) continue;
        BlockNodes *block = block_of(o, node->chunk, node->block);
        if (node->phase == PHASE_FORWARD && !node_is_once(node)) block->last_forward = n;
        if (node->phase == PHASE_BACKWARD && block->first_backward < 0) block->first_backward = n;
    }
}

static bool may_go(const Node *node, int output) {
    bool stays = OPS[node->op].flags & PERSISTENT || node->op == OP_INPUT || node_is_once(node);
    return !stays && node->phase == PHASE_FORWARD && op_alias(node, output) < 0;
}

/* The last block with work of the chunk's forward; -1: none. */
static int find_last(const Offloader *o, int chunk) {
    int last = -1, at = -1;
    for (int b = 0; b < o->n_blocks; b++) {
        if (block_of(o, chunk, b)->last_forward <= at) continue;
        at = block_of(o, chunk, b)->last_forward;
        last = b;
    }
    return last;
}

/* Fills `kept`: values that only the backward of one block, not the chunk's last, reads behind. */
static void find_kept(Offloader *o) {
    const Graph *in = o->in;
    bool *others = ARENA_ARRAY(o->ctx->arena, bool, in->n_nodes *MAX_OUTPUTS + 1);
    int *last = ARENA_ARRAY(o->ctx->arena, int, o->n_chunks + 1);
    for (int c = 0; c < o->n_chunks; c++) last[c] = find_last(o, c);
    for (int v = 0; v < in->n_nodes * MAX_OUTPUTS; v++) o->kept[v] = (Kept){-1, -1};
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            int value = from->id * MAX_OUTPUTS + node->inputs[i].output;
            Kept *kept = &o->kept[value];
            bool forward = node->phase == PHASE_FORWARD && node->chunk == from->chunk;
            if (!may_go(from, node->inputs[i].output)) continue;
            if (forward && node->op != OP_OUTPUT) continue;
            bool behind = node->phase == PHASE_BACKWARD && node->chunk == from->chunk &&
                          node->block != NO_BLOCK && node->op != OP_SEND;
            behind &= kept->block < 0 || kept->block == node->block;
            others[value] |= !behind;
            if (kept->block < 0) *kept = (Kept){node->block, n};
        }
    }
    for (int v = 0; v < in->n_nodes * MAX_OUTPUTS; v++) {
        int chunk = in->nodes[v / MAX_OUTPUTS]->chunk;
        if (o->kept[v].block < 0) continue;
        if (others[v] || o->kept[v].block == last[chunk]) o->kept[v].block = -1;
    }
}

/* A value that may go, for sorting: by block, largest first. */
typedef struct Size {
    int place, value; /* place: of the block among all of the stage */
    int64_t bytes;
} Size;

static int by_block_and_size(const void *left, const void *right) {
    const Size *a = left, *b = right;
    if (a->place != b->place) return a->place - b->place;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->value - b->value;
}

/* Of each block's values, the largest first, as many as make up the share that was asked for, to
 * half of the smallest. */
static void choose(Offloader *o) {
    Size *sizes = ARENA_ARRAY(o->ctx->arena, Size, o->in->n_nodes * MAX_OUTPUTS + 1);
    int count = 0;
    for (int v = 0; v < o->in->n_nodes * MAX_OUTPUTS; v++) {
        if (o->kept[v].block < 0) continue;
        int at = o->in->nodes[v / MAX_OUTPUTS]->chunk * o->n_blocks + o->kept[v].block;
        sizes[count++] = (Size){at, v, value_bytes(o, v)};
    }
    qsort(sizes, (size_t)count, sizeof(*sizes), by_block_and_size);
    for (int first = 0, end; first < count; first = end) {
        double left = 0;
        for (end = first; end < count && sizes[end].place == sizes[first].place; end++) {
            if (sizes[end].bytes < sizes[first].bytes / SMALL_SHARE)
                o->kept[sizes[end].value].block = -1;
            else
                left += (double)sizes[end].bytes * o->ctx->options.offload_activations / 100;
        }
        for (int i = first; i < end; i++) {
            Kept *kept = &o->kept[sizes[i].value];
            if (left < (double)sizes[i].bytes / 2) kept->block = -1;
            if (kept->block >= 0) left -= (double)sizes[i].bytes;
        }
    }
}

/* Messages of a group stand one behind the other. */
static int behind_group(const Graph *graph, int n) {
    while (n + 1 < graph->n_nodes && node_is_joined(graph->nodes[n + 1])) n++;
    return n;
}

/* The block whose backward comes right before that of `block`; itself: none does. */
static int find_before(const Offloader *o, int chunk, int block) {
    BlockNodes *own = block_of(o, chunk, block);
    int at = -1;
    if (own->before >= 0) return own->before;
    own->before = block;
    for (int b = 0; b < o->n_blocks; b++) {
        int begins = block_of(o, chunk, b)->first_backward;
        if (begins < 0 || begins >= own->first_backward || begins <= at) continue;
        at = begins;
        own->before = b;
    }
    return own->before;
}

static void place(Offloader *o) {
    const Graph *in = o->in;
    for (int v = 0; v < in->n_nodes * MAX_OUTPUTS; v++) {
        const Node *node = in->nodes[v / MAX_OUTPUTS];
        const Kept *kept = &o->kept[v];
        if (kept->block < 0) continue;
        BlockNodes *own = block_of(o, node->chunk, kept->block);
        if (own->first_backward < 0 || kept->first_reader < own->first_backward) {
            own->first_backward = kept->first_reader;
        }
    }
    for (int v = 0; v < in->n_nodes * MAX_OUTPUTS; v++) {
        const Node *node = in->nodes[v / MAX_OUTPUTS];
        const Kept *kept = &o->kept[v];
        if (kept->block < 0) continue;
        int home = node->block == NO_BLOCK ? kept->block : node->block;
        int last = block_of(o, node->chunk, home)->last_forward;
        int behind = behind_group(in, node->id > last ? node->id : last);
        int before =
            block_of(o, node->chunk, find_before(o, node->chunk, kept->block))->first_backward;
        while (node_is_joined(in->nodes[before])) before--;
        o->next_out[v] = o->out_behind[behind];
        o->out_behind[behind] = v;
        o->next_back[v] = o->back_before[before];
        o->back_before[before] = v;
    }
}

static Node *add_copy(Offloader *o, OpKind op, int value, Value from) {
    const Node *node = o->in->nodes[value / MAX_OUTPUTS];
    int block = o->kept[value].block;
    if (op == OP_OFFLOAD && node->block != NO_BLOCK) block = node->block;
    Node *copy = graph_add(o->out,
                           &(NodeSpec){.op = op,
                                       .inputs = &from,
                                       .n_inputs = 1,
                                       .n_outputs = 1,
                                       .phase = op == OP_OFFLOAD ? PHASE_FORWARD : PHASE_BACKWARD,
                                       .block = block,
                                       .chunk = node->chunk,
                                       .loc = node->loc},
                           o->ctx->diag);
    if (copy) copy->shardings[0] = node->shardings[value % MAX_OUTPUTS];
    return copy;
}

static Value value_at(const Offloader *o, int value) {
    return node_value(o->in->nodes[value / MAX_OUTPUTS], value % MAX_OUTPUTS);
}

static Node *copy_node(Offloader *o, const Node *node) {
    Value *inputs = ARENA_ARRAY(o->ctx->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        Value back = *value_map_at(&o->fetched, node->inputs[i]);
        bool far = node->phase == PHASE_BACKWARD && back.node;
        inputs[i] = far ? back : *value_map_at(&o->map, node->inputs[i]);
    }
    Node *copy = graph_copy_node(o->out, node, inputs, o->ctx->diag);
    if (copy) value_map_set_node(&o->map, node, copy);
    return copy;
}

static bool rebuild(Offloader *o) {
    const Graph *in = o->in;
    Value *far = ARENA_ARRAY(o->ctx->arena, Value, in->n_nodes * MAX_OUTPUTS + 1);
    for (int n = 0; n < in->n_nodes; n++) {
        for (int v = o->back_before[n]; v >= 0; v = o->next_back[v]) {
            Node *back = add_copy(o, OP_FETCH, v, far[v]);
            if (!back) return false;
            *value_map_at(&o->fetched, value_at(o, v)) = node_value(back, 0);
        }
        if (!copy_node(o, in->nodes[n])) return false;
        for (int v = o->out_behind[n]; v >= 0; v = o->next_out[v]) {
            Node *away = add_copy(o, OP_OFFLOAD, v, *value_map_at(&o->map, value_at(o, v)));
            if (!away) return false;
            far[v] = node_value(away, 0);
        }
    }
    return true;
}

Graph *pass_offload_activations(const Graph *in, PassContext *ctx) {
    Arena *arena = ctx->arena;
    const size_t n_values = (size_t)in->n_nodes * MAX_OUTPUTS + 1;
    if (!ctx->options.offload_activations) return (Graph *)in;
    Offloader o = {.ctx = ctx, .in = in, .out = graph_create_like(in, arena)};
    o.map = value_map_create(in, arena);
    o.fetched = value_map_create(in, arena);
    o.kept = ARENA_ARRAY(arena, Kept, n_values);
    o.out_behind = ARENA_ARRAY(arena, int, in->n_nodes + 1);
    o.back_before = ARENA_ARRAY(arena, int, in->n_nodes + 1);
    o.next_out = ARENA_ARRAY(arena, int, n_values);
    o.next_back = ARENA_ARRAY(arena, int, n_values);
    memset(o.out_behind, -1, ((size_t)in->n_nodes + 1) * sizeof(int));
    memset(o.back_before, -1, ((size_t)in->n_nodes + 1) * sizeof(int));
    find_blocks(&o);
    find_kept(&o);
    choose(&o);
    place(&o);
    return rebuild(&o) ? o.out : NULL;
}
