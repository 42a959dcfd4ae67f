/* make_programs: from one sharded graph to a program per stage.
 *
 * A stage holds its chunks on the schedule's path (path.h); its program has their nodes, with
 * `recv` where a value comes over a pipeline border and `send` where one leaves. A value that a
 * later chunk needs travels border by border; where both sides of one are this stage's, the value
 * is read where it was made. Leaves are made anew in every stage that reads them, so a tied weight
 * has a copy in each of its stages; the copies' gradients are summed over a communicator named
 * after the weight. Block numbers become relative to the chunk's first block, so that stages with
 * like blocks get equal programs.
 */
#include "ir/param_index.h"
#include "planner/passes/pass.h"
#include "planner/plan/schedule.h"

#include <string.h>

typedef struct IntList {
    int *items;
    int count, capacity;
} IntList;

struct ProgramMaker {
    PassContext *ctx;
    Arena *kept; /* of comms */
    const Graph *in;
    Path path;
    int n_pipeline, n_chunks; /* p, v */
    int n_global;             /* p * v */
    int *first_block;         /* of each global chunk, and one past the last */
    IntList *chunk_nodes;   /* [N_PHASES][n_global]: ids of nodes, in order, without local leaves */
    IntList *crossings;     /* [N_PHASES][n_global]: values that pass the border after the chunk */
    IntList *stage_updates; /* [p]: ids of nodes of the update of weights that the stage has */
    IntList updates;        /* and of those that are of no weight: each stage looks for itself */
    Value total;            /* what gradients are clipped by; NO_VALUE: by nothing */
    Value largest;          /* what is told of attention's scores; NO_VALUE: nothing is */
    int n_values;
    const Node **chain_leaf; /* by id, NULL: of no accumulator */
    int *param_row;          /* by parameter's id */
    uint8_t *param_stages;   /* [row][p]: stage reads this parameter */
    int *first_stage;        /* by parameter's id; p: no stage reads it */
    int *n_stages;           /* by parameter's id: how many read it */
    const Node **param_of;   /* of accumulators, states and what is computed from them */
    StageComm *comms;
    int n_comms, comm_capacity;
    /* Of the stage that is made, none between stages: */
    Value *local;    /* [v][n_values]: where an old value is in this stage, per local chunk */
    Value *chains;   /* by old accumulator leaf id: the newest value of its chain here */
    Value *tied;     /* by old value: after the reduction over the stages of a tied weight */
    Value **touched; /* what was set of these */
    int n_touched, touched_capacity;
};

typedef struct StageMaker {
    ProgramMaker *maker;
    int stage;
    Graph *out;
} StageMaker;

/* `at`: of local, chains or tied. */
static void set_value(StageMaker *s, Value *at, Value value) {
    ProgramMaker *m = s->maker;
    *at = value;
    ARENA_PUSH(m->ctx->arena, m->touched, m->n_touched, m->touched_capacity, at);
}

static void forget_stage(ProgramMaker *m) {
    for (int i = 0; i < m->n_touched; i++) *m->touched[i] = NO_VALUE;
    m->n_touched = 0;
}

