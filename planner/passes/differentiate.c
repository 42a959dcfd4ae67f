/* differentiate: source-level reverse mode over the forward graph.
 *
 * Adds, for micro-batch gradients that are averaged over n_micro micro-batches: the running loss,
 * the backward graph, and one accumulator per parameter into which every use adds its share
 * (so that a tied weight's uses in different stages stay where they are). Gradients of what nothing
 * learns through, such as a mask, are not kept; nor are those of frozen parameters, and of what
 * depends on none that trains: the backward ends at the lowest that does.
 */
#include "planner/passes/pass.h"

#include <string.h>

typedef struct Tape {
    PassContext *ctx;
    GradContext grad;
    Graph *out;
    Value *grads;       /* the gradient so far of each value, by id * MAX_OUTPUTS + output */
    Value *chains;      /* accumulator chain of each parameter node, by id */
    const bool *learns; /* by id: graph_find_learning */
} Tape;

static Node *add_accumulator(Tape *tape, const Node *like, const char *name, const char *of,
                             Phase phase) {
    Attr attrs[2] = {attr_string(ATTR_name, name), attr_string(ATTR_of, of)};
    Node sum = *like;
    sum.types[0].dtype = DTYPE_F32;
    return pass_build(tape->ctx, tape->out, OP_ACCUMULATOR, &sum, phase, NULL, 0, attrs, 2);
}

static bool accumulate_param(Tape *tape, Node *param, Value share) {
    Value *chain = &tape->chains[param->id];
    if (!share.node) return false;
    if (!chain->node) {
        const char *name = node_string(param, ATTR_name);
        Node *leaf = add_accumulator(tape, param, arena_printf(tape->out->arena, "grad/%s", name),
                                     name, PHASE_BACKWARD);
        if (!leaf) return false;
        *chain = node_value(leaf, 0);
    }
    Value sum = grad_build(&tape->grad, OP_ACCUMULATE, (Value[]){*chain, share}, 2, NULL, 0);
    *chain = sum;
    return sum.node != NULL;
}

static bool add_share(Tape *tape, Value of, Value share) {
    if (!tape->learns[of.node->id]) return true;
    if (of.node->op == OP_PARAM) return accumulate_param(tape, of.node, share);
    if (OPS[of.node->op].flags & LEAF) return true;
    share = grad_to_dtype(&tape->grad, share, value_type(of)->dtype);
    Value *grad = &tape->grads[of.node->id * MAX_OUTPUTS + of.output];
    if (!grad->node || !share.node) {
        if (!grad->node) *grad = share;
        return true;
    }
    /* Backward values travel to lower chunks only: the sum is made in the lower one of both. */
    const Node *origin = tape->grad.origin;
    if (grad->node->chunk < origin->chunk) tape->grad.origin = grad->node;
    *grad = grad_build(&tape->grad, OP_ADD, (Value[]){*grad, share}, 2, NULL, 0);
    tape->grad.origin = origin;
    return grad->node != NULL;
}

static bool differentiate_node(Tape *tape, Node *node) {
    Value dins[8] = {{0}};
    Value *douts = &tape->grads[node->id * MAX_OUTPUTS];
    bool any = false;
    for (int i = 0; i < node->n_outputs; i++) any |= douts[i].node != NULL;
    if (!any || !tape->learns[node->id] || (OPS[node->op].flags & LEAF)) return true;
    for (int i = 1; i < node->n_outputs; i++) {
        if (!douts[i].node || node->op == OP_CROSS_ENTROPY) continue;
        if (op_stops_gradient(node->op)) continue;
        diag_error(tape->ctx->diag, node->loc, "%s: only its first result has a gradient",
                   OPS[node->op].name);
        return false;
    }
    tape->grad.origin = node;
    if (node->n_inputs > 8) BUG("%s: too many operands to differentiate", OPS[node->op].name);
    OPS[node->op].grad(&tape->grad, node, douts, dins);
    if (tape->grad.failed) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        if (dins[i].node && !add_share(tape, node->inputs[i], dins[i])) return false;
    }
    return true;
}

/* What is tallied stands where a gradient would, and is summed as one. */
static bool add_tally(Tape *tape, Node *tally) {
    Node *param = tally->inputs[0].node;
    if (node_is_frozen(param)) return true;
    tape->grad.origin = tally;
    Value share = grad_reduce_to(&tape->grad, tally->inputs[1], &param->types[0]);
    return accumulate_param(tape, param, share);
}

