/* append_update: clipping by global norm (Pascanu et al. 2013) and the optimizer, as IR.
 *
 * With a loss scale, gradients bear it until the optimizer: the factor that clips also divides by
 * it. Where the norm is not finite the factor is not either, no parameter or state changes, and
 * the scale is halved; all ranks see the same norm, so all do the same. Adam then counts updates,
 * not steps.
 *
 * Each accumulator's last value is the parameter's gradient; reading it in phase update reads the
 * accumulator's memory once all micro-batches are done.
 *
 * With a most that the norm may be (--skip-spikes), a number of the run's like the learning rate,
 * the factor is infinite where the norm is above it: nothing changes then, the loss scale neither.
 */
#include "ir/moments.h"
#include "ir/param_index.h"
#include "planner/passes/muon.h"
#include "planner/passes/qk_clip.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Update {
    PassContext *ctx;
    Graph *out;
    Value factor; /* of gradients */
    Value learning_rate, step;
    int n_params, capacity;
    Node **params; /* of `out`, with a gradient */
    Value *gradients;
    ParamUses uses;
    const Value *rescale; /* by id of a parameter: after its step it is multiplied by that */
} Update;

static Node *leaf(Update *u, OpKind op, const Node *like, const char *name, const char *of) {
    Attr attrs[2] = {attr_string(ATTR_name, name), attr_string(ATTR_of, of)};
    return pass_build(u->ctx, u->out, op, like, PHASE_UPDATE, NULL, 0, attrs, of ? 2 : 1);
}

static Value build(Update *u, OpKind op, const Node *origin, const Value *inputs, int n_inputs,
                   const Attr *attrs, int n_attrs) {
    Node *node =
        pass_build(u->ctx, u->out, op, origin, PHASE_UPDATE, inputs, n_inputs, attrs, n_attrs);
    return node_value(node, 0);
}

/* Parameters in order, each with the last value of its accumulator chain. */
static void collect_gradients(Update *u) {
    Graph *graph = u->out;
    Value *last = ARENA_ARRAY(u->ctx->arena, Value, graph->n_nodes + 1); /* by leaf id */
    Node **leaf_of = ARENA_ARRAY(u->ctx->arena, Node *, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op == OP_ACCUMULATOR) leaf_of[n] = node;
        if (node->op == OP_ACCUMULATE) leaf_of[n] = leaf_of[node->inputs[0].node->id];
        if (leaf_of[n]) last[leaf_of[n]->id] = node_value(node, 0);
    }
    ParamIndex params = param_index_create(graph, u->ctx->arena);
    Value *gradient = ARENA_ARRAY(u->ctx->arena, Value, graph->n_nodes + 1); /* by parameter's id */
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *leaf = graph->nodes[n];
        if (leaf->op != OP_ACCUMULATOR) continue;
        const Node *param = param_index_find(&params, leaf->block, node_string(leaf, ATTR_of));
        if (param) gradient[param->id] = last[n];
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        if (!gradient[n].node) continue;
        int count = u->n_params, capacity = u->capacity;
        ARENA_PUSH(u->ctx->arena, u->params, count, capacity, graph->nodes[n]);
        ARENA_PUSH(u->ctx->arena, u->gradients, u->n_params, u->capacity, gradient[n]);
    }
}

/* A number that the update keeps. */
static Value variable(Update *u, const Node *like, const char *name) {
    const Type scalar = {.dtype = DTYPE_F32};
    Node origin = *like;
    origin.types[0] = scalar;
    Attr attrs[2] = {attr_string(ATTR_name, name), attr_float(ATTR_value, 0)};
    Node *node = pass_build(u->ctx, u->out, OP_VARIABLE, &origin, PHASE_UPDATE, NULL, 0, attrs, 2);
    return node_value(node, 0);
}

/* The loss scale that the backward reads; NO_VALUE: none. */
static Value find_loss_scale(const Update *u) {
    for (int n = 0; n < u->out->n_nodes; n++) {
        if (u->out->nodes[n]->op == OP_VARIABLE) return node_value(u->out->nodes[n], 0);
    }
    return NO_VALUE;
}

/* Without its factor where the norm is above what the run says: all stays as it is. */
static bool append_skipping(Update *u, Value norm) {
    const Node *like = norm.node;
    if (!u->ctx->options.skips_spikes) return true;
    const Node scalar = {.types = {{.dtype = DTYPE_F32}}, .block = NO_BLOCK};
    Node *most = leaf(u, OP_SCALAR, &scalar, MOST_NORM_NAME, NULL);
    if (!most) return false;
    Value operands[3] = {u->factor, norm, node_value(most, 0)};
    u->factor = build(u, OP_SKIP_SPIKE, like, operands, 3, NULL, 0);
    return u->factor.node != NULL;
}