static int value_index(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

/* Leaves and constants are not sent: they are made where they are read. */
static bool is_local_leaf(const Node *node) {
    return OPS[node->op].flags & LEAF || op_is_number(node->op);
}

static IntList *list_of(IntList *lists, const ProgramMaker *m, Phase phase, int chunk) {
    return &lists[(int)phase * m->n_global + chunk];
}

static void list_push(const ProgramMaker *m, IntList *list, int item) {
    ARENA_PUSH(m->ctx->arena, list->items, list->count, list->capacity, item);
}

static void list_nodes(ProgramMaker *m) {
    for (int n = 0; n < m->in->n_nodes; n++) {
        const Node *node = m->in->nodes[n];
        if (node->phase == PHASE_UPDATE || is_local_leaf(node)) continue;
        list_push(m, list_of(m->chunk_nodes, m, node->phase, node->chunk), n);
    }
}

/* Notes the accumulator leaf that each value of a chain stands for. */
static void find_chain_leaves(ProgramMaker *m) {
    for (int n = 0; n < m->in->n_nodes; n++) {
        const Node *node = m->in->nodes[n];
        if (node->op == OP_ACCUMULATOR) m->chain_leaf[n] = node;
        bool adds = node->op == OP_ACCUMULATE || node->op == OP_LARGEST;
        if (adds) m->chain_leaf[n] = m->chain_leaf[node->inputs[0].node->id];
    }
}

/* A value passes all borders from its own chunk to the farthest that reads it, either way. */
static void find_crossings(ProgramMaker *m) {
    Arena *arena = arena_create();
    int *first = ARENA_ARRAY(arena, int, m->n_values), *last = ARENA_ARRAY(arena, int, m->n_values);
    for (int v = 0; v < m->n_values; v++) {
        first[v] = last[v] = m->in->nodes[v / MAX_OUTPUTS]->chunk;
    }
    for (int n = 0; n < m->in->n_nodes; n++) {
        const Node *node = m->in->nodes[n];
        if (node->phase == PHASE_UPDATE) continue;
        for (int i = 0; i < node->n_inputs; i++) {
            Value input = node->inputs[i];
            if (is_local_leaf(input.node) || m->chain_leaf[input.node->id]) continue;
            if (node_is_once(input.node)) continue; /* of a weight that the stage has */
            int v = value_index(input);
            if (node->chunk < first[v]) first[v] = node->chunk;
            if (node->chunk > last[v]) last[v] = node->chunk;
        }
    }
    for (int v = 0; v < m->n_values; v++) {
        Phase phase = m->in->nodes[v / MAX_OUTPUTS]->phase;
        for (int k = first[v]; k < last[v]; k++) {
            list_push(m, list_of(m->crossings, m, phase, k), v);
        }
    }
    arena_destroy(arena);
}

/* Which parameter a node of the update belongs to; NULL: to none (global scalars). */
static void find_params(ProgramMaker *m) {
    const Graph *in = m->in;
    ParamIndex params = param_index_create(in, m->ctx->arena);
    const Node **stack_of = pass_find_stacks(in, m->ctx->arena);
    int p = m->n_pipeline;
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (pass_is_part(node, stack_of[n])) { /* what is made of many goes by the first of them */
            const Node *of = stack_of[n]->inputs[node_int(node, ATTR_first, 0)].node;
            m->param_of[n] = m->param_of[of->id];
        }
        if (node->op == OP_PARAM) m->param_of[n] = node;
        const char *of = node_string(node, ATTR_of);
        const Node *named = of[0] ? param_index_find(&params, node->block, of) : NULL;
        if (named) m->param_of[n] = named;
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            const Node *param = from->op == OP_PARAM ? from : NULL;
            if (node_is_copy(from)) param = m->param_of[from->id];
            if (param && node->phase != PHASE_UPDATE) {
                int stage = path_stage(m->path, node->chunk);
                m->param_stages[(size_t)m->param_row[param->id] * (size_t)p + (size_t)stage] = 1;
            }
            if ((node->phase == PHASE_UPDATE || node->op == OP_ACCUMULATE) &&
                node->op != OP_ADD_N && !m->param_of[n]) {
                m->param_of[n] = m->param_of[from->id];
            }
        }
    }
}

static bool on_stage(const ProgramMaker *m, const Node *param, int stage) {
    size_t row = (size_t)m->param_row[param->id];
    return m->param_stages[row * (size_t)m->n_pipeline + (size_t)stage];
}

static void find_stages(ProgramMaker *m) {
    for (int n = 0; n < m->in->n_nodes; n++) {
        m->first_stage[n] = m->n_pipeline;
        if (m->in->nodes[n]->op != OP_PARAM) continue;
        for (int stage = m->n_pipeline - 1; stage >= 0; stage--) {
            if (!on_stage(m, m->in->nodes[n], stage)) continue;
            m->first_stage[n] = stage;
            m->n_stages[n]++;
        }
    }
}

