/* shard_update: with --zero 1, each of the d data-parallel ranks keeps and updates 1/d of the
 * optimizer's state (ZeRO stage 1, Rajbhandari et al. 2020), as a sharding of the update
 * (Xu et al. 2020, arXiv 2004.13336):
 *
 *   state       divided over d along one axis of its parameter
 *   gradient    reduce_scatter(d) where an all_reduce(d) would come
 *   parameter   slice(d); the optimizer updates the slice, and all_gather(d) writes it back in
 * place with a 16-bit copy, which alone is read by products, the f32 parameter is divided like its
 * state, and its new value, rounded, is gathered into the copy
 *
 * With --zero 2 accumulators are divided, too: each micro-batch's share is brought to them by a
 * reduce_scatter(d) in the backward. With --zero 3 so are parameter and copy, for good: whoever
 * reads them, forward or backward, gathers them first. insert_collectives adds these messages, as
 * operands are divided otherwise than their op needs; spread_messages gives them time. A frozen
 * parameter has nothing to divide but itself.
 *
 * On a GPU copies are not gathered by the update, but once at the beginning of the next step, with
 * the first micro-batch's forward, which then runs beside it (gather_once.c): the shards of the new
 * parameters are there until the next update, rounded by who gathers them.
 *
 * Where c divides sequences, or e experts, its ranks have the same weights as well: d is then all
 * of them (dc, de, dec); but e's have other experts.
 *
 * The axis is the undivided one that d divides with the least padding, of those the first: then the
 * shards lie one behind the other, and messages need no packing. A parameter that has no such axis,
 * or is too small to be worth a message more, stays as it is.
 *
 * Gradients are reduced in the order in which the backward completes them, so that their messages
 * can begin before it ends. The updates are done in groups, each in phases, so that a GPU's one
 * launch updates all of a group, and one group's messages overlap with the next one's update.
 */
#include "ir/ops/round_blocks.h"
#include "ir/param_index.h"
#include "planner/passes/pass.h"
#include "planner/plan/schedule.h"

#include <stdlib.h>
#include <string.h>

enum {
    GROUP_UPDATES = 64 /* what one launch of the CUDA backend updates (UPDATE_TENSORS) */
};

/* One parameter, its optimizer node and what becomes of it. */
typedef struct Update {
    const Node *param;  /* of the graph that comes in */
    const Node *node;   /* its optimizer, likewise; NULL: the parameter is frozen */
    const Node *reader; /* what reads the gradient: the optimizer, or what makes its direction */
    const Node *copy;   /* of the parameter, that is read in its place; NULL: none */
    const Node *rounds; /* what rounds it to blocks, behind the optimizer; NULL: they write it */
    int at;             /* position of the axis in the parameter's type, -1: not divided */
    int mesh;           /* d, or d and c: who have the same of the parameter */
    bool own;           /* the parameter itself is divided: only the update reads its memory */
    Value gradient;     /* of `out`, once made */
    Value shard;        /* of the parameter, likewise */
    Value *whole; /* by chunk: the copy, gathered at a step's beginning; NULL: by the update */
    Node *result; /* of `out` */
} Update;

typedef struct Sharder {
    PassContext *ctx;
    const Graph *in;
    Graph *out;
    ValueMap map;
    Update *updates;
    int n_updates, capacity;
    Update *frozen; /* those of frozen parameters, which have no optimizer node */
    int n_frozen, frozen_capacity;
    bool has_copies;       /* of parameters: in 16 bits, or rounded */
    const Node **stack_of; /* of the graph that comes in: pass_find_stacks */
    Value *together;  /* by id of a value of a stack: it, each matrix divided as in a parameter */
    Update **of_leaf; /* by id of a parameter, state, copy or sum of shares: its update */
    uint8_t *reads;   /* [n_updates][n_chunks]: READ_FORWARD, READ_BEHIND: who reads the copy */
    int n_chunks, last_chunk; /* of the whole pipeline; with which the forward ends */
    Path path;
} Sharder;
enum { READ_FORWARD = 1, READ_BEHIND = 2 };

static bool divides(const Sharder *s, int stage) {
    return s->ctx->options.zero >= stage;
}

/* An update may be several ops: what reads the gradient and the states, what makes a step of that,
 * and the optimizer, which writes the parameter. */
static bool is_optimizer(const Node *node) {
    return op_is_optimizer(node->op) && node->inputs[0].node->op == OP_PARAM &&
           node->op != OP_BALANCE; /* of which all ranks do all */
}

static Value gradient_of(const Update *update) {
    return update->reader->inputs[op_gradient_operand(update->reader->op)];
}

/* The parameter's copy, that an optimizer writes too: its last operand, or NULL. */
static Node *copy_operand(const Node *update) {
    Node *last = update->inputs[update->n_inputs - 1].node;
    return node_is_copy(last) ? last : NULL;
}

