/* The update: every parameter is updated once, as a whole, from its own gradient and states, or is
 * frozen and never.
 *
 * A rank may update a shard only (--zero 1). Then what the update reads and writes is divided
 * alike; the shards are gathered back over the parameter, or, where the parameter stays divided,
 * over the copy in 16 bits that alone is read elsewhere; and the norm counts every element once: a
 * sum over shards is a partial result until it is summed over the mesh axes that divide them.
 * With --zero 2 shares are added to sums that are divided like them, with --zero 3 weights and
 * their copies stay divided, and are read by nobody but the gathers that make them whole.
 *
 * Muon's step follows from one momentum, of its own gradient and state, and from nothing else that
 * a rank keeps; on the way products over divided axes are summed over the ranks that divide them.
 */
#include "ir/gradient.h"
#include "ir/param_index.h"
#include "planner/verify/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct UpdateVerifier {
    Verifier *v;
    int stage;
    const Graph *graph;
    const Node **updates;  /* by id of a parameter: its optimizer node */
    bool *written;         /* by id of a leaf: a gather writes all of it */
    const Node **momentum; /* by id: the momentum of Muon's that a value is made of, or NULL */
    bool *mixed;           /* by id: and of something else */
    const Node **stack; /* by id: of each of these, numbered along an axis of the value, or NULL */
    const Node *loss_scale; /* what changes the loss scale, or NULL: there is none */
    const Node **params;    /* by block, chunk and name */
    int n_params;
} UpdateVerifier;

static const char *text(UpdateVerifier *uv, Value value) {
    return verify_value_text(uv->v, uv->stage, value);
}

static const char *node_text(UpdateVerifier *uv, const Node *node) {
    return text(uv, (Value){(Node *)node, 0});
}

#define DEFECT(uv, node, format, ...)                                                              \
    verify_defect((uv)->v, (node)->loc, "%s: " format, verify_stage_text((uv)->v, (uv)->stage),    \
                  __VA_ARGS__)

const Node *verify_updated_parameter(const Node *update) {
    const Node *node = update->inputs[0].node;
    if (node->op == OP_SLICE) node = node->inputs[0].node;
    return node->op == OP_PARAM ? node : NULL;
}

static int message_axis(const Node *node) {
    const char *name = node_string(node, ATTR_mesh);
    return mesh_axis_find(name, (int)strlen(name));
}

/* Over c: from a sequence that it deals out to heads, which it divides as h, or back. The sequence
 * is the first of the two. */
static bool exchanged_heads(int from, int at, Sharding *to) {
    bool by_heads = from < at;
    int heads = by_heads ? at : from, sequence = by_heads ? from : at;
    int divided = mesh_divide(to->mesh[heads], MESH_H);
    if (by_heads && (to->mesh[sequence] != MESH_C || divided < 0)) return false;
    if (!by_heads && (to->mesh[sequence] >= 0 || mesh_inner(to->mesh[heads]) != MESH_H))
        return false;
    to->mesh[heads] = (int8_t)(by_heads ? divided : mesh_outer(to->mesh[heads]));
    to->mesh[sequence] = by_heads ? -1 : MESH_C;
    return true;
}

/* The sharding that an all-to-all leads to; `further`: of the axis that it divides. */
static bool exchanged(const Node *node, int mesh, int further, Sharding *to) {
    const Attr *over = node_attr(node, ATTR_over);
    int at = type_find_axis(&node->types[0], node_axis(node, ATTR_axis));
    int from = type_find_axis(&node->types[0], over->axes.items[0]);
    if (at < 0 || from < 0 || from == at) return false;
    if (mesh == MESH_C) return exchanged_heads(from, at, to);
    if (further < 0) return false;
    if (to->mesh[from] == mesh) { /* all that divides it, of a group too */
        to->mesh[from] = -1;
    } else if (mesh == MESH_E && mesh_inner(to->mesh[from]) == mesh) {
        to->mesh[from] = (int8_t)mesh_outer(to->mesh[from]);
    } else {
        return false;
    }
    to->mesh[at] = (int8_t)further;
    return true;
}

/* What a message along one mesh axis makes of its operand's sharding. Over the pipeline shardings
 * say nothing: verify_flow.c. */