/* The gradient of the loss itself: 1 / n_micro, times the loss scale if there is one. */
static Node *add_seed(Tape *tape, const Node *mean, const Attr *factor) {
    const LossScaling *scaling = &tape->ctx->options.loss_scaling;
    if (scaling->initial == 0) {
        return pass_build(tape->ctx, tape->out, OP_CONST, mean, PHASE_BACKWARD, NULL, 0, factor, 1);
    }
    Node *scale = pass_add_loss_scale(tape->ctx, tape->out, mean, PHASE_BACKWARD);
    Value value = node_value(scale, 0);
    return scale ? pass_build(tape->ctx, tape->out, OP_SCALE, mean, PHASE_BACKWARD, &value, 1,
                              factor, 1)
                 : NULL;
}

/* value / n_micro, added up over the micro-batches of a step under the output's name. Returns the
 * former. */
static Node *report(Tape *tape, Value value, const Node *output) {
    Attr factor = attr_float(ATTR_value, 1.0 / tape->ctx->n_micro);
    Node *mean =
        pass_build(tape->ctx, tape->out, OP_SCALE, output, PHASE_FORWARD, &value, 1, &factor, 1);
    if (!mean) return NULL;
    Node *leaf = add_accumulator(tape, mean, node_string(output, ATTR_name), "", PHASE_FORWARD);
    Value operands[2] = {node_value(leaf, 0), node_value(mean, 0)};
    Node *sum =
        pass_build(tape->ctx, tape->out, OP_ACCUMULATE, mean, PHASE_FORWARD, operands, 2, NULL, 0);
    return sum ? mean : NULL;
}

static bool report_loss(Tape *tape, Value loss, const Node *output) {
    Attr factor = attr_float(ATTR_value, 1.0 / tape->ctx->n_micro);
    Node *mean = report(tape, loss, output);
    Node *seed = mean ? add_seed(tape, mean, &factor) : NULL;
    if (!seed) return false;
    tape->grads[loss.node->id * MAX_OUTPUTS + loss.output] = node_value(seed, 0);
    return true;
}

/* The graph without backward nodes that no accumulator needs, and without tallies. */
static Graph *without_dead_gradients(Graph *graph, PassContext *ctx) {
    bool *live = ARENA_ARRAY(ctx->arena, bool, graph->n_nodes + 1);
    int n_dead = 0;
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        live[n] |= node->phase == PHASE_FORWARD || node->op == OP_ACCUMULATE;
        live[n] &= node->op != OP_TALLY;
        n_dead += !live[n];
        for (int i = 0; live[n] && i < node->n_inputs; i++) live[node->inputs[i].node->id] = true;
    }
    if (n_dead == 0) return graph;
    Graph *out = graph_create_like(graph, ctx->arena);
    ValueMap map = value_map_create(graph, ctx->arena);
    for (int n = 0; n < graph->n_nodes; n++) {
        if (live[n] && !value_map_copy(&map, graph->nodes[n], out, ctx->diag)) return NULL;
    }
    return out;
}

Graph *pass_differentiate(const Graph *in, PassContext *ctx) {
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    Tape tape = {.ctx = ctx, .out = out, .grad = {.graph = out, .diag = ctx->diag}};
    const Node **reported = ARENA_ARRAY(ctx->arena, const Node *, in->n_nodes + 1);
    Node *loss = NULL;
    int n_reported = 0;
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (node->phase != PHASE_FORWARD) {
            diag_error(ctx->diag, node->loc,
                       "differentiate: the graph has a backward part already");
            return NULL;
        }
        if (node->op == OP_OUTPUT && strcmp(node_string(node, ATTR_name), "loss") == 0) {
            loss = (Node *)node;
            continue;
        }
        if (output_is_reported(node)) {
            reported[n_reported++] = node;
            continue;
        }
        if (!value_map_copy(&map, node, out, ctx->diag)) return NULL;
    }
    if (!loss || !output_is_reported(loss)) {
        diag_error(ctx->diag, loss ? loss->loc : NO_LOC,
                   "the model needs an output 'loss' that is a single number");
        return NULL;
    }
    int n_forward = out->n_nodes;
    tape.grads = ARENA_ARRAY(ctx->arena, Value, (n_forward + 4) * MAX_OUTPUTS);
    tape.chains = ARENA_ARRAY(ctx->arena, Value, n_forward + 4);
    tape.learns = graph_find_learning(out, ctx->arena);
    for (int i = 0; i < n_reported; i++) {
        Value value = *value_map_at(&map, reported[i]->inputs[0]);
        if (!report(&tape, value, reported[i])) return NULL;
    }
    if (!report_loss(&tape, *value_map_at(&map, loss->inputs[0]), loss)) return NULL;
    for (int n = n_forward - 1; n >= 0; n--) {
        Node *node = out->nodes[n];
        bool fine = node->op == OP_TALLY ? add_tally(&tape, node) : differentiate_node(&tape, node);
        if (!fine) return NULL;
    }
    return without_dead_gradients(out, ctx);
}