/* Copies of parameters that are rounded to blocks, by whose optimizer they follow. */
static void find_rounds(Sharder *s) {
    const Node **rounds = ARENA_ARRAY(s->ctx->arena, const Node *, s->in->n_nodes + 1);
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        if (node->op == OP_ROUND_BLOCKS) rounds[node->inputs[0].node->id] = node;
    }
    for (int u = 0; u < s->n_updates; u++) {
        Update *update = &s->updates[u];
        update->rounds = rounds[update->node->id];
        update->copy = update->rounds ? update->rounds->inputs[1].node : copy_operand(update->node);
    }
}

/* What makes of a parameter's shard that of its copy. */
static Node *round_shard(Sharder *s, const Update *update, const Node *like, Phase phase,
                         Value param, bool once) {
    Attr attrs[N_ROUND_ATTRS + 1], turn = attr_int(ATTR_once, 1);
    const DType dtype = update->copy->types[0].dtype;
    OpKind op = dtype == DTYPE_BF16 ? OP_TO_UPPER : OP_TO_F16;
    int n = 0;
    if (update->rounds) {
        op = OP_ROUND_BLOCKS;
        round_attrs(update->rounds, dtype, attrs);
        n = N_ROUND_ATTRS;
    }
    if (once) attrs[n++] = turn;
    Node *node = pass_build(s->ctx, s->out, op, like, phase, &param, 1, attrs, n);
    if (node) node->shardings[0] = *value_sharding(param);
    return node;
}

/* A frozen parameter's would be as it is itself. */
static const Sharding *gradient_sharding(const Update *update) {
    return update->node ? value_sharding(gradient_of(update)) : &update->param->shardings[0];
}

/* Over whom shares of the gradient are summed; where there are none, all that have the same
 * weights. What c divides already, such as a table of positions, is the same over d (and e) alone;
 * experts are over d and c, as e divides them. */
static int choose_mesh(const Sharder *s, const Update *update) {
    const Sharding *param = &update->param->shardings[0], *gradient = gradient_sharding(update);
    const Mesh *mesh = &s->in->mesh;
    bool dealt = false, experts = false;
    for (int i = 0; i < update->param->types[0].rank; i++) {
        dealt |= mesh_deals(param->mesh[i]) || mesh_deals(gradient->mesh[i]);
        experts |= mesh_axes(mesh, param->mesh[i]) >> MESH_E & 1;
    }
    Mesh without_c = *mesh;
    without_c.size[MESH_C] = 1;
    int all = mesh_replicas(mesh, experts), but_c = mesh_replicas(&without_c, experts);
    unsigned axes = mesh_axes(mesh, all), partial = gradient->partial & axes;
    return dealt || (partial && partial != axes) ? but_c : all;
}

/* Would each rank have whole blocks of states in 8 bits? */
static bool keeps_states(const Sharder *s, const Update *update, const Sharding *shard) {
    for (int i = 0; update->node && i < update->node->n_inputs; i++) {
        const Type *type = value_type(update->node->inputs[i]);
        if (dtype_is_moment(type->dtype) && !type_keeps_blocks(type, shard, &s->in->mesh))
            return false;
    }
    return true;
}

/* Where its ranks divide the parameter, or -1. Its gradient has to be whole there, too. */
static int choose_axis(const Sharder *s, const Update *update, int64_t largest) {
    const Type *type = &update->param->types[0];
    const Sharding *param = &update->param->shardings[0], *gradient = gradient_sharding(update);
    int mesh = update->mesh;
    Type local = type_local(type, param, &s->in->mesh);
    int64_t parts = mesh_size(&s->in->mesh, mesh), best_padding = 0, best_rows = 0, rows = 1;
    int best = -1;
    if (parts < 2) return -1;
    bool lacks_copy = s->has_copies && update->node && !update->copy;
    if (type_elements(type) < largest / ZERO_LEAST_SHARE) return -1;
    if (lacks_copy && type_elements(type) < ZERO_LEAST_UNCOPIED) return -1;
    for (int i = 0; i < type->rank; rows *= local.dims[i++]) {
        int64_t dim = type->dims[i], part = type_share(type, i, mesh, &s->in->mesh);
        int64_t padding = (part * parts - dim) * (type_elements(type) / dim);
        if (mesh_axes(&s->in->mesh, gradient->mesh[i]) & mesh_axes(&s->in->mesh, mesh)) return -1;
        if (param->mesh[i] >= 0 || gradient->mesh[i] >= 0) continue;
        if (part * (parts - 1) >= dim) continue; /* the last rank would have none */
        const char *axis = s->in->axes.names[type->axes[i]];
        if (padding && strcmp(axis, "seq") == 0) continue; /* positions are never padded */
        Sharding shard = *param;
        shard.mesh[i] = (int8_t)mesh;
        bool blocked = dtype_is_blocked(type->dtype);
        if (blocked && !type_keeps_blocks(type, &shard, &s->in->mesh)) continue;
        if (!keeps_states(s, update, &shard)) continue;
        bool rounded = node_is_rounded(update->param);
        if (rounded && !round_keeps_blocks(update->param, &shard, &s->in->mesh)) continue;
        if (best >= 0 &&
            (padding > best_padding || (padding == best_padding && rows >= best_rows))) {
            continue;
        }
        best = i;
        best_padding = padding;
        best_rows = rows;
    }
    return best;
}

