/* Halves: a copy that says that it is the upper half of its parameter is bf16, is divided as the
 * parameter is and begins its memory, and what has only a parameter of f32 to read or write does
 * not meet one in halves: its optimizer alone does, which has both. */
#include "ir/masters.h"
#include "planner/verify/verify.h"

static bool takes_halves(OpKind op) {
    switch (op) {
    case OP_ADAMW:
    case OP_SGD:
    case OP_LION:
    case OP_MUON: return true;
    default: return false;
    }
}

static bool lies_in(const Program *program, const Node *upper, const Node *param) {
    const Buffer *half = &program->buffers[upper->id * MAX_OUTPUTS];
    const Buffer *whole = &program->buffers[param->id * MAX_OUTPUTS];
    return half->region == REGION_PERSISTENT && whole->region == REGION_PERSISTENT &&
           half->offset_bytes == whole->offset_bytes && 2 * half->bytes == whole->bytes;
}

/* What is wrong with the two, or NULL. */
static const char *find_fault(const Program *program, const Node *upper, const Node *param) {
    const Type *type = &upper->types[0];
    if (!node_is_copy(upper) || type->dtype != DTYPE_BF16) return "is no copy in bf16";
    if (!param || param->types[0].dtype != DTYPE_F32) return "has no parameter in f32";
    if (!type_same_shape(type, &param->types[0]) ||
        !sharding_equal(&upper->shardings[0], &param->shardings[0], type->rank)) {
        return "is divided otherwise than its parameter";
    }
    Type local = type_local(type, &upper->shardings[0], &program->graph->mesh);
    if (type_elements(&local) % MASTER_MULTIPLE) return "has no aligned half";
    return lies_in(program, upper, param) ? NULL : "does not begin its parameter's memory";
}

/* Does the node read the parameter at operand i, as what has both halves may? */
static bool has_both(const Node *node, int i, const Node *upper) {
    return i == 0 && takes_halves(node->op) && node->inputs[node->n_inputs - 1].node == upper;
}

/* pairs: master_pairs. */
static void check_readers(Verifier *v, int stage, const Graph *graph, const Node *const *pairs) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            bool halves = from->op == OP_PARAM && pairs[from->id];
            bool shape = op_operand_precision(node->op, i) == OPERAND_UNREAD; /* that alone */
            if (!halves || shape || has_both(node, i, pairs[from->id])) continue;
            verify_defect(v, node->loc, "%s: %s reads %s, which is in halves",
                          verify_stage_text(v, stage),
                          verify_value_text(v, stage, (Value){(Node *)node, 0}),
                          verify_value_text(v, stage, node->inputs[i]));
        }
    }
}

void verify_masters(Verifier *v, int stage) {
    const Program *program = &v->plan->programs[v->plan->stages[stage].program];
    const Node **pairs = master_pairs(program->graph, v->scratch);
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *upper = program->graph->nodes[n], *param = pairs[n];
        if (!node_is_upper(upper)) continue;
        const char *fault = find_fault(program, upper, param);
        if (!fault && pairs[param->id] != upper) fault = "is not its parameter's first";
        if (!fault) continue;
        verify_defect(v, upper->loc, "%s: %s is said to be an upper half, and %s",
                      verify_stage_text(v, stage),
                      verify_value_text(v, stage, node_value((Node *)upper, 0)), fault);
    }
    check_readers(v, stage, program->graph, pairs);
}