static void check_message(UpdateVerifier *uv, const Node *node) {
    const Type *type = &node->types[0];
    const Sharding *from = value_sharding(node->inputs[0]);
    Sharding to = *from;
    int mesh = message_axis(node);
    int at = node->op == OP_ALL_REDUCE ? 0 : type_find_axis(type, node_axis(node, ATTR_axis));
    if (mesh == MESH_P && node->op == OP_ALL_REDUCE) return;
    if (mesh < 0) return; /* verify_program.c */
    unsigned axes = mesh_axes(&uv->graph->mesh, mesh);
    bool was_partial = axes && (from->partial & axes) == axes;
    bool fits = at >= 0;
    int further = fits ? mesh_divide(from->mesh[at], mesh) : -2;
    switch (node->op) {
    case OP_ALL_REDUCE: fits &= was_partial; break;
    case OP_REDUCE_SCATTER:
        fits = fits && was_partial && further >= 0;
        if (fits) to.mesh[at] = (int8_t)further;
        break;
    case OP_ALL_GATHER:
        fits = fits && (from->mesh[at] == mesh || mesh_inner(from->mesh[at]) == mesh);
        if (fits) to.mesh[at] = (int8_t)(from->mesh[at] == mesh ? -1 : mesh_outer(from->mesh[at]));
        break;
    case OP_ALL_TO_ALL: fits = fits && exchanged(node, mesh, further, &to); break;
    default: /* a slice */
        fits = fits && !(from->partial & axes) && further >= 0;
        if (fits) to.mesh[at] = (int8_t)further;
        break;
    }
    if (node->op != OP_ALL_TO_ALL) to.partial &= (uint8_t)~axes;
    fits = fits && sharding_equal(&to, &node->shardings[0], type->rank);
    if (!fits) {
        DEFECT(uv, node, "%s: along %s this does not lead from its operand's sharding to its own",
               node_text(uv, node), mesh_axis_name(mesh));
    }
}

/* The mesh axes that divide a value. */
static unsigned dividing(const UpdateVerifier *uv, Value value) {
    unsigned axes = 0;
    for (int i = 0; i < value_type(value)->rank; i++) {
        axes |= mesh_axes(&uv->graph->mesh, value_sharding(value)->mesh[i]);
    }
    return axes;
}

/* The norm's nodes: what is a partial result is said to be one, and none is used as if it were
 * complete. */
static void check_norm(UpdateVerifier *uv, const Node *node) {
    unsigned partial = node->shardings[0].partial;
    if (node->op == OP_SUMSQ) {
        if (value_sharding(node->inputs[0])->partial) {
            DEFECT(uv, node, "%s: squares partial sums: %s", node_text(uv, node),
                   text(uv, node->inputs[0]));
        } else if (partial != dividing(uv, node->inputs[0])) {
            DEFECT(uv, node, "%s: its sum is not over the ranks that divide %s",
                   node_text(uv, node), text(uv, node->inputs[0]));
        }
        return;
    }
    for (int i = 0; i < node->n_inputs; i++) {
        unsigned want = node->op == OP_ADD_N ? partial : 0;
        if (value_sharding(node->inputs[i])->partial == want) continue;
        DEFECT(uv, node, "%s: %s is not summed over the ranks as it has to be here",
               node_text(uv, node), text(uv, node->inputs[i]));
    }
}

int verify_first_number(OpKind op) {
    if (op_rule_states(op) >= 0) return 2 + op_rule_states(op);
    return op == OP_ADAMW                      ? 4
           : op == OP_MUON || op == OP_BALANCE ? 2
                                               : 3; /* LAMB: p and both moments */
}

/* Operands and results that hold an element each per element of the parameter. */
static void check_divided_alike(UpdateVerifier *uv, const Node *update) {
    const Sharding *part = value_sharding(update->inputs[0]);
    int rank = value_type(update->inputs[0])->rank, n_like = verify_first_number(update->op);
    for (int i = 0; i < update->n_inputs; i++) {
        bool alike = i < n_like || node_is_copy(update->inputs[i].node);
        if (!alike || sharding_equal(value_sharding(update->inputs[i]), part, rank)) continue;
        DEFECT(uv, update, "%s: %s is divided otherwise than %s", node_text(uv, update),
               text(uv, update->inputs[i]), text(uv, update->inputs[0]));
        return;
    }
    for (int o = 0; o < update->n_outputs; o++) {
        if (sharding_equal(&update->shardings[o], part, rank)) continue;
        DEFECT(uv, update, "%s: result %d is divided otherwise than %s", node_text(uv, update), o,
               text(uv, update->inputs[0]));
        return;
    }
}

const Node *verify_find_op(const Graph *graph, OpKind op) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == op) return graph->nodes[n];
    }
    return NULL;
}

Value verify_clip_of(Value factor) {
    return factor.node->op == OP_SKIP_SPIKE ? factor.node->inputs[0] : factor;
}

bool verify_counts_updates(const Graph *graph, Value step) {
    const Node *scale = verify_find_op(graph, OP_LOSS_SCALE);
    if (scale) return step.node == scale && step.output == 2;
    return step.node->op == OP_SCALAR && strcmp(node_string(step.node, ATTR_name), "step") == 0;
}