/* An operand of which only the shape counts, such as the table in an embedding's gradient. */
static bool is_unread(const Node *node, int i) {
    return op_operand_precision(node->op, i) == OPERAND_UNREAD;
}

/* By id: does anything but the update read a leaf's numbers? */
static bool *find_read(const Sharder *s) {
    bool *read = ARENA_ARRAY(s->ctx->arena, bool, s->in->n_nodes + 1);
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        for (int i = 0; node->phase != PHASE_UPDATE && i < node->n_inputs; i++) {
            read[node->inputs[i].node->id] |= !is_unread(node, i);
        }
    }
    return read;
}

/* Returns the elements of the largest parameter of all that are listed. */
static int64_t list_updates(Sharder *s) {
    Arena *arena = s->ctx->arena;
    int64_t largest = 0;
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        s->has_copies |= node_is_copy(node);
        bool frozen = node->op == OP_PARAM && node_is_frozen(node);
        bool updates = is_optimizer(node);
        if (!frozen && !updates) continue;
        Update update = {.param = frozen ? node : node->inputs[0].node,
                         .node = frozen ? NULL : node};
        int64_t elements = type_elements(&update.param->types[0]);
        if (elements > largest) largest = elements;
        if (updates) ARENA_PUSH(arena, s->updates, s->n_updates, s->capacity, update);
        if (frozen) ARENA_PUSH(arena, s->frozen, s->n_frozen, s->frozen_capacity, update);
    }
    return largest;
}

/* With a copy, if it has one beside itself. */
static void find_frozen(Sharder *s, int64_t largest) {
    ParamIndex params = param_index_create(s->in, s->ctx->arena);
    for (int u = 0; divides(s, ZERO_PARAMETERS) && u < s->n_frozen; u++) {
        Update *update = &s->frozen[u];
        update->mesh = choose_mesh(s, update);
        update->at = choose_axis(s, update, largest);
        update->own = update->at >= 0;
        s->of_leaf[update->param->id] = update;
    }
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *copy = s->in->nodes[n];
        if (!node_is_copy(copy)) continue;
        const Node *param = param_index_find(&params, copy->block, node_string(copy, ATTR_of));
        if (param && node_is_frozen(param)) s->of_leaf[n] = s->of_leaf[param->id];
    }
}

/* Of each update, by its parameter: who reads the gradient, or NULL. */
static const Node **find_readers(const Sharder *s) {
    const Node **readers = ARENA_ARRAY(s->ctx->arena, const Node *, s->in->n_nodes + 1);
    ParamIndex params = param_index_create(s->in, s->ctx->arena);
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        if (op_gradient_operand(node->op) < 0) continue;
        const Node *of = node->inputs[0].node; /* the parameter, or a state of it */
        if (of->op == OP_STATE) of = param_index_find(&params, of->block, node_string(of, ATTR_of));
        if (of) readers[of->id] = node;
    }
    return readers;
}

static void note_leaves(Sharder *s, Update *update, const Node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *leaf = node->inputs[i].node;
        if (leaf->op == OP_STATE || leaf == update->param) s->of_leaf[leaf->id] = update;
    }
}

/* The update that an operand of a stack is of: it is a direction, scaled, whose momentum reads a
 * state of the parameter. */
static Update *stacked_update(const Sharder *s, Value operand) {
    const Node *momentum = operand.node;
    while (momentum->op != OP_MUON_MOMENTUM && momentum->n_inputs > 0)
        momentum = momentum->inputs[0].node;
    return momentum->op == OP_MUON_MOMENTUM ? s->of_leaf[momentum->inputs[0].node->id] : NULL;
}

/* Matrices of one stack are divided all, or none. */
static void agree_within_stacks(Sharder *s) {
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *stack = s->in->nodes[n];
        bool whole = false;
        if (stack->op != OP_STACK) continue;
        for (int i = 0; i < stack->n_inputs; i++) {
            const Update *update = stacked_update(s, stack->inputs[i]);
            whole |= update && update->at < 0;
        }
        for (int i = 0; whole && i < stack->n_inputs; i++) {
            Update *update = stacked_update(s, stack->inputs[i]);
            if (update) update->at = -1, update->own = false;
        }
    }
}