/* Of a thousand stages each would otherwise look at the update of all. */
static void list_updates(ProgramMaker *m) {
    for (int n = 0; n < m->in->n_nodes; n++) {
        const Node *node = m->in->nodes[n];
        if (node->phase == PHASE_UPDATE && node->op == OP_CLIP_SCALE) m->total = node->inputs[0];
        bool told = node->phase == PHASE_UPDATE && node->op == OP_OUTPUT &&
                    strcmp(node_string(node, ATTR_name), OUTPUT_MAX_LOGIT) == 0;
        if (told) m->largest = node->inputs[0];
    }
    for (int n = 0; n < m->in->n_nodes; n++) {
        const Node *node = m->in->nodes[n], *param = m->param_of[n];
        if (node->phase != PHASE_UPDATE) continue;
        if (!param || node->op == OP_ADD_N || node->op == OP_MAX_N || node == m->total.node) {
            list_push(m, &m->updates, n);
            continue;
        }
        for (int stage = m->first_stage[param->id]; stage < m->n_pipeline; stage++) {
            if (on_stage(m, param, stage)) list_push(m, &m->stage_updates[stage], n);
            if (m->n_stages[param->id] == 1) break;
        }
    }
}

static const char *tied_comm(ProgramMaker *m, const Node *param) {
    const char *name = arena_printf(m->kept, "tied/%s", node_string(param, ATTR_name));
    for (int i = 0; i < m->n_comms; i++) {
        if (strcmp(m->comms[i].name, name) == 0) return m->comms[i].name;
    }
    StageComm comm = {.name = name, .stages = ARENA_ARRAY(m->kept, int, m->n_pipeline)};
    for (int s = 0; s < m->n_pipeline; s++) {
        if (on_stage(m, param, s)) comm.stages[comm.n_stages++] = s;
    }
    ARENA_PUSH(m->kept, m->comms, m->n_comms, m->comm_capacity, comm);
    return name;
}

static Node *add(StageMaker *s, OpKind op, const Value *inputs, int n_inputs, const Attr *attrs,
                 int n_attrs, const Node *like, const Type *type, Phase phase, int chunk) {
    Node *node = graph_add(s->out,
                           &(NodeSpec){.op = op,
                                       .inputs = inputs,
                                       .n_inputs = n_inputs,
                                       .attrs = attrs,
                                       .n_attrs = n_attrs,
                                       .type = type,
                                       .phase = phase,
                                       .block = NO_BLOCK,
                                       .chunk = chunk,
                                       .loc = like->loc},
                           s->maker->ctx->diag);
    if (!node) BUG("make_programs: cannot add %s", OPS[op].name);
    return node;
}

/* A constant made where it is read may be another chunk's block's: here it is of none. */
static void relocate(StageMaker *s, Node *node, int local_chunk) {
    ProgramMaker *m = s->maker;
    node->chunk = local_chunk;
    if (node->block == NO_BLOCK) return;
    int global = path_global(m->path, s->stage, local_chunk);
    int first = m->first_block[global], end = m->first_block[global + 1];
    if (node->block >= first && node->block < end) {
        node->block -= first;
    } else if (op_is_number(node->op)) {
        node->block = NO_BLOCK;
    } else {
        BUG("make_programs: %s of block %d is read in chunk %d, which has blocks %d to %d",
            OPS[node->op].name, node->block, global, first, end - 1);
    }
}

static Value *local_at(const StageMaker *s, int chunk, Value old) {
    const ProgramMaker *m = s->maker;
    return &m->local[(size_t)chunk * (size_t)m->n_values + (size_t)value_index(old)];
}

/* Persistent leaves exist once per stage, in the chunk of their block or else of their first use;
 * inputs and constants once per chunk. */