static bool is_read_by_backward(const Graph *graph, Value value) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0;
             (node->phase == PHASE_BACKWARD || node->phase == PHASE_WEIGHTS) && i < node->n_inputs;
             i++) {
            if (value_equal(node->inputs[i], value)) return true;
        }
    }
    return false;
}

static const Node *first_loss_scale(const Plan *plan) {
    return verify_find_op(plan->programs[plan->stages[0].program].graph, OP_LOSS_SCALE);
}

/* Three variables (verify_lifetimes.c: each one's own), changed alike on every stage, once a step.
 */
static void check_loss_scale(UpdateVerifier *uv, const Node *node) {
    const Plan *plan = uv->v->plan;
    static const char *const VARIABLES[] = {LOSS_SCALE_NAME, FINITE_STEPS_NAME, UPDATES_NAME};
    const Node *first = first_loss_scale(plan);
    bool own = node == uv->loss_scale && node->phase == PHASE_UPDATE, alike = first != NULL;
    for (int i = 1; i < node->n_inputs; i++) own &= node->inputs[i].node->op == OP_VARIABLE;
    for (int i = 1; own && i < node->n_inputs; i++) {
        own = strcmp(node_string(node->inputs[i].node, ATTR_name), VARIABLES[i - 1]) == 0;
    }
    if (!own) {
        DEFECT(uv, node, "%s: its last three operands are not the variables that it alone changes",
               node_text(uv, node));
        return;
    }
    double value = node_float(node->inputs[1].node, ATTR_value, 0);
    int64_t interval = node_int(node, ATTR_interval, 0);
    bool begins = value >= 1 && value <= LOSS_SCALE_MOST && interval <= LOSS_SCALE_MOST_INTERVAL;
    for (int i = 2; i < node->n_inputs; i++) {
        begins &= node_float(node->inputs[i].node, ATTR_value, 0) == 0;
    }
    if (!begins) {
        DEFECT(uv, node,
               "%s: a loss scale from %g on that doubles after %" PRId64
               " steps, or counts that do not begin with 0",
               node_text(uv, node), value, interval);
        return;
    }
    int last = path_stage(plan_path(plan), plan->n_stages * plan->n_chunks - 1); /* has the loss */
    if (uv->stage == last && !is_read_by_backward(uv->graph, node->inputs[1])) {
        DEFECT(uv, node, "%s: the backward does not begin with this loss scale",
               node_text(uv, node));
    }
    const Node *clip = verify_clip_of(node->inputs[0]).node;
    if (clip->op != OP_CLIP_SCALE || clip->n_inputs < 2 ||
        verify_clip_of(node->inputs[0]).output != 0 ||
        !value_equal(clip->inputs[1], node->inputs[1])) {
        DEFECT(uv, node, "%s: does not follow from a norm without this loss scale",
               node_text(uv, node));
    }
    for (int i = 1; alike && i < node->n_inputs; i++) {
        const Node *here = node->inputs[i].node, *there = first->inputs[i].node;
        alike = strcmp(node_string(here, ATTR_name), node_string(there, ATTR_name)) == 0 &&
                node_float(here, ATTR_value, 0) == node_float(there, ATTR_value, 0);
    }
    if (!alike || node_int(node, ATTR_interval, 0) != node_int(first, ATTR_interval, 0)) {
        DEFECT(uv, node, "%s: changes the loss scale otherwise than stage 0", node_text(uv, node));
    }
}

/* What the optimizer multiplies gradients by takes the loss scale out of them, if there is one. */
static void check_factor(UpdateVerifier *uv, const Node *update) {
    Value factor =
        update->inputs[update->op == OP_MUON_MOMENTUM ? 1 : verify_first_number(update->op)];
    Value clip = verify_clip_of(factor);
    bool scaled = clip.node->op == OP_CLIP_SCALE && clip.node->n_inputs > 1;
    bool fits = uv->loss_scale ? value_equal(factor, uv->loss_scale->inputs[0]) : !scaled;
    if (fits) return;
    DEFECT(uv, update, "%s: multiplies gradients by %s, which does not fit their loss scale",
           node_text(uv, update), text(uv, factor));
}

/* Behind the factor: what the run's schedule says. */
static void check_rate(UpdateVerifier *uv, const Node *update) {
    Value rate = update->inputs[verify_first_number(update->op) + 1];
    if (rate.node->op == OP_SCALAR &&
        strcmp(node_string(rate.node, ATTR_name), "learning_rate") == 0) {
        return;
    }
    DEFECT(uv, update, "%s: takes %s for the learning rate", node_text(uv, update), text(uv, rate));
}

/* Adam counts steps or, as some may be left out, updates. */
static void check_step(UpdateVerifier *uv, const Node *update, Value step) {
    if (verify_counts_updates(uv->graph, step)) return;
    DEFECT(uv, update, "%s: takes %s for the number of updates", node_text(uv, update),
           text(uv, step));
}

