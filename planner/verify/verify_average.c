/* Averages of weights (--ema) and steps that are left out for their norm (--skip-spikes).
 *
 * Every parameter that trains has one average, which follows what its optimizer has made, divided
 * like it, by the factor that says whether there was an update; or none has one. Where steps are
 * left out for their norm, it is the one that the factor of gradients follows from, on all stages.
 */
#include "ir/param_index.h"
#include "planner/verify/verify.h"

#include <string.h>

typedef struct AverageVerifier {
    Verifier *v;
    int stage;
    const Graph *graph;
    double decay; /* of all averages; 0: there are none */
    int *count;   /* by id of a parameter: its averages */
} AverageVerifier;

static const char *text(const AverageVerifier *av, Value value) {
    return verify_value_text(av->v, av->stage, value);
}

#define DEFECT(av, node, format, ...)                                                              \
    verify_defect((av)->v, (node)->loc, "%s: %s: " format,                                         \
                  verify_stage_text((av)->v, (av)->stage), text(av, (Value){(Node *)(node), 0}),   \
                  __VA_ARGS__)

static void check_average(AverageVerifier *av, const Node *node) {
    const Node *state = node->inputs[0].node, *update = node->inputs[1].node;
    const Node *param = op_is_optimizer(update->op) ? verify_updated_parameter(update) : NULL;
    const Sharding *part = value_sharding(node->inputs[1]);
    int rank = node->types[0].rank;
    if (!param || node->inputs[1].output != 0) {
        DEFECT(av, node, "%s is no new parameter", text(av, node->inputs[1]));
        return;
    }
    if (av->count[param->id]++) DEFECT(av, node, "%s is averaged twice", text(av, node->inputs[1]));
    if (state->op != OP_STATE || node_is_copy(state) || !leaf_is_of(state, param) ||
        strncmp(node_string(state, ATTR_name), EMA_PREFIX, strlen(EMA_PREFIX)) != 0) {
        DEFECT(av, node, "%s is no average of %s", text(av, node->inputs[0]),
               text(av, (Value){(Node *)param, 0}));
    }
    if (!sharding_equal(value_sharding(node->inputs[0]), part, rank) ||
        !sharding_equal(&node->shardings[0], part, rank)) {
        DEFECT(av, node, "is divided otherwise than %s", text(av, node->inputs[1]));
    }
    if (!value_equal(node->inputs[2], update->inputs[verify_first_number(update->op)])) {
        DEFECT(av, node, "%s is not the factor of the update that it follows",
               text(av, node->inputs[2]));
    }
    if (!verify_counts_updates(av->graph, node->inputs[3])) {
        DEFECT(av, node, "takes %s for the number of updates", text(av, node->inputs[3]));
    }
    double decay = node_float(node, ATTR_decay, 0);
    if (decay != av->decay) DEFECT(av, node, "its decay is %g, others' %g", decay, av->decay);
}

/* A run knows the number by its name. */
static void check_skip_spike(const AverageVerifier *av, const Node *node) {
    Value clip = node->inputs[0], most = node->inputs[2];
    bool fits = node == verify_find_op(av->graph, OP_SKIP_SPIKE) &&
                clip.node->op == OP_CLIP_SCALE && clip.output == 0 && most.node->op == OP_SCALAR &&
                strcmp(node_string(most.node, ATTR_name), MOST_NORM_NAME) == 0;
    if (fits) {
        bool scaled = clip.node->n_inputs > 1;
        fits = value_equal(node->inputs[1], scaled ? (Value){clip.node, 1} : clip.node->inputs[0]);
    }
    if (fits) return;
    DEFECT(av, node, "does not leave out steps for the norm that %s follows from", text(av, clip));
}

/* What multiplies gradients knows of steps that are left out. */
static void check_factor(const AverageVerifier *av, const Node *update, const Node *skip_spike) {
    const Node *factor = update->inputs[verify_first_number(update->op)].node;
    if (!skip_spike || factor == skip_spike) return;
    DEFECT(av, update, "multiplies gradients by %s, although their norm may be too large",
           text(av, (Value){(Node *)factor, 0}));
}

void verify_average(Verifier *v, int stage) {
    const Graph *graph = v->plan->programs[v->plan->stages[stage].program].graph;
    AverageVerifier av = {v, stage, graph, plan_ema_decay(v->plan),
                          ARENA_ARRAY(v->scratch, int, graph->n_nodes + 1)};
    const Node *skip_spike = verify_find_op(graph, OP_SKIP_SPIKE);
    if (plan_skips_spikes(v->plan) != (skip_spike != NULL)) {
        verify_defect(v, NO_LOC, "%s: steps are %s for their norm, otherwise than on stage 0",
                      verify_stage_text(v, stage), skip_spike ? "left out" : "not left out");
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_EMA) check_average(&av, node);
        if (node->op == OP_SKIP_SPIKE) check_skip_spike(&av, node);
        if (op_is_optimizer(node->op)) check_factor(&av, node, skip_spike);
    }
    for (int n = 0; n < graph->n_nodes && av.decay != 0; n++) {
        const Node *update = graph->nodes[n];
        const Node *param = op_is_optimizer(update->op) ? verify_updated_parameter(update) : NULL;
        if (!param || av.count[param->id]) continue;
        DEFECT(&av, update, "'%s' has no average, as others have", node_string(param, ATTR_name));
    }
}
