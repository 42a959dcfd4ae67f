/* The graph's invariants, checked again by inference: what every pass must leave true. */
#include "ir/message_group.h"
#include "ir/op.h"

#include <string.h>

/* Each mesh axis divides at most one dimension, is not partial at once, and is not larger than it.
 */
static bool check_sharding(const Graph *graph, const Node *node, int output, Diag *diag) {
    const Type *type = &node->types[output];
    const Sharding *sharding = &node->shardings[output];
    unsigned seen = sharding->partial;
    if (sharding->partial >> N_MESH_AXES || sharding->reduce > REDUCE_LSE) {
        diag_error(diag, node->loc, "%%%d %s: partial over an unknown mesh axis", node->id,
                   OPS[node->op].name);
        return false;
    }
    for (int i = 0; i < type->rank; i++) {
        int mesh = sharding->mesh[i];
        if (mesh < 0) continue;
        if (mesh >= N_MESH_GROUPS || seen & mesh_axes(&graph->mesh, mesh)) {
            diag_error(diag, node->loc, "%%%d %s: mesh axis '%s' is used twice", node->id,
                       OPS[node->op].name, mesh_axis_name(mesh));
            return false;
        }
        if (!mesh_has_group(&graph->mesh, mesh)) {
            diag_error(diag, node->loc, "%%%d %s: one axis of '%s' has one rank", node->id,
                       OPS[node->op].name, mesh_axis_name(mesh));
            return false;
        }
        seen |= mesh_axes(&graph->mesh, mesh);
        if (mesh_size(&graph->mesh, mesh) > type->dims[i]) {
            diag_error(diag, node->loc, "%%%d %s: axis '%s' is smaller than its %d shards",
                       node->id, OPS[node->op].name, graph->axes.names[type->axes[i]],
                       mesh_size(&graph->mesh, mesh));
            return false;
        }
        if (mesh_deals(mesh) && !type_deals_evenly(type->dims[i], mesh, &graph->mesh)) {
            diag_error(diag, node->loc, "%%%d %s: axis '%s' cannot be dealt out evenly", node->id,
                       OPS[node->op].name, graph->axes.names[type->axes[i]]);
            return false;
        }
    }
    return true;
}

static bool fail(const Node *node, const char *what, Diag *diag) {
    diag_error(diag, node->loc, "%%%d %s: %s", node->id, OPS[node->op].name, what);
    return false;
}

static bool is_axis(const Graph *graph, int axis) {
    return axis >= 0 && axis < graph->axes.count;
}

static bool names_axes(const Graph *graph, const Attr *attr) {
    AttrKind kind = ATTRS[attr->key].kind;
    if (kind == ATTR_AXIS) return is_axis(graph, attr->axis);
    int n = kind == ATTR_AXES ? attr->axes.count : 0;
    bool fits = n >= 0 && n <= MAX_RANK;
    for (int i = 0; fits && i < n; i++) fits = is_axis(graph, attr->axes.items[i]);
    return fits;
}

/* Each known to the op, in order, no required one absent, and naming axes of the graph. */
static bool check_attrs(const Graph *graph, const Node *node, Diag *diag) {
    int n_uses, next = 0;
    const AttrUse *uses = op_attrs(node->op, &n_uses);
    for (int i = 0; i < n_uses; i++) {
        const Attr *attr = next < node->n_attrs ? &node->attrs[next] : NULL;
        if (attr && attr->key == uses[i].key) {
            if (!names_axes(graph, attr)) return fail(node, "an attribute names no axis", diag);
            next++;
        } else if (uses[i].required) {
            return fail(node, "an attribute is missing", diag);
        }
    }
    return next == node->n_attrs ||
           fail(node, "has an attribute that is not the op's, or out of order", diag);
}

static bool check_type(const Graph *graph, const Node *node, const Type *type, Diag *diag) {
    bool fits = type->rank >= 0 && type->rank <= MAX_RANK && type->dtype < N_DTYPES;
    for (int i = 0; fits && i < type->rank; i++) {
        fits = is_axis(graph, type->axes[i]) && type->dims[i] > 0 &&
               type_find_axis(type, type->axes[i]) == i;
    }
    return fits || fail(node, "a result has a type that cannot be", diag);
}