/* The engine reads the norm and the loss scale by name. */
static void check_output(UpdateVerifier *uv, const Node *node, const char *name, Value value) {
    const Graph *graph = uv->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *output = graph->nodes[n];
        if (output->op == OP_OUTPUT && output->phase == PHASE_UPDATE &&
            strcmp(node_string(output, ATTR_name), name) == 0) {
            if (value_equal(output->inputs[0], value)) return;
            break;
        }
    }
    DEFECT(uv, node, "%s: output '%s' is not %s", node_text(uv, node), name, text(uv, value));
}

static void check_gradient(UpdateVerifier *uv, const Node *update, Value value, const Node *param) {
    const Node *gradient = gradient_accumulator(value);
    if (gradient && leaf_is_of(gradient, param)) return;
    DEFECT(uv, update, "%s: updates %s with %s, which is not its gradient", node_text(uv, update),
           node_text(uv, param), text(uv, value));
}

static void check_state(UpdateVerifier *uv, const Node *update, Value value, const Node *param) {
    const Node *state = value.node;
    if (state->op == OP_STATE && !node_is_copy(state) && leaf_is_of(state, param)) return;
    DEFECT(uv, update, "%s: updates %s with %s, which is no state of it", node_text(uv, update),
           node_text(uv, param), text(uv, value));
}

static int stacked_axis(const Node *stack) {
    return node_attr(stack, ATTR_to)->axes.items[0];
}

/* Does the node do with each of the stack's values what it does with any other of them, and nothing
 * with two together? */
static bool keeps_apart(const Node *node, const Node *stack) {
    int axis = stacked_axis(stack);
    if (type_find_axis(&node->types[0], axis) < 0) return false;
    if (node->op == OP_MATMUL) {
        return node_over(node, ATTR_shared, axis) && !node_over(node, ATTR_over, axis);
    }
    return node->op != OP_STACK && (!op_moves_parts(node->op) || !op_needs_whole(node, axis));
}

/* A value of one operand of the stack's, taken out again. */
static bool is_part(const Node *node, const Node *stack) {
    return stack && node->op == OP_NARROW && !node_attr(node, ATTR_to) &&
           node_axis(node, ATTR_axis) == stacked_axis(stack) &&
           node_int(node, ATTR_first, 0) < stack->n_inputs;
}

/* Notes which momentum the node's results are made of; only of that, or they are mixed. Of a stack
 * each element is. */
static void note_momentum(UpdateVerifier *uv, const Node *node) {
    const Node *from = node->op == OP_MUON_MOMENTUM ? node : NULL, *stack = NULL;
    bool mixed = false, other = false, stacks = node->op == OP_STACK;
    for (int i = 0; i < node->n_inputs && node->op != OP_MUON_MOMENTUM; i++) {
        const Node *input = node->inputs[i].node, *momentum = uv->momentum[input->id];
        const Node *of = uv->stack[input->id];
        mixed |= uv->mixed[input->id] || (stacks && of) ||
                 (from && momentum && !stacks && (from != momentum || of != stack)) ||
                 (input->op == OP_MUON_MOMENTUM && node->inputs[i].output != 1);
        other |= !momentum && input->op != OP_CONST;
        if (!momentum) continue;
        if (!from || !stacks) from = momentum;
        stack = of;
    }
    if (stacks && from) {
        stack = node;
    } else if (is_part(node, stack)) {
        from = uv->momentum[stack->inputs[node_int(node, ATTR_first, 0)].node->id];
        stack = NULL;
    } else if (stack && from) {
        mixed |= !keeps_apart(node, stack);
    }
    uv->momentum[node->id] = from;
    uv->stack[node->id] = from ? stack : NULL;
    uv->mixed[node->id] = from && (mixed || other);
}

static void check_muon(UpdateVerifier *uv, const Node *update, const Node *param) {
    const Node *direction = update->inputs[1].node, *momentum = uv->momentum[direction->id];
    bool is_state = direction->op == OP_MUON_MOMENTUM && update->inputs[1].output != 1;
    if (!momentum || uv->mixed[direction->id] || uv->stack[direction->id] || is_state) {
        DEFECT(uv, update, "%s: updates %s with %s, which is not made of one momentum alone",
               node_text(uv, update), node_text(uv, param), text(uv, update->inputs[1]));
        return;
    }
    check_gradient(uv, update, momentum->inputs[2], param);
    check_state(uv, update, momentum->inputs[0], param);
    check_factor(uv, momentum);
    const Sharding *part = value_sharding(momentum->inputs[0]);
    for (int i = 0; i < 2; i++) { /* state and gradient, state and direction */
        const Sharding *other = i ? &momentum->shardings[1] : value_sharding(momentum->inputs[2]);
        if (sharding_equal(part, other, momentum->types[0].rank) && !part->partial) continue;
        DEFECT(uv, momentum, "%s: %s is divided otherwise than %s", node_text(uv, momentum),
               i ? "the direction" : text(uv, momentum->inputs[2]), text(uv, momentum->inputs[0]));
        return;
    }
}

