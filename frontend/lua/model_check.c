#include "frontend/lua/model_check.h"

#include "frontend/lua/freeze.h"
#include "frontend/lua/lua_sandbox.h"
#include "ir/op.h"

#include <string.h>

enum { MAX_REPORTED = 10 }; /* of parameters; more say nothing new */

static bool is_output(const Node *node, const char *name) {
    return node->op == OP_OUTPUT && strcmp(node_string(node, ATTR_name), name) == 0;
}

/* How a value is needed: at all, on a way that ops.stop_gradient cuts, on a way that brings a
 * gradient. */
enum { NEEDED = 1, HELD = 2, LEARNS = 4 };

static int need_of_operands(const Node *node, int need) {
    if (node->op == OP_STOP_GRADIENT) return NEEDED | HELD;
    return op_stops_gradient(node->op) ? need & ~LEARNS : need;
}

/* By node, for the output of that name or with NULL for any: a set of the above. */
static int *needed_for(const Graph *graph, const char *output) {
    int *need = ARENA_ARRAY(graph->arena, int, graph->n_nodes + 1);
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        bool wanted = output ? is_output(node, output) : (OPS[node->op].flags & EFFECT) != 0;
        if (wanted) need[n] = NEEDED | LEARNS;
        if (!need[n]) continue;
        int operands = need_of_operands(node, need[n]);
        for (int i = 0; i < node->n_inputs; i++) need[node->inputs[i].node->id] |= operands;
    }
    return need;
}

static const Node *find_output(const Graph *graph, const char *name) {
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        if (is_output(graph->nodes[n], name)) return graph->nodes[n];
    }
    return NULL;
}

/* Of tokens, or of classes of texts. */
static bool has_logits_axes(const Graph *graph, const Type *type) {
    static const char *const NAMES[] = {"batch", "seq", "vocab"};
    if (type->rank != 3 || type->dtype != DTYPE_F32) return false;
    for (int i = 0; i < 3; i++) {
        const char *name = graph->axes.names[type->axes[i]];
        bool classes = i == 2 && strcmp(name, "class") == 0;
        if (strcmp(name, NAMES[i]) != 0 && !classes) return false;
    }
    return true;
}

/* Vectors of whole texts, in a model that says no tokens. */
static bool check_vectors(const Graph *graph, const Node *vectors, Diag *diag) {
    const Type *type = value_type(vectors->inputs[0]);
    if (type->rank == 3 && type->dtype == DTYPE_F32 &&
        strcmp(graph->axes.names[type->axes[0]], "batch") == 0) {
        return true;
    }
    diag_error(diag, vectors->loc,
               "output 'vectors' must be f32 with three axes, batch first: nn.embed makes it");
    return false;
}

static bool check_logits(const Graph *graph, SourceLoc loc, Diag *diag) {
    const Node *logits = find_output(graph, "logits");
    const Node *vectors = find_output(graph, OUTPUT_VECTORS);
    if (vectors && !logits) return check_vectors(graph, vectors, diag);
    if (!logits) {
        diag_error(diag, loc,
                   "model: there is no output 'logits': nn.cross_entropy makes it, or "
                   "m:output(\"logits\", x)");
        return false;
    }
    if (has_logits_axes(graph, value_type(logits->inputs[0]))) return true;
    diag_error(diag, logits->loc,
               "output 'logits' must be f32 with axes batch, seq, vocab (or class, "
               "of nn.classify)");
    return false;
}

/* A loss that is a parameter has a gradient of 1 and no node that makes it. Nothing else can learn
 * then, so nothing else is said. */
static bool check_loss_is_computed(const Graph *graph, Diag *diag) {
    const Node *loss = find_output(graph, "loss")->inputs[0].node;
    if (loss->op != OP_PARAM) return true;
    diag_error(diag, loss->loc, "the loss is parameter '%s' itself; it must be computed from it",
               node_logical_name(loss, 1, graph->arena));
    return false;
}

static const char *why_not_learning(int need, bool used) {
    if (need) return "cannot learn: round, sign and comparisons have no gradient";
    return used ? "cannot learn: the loss does not depend on it" : "is not used";
}

/* By id: is something tallied for the parameter? */
static bool *find_tallied(const Graph *graph) {
    bool *tallied = ARENA_ARRAY(graph->arena, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_TALLY) tallied[node->inputs[0].node->id] = true;
    }
    return tallied;
}

/* Every parameter learns, is balanced, or is held by ops.stop_gradient; not all are held. One of
 * each name is told: a layer's parameter is wrong in every block alike. */
static bool check_params(const Graph *graph, SourceLoc loc, Diag *diag) {
    const int *need = needed_for(graph, "loss");
    const int *uses = graph_count_uses(graph, graph->arena);
    const bool *tallied = find_tallied(graph);
    const char *reported[MAX_REPORTED];
    int n_reported = 0;
    bool any_learns = false;
    for (int n = 0; n < graph->n_nodes && n_reported < MAX_REPORTED; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_PARAM) continue;
        bool balanced = node_is_balanced(node);
        any_learns |= !balanced && (need[n] & LEARNS) != 0;
        if (balanced ? tallied[n] : (need[n] & (LEARNS | HELD)) != 0) continue;
        const char *name = node_string(node, ATTR_name);
        bool known = false;
        for (int i = 0; i < n_reported; i++) known |= strcmp(reported[i], name) == 0;
        if (known) continue;
        diag_error(diag, node->loc, "parameter '%s' %s", node_logical_name(node, 1, graph->arena),
                   balanced ? "has 'balance', and nothing is tallied for it: m:tally(it, numbers)"
                            : why_not_learning(need[n], uses[n * MAX_OUTPUTS] > 0));
        reported[n_reported++] = name;
    }
    if (n_reported > 0 || any_learns) return n_reported == 0;
    diag_error(diag, loc, "model: no parameter can learn: ops.stop_gradient holds all of them");
    return false;
}

void model_freeze_held(Graph *graph) {
    const int *need = needed_for(graph, "loss");
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_PARAM || node_is_balanced(node) || need[n] & LEARNS) continue;
        freeze_set(graph, node, true);
    }
}

/* A block without nodes could be no stage's work. The first one is told: others are like it. */
static bool check_blocks(const ScriptGraph *script, Diag *diag) {
    const Graph *graph = script->graph;
    const int *need = needed_for(graph, NULL);
    bool *computes = ARENA_ARRAY(graph->arena, bool, script->n_blocks + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->block == NO_BLOCK || !need[n] || OPS[node->op].flags & LEAF) continue;
        computes[node->block] = true;
    }
    for (int b = 0; b < script->n_blocks; b++) {
        if (computes[b]) continue;
        diag_error(diag, script->block_locs[b],
                   "block %d computes nothing that the loss or another output needs: return from "
                   "it what it computes, or leave it out",
                   b + 1);
        return false;
    }
    return true;
}

void model_check(lua_State *lua, const ScriptGraph *script, SourceLoc loc) {
    Diag *diag = sandbox_of(lua)->diag;
    if (!check_loss_is_computed(script->graph, diag)) sandbox_fail(lua);
    bool good = check_params(script->graph, loc, diag);
    good &= check_logits(script->graph, loc, diag);
    if (!good || !check_blocks(script, diag)) sandbox_fail(lua);
}

const char *model_check_inputs(const Graph *graph, SourceLoc loc) {
    const int *need = needed_for(graph, "loss");
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_INPUT || need[n]) continue;
        return arena_printf(graph->arena, "note: %s:%d: the loss does not depend on the %s",
                            loc.file, loc.line, node_string(node, ATTR_name));
    }
    return NULL;
}
