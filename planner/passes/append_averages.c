/* append_averages: with --ema, every parameter that trains has an average of its values over the
 * updates (Polyak & Juditsky 1992), which follows it by a node behind its optimizer.
 *
 * An average is a state, in f32, since what it takes of the weights is often less than bf16's last
 * bit: 4 bytes a parameter. It is divided as what the optimizer has made, so that ZeRO divides it
 * from its first stage on, and needs no message. Nothing in a step reads it; who wants to look at a
 * model of averages exchanges them for the weights between two steps (runtime/engine_average.c).
 *
 * Averages come behind all optimizers that stand together: a GPU updates neighbours at once.
 */
#include "planner/passes/pass.h"

#include <string.h>

typedef struct Averager {
    PassContext *ctx;
    const Graph *in;
    Graph *out;
    ValueMap map;
    Value factor, step; /* of `in`: as the optimizers have them */
    const Node **waiting;
    int n_waiting, capacity;
} Averager;

/* What says whether there is an update, and which it is. */
static void find_numbers(Averager *a) {
    Value scale = NO_VALUE, factor = NO_VALUE;
    for (int n = 0; n < a->in->n_nodes; n++) {
        Node *node = a->in->nodes[n];
        bool step = node->op == OP_SCALAR && strcmp(node_string(node, ATTR_name), "step") == 0;
        if (step) a->step = node_value(node, 0);
        if (node->op == OP_CLIP_SCALE && !factor.node) factor = node_value(node, 0);
        if (node->op == OP_SKIP_SPIKE) factor = node_value(node, 0);
        if (node->op == OP_LOSS_SCALE) scale = (Value){node, 2};
    }
    if (scale.node) a->step = scale;
    a->factor = factor;
}

static bool append_average(Averager *a, const Node *update) {
    const Node *param = update->inputs[0].node;
    if (param->op == OP_SLICE) param = param->inputs[0].node;
    if (!a->factor.node || !a->step.node || param->op != OP_PARAM) {
        diag_error(a->ctx->diag, update->loc,
                   "append_averages: '%s' is no update of a parameter by a clip_scale and a step",
                   OPS[update->op].name);
        return false;
    }
    const char *name = node_string(param, ATTR_name);
    Value made = *value_map_at(&a->map, node_value((Node *)update, 0));
    Node like = *param;
    like.types[0].dtype = DTYPE_F32;
    Attr of[2] = {attr_string(ATTR_name, arena_printf(a->ctx->arena, EMA_NAME, name)),
                  attr_string(ATTR_of, name)};
    Node *state = pass_build(a->ctx, a->out, OP_STATE, &like, PHASE_UPDATE, NULL, 0, of, 2);
    if (!state) return false;
    state->shardings[0] = *value_sharding(made);
    Value inputs[4] = {node_value(state, 0), made, *value_map_at(&a->map, a->factor),
                       *value_map_at(&a->map, a->step)};
    Attr decay = attr_float(ATTR_decay, a->ctx->options.ema_decay);
    Node *node = pass_build(a->ctx, a->out, OP_EMA, param, PHASE_UPDATE, inputs, 4, &decay, 1);
    if (node) node->shardings[0] = state->shardings[0];
    return node;
}

static bool append_waiting(Averager *a) {
    for (int i = 0; i < a->n_waiting; i++) {
        if (!append_average(a, a->waiting[i])) return false;
    }
    a->n_waiting = 0;
    return true;
}

Graph *pass_append_averages(const Graph *in, PassContext *ctx) {
    if (ctx->options.ema_decay == 0) return (Graph *)in;
    Averager a = {.ctx = ctx, .in = in, .out = graph_create_like(in, ctx->arena)};
    a.map = value_map_create(in, ctx->arena);
    find_numbers(&a);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        bool updates = op_is_optimizer(node->op);
        if (!updates && !(OPS[node->op].flags & LEAF) && !append_waiting(&a)) return NULL;
        if (!value_map_copy(&a.map, node, a.out, ctx->diag)) return NULL;
        if (updates) ARENA_PUSH(ctx->arena, a.waiting, a.n_waiting, a.capacity, node);
    }
    return append_waiting(&a) ? a.out : NULL;
}
