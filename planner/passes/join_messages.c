/* join_messages: with --zero 2 and 3 on a GPU, one message for what a block gathers in a task, and
 * one for what it reduces (as FSDP's units have it: Zhao et al. 2023, arXiv 2304.11277).
 *
 * A message takes a latency, which grows with the ranks, and its bytes' time: on many ranks the
 * latencies of a block's weights, one by one, are longer than all their bytes. Those of one block,
 * task and mesh axis become neighbours and a group (ir/message_group.h), beside the work of one
 * block:
 *
 *   weights     gathered when the first of those gathered before them is read, so while the block
 *               before them is computed
 *   gradients   reduced and added to their shards when the last of the next group's is made, so
 *               while the next block is computed
 *
 * What it costs is memory, of two blocks' weights and gradients. What belongs to no block (the
 * embedding, the head) has messages of its own, in the same row. Sums that are read in their task
 * stay where they are.
 */
#include "planner/passes/data_messages.h"

#include "ir/message_group.h"

#include <stdlib.h>
#include <string.h>

/* Messages of one group. turn: the node that decides when it has to be there, or can begin. */
typedef struct Unit {
    int turn, count, capacity;
    int *ids;
} Unit;

typedef struct Joiner {
    PassContext *ctx;
    const Graph *in;
    DataPlace *places; /* by id */
    int *first_use;    /* by id: of its result, or n_nodes */
    const int *n_uses;
    bool *used_here; /* by id: its result is read in its own task */
    bool *joined;    /* by id */
    Unit *gathers, *sums;
    int n_gathers, n_sums; /* of the task at hand */
} Joiner;

static const Node *message_of(const Node *node) {
    return node->op == OP_ACCUMULATE ? node->inputs[1].node : node;
}

static bool same_group(const Node *a, const Node *b) {
    return a->block >= 0 && a->block == b->block &&
           strcmp(node_string(message_of(a), ATTR_mesh), node_string(message_of(b), ATTR_mesh)) ==
               0;
}

static bool may_move(const Joiner *j, const Node *gather) {
    int use = j->first_use[gather->id];
    return data_is_gather(gather) && use < j->in->n_nodes &&
           data_same_task(j->in->nodes[use], gather);
}

/* A sum that its own task reads no further, and that is no share's second one. */
static bool may_wait(const Joiner *j, const Node *node) {
    if (!data_is_sum(node) || j->n_uses[node->inputs[1].node->id * MAX_OUTPUTS] > 1) return false;
    return node->inputs[0].node->op == OP_ACCUMULATOR && !j->used_here[node->id] &&
           data_same_task(node, node->inputs[1].node);
}

static void find_uses(Joiner *j) {
    const Graph *in = j->in;
    for (int n = 0; n < in->n_nodes; n++) j->first_use[n] = in->n_nodes;
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (n < j->first_use[from->id]) j->first_use[from->id] = n;
            if (data_same_task(node, from)) j->used_here[from->id] = true;
        }
    }
}

/* Of the messages in the task so far, the last with its group decides whether it is another one. */
static void add(Joiner *j, Unit *units, int *n_units, const Node *node) {
    for (int k = *n_units - 1; k >= 0; k--) {
        Unit *unit = &units[k];
        const Node *first = j->in->nodes[unit->ids[0]];
        if (!same_group(first, node) || unit->count == MESSAGE_GROUP_MOST) continue;
        ARENA_PUSH(j->ctx->arena, unit->ids, unit->count, unit->capacity, node->id);
        return;
    }
    Unit *unit = &units[(*n_units)++];
    *unit = (Unit){0};
    ARENA_PUSH(j->ctx->arena, unit->ids, unit->count, unit->capacity, node->id);
}

static int by_turn(const void *left, const void *right) {
    const Unit *a = left, *b = right;
    return a->turn != b->turn ? (a->turn < b->turn ? -1 : 1) : a->ids[0] - b->ids[0];
}

/* Each group before the first reader of the one before it. What is gathered is moved ahead of it.
 */