static void find_updates(Sharder *s) {
    const bool *read = find_read(s);
    const Node **readers = find_readers(s);
    int64_t largest = list_updates(s);
    find_frozen(s, largest);
    find_rounds(s);
    for (int u = 0; u < s->n_updates; u++) {
        Update *update = &s->updates[u];
        const Node *node = update->node;
        bool unread = update->copy && !read[update->param->id];
        update->reader = readers[update->param->id];
        if (!update->reader) BUG("shard_update: nothing reads a gradient");
        update->mesh = choose_mesh(s, update);
        update->at = choose_axis(s, update, largest);
        update->own = update->at >= 0 && (unread || divides(s, ZERO_PARAMETERS));
        note_leaves(s, update, node);
        note_leaves(s, update, update->reader);
        if (update->copy) s->of_leaf[update->copy->id] = update;
        const Node *sum = gradient_of(update).node;
        for (; sum->op == OP_ACCUMULATE; sum = sum->inputs[0].node) s->of_leaf[sum->id] = update;
        if (sum->op == OP_ACCUMULATOR) s->of_leaf[sum->id] = update;
    }
}

static int mesh_axis_of(const Update *update) {
    return update->param->types[0].axes[update->at];
}

static Sharding divided(const Sharder *s, const Update *update, const Sharding *whole) {
    Sharding sharding = *whole;
    sharding.mesh[update->at] = (int8_t)update->mesh;
    sharding.partial &= (uint8_t)~mesh_axes(&s->in->mesh, update->mesh);
    return sharding;
}

/* A message over them, or a slice, of the update's parameter or what belongs to it. */
static Value move(Sharder *s, const Update *update, OpKind op, const Value *inputs, int n_inputs,
                  Sharding to) {
    Attr attrs[2] = {attr_string(ATTR_mesh, mesh_axis_name(update->mesh)),
                     attr_axis(ATTR_axis, mesh_axis_of(update))};
    Node *node =
        pass_build(s->ctx, s->out, op, update->node, PHASE_UPDATE, inputs, n_inputs, attrs, 2);
    if (!node) BUG("shard_update: cannot add %s", OPS[op].name);
    node->shardings[0] = to;
    return node_value(node, 0);
}

static bool divides_leaf(const Sharder *s, const Node *leaf) {
    const Update *update = s->of_leaf[leaf->id];
    if (!update || update->at < 0) return false;
    if (leaf->op == OP_ACCUMULATOR || leaf->op == OP_ACCUMULATE) return divides(s, ZERO_GRADIENTS);
    if (node_is_copy(leaf)) return divides(s, ZERO_PARAMETERS);
    return leaf->op != OP_PARAM || update->own;
}

/* --- copies that are gathered at a step's beginning --- */

static uint8_t *reads_of(const Sharder *s, const Update *update, int chunk) {
    size_t row = (size_t)(update - s->updates);
    return &s->reads[row * (size_t)s->n_chunks + (size_t)chunk];
}

/* The update whose copy the operand is, if it is one that ranks have shards of. */
static Update *update_of_copy(const Sharder *s, Value operand) {
    Update *update = s->of_leaf[operand.node->id];
    bool copy = update && update->node && node_is_copy(operand.node);
    return copy && update->own && !divides(s, ZERO_PARAMETERS) ? update : NULL;
}

/* The chunk that gathers the copy for this one: the first of its stage that reads it. */
static int gathering_chunk(const Sharder *s, const Update *update, int chunk) {
    int first = 0;
    while (path_stage(s->path, first) != path_stage(s->path, chunk) || !*reads_of(s, update, first))
        first++;
    return first;
}

/* A chunk that reads it behind its forward alone has to be the one with which the forward ends. */
static bool may_begin(const Sharder *s, const Update *update) {
    const Node *copy = update->copy;
    bool once = update->own && copy && update->param->id < copy->id;
    for (int c = 0; once && c < s->n_chunks; c++) {
        if (!*reads_of(s, update, c)) continue;
        int from = gathering_chunk(s, update, c);
        once = *reads_of(s, update, from) != READ_BEHIND || from == s->last_chunk;
    }
    return once;
}

/* On GPUs, and not where only prices are asked for (a search counts gathers itself). */
static void find_begun(Sharder *s) {
    const PlanOptions *options = &s->ctx->options;
    int p = options->mesh.size[MESH_P], first_behind = s->in->n_nodes;
    s->path = (Path){schedule_path(schedule_find(options->schedule)), p};
    if (!options->cuda || options->priced || divides(s, ZERO_PARAMETERS)) return;
    s->n_chunks = p * options->n_chunks;
    s->reads = ARENA_ARRAY(s->ctx->arena, uint8_t, (s->n_updates + 1) * s->n_chunks);
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        bool forward = node->phase == PHASE_FORWARD, work = !(OPS[node->op].flags & LEAF);
        if (node->phase == PHASE_UPDATE || !work) continue;
        if (forward) s->last_chunk = node->chunk;
        if (!forward && n < first_behind) first_behind = n;
        for (int i = 0; i < node->n_inputs; i++) {
            const Update *update = update_of_copy(s, node->inputs[i]);
            if (update) *reads_of(s, update, node->chunk) |= forward ? READ_FORWARD : READ_BEHIND;
        }
    }
    for (int u = 0; u < s->n_updates; u++) {
        Update *update = &s->updates[u];
        const Node *copy = update->copy;
        if (!may_begin(s, update) || copy->id > first_behind) continue;
        update->whole = ARENA_ARRAY(s->ctx->arena, Value, s->n_chunks);
    }
}