/* The number that the value is, completed over ranks, perhaps in one vector with others. */
static Value number_behind(Value value) {
    int64_t part = -1;
    const Node *narrow = NULL;
    for (;;) {
        const Node *node = value.node;
        if (node->op == OP_ALL_REDUCE) {
            value = node->inputs[0];
        } else if (node->op == OP_NARROW && !narrow && !node_attr(node, ATTR_to)) {
            narrow = node;
            part = node_int(node, ATTR_first, 0);
            value = node->inputs[0];
        } else if (node->op == OP_STACK && narrow && part < node->n_inputs &&
                   node_over(node, ATTR_to, node_axis(narrow, ATTR_axis))) {
            value = node->inputs[part];
            narrow = NULL;
        } else {
            return narrow ? NO_VALUE : value;
        }
    }
}

/* A vector of numbers is partial as each of them is. */
static void check_stacked(UpdateVerifier *uv, const Node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (value_sharding(node->inputs[i])->partial == node->shardings[0].partial) continue;
        DEFECT(uv, node, "%s: %s is a partial sum over other ranks", node_text(uv, node),
               text(uv, node->inputs[i]));
        return;
    }
}

/* Moments and step are one parameter's, and of one definition; norms are of all of it. */
static void check_lamb(UpdateVerifier *uv, const Node *update, const Node *param) {
    static const AttrKey ALIKE[] = {ATTR_beta1, ATTR_beta2, ATTR_eps, ATTR_weight_decay};
    enum { MOMENTS = 1, STEP = 5, NORMS = 6 };
    const Node *moments = update->inputs[MOMENTS].node;
    bool fits = moments->op == OP_LAMB_MOMENTS &&
                value_equal(moments->inputs[0], update->inputs[0]) &&
                value_equal(moments->inputs[4], update->inputs[STEP]);
    for (int k = 0; fits && k < 2; k++) {
        Value moment = update->inputs[MOMENTS + k], norm = number_behind(update->inputs[NORMS + k]);
        fits = value_equal(moment, (Value){(Node *)moments, k}) &&
               value_equal(norm, (Value){(Node *)moments, 2 + k});
    }
    for (int k = 0; fits && k < 4; k++) {
        fits = node_float(moments, ALIKE[k], 0) == node_float(update, ALIKE[k], 0);
    }
    if (!fits) {
        DEFECT(uv, update, "%s: its moments and norms are not those of %s", node_text(uv, update),
               text(uv, update->inputs[0]));
        return;
    }
    check_gradient(uv, update, moments->inputs[5], param);
    for (int k = 1; k < 3; k++) check_state(uv, update, moments->inputs[k], param);
    check_step(uv, update, update->inputs[STEP]);
    if (!value_equal(moments->inputs[3], update->inputs[verify_first_number(OP_LAMB)])) {
        DEFECT(uv, moments, "%s: multiplies gradients by %s, and the step by %s",
               node_text(uv, moments), text(uv, moments->inputs[3]),
               text(uv, update->inputs[verify_first_number(OP_LAMB)]));
    }
    for (int k = 0; k < 2; k++) {
        if (!value_sharding(update->inputs[NORMS + k])->partial) continue;
        DEFECT(uv, update, "%s: %s is not summed over the ranks as it has to be here",
               node_text(uv, update), text(uv, update->inputs[NORMS + k]));
    }
}

/* Each element of a shard counts once, on the rank that has it. */
static void check_moments(UpdateVerifier *uv, const Node *moments) {
    const Sharding *part = value_sharding(moments->inputs[0]);
    unsigned divided = dividing(uv, moments->inputs[0]);
    int rank = moments->types[0].rank;
    bool alike = !part->partial && moments->shardings[2].partial == divided &&
                 moments->shardings[3].partial == divided;
    for (int i = 0; i < moments->n_inputs; i++) {
        if (i == 3 || i == 4) continue; /* numbers */
        alike &= sharding_equal(value_sharding(moments->inputs[i]), part, rank);
    }
    for (int o = 0; o < 2; o++) alike &= sharding_equal(&moments->shardings[o], part, rank);
    if (alike) return;
    DEFECT(uv, moments,
           "%s: what it reads and makes is not divided alike, or its norms are not over the ranks "
           "that divide it",
           node_text(uv, moments));
}

/* A product of the update is a partial sum over just the ranks that divide what it sums away, and
 * nothing but a message reads one. */