static bool append_loss_scaling(Update *u, Value total, Value loss_scale, Attr max_norm) {
    const Node *like = total.node;
    Value operands[4] = {total, loss_scale};
    Value clip = build(u, OP_CLIP_SCALE, like, operands, 2, &max_norm, 1);
    if (!clip.node) return false;
    Value norm = {clip.node, 1};
    Attr name = attr_string(ATTR_name, "grad_norm_squared");
    Attr interval = attr_int(ATTR_interval, u->ctx->options.loss_scaling.interval);
    build(u, OP_OUTPUT, like, &norm, 1, &name, 1);
    u->factor = clip;
    if (!append_skipping(u, norm)) return false;
    operands[0] = u->factor;
    operands[2] = variable(u, like, FINITE_STEPS_NAME);
    operands[3] = variable(u, like, UPDATES_NAME);
    Value scale = build(u, OP_LOSS_SCALE, like, operands, 4, &interval, 1);
    if (!scale.node) return false;
    name = attr_string(ATTR_name, "loss_scale");
    build(u, OP_OUTPUT, like, &scale, 1, &name, 1);
    u->step = (Value){scale.node, 2};
    return true;
}

typedef struct Completed {
    int param; /* index */
    int at;    /* where its gradient has its last contribution */
} Completed;

static int by_completion(const void *left, const void *right) {
    const Completed *a = left, *b = right;
    return a->at != b->at ? a->at - b->at : a->param - b->param;
}

/* In the order in which the backward completes gradients: messages that sum them over d stand where
 * they are first read, one after the other, and none shall wait for one that comes later. */
static bool append_clipping(Update *u) {
    const Node *origin = u->params[0];
    Value *squares = ARENA_ARRAY(u->ctx->arena, Value, u->n_params);
    Completed *order = ARENA_ARRAY(u->ctx->arena, Completed, u->n_params);
    int n_summed = 0;
    for (int i = 0; i < u->n_params; i++) {
        if (node_is_balanced(u->params[i])) continue; /* tallies are no gradients */
        order[n_summed++] = (Completed){i, u->gradients[i].node->id};
    }
    qsort(order, (size_t)n_summed, sizeof(*order), by_completion);
    for (int k = 0; k < n_summed; k++) {
        int i = order[k].param;
        squares[k] = build(u, OP_SUMSQ, u->params[i], &u->gradients[i], 1, NULL, 0);
        if (!squares[k].node) return false;
    }
    Attr max_norm = attr_float(ATTR_max_norm, u->ctx->recipe.max_norm);
    const Attr name = attr_string(ATTR_name, "grad_norm_squared");
    Value total = build(u, OP_ADD_N, origin, squares, n_summed, NULL, 0);
    if (!total.node) return false;
    total.node->block = NO_BLOCK;
    total.node->loc = NO_LOC;
    Value scale = find_loss_scale(u);
    if (scale.node) return append_loss_scaling(u, total, scale, max_norm);
    if (u->ctx->options.loss_scaling.initial != 0) BUG("append_update: no loss scale is read");
    build(u, OP_OUTPUT, total.node, &total, 1, &name, 1);
    u->factor = build(u, OP_CLIP_SCALE, total.node, &total, 1, &max_norm, 1);
    return u->factor.node && append_skipping(u, total);
}

/* Small parameters' states, and those of no whole blocks, stay in f32 where others' are in 8 bits.
 */
static bool keeps_8_bits(const Update *u, const Node *param) {
    const int64_t n = type_elements(&param->types[0]);
    return u->ctx->options.state_dtype == DTYPE_DYN8 && n >= MOMENT_LEAST && n % WEIGHT_BLOCK == 0;
}

static DType state_dtype(const Update *u, const Node *param, OpKind op, int input) {
    const DType dtype = u->ctx->options.state_dtype;
    if (dtype != DTYPE_DYN8) return dtype;
    return keeps_8_bits(u, param) ? op_moment_dtype(op, input) : DTYPE_F32;
}