/* The copy as the chunk reads it, from a forward on. */
static Value gather_copy(Sharder *s, Update *update, int reader) {
    const Node *copy = update->copy;
    int chunk = gathering_chunk(s, update, reader);
    Value *whole = &update->whole[chunk];
    if (whole->node) return *whole;
    Node like = *copy;
    like.chunk = chunk;
    Attr once = attr_int(ATTR_once, 1);
    Value param = *value_map_at(&s->map, node_value((Node *)update->param, 0));
    Node *shard = round_shard(s, update, &like, PHASE_FORWARD, param, true);
    if (!shard) BUG("shard_update: cannot round a shard");
    Value inputs[2] = {node_value(shard, 0), *value_map_at(&s->map, node_value((Node *)copy, 0))};
    Attr attrs[3] = {attr_string(ATTR_mesh, mesh_axis_name(update->mesh)),
                     attr_axis(ATTR_axis, mesh_axis_of(update)), once};
    Node *node =
        pass_build(s->ctx, s->out, OP_ALL_GATHER, &like, PHASE_FORWARD, inputs, 2, attrs, 3);
    if (!node) BUG("shard_update: cannot gather a copy");
    node->shardings[0] = copy->shardings[0];
    return *whole = node_value(node, 0);
}

/* Where the forward ends: what is only read behind it. */
static void gather_late(Sharder *s) {
    for (int u = 0; u < s->n_updates; u++) {
        Update *update = &s->updates[u];
        bool late = update->whole && *reads_of(s, update, s->last_chunk) == READ_BEHIND;
        if (late) gather_copy(s, update, s->last_chunk);
    }
}

/* Where only a shape counts, that of the copy is the same, and is not divided over d before
 * --zero 3; from there on the message is one that nobody needs, and insert_collectives knows. */
static bool copy_node(Sharder *s, const Node *node) {
    Value *inputs = ARENA_ARRAY(s->ctx->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        const Node *copy = is_unread(node, i) && divides_leaf(s, input.node)
                               ? s->of_leaf[input.node->id]->copy
                               : NULL;
        if (copy) input = node_value((Node *)copy, 0);
        Update *update = node->phase != PHASE_UPDATE ? update_of_copy(s, input) : NULL;
        inputs[i] = update && update->whole ? gather_copy(s, update, node->chunk)
                                            : *value_map_at(&s->map, input);
    }
    Node *copy = graph_copy_node(s->out, node, inputs, s->ctx->diag);
    if (!copy) return false;
    value_map_set_node(&s->map, node, copy);
    if (divides_leaf(s, node)) {
        copy->shardings[0] = divided(s, s->of_leaf[node->id], &node->shardings[0]);
    }
    return true;
}

/* The gradient as the update reads it: this rank's shard of the sum. */
static Value shard_gradient(Sharder *s, Update *update) {
    Value gradient = *value_map_at(&s->map, gradient_of(update));
    if (update->at < 0) return gradient;
    if (update->gradient.node) return update->gradient;
    if (divides_leaf(s, gradient_of(update).node)) return gradient;
    const Sharding *now = value_sharding(gradient);
    unsigned axes = mesh_axes(&s->in->mesh, update->mesh);
    bool partial = now->partial & axes;
    update->gradient = move(s, update, partial ? OP_REDUCE_SCATTER : OP_SLICE, &gradient, 1,
                            divided(s, update, now));
    return update->gradient;
}

/* The parameter as the update reads it. */
static Value shard_param(Sharder *s, Update *update) {
    Value whole = update->node->inputs[0], param = *value_map_at(&s->map, whole);
    if (update->at < 0 || update->own) return param;
    if (!update->shard.node) {
        Sharding to = divided(s, update, value_sharding(whole));
        update->shard = move(s, update, OP_SLICE, &param, 1, to);
    }
    return update->shard;
}

/* --- stacks of matrices ---
 *
 * Of a stack each rank has, first, its shards of all matrices. An all_to_all over who divides them
 * gives it all of some matrices; what is computed of the stack follows, and another brings shards
 * back. Where the last ranks' shards hold padding, the stack has it as rows of its matrices,
 * zeros that add nothing to any product, until its parts are taken out again; where nothing is
 * divided, a slice gives each rank its matrices, and a gather brings back all. */

