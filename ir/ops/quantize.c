#include "ir/ops/quantize.h"

#include "ir/blocks.h"

#include <inttypes.h>
#include <string.h>

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

static bool same_order(const Type *a, const Type *b, int first) {
    for (int i = 0; i < a->rank; i++) {
        if (a->axes[(i + first) % a->rank] != b->axes[i]) return false;
    }
    return a->rank == b->rank;
}

/* Of values and scales in one order. */
static bool plain_layout(const Type *values, const Type *scales, const Type *local,
                         BlockLayout *out) {
    int64_t size[2] = {1, 1}, block[2] = {1, 1};
    int part = 0; /* columns, then rows */
    for (int i = values->rank - 1; i >= 0; i--) {
        int64_t dim = values->dims[i], of = scales->dims[i];
        if (of < 1 || dim % of != 0) return false;
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
    *out = (BlockLayout){size[1], size[0], block[1], block[0], size[0] / block[0], 1, false, false};
    return whole;
}

/* Of scales whose axes begin with the values' from number `first` on, which hold the blocks. */
static bool turned_layout(const Type *values, const Type *scales, const Type *local, int first,
                          BlockLayout *out) {
    int64_t rows = 1, columns = 1, left = SCALE_BLOCK;
    for (int i = values->rank - 1; i >= first; i--) {
        int64_t dim = values->dims[i], taken = dim < left ? dim : left;
        if (left % taken != 0 || local->dims[i] % taken != 0) return false;
        if (dim % taken != 0 || scales->dims[i - first] != dim / taken) return false;
        left /= taken;
        columns *= local->dims[i];
    }
    for (int i = 0; i < first; i++) {
        if (scales->dims[values->rank - first + i] != values->dims[i]) return false;
        rows *= local->dims[i];
    }
    *out = (BlockLayout){rows, columns, 1, SCALE_BLOCK, 1, rows, false, false};
    return left == 1;
}

bool block_layout(const Type *values, const Type *scales, const Type *local, BlockLayout *out) {
    if (scales->rank != values->rank) return false;
    if (same_order(values, scales, 0)) return plain_layout(values, scales, local, out);
    for (int first = 1; first < values->rank; first++) {
        if (same_order(values, scales, first))
            return turned_layout(values, scales, local, first, out);
    }
    return false;
}

bool scale_form(const Type *values, const Type *scales, const Type *local, int64_t own,
                int64_t summed, ScaleForm *out) {
    BlockLayout l;
    if (!block_layout(values, scales, local, &l)) return false;
    *out = l.block_rows == 1 ? SCALES_OF_ROWS : SCALES_OF_TILES;
    bool lies = l.block_rows == 1 ? l.scale_down == 1 && l.block_columns == SCALE_BLOCK
                                  : l.block_columns == SCALE_BLOCK;
    return lies && l.rows == own && l.columns == summed;
}

bool scaled_operand_fits(int64_t own, int64_t summed, ScaleForm form) {
    return own % 16 == 0 && summed % SCALE_BLOCK == 0 &&
           (form == SCALES_OF_ROWS || summed / SCALE_BLOCK % 4 == 0);
}

void quantize_factors(const Node *quantize, int64_t factors[MAX_RANK]) {
    const Type *in = value_type(quantize->inputs[0]);
    const Attr *over = node_attr(quantize, ATTR_over), *beside = node_attr(quantize, ATTR_beside);
    for (int i = 0; i < MAX_RANK; i++) factors[i] = 1;
    block_run(in, over->axes.items, over->axes.count, factors);
    if (beside) block_run(in, beside->axes.items, beside->axes.count, factors);
}

static Type divided_by(const Type *type, const int64_t *factors) {
    Type scales = type_with_dtype(type, DTYPE_F32);
    for (int i = 0; i < type->rank; i++) scales.dims[i] /= factors[i];
    return scales;
}

/* The operand's first axis that is of `last`, with which it ends; 0: it begins with them; -1: they
 * are not all on one side, in their order, or leave no other. */
static int find_last(const Node *quantize) {
    const Type *in = value_type(quantize->inputs[0]);
    const Attr *last = node_attr(quantize, ATTR_last);
    int n = last->axes.count;
    if (n < 1 || n >= in->rank) return -1;
    for (int first = 0; first <= in->rank - n; first += in->rank - n) {
        bool found = true;
        for (int i = 0; i < n; i++) found &= in->axes[first + i] == last->axes.items[i];
        if (found) return first;
    }
    return -1;
}

bool quantize_layout(const Node *quantize, const Type *local, BlockLayout *out) {
    const Type *in = value_type(quantize->inputs[0]);
    int64_t factors[MAX_RANK];
    quantize_factors(quantize, factors);
    Type scales = divided_by(in, factors);
    if (!plain_layout(in, &scales, local, out)) return false;
    const Attr *last = node_attr(quantize, ATTR_last);
    if (!last) return true;
    int64_t summed = 1;
    for (int i = 0; i < local->rank; i++) {
        if (node_over(quantize, ATTR_last, local->axes[i])) summed *= local->dims[i];
    }
    int64_t own = type_elements(local) / summed;
    out->turned = find_last(quantize) == 0;
    out->rows = out->turned ? summed : own;
    out->columns = out->turned ? own : summed;
    bool tiles = node_attr(quantize, ATTR_beside);
    out->block_rows = tiles || out->turned ? SCALE_BLOCK : 1;
    out->block_columns = tiles || !out->turned ? SCALE_BLOCK : 1;
    out->each = node_int(quantize, ATTR_each, 0) != 0;
    int64_t across = tiles && !out->each ? 1 : own; /* from a block to the next along K */
    int64_t beside = !tiles ? 1 : out->each ? SCALE_BLOCK : summed / SCALE_BLOCK;
    out->scale_down = out->turned ? across : beside;
    out->scale_right = out->turned ? beside : across;
    return true;
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

/* Blocks of `last` have to be 128 numbers in a row, as are those of the other axes. */
static bool check_last(const Node *node, const int64_t *factors, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    int64_t found[MAX_RANK] = {1, 1, 1, 1, 1, 1};
    const Attr *last = node_attr(node, ATTR_last), *beside = node_attr(node, ATTR_beside);
    int first = find_last(node), own[MAX_RANK], n_own = 0;
    for (int i = 0; i < in->rank; i++) {
        if (!node_over(node, ATTR_last, in->axes[i])) own[n_own++] = in->axes[i];
    }
    bool fits = first >= 0 && block_run(in, last->axes.items, last->axes.count, found) &&
                (!beside || block_run(in, own, n_own, found));
    for (int i = 0; fits && i < in->rank; i++) fits = factors[i] == found[i];
    if (fits) return true;
    diag_error(diag, node->loc,
               "quantize: 'last' must name the operand's first or last axes in their order, not "
               "all, and they those in 'over', of which a block takes the innermost");
    diag_note(diag, node->inputs[0].node->loc, "made here");
    return false;
}

/* Values [own, last]; scales [own, last] of tiles, [last, own] else. */
static void order_last(Node *node) {
    const Type in = *value_type(node->inputs[0]);
    Type values = node->types[0], scales = node->types[1], of = scales;
    int n = node_attr(node, ATTR_last)->axes.count, first = find_last(node);
    bool each = node_int(node, ATTR_each, 0) != 0, tiles = node_attr(node, ATTR_beside) && !each;
    for (int i = 0; i < in.rank; i++) {
        int from = first == 0 ? (i + n) % in.rank : i;
        values.axes[i] = in.axes[from];
        values.dims[i] = in.dims[from];
        int to = tiles ? i : (i + n) % in.rank;
        bool own = i < in.rank - n;
        scales.axes[to] = in.axes[from];
        scales.dims[to] = own && each ? in.dims[from] : of.dims[from];
    }
    node->types[0] = values;
    node->types[1] = scales;
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
    node->types[1] = divided_by(in, factors);
    if (!plain_layout(in, &node->types[1], in, &layout)) {
        diag_error(diag, node->loc,
                   "quantize: the axes of a block must lie beside each other, those in 'over' and "
                   "'beside' apart");
        return false;
    }
    bool last = node_attr(node, ATTR_last), tiles = node_attr(node, ATTR_beside);
    if (node_int(node, ATTR_each, 0) && (!last || !tiles)) {
        diag_error(diag, node->loc, "quantize: 'each' is for tiles that lie as 'last' says");
        return false;
    }
    if (!last) return true;
    if (!check_last(node, factors, diag)) return false;
    order_last(node);
    return true;
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

bool infer_widen(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    const char *name = node_string(node, ATTR_dtype);
    int dtype = dtype_find(name, (int)strlen(name));
    (void)graph;
    bool weights = dtype_is_blocked(in->dtype) && !dtype_is_moment(in->dtype);
    if (!weights || type_elements(in) % WEIGHT_BLOCK != 0) {
        diag_error(diag, node->loc, "widen: takes nf4 or int8, in whole blocks of %d",
                   WEIGHT_BLOCK);
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (dtype < 0 || !dtype_is_float((DType)dtype)) {
        diag_error(diag, node->loc, "widen: dtype '%s' is not f32, bf16 or f16", name);
        return false;
    }
    node->types[0] = type_with_dtype(in, (DType)dtype);
    return true;
}