/* The parameter's state, operand `input` of `op`, called kind/NAME; NO_VALUE: reported. */
static Value add_state(Update *u, const Node *param, OpKind op, int input, const char *kind) {
    const char *name = node_string(param, ATTR_name);
    Node like = *param;
    like.types[0].dtype = state_dtype(u, param, op, input);
    Node *node = leaf(u, OP_STATE, &like, arena_printf(u->ctx->arena, "%s/%s", kind, name), name);
    return node ? node_value(node, 0) : NO_VALUE;
}

static bool has_muon(const Update *u, const Node *param) {
    if (u->ctx->recipe.optimizer != OPTIMIZER_MUON || node_is_balanced(param)) return false;
    return node_int(param, ATTR_muon, u->uses.use[param->id] == USE_MATRIX) != 0;
}

static double over_one(double scale) {
    return scale > 0 ? scale : 1;
}

/* What the learning rate is multiplied by for this parameter. */
static double scale_of_rate(const Update *u, const Node *param) {
    const TrainingRecipe *recipe = &u->ctx->recipe;
    double scale = node_float(param, ATTR_lr_scale, 1);
    switch (u->uses.use[param->id]) {
    case USE_TABLE: scale *= over_one(recipe->table_lr_scale); break;
    case USE_MATRIX:
    case USE_HEAD: scale *= over_one(recipe->matrix_lr_scale); break;
    case USE_OTHER: scale *= over_one(recipe->vector_lr_scale); break;
    }
    bool adam = recipe->optimizer == OPTIMIZER_MUON && !has_muon(u, param);
    return adam ? scale * over_one(recipe->adam_lr_scale) : scale;
}

/* Attributes that all optimizers have, and those of `own`. */
static bool build_update(Update *u, OpKind op, const Node *param, const Value *inputs, int n_inputs,
                         const Attr *own, int n_own) {
    double decay = node_float(param, ATTR_decay, 1) * u->ctx->recipe.weight_decay;
    double scale = scale_of_rate(u, param);
    enum { MOST_OPERANDS = 10 };
    Attr attrs[6];
    Value operands[MOST_OPERANDS], rescale = u->rescale[param->id];
    int n_attrs = n_own;
    for (int i = 0; i < n_own; i++) attrs[i] = own[i];
    for (int i = 0; i < n_inputs; i++) operands[i] = inputs[i];
    if (rescale.node) operands[n_inputs++] = rescale;
    attrs[n_attrs++] = attr_float(ATTR_weight_decay, decay);
    if (scale != 1) attrs[n_attrs++] = attr_float(ATTR_lr_scale, scale);
    return build(u, op, param, operands, n_inputs, attrs, n_attrs).node != NULL;
}

static bool append_adamw(Update *u, Node *param, Value gradient) {
    const TrainingRecipe *recipe = &u->ctx->recipe;
    Value m = add_state(u, param, OP_ADAMW, 2, "adam_m");
    Value v = add_state(u, param, OP_ADAMW, 3, "adam_v");
    Value inputs[7] = {node_value(param, 0), gradient, m, v, u->factor, u->learning_rate, u->step};
    Attr attrs[3] = {attr_float(ATTR_beta1, recipe->beta1), attr_float(ATTR_beta2, recipe->beta2),
                     attr_float(ATTR_eps, recipe->eps)};
    return m.node && v.node && build_update(u, OP_ADAMW, param, inputs, 7, attrs, 3);
}

/* BERT's LAMB leaves out of decay and adaptation alike what is no weight (names with LayerNorm or
 * bias): that has Adam's step. */
static bool has_lamb(const Update *u, const Node *param) {
    return u->ctx->recipe.optimizer == OPTIMIZER_LAMB && node_float(param, ATTR_decay, 1) != 0 &&
           !node_is_balanced(param);
}

/* Adam's states, so that a checkpoint goes from one to the other. */
static bool append_lamb_moments(Update *u, Node *param, Value gradient, Value *out) {
    const TrainingRecipe *recipe = &u->ctx->recipe;
    Value m = add_state(u, param, OP_LAMB_MOMENTS, 1, "adam_m");
    Value v = add_state(u, param, OP_LAMB_MOMENTS, 2, "adam_v");
    Value inputs[6] = {node_value(param, 0), m, v, u->factor, u->step, gradient};
    double decay = node_float(param, ATTR_decay, 1) * recipe->weight_decay;
    Attr attrs[4] = {attr_float(ATTR_beta1, recipe->beta1), attr_float(ATTR_beta2, recipe->beta2),
                     attr_float(ATTR_eps, recipe->eps), attr_float(ATTR_weight_decay, decay)};
    if (!m.node || !v.node) return false;
    *out = build(u, OP_LAMB_MOMENTS, param, inputs, 6, attrs, 4);
    return out->node != NULL;
}

