#include "frontend/commands/generate_causal.h"

#include "ir/expr.h"
#include "ir/op.h"

#include <string.h>

static bool is_named(const Node *node, const char *name) {
    return node->op == OP_OUTPUT && strcmp(node_string(node, ATTR_name), name) == 0;
}

static bool is_logits(const Node *node) {
    return is_named(node, "logits");
}

/* What the logits are made from, by id, or what is sent to a stage that may make them of it. */
static bool *find_sources(Arena *arena, const Graph *graph) {
    bool *needed = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        bool logits = is_logits(node);
        if (node->phase != PHASE_FORWARD) continue;
        needed[n] |= logits || node->op == OP_SEND;
        for (int i = 0; needed[n] && i < node->n_inputs; i++) {
            needed[node->inputs[i].node->id] = true;
        }
    }
    return needed;
}

/* Does the node compare places of queries with those of keys (nn.later), which tells later keys? */
static bool tells_later_keys(const Node *node, int keys) {
    const char *error;
    Expr expr;
    if (node->op == OP_LESS) {
        expr = expr_of_node(node);
    } else if (node->op != OP_FUSED ||
               !expr_parse(node_string(node, ATTR_program), node->n_inputs, &expr, &error)) {
        return false;
    }
    for (int n = 0; n < expr.n_instructions; n++) {
        const ExprInstruction *ins = &expr.instructions[n];
        if (ins->op != OP_LESS || ins->operands[0] >= 0 || ins->operands[1] >= 0) continue;
        Value places = node->inputs[~ins->operands[0]], renamed = node->inputs[~ins->operands[1]];
        if (places.node->op == OP_DOCUMENTS && places.output == 1 &&
            renamed.node->op == OP_RENAME && value_equal(renamed.node->inputs[0], places) &&
            type_find_axis(value_type(renamed), keys) >= 0) {
            return true;
        }
    }
    return false;
}

/* Keys beside queries of one sequence, in attention of its scores: are later ones told from others,
 * in the block that renames them or outside of blocks? (That they are hidden is the model's to see
 * to.) */
static bool hides_later_keys(const Graph *graph, const Node *rename) {
    bool hides = false, shows = false;
    int keys =
        rename->types[0]
            .axes[type_find_axis(value_type(rename->inputs[0]), node_axis(rename, ATTR_axis))];
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase != PHASE_FORWARD) continue;
        if (node->block != rename->block && node->block != NO_BLOCK) continue;
        hides |= tells_later_keys(node, keys);
        if (node->op != OP_RELATIVE_BIAS || node_axis(node, ATTR_keys) != keys) continue;
        hides |= node_int(node, ATTR_causal, 0) != 0;
        shows |= node_int(node, ATTR_causal, 0) == 0;
    }
    return hides && !shows;
}

static bool looks_ahead(const Graph *graph, const Node *node) {
    const int seq = axis_find(&graph->axes, "seq", 3); /* others are an image's, say */
    switch (node->op) {
    case OP_ATTENTION: return node_axis(node, ATTR_seq) == seq && !node_int(node, ATTR_causal, 1);
    case OP_SHIFT: return node_int(node, ATTR_by, 0) > 0;
    case OP_RENAME: return node_axis(node, ATTR_axis) == seq && !hides_later_keys(graph, node);
    default: return false;
    }
}

/* A model that looks at what follows cannot write what follows. */
bool generate_check_causal(const char *what, Arena *arena, const Graph *graph, Diag *diag) {
    const bool *needed = find_sources(arena, graph);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        const Type *logits = is_logits(node) ? value_type(node->inputs[0]) : NULL;
        const bool classes =
            logits && logits->rank > 0 && logits->axes[logits->rank - 1] != AXIS_VOCAB;
        if (classes || is_named(node, OUTPUT_VECTORS)) {
            diag_error(diag, node->loc,
                       "%s: this model tells what whole texts or answers are (`evaluate` says it); "
                       "it writes none",
                       what);
            return false;
        }
        if (!needed[n] || !looks_ahead(graph, node)) continue;
        diag_error(diag, node->loc, "%s: this %s: it looks at what is not written yet", what,
                   node->op == OP_SHIFT ? "shift is by more than 0" : "attention is not causal");
        return false;
    }
    return true;
}

bool generate_check_logits(const char *what, const Plan *plan, Diag *diag) {
    bool found = false;
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) found |= is_logits(graph->nodes[n]);
    }
    if (!found) {
        diag_error(
            diag, NO_LOC,
            "%s: the plan never has all logits, as with --loss-parts or --lanes; one without has",
            what);
    }
    return found;
}

bool generate_check_plan(const char *what, Arena *arena, const Plan *plan, Diag *diag) {
    for (int p = 0; p < plan->n_programs; p++) {
        if (!generate_check_causal(what, arena, plan->programs[p].graph, diag)) return false;
    }
    return generate_check_logits(what, plan, diag);
}