static Value leaf_value(StageMaker *s, Value old, int chunk) {
    ProgramMaker *m = s->maker;
    bool shared = OPS[old.node->op].flags & PERSISTENT;
    for (int c = 0; c < m->n_chunks; c++) {
        Value known = *local_at(s, c, old);
        if (known.node && (shared || c == chunk)) return known;
    }
    if (node_is_copy(old.node)) { /* the parameter goes where its copy does, and first */
        leaf_value(s, node_value((Node *)m->param_of[old.node->id], 0), chunk);
    }
    Node *copy = graph_copy_node(s->out, old.node, NULL, m->ctx->diag);
    if (!copy) BUG("make_programs: cannot copy a leaf");
    relocate(s, copy, chunk);
    /* A number may have no reader before the backward. */
    const Node *before = copy->id > 0 ? s->out->nodes[copy->id - 1] : NULL;
    if (op_is_number(copy->op) && before && before->phase > copy->phase) {
        copy->phase = before->phase;
    }
    Value value = node_value(copy, 0);
    set_value(s, local_at(s, chunk, old), value);
    return value;
}

static Value find_input(StageMaker *s, Value old, int chunk) {
    const Node *leaf = s->maker->chain_leaf[old.node->id];
    if (leaf) {
        Value *newest = &s->maker->chains[leaf->id];
        if (!newest->node) {
            set_value(s, newest, leaf_value(s, node_value((Node *)leaf, 0), chunk));
        }
        return *newest;
    }
    if (is_local_leaf(old.node)) return leaf_value(s, old, chunk);
    Value value = *local_at(s, chunk, old);
    for (int c = 0; !value.node && c < s->maker->n_chunks; c++) {
        bool anywhere = old.node->phase == PHASE_UPDATE || node_is_once(old.node);
        if (anywhere) value = *local_at(s, c, old);
    }
    if (!value.node) BUG("make_programs: %%%d is not on stage %d", old.node->id, s->stage);
    return value;
}

static void set_results(StageMaker *s, const Node *node, Node *copy, int chunk) {
    for (int i = 0; i < node->n_outputs; i++) {
        set_value(s, local_at(s, chunk, node_value((Node *)node, i)), node_value(copy, i));
    }
}

static Node *copy_node(StageMaker *s, const Node *node, int chunk) {
    Value *inputs = ARENA_ARRAY(s->out->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) inputs[i] = find_input(s, node->inputs[i], chunk);
    Node *copy = graph_copy_node(s->out, node, inputs, s->maker->ctx->diag);
    if (!copy) BUG("make_programs: cannot copy %s", OPS[node->op].name);
    relocate(s, copy, chunk);
    set_results(s, node, copy, chunk);
    bool adds = node->op == OP_ACCUMULATE || node->op == OP_LARGEST;
    const Node *leaf = adds ? s->maker->chain_leaf[node->id] : NULL;
    if (leaf) set_value(s, &s->maker->chains[leaf->id], node_value(copy, 0));
    return copy;
}

/* What passes border k within the stage is at hand for the chunk behind it. */
static void hand_over(StageMaker *s, const IntList *crossings, int from_chunk, int chunk) {
    for (int i = 0; i < crossings->count; i++) {
        Node *old = s->maker->in->nodes[crossings->items[i] / MAX_OUTPUTS];
        Value value = node_value(old, crossings->items[i] % MAX_OUTPUTS);
        set_value(s, local_at(s, chunk, value), find_input(s, value, from_chunk));
    }
}