static Value move_stack(Sharder *s, const Node *origin, OpKind op, int mesh, int at, int over,
                        Value value) {
    const Type *type = value_type(value);
    Sharding to = *value_sharding(value);
    Attr attrs[3] = {attr_string(ATTR_mesh, mesh_axis_name(mesh)),
                     attr_axis(ATTR_axis, type->axes[at])};
    if (over >= 0) attrs[2] = attr_axes(ATTR_over, &type->axes[over], 1);
    Node *node =
        pass_build(s->ctx, s->out, op, origin, PHASE_UPDATE, &value, 1, attrs, over >= 0 ? 3 : 2);
    if (!node) BUG("shard_update: cannot add %s", OPS[op].name);
    to.mesh[at] = (int8_t)(op == OP_ALL_GATHER ? -1 : mesh);
    if (over >= 0) to.mesh[over] = -1;
    node->shardings[0] = to;
    return node_value(node, 0);
}

/* From where the mesh axis divides the value, -1: nowhere, to where it is to. */
static Value redivide(Sharder *s, const Node *origin, int mesh, int from, int to, Value value) {
    if (from >= 0 && to >= 0) return move_stack(s, origin, OP_ALL_TO_ALL, mesh, to, from, value);
    if (from >= 0) value = move_stack(s, origin, OP_ALL_GATHER, mesh, from, -1, value);
    return to >= 0 ? move_stack(s, origin, OP_SLICE, mesh, to, -1, value) : value;
}

/* Which dimension of the stack's matrices ZeRO divides, and over whom: -1, and all that have the
 * same weights, where none is. */
static int find_divided(const Sharder *s, const Node *stack, int *out_mesh) {
    const Node *copy = value_map_at(&s->map, stack->inputs[0])->node;
    const Sharding *first = &copy->shardings[value_map_at(&s->map, stack->inputs[0])->output];
    *out_mesh = mesh_replicas(&s->in->mesh, false);
    for (int i = 0; i < stack->types[0].rank - 1; i++) {
        if (!mesh_is_replicas(first->mesh[i])) continue;
        *out_mesh = first->mesh[i];
        return i + 1;
    }
    return -1;
}

/* As many matrices for each rank; the group may be smaller than what stacks are made for. */
static bool divides_stack(const Sharder *s, const Node *stack, int mesh) {
    return stack->types[0].rank > 1 && stack->types[0].dims[0] % mesh_size(&s->in->mesh, mesh) == 0;
}

/* A part of what was computed of a stack: of the whole stack first, once. */
static Value part_from(Sharder *s, const Node *node) {
    const Node *stack = s->stack_of[node->id];
    Value from = node->inputs[0], *together = &s->together[from.node->id];
    int mesh, at = find_divided(s, stack, &mesh);
    Value value = *value_map_at(&s->map, from);
    if (!divides_stack(s, stack, mesh) || value_sharding(value)->mesh[0] != mesh) return value;
    if (!together->node) *together = redivide(s, from.node, mesh, 0, at, value);
    return *together;
}

static void divide_stack(Sharder *s, const Node *stack) {
    Value *value = value_map_at(&s->map, node_value((Node *)stack, 0));
    int mesh, at = find_divided(s, stack, &mesh);
    if (divides_stack(s, stack, mesh)) *value = redivide(s, stack, mesh, at, 0, *value);
}

/* Adds to the node of a stack, which has these operands, what it needs where shards are padded. */
static void pad_stacked(Sharder *s, Node *node, const Value *inputs) {
    const Node *stack = s->stack_of[node->id];
    const Type *type = &stack->types[0];
    bool begins = node->op == OP_STACK, ends = pass_is_part(node, stack);
    int mesh, at = find_divided(s, stack, &mesh);
    if (at < 0 || !divides_stack(s, stack, mesh)) return;
    if (!type_is_padded(type, at, mesh, &s->in->mesh)) return;
    int64_t length = type_share(type, at, mesh, &s->in->mesh) * mesh_size(&s->in->mesh, mesh);
    Attr *attrs = ARENA_ARRAY(s->ctx->arena, Attr, node->n_attrs + 2);
    memcpy(attrs, node->attrs, sizeof(Attr) * (size_t)node->n_attrs);
    if (begins || ends) {
        attrs[node->n_attrs++] = attr_axis(ATTR_padded, type->axes[at]);
        attrs[node->n_attrs++] = attr_int(ATTR_length, begins ? length : type->dims[at]);
    } else if (node->op == OP_NARROW) { /* another name for all of an axis */
        const Type *in = value_type(inputs[0]);
        int renamed = type_find_axis(in, node_axis(node, ATTR_axis));
        for (int i = 0; i < node->n_attrs; i++) {
            if (attrs[i].key == ATTR_count) attrs[i].i = in->dims[renamed];
        }
    }
    node->attrs = attrs;
}

