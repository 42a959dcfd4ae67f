/* fuse: elementwise nodes become `fused` nodes, so that one pass over memory serves several. Nodes
 * of a group have one shape and sharding, block, chunk and phase; it runs at the place of the last.
 *
 *   chains    A producer joins its consumer when every other reader of it comes after the consumer.
 *             What others read too becomes a further result.
 *   siblings  Groups that read the same large operand, neither of which needs the other, join when
 *             nothing but elementwise nodes stands between them: so no product has to run while an
 *             operand or a result of either waits for the other.
 *   again     What groups of a later phase read of the forward they compute again, if they read its
 *             operands anyway and nobody else asks for it: it is then stored nowhere, and no frame
 *             keeps it. In f32 bits are the same; 16 bits lose a rounding, as nothing inside a
 *             program is rounded.
 *
 * A gated layer, silu(gate) * up, needs all three: its two gradients are siblings (they share that
 * of the product), and compute silu again, from the gate whose gradient they make.
 */
#include "ir/expr.h"
#include "ir/reported.h"
#include "planner/passes/pass.h"

#include <string.h>

typedef struct Group {
    int count, capacity;
    Node **members; /* in execution order; the last one is where the group runs */
} Group;

typedef struct Fuser {
    PassContext *ctx;
    const Graph *in;
    int *group_of; /* by node id, -1: none */
    Group *groups; /* by id of the last member */
    int *lowest;   /* by id of a group: no node that is or was in it comes before */
    int **readers, *n_readers, *reader_capacity;
    int *n_nodes_reading; /* of readers, in order; behind them what note_reads adds */
    bool *reported;       /* by node id: validation runs it, too */
} Fuser;

static bool is_cast(const Node *node) {
    return op_is_cast(node->op);
}

static bool is_elementwise(const Node *node) {
    return OPS[node->op].flags & ELEMENTWISE_BIT && !node_is_once(node) &&
           (node->types[0].rank > 0 || is_cast(node)) && node->n_inputs <= EXPR_MAX_OPERANDS;
}

static bool same_shape(const Node *a, const Node *b) {
    return type_same_shape(&a->types[0], &b->types[0]) &&
           sharding_equal(&a->shardings[0], &b->shardings[0], a->types[0].rank) &&
           a->phase == b->phase && a->chunk == b->chunk && a->block == b->block;
}

static bool in_group(const Group *group, const Node *node) {
    for (int i = 0; i < group->count; i++) {
        if (group->members[i] == node) return true;
    }
    return false;
}

static const Node *last_of(const Group *group) {
    return group->members[group->count - 1];
}

static Group *group_of(const Fuser *f, int node) {
    return f->group_of[node] >= 0 ? &f->groups[f->group_of[node]] : NULL;
}

/* Of a node of an earlier phase, whose own group makes it for all others. */
static bool is_copy(const Group *group, const Node *member) {
    return member->phase != last_of(group)->phase;
}

/* Of a node that only copies compute now. */
static bool has_left(const Fuser *f, const Node *node) {
    const Group *group = group_of(f, node->id);
    return group && !in_group(group, node);
}

static bool reads(const Group *group, Value value) {
    for (int i = 0; i < group->count; i++) {
        for (int k = 0; k < group->members[i]->n_inputs; k++) {
            if (value_equal(group->members[i]->inputs[k], value)) return true;
        }
    }
    return false;
}

/* Not if the group has its own copy of the node, or what read it has left. */
static bool still_reads(const Group *group, const Node *node) {
    return !in_group(group, node) && reads(group, node_value((Node *)node, 0));
}

/* Does anybody but the group read its member, instead of computing it again? */
static bool is_result(const Fuser *f, const Group *group, const Node *node) {
    if (is_copy(group, node)) return false;
    for (int k = 0; k < f->n_readers[node->id]; k++) {
        int reader = f->readers[node->id][k];
        const Group *other = group_of(f, reader);
        if (in_group(group, f->in->nodes[reader])) continue;
        if (!other || still_reads(other, node)) return true;
    }
    return false;
}