/* What inference takes for granted. */
static bool check_structure(const Graph *graph, const Node *node, Diag *diag) {
    const OpInfo *op = &OPS[node->op];
    bool variadic = op->flags & VARIADIC_OUT;
    if (node->n_inputs < op->min_inputs || node->n_inputs > op->max_inputs) {
        return fail(node, "has another number of operands than the op", diag);
    }
    if (node->n_outputs > op->n_outputs || node->n_outputs < (variadic ? 1 : op->n_outputs)) {
        return fail(node, "has another number of results than the op", diag);
    }
    for (int i = 0; i < node->n_outputs; i++) {
        if (!check_type(graph, node, &node->types[i], diag)) return false;
    }
    return check_attrs(graph, node, diag);
}

/* States in 8 bits, and what optimizers make of them in place. */
static bool is_moment(const Node *node, int output) {
    int from = op_alias(node, output);
    if (!dtype_is_moment(node->types[output].dtype)) return false;
    if (from < 0) return node->op == OP_STATE && !node_is_copy(node);
    return op_moment_dtype(node->op, from) == node->types[output].dtype;
}

/* Frozen parameters, whole or gathered, in whole blocks on every rank: what widen reads. Likewise
 * the moments that optimizers read. */
static bool check_blocked(const Graph *graph, const Node *node, Diag *diag) {
    bool gathers = node->op == OP_ALL_GATHER && node->n_inputs == 1;
    for (int i = 0; i < node->n_inputs; i++) {
        DType dtype = value_type(node->inputs[i])->dtype;
        if (!dtype_is_blocked(dtype)) continue;
        if (dtype_is_moment(dtype)) {
            if (op_moment_dtype(node->op, i) == dtype) continue;
            return fail(node, "takes moments in 8 bits, which adamw, lion and sgd alone read",
                        diag);
        }
        if (node->op == OP_WIDEN || gathers) continue;
        return fail(node, "takes weights in blocks, which are gathered and widened only", diag);
    }
    for (int i = 0; i < node->n_outputs; i++) {
        if (!dtype_is_blocked(node->types[i].dtype)) continue;
        bool frozen = node->op == OP_PARAM && node_is_frozen(node);
        bool moment = dtype_is_moment(node->types[i].dtype);
        if (moment && !is_moment(node, i))
            return fail(node, "only states of optimizers are moments in 8 bits", diag);
        if (!moment && !frozen && !gathers)
            return fail(node, "no frozen weight is kept in blocks", diag);
        if (type_keeps_blocks(&node->types[i], &node->shardings[i], &graph->mesh)) continue;
        return fail(node, "a rank would have parts of blocks that share a scale", diag);
    }
    return true;
}

static bool check_node(const Graph *graph, Graph *scratch, const Node *node, Diag *diag) {
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *from = node->inputs[i].node;
        int output = node->inputs[i].output;
        if (from && from->id >= 0 && from->id < node->id && graph->nodes[from->id] == from &&
            output >= 0 && output < from->n_outputs) {
            continue;
        }
        diag_error(diag, node->loc, "%%%d %s: operand %d is not defined before it", node->id,
                   OPS[node->op].name, i + 1);
        return false;
    }
    if (!check_structure(graph, node, diag)) return false;
    Node again = *node;
    if (!OPS[node->op].infer(scratch, &again, diag)) return false;
    if (again.n_outputs != node->n_outputs) {
        return fail(node, "has another number of results than its operands give", diag);
    }
    for (int i = 0; i < node->n_outputs; i++) {
        if (type_equal(&again.types[i], &node->types[i])) continue;
        diag_error(diag, node->loc, "%%%d %s: result %d has another type than inference gives",
                   node->id, OPS[node->op].name, i);
        return false;
    }
    for (int i = 0; i < node->n_outputs; i++) {
        if (!check_sharding(graph, node, i, diag)) return false;
    }
    const char *group = message_group_defect(graph, node);
    if (group) return fail(node, group, diag);
    return check_blocked(graph, node, diag);
}

bool graph_verify(const Graph *graph, Diag *diag) {
    bool good = true;
    Graph scratch = *graph;
    int phase = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->id != n) BUG("node %d is numbered %d", n, node->id);
        if ((int)node->phase < phase) {
            diag_error(diag, node->loc, "%%%d %s: runs in an earlier phase than the node before it",
                       n, OPS[node->op].name);
            good = false;
        }
        phase = (int)node->phase;
        good &= check_node(graph, &scratch, node, diag);
    }
    return good;
}