static bool append_lamb_step(Update *u, Node *param, Value moments) {
    const TrainingRecipe *recipe = &u->ctx->recipe;
    Node *from = moments.node;
    Value inputs[8] = {node_value(param, 0), node_value(from, 0),
                       node_value(from, 1),  u->factor,
                       u->learning_rate,     u->step,
                       node_value(from, 2),  node_value(from, 3)};
    Attr attrs[4] = {attr_float(ATTR_beta1, recipe->beta1), attr_float(ATTR_beta2, recipe->beta2),
                     attr_float(ATTR_eps, recipe->eps),
                     attr_float(ATTR_trust_max, recipe->trust_max)};
    return build_update(u, OP_LAMB, param, inputs, 8, attrs, recipe->trust_max > 0 ? 4 : 3);
}

/* All norms first, so that few messages complete them (insert_collectives). */
static bool append_lamb(Update *u) {
    Value *moments = ARENA_ARRAY(u->ctx->arena, Value, u->n_params);
    for (int i = 0; i < u->n_params; i++) {
        if (!has_lamb(u, u->params[i])) continue;
        if (!append_lamb_moments(u, u->params[i], u->gradients[i], &moments[i])) return false;
    }
    for (int i = 0; i < u->n_params; i++) {
        if (moments[i].node && !append_lamb_step(u, u->params[i], moments[i])) return false;
    }
    return true;
}

/* SGD and Lion have one state. */
static bool append_momentum(Update *u, Node *param, Value gradient) {
    const TrainingRecipe *recipe = &u->ctx->recipe;
    bool sgd = recipe->optimizer == OPTIMIZER_SGD;
    OpKind op = sgd ? OP_SGD : OP_LION;
    Value m = add_state(u, param, op, 2, sgd ? "momentum" : "lion_m");
    Value inputs[5] = {node_value(param, 0), gradient, m, u->factor, u->learning_rate};
    Attr attrs[2] = {
        attr_float(sgd ? ATTR_momentum : ATTR_beta1, sgd ? recipe->momentum : recipe->beta1),
        attr_float(ATTR_beta2, recipe->beta2)};
    return m.node && build_update(u, op, param, inputs, 5, attrs, sgd ? 1 : 2);
}

/* A formula of the model's, with states of its own names. */
static bool append_rule(Update *u, Node *param, Value gradient) {
    const UpdateRule *rule = &u->ctx->recipe.rule;
    Value inputs[5 + RULE_MOST_STATES] = {node_value(param, 0), gradient};
    int n_inputs = 2;
    for (int i = 0; i < rule->n_states; i++) {
        inputs[n_inputs] = add_state(u, param, (OpKind)((int)OP_RULE0 + rule->n_states), n_inputs,
                                     rule->states[i]);
        if (!inputs[n_inputs++].node) return false;
    }
    inputs[n_inputs++] = u->factor;
    inputs[n_inputs++] = u->learning_rate;
    inputs[n_inputs++] = u->step;
    Attr attrs[3] = {attr_string(ATTR_program, rule->program),
                     attr_string(ATTR_numbers, rule->numbers),
                     attr_int(ATTR_squares, rule->squares)};
    return build_update(u, (OpKind)((int)OP_RULE0 + rule->n_states), param, inputs, n_inputs, attrs,
                        rule->squares ? 3 : 2);
}

/* Moonlight's factor gives a step's elements the size of AdamW's, about 0.2 (arXiv 2502.16982,
 * equation 4); Jordan's keeps the size of what the matrix does to its input. */
static double muon_scale(const TrainingRecipe *recipe, const MuonMatrix *m) {
    double rows = (double)m->n_outputs, columns = (double)m->n_inputs;
    if (recipe->muon_rms > 0) return recipe->muon_rms * sqrt(rows > columns ? rows : columns);
    return rows > columns ? sqrt(rows / columns) : 1;
}

/* Its matrix's direction, from the momentum; NO_VALUE: reported. */
static Value append_direction(Update *u, Node *param, Value gradient) {
    ParamUse use = u->uses.use[param->id];
    if (use != USE_MATRIX && use != USE_HEAD) {
        diag_error(u->ctx->diag, param->loc,
                   "muon: '%s' is no matrix: Muon updates what products, and no look-ups, read, "
                   "all with the same axes summed away and some left; leave 'muon' out",
                   node_string(param, ATTR_name));
        return NO_VALUE;
    }
    Value m = add_state(u, param, OP_MUON_MOMENTUM, 0, "muon_m");
    if (!m.node) return NO_VALUE;
    Attr momentum = attr_float(ATTR_momentum, u->ctx->recipe.momentum);
    Value direction =
        build(u, OP_MUON_MOMENTUM, param, (Value[]){m, u->factor, gradient}, 3, &momentum, 1);
    if (direction.node) direction.output = 1;
    return direction;
}