/* Receives or sends all values of one phase that pass border k, in order of their definition. */
static void cross_border(StageMaker *s, int k, Phase phase, int chunk, bool receive) {
    ProgramMaker *m = s->maker;
    if (k < 0 || k >= m->n_global - 1) return;
    const IntList *crossings = list_of(m->crossings, m, phase, k);
    if (path_turns(m->path, k)) {
        int from = path_chunk(m->path, phase == PHASE_FORWARD ? k : k + 1);
        if (receive) hand_over(s, crossings, from, chunk);
        return;
    }
    for (int number = 0; number < crossings->count; number++) {
        Node *old = m->in->nodes[crossings->items[number] / MAX_OUTPUTS];
        Attr source = attr_int(ATTR_source, number);
        Value value = node_value(old, crossings->items[number] % MAX_OUTPUTS);
        if (receive) {
            Node *recv = add(s, OP_RECV, NULL, 0, &source, 1, old, value_type(value), phase, chunk);
            recv->shardings[0] = *value_sharding(value);
            set_value(s, local_at(s, chunk, value), node_value(recv, 0));
        } else {
            Value input = find_input(s, value, chunk);
            add(s, OP_SEND, &input, 1, &source, 1, old, NULL, phase, chunk);
        }
    }
}

static void make_chunk(StageMaker *s, int chunk, Phase phase) {
    ProgramMaker *m = s->maker;
    int global = path_global(m->path, s->stage, chunk);
    bool forward = phase == PHASE_FORWARD;
    const IntList *nodes = list_of(m->chunk_nodes, m, phase, global);
    cross_border(s, forward ? global - 1 : global, phase, chunk, true);
    for (int i = 0; i < nodes->count; i++) copy_node(s, m->in->nodes[nodes->items[i]], chunk);
    cross_border(s, forward ? global : global - 1, phase, chunk, false);
}

/* The gradient of a tied weight, summed over its stages once it is complete within each. */
static Value tied_gradient(StageMaker *s, Value old, int chunk) {
    ProgramMaker *m = s->maker;
    const Node *param = m->param_of[old.node->id];
    Value value = find_input(s, old, chunk);
    if (!param || m->n_stages[param->id] < 2) return value;
    Value *known = &m->tied[value_index(old)];
    if (!known->node) {
        Attr comm = attr_string(ATTR_comm, tied_comm(m, param));
        Node *sum =
            add(s, OP_STAGE_REDUCE, &value, 1, &comm, 1, old.node, NULL, PHASE_UPDATE, chunk);
        sum->shardings[0] = *value_sharding(value);
        set_value(s, known, node_value(sum, 0));
    }
    return *known;
}

/* The operand of a sum, if it is on this stage; NO_VALUE: it is not. */
static Value find_term(StageMaker *s, Value old) {
    ProgramMaker *m = s->maker;
    if (m->chain_leaf[old.node->id]) { /* of heads' largest scores, before any message */
        bool here = path_stage(m->path, old.node->chunk) == s->stage;
        return here ? find_input(s, old, path_chunk(m->path, old.node->chunk)) : NO_VALUE;
    }
    for (int c = 0; c < m->n_chunks; c++) {
        if (local_at(s, c, old)->node) return *local_at(s, c, old);
    }
    return NO_VALUE;
}

/* Sums over parameters: what is on this stage, each weight counted on its first stage only; and
 * the maximum of what is on this stage. */
static void make_sum(StageMaker *s, const Node *node) {
    ProgramMaker *m = s->maker;
    Value *inputs = ARENA_ARRAY(s->out->arena, Value, node->n_inputs + 1);
    int n_inputs = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        Value old = node->inputs[i];
        const Node *param = m->param_of[old.node->id];
        if (param && m->first_stage[param->id] != s->stage) continue;
        Value term = find_term(s, old);
        if (term.node) inputs[n_inputs++] = term;
    }
    if (n_inputs == 0) return;
    Node *sum = add(s, node->op, inputs, n_inputs, NULL, 0, node, NULL, PHASE_UPDATE, 0);
    sum->shardings[0] = node->shardings[0];
    set_results(s, node, sum, 0);
}

/* The last sum before clipping covers this stage only: add up the pipeline. Likewise of the largest
 * score, which a stage without attention has no part in. */