static void place_gathers(Joiner *j) {
    for (int k = 0; k < j->n_gathers; k++) {
        Unit *unit = &j->gathers[k];
        unit->turn = j->in->n_nodes;
        for (int i = 0; i < unit->count; i++) {
            int use = j->first_use[unit->ids[i]];
            if (use < unit->turn) unit->turn = use;
        }
    }
    qsort(j->gathers, (size_t)j->n_gathers, sizeof(*j->gathers), by_turn);
    for (int k = 0; k < j->n_gathers; k++) {
        const Unit *unit = &j->gathers[k];
        int at = j->gathers[k > 0 ? k - 1 : 0].turn;
        for (int i = 0; i < unit->count; i++) {
            const Node *leaf = j->in->nodes[unit->ids[i]]->inputs[0].node;
            if (j->places[leaf->id].at >= at) data_place(j->places, leaf->id, at, DATA_RANK_LEAF);
            data_place(j->places, unit->ids[i], at, k - j->n_gathers);
            j->joined[unit->ids[i]] = i > 0;
        }
    }
}

/* Each group behind the last gradient of the one behind it: messages first, then sums. */
static void place_sums(Joiner *j) {
    for (int k = 0; k < j->n_sums; k++) {
        Unit *unit = &j->sums[k];
        unit->turn = -1;
        for (int i = 0; i < unit->count; i++) {
            const Node *reduce = message_of(j->in->nodes[unit->ids[i]]);
            const Node *made = reduce->inputs[0].node;
            if (!data_same_task(made, reduce)) made = reduce; /* kept from the backward before */
            if (made->id > unit->turn) unit->turn = made->id;
        }
    }
    qsort(j->sums, (size_t)j->n_sums, sizeof(*j->sums), by_turn);
    for (int k = 0; k < j->n_sums; k++) {
        const Unit *unit = &j->sums[k];
        int at = j->sums[k + 1 < j->n_sums ? k + 1 : k].turn;
        for (int i = 0; i < unit->count; i++) {
            const Node *sum = j->in->nodes[unit->ids[i]];
            int reduce = message_of(sum)->id, accumulator = sum->inputs[0].node->id;
            if (j->places[accumulator].at > at) data_place(j->places, accumulator, at, 3 * k + 1);
            data_place(j->places, reduce, at, 3 * k + 2);
            data_place(j->places, sum->id, at, 3 * k + 3);
            j->joined[reduce] = i > 0;
        }
    }
}

/* Task by task: their nodes follow one another. */
static void join(Joiner *j) {
    const Node *last = NULL;
    for (int n = 0; n <= j->in->n_nodes; n++) {
        const Node *node = n < j->in->n_nodes ? j->in->nodes[n] : NULL;
        if (node && OPS[node->op].flags & LEAF && node->op != OP_RECV) continue;
        if (last && (!node || !data_same_task(node, last))) {
            place_gathers(j);
            place_sums(j);
            j->n_gathers = j->n_sums = 0;
        }
        if (!node) break;
        if (may_move(j, node)) add(j, j->gathers, &j->n_gathers, node);
        if (may_wait(j, node)) add(j, j->sums, &j->n_sums, node);
        last = node;
    }
}

Graph *pass_join_messages(const Graph *in, PassContext *ctx) {
    bool moves = ctx->options.zero >= ZERO_GRADIENTS && mesh_size(&in->mesh, MESH_DEC) > 1;
    if (!ctx->options.cuda || !ctx->options.join_messages || !moves) return (Graph *)in;
    int most = in->n_nodes + 1;
    Joiner j = {.ctx = ctx,
                .in = in,
                .places = data_places_create(in, ctx->arena),
                .n_uses = graph_count_uses(in, ctx->arena),
                .first_use = ARENA_ARRAY(ctx->arena, int, most),
                .used_here = ARENA_ARRAY(ctx->arena, bool, most),
                .joined = ARENA_ARRAY(ctx->arena, bool, most),
                .gathers = ARENA_ARRAY(ctx->arena, Unit, most),
                .sums = ARENA_ARRAY(ctx->arena, Unit, most)};
    find_uses(&j);
    join(&j);
    return data_rearrange(in, j.places, j.joined, ctx);
}