static void check_whole_operands(UpdateVerifier *uv, const Node *node) {
    unsigned summed = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        const Type *type = value_type(node->inputs[i]);
        const Sharding *sharding = value_sharding(node->inputs[i]);
        for (int k = 0; node->op == OP_MATMUL && k < type->rank; k++) {
            bool over = node_over(node, ATTR_over, type->axes[k]);
            if (over) summed |= mesh_axes(&uv->graph->mesh, sharding->mesh[k]);
        }
        if (!sharding->partial) continue;
        DEFECT(uv, node, "%s: %s is not summed over the ranks as it has to be here",
               node_text(uv, node), text(uv, node->inputs[i]));
        return;
    }
    if (node->shardings[0].partial == summed) return;
    DEFECT(uv, node, "%s: its sum is not over the ranks that divide what it sums away",
           node_text(uv, node));
}

static void check_update(UpdateVerifier *uv, const Node *update) {
    const Node *param = verify_updated_parameter(update);
    if (!param) {
        DEFECT(uv, update, "%s: updates %s, which is no parameter", node_text(uv, update),
               text(uv, update->inputs[0]));
        return;
    }
    if (uv->updates[param->id]) {
        DEFECT(uv, update, "'%s' is updated twice in a step", node_string(param, ATTR_name));
        return;
    }
    uv->updates[param->id] = update;
    check_divided_alike(uv, update);
    check_factor(uv, update);
    if ((update->op == OP_BALANCE) != node_is_balanced(param)) {
        DEFECT(uv, update, "%s: '%s' is %s", node_text(uv, update), node_string(param, ATTR_name),
               node_is_balanced(param) ? "balanced, and moves by tallies alone" : "not balanced");
    }
    if (update->op != OP_BALANCE) check_rate(uv, update);
    if (update->op == OP_MUON) {
        check_muon(uv, update, param);
        return;
    }
    if (update->op == OP_LAMB) {
        check_lamb(uv, update, param);
        return;
    }
    check_gradient(uv, update, update->inputs[1], param);
    if (update->op == OP_ADAMW || op_rule_states(update->op) >= 0) {
        check_step(uv, update, update->inputs[verify_first_number(update->op) + 2]);
    }
    for (int i = 2; i < verify_first_number(update->op); i++) {
        check_state(uv, update, update->inputs[i], param);
    }
}

/* Shards of a new parameter, or of it in 16 bits, come back to where it is read from; or, once a
 * step, of what the last update left. */
static void check_write_back(UpdateVerifier *uv, const Node *gather) {
    const Node *leaf = gather->inputs[1].node;
    Value shard = gather->inputs[0];
    bool copy = node_is_copy(leaf), fits = leaf->op == OP_PARAM || copy;
    if (copy && (op_is_cast(shard.node->op) || shard.node->op == OP_ROUND_BLOCKS)) {
        shard = shard.node->inputs[0];
    } else {
        fits &= !copy;
    }
    const Node *param =
        op_is_optimizer(shard.node->op) ? verify_updated_parameter(shard.node) : NULL;
    if (node_is_once(gather) && copy) param = shard.node->op == OP_PARAM ? shard.node : NULL;
    fits = fits && param && shard.output == 0 && (copy ? leaf_is_of(leaf, param) : leaf == param) &&
           sharding_equal(&leaf->shardings[0], &gather->shardings[0], gather->types[0].rank) &&
           !uv->written[leaf->id];
    if (fits) {
        uv->written[leaf->id] = true;
        return;
    }
    DEFECT(uv, gather, "%s: writes %s over %s, which is not its new value", node_text(uv, gather),
           text(uv, gather->inputs[0]), text(uv, gather->inputs[1]));
}

static int by_name(const void *left, const void *right) {
    const Node *a = *(const Node *const *)left, *b = *(const Node *const *)right;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    int x = leaf_chunk(a), y = leaf_chunk(b);
    if (x != y) return x < y ? -1 : 1;
    return strcmp(node_string(a, ATTR_name), node_string(b, ATTR_name));
}

static void collect_parameters(UpdateVerifier *uv) {
    uv->params = ARENA_ARRAY(uv->v->scratch, const Node *, uv->graph->n_nodes + 1);
    for (int n = 0; n < uv->graph->n_nodes; n++) {
        const Node *node = uv->graph->nodes[n];
        if (node->op == OP_PARAM) uv->params[uv->n_params++] = node;
    }
    qsort(uv->params, (size_t)uv->n_params, sizeof(*uv->params), by_name);
}

