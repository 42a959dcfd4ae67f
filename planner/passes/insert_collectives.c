/* insert_collectives: where an operand is divided otherwise than its op needs, a message.
 *
 *   partial over m, wanted whole            all_reduce(m)
 *   partial over m, wanted divided over m   reduce_scatter(m, axis)
 *   divided over m, wanted whole            all_gather(m, axis)
 *   whole, wanted divided over m            slice(m, axis): no message
 *   partial over several of c, e, d  one message over all of them (dc, de, dec): of gradients
 *   one dimension divided over e,    all_to_all(e): rows to their experts, and back
 *   wanted so: another
 *   a sequence divided over c,       all_to_all(c): to all positions of some heads, and back
 *   wanted so: heads (as h)
 *   whole, wanted partial over m            scale by 1 / size of m: no message (a share of a
 *                                           gradient whose other shares are partial)
 *
 * Numbers of the update (norms of parameters, sizes of directions) travel together: all of a stage
 * that are partial over the same ranks, and there already, are one vector when the first is read.
 *
 * A partial result is completed once, where it is first needed; but on its own stage, which may
 * read it again, if that is on another: values travel one way only. One value brought to one
 * sharding serves all uses in the same block and phase; the backward graph gathers again what the
 * forward had gathered, so that only shards are kept.
 */
#include "planner/passes/pass.h"

#include <string.h>

typedef struct Resharded {
    Value from;
    Sharding to;
    Phase phase;
    int block, chunk;
    Value value;
} Resharded;

typedef struct Inserter {
    PassContext *ctx;
    Graph *out;
    Resharded *exchanged; /* what all-to-alls made of what */
    int n_exchanged, exchanged_capacity;
    Resharded *done; /* of recent uses; looked up backwards */
    int n_done, capacity;
    Resharded *completed; /* partial values and their complete forms */
    int n_completed, completed_capacity;
    Value *numbers; /* of the update, partial, to be read complete: in the graph that comes in */
    int n_numbers, numbers_capacity;
    const ValueMap *map;
} Inserter;

/* In the update what is made of several blocks' matrices together goes by the first of them, with
 * whomever it is read. */
static int message_block(Value value, const Node *user) {
    bool of_several = user->phase == PHASE_UPDATE && value.node->phase == PHASE_UPDATE &&
                      user->block != NO_BLOCK && value.node->block != NO_BLOCK;
    return of_several ? value.node->block : user->block;
}

static Value add_message(Inserter *ins, OpKind op, Value value, const Attr *attrs, int n_attrs,
                         Sharding to, const Node *user) {
    Node *node = graph_add(ins->out,
                           &(NodeSpec){.op = op,
                                       .inputs = &value,
                                       .n_inputs = 1,
                                       .attrs = attrs,
                                       .n_attrs = n_attrs,
                                       .phase = user->phase,
                                       .block = message_block(value, user),
                                       .chunk = user->chunk,
                                       .loc = user->loc},
                           ins->ctx->diag);
    if (!node) BUG("cannot add %s", OPS[op].name);
    node->shardings[0] = to;
    return node_value(node, 0);
}

/* A message at `user`, or who takes its place. */
static Value message(Inserter *ins, OpKind op, Value value, int mesh, int axis, Sharding to,
                     const Node *user) {
    Attr attrs[2] = {attr_string(ATTR_mesh, mesh_axis_name(mesh)), attr_axis(ATTR_axis, axis)};
    return add_message(ins, op, value, attrs, axis >= 0 ? 2 : 1, to, user);
}

/* The dimension that is to be divided over the mesh axis, next, or -1. */
static int find_scatter(const Type *type, const Sharding *now, const Sharding *to, int mesh) {
    int found = -1;
    for (int i = 0; i < type->rank && now->reduce != REDUCE_LSE; i++) {
        int further = mesh_divide(now->mesh[i], mesh);
        if (further >= 0 && mesh_leads_to(further, to->mesh[i])) found = i;
    }
    return found;
}

/* Is some dimension to be divided over all that have the same weights? */
static bool wants_replicas(const Type *type, const Sharding *now, const Sharding *to) {
    bool wants = false;
    for (int i = 0; i < type->rank; i++) {
        int mesh = to->mesh[i];
        wants |= mesh != MESH_D && mesh_is_replicas(mesh) && now->mesh[i] != mesh;
    }
    return wants;
}

