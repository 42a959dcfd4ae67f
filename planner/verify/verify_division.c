/* How a node's operands and results are divided among ranks, which is all that kernels know of each
 * other's sizes: an axis is divided alike in all of them, and whole where the op needs it whole.
 *
 * Attention has its rank's part of the queries for all keys and values (context parallelism), and
 * documents' beginnings and ends are found in whole sequences, each rank keeping those of its
 * positions. So along a sequence these have two kinds of values: what lies like the queries, which
 * c may divide, and the rest, which is whole. Nothing else that planning makes is divided
 * otherwise.
 *
 * What leads from one sharding to another is proved as messages are (verify_update.c); but sums
 * over ranks or stages divide nothing. An operand whose shape alone counts (the table of an
 * embedding's gradient) may lie in shards where the result is whole: no kernel looks at it.
 */
#include "planner/verify/verify.h"

/* How the first of a node's values that has an axis has it. */
typedef struct Division {
    bool seen;
    int mesh;
    Value value;
} Division;

/* One for each axis, and one for a sequence in what lies like the queries. */
enum { OWN_POSITIONS = MAX_AXES, N_DIVISIONS };

typedef struct DivisionVerifier {
    Verifier *v;
    int stage;
    const Node *node;
    int sequence; /* whole_sequence */
    Division of[N_DIVISIONS];
} DivisionVerifier;

static bool divides_anew(const Node *node) {
    bool sums = node->op == OP_ALL_REDUCE || node->op == OP_STAGE_REDUCE;
    return node->op == OP_SLICE || (OPS[node->op].flags & COLLECTIVE && !sums);
}

/* The sequence of which a rank may have its own positions in some values and all in others, or -1.
 */
static int whole_sequence(const Node *node) {
    switch (node->op) {
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD: return node_axis(node, ATTR_seq);
    case OP_DOCUMENTS:
    case OP_DOCUMENT_ENDS:
    case OP_NGRAM:
    case OP_OCCURRENCE: return node_axis(node, ATTR_axis);
    default: return -1;
    }
}

/* Is it such a value: of attention all but keys, values and the gradients of both? */
static bool has_own_positions(const Node *node, bool input, int number) {
    enum { KEYS = 1, VALUES = 2 };
    if (op_reads_tokens(node->op)) return !input;
    if (node->op == OP_ATTENTION && !input) return true;
    return number != KEYS && number != VALUES;
}

static bool may_divide(const Node *node, int which, int mesh) {
    if (mesh < 0) return true;
    return which == OWN_POSITIONS ? mesh == MESH_C : !op_needs_whole(node, which);
}

static const char *how(Verifier *v, int mesh) {
    if (mesh < 0) return "whole";
    return arena_printf(v->scratch, "divided over %s", mesh_axis_name(mesh));
}

static const char *axis_text(const DivisionVerifier *dv, int axis) {
    const Plan *plan = dv->v->plan;
    return plan->programs[plan->stages[dv->stage].program].graph->axes.names[axis];
}

static bool fail_unlike(const DivisionVerifier *dv, int axis, const Division *first,
                        const Division *other) {
    Verifier *v = dv->v;
    verify_defect(v, dv->node->loc, "%s: %s: axis '%s' is %s in %s, but %s in %s",
                  verify_stage_text(v, dv->stage),
                  verify_value_text(v, dv->stage, (Value){(Node *)dv->node, 0}),
                  axis_text(dv, axis), how(v, first->mesh),
                  verify_value_text(v, dv->stage, first->value), how(v, other->mesh),
                  verify_value_text(v, dv->stage, other->value));
    return false;
}

static bool fail_divided(const DivisionVerifier *dv, int axis, const Division *divided) {
    Verifier *v = dv->v;
    verify_defect(v, dv->node->loc, "%s: %s: axis '%s' of %s is %s, and must be whole here",
                  verify_stage_text(v, dv->stage),
                  verify_value_text(v, dv->stage, (Value){(Node *)dv->node, 0}),
                  axis_text(dv, axis), verify_value_text(v, dv->stage, divided->value),
                  how(v, divided->mesh));
    return false;
}

static bool check_value(DivisionVerifier *dv, Value value, bool own_positions) {
    const Type *type = value_type(value);
    for (int i = 0; i < type->rank; i++) {
        int axis = type->axes[i];
        int which = own_positions && axis == dv->sequence ? OWN_POSITIONS : axis;
        Division here = {true, value_sharding(value)->mesh[i], value}, *first = &dv->of[which];
        if (first->seen) {
            if (first->mesh != here.mesh) return fail_unlike(dv, axis, first, &here);
        } else {
            if (!may_divide(dv->node, which, here.mesh)) return fail_divided(dv, axis, &here);
            *first = here;
        }
    }
    return true;
}

bool verify_division(Verifier *v, int stage, const Node *node) {
    DivisionVerifier dv;
    if (divides_anew(node) || node->n_inputs + node->n_outputs < 2) return true;
    dv.v = v, dv.stage = stage, dv.node = node, dv.sequence = whole_sequence(node);
    for (int d = 0; d < N_DIVISIONS; d++) dv.of[d].seen = false;
    for (int i = 0; i < node->n_inputs; i++) {
        if (op_operand_precision(node->op, i) == OPERAND_UNREAD) continue;
        if (!check_value(&dv, node->inputs[i], has_own_positions(node, true, i))) return false;
    }
    for (int o = 0; o < node->n_outputs; o++) {
        Value value = {(Node *)node, o};
        if (!check_value(&dv, value, has_own_positions(node, false, o))) return false;
    }
    return true;
}
