/* hide_exchanges: work that an all-to-all does not need lies between its start and who reads it.
 *
 * Within one block of one task nodes are put in the order in which a rank with one stream for work
 * and one for all-to-alls would best begin them (list scheduling, Graham 1969): what a message that
 * is still to start waits for comes first, and while that itself waits, what can be done without:
 * the shared expert, products of weights' gradients, the other parts of the slots (part_slots.c).
 * Nodes of one kind keep their order, so what is added up is added in the same order, and every
 * rank, which runs the same program, has the same order of messages.
 *
 * How long the work takes beside a message is a guess in units of FLOPs: a rank's products, memory
 * and links in the proportions of an H100 whose group lies in a node. Where links are slower, less
 * work than could be is beside the first messages, and more beside the last, which gets all that is
 * left; so nothing is lost as long as all of it is shorter than the messages.
 *
 * In a process on CPUs nothing overlaps, and nothing moves.
 */
#include "planner/passes/pass.h"

#include <string.h>

/* 600 TFLOP/s in products, 3 TB/s of memory, 300 GB/s to others of the node. */
enum { FLOPS_PER_BYTE = 200, FLOPS_PER_BYTE_SENT = 2000 };

typedef struct Scheduler {
    PassContext *ctx;
    const Graph *in;
    Type *operands;     /* room for the widest node's */
    double *done;       /* by id: when it is, in FLOPs; of nodes with a place */
    uint64_t *messages; /* by id, a bit each: of its region, those that need it */
    bool *placed;       /* by id */
    int *order;         /* [n_nodes] ids */
    int n_placed;
} Scheduler;

static bool is_message(const Node *node) {
    return node_is_exchange(node);
}

static bool same_region(const Node *a, const Node *b) {
    return a->phase == b->phase && a->chunk == b->chunk && a->block == b->block;
}

static double estimate_flops(const Scheduler *s, const Node *node) {
    const Mesh *mesh = &s->in->mesh;
    Type outputs[MAX_OUTPUTS];
    double bytes = 0;
    if (!(OPS[node->op].flags & KERNEL)) return 0;
    for (int i = 0; i < node->n_inputs; i++) {
        const Value in = node->inputs[i];
        s->operands[i] = type_local(value_type(in), value_sharding(in), mesh);
        bytes += (double)type_local_bytes(value_type(in), value_sharding(in), mesh);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        outputs[o] = type_local(&node->types[o], &node->shardings[o], mesh);
        bytes += (double)type_local_bytes(&node->types[o], &node->shardings[o], mesh);
    }
    if (OPS[node->op].flags & COLLECTIVE) return bytes / 2 * FLOPS_PER_BYTE_SENT;
    double flops = OPS[node->op].flops(node, s->operands, outputs);
    return flops > bytes * FLOPS_PER_BYTE ? flops : bytes * FLOPS_PER_BYTE;
}

/* Which messages of [first, end) each node there is needed for; a message is so itself. More than
 * 64 share the last bit. Returns all. */
static uint64_t find_needs(Scheduler *s, int first, int end) {
    uint64_t next = 1, all = 0;
    for (int n = first; n < end; n++) {
        s->messages[n] = 0;
        if (!is_message(s->in->nodes[n])) continue;
        s->messages[n] = next;
        all |= next;
        if (next << 1) next <<= 1;
    }
    for (int n = end - 1; n >= first; n--) {
        const Node *node = s->in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            if (node->inputs[i].node->id >= first)
                s->messages[node->inputs[i].node->id] |= s->messages[n];
        }
    }
    return all;
}

/* When what the node reads of its region is there; -1: some of it has no place yet. */
static double find_ready(const Scheduler *s, const Node *node, int first) {
    double ready = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        int id = node->inputs[i].node->id;
        if (id < first) continue;
        if (!s->placed[id]) return -1;
        if (s->done[id] > ready) ready = s->done[id];
    }
    return ready;
}

/* The next node: of those that can start at `now` one that the first message still to come needs,
 * or else the second and so on; else any that can start, else the one that can soonest. `left`:
 * messages to come. *out_start: when. */
static int find_next(const Scheduler *s, int first, int end, uint64_t left, double now,
                     double *out_start) {
    int needed = -1, other = -1, soonest = -1;
    uint64_t for_message = 0;
    double soon = 0;
    for (int n = first; n < end; n++) {
        double ready = s->placed[n] ? -1 : find_ready(s, s->in->nodes[n], first);
        if (ready < 0) continue;
        uint64_t needs = s->messages[n] & left;
        needs &= -needs; /* the first alone */
        if (ready <= now && needs && (needed < 0 || needs < for_message)) {
            needed = n;
            for_message = needs;
        }
        if (ready <= now && other < 0) other = n;
        if (soonest < 0 || ready < soon) soonest = n, soon = ready;
    }
    *out_start = now;
    if (needed >= 0) return needed;
    if (other >= 0) return other;
    if (soonest < 0) BUG("hide_exchanges: no node of %d to %d can be next", first, end);
    *out_start = soon;
    return soonest;
}

/* Nodes [first, end), which are of one block and task. */
static void schedule_region(Scheduler *s, int first, int end) {
    double now = 0, sent = 0; /* when the work so far, and the messages so far, are done */
    uint64_t left = find_needs(s, first, end);
    bool any = left != 0;
    for (int n = first; n < end; n++) {
        double start = now;
        int next = any ? find_next(s, first, end, left, now, &start) : n;
        const Node *node = s->in->nodes[next];
        double took = any ? estimate_flops(s, node) : 0;
        if (is_message(node)) {
            left &= ~(s->messages[next] & -s->messages[next]);
            if (start > sent) sent = start;
            s->done[next] = sent += took;
            now = start;
        } else {
            s->done[next] = now = start + took;
        }
        s->placed[next] = true;
        s->order[s->n_placed++] = next;
    }
}

Graph *pass_hide_exchanges(const Graph *in, PassContext *ctx) {
    if (!ctx->options.cuda || ctx->options.waits_for_exchanges || in->mesh.size[MESH_E] < 2)
        return (Graph *)in;
    int n_nodes = in->n_nodes, most = 1;
    for (int n = 0; n < n_nodes; n++) {
        if (in->nodes[n]->n_inputs > most) most = in->nodes[n]->n_inputs;
    }
    Scheduler s = {.ctx = ctx, .in = in};
    s.operands = ARENA_ARRAY(ctx->arena, Type, most);
    s.done = ARENA_ARRAY(ctx->arena, double, n_nodes + 1);
    s.messages = ARENA_ARRAY(ctx->arena, uint64_t, n_nodes + 1);
    s.placed = ARENA_ARRAY(ctx->arena, bool, n_nodes + 1);
    s.order = ARENA_ARRAY(ctx->arena, int, n_nodes + 1);
    for (int first = 0, end; first < n_nodes; first = end) {
        for (end = first + 1; end < n_nodes; end++) {
            if (!same_region(in->nodes[first], in->nodes[end])) break;
        }
        schedule_region(&s, first, end);
    }
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    for (int k = 0; k < n_nodes; k++) {
        if (!value_map_copy(&map, in->nodes[s.order[k]], out, ctx->diag)) return NULL;
    }
    return out;
}
