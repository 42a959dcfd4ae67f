/* fp8 values are read with the scales that were made with them, block by block. */
#include "ir/ops/quantize.h"
#include "planner/verify/verify.h"

#include <string.h>

/* Messages that bring a value and its scales to where they are read are alike. */
static bool same_message(const Node *a, const Node *b) {
    bool moves = a->op == OP_ALL_GATHER || a->op == OP_SLICE;
    if (!moves || a->op != b->op || a->n_inputs != 1 || b->n_inputs != 1) return false;
    return node_axis(a, ATTR_axis) == node_axis(b, ATTR_axis) &&
           strcmp(node_string(a, ATTR_mesh), node_string(b, ATTR_mesh)) == 0;
}

static bool belong_together(Value values, Value scales) {
    while (same_message(values.node, scales.node)) {
        values = values.node->inputs[0];
        scales = scales.node->inputs[0];
    }
    return values.node == scales.node && values.node->op == OP_QUANTIZE && values.output == 0 &&
           scales.output == 1;
}

/* Divided alike, and no block over several ranks. */
static bool uncut(const Graph *graph, const Type *values, const Sharding *of_values,
                  const Type *scales, const Sharding *of_scales) {
    Type local = type_local(values, of_values, &graph->mesh);
    Type blocks = type_local(scales, of_scales, &graph->mesh);
    BlockLayout layout;
    if (!sharding_equal(of_values, of_scales, values->rank) || of_values->partial) return false;
    if (!block_layout(values, scales, &local, &layout)) return false;
    for (int i = 0; i < values->rank; i++) {
        int64_t taken = values->dims[i] / scales->dims[i];
        if (blocks.dims[i] * taken != local.dims[i]) return false;
    }
    return true;
}

/* Between the two ops fp8 is gathered and sliced only, in equal parts of an even number of bytes:
 * kernels that move memory take two at a time. */
static const char *check_move(const Graph *graph, const Node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        Value x = node->inputs[i];
        if (value_type(x)->dtype != DTYPE_FP8) continue;
        int at = type_find_axis(value_type(x), node_axis(node, ATTR_axis));
        bool gathers = node->op == OP_ALL_GATHER && node->n_inputs == 1;
        if ((!gathers && node->op != OP_SLICE) || at < 0) {
            return "takes fp8, which is gathered, sliced and dequantised only";
        }
        Type in = type_local(value_type(x), value_sharding(x), &graph->mesh);
        Type out = type_local(&node->types[0], &node->shardings[0], &graph->mesh);
        const Type *part = gathers ? &in : &out, *whole = gathers ? &out : &in;
        int64_t bytes = 1;
        for (int k = at; k < part->rank; k++) bytes *= part->dims[k];
        if (bytes % 2 || whole->dims[at] % part->dims[at]) return "moves odd parts of fp8";
    }
    return NULL;
}

const char *verify_scales(const Graph *graph, const Node *node) {
    if (node->op == OP_QUANTIZE) {
        Value x = node->inputs[0];
        bool alike = sharding_equal(value_sharding(x), &node->shardings[0], node->types[0].rank);
        bool whole = uncut(graph, &node->types[0], &node->shardings[0], &node->types[1],
                           &node->shardings[1]);
        return alike && whole ? NULL : "its mesh cuts blocks that share a scale";
    }
    if (node->op != OP_DEQUANTIZE) return check_move(graph, node);
    Value values = node->inputs[0], scales = node->inputs[1];
    if (!belong_together(values, scales)) return "its scales are not those of its values";
    bool whole = uncut(graph, value_type(values), value_sharding(values), value_type(scales),
                       value_sharding(scales)) &&
                 sharding_equal(value_sharding(values), &node->shardings[0], node->types[0].rank);
    return whole ? NULL : "its mesh cuts blocks that share a scale";
}
