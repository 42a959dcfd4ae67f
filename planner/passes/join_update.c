/* join_update: on a GPU, messages of one kind in the update go together.
 *
 * A message takes a latency, which grows with the ranks, and its bytes' time. Gradients of gains
 * and biases are latency alone, and on many ranks those of a small model's weights, too. As buckets
 * of data-parallel engines have it (Li et al. 2020, arXiv 2006.15704) messages over one mesh axis
 * become a group (ir/message_group.h), one after the other as gradients are completed, up to
 * update_group_bytes: sums of gradients, over t, d and then r, and updated weights on their way
 * into the memory of what they replace. What the update is still to read much of stays where it is:
 * the norms of LAMB and Muon, whose tensors would all have to wait for them. A search prices
 * messages one by one, and counts groups itself (stage_weights.c).
 *
 * A group stands where the last of it stood; what reads one of its results comes behind it. What is
 * in a group needs the results of equally many groups one after the other, its level, so that no
 * two groups wait for each other: sums over r are groups of shards from several groups over d.
 * Calls among pipeline stages, which have other groups, keep their order.
 */
#include "planner/passes/data_messages.h"

#include "ir/message_group.h"
#include "planner/plan/update_groups.h"

#include <string.h>

/* Messages of one group; those of one op, mesh axis and level are made one after the other. */
typedef struct Unit {
    const Node *first;
    int level;
    int64_t bytes;
    int *ids, count, capacity;
} Unit;

typedef struct Joiner {
    PassContext *ctx;
    const Graph *in;
    Unit *units;
    int n_units;
    int *unit_of; /* by id: of a message, its unit; else -1 */
    int *level;   /* by id: of units that have to be there first, one after the other, how many */
    int *after;   /* by id: of a call among stages, the one before it; else -1 */
    Graph *out;
    ValueMap map;
    bool *done;   /* by id: is in `out` */
    int *waiting; /* ids, ascending: behind a group that is still to come */
    int n_waiting;
} Joiner;

static bool is_sum(const Node *node) {
    return node->phase == PHASE_UPDATE &&
           (node->op == OP_ALL_REDUCE || node->op == OP_REDUCE_SCATTER);
}

/* Of a gradient: all that was made of it in the update is sums. */
static bool sums_gradient(const Node *node) {
    while (is_sum(node)) node = node->inputs[0].node;
    return node->phase != PHASE_UPDATE || node->op == OP_ACCUMULATOR;
}

static bool is_message(const Node *node) {
    bool into = node->op == OP_ALL_GATHER && node->n_inputs == 2;
    return node->phase == PHASE_UPDATE && (into || (is_sum(node) && sums_gradient(node)));
}

static const char *mesh_of(const Node *node) {
    return node_string(node, ATTR_mesh);
}

static bool is_stage_call(const Node *node) {
    if (node->op == OP_STAGE_REDUCE) return true;
    return node->op == OP_ALL_REDUCE && strcmp(mesh_of(node), mesh_axis_name(MESH_P)) == 0;
}

static int64_t whole_bytes(const Joiner *j, const Node *node) {
    Value whole = node->op == OP_ALL_GATHER ? node_value((Node *)node, 0) : node->inputs[0];
    return type_local_bytes(value_type(whole), value_sharding(whole), &j->in->mesh);
}

static int64_t group_bytes(const Joiner *j, const Node *node) {
    const char *name = mesh_of(node);
    int mesh = mesh_axis_find(name, (int)strlen(name));
    return update_group_bytes(mesh_size(&j->in->mesh, mesh));
}

/* May the node be one of the unit's? */
static bool may_join(const Joiner *j, int u, const Node *node) {
    const Unit *unit = &j->units[u];
    return unit->count < MESSAGE_GROUP_MOST &&
           unit->bytes + whole_bytes(j, node) <= group_bytes(j, node);
}

/* The last unit of the node's kind, or a new one. What is too large for any is one by itself, and
 * small ones before it and after it still go together. */
static int find_unit(Joiner *j, const Node *node) {
    for (int u = j->n_units - 1; u >= 0; u--) {
        const Unit *unit = &j->units[u];
        bool alike = unit->first->op == node->op && unit->level == j->level[node->id] &&
                     strcmp(mesh_of(unit->first), mesh_of(node)) == 0;
        if (!alike || unit->bytes > group_bytes(j, node)) continue;
        if (may_join(j, u, node)) return u;
        break;
    }
    j->units[j->n_units] = (Unit){.first = node, .level = j->level[node->id]};
    return j->n_units++;
}

