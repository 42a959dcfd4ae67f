/* Padding: an axis that its mesh axis does not divide gets shards of ceil(dim / n), the last ones
 * filled up with zeros, and every rank's share of a vocabulary may be filled up likewise. That is
 * exact as long as the fill stays zero, or meets an op that knows how many elements count. This
 * walk finds the ops for which neither holds.
 */
#include "ir/rule.h"
#include "planner/passes/pass.h"

#include <inttypes.h>

static bool is_padded(const Graph *graph, const Type *type, const Sharding *sharding, int i) {
    return type_is_padded(type, i, sharding->mesh[i], &graph->mesh);
}

/* Bit per axis: the value's padding along it may hold something other than zero, or even infinities
 * and not-a-numbers, which a product with zero does not remove. */
typedef struct Taint {
    uint64_t *bits, *nonfinite; /* by id * MAX_OUTPUTS + output */
} Taint;

static uint64_t taint_of(const Taint *taint, Value value) {
    return taint->bits[value.node->id * MAX_OUTPUTS + value.output];
}

/* Has it the axis, with padding that is zero? */
static bool is_zero(const Taint *taint, Value value, int axis) {
    return type_find_axis(value_type(value), axis) >= 0 && !(taint_of(taint, value) >> axis & 1);
}

/* What is more than zeros by a positive number, as the squares of a norm are by eps. */
static bool has_positive_padding(const Taint *taint, Value value, int axis) {
    const Node *node = value.node;
    return node->op == OP_OFFSET && (float)node_float(node, ATTR_value, 0) > 0 &&
           is_zero(taint, node->inputs[0], axis);
}

static bool is_nonfinite(const Taint *taint, const Node *node, int axis) {
    if (OPS[node->op].flags & MAKES_NONFINITE_BIT) {
        /* What is divided by a value without the axis is not divided by padding. */
        Value divisor = node->inputs[node->n_inputs - 1];
        bool padded = type_find_axis(value_type(divisor), axis) >= 0;
        if (padded && !has_positive_padding(taint, divisor, axis)) return true;
    }
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        if (taint->nonfinite[input.node->id * MAX_OUTPUTS + input.output] >> axis & 1) return true;
    }
    return false;
}

/* Weights keep their padding from one step to the next. */
static bool moves_padding(const Node *node) {
    if (op_rule_states(node->op) < 0) return false;
    Rule rule = rule_of_node(node);
    return !rule_keeps_zero(&rule);
}

/* Does the op look at elements along `axis` together (so that padding would count)? */
static bool mixes(const Node *node, int axis) {
    if (node->op == OP_LOGSUMEXP || node->op == OP_PICK || node->op == OP_CROSS_ENTROPY_GRAD ||
        node->op == OP_DIVERGENCE_ROWS || node->op == OP_DIVERGENCE_GRAD ||
        node->op == OP_STORED_ROWS || node->op == OP_STORED_GRAD || node->op == OP_EMBEDDING ||
        node->op == OP_EMBEDDING_GRAD) {
        return false; /* these count the valid elements of their axis */
    }
    /* No token goes to an expert that is padding. */
    if (node->op == OP_ROUTE || node->op == OP_DISPATCH) return false;
    if (node->op == OP_COMBINE || node->op == OP_SLOT_DOT) {
        if (axis == value_type(node->inputs[0])->axes[0]) return false;
    }
    for (int i = 0; i < node->n_outputs; i++) {
        if (type_find_axis(&node->types[i], axis) < 0) return true;
    }
    return false;
}

/* Rows of zeros, whatever gain and positions are. What is told of inv_rms, which only the gradient
 * reads, is that it is finite there. */
static bool rows_stay_zero(const Taint *taint, const Node *node, int axis) {
    enum { GAIN = 1 };
    if (node->op == OP_RMSNORM && (float)node_float(node, ATTR_eps, 0) == 0) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        if (i != GAIN && !is_zero(taint, node->inputs[i], axis)) return false;
    }
    return !is_nonfinite(taint, node, axis);
}

/* Is the result's padding along `axis` zero, given the operands'? */
static bool stays_zero(const Taint *taint, const Node *node, int axis) {
    unsigned flags = OPS[node->op].flags;
    bool any_zero = false, all_zero = true, last_zero = false;
    if (flags & LEAF || node->op == OP_CROSS_ENTROPY_GRAD || node->op == OP_DIVERGENCE_GRAD ||
        node->op == OP_STORED_GRAD) {
        return true;
    }
    if (node->op == OP_EMBEDDING_GRAD) { /* (tokens, gradient of the rows, table) */
        return axis == node_axis(node, ATTR_axis) || is_zero(taint, node->inputs[1], axis);
    }
    if (node->op == OP_DISPATCH && axis == node->types[0].axes[0]) return true;
    /* Heads of queries alone are padded: the binders of attention write zeros there. */
    if (node->op == OP_ATTENTION && type_find_axis(value_type(node->inputs[1]), axis) < 0) {
        return is_zero(taint, node->inputs[0], axis);
    }
    if (node->op == OP_RMSNORM || node->op == OP_RMSNORM_GRAD || node->op == OP_ROTARY) {
        return rows_stay_zero(taint, node, axis);
    }
    if (node->op == OP_TAKE || node->op == OP_PUT || node->op == OP_DISPATCH ||
        node->op == OP_COMBINE) { /* tables say from where, gates are finite */
        return is_zero(taint, node->inputs[0], axis) && !is_nonfinite(taint, node, axis);
    }
    if (flags & MAKES_NONZERO) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        /* These come after the last that is multiplied. */
        if (i == attention_documents(node) || i == attention_document_ends(node) ||
            i == convolve_places(node)) {
            continue;
        }
        if (linear_attention_decay(node->op) >= 0 && i >= linear_attention_decay(node->op))
            continue;
        last_zero = is_zero(taint, node->inputs[i], axis);
        any_zero |= last_zero;
        all_zero &= last_zero;
    }
    if (!(flags & (ZERO_ANY | ZERO_LAST))) return all_zero;
    return (flags & ZERO_ANY ? any_zero : last_zero) && !is_nonfinite(taint, node, axis);
}

