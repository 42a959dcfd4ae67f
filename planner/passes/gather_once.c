/* gather_once: on a GPU, weights that the last update left divided go to all ranks in groups, in
 * the order in which a step's first micro-batch reads them.
 *
 * With ZeRO-1 and 2 a rank's update leaves shards of new weights (shard_update.c). Gathered at the
 * end of the step, nothing would be beside these messages; at its beginning the forward is, as
 * data-parallel engines with a distributed optimizer have it (Megatron's overlap-param-gather).
 * Messages are groups (ir/message_group.h) as those of the update are, but smaller, since only what
 * is behind the first has any work beside it. Each begins when the first weight of the group before
 * it is read; its rounded shards lie there from then on until it has come.
 *
 * What is gathered by the update, as it always is on CPUs, is join_update's.
 */
#include "planner/passes/data_messages.h"

#include "ir/message_group.h"
#include "planner/plan/update_groups.h"

#include <stdlib.h>
#include <string.h>

/* A gather, who reads it first, and whether it is in a group already. */
typedef struct Gather {
    int id, turn;
    bool taken;
} Gather;

typedef struct Grouper {
    PassContext *ctx;
    const Graph *in;
    DataPlace *places; /* by id */
    int *first_use;    /* by id: of a result; n_nodes: nobody reads it */
    bool *joined;      /* by id */
    Gather *gathers;
    int n_gathers; /* of the chunk at hand */
} Grouper;

static bool is_gather(const Node *node) {
    return node->op == OP_ALL_GATHER && node_is_once(node);
}

static int64_t whole_bytes(const Grouper *g, const Node *node) {
    return type_local_bytes(&node->types[0], &node->shardings[0], &g->in->mesh);
}

static int count_ranks(const Grouper *g, const Node *gather) {
    const char *name = node_string(gather, ATTR_mesh);
    return mesh_size(&g->in->mesh, mesh_axis_find(name, (int)strlen(name)));
}

static int by_turn(const void *left, const void *right) {
    const Gather *a = left, *b = right;
    return a->turn != b->turn ? (a->turn < b->turn ? -1 : 1) : a->id - b->id;
}

/* Casts of a group first, from `rank` on, then its messages, one after the other: nodes are not in
 * the order of their readers. What they read is moved ahead of them. */
static void place_gather(Grouper *g, const Node *gather, int at, int rank, int member) {
    const Node *cast = gather->inputs[0].node, *copy = gather->inputs[1].node;
    const Node *param = cast->inputs[0].node;
    if (g->places[param->id].at >= at) data_place(g->places, param->id, at, DATA_RANK_LEAF);
    if (g->places[copy->id].at >= at) data_place(g->places, copy->id, at, DATA_RANK_LEAF + 1);
    data_place(g->places, cast->id, at, rank);
    data_place(g->places, gather->id, at, rank + 1 + member);
}

/* The gathers of a group, the first of them that at hand: of one communicator, until they have a
 * group's bytes. What has no room beside them is a group by itself; small ones before it and after
 * it go together, as do those of one communicator on either side of another's. */
static int take_group(const Grouper *g, int first, int *group) {
    const Node *begin = g->in->nodes[g->gathers[first].id];
    const int n_ranks = count_ranks(g, begin);
    const int64_t most = update_group_bytes(n_ranks);
    int64_t bytes = 0;
    int n = 0;
    for (int k = first; k < g->n_gathers && n < MESSAGE_GROUP_MOST; k++) {
        const Node *next = g->in->nodes[g->gathers[k].id];
        int64_t more = whole_bytes(g, next);
        bool same = strcmp(node_string(next, ATTR_mesh), node_string(begin, ATTR_mesh)) == 0;
        if (g->gathers[k].taken || !same || (n > 0 && bytes + more > most)) continue;
        g->gathers[k].taken = true;
        group[n++] = g->gathers[k].id;
        bytes += more;
        if (bytes >= weight_group_bytes(n_ranks)) break;
    }
    return n;
}

/* Groups of one chunk, whose forward begins with node `begin`. */
static void place_chunk(Grouper *g, int begin) {
    int rank = -4 * g->n_gathers, turn = begin, group[MESSAGE_GROUP_MOST];
    qsort(g->gathers, (size_t)g->n_gathers, sizeof(*g->gathers), by_turn);
    for (int first = 0; first < g->n_gathers; first++) {
        if (g->gathers[first].taken) continue;
        int n = take_group(g, first, group);
        for (int k = 0; k < n; k++) {
            place_gather(g, g->in->nodes[group[k]], turn, rank, k);
            g->joined[group[k]] = k > 0;
        }
        turn = g->gathers[first].turn;
        rank += 1 + n;
    }
    g->n_gathers = 0;
}

/* Chunk by chunk: the nodes of a forward follow one another. A weight that only what is behind the
 * forward reads comes last in it. */
static void place_all(Grouper *g) {
    const Graph *in = g->in;
    int begin = -1, end = 0;
    for (int n = 0; n <= in->n_nodes; n++) {
        const Node *node = n < in->n_nodes ? in->nodes[n] : NULL;
        if (node && OPS[node->op].flags & LEAF && node->op != OP_RECV) continue;
        const Node *first = begin >= 0 ? in->nodes[begin] : NULL;
        if (first && (!node || !data_same_task(node, first))) {
            for (int k = 0; k < g->n_gathers; k++) {
                if (g->gathers[k].turn > end) g->gathers[k].turn = end;
            }
            place_chunk(g, begin);
            begin = -1;
        }
        if (!node || node->phase != PHASE_FORWARD) break;
        if (begin < 0) begin = n;
        end = n;
        if (is_gather(node)) g->gathers[g->n_gathers++] = (Gather){n, g->first_use[n], false};
    }
}

Graph *pass_gather_once(const Graph *in, PassContext *ctx) {
    Grouper g = {.ctx = ctx, .in = in};
    int n_once = 0, most = in->n_nodes + 1;
    for (int n = 0; n < in->n_nodes; n++) {
        if (is_gather(in->nodes[n]) && node_is_joined(in->nodes[n])) return (Graph *)in;
        n_once += is_gather(in->nodes[n]);
    }
    if (n_once == 0) return (Graph *)in;
    g.places = data_places_create(in, ctx->arena);
    g.first_use = ARENA_ARRAY(ctx->arena, int, most);
    g.joined = ARENA_ARRAY(ctx->arena, bool, most);
    g.gathers = ARENA_ARRAY(ctx->arena, Gather, n_once);
    for (int n = 0; n < in->n_nodes; n++) {
        g.first_use[n] = in->n_nodes;
    }
    for (int n = in->n_nodes - 1; n >= 0; n--) {
        const Node *node = in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) g.first_use[node->inputs[i].node->id] = n;
    }
    place_all(&g);
    return data_rearrange(in, g.places, g.joined, ctx);
}