/* Over whom sums over several of c, e and d are completed together; -1: one by one. */
static int find_replicas(Inserter *ins, const Type *type, const Sharding *now, const Sharding *to,
                         const Node *user) {
    static const int GROUPS[] = {MESH_DC, MESH_DE, MESH_DEC};
    const Mesh *sizes = &ins->out->mesh;
    unsigned all = 1u << MESH_C | 1u << MESH_E | 1u << MESH_D;
    unsigned left = now->partial & ~(unsigned)to->partial & all;
    for (size_t i = 0; left && i < sizeof(GROUPS) / sizeof(GROUPS[0]); i++) {
        int group = GROUPS[i];
        if (!mesh_has_group(sizes, group) || mesh_axes(sizes, group) != left) continue;
        bool several = left & (left - 1);
        bool whole = user->phase == PHASE_UPDATE && find_scatter(type, now, to, group) < 0;
        return several || whole || wants_replicas(type, now, to) ? group : -1;
    }
    return -1;
}

/* c before t, which divides what c leaves of a sequence; but with d, where both are asked for. */
static Value complete_partial(Inserter *ins, Value value, const Sharding *to, const Node *user) {
    enum { REPLICAS = -1 };
    static const int ORDER[] = {MESH_C, MESH_T, REPLICAS, MESH_E, MESH_D, MESH_R, MESH_P};
    const Mesh *sizes = &ins->out->mesh;
    for (size_t k = 0; k < sizeof(ORDER) / sizeof(ORDER[0]); k++) {
        Sharding now = *value_sharding(value);
        const Type *type = value_type(value);
        int replicas = find_replicas(ins, type, &now, to, user);
        int mesh = ORDER[k] == REPLICAS ? replicas : ORDER[k];
        unsigned left = now.partial & ~(unsigned)to->partial, axes = mesh_axes(sizes, mesh);
        if (mesh < 0 || (left & axes) != axes) continue;
        if (mesh == MESH_C && replicas >= 0) continue;
        int scatter = find_scatter(type, &now, to, mesh);
        now.partial &= (uint8_t)~axes;
        if (scatter >= 0) now.mesh[scatter] = (int8_t)mesh_divide(now.mesh[scatter], mesh);
        value = scatter >= 0
                    ? message(ins, OP_REDUCE_SCATTER, value, mesh, type->axes[scatter], now, user)
                    : message(ins, OP_ALL_REDUCE, value, mesh, -1, now, user);
    }
    return value;
}

/* What an all-to-all changes: how a dimension was divided, no longer, and how another is. */
typedef struct Exchange {
    MeshAxis mesh, from, to;
} Exchange;
static const Exchange EXCHANGES[] = {
    {MESH_E, MESH_E, MESH_E}, {MESH_C, MESH_C, MESH_H}, {MESH_C, MESH_H, MESH_C}};

/* Is the one dimension no longer to be divided so, and another instead? */
static bool find_exchange(const Exchange *by, const Type *type, const Sharding *now,
                          const Sharding *to, int *out_from, int *out_to) {
    *out_from = *out_to = -1;
    for (int i = 0; i < type->rank; i++) {
        int from = now->mesh[i], want = to->mesh[i];
        bool leaves = from >= 0 && mesh_inner(from) == (int)by->from && mesh_outer(from) == want;
        if (leaves) *out_from = i;
        if (from != want && mesh_divide(from, by->to) == want) *out_to = i;
    }
    if (*out_from < 0 || *out_to < 0) return false;
    /* What c deals out has to be the first of the two. */
    return by->mesh != MESH_C || (by->from == MESH_C) == (*out_from < *out_to);
}

static Value exchange(Inserter *ins, const Exchange *by, Value value, int from, int to,
                      const Node *user) {
    const Type *type = value_type(value);
    Sharding now = *value_sharding(value);
    now.mesh[from] = (int8_t)mesh_outer(now.mesh[from]);
    now.mesh[to] = (int8_t)mesh_divide(now.mesh[to], by->to);
    Attr attrs[3] = {attr_axis(ATTR_axis, type->axes[to]),
                     attr_axes(ATTR_over, &type->axes[from], 1),
                     attr_string(ATTR_mesh, mesh_axis_name(by->mesh))};
    return add_message(ins, OP_ALL_TO_ALL, value, attrs, 3, now, user);
}

