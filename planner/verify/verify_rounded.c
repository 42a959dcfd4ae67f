/* Weights that are trained as they will be quantized (--qat, ir/ops/round_blocks.h).
 *
 * Such a parameter has copies that say the same of their blocks as it does, in whole blocks on each
 * rank; its numbers are read by the update alone, and by what rounds them. After each update a copy
 * is written once, all of it, with its own parameter's new numbers, rounded to these blocks.
 */
#include "ir/ops/round_blocks.h"
#include "ir/param_index.h"
#include "planner/verify/verify.h"

typedef struct RoundVerifier {
    Verifier *v;
    int stage;
    const Graph *graph;
    int *written; /* by id of a copy: how often in a step */
} RoundVerifier;

static const char *text(const RoundVerifier *rv, Value value) {
    return verify_value_text(rv->v, rv->stage, value);
}

#define DEFECT(rv, node, format, ...)                                                              \
    verify_defect((rv)->v, (node)->loc, "%s: %s: " format,                                         \
                  verify_stage_text((rv)->v, (rv)->stage), text(rv, (Value){(Node *)(node), 0}),   \
                  __VA_ARGS__)

/* Whose new numbers the node rounds; once a step, those of the last update. NULL: no parameter's.
 */
static const Node *rounded_param(const Node *node) {
    const Node *from = node->inputs[0].node;
    if (node_is_once(node)) return from->op == OP_PARAM ? from : NULL;
    bool update = node->phase == PHASE_UPDATE && op_is_optimizer(from->op);
    return update && node->inputs[0].output == 0 ? verify_updated_parameter(from) : NULL;
}

static void check_round(const RoundVerifier *rv, const Node *node) {
    const Node *param = rounded_param(node), *copy = NULL;
    const int rank = node->types[0].rank;
    bool over = node->n_inputs == 2, fits = param && node_rounds_alike(node, param);
    fits = fits && sharding_equal(&node->shardings[0], value_sharding(node->inputs[0]), rank);
    if (over) {
        copy = node->inputs[1].node;
        fits = fits && node_is_copy(copy) && leaf_is_of(copy, param) && !node_is_once(node) &&
               sharding_equal(&copy->shardings[0], &node->shardings[0], rank);
    }
    if (fits) fits = round_keeps_blocks(param, &node->shardings[0], &rv->graph->mesh);
    if (copy) rv->written[copy->id]++;
    if (fits) return;
    DEFECT(rv, node, "%s is no parameter's, in its own whole blocks%s", text(rv, node->inputs[0]),
           over ? ", over its own copy" : "");
}

/* That of a copy brings shards that were rounded to blocks, where it has such, and no others. */
static void check_gather(const RoundVerifier *rv, const Node *node) {
    const Node *copy = node->inputs[1].node, *from = node->inputs[0].node;
    if (!node_is_copy(copy)) return;
    bool rounds = from->op == OP_ROUND_BLOCKS;
    rv->written[copy->id]++;
    if (rounds ? node_rounds_alike(from, copy) : !node_is_rounded(copy)) return;
    DEFECT(rv, node, "%s is not rounded as %s is", text(rv, node->inputs[0]),
           text(rv, node->inputs[1]));
}

static void check_copy(const RoundVerifier *rv, const ParamIndex *params, const Node *copy) {
    const Node *param = param_index_find(params, copy->block, node_string(copy, ATTR_of));
    if (param && !node_rounds_alike(param, copy)) {
        DEFECT(rv, copy, "has other blocks than %s", text(rv, (Value){(Node *)param, 0}));
    }
    if (!node_is_rounded(copy)) return;
    if (!round_keeps_blocks(copy, &copy->shardings[0], &rv->graph->mesh)) {
        DEFECT(rv, copy, "a rank would have parts of blocks of %d", ROUND_BLOCK);
    }
    if (!rv->v->plan->context && rv->written[copy->id] != 1) {
        DEFECT(rv, copy, "is written %d times in a step", rv->written[copy->id]);
    }
}

/* Of a parameter with blocks all but the update and what rounds it see the copy. */
static void check_reads(const RoundVerifier *rv, const Node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *param = node->inputs[i].node;
        if (param->op != OP_PARAM || !node_is_rounded(param)) continue;
        bool unread = op_operand_precision(node->op, i) == OPERAND_UNREAD;
        if (unread || node->phase == PHASE_UPDATE || node->op == OP_ROUND_BLOCKS) continue;
        DEFECT(rv, node, "reads %s, and not its copy, which is rounded", text(rv, node->inputs[i]));
    }
}

void verify_rounded(Verifier *v, int stage) {
    const Graph *graph = v->plan->programs[v->plan->stages[stage].program].graph;
    RoundVerifier rv = {v, stage, graph, ARENA_ARRAY(v->scratch, int, graph->n_nodes + 1)};
    ParamIndex params = param_index_create(graph, v->scratch);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        check_reads(&rv, node);
        if (node->op == OP_ROUND_BLOCKS) check_round(&rv, node);
        if (node->op == OP_ALL_GATHER && node->n_inputs == 2) check_gather(&rv, node);
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        if (node_is_copy(graph->nodes[n])) check_copy(&rv, &params, graph->nodes[n]);
    }
}