/* Results of optimizers have no readers: parameters do. */
static bool check_operands(const Sharder *s, const Node *node, const Value *inputs) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (inputs[i].node) continue;
        diag_error(s->ctx->diag, node->loc, "%s: reads what another update makes, and they are one",
                   OPS[node->op].name);
        return false;
    }
    return true;
}

/* A node between gradients and optimizers: divided as what it reads is. */
static bool copy_between(Sharder *s, const Node *node) {
    Node padded = *node;
    Value *inputs = ARENA_ARRAY(s->ctx->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        Update *update = s->of_leaf[input.node->id];
        bool gradient = update && i == op_gradient_operand(node->op);
        bool param = update && input.node->op == OP_PARAM;
        inputs[i] = gradient ? shard_gradient(s, update)
                    : param  ? shard_param(s, update)
                             : *value_map_at(&s->map, input);
    }
    if (!check_operands(s, node, inputs)) return false;
    if (pass_is_part(node, s->stack_of[node->id])) inputs[0] = part_from(s, node);
    if (s->stack_of[node->id]) pad_stacked(s, &padded, inputs);
    Node *copy = graph_copy_node(s->out, &padded, inputs, s->ctx->diag);
    if (!copy) return false;
    value_map_set_node(&s->map, node, copy);
    ShardingRule rule = sharding_rule(s->out, copy, NULL, false, false, s->ctx->arena);
    for (int o = 0; o < copy->n_outputs; o++) copy->shardings[o] = rule.outputs[o];
    if (node->op == OP_STACK) divide_stack(s, node);
    return true;
}

/* Leaves, outputs, the norm and what follows from it are as they were. */
static bool is_between(const Node *node) {
    if (node->phase != PHASE_UPDATE || OPS[node->op].flags & LEAF) return false;
    return node->op != OP_ADD_N && node->op != OP_CLIP_SCALE && node->op != OP_SKIP_SPIKE &&
           node->op != OP_LOSS_SCALE && node->op != OP_OUTPUT;
}

static Update *find_update(Sharder *s, Value gradient) {
    for (int u = 0; u < s->n_updates; u++) {
        if (value_equal(gradient_of(&s->updates[u]), gradient)) return &s->updates[u];
    }
    return NULL;
}

/* Sums of squares of shards are partial results over d (and c): insert_collectives adds them up
 * once. */
static bool copy_sumsq(Sharder *s, const Node *node) {
    Update *update = find_update(s, node->inputs[0]);
    if (!update || update->at < 0) {
        return copy_node(s, node);
    }
    Value gradient = shard_gradient(s, update);
    Node *copy = graph_copy_node(s->out, node, &gradient, s->ctx->diag);
    if (!copy) return false;
    copy->shardings[0].partial |= (uint8_t)mesh_axes(&s->in->mesh, update->mesh);
    value_map_set_node(&s->map, node, copy);
    return true;
}

static int by_gradient(const void *left, const void *right) {
    const Node *a = *(const Node *const *)left, *b = *(const Node *const *)right;
    int x = a->inputs[0].node->id, y = b->inputs[0].node->id;
    return x != y ? (x < y ? -1 : 1) : a->id - b->id;
}

static bool is_norm_part(const Node *node) {
    return node->op == OP_SUMSQ && node->inputs[0].node->phase != PHASE_UPDATE;
}

/* All parts of the norm, from the first one's place on, by when their gradients are complete. */
static bool copy_norm(Sharder *s, int first) {
    const Node **parts = ARENA_ARRAY(s->ctx->arena, const Node *, s->in->n_nodes);
    int count = 0;
    for (int n = first; n < s->in->n_nodes; n++) {
        if (is_norm_part(s->in->nodes[n])) parts[count++] = s->in->nodes[n];
    }
    qsort(parts, (size_t)count, sizeof(*parts), by_gradient);
    for (int i = 0; i < count; i++) {
        if (!copy_sumsq(s, parts[i])) return false;
    }
    return true;
}

static bool copy_optimizer(Sharder *s, Update *update) {
    const Node *node = update->node;
    Value *inputs = ARENA_ARRAY(s->ctx->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) inputs[i] = *value_map_at(&s->map, node->inputs[i]);
    inputs[0] = shard_param(s, update);
    if (node == update->reader) inputs[op_gradient_operand(node->op)] = shard_gradient(s, update);
    if (!check_operands(s, node, inputs)) return false;
    bool rounds = update->at < 0 || divides(s, ZERO_PARAMETERS);
    int n_inputs = node->n_inputs - (!rounds && copy_operand(node));
    update->result = pass_build(s->ctx, s->out, node->op, node, PHASE_UPDATE, inputs, n_inputs,
                                node->attrs, node->n_attrs);
    for (int o = 0; update->result && o < update->result->n_outputs; o++) {
        const Sharding *whole = &node->shardings[o];
        update->result->shardings[o] = update->at < 0 ? *whole : divided(s, update, whole);
    }
    return update->result != NULL;
}

