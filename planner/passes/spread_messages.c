/* spread_messages: with --zero 2 and 3, time for the messages over d within forward and backward.
 *
 *   weights     gathered twice in one block and phase (as --recompute has it) are gathered once;
 *               on a GPU before what else is multiplied meanwhile, not only by the product that
 *               reads them
 *   gradients   on a GPU reduced and added to their shards only after what else is multiplied
 *               meanwhile
 *
 * A message takes as long as its bytes are many, and so does what is computed with as many bytes of
 * weights: each message gets room beside the work on ZERO_LEAD times its own bytes. What it means
 * is memory: what is gathered, or to be reduced, lies there for so long, and the runtime starts a
 * message as soon as its data and its memory allow (runtime/cuda/order.c). Messages keep the order
 * in which their weights are read and their gradients made; where a large one would have to
 * overtake, it gets less time rather than others more memory. They stay in their task: of each, the
 * first gather is waited for, and the last sum.
 * In a process on CPUs nothing overlaps, and no memory is spent.
 */
#include "planner/passes/data_messages.h"

#include <stdlib.h>
#include <string.h>

/* A node's place in the new order: where node `at` was, or behind that. */
typedef struct Place {
    int at, node; /* ids */
    bool behind;
} Place;

typedef struct Spreader {
    PassContext *ctx;
    const Graph *in;
    Place *places;       /* by id */
    Node **merged;       /* by id: the gather that stands for this one, or NULL */
    bool *fixed;         /* by id: a sum that cannot move */
    int *gathers, *sums; /* ids of one task's messages */
    int n_gathers, n_sums;
} Spreader;

static int64_t message_bytes(const Spreader *s, int id) {
    const Node *node = s->in->nodes[id];
    return type_local_bytes(&node->types[0], &node->shardings[0], &s->in->mesh);
}

/* Gathers of the same weight for the same block are the first of them. */
static void merge_gathers(Spreader *s) {
    /* Of a weight, by its id, and before a gather of it, by that one's: the last that stays. */
    Node **last = ARENA_ARRAY(s->ctx->arena, Node *, s->in->n_nodes + 1);
    Node **before = ARENA_ARRAY(s->ctx->arena, Node *, s->in->n_nodes + 1);
    for (int n = 0; n < s->in->n_nodes; n++) {
        Node *node = s->in->nodes[n];
        if (!data_is_gather(node)) continue;
        Node **of = &last[node->inputs[0].node->id], *other = *of;
        while (other && data_same_task(other, node) && other->block != node->block) {
            other = before[other->id];
        }
        if (other && data_same_task(other, node)) {
            s->merged[n] = other;
        } else {
            before[n] = *of;
            *of = node;
        }
    }
}

/* How far back from gather k, or how far on from sum k, ZERO_LEAD times its bytes reach. */
static int find_lead(const Spreader *s, const int *ids, int count, int k, int step) {
    int64_t bytes = 0, wanted = ZERO_LEAD * message_bytes(s, ids[k]);
    int at = k;
    while (bytes < wanted && at + step >= 0 && at + step < count) {
        at += step;
        bytes += message_bytes(s, ids[at]);
    }
    return at;
}

static void place(Spreader *s, const Node *node, int at) {
    s->places[node->id].at = at;
    s->places[node->id].behind = true;
}

/* A leaf has to be there when it is gathered. None goes before one that is read earlier. */
static void place_gathers(Spreader *s) {
    int latest = 0;
    for (int k = 0; k < s->n_gathers; k++) {
        int from = find_lead(s, s->gathers, s->n_gathers, k, -1);
        if (from > latest) latest = from;
        int at = s->gathers[latest];
        const Node *node = s->in->nodes[s->gathers[k]], *leaf = node->inputs[0].node;
        if (at == node->id) continue;
        if (s->places[leaf->id].at > at) place(s, leaf, at); /* another gather may have had it */
        place(s, node, at);
    }
}

/* Sums that are read in their task by what does not move as they do, and those of a share that is
 * added to others, too. */
static void find_fixed(Spreader *s) {
    int *uses = graph_count_uses(s->in, s->ctx->arena);
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        if (data_is_sum(node)) s->fixed[n] = uses[node->inputs[1].node->id * MAX_OUTPUTS] > 1;
    }
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *sum = node->inputs[i].node;
            bool moves = data_is_sum(node) && node->inputs[0].node == sum;
            if (data_is_sum(sum) && data_same_task(node, sum) && !moves) s->fixed[sum->id] = true;
        }
    }
}

/* None goes behind one that is made later, so those of one accumulator stay in order. One that is
 * fixed stays, with all before it. */
static void place_sums(Spreader *s) {
    int first = 0;
    for (int k = 0; k < s->n_sums; k++) {
        if (s->fixed[s->sums[k]]) first = k + 1;
    }
    for (int k = s->n_sums - 1, earliest = k; k >= first; k--) {
        const Node *node = s->in->nodes[s->sums[k]];
        int to = find_lead(s, s->sums, s->n_sums, k, 1);
        if (to < earliest) earliest = to;
        int at = s->sums[earliest];
        place(s, node, at); /* also where it is: those that come to it are made before */
        place(s, node->inputs[1].node, at);
    }
}

static void spread_task(Spreader *s) {
    place_gathers(s);
    place_sums(s);
    s->n_gathers = s->n_sums = 0;
}

/* Task by task: their nodes follow one another. */
static void spread(Spreader *s) {
    const Node *last = NULL;
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        if (OPS[node->op].flags & LEAF && node->op != OP_RECV) continue;
        if (last && !data_same_task(node, last)) spread_task(s);
        if (data_is_gather(node) && !s->merged[n]) s->gathers[s->n_gathers++] = n;
        if (data_is_sum(node)) s->sums[s->n_sums++] = n;
        last = node;
    }
    spread_task(s);
}

static int by_place(const void *left, const void *right) {
    const Place *a = left, *b = right;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    if (a->behind != b->behind) return a->behind ? 1 : -1;
    return a->node - b->node;
}

static Graph *rebuild(Spreader *s) {
    Graph *out = graph_create_like(s->in, s->ctx->arena);
    ValueMap map = value_map_create(s->in, s->ctx->arena);
    qsort(s->places, (size_t)s->in->n_nodes, sizeof(*s->places), by_place);
    for (int k = 0; k < s->in->n_nodes; k++) {
        const Node *node = s->in->nodes[s->places[k].node];
        const Node *merged = s->merged[node->id];
        if (merged) {
            *value_map_at(&map, node_value((Node *)node, 0)) =
                *value_map_at(&map, node_value((Node *)merged, 0));
        } else if (!value_map_copy(&map, node, out, s->ctx->diag)) {
            return NULL;
        }
    }
    return out;
}

Graph *pass_spread_messages(const Graph *in, PassContext *ctx) {
    if (ctx->options.zero < ZERO_GRADIENTS || mesh_size(&in->mesh, MESH_DEC) < 2)
        return (Graph *)in;
    Spreader s = {.ctx = ctx, .in = in};
    s.places = ARENA_ARRAY(ctx->arena, Place, in->n_nodes + 1);
    s.merged = ARENA_ARRAY(ctx->arena, Node *, in->n_nodes + 1);
    s.fixed = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1);
    s.gathers = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 1);
    s.sums = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 1);
    for (int n = 0; n < in->n_nodes; n++) s.places[n] = (Place){.at = n, .node = n};
    merge_gathers(&s);
    find_fixed(&s);
    if (ctx->options.cuda) spread(&s);
    return rebuild(&s);
}
