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

/* Where a copy that waited in the host's memory is from. */
static Value before_copies(Value x) {
    while (x.node->op == OP_FETCH || x.node->op == OP_OFFLOAD) x = x.node->inputs[0];
    return x;
}

static bool belong_together(Value values, Value scales) {
    values = before_copies(values);
    scales = before_copies(scales);
    while (same_message(values.node, scales.node)) {
        values = before_copies(values.node->inputs[0]);
        scales = before_copies(scales.node->inputs[0]);
    }
    return values.node == scales.node && values.node->op == OP_QUANTIZE && values.output == 0 &&
           scales.output == 1;
}

/* Is each axis of the one divided as it is in the other, in whatever order they have them? */
static bool divided_alike(const Type *a, const Sharding *of_a, const Type *b,
                          const Sharding *of_b) {
    if (a->rank != b->rank || of_a->partial || of_b->partial) return false;
    for (int i = 0; i < a->rank; i++) {
        int at = type_find_axis(b, a->axes[i]);
        if (at < 0 || of_a->mesh[i] != of_b->mesh[at]) return false;
    }
    return true;
}

/* Of operands or results. Divided alike, and no block over several ranks. */
static bool uncut(const Graph *graph, Value values_of, Value scales_of) {
    const Type *values = value_type(values_of), *scales = value_type(scales_of);
    const Sharding *of_values = value_sharding(values_of), *of_scales = value_sharding(scales_of);
    Type local = type_local(values, of_values, &graph->mesh);
    Type blocks = type_local(scales, of_scales, &graph->mesh);
    BlockLayout layout;
    if (!divided_alike(values, of_values, scales, of_scales)) return false;
    if (!block_layout(values, scales, &local, &layout)) return false;
    for (int i = 0; i < values->rank; i++) {
        int at = type_find_axis(scales, values->axes[i]);
        int64_t taken = values->dims[i] / scales->dims[at];
        if (blocks.dims[at] * taken != local.dims[i]) return false;
    }
    return true;
}

/* The same of what quantize takes, where tiles whose scales are repeated still show. */
static bool operand_uncut(const Graph *graph, const Node *quantize) {
    Value x = quantize->inputs[0];
    Type local = type_local(value_type(x), value_sharding(x), &graph->mesh);
    int64_t factors[MAX_RANK];
    BlockLayout layout;
    quantize_factors(quantize, factors);
    for (int i = 0; i < local.rank; i++) {
        int mesh = value_sharding(x)->mesh[i];
        int64_t n_blocks = value_type(x)->dims[i] / factors[i];
        if (factors[i] == 1 || mesh < 0) continue;
        if (local.dims[i] * mesh_size(&graph->mesh, mesh) != n_blocks * factors[i]) return false;
    }
    return quantize_layout(quantize, &local, &layout);
}

/* Before it is read fp8 is copied whole to the host and back, and else gathered and sliced only, in
 * equal parts of an even number of bytes: kernels that move memory take two at a time. */
static const char *check_move(const Graph *graph, const Node *node) {
    if (node->op == OP_OFFLOAD || node->op == OP_FETCH) return NULL;
    for (int i = 0; i < node->n_inputs; i++) {
        Value x = node->inputs[i];
        if (value_type(x)->dtype != DTYPE_FP8) continue;
        int at = type_find_axis(value_type(x), node_axis(node, ATTR_axis));
        bool gathers = node->op == OP_ALL_GATHER && node->n_inputs == 1;
        if ((!gathers && node->op != OP_SLICE) || at < 0) {
            return "takes fp8, which is gathered, sliced, dequantised and multiplied only";
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

static const char *check_quantize(const Graph *graph, const Node *node) {
    Value x = node->inputs[0], values = {(Node *)node, 0}, scales = {(Node *)node, 1};
    bool alike =
        divided_alike(value_type(x), value_sharding(x), value_type(values), value_sharding(values));
    bool whole = alike && operand_uncut(graph, node) && uncut(graph, values, scales);
    return whole ? NULL : "its mesh cuts blocks that share a scale";
}

/* A product's parts lie as it reads them, with whole blocks of what is summed on every rank. */
static const char *check_product(const Graph *graph, const Node *node) {
    Type local[2];
    MatmulLayout l;
    for (int i = 0; i < 2; i++) {
        Value values = node->inputs[i], scales = node->inputs[2 + i];
        if (!belong_together(values, scales)) return "its scales are not those of its values";
        if (!uncut(graph, values, scales)) return "its mesh cuts blocks that share a scale";
        local[i] = type_local(value_type(values), value_sharding(values), &graph->mesh);
    }
    if (!matmul_layout(node, &local[0], &local[1], &l)) return "its parts are no product's";
    for (int i = 0; i < 2; i++) {
        ScaleForm form;
        int64_t own = i ? l.n : l.m;
        if (!scale_form(value_type(node->inputs[i]), value_type(node->inputs[2 + i]), &local[i],
                        own, l.k, &form) ||
            !scaled_operand_fits(own, l.k, form)) {
            return "a rank's part of its fp8 does not lie as tensor cores read it";
        }
    }
    return NULL;
}

const char *verify_scales(const Graph *graph, const Node *node) {
    if (node->op == OP_QUANTIZE) return check_quantize(graph, node);
    if (matmul_is_scaled(node)) return check_product(graph, node);
    if (node->op != OP_DEQUANTIZE) return check_move(graph, node);
    Value values = node->inputs[0], scales = node->inputs[1], out = {(Node *)node, 0};
    if (!belong_together(values, scales)) return "its scales are not those of its values";
    bool whole =
        uncut(graph, values, scales) && divided_alike(value_type(values), value_sharding(values),
                                                      value_type(out), value_sharding(out));
    return whole ? NULL : "its mesh cuts blocks that share a scale";
}