/* Writes the new parameter, or its rounded value, over a leaf that is whole. */
static void write_back(Sharder *s, const Update *update, Value shard, const Node *leaf) {
    Value inputs[2] = {shard, *value_map_at(&s->map, node_value((Node *)leaf, 0))};
    move(s, update, OP_ALL_GATHER, inputs, 2, leaf->shardings[0]);
}

/* Are the copy's shards gathered into it by the update? */
static bool copies_behind(const Sharder *s, const Update *update) {
    return update->at >= 0 && update->copy && !divides(s, ZERO_PARAMETERS) && !update->whole;
}

/* A copy in blocks that is divided as its parameter is. */
static bool round_whole(Sharder *s, const Update *update) {
    const Node *rounds = update->rounds;
    Value inputs[2] = {node_value(update->result, 0), *value_map_at(&s->map, rounds->inputs[1])};
    Node *node = pass_build(s->ctx, s->out, rounds->op, rounds, PHASE_UPDATE, inputs, 2,
                            rounds->attrs, rounds->n_attrs);
    if (node) node->shardings[0] = *value_sharding(inputs[1]);
    return node != NULL;
}

static bool copy_group(Sharder *s, Update *group, int count) {
    Value rounded[GROUP_UPDATES];
    for (int u = 0; u < count; u++) shard_param(s, &group[u]);
    for (int u = 0; u < count; u++) {
        if (!copy_optimizer(s, &group[u])) return false;
    }
    for (int u = 0; u < count; u++) {
        Value param = node_value(group[u].result, 0);
        if (!copies_behind(s, &group[u])) continue;
        Node *shard = round_shard(s, &group[u], group[u].node, PHASE_UPDATE, param, false);
        if (!shard) return false;
        rounded[u] = node_value(shard, 0);
    }
    for (int u = 0; u < count; u++) {
        Value param = node_value(group[u].result, 0);
        bool whole = group[u].at < 0 || divides(s, ZERO_PARAMETERS);
        if (whole && group[u].rounds && !round_whole(s, &group[u])) return false;
        if (whole) continue;
        if (!group[u].own) write_back(s, &group[u], param, group[u].node->inputs[0].node);
        if (copies_behind(s, &group[u])) write_back(s, &group[u], rounded[u], group[u].copy);
    }
    return true;
}

/* Updates that stand together, no more than one launch takes at a time. */
static bool copy_updates(Sharder *s, int first, int end) {
    for (int u = first; u < end; u += GROUP_UPDATES) {
        int left = end - u;
        if (!copy_group(s, &s->updates[u], left < GROUP_UPDATES ? left : GROUP_UPDATES)) {
            return false;
        }
    }
    return true;
}

/* All of the step, optimizers that stand together in groups: nothing reads their results. */
static bool copy_all(Sharder *s) {
    bool norm_done = false, behind = false;
    int first = 0, next = 0; /* updates that are to come, and have been met */
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        if (is_optimizer(node)) {
            next++;
            continue;
        }
        if (node->op == OP_ROUND_BLOCKS) continue; /* with its optimizer */
        if (!(OPS[node->op].flags & LEAF)) {
            if (!copy_updates(s, first, next)) return false;
            first = next;
            if (node->phase != PHASE_FORWARD && !behind) gather_late(s);
            behind |= node->phase != PHASE_FORWARD;
        }
        if (is_norm_part(node)) {
            if (!norm_done && !copy_norm(s, n)) return false;
            norm_done = true;
            continue;
        }
        if (!(is_between(node) ? copy_between(s, node) : copy_node(s, node))) return false;
    }
    return copy_updates(s, first, next);
}

Graph *pass_shard_update(const Graph *in, PassContext *ctx) {
    if (!ctx->options.zero || mesh_size(&in->mesh, MESH_DEC) < 2) return (Graph *)in;
    Sharder s = {.ctx = ctx, .in = in, .out = graph_create_like(in, ctx->arena)};
    s.map = value_map_create(in, ctx->arena);
    s.of_leaf = ARENA_ARRAY(ctx->arena, Update *, in->n_nodes + 1);
    s.stack_of = pass_find_stacks(in, ctx->arena);
    s.together = ARENA_ARRAY(ctx->arena, Value, in->n_nodes + 1);
    find_updates(&s);
    agree_within_stacks(&s);
    find_begun(&s);
    if (!copy_all(&s)) return NULL;
    if (divides(&s, ZERO_PARAMETERS)) return s.out; /* insert_collectives makes weights whole */
    return check_padding(s.out, ctx->diag) ? s.out : NULL;
}