/* Distinct operands from outside, and results read outside, of the union of two groups. */
static bool fits(const Fuser *f, const Group *joined) {
    Value inputs[EXPR_MAX_INSTRUCTIONS * EXPR_MAX_OPERANDS];
    int n_inputs = 0, n_outputs = 0;
    const Type *type = &last_of(joined)->types[0];
    if (joined->count > EXPR_MAX_INSTRUCTIONS) return false;
    for (int i = 0; i < joined->count; i++) {
        const Node *node = joined->members[i];
        for (int k = 0; k < node->n_inputs; k++) {
            bool known = in_group(joined, node->inputs[k].node);
            for (int j = 0; j < n_inputs; j++) known |= value_equal(inputs[j], node->inputs[k]);
            if (!known) inputs[n_inputs++] = node->inputs[k];
        }
        n_outputs += is_result(f, joined, node);
    }
    /* Inference takes the first of the widest operands as the result's shape. */
    int widest = 0;
    for (int i = 1; i < n_inputs; i++) {
        if (value_type(inputs[i])->rank > value_type(inputs[widest])->rank) widest = i;
    }
    return n_inputs <= EXPR_MAX_INPUTS && n_outputs <= OPS[OP_FUSED].n_outputs &&
           type_same_shape(value_type(inputs[widest]), type);
}

/* Moving `group` down to `at` is legal if nobody outside reads its results before. */
static bool can_move(const Fuser *f, const Group *group, const Group *into, int at) {
    for (int i = 0; i < group->count; i++) {
        const Node *node = group->members[i];
        for (int k = 0; k < f->n_readers[node->id] && !is_copy(group, node); k++) {
            int reader = f->readers[node->id][k];
            /* A reader inside a group runs where that group's last member is. */
            const Group *other = group_of(f, reader);
            int runs = other ? f->group_of[reader] : reader;
            if (other == group || other == into || (other && !still_reads(other, node))) continue;
            if (runs <= at) return false;
        }
    }
    return true;
}

/* A cast of something narrower (a bias) that only this group reads: done again for each element it
 * meets, which costs less than a pass over memory and rounds nothing. */
static bool is_own_cast(const Fuser *f, const Node *producer, const Node *consumer) {
    const Group *group = &f->groups[f->group_of[consumer->id]];
    if (!is_cast(producer) || f->groups[f->group_of[producer->id]].count > 1) return false;
    for (int k = 0; k < f->n_readers[producer->id]; k++) {
        if (!in_group(group, f->in->nodes[f->readers[producer->id][k]])) return false;
    }
    return producer->types[0].rank < consumer->types[0].rank &&
           producer->block == consumer->block && producer->chunk == consumer->chunk &&
           producer->phase == consumer->phase;
}

/* The members of both, in order; a copy that both have once. */
static Group merge(const Fuser *f, const Group *a, const Group *b) {
    Group joined = {0};
    for (int i = 0, j = 0; i < a->count || j < b->count;) {
        bool take_a = j == b->count || (i < a->count && a->members[i]->id <= b->members[j]->id);
        Node *next = take_a ? a->members[i++] : b->members[j++];
        if (joined.count && joined.members[joined.count - 1] == next) continue;
        ARENA_PUSH(f->ctx->arena, joined.members, joined.count, joined.capacity, next);
    }
    return joined;
}

/* Moves group `from` into `to`, which runs later. */
static bool join(Fuser *f, int from, int to) {
    Group *a = &f->groups[from], *b = &f->groups[to];
    if (a->count == 0 || b->count == 0 || from >= to) return false;
    if (!can_move(f, a, b, to)) return false;
    Group joined = merge(f, a, b);
    if (!fits(f, &joined)) return false;
    for (int i = 0; i < a->count; i++) {
        if (!is_copy(a, a->members[i])) f->group_of[a->members[i]->id] = to;
    }
    *b = joined;
    a->count = 0;
    if (f->lowest[from] < f->lowest[to]) f->lowest[to] = f->lowest[from];
    return true;
}

static bool try_producer(Fuser *f, Node *consumer, Node *producer) {
    int from = f->group_of[producer->id], to = f->group_of[consumer->id];
    if (from < 0 || from == to || f->groups[from].count == 0) return false;
    return (same_shape(producer, consumer) || is_own_cast(f, producer, consumer)) &&
           join(f, from, to);
}

/* Joins the node's group with those that make its operands. */
static bool join_producers(Fuser *f, Node *node) {
    bool any = false;
    if (f->group_of[node->id] < 0 || has_left(f, node)) return false;
    for (int i = 0; i < node->n_inputs; i++) any |= try_producer(f, node, node->inputs[i].node);
    return any;
}