static bool append_muon_step(Update *u, const Node *param, Value direction) {
    const MuonMatrix *matrix = &u->uses.matrix[param->id];
    Attr scale = attr_float(ATTR_scale, muon_scale(&u->ctx->recipe, matrix));
    Value inputs[4] = {node_value((Node *)param, 0), direction, u->factor, u->learning_rate};
    return direction.node && build_update(u, OP_MUON, param, inputs, 4, &scale, 1);
}

/* With ZeRO each of the ranks that share weights orthogonalises one matrix of a group of so many,
 * rather than all do every one; 1: there is no ZeRO. */
static int stack_size(const Update *u) {
    const PlanOptions *options = &u->ctx->options;
    return options->zero ? mesh_size(&options->mesh, mesh_replicas(&options->mesh, false)) : 1;
}

/* A group is of one stage, which a parameter of no block may not be. */
static bool goes_with(const Update *u, const Node *param, const Node *other) {
    if (param->block == NO_BLOCK || other->block == NO_BLOCK) return false;
    return pass_stage_of_block(u->ctx, param->block) == pass_stage_of_block(u->ctx, other->block) &&
           muon_may_stack(param, &u->uses.matrix[param->id], other, &u->uses.matrix[other->id]);
}

/* Steps for the parameters with these numbers, of one kind. All sizes come first, so that few
 * messages complete them. */
static bool append_muon_group(Update *u, const int *group, int count) {
    Value *xs = ARENA_ARRAY(u->ctx->arena, Value, count), x;
    Value *squares = ARENA_ARRAY(u->ctx->arena, Value, count);
    const Node *first = u->params[group[0]];
    for (int k = 0; k < count; k++) {
        Node *param = u->params[group[k]];
        xs[k] = append_direction(u, param, u->gradients[group[k]]);
        if (!xs[k].node) return false;
        squares[k] = build(u, OP_SUMSQ, param, &xs[k], 1, NULL, 0);
        if (!squares[k].node) return false;
    }
    for (int k = 0; k < count; k++) {
        xs[k] = muon_append_scaled(u->ctx, u->out, u->params[group[k]], xs[k], squares[k]);
        if (!xs[k].node) return false;
    }
    x = xs[0];
    if (count > 1) x = muon_append_stack(u->ctx, u->out, first, xs, count, stack_size(u));
    x = muon_append_steps(u->ctx, u->out, first, &u->uses.matrix[first->id], x);
    if (!x.node) return false;
    for (int k = 0; k < count; k++) {
        const Node *param = u->params[group[k]];
        xs[k] = count > 1 ? muon_append_part(u->ctx, u->out, param, x, k) : x;
    }
    for (int k = 0; k < count; k++) {
        if (!append_muon_step(u, u->params[group[k]], xs[k])) return false;
    }
    return true;
}

static bool append_muon(Update *u) {
    bool *done = ARENA_ARRAY(u->ctx->arena, bool, u->n_params);
    int *group = ARENA_ARRAY(u->ctx->arena, int, u->n_params), most = stack_size(u);
    for (int i = 0; i < u->n_params; i++) {
        if (done[i] || !has_muon(u, u->params[i])) continue;
        int count = 0;
        group[count++] = i;
        for (int k = i + 1; k < u->n_params && count < most; k++) {
            if (done[k] || !has_muon(u, u->params[k])) continue;
            if (goes_with(u, u->params[i], u->params[k])) group[count++] = k;
        }
        for (int k = 0; k < count; k++) done[group[k]] = true;
        if (!append_muon_group(u, group, count)) return false;
    }
    return true;
}

static bool append_balance(Update *u, const Node *param, Value tally) {
    Attr step = attr_float(ATTR_balance, node_float(param, ATTR_balance, 0));
    Value inputs[3] = {node_value((Node *)param, 0), tally, u->factor};
    return build(u, OP_BALANCE, param, inputs, 3, &step, 1).node != NULL;
}