static int64_t vocab_size(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Type *type = &graph->nodes[n]->types[0];
        int at = type_find_axis(type, AXIS_VOCAB);
        if (at >= 0) return type->dims[at];
    }
    return 0;
}

int padding_vocab_multiple(const Graph *graph, const PlanOptions *options, Diag *diag) {
    enum { WHOLE = 8, LINE = 64, LARGE = 64 * LINE };
    const int64_t words = vocab_size(graph), t = options->mesh.size[MESH_T];
    const int64_t share = (words + t - 1) / t;
    int multiple = options->vocab_multiple;
    bool chosen = multiple > 0;
    if (!chosen) multiple = !options->cuda || share % WHOLE == 0 ? 1 : share < LARGE ? WHOLE : LINE;
    while (multiple > 1) {
        int64_t filled = (share + multiple - 1) / multiple * multiple;
        if (filled * (t - 1) < words) return multiple;
        if (chosen) {
            diag_error(diag, NO_LOC,
                       "--vocab-multiple %d: of %" PRId64 " words t=%" PRId64
                       " would leave the last rank none",
                       multiple, words, t);
            return -1;
        }
        multiple /= 2;
    }
    return 0;
}

static bool check_axis(const Graph *graph, Taint *taint, const Node *node, const Type *type,
                       const Sharding *sharding, int i, Diag *diag) {
    int axis = type->axes[i];
    if (!is_padded(graph, type, sharding, i)) return true;
    if (moves_padding(node)) {
        diag_error(diag, node->loc,
                   "axis '%s' is %" PRId64 ", which %s=%d does not divide, and the optimizer's "
                   "formula might make something of zeros that fill it up: sizes that divide will "
                   "do, or a formula that leaves a weight of 0 alone where all gradients are 0",
                   graph->axes.names[axis], type->dims[i], mesh_axis_name(sharding->mesh[i]),
                   mesh_size(&graph->mesh, sharding->mesh[i]));
        return false;
    }
    if (stays_zero(taint, node, axis)) return true;
    for (int o = 0; o < node->n_outputs; o++) {
        taint->bits[node->id * MAX_OUTPUTS + o] |= UINT64_C(1) << axis;
        if (!is_nonfinite(taint, node, axis)) continue;
        taint->nonfinite[node->id * MAX_OUTPUTS + o] |= UINT64_C(1) << axis;
    }
    if (!mixes(node, axis)) return true;
    const char *axis_name = graph->axes.names[axis], *op = OPS[node->op].name;
    int mesh = sharding->mesh[i], multiple = graph->mesh.vocab_multiple;
    if (axis == AXIS_VOCAB && multiple) {
        diag_error(diag, node->loc,
                   "axis '%s' is %" PRId64 ": --vocab-multiple %d would fill it up, and %s would "
                   "let the padding into its result; leave it out",
                   axis_name, type->dims[i], multiple, op);
        return false;
    }
    diag_error(diag, node->loc,
               "axis '%s' is %" PRId64
               ", which %s=%d does not divide, and %s would let the padding "
               "into its result; choose sizes that divide",
               axis_name, type->dims[i], mesh_axis_name(mesh), mesh_size(&graph->mesh, mesh), op);
    return false;
}

static bool check_seq(const Graph *graph, const Node *node, Diag *diag) {
    int batch = axis_find(&graph->axes, "batch", 5);
    for (int o = 0; o < node->n_outputs; o++) {
        const Type *type = &node->types[o];
        for (int i = 0; i < type->rank; i++) {
            bool sequence = axis_is_sequence(graph->axes.names[type->axes[i]]);
            if (!sequence && type->axes[i] != batch) continue;
            if (!is_padded(graph, type, &node->shardings[o], i)) continue;
            diag_error(diag, node->loc, "axis '%s' is %" PRId64 ", which %s=%d does not divide",
                       graph->axes.names[type->axes[i]], type->dims[i],
                       mesh_axis_name(node->shardings[o].mesh[i]),
                       mesh_size(&graph->mesh, node->shardings[o].mesh[i]));
            return false;
        }
    }
    return true;
}

bool check_padding(const Graph *graph, Diag *diag) {
    Arena *arena = arena_create();
    Taint taint = {ARENA_ARRAY(arena, uint64_t, graph->n_nodes * MAX_OUTPUTS + 1),
                   ARENA_ARRAY(arena, uint64_t, graph->n_nodes * MAX_OUTPUTS + 1)};
    bool fine = true;
    for (int n = 0; fine && n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        fine = check_seq(graph, node, diag);
        for (int k = 0; fine && k < node->n_inputs; k++) {
            const Type *type = value_type(node->inputs[k]);
            const Sharding *sharding = value_sharding(node->inputs[k]);
            for (int i = 0; fine && i < type->rank; i++) {
                fine = check_axis(graph, &taint, node, type, sharding, i, diag);
            }
        }
        for (int o = 0; fine && o < node->n_outputs; o++) {
            for (int i = 0; fine && i < node->types[o].rank; i++) {
                fine =
                    check_axis(graph, &taint, node, &node->types[o], &node->shardings[o], i, diag);
            }
        }
    }
    arena_destroy(arena);
    return fine;
}