static Value redivide(Inserter *ins, Value value, const Sharding *to, const Node *user) {
    const Type *type = value_type(value);
    const Mesh *sizes = &ins->out->mesh;
    int from, into;
    for (size_t i = 0; i < sizeof(EXCHANGES) / sizeof(EXCHANGES[0]); i++) {
        if (!find_exchange(&EXCHANGES[i], type, value_sharding(value), to, &from, &into)) continue;
        value = exchange(ins, &EXCHANGES[i], value, from, into, user);
    }
    for (int pass = 0; pass < 2; pass++) { /* gather all first: a mesh axis may change sides */
        for (int i = 0; i < type->rank; i++) {
            Sharding now = *value_sharding(value);
            int want = to->mesh[i];
            while (pass == 0 && !mesh_leads_to(now.mesh[i], want)) {
                int group = now.mesh[i], within = mesh_outer(group);
                bool all = within != want && mesh_has_messages(sizes, group);
                now.mesh[i] = (int8_t)(all ? -1 : within);
                value = message(ins, OP_ALL_GATHER, value, all ? group : mesh_inner(group),
                                type->axes[i], now, user);
            }
            while (pass == 1 && now.mesh[i] != want) {
                bool all = now.mesh[i] < 0 && mesh_has_messages(sizes, want);
                int next = want;
                while (!all && mesh_outer(next) != now.mesh[i]) next = mesh_outer(next);
                now.mesh[i] = (int8_t)next;
                value = message(ins, OP_SLICE, value, all ? want : mesh_inner(next), type->axes[i],
                                now, user);
            }
        }
    }
    return value;
}

/* Is it there for the user, values going to later chunks forward and to earlier ones backward? */
static bool reaches(const Resharded *done, const Node *user) {
    if (user->phase == PHASE_UPDATE) return true;
    return done->phase == PHASE_FORWARD ? done->chunk <= user->chunk : done->chunk >= user->chunk;
}

/* Which stage computes it; -1: several may. */
static int stage_of(const Inserter *ins, Value value) {
    int p = ins->out->mesh.size[MESH_P], block = value.node->block;
    if (p == 1) return 0;
    return block == NO_BLOCK ? -1 : pass_stage_of_block(ins->ctx, block);
}

static bool goes_with(const Inserter *ins, Value number, Value other) {
    if (!other.node) return false; /* not computed yet */
    for (int i = 0; i < ins->n_completed; i++) {
        if (value_equal(ins->completed[i].from, other)) return false;
    }
    return value_sharding(other)->partial == value_sharding(number)->partial &&
           stage_of(ins, other) == stage_of(ins, number) && stage_of(ins, number) >= 0;
}

static void note_completed(Inserter *ins, Value from, Value to) {
    Resharded done = {from, sharding_none(), PHASE_UPDATE, from.node->block, from.node->chunk, to};
    ARENA_PUSH(ins->ctx->arena, ins->completed, ins->n_completed, ins->completed_capacity, done);
}

/* One message for the number and all that go with it; false: none do. */
static bool complete_numbers(Inserter *ins, Value number) {
    const Sharding whole = sharding_none();
    Value *group = ARENA_ARRAY(ins->ctx->arena, Value, ins->n_numbers + 1);
    int count = 0;
    for (int i = 0; i < ins->n_numbers; i++) {
        Value other = *value_map_at(ins->map, ins->numbers[i]);
        if (goes_with(ins, number, other)) group[count++] = other;
    }
    if (count < 2) return false;
    const Node *first = group[0].node;
    int axis = graph_axis(ins->out, "norms", 5);
    if (axis < 0) return false; /* one by one, then */
    Attr attrs[2] = {attr_axes(ATTR_to, &axis, 1), attr_int(ATTR_count, count)};
    Node *all =
        pass_build(ins->ctx, ins->out, OP_STACK, first, PHASE_UPDATE, group, count, attrs, 2);
    if (!all) BUG("insert_collectives: cannot stack numbers");
    all->shardings[0].partial = value_sharding(number)->partial;
    all->shardings[0].reduce = REDUCE_SUM;
    Value sums = complete_partial(ins, node_value(all, 0), &whole, first);
    for (int i = 0; i < count; i++) {
        Attr part[2] = {attr_axis(ATTR_axis, axis), attr_int(ATTR_first, i)};
        Node *sum = pass_build(ins->ctx, ins->out, OP_NARROW, group[i].node, PHASE_UPDATE, &sums, 1,
                               part, 2);
        if (!sum) BUG("insert_collectives: cannot narrow");
        note_completed(ins, group[i], node_value(sum, 0));
    }
    return true;
}

