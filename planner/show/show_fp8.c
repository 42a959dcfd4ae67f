/* Which products of a plan read fp8, and why others are widened. */
#include "ir/ops/quantize.h"
#include "planner/show/show_facts.h"

static bool is_one_of_batch(const Node *product) {
    MatmulLayout l;
    return matmul_layout(product, value_type(product->inputs[0]), value_type(product->inputs[1]),
                         &l) &&
           l.batch > 1;
}

/* The quantize node whose values reach the operand, through messages. */
static const Node *quantize_of(const Node *dequantize) {
    const Node *node = dequantize->inputs[0].node;
    while (node->op != OP_QUANTIZE && node->n_inputs > 0) node = node->inputs[0].node;
    return node;
}

static void count_product(const Node *node, Fp8Facts *out) {
    if (node->op != OP_MATMUL) return;
    if (matmul_is_scaled(node)) {
        out->on_tensor_cores++;
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (node->inputs[i].node->op != OP_DEQUANTIZE) return;
    }
    bool laid_out = node_attr(quantize_of(node->inputs[0].node), ATTR_last) != NULL;
    if (laid_out) {
        out->widened_parts++;
    } else if (is_one_of_batch(node)) {
        out->widened_batches++;
    } else {
        out->widened_planned++;
    }
}

Fp8Facts facts_count_fp8(const Plan *plan) {
    Fp8Facts facts = {0};
    for (int s = 0; s < plan->n_stages; s++) {
        const Graph *graph = plan->programs[plan->stages[s].program].graph;
        for (int n = 0; n < graph->n_nodes; n++) count_product(graph->nodes[n], &facts);
    }
    return facts;
}