static void add(Joiner *j, const Node *node) {
    int u = find_unit(j, node);
    Unit *unit = &j->units[u];
    ARENA_PUSH(j->ctx->arena, unit->ids, unit->count, unit->capacity, node->id);
    unit->bytes += whole_bytes(j, node);
    j->unit_of[node->id] = u;
}

static void find_units(Joiner *j) {
    int last = -1;
    for (int n = 0; n < j->in->n_nodes; n++) {
        const Node *node = j->in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            int from = node->inputs[i].node->id, u = j->unit_of[from];
            int level = u < 0 ? j->level[from] : j->units[u].level + 1;
            if (level > j->level[n]) j->level[n] = level;
        }
        j->unit_of[n] = j->after[n] = -1;
        if (is_message(node)) add(j, node);
        if (!is_stage_call(node) || node->phase != PHASE_UPDATE) continue;
        if (last >= 0 && j->level[last] > j->level[n]) j->level[n] = j->level[last];
        j->after[n] = last;
        last = n;
    }
}

static bool operands_done(const Joiner *j, const Node *node) {
    if (j->after[node->id] >= 0 && !j->done[j->after[node->id]]) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!j->done[node->inputs[i].node->id]) return false;
    }
    return true;
}

static bool copy(Joiner *j, int id, bool joined) {
    Node *node = value_map_copy(&j->map, j->in->nodes[id], j->out, j->ctx->diag);
    if (node && joined) data_mark_joined(node, j->ctx->arena);
    j->done[id] = true;
    return node != NULL;
}

/* A message's turn is its group's, at the last one's. *out_done: it had it. */
static bool try_node(Joiner *j, int id, bool *out_done) {
    const Unit *unit = j->unit_of[id] < 0 ? NULL : &j->units[j->unit_of[id]];
    *out_done = false;
    if (!unit) {
        *out_done = operands_done(j, j->in->nodes[id]);
        return !*out_done || copy(j, id, false);
    }
    if (id != unit->ids[unit->count - 1]) {
        *out_done = true; /* not it, but nothing has to wait for its turn */
        return true;
    }
    for (int k = 0; k < unit->count; k++) {
        if (!operands_done(j, j->in->nodes[unit->ids[k]])) return true;
    }
    for (int k = 0; k < unit->count; k++) {
        if (!copy(j, unit->ids[k], k > 0)) return false;
    }
    *out_done = true;
    return true;
}

/* Those that can go now, until none can. */
static bool release(Joiner *j) {
    for (bool moved = true; moved;) {
        int n_kept = 0;
        moved = false;
        for (int k = 0; k < j->n_waiting; k++) {
            bool done;
            if (!try_node(j, j->waiting[k], &done)) return false;
            if (!done) j->waiting[n_kept++] = j->waiting[k];
            moved |= done;
        }
        j->n_waiting = n_kept;
    }
    return true;
}

static Graph *rebuild(Joiner *j) {
    for (int n = 0; n < j->in->n_nodes; n++) {
        bool done;
        if (!try_node(j, n, &done)) return NULL;
        if (!done) j->waiting[j->n_waiting++] = n;
        bool group = done && j->unit_of[n] >= 0 && j->done[n];
        if (group && !release(j)) return NULL;
    }
    if (j->n_waiting) BUG("join_update: groups wait for one another");
    return j->out;
}

Graph *pass_join_update(const Graph *in, PassContext *ctx) {
    int most = in->n_nodes + 1;
    if (!ctx->options.cuda || ctx->options.priced) return (Graph *)in;
    Joiner j = {.ctx = ctx,
                .in = in,
                .units = ARENA_ARRAY(ctx->arena, Unit, most),
                .unit_of = ARENA_ARRAY(ctx->arena, int, most),
                .level = ARENA_ARRAY(ctx->arena, int, most),
                .after = ARENA_ARRAY(ctx->arena, int, most),
                .done = ARENA_ARRAY(ctx->arena, bool, most),
                .waiting = ARENA_ARRAY(ctx->arena, int, most),
                .out = graph_create_like(in, ctx->arena),
                .map = value_map_create(in, ctx->arena)};
    find_units(&j);
    if (j.n_units == 0) return (Graph *)in;
    return rebuild(&j);
}