static void make_total(StageMaker *s, Value old, ReduceKind reduce) {
    static const double LEAST = -1e38; /* less than any score */
    Value *value = local_at(s, 0, old);
    const Node *like = old.node;
    if (!value->node) {
        Attr zero = attr_float(ATTR_value, reduce == REDUCE_MAX ? LEAST : 0);
        Node *none = add(s, OP_CONST, NULL, 0, &zero, 1, like, NULL, PHASE_UPDATE, 0);
        set_value(s, value, node_value(none, 0));
    }
    if (s->maker->n_pipeline == 1) return;
    Attr mesh = attr_string(ATTR_mesh, mesh_axis_name(MESH_P));
    if (reduce == REDUCE_MAX) { /* how is said with the operand: one of its own */
        Node *own = add(s, OP_MAX_N, value, 1, NULL, 0, like, NULL, PHASE_UPDATE, 0);
        own->shardings[0].reduce = (uint8_t)reduce;
        own->shardings[0].partial = 1u << MESH_P;
        *value = node_value(own, 0);
    }
    Node *total = add(s, OP_ALL_REDUCE, value, 1, &mesh, 1, like, NULL, PHASE_UPDATE, 0);
    set_value(s, value, node_value(total, 0));
}

static int chunk_on_stage(const StageMaker *s, const Node *param) {
    for (int c = 0; c < s->maker->n_chunks; c++) {
        if (local_at(s, c, node_value((Node *)param, 0))->node) return c;
    }
    return 0;
}

/* A gradient's part of the norm, not the size of a direction of Muon's. */
static bool is_norm_part(const Node *node) {
    return node->op == OP_SUMSQ && node->inputs[0].node->op != OP_MUON_MOMENTUM;
}

static void make_update_node(StageMaker *s, const Node *node) {
    ProgramMaker *m = s->maker;
    const Node *param = m->param_of[node->id];
    int chunk = 0;
    if (is_local_leaf(node)) return;
    if (node->op == OP_ADD_N || node->op == OP_MAX_N) {
        make_sum(s, node);
        return;
    }
    if (param) {
        if (!on_stage(m, param, s->stage)) return;
        chunk = chunk_on_stage(s, param);
        if (is_norm_part(node) && m->first_stage[param->id] != s->stage) {
            /* Counted elsewhere; but the message must come in the same order on all its stages. */
            tied_gradient(s, node->inputs[0], chunk);
            return;
        }
    } else if (node->n_inputs && m->chain_leaf[node->inputs[0].node->id]) {
        /* The running loss lives where the last chunk runs. */
        if (path_stage(m->path, node->inputs[0].node->chunk) != s->stage) return;
        chunk = path_chunk(m->path, node->inputs[0].node->chunk);
    } else {
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (is_local_leaf(from)) continue;
            bool here = false;
            for (int c = 0; c < m->n_chunks; c++)
                here |= local_at(s, c, node->inputs[i])->node != NULL;
            if (!here) return; /* a sum over nothing on this stage, or another stage's loss */
        }
    }
    int gradient = is_norm_part(node) ? 0 : op_gradient_operand(node->op);
    if (gradient >= 0) {
        Value inputs[12]; /* an optimizer's are fewer */
        for (int i = 0; i < node->n_inputs; i++) {
            inputs[i] = i == gradient ? tied_gradient(s, node->inputs[i], chunk)
                                      : find_input(s, node->inputs[i], chunk);
        }
        Node *copy = graph_copy_node(s->out, node, inputs, m->ctx->diag);
        if (!copy) BUG("make_programs: cannot copy an update");
        relocate(s, copy, chunk);
        set_results(s, node, copy, chunk);
        return;
    }
    copy_node(s, node, chunk);
}

/* The stage's own nodes and those of no weight, in the order in which they are in the graph. */
static void make_update(StageMaker *s) {
    ProgramMaker *m = s->maker;
    const IntList *own = &m->stage_updates[s->stage], *all = &m->updates;
    for (int i = 0, k = 0; i < own->count || k < all->count;) {
        bool is_own = k == all->count || (i < own->count && own->items[i] < all->items[k]);
        int n = is_own ? own->items[i++] : all->items[k++];
        make_update_node(s, m->in->nodes[n]);
        if (m->in->nodes[n] == m->total.node) make_total(s, m->total, REDUCE_SUM);
        if (m->in->nodes[n] == m->largest.node) make_total(s, m->largest, REDUCE_MAX);
    }
}