/* The complete form of a partial value, made at its first use that asks for it. */
static Value completed_value(Inserter *ins, Value value, const Sharding *to, const Node *user) {
    if (!(value_sharding(value)->partial & ~to->partial)) return value;
    bool number = user->phase == PHASE_UPDATE && value_type(value)->rank == 0 && !to->partial &&
                  user->op != OP_ADD_N && value_sharding(value)->reduce == REDUCE_SUM;
    for (int i = 0; i < ins->n_completed; i++) {
        if (value_equal(ins->completed[i].from, value) &&
            ins->completed[i].to.partial == to->partial && reaches(&ins->completed[i], user)) {
            return ins->completed[i].value;
        }
    }
    if (number && complete_numbers(ins, value)) return completed_value(ins, value, to, user);
    const Node *at = user, *maker = value.node;
    if (maker->phase == user->phase && user->phase != PHASE_UPDATE && maker->chunk != user->chunk) {
        at = maker;
    }
    Resharded done = {value, *to, at->phase, at->block, at->chunk, NO_VALUE};
    done.value = complete_partial(ins, value, to, at);
    ARENA_PUSH(ins->ctx->arena, ins->completed, ins->n_completed, ins->completed_capacity, done);
    return done.value;
}

/* Equal parts of a whole value, one for each rank along the mesh axes of the set. */
static Value split_evenly(Inserter *ins, Value value, unsigned set, const Node *user) {
    Sharding to = *value_sharding(value);
    double ranks = 1;
    for (int mesh = 0; mesh < N_MESH_AXES; mesh++) {
        if (set >> mesh & 1) ranks *= ins->out->mesh.size[mesh];
    }
    Attr factor = attr_float(ATTR_value, 1 / ranks);
    Node *part = pass_build(ins->ctx, ins->out, OP_SCALE, user, user->phase, &value, 1, &factor, 1);
    if (!part) BUG("insert_collectives: cannot scale");
    to.partial |= (uint8_t)set;
    to.reduce = REDUCE_SUM;
    part->shardings[0] = to;
    return node_value(part, 0);
}

/* What rows an all-to-all has made is kept, like a completed sum: it is as large as what it came
 * from, which backward then has no use for. NO_VALUE: none has. */
static Value find_exchanged(const Inserter *ins, Value value, const Sharding *to,
                            const Node *user) {
    for (int i = ins->n_exchanged - 1; i >= 0; i--) {
        const Resharded *done = &ins->exchanged[i];
        if (value_equal(done->from, value) && reaches(done, user) &&
            sharding_equal(&done->to, to, value_type(value)->rank)) {
            return done->value;
        }
    }
    return NO_VALUE;
}

static Value reshard(Inserter *ins, Value value, const Sharding *to, const Node *user) {
    int rank = value_type(value)->rank;
    if (sharding_equal(value_sharding(value), to, rank)) return value;
    Value exchanged = find_exchanged(ins, value, to, user);
    if (exchanged.node) return exchanged;
    for (int i = ins->n_done - 1; i >= 0; i--) {
        const Resharded *done = &ins->done[i];
        if (done->phase != user->phase || done->block != user->block) break;
        if (done->chunk == user->chunk && value_equal(done->from, value) &&
            sharding_equal(&done->to, to, rank)) {
            return done->value;
        }
    }
    Resharded done = {value, *to, user->phase, user->block, user->chunk, NO_VALUE};
    unsigned missing = to->partial & ~value_sharding(value)->partial;
    Sharding now = *to;
    now.partial &= (uint8_t)~missing;
    done.value = redivide(ins, completed_value(ins, value, &now, user), &now, user);
    if (missing) done.value = split_evenly(ins, done.value, missing, user);
    if (done.value.node->op == OP_ALL_TO_ALL) {
        ARENA_PUSH(ins->ctx->arena, ins->exchanged, ins->n_exchanged, ins->exchanged_capacity,
                   done);
    }
    ARENA_PUSH(ins->ctx->arena, ins->done, ins->n_done, ins->capacity, done);
    return done.value;
}