/* --- siblings --- */

/* Such a group may need no pass over memory at all. */
static bool may_be_epilogue(const Group *group) {
    for (int i = 0; i < group->count; i++) {
        if (!op_ends_product(group->members[i]->op)) return false;
    }
    return true;
}

/* Dropouts of one program are for the same rows. */
static bool same_lane(const Group *a, const Group *b) {
    const Group *both[] = {a, b};
    const Node *first = NULL;
    for (int g = 0; g < 2; g++) {
        for (int i = 0; i < both[g]->count; i++) {
            const Node *node = both[g]->members[i];
            if (node->op != OP_DROPOUT) continue;
            if (!first) first = node;
            if (node_int(node, ATTR_first, 0) != node_int(first, ATTR_first, 0)) return false;
            if (node_int(node, ATTR_count, 0) != node_int(first, ATTR_count, 0)) return false;
        }
    }
    return true;
}

/* Groups before `at` with nothing between that computes more than element by element. Not looked
 * for further away, so that graphs of thousands of such nodes do not take forever. */
typedef struct Close {
    int begin;  /* the first such group; `at`: none */
    int lowest; /* no node that is or was in one of them comes before */
} Close;

static Close find_close(const Fuser *f, int at) {
    enum { MOST_APART = 64 };
    Close close = {at, at};
    for (int n = at - 1; n >= 0 && at - n <= MOST_APART; n--) {
        bool elementwise = f->group_of[n] >= 0;
        if (elementwise && f->groups[n].count) {
            close.begin = n;
            if (f->lowest[n] < close.lowest) close.lowest = f->lowest[n];
        }
        if (!elementwise && !(OPS[f->in->nodes[n]->op].flags & LEAF)) break;
    }
    return close;
}

static bool try_sibling(Fuser *f, int from, int to) {
    const Group *a = &f->groups[from], *b = &f->groups[to];
    return a->count && same_shape(last_of(a), last_of(b)) && f->reported[from] == f->reported[to] &&
           !may_be_epilogue(a) && !may_be_epilogue(b) && same_lane(a, b) && join(f, from, to);
}

/* Joins the group with that of a node, if it is close and reads the value. */
static bool join_reader(Fuser *f, int at, const Close *close, Value value, int id) {
    const Node *reader = f->in->nodes[id];
    int from = f->group_of[id];
    bool same = false; /* result of the operand's node */
    if (from < close->begin || from >= at) return false;
    for (int j = 0; j < reader->n_inputs; j++) same |= value_equal(reader->inputs[j], value);
    return same && try_sibling(f, from, at);
}