static bool append_param(Update *u, Node *param, Value gradient) {
    switch (u->ctx->recipe.optimizer) {
    case OPTIMIZER_SGD:
    case OPTIMIZER_LION: return append_momentum(u, param, gradient);
    case OPTIMIZER_RULE: return append_rule(u, param, gradient);
    default: return append_adamw(u, param, gradient);
    }
}

static bool append_simple(Update *u, bool rescaled, bool in_8_bits) {
    for (int i = 0; i < u->n_params; i++) {
        const Node *param = u->params[i];
        if (has_muon(u, param) || has_lamb(u, param) || node_is_balanced(param)) continue;
        if ((u->rescale[param->id].node != NULL) != rescaled) continue;
        if (keeps_8_bits(u, param) != in_8_bits) continue;
        if (!append_param(u, u->params[i], u->gradients[i])) return false;
    }
    return true;
}

/* Those of one kind together: a GPU updates neighbours at once. */
static bool append_params(Update *u) {
    for (int k = 0; k < 4; k++) {
        if (!append_simple(u, k & 1, k >= 2)) return false;
    }
    if (!append_lamb(u) || !append_muon(u)) return false;
    for (int i = 0; i < u->n_params; i++) {
        if (!node_is_balanced(u->params[i])) continue;
        if (!append_balance(u, u->params[i], u->gradients[i])) return false;
    }
    return true;
}

/* What forward adds up over micro-batches, by the names of the accumulators. */
static void append_reported(Update *u) {
    int n_nodes = u->out->n_nodes;
    for (int n = 0; n < n_nodes; n++) {
        Node *node = u->out->nodes[n];
        if (node->op != OP_ACCUMULATE || node->phase != PHASE_FORWARD) continue;
        Attr name = attr_string(ATTR_name, node_string(node->inputs[0].node, ATTR_name));
        Value sum = node_value(node, 0);
        build(u, OP_OUTPUT, node, &sum, 1, &name, 1);
    }
}

/* Has the optimizer kernels for the states that are asked for? */
static bool check_states(const PassContext *ctx) {
    const OptimizerKind kind = ctx->recipe.optimizer;
    if (ctx->options.state_dtype != DTYPE_DYN8) return true;
    if (kind == OPTIMIZER_ADAMW || kind == OPTIMIZER_LION || kind == OPTIMIZER_SGD) return true;
    diag_error(ctx->diag, NO_LOC,
               "--optimizer-state dyn8: is for the optimizers adamw, lion and sgd; others' states "
               "are f32 or bf16");
    return false;
}

/* Is there any state that 8 bits change? */
static bool check_sizes(const Update *u) {
    bool any = u->ctx->options.state_dtype != DTYPE_DYN8;
    for (int i = 0; i < u->n_params && !any; i++) {
        any = keeps_8_bits(u, u->params[i]) && !node_is_balanced(u->params[i]);
    }
    if (any) return true;
    diag_error(u->ctx->diag, NO_LOC,
               "--optimizer-state dyn8: has no effect: it is for weights of at least %d numbers in "
               "whole blocks of %d, and none that trains is one",
               MOMENT_LEAST, WEIGHT_BLOCK);
    return false;
}

Graph *pass_append_update(const Graph *in, PassContext *ctx) {
    Update u = {.ctx = ctx, .out = graph_create_like(in, ctx->arena)};
    ValueMap map = value_map_create(in, ctx->arena);
    for (int n = 0; n < in->n_nodes; n++) {
        if (!value_map_copy(&map, in->nodes[n], u.out, ctx->diag)) return NULL;
    }
    if (!check_states(ctx)) return NULL;
    collect_gradients(&u);
    bool learns = false;
    for (int i = 0; i < u.n_params; i++) learns |= !node_is_balanced(u.params[i]);
    if (!learns) {
        diag_error(ctx->diag, NO_LOC, "the model has no parameter that the loss depends on");
        return NULL;
    }
    if (!check_sizes(&u)) return NULL;
    const Node scalar = {.types = {{.dtype = DTYPE_F32}}, .block = NO_BLOCK};
    append_reported(&u);
    u.learning_rate = node_value(leaf(&u, OP_SCALAR, &scalar, "learning_rate", NULL), 0);
    u.step = node_value(leaf(&u, OP_SCALAR, &scalar, "step", NULL), 0);
    if (!append_clipping(&u)) return NULL;
    u.uses = muon_find_uses(u.out, ctx->arena);
    u.rescale = qk_clip_append(ctx, u.out);
    if (!u.rescale) return NULL;
    return append_params(&u) ? u.out : NULL;
}
