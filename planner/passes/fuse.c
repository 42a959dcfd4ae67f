/* fuse: joins elementwise nodes that feed each other into one `fused` node, run at the place of the
 * last of them. A producer joins its consumer when both have the same shape and sharding, block,
 * chunk and phase, and every other reader of the producer comes after the consumer. A producer that
 * others read too becomes a further result, so one pass over memory serves all.
 */
#include "ir/expr.h"
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
    int **readers, *n_readers, *reader_capacity;
} Fuser;

static bool is_cast(const Node *node) {
    return op_is_cast(node->op);
}

static bool is_elementwise(const Node *node) {
    return OPS[node->op].flags & ELEMENTWISE_BIT && (node->types[0].rank > 0 || is_cast(node)) &&
           node->n_inputs <= EXPR_MAX_OPERANDS;
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

/* Distinct operands from outside, and results read outside, of the union of two groups. */
static bool fits(const Fuser *f, const Group *joined) {
    Value inputs[64];
    int n_inputs = 0, n_outputs = 0;
    const Type *type = &joined->members[joined->count - 1]->types[0];
    if (joined->count > EXPR_MAX_INSTRUCTIONS / 2) return false;
    for (int i = 0; i < joined->count; i++) {
        const Node *node = joined->members[i];
        bool outside = false;
        for (int k = 0; k < node->n_inputs; k++) {
            bool known = in_group(joined, node->inputs[k].node);
            for (int j = 0; j < n_inputs; j++) known |= value_equal(inputs[j], node->inputs[k]);
            if (!known) inputs[n_inputs++] = node->inputs[k];
        }
        for (int k = 0; k < f->n_readers[node->id]; k++) {
            outside |= !in_group(joined, f->in->nodes[f->readers[node->id][k]]);
        }
        n_outputs += outside;
    }
    /* Inference takes the first of the widest operands as the result's shape. */
    int widest = 0;
    for (int i = 1; i < n_inputs; i++) {
        if (value_type(inputs[i])->rank > value_type(inputs[widest])->rank) widest = i;
    }
    return n_inputs <= EXPR_MAX_INPUTS && n_outputs <= MAX_OUTPUTS &&
           type_same_shape(value_type(inputs[widest]), type);
}

/* Moving `group` down to `at` is legal if nobody outside reads its results before. */
static bool can_move(const Fuser *f, const Group *group, const Group *into, int at) {
    for (int i = 0; i < group->count; i++) {
        const Node *node = group->members[i];
        for (int k = 0; k < f->n_readers[node->id]; k++) {
            int reader = f->readers[node->id][k];
            /* A reader inside a group runs where that group's last member is. */
            int runs = f->group_of[reader] >= 0 ? f->group_of[reader] : reader;
            if (in_group(group, f->in->nodes[reader]) || in_group(into, f->in->nodes[reader])) {
                continue;
            }
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

static void try_join(Fuser *f, Node *consumer, Node *producer) {
    int from = f->group_of[producer->id], to = f->group_of[consumer->id];
    if (from < 0 || from == to) return;
    if (!same_shape(producer, consumer) && !is_own_cast(f, producer, consumer)) return;
    Group *a = &f->groups[from], *b = &f->groups[to];
    Group joined = {0};
    if (!can_move(f, a, b, consumer->id)) return;
    for (int i = 0, j = 0; i < a->count || j < b->count;) {
        bool take_a = j == b->count || (i < a->count && a->members[i]->id < b->members[j]->id);
        Node *next = take_a ? a->members[i++] : b->members[j++];
        ARENA_PUSH(f->ctx->arena, joined.members, joined.count, joined.capacity, next);
    }
    if (!fits(f, &joined)) return;
    for (int i = 0; i < joined.count; i++) f->group_of[joined.members[i]->id] = to;
    *b = joined;
    a->count = 0;
}

static void find_readers(Fuser *f) {
    for (int n = 0; n < f->in->n_nodes; n++) {
        const Node *node = f->in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            int id = node->inputs[i].node->id;
            ARENA_PUSH(f->ctx->arena, f->readers[id], f->n_readers[id], f->reader_capacity[id], n);
        }
    }
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
    const Node *last = group->members[group->count - 1];
    for (int i = 0; i < group->count; i++) {
        const Node *node = group->members[i];
        expr.instructions[i] = expr_of_node(node).instructions[0];
        for (int k = 0; k < node->n_inputs; k++) {
            expr.instructions[i].operands[k] =
                operand_of(group, node->inputs[k], inputs, &expr.n_inputs);
        }
        bool outside = false;
        for (int k = 0; k < f->n_readers[node->id]; k++) {
            outside |= !in_group(group, f->in->nodes[f->readers[node->id][k]]);
        }
        if (!outside) continue;
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
    f.readers = ARENA_ARRAY(arena, int *, count);
    f.n_readers = ARENA_ARRAY(arena, int, count);
    f.reader_capacity = ARENA_ARRAY(arena, int, count);
    find_readers(&f);
    /* Later nodes, too: whether a producer may move depends on where its readers run. */
    for (int n = 0; n < in->n_nodes; n++) f.group_of[n] = -1;
    for (int n = 0; n < in->n_nodes; n++) {
        Node *node = in->nodes[n];
        if (!is_elementwise(node)) continue;
        f.group_of[n] = n;
        ARENA_PUSH(arena, f.groups[n].members, f.groups[n].count, f.groups[n].capacity, node);
        for (int i = 0; i < node->n_inputs; i++) try_join(&f, node, node->inputs[i].node);
    }
    Graph *out = graph_create_like(in, arena);
    ValueMap map = value_map_create(in, arena);
    for (int n = 0; n < in->n_nodes; n++) {
        const Group *group = f.group_of[n] >= 0 ? &f.groups[f.group_of[n]] : NULL;
        if (group && group->count > 1) {
            if (group->members[group->count - 1]->id != n) continue;
            if (!emit_group(&f, group, &map, out)) return NULL;
        } else if (!value_map_copy(&map, in->nodes[n], out, ctx->diag)) {
            return NULL;
        }
    }
    return out;
}