/* How many of the nodes that read `node` come before another. */
static int count_readers_before(const Fuser *f, int node, int other) {
    int begin = 0, end = f->n_nodes_reading[node];
    while (begin < end) {
        int middle = begin + (end - begin) / 2;
        if (f->readers[node][middle] < other) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

/* The same with one of those that read the value, the last first. */
static bool join_some_reader(Fuser *f, int at, const Close *close, Value value) {
    int node = value.node->id;
    for (int r = f->n_readers[node] - 1; r >= f->n_nodes_reading[node]; r--) {
        if (join_reader(f, at, close, value, f->readers[node][r])) return true;
    }
    for (int r = count_readers_before(f, node, at) - 1; r >= 0; r--) {
        if (f->readers[node][r] < close->lowest) return false;
        if (join_reader(f, at, close, value, f->readers[node][r])) return true;
    }
    return false;
}

/* Joins the group with an earlier one that reads an operand as large as its results. */
static bool join_sibling(Fuser *f, int at) {
    const Group *group = &f->groups[at];
    const Close close = find_close(f, at);
    for (int i = 0; i < group->count && close.begin < at; i++) {
        const Node *node = group->members[i];
        for (int k = 0; k < node->n_inputs; k++) {
            if (!type_same_shape(value_type(node->inputs[k]), &last_of(group)->types[0])) continue;
            if (join_some_reader(f, at, &close, node->inputs[k])) return true;
        }
    }
    return false;
}

/* --- computing again --- */

/* A cast to 16 bits rounds where its result is stored, and would not then; random numbers cost more
 * than a pass over memory. */
static bool may_be_copied(const Node *node, bool read_as_stored) {
    bool rounds = is_cast(node) && node->types[0].dtype != DTYPE_F32;
    return node->op != OP_DROPOUT && !(rounds && read_as_stored);
}

/* Would the node give in the group's place what it gives in its own? */
static bool fits_phase(const Group *group, const Node *node) {
    const Node *last = last_of(group);
    return last->phase > node->phase && last->phase < PHASE_UPDATE && last->block == node->block &&
           last->chunk == node->chunk && type_same_shape(&last->types[0], &node->types[0]) &&
           sharding_equal(&last->shardings[0], &node->shardings[0], node->types[0].rank);
}

/* The group with a copy of `node`, and of what that is made of by the node's own group from what
 * the group reads anyway and numbers; or an empty one. */
static Group with_copies(const Fuser *f, const Group *group, Node *node) {
    const Group *own = group_of(f, node->id);
    Group joined = *group;
    Node *wanted[EXPR_MAX_INSTRUCTIONS] = {node};
    int n_wanted = 1;
    if (!fits_phase(group, node) || may_be_epilogue(group)) return (Group){0};
    for (int at = 0; at < n_wanted; at++) {
        Group one = {.count = 1, .members = &wanted[at]};
        for (int k = 0; k < wanted[at]->n_inputs; k++) {
            Value operand = wanted[at]->inputs[k];
            bool number = value_type(operand)->rank == 0 && operand.node->chunk == node->chunk;
            bool here = in_group(own, operand.node);
            if (reads(group, operand) || (number && !here)) continue;
            if (!here || !may_be_copied(operand.node, false) || n_wanted == EXPR_MAX_INSTRUCTIONS) {
                return (Group){0};
            }
            wanted[n_wanted++] = operand.node;
        }
        joined = merge(f, &one, &joined);
    }
    return fits(f, &joined) ? joined : (Group){0};
}

/* What copies read, their group reads: its last own member stands for it. */
static void note_reads(Fuser *f, const Group *group) {
    for (int i = 0; i < group->count; i++) {
        const Node *node = group->members[i];
        for (int k = 0; k < node->n_inputs && is_copy(group, node); k++) {
            int id = node->inputs[k].node->id;
            ARENA_PUSH(f->ctx->arena, f->readers[id], f->n_readers[id], f->reader_capacity[id],
                       last_of(group)->id);
        }
    }
}

static void remove_member(Group *group, const Node *node) {
    int count = 0;
    for (int i = 0; i < group->count; i++) {
        if (group->members[i] != node) group->members[count++] = group->members[i];
    }
    group->count = count;
}

/* The group goes on without a member that nobody reads, and without copies that only this read. */
static void leave(Fuser *f, Group *group, const Node *node) {
    Phase phase = node->phase;
    int n_own = 0;
    remove_member(group, node);
    for (int i = group->count - 1; i >= 0; i--) {
        Node *member = group->members[i];
        bool own = member->phase == phase;
        if (!own && !reads(group, node_value(member, 0))) remove_member(group, member);
        n_own += own;
    }
    if (n_own == 0) group->count = 0;
    if (group->count) note_reads(f, group);
}

/* All groups that read the node get copies of it, or none. Later nodes come first: what they are
 * made of may then follow them. */
static bool compute_again(Fuser *f, Node *node) {
    Group *own = group_of(f, node->id);
    bool again = false;
    if (!own || has_left(f, node) || !may_be_copied(node, true)) return false;
    for (int add = 0; add < 2; add++) {
        for (int k = 0; k < f->n_readers[node->id]; k++) {
            Group *reader = group_of(f, f->readers[node->id][k]);
            if (reader && (reader == own || !still_reads(reader, node))) continue;
            Group joined = reader ? with_copies(f, reader, node) : (Group){0};
            if (joined.count == 0) return again;
            if (!add) continue;
            again = true;
            *reader = joined;
            note_reads(f, reader);
        }
    }
    if (f->n_readers[node->id] == 0 || reads(own, node_value(node, 0))) return again;
    leave(f, own, node);
    return true;
}

/* One round; false: nothing has changed. With fewer operands and results more groups fit. */
static bool make_groups(Fuser *f) {
    int count = f->in->n_nodes;
    bool any = false;
    for (int n = 0; n < count; n++) any |= join_producers(f, f->in->nodes[n]);
    for (int n = 0; n < count; n++) {
        while (f->groups[n].count && join_sibling(f, n)) any = true;
    }
    for (int n = count - 1; n >= 0; n--) any |= compute_again(f, f->in->nodes[n]);
    return any;
}

/* --- the new graph --- */

static void find_readers(Fuser *f) {
    for (int n = 0; n < f->in->n_nodes; n++) {
        const Node *node = f->in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            int id = node->inputs[i].node->id;
            ARENA_PUSH(f->ctx->arena, f->readers[id], f->n_readers[id], f->reader_capacity[id], n);
        }
    }
    for (int n = 0; n < f->in->n_nodes; n++) f->n_nodes_reading[n] = f->n_readers[n];
}

static int operand_of(const Group *group, Value value, Value *inputs, int *n_inputs) {
    for (int i = 0; i < group->count; i++) {
        if (group->members[i] == value.node) return i;
    }
    for (int i = 0; i < *n_inputs; i++) {
        if (value_equal(inputs[i], value)) return ~i;
    }
    inputs[(*n_inputs)++] = value;
    return ~(*n_inputs - 1);
}

static bool emit_group(Fuser *f, const Group *group, ValueMap *map, Graph *out) {
    Expr expr = {.n_instructions = group->count};
    Value inputs[EXPR_MAX_INPUTS * 2];
    Node *results[MAX_OUTPUTS];
    const Node *last = last_of(group);
    for (int i = 0; i < group->count; i++) {
        const Node *node = group->members[i];
        expr.instructions[i] = expr_of_node(node).instructions[0];
        for (int k = 0; k < node->n_inputs; k++) {
            expr.instructions[i].operands[k] =
                operand_of(group, node->inputs[k], inputs, &expr.n_inputs);
        }
        if (!is_result(f, group, node)) continue;
        results[expr.n_outputs] = group->members[i];
        expr.outputs[expr.n_outputs++] = i;
    }
    for (int i = 0; i < expr.n_inputs; i++) inputs[i] = *value_map_at(map, inputs[i]);
    Node *node = pass_add_fused(out, &expr, inputs, last, f->ctx->diag);
    if (!node) return false;
    for (int i = 0; i < expr.n_outputs; i++) {
        node->shardings[i] = last->shardings[0];
        *value_map_at(map, node_value(results[i], 0)) = node_value(node, i);
    }
    return true;
}

Graph *pass_fuse(const Graph *in, PassContext *ctx) {
    Arena *arena = ctx->arena;
    int count = in->n_nodes + 1;
    Fuser f = {.ctx = ctx, .in = in};
    f.group_of = ARENA_ARRAY(arena, int, count);
    f.groups = ARENA_ARRAY(arena, Group, count);
    f.lowest = ARENA_ARRAY(arena, int, count);
    f.n_nodes_reading = ARENA_ARRAY(arena, int, count);
    f.readers = ARENA_ARRAY(arena, int *, count);
    f.n_readers = ARENA_ARRAY(arena, int, count);
    f.reader_capacity = ARENA_ARRAY(arena, int, count);
    f.reported = ARENA_ARRAY(arena, bool, count);
    find_readers(&f);
    graph_find_reported(in, f.reported);
    for (int n = 0; n < in->n_nodes; n++) {
        Group *group = &f.groups[n];
        f.group_of[n] = is_elementwise(in->nodes[n]) ? n : -1;
        f.lowest[n] = n;
        if (f.group_of[n] == n)
            ARENA_PUSH(arena, group->members, group->count, group->capacity, in->nodes[n]);
    }
    while (make_groups(&f)) continue;
    Graph *out = graph_create_like(in, arena);
    ValueMap map = value_map_create(in, arena);
    for (int n = 0; n < in->n_nodes; n++) {
        const Group *group = group_of(&f, n);
        if (group && (f.group_of[n] != n || group->count == 0)) continue;
        bool fine = group && group->count > 1
                        ? emit_group(&f, group, &map, out)
                        : value_map_copy(&map, group ? last_of(group) : in->nodes[n], out,
                                         ctx->diag) != NULL;
        if (!fine) return NULL;
    }
    return out;
}