/* Sums of scalars with different partial sets: one sum and one all-reduce per set. */
static Value add_by_partial(Inserter *ins, const Node *node, Value *inputs) {
    Arena *arena = ins->ctx->arena;
    Value *group = ARENA_ARRAY(arena, Value, node->n_inputs);
    Value *sums = ARENA_ARRAY(arena, Value, 1 << N_MESH_AXES);
    int n_sums = 0;
    const Sharding whole = sharding_none();
    for (unsigned set = 0; set < 1u << N_MESH_AXES; set++) {
        int count = 0;
        for (int i = 0; i < node->n_inputs; i++) {
            if (value_sharding(inputs[i])->partial == set) group[count++] = inputs[i];
        }
        if (count == 0) continue;
        Node *sum =
            pass_build(ins->ctx, ins->out, OP_ADD_N, node, node->phase, group, count, NULL, 0);
        if (!sum) BUG("add_n failed");
        sum->shardings[0] = *value_sharding(group[0]);
        sums[n_sums++] = reshard(ins, node_value(sum, 0), &whole, sum);
    }
    if (n_sums == 1) return sums[0];
    Node *total =
        pass_build(ins->ctx, ins->out, OP_ADD_N, node, node->phase, sums, n_sums, NULL, 0);
    if (!total) BUG("add_n failed");
    return node_value(total, 0);
}

/* Sums (the norm of all gradients) are completed as sums. */
static void list_numbers(Inserter *ins, const Graph *in) {
    bool *listed = ARENA_ARRAY(ins->ctx->arena, bool, in->n_nodes *MAX_OUTPUTS + 1);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (node->phase != PHASE_UPDATE || node->op == OP_ADD_N || node->op == OP_OUTPUT) continue;
        for (int i = 0; i < node->n_inputs; i++) {
            Value value = node->inputs[i];
            bool *seen = &listed[value.node->id * MAX_OUTPUTS + value.output];
            bool number = value.node->phase == PHASE_UPDATE && value_type(value)->rank == 0 &&
                          value_sharding(value)->partial &&
                          value_sharding(value)->reduce == REDUCE_SUM;
            if (!number || *seen) continue;
            *seen = true;
            ARENA_PUSH(ins->ctx->arena, ins->numbers, ins->n_numbers, ins->numbers_capacity, value);
        }
    }
}

Graph *pass_insert_collectives(const Graph *in, PassContext *ctx) {
    Inserter ins = {.ctx = ctx, .out = graph_create_like(in, ctx->arena)};
    ValueMap map = value_map_create(in, ctx->arena);
    int *uses = graph_count_uses(in, ctx->arena);
    bool *by_heads = sharding_find_head_work(in, in->state_split, ctx->arena);
    ins.map = &map;
    list_numbers(&ins, in);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        Value *inputs = ARENA_ARRAY(ctx->arena, Value, node->n_inputs + 1);
        for (int i = 0; i < node->n_inputs; i++) inputs[i] = *value_map_at(&map, node->inputs[i]);
        if (node->op == OP_ADD_N) {
            *value_map_at(&map, node_value((Node *)node, 0)) = add_by_partial(&ins, node, inputs);
            continue;
        }
        /* Messages that are there already (shard_update) say what they make of what. */
        bool given = OPS[node->op].flags & COLLECTIVE || node->op == OP_SLICE || node_is_once(node);
        ShardingRule rule =
            sharding_rule(in, node, uses, by_heads[n], ctx->options.sequence_parallel, ctx->arena);
        for (int i = 0; !given && i < node->n_inputs; i++) { /* where only a shape counts, none */
            if (op_operand_precision(node->op, i) == OPERAND_UNREAD) continue;
            /* What a stack is made of may be of other blocks than it. */
            const Node *at = node->op == OP_STACK ? inputs[i].node : node;
            inputs[i] = reshard(&ins, inputs[i], &rule.inputs[i], at);
        }
        Node *copy = graph_copy_node(ins.out, node, inputs, ctx->diag);
        if (!copy) return NULL;
        value_map_set_node(&map, node, copy);
    }
    if (ctx->options.zero >= ZERO_PARAMETERS && !check_padding(ins.out, ctx->diag)) return NULL;
    return ins.out;
}