/* Leaves take the phase of their first reader, so that phases stay in order. */
static void settle_phases(Graph *graph) {
    int phase = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (OPS[node->op].flags & LEAF && node->op != OP_RECV && (int)node->phase < phase) {
            node->phase = (Phase)phase;
        }
        phase = (int)node->phase;
    }
}

ProgramMaker *program_maker_create(const Graph *graph, PassContext *ctx, Arena *kept) {
    Arena *arena = ctx->arena;
    int n_nodes = graph->n_nodes, n_params = 0;
    ProgramMaker *m = ARENA_NEW(arena, ProgramMaker);
    *m = (ProgramMaker){.ctx = ctx,
                        .kept = kept,
                        .in = graph,
                        .n_pipeline = ctx->options.mesh.size[MESH_P],
                        .n_chunks = ctx->options.n_chunks,
                        .n_values = n_nodes * MAX_OUTPUTS};
    m->path = (Path){schedule_path(schedule_find(ctx->options.schedule)), m->n_pipeline};
    m->n_global = m->n_pipeline * m->n_chunks;
    m->first_block = ARENA_ARRAY(arena, int, m->n_global + 1);
    m->chunk_nodes = ARENA_ARRAY(arena, IntList, N_PHASES * m->n_global);
    m->crossings = ARENA_ARRAY(arena, IntList, N_PHASES * m->n_global);
    m->stage_updates = ARENA_ARRAY(arena, IntList, m->n_pipeline);
    m->chain_leaf = ARENA_ARRAY(arena, const Node *, n_nodes + 1);
    m->first_stage = ARENA_ARRAY(arena, int, n_nodes + 1);
    m->n_stages = ARENA_ARRAY(arena, int, n_nodes + 1);
    m->param_row = ARENA_ARRAY(arena, int, n_nodes + 1);
    m->param_of = ARENA_ARRAY(arena, const Node *, n_nodes + 1);
    m->local = ARENA_ARRAY(arena, Value, (size_t)m->n_chunks * (size_t)m->n_values + 1);
    m->chains = ARENA_ARRAY(arena, Value, n_nodes + 1);
    m->tied = ARENA_ARRAY(arena, Value, m->n_values + 1);
    for (int n = 0; n < n_nodes; n++) {
        if (graph->nodes[n]->op == OP_PARAM) m->param_row[n] = n_params++;
    }
    m->param_stages = ARENA_ARRAY(arena, uint8_t, (size_t)n_params * (size_t)m->n_pipeline + 1);
    for (int c = 0, b = 0; c <= m->n_global; c++) {
        while (b < ctx->n_blocks && ctx->chunk_of_block[b] < c) b++;
        m->first_block[c] = b;
    }
    list_nodes(m);
    find_chain_leaves(m);
    find_crossings(m);
    find_params(m);
    find_stages(m);
    list_updates(m);
    return m;
}

StageGraph program_maker_stage(ProgramMaker *m, int stage, Arena *arena) {
    StageMaker s = {.maker = m, .stage = stage, .out = graph_create_like(m->in, arena)};
    StageGraph made = {.graph = s.out};
    for (int c = 0; c < m->n_chunks; c++) make_chunk(&s, c, PHASE_FORWARD);
    for (int c = m->n_chunks - 1; c >= 0; c--) make_chunk(&s, c, PHASE_BACKWARD);
    make_update(&s);
    forget_stage(m);
    settle_phases(s.out);
    for (int c = 0; c < m->n_chunks; c++) {
        int global = path_global(m->path, stage, c);
        made.first_block[c] = m->first_block[global];
        made.n_blocks[c] = m->first_block[global + 1] - m->first_block[global];
    }
    return made;
}

StageComm *program_maker_comms(const ProgramMaker *m, int *out_count) {
    *out_count = m->n_comms;
    return m->comms;
}
