/* Largest scores of attention, and what they scale: maxima are completed as maxima, over the ranks
 * that divide what they are of, and a parameter's factors lie along its axes as it does itself.
 */
#include "ir/gradient.h"
#include "planner/verify/verify.h"

#include <string.h>

typedef struct LargestVerifier {
    Verifier *v;
    int stage;
    const Graph *graph;
} LargestVerifier;

static void defect(LargestVerifier *lv, const Node *node, const char *what) {
    verify_defect(lv->v, node->loc, "%s: %s: %s", verify_stage_text(lv->v, lv->stage),
                  verify_value_text(lv->v, lv->stage, (Value){(Node *)node, 0}), what);
}

/* The mesh axes that divide the first n dimensions. */
static unsigned dividing(const LargestVerifier *lv, const Sharding *sharding, int n) {
    unsigned axes = 0;
    for (int i = 0; i < n; i++) axes |= mesh_axes(&lv->graph->mesh, sharding->mesh[i]);
    return axes;
}

static bool is_maximum(const Sharding *sharding, unsigned over) {
    return sharding->partial == over && (!over || sharding->reduce == REDUCE_MAX);
}

static void check_largest(LargestVerifier *lv, const Node *node) {
    const Node *leaf = gradient_accumulator(node->inputs[0]);
    const Sharding *most = &node->shardings[0], *rows = value_sharding(node->inputs[1]);
    int rank = node->types[0].rank, before = value_type(node->inputs[1])->rank - rank;
    if (!leaf || node_string(leaf, ATTR_of)[0] || node->phase != PHASE_FORWARD) {
        defect(lv, node, "is kept in no accumulator of its own");
        return;
    }
    bool fits = !rows->partial && is_maximum(most, dividing(lv, rows, before)) &&
                sharding_equal(most, value_sharding(node->inputs[0]), rank) &&
                memcmp(most->mesh, rows->mesh + before, (size_t)rank * sizeof(most->mesh[0])) == 0;
    if (!fits) defect(lv, node, "is no maximum over the ranks that divide its rows");
}

/* Over the pipeline a stage's number is every other one's beside, which shardings do not say. */
static void check_max_n(LargestVerifier *lv, const Node *node) {
    unsigned over = 0, stages = 1u << MESH_P;
    for (int i = 0; i < node->n_inputs; i++) {
        const Sharding *in = value_sharding(node->inputs[i]);
        over |= dividing(lv, in, value_type(node->inputs[i])->rank);
        if (in->partial) defect(lv, node, "reads what is not complete");
    }
    bool of_stages = !over && node->shardings[0].partial == stages;
    if (!is_maximum(&node->shardings[0], of_stages ? stages : over)) {
        defect(lv, node, "is no maximum over the ranks that divide what it is of");
    }
}

static void check_factors(LargestVerifier *lv, const Node *update, int operand) {
    const Sharding *factors = value_sharding(update->inputs[operand]);
    const Sharding *param = value_sharding(update->inputs[0]);
    const Type *type = value_type(update->inputs[operand]);
    int at = 0;
    bool fits = op_rescale_place(value_type(update->inputs[0]), type, &at) && !factors->partial;
    for (int i = 0; fits && i < type->rank; i++) fits = factors->mesh[i] == param->mesh[at + i];
    if (!fits) defect(lv, update, "its factors are divided otherwise than its parameter");
}

void verify_largest(Verifier *v, int stage) {
    LargestVerifier lv = {v, stage, v->plan->programs[v->plan->stages[stage].program].graph};
    for (int n = 0; n < lv.graph->n_nodes; n++) {
        const Node *node = lv.graph->nodes[n];
        if (node->op == OP_LARGEST) check_largest(&lv, node);
        if (node->op == OP_MAX_N) check_max_n(&lv, node);
        int operand = op_is_optimizer(node->op) ? op_rescale_operand(node) : -1;
        if (operand >= 0) check_factors(&lv, node, operand);
    }
}
