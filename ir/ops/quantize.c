#include "ir/ops/quantize.h"

#include <inttypes.h>

bool block_run(const Type *type, const int *run, int n_run, int64_t factors[MAX_RANK]) {
    int64_t left = SCALE_BLOCK;
    for (int i = type->rank - 1; i >= 0; i--) {
        bool member = false;
        for (int k = 0; k < n_run; k++) member |= run[k] == type->axes[i];
        if (!member || left == 1) continue;
        int64_t dim = type->dims[i], taken = dim < left ? dim : left;
        if (left % taken != 0 || dim % taken != 0) return false;
        factors[i] = taken;
        left /= taken;
    }
    return left == 1;
}

bool block_layout(const Type *values, const Type *scales, const Type *local, BlockLayout *out) {
    int64_t size[2] = {1, 1}, block[2] = {1, 1};
    int part = 0; /* columns, then rows */
    if (scales->rank != values->rank) return false;
    for (int i = values->rank - 1; i >= 0; i--) {
        int64_t dim = values->dims[i], of = scales->dims[i];
        if (scales->axes[i] != values->axes[i] || of < 1 || dim % of != 0) return false;
        int64_t taken = dim / of;
        if (local->dims[i] % taken != 0) return false;
        /* A block that is full, or that numbers lie within, is not continued; another begins. */
        bool begins = block[part] == SCALE_BLOCK || (block[part] == 1 && size[part] > 1);
        if (taken > 1 && begins) {
            if (part == 1) return false;
            part = 1;
        }
        if (taken > 1 && size[part] != block[part]) return false;
        size[part] *= local->dims[i];
        block[part] *= taken;
        if (block[part] > SCALE_BLOCK) return false;
    }
    bool whole = (block[0] == 1 || block[0] == SCALE_BLOCK) &&
                 (block[1] == 1 || block[1] == SCALE_BLOCK) && block[0] * block[1] > 1;
    *out = (BlockLayout){size[1], size[0], block[1], block[0]};
    return whole;
}

static bool take_run(const Graph *graph, const Node *node, AttrKey key, int64_t *factors,
                     Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    const Attr *run = node_attr(node, key);
    for (int i = 0; i < run->axes.count; i++) {
        if (type_find_axis(in, run->axes.items[i]) >= 0) continue;
        diag_error(diag, node->loc, "quantize: the operand has no axis '%s'",
                   graph->axes.names[run->axes.items[i]]);
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (block_run(in, run->axes.items, run->axes.count, factors)) return true;
    diag_error(diag, node->loc,
               "quantize: the axes in '%s' do not hold whole blocks of %d from the innermost on",
               ATTRS[key].name, SCALE_BLOCK);
    diag_note(diag, node->inputs[0].node->loc, "made here");
    return false;
}

bool infer_quantize(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    int64_t factors[MAX_RANK] = {1, 1, 1, 1, 1, 1};
    BlockLayout layout;
    if (!dtype_is_float(in->dtype)) {
        diag_error(diag, node->loc, "quantize: the operand is %s; it must be f32, bf16 or f16",
                   dtype_name(in->dtype));
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (!take_run(graph, node, ATTR_over, factors, diag)) return false;
    if (node_attr(node, ATTR_beside) && !take_run(graph, node, ATTR_beside, factors, diag)) {
        return false;
    }
    node->types[0] = type_with_dtype(in, DTYPE_FP8);
    node->types[1] = type_with_dtype(in, DTYPE_F32);
    for (int i = 0; i < in->rank; i++) node->types[1].dims[i] /= factors[i];
    if (block_layout(in, &node->types[1], in, &layout)) return true;
    diag_error(diag, node->loc,
               "quantize: the axes of a block must lie beside each other, those in 'over' and "
               "'beside' apart");
    return false;
}

bool infer_dequantize(Graph *graph, Node *node, Diag *diag) {
    const Type *values = value_type(node->inputs[0]), *scales = value_type(node->inputs[1]);
    BlockLayout layout;
    (void)graph;
    node->types[0] = type_with_dtype(values, DTYPE_BF16);
    if (values->dtype == DTYPE_FP8 && scales->dtype == DTYPE_F32 &&
        block_layout(values, scales, values, &layout)) {
        return true;
    }
    diag_error(diag, node->loc,
               "dequantize: takes fp8 and the f32 scales of its blocks of %d, as quantize gives "
               "them",
               SCALE_BLOCK);
    diag_note(diag, node->inputs[0].node->loc, "made here");
    return false;
}