/* The parameter that a copy, state or accumulator is of, or NULL. */
static const Node *find_parameter(UpdateVerifier *uv, const Node *copy) {
    int low = 0, high = uv->n_params;
    while (low < high) {
        int middle = (low + high) / 2;
        const Node *param = uv->params[middle];
        int order = param->block != copy->block ? param->block - copy->block
                    : leaf_chunk(param) != leaf_chunk(copy)
                        ? leaf_chunk(param) - leaf_chunk(copy)
                        : strcmp(node_string(param, ATTR_name), node_string(copy, ATTR_of));
        if (order == 0) return param;
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* A frozen parameter has no update, any other has one, and has its gradients in f32. */
static void check_trains(UpdateVerifier *uv, const Node *param, const Node *update) {
    const char *name = node_string(param, ATTR_name);
    DType dtype = param->types[0].dtype;
    if (node_is_frozen(param)) {
        if (update) DEFECT(uv, update, "'%s' is frozen, and is updated", name);
        bool kept = dtype == DTYPE_F32 || (dtype_is_blocked(dtype) && !dtype_is_moment(dtype));
        if (kept || dtype == dtype_of_activations(uv->v->plan->precision)) return;
    } else {
        if (!update) DEFECT(uv, param, "'%s' is not frozen, and is never updated", name);
        if (dtype == DTYPE_F32) return;
    }
    DEFECT(uv, param, "parameter '%s' is kept in %s", name, dtype_name(dtype));
}

/* A gradient or state of a parameter that has none would be memory for nothing. */
static void check_of_frozen(UpdateVerifier *uv, const Node *leaf) {
    const Node *param = find_parameter(uv, leaf);
    if (!param || !node_is_frozen(param)) return;
    DEFECT(uv, leaf, "%s: its parameter %s is frozen", node_text(uv, leaf), node_text(uv, param));
}

/* A copy is written where its weight is (of those in blocks verify_rounded.c proves it), and no
 * update forgets a part of its own. */
static void check_written(UpdateVerifier *uv, const Node *leaf) {
    if (leaf->op == OP_PARAM) {
        const Node *update = uv->updates[leaf->id];
        check_trains(uv, leaf, update);
        if (!update || update->inputs[0].node == leaf || uv->written[leaf->id]) return;
        DEFECT(uv, update, "%s: updates a shard of %s that is not gathered into it",
               node_text(uv, update), node_text(uv, leaf));
        return;
    }
    const Node *param = find_parameter(uv, leaf);
    const Node *update = param ? uv->updates[param->id] : NULL;
    DType precision = uv->v->plan->precision;
    if (leaf->types[0].dtype != dtype_of_activations(precision)) {
        DEFECT(uv, leaf, "%s is a copy in %s, the plan's precision is %s", node_text(uv, leaf),
               dtype_name(leaf->types[0].dtype), dtype_name(precision));
    } else if (update && !uv->written[leaf->id] && !node_attr(leaf, ATTR_blocks) &&
               update->inputs[update->n_inputs - 1].node != leaf) {
        DEFECT(uv, update, "the update of %s does not write its copy %s", node_text(uv, param),
               node_text(uv, leaf));
    }
}

static bool over_data(const Node *leaf) {
    bool found = false;
    for (int i = 0; i < leaf->types[0].rank; i++) {
        found |= mesh_is_replicas(leaf->shardings[0].mesh[i]);
    }
    return found;
}

/* The least --zero with which the node has a leaf that is divided over d for its operand: in 16
 * bits, a parameter's f32 form is divided from the first stage on, but read by the update alone. */
static ZeroStage least_zero(const Node *node, const Node *leaf) {
    if (leaf->op == OP_ACCUMULATOR) return ZERO_GRADIENTS;
    if (node_is_copy(leaf)) return ZERO_PARAMETERS;
    return node->phase == PHASE_UPDATE || node_is_once(node) ? ZERO_OPTIMIZER : ZERO_PARAMETERS;
}

/* May the node, outside of the update, have a shard of the leaf for its operand? To gather it, to
 * add shares of the same shard to it, or for its shape only. */
static bool takes_shard(const Node *node, int i) {
    const Node *leaf = node->inputs[i].node;
    if (leaf->op == OP_ACCUMULATOR) return node->op == OP_ACCUMULATE;
    return node->op == OP_ALL_GATHER || op_operand_precision(node->op, i) == OPERAND_UNREAD;
}

/* What is divided over d is read as the plan's `zero` has it. */
static void check_leaf_reads(UpdateVerifier *uv, const Node *node) {
    ZeroStage zero = (ZeroStage)uv->v->plan->zero;
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *leaf = node->inputs[i].node;
        if (!(OPS[leaf->op].flags & PERSISTENT) || !over_data(leaf)) continue;
        bool within = node->phase != PHASE_UPDATE;
        bool taken =
            !within || node_is_once(node) || (zero >= ZERO_GRADIENTS && takes_shard(node, i));
        if (zero && !taken) {
            DEFECT(uv, node, "%s: reads a shard of %s; it is whole on no rank", node_text(uv, node),
                   node_text(uv, leaf));
        } else if (zero < least_zero(node, leaf)) {
            DEFECT(uv, leaf, "%s is divided over d, and the plan says zero=%d", node_text(uv, leaf),
                   (int)zero);
        } else {
            continue;
        }
        return;
    }
}

/* A share is added to a sum that is divided like it. */
static void check_share(UpdateVerifier *uv, const Node *node) {
    for (int i = 0; i < 2; i++) {
        const Sharding *part = value_sharding(node->inputs[i]);
        if (sharding_equal(part, &node->shardings[0], node->types[0].rank)) continue;
        DEFECT(uv, node, "%s: %s is divided otherwise than the sum", node_text(uv, node),
               text(uv, node->inputs[i]));
        return;
    }
}

/* An axis that is given another length keeps ranks' parts as they are: all have one as long. */
static void check_length(UpdateVerifier *uv, const Node *node) {
    int axis = node_axis(node, ATTR_padded);
    if (!node_attr(node, ATTR_padded)) return;
    const Mesh *mesh = &uv->graph->mesh;
    const Type *before = value_type(node->inputs[0]), *after = &node->types[0];
    Type from = type_local(before, value_sharding(node->inputs[0]), mesh);
    Type to = type_local(after, &node->shardings[0], mesh);
    int i = type_find_axis(before, axis), k = type_find_axis(after, axis);
    if (i >= 0 && k >= 0 && from.dims[i] == to.dims[k]) return;
    DEFECT(uv, node, "%s: ranks' parts of axis '%s' do not stay as long as they are",
           node_text(uv, node), uv->graph->axes.names[axis]);
}

static void check_node(UpdateVerifier *uv, const Node *node) {
    bool update = node->phase == PHASE_UPDATE;
    check_leaf_reads(uv, node);
    check_length(uv, node);
    if (update && !op_is_optimizer(node->op)) note_momentum(uv, node);
    switch (node->op) {
    case OP_ALL_REDUCE:
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
    case OP_SLICE: check_message(uv, node); break;
    case OP_ALL_GATHER:
        check_message(uv, node);
        if (node->n_inputs == 2) check_write_back(uv, node);
        break;
    case OP_ACCUMULATE: check_share(uv, node); break;
    case OP_SUMSQ: check_norm(uv, node); break;
    case OP_LAMB_MOMENTS: check_moments(uv, node); break;
    case OP_STACK:
        if (node->types[0].rank == 1) check_stacked(uv, node);
        break;
    case OP_CLIP_SCALE:
        check_norm(uv, node);
        check_output(uv, node, "grad_norm_squared",
                     node->n_inputs > 1 ? (Value){(Node *)node, 1} : node->inputs[0]);
        break;
    case OP_LOSS_SCALE:
        check_loss_scale(uv, node);
        check_output(uv, node, "loss_scale", (Value){(Node *)node, 0});
        break;
    case OP_ADD_N:
        if (update) check_norm(uv, node);
        break;
    default:
        if (op_is_optimizer(node->op)) {
            check_update(uv, node);
        } else if (uv->momentum[node->id] && !(OPS[node->op].flags & COLLECTIVE)) {
            check_whole_operands(uv, node);
        }
        break;
    }
}

void verify_update(Verifier *v, int stage) {
    const Graph *graph = v->plan->programs[v->plan->stages[stage].program].graph;
    UpdateVerifier uv = {
        .v = v, .stage = stage, .graph = graph, .loss_scale = verify_find_op(graph, OP_LOSS_SCALE)};
    uv.updates = ARENA_ARRAY(v->scratch, const Node *, graph->n_nodes + 1);
    uv.written = ARENA_ARRAY(v->scratch, bool, graph->n_nodes + 1);
    uv.momentum = ARENA_ARRAY(v->scratch, const Node *, graph->n_nodes + 1);
    uv.mixed = ARENA_ARRAY(v->scratch, bool, graph->n_nodes + 1);
    uv.stack = ARENA_ARRAY(v->scratch, const Node *, graph->n_nodes + 1);
    collect_parameters(&uv);
    const Node *first = first_loss_scale(v->plan);
    if ((first != NULL) != (uv.loss_scale != NULL)) {
        const Node *there = first ? first : uv.loss_scale;
        DEFECT(&uv, there, "the loss is %s here, otherwise than on stage 0",
               uv.loss_scale ? "scaled" : "not scaled");
    }
    for (int n = 0; n < graph->n_nodes; n++) check_node(&uv, graph->nodes[n]);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_PARAM || node_is_copy(node)) {
            check_written(&uv, node);
        } else if (node->op == OP_STATE || node->op == OP_ACCUMULATOR) {
            check_of_frozen(&uv, node);
        }
    }
}
