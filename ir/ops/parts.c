/* Parts of an axis: narrow, pad, concat, shift, stack; an axis of another name, or of two; rows of
 * pairs. */
#include "ir/ops/parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *axis_name(const Graph *graph, int axis) {
    return axis >= 0 ? graph->axes.names[axis] : "?";
}

int parts_to(const Node *node) {
    const Attr *to = node_attr(node, ATTR_to);
    return to && to->axes.count == 1 ? to->axes.items[0] : -1;
}

bool parts_has_axis(const Node *node, int axis) {
    return axis == node_axis(node, ATTR_axis) || node_over(node, ATTR_to, axis) ||
           node_over(node, ATTR_over, axis);
}

int parts_joined(const Node *node, const Type *type) {
    int found = -1;
    for (int i = 0; i < type->rank; i++) {
        if (!node_over(node, ATTR_over, type->axes[i])) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

static bool fail_made_here(const Node *node, int input, Diag *diag) {
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

/* Positions as an axis of another name, or back: what part_loss makes; models may not. */
static bool cuts_sequence(const Graph *graph, const Node *node) {
    int to = parts_to(node);
    bool comes = to >= 0 && axis_is_sequence(axis_name(graph, to)), goes = false;
    if (node->op == OP_NARROW) {
        goes = axis_is_sequence(axis_name(graph, node_axis(node, ATTR_axis)));
        return goes && !comes && to >= 0;
    }
    const Attr *over = node_attr(node, ATTR_over);
    for (int i = 0; over && i < over->axes.count; i++) {
        goes |= axis_is_sequence(axis_name(graph, over->axes.items[i]));
    }
    return node->op == OP_CONCAT && comes && !goes;
}

/* What lies along batch is divided over ranks and micro-batches, along seq perhaps over t. */
static bool check_own_axis(const Graph *graph, const Node *node, int axis, Diag *diag) {
    const char *name = axis_name(graph, axis), *op = OPS[node->op].name;
    if (strcmp(name, "batch") == 0) {
        diag_error(diag, node->loc,
                   "%s: axis 'batch' is divided over ranks and micro-batches: what the result "
                   "holds would depend on the layout",
                   op);
        return false;
    }
    bool in_order = node->op == OP_SHIFT || node->op == OP_RENAME || cuts_sequence(graph, node);
    if (axis_is_sequence(name) && !in_order) {
        diag_error(diag, node->loc,
                   "%s: axis '%s' stays as long as a sample, and whole or divided as one; shift "
                   "moves along it",
                   op, name);
        return false;
    }
    return true;
}

static bool require_float(const Node *node, int input, Diag *diag) {
    const Type *type = value_type(node->inputs[input]);
    if (dtype_is_float(type->dtype)) return true;
    diag_error(diag, node->loc, "%s: operand %d is %s; it must be f32, bf16 or f16",
               OPS[node->op].name, input + 1, dtype_name(type->dtype));
    return fail_made_here(node, input, diag);
}

/* Position of the operand's axis that the op works along; -1: reported. */
static int find_own_axis(const Graph *graph, const Node *node, Diag *diag) {
    int axis = node_axis(node, ATTR_axis);
    int at = type_find_axis(value_type(node->inputs[0]), axis);
    if (at < 0) {
        diag_error(diag, node->loc, "%s: the operand has no axis '%s'", OPS[node->op].name,
                   axis_name(graph, axis));
        fail_made_here(node, 0, diag);
        return -1;
    }
    return check_own_axis(graph, node, axis, diag) ? at : -1;
}

/* The new axis: one name, and none that the operand has beside what is replaced. */
static bool check_new_axis(const Graph *graph, const Node *node, int input, int replaced,
                           Diag *diag) {
    const Type *in = value_type(node->inputs[input]);
    int to = parts_to(node);
    if (to < 0) {
        diag_error(diag, node->loc, "%s: 'to' must be one axis", OPS[node->op].name);
        return false;
    }
    int at = type_find_axis(in, to);
    if (at < 0 || at == replaced) return check_own_axis(graph, node, to, diag);
    diag_error(diag, node->loc, "%s: the result would have axis '%s' twice", OPS[node->op].name,
               axis_name(graph, to));
    return fail_made_here(node, input, diag);
}

/* Are elements [first, first + count) among those of an axis of `size`? */
static bool check_range(const Graph *graph, const Node *node, int axis, int64_t count, int64_t size,
                        Diag *diag) {
    int64_t first = node_int(node, ATTR_first, 0);
    if (first >= 0 && count >= 1 && count <= size && first <= size - count) return true;
    diag_error(diag, node->loc,
               "%s: %" PRId64 " elements from number %" PRId64
               " on are not all within axis '%s', which is %" PRId64,
               OPS[node->op].name, count, first, axis_name(graph, axis), size);
    return fail_made_here(node, 0, diag);
}

/* Zeros that fill up ranks' last parts of an axis become part of it (`grows`), or are so no more.
 * That parts stay as long as they are is seen where shardings are known: verify_update.c. */
static bool set_length(const Graph *graph, Node *node, bool grows, Diag *diag) {
    const Attr *padded = node_attr(node, ATTR_padded);
    int64_t length = node_int(node, ATTR_length, 0);
    if (!padded && !node_attr(node, ATTR_length)) return true;
    Type *out = &node->types[0];
    int axis = node_axis(node, ATTR_padded), at = axis >= 0 ? type_find_axis(out, axis) : -1;
    bool own = padded && node->phase == PHASE_UPDATE && at >= 0 &&
               type_find_axis(value_type(node->inputs[0]), axis) >= 0;
    if (own && length > 0 && (grows ? length >= out->dims[at] : length <= out->dims[at])) {
        out->dims[at] = length;
        return check_own_axis(graph, node, axis, diag);
    }
    diag_error(diag, node->loc,
               "%s: 'length' is what the operand's axis 'padded' becomes, in updates: %s",
               OPS[node->op].name, grows ? "no less than it is" : "no more than it is");
    return fail_made_here(node, 0, diag);
}

bool infer_narrow(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    bool lane = strcmp(axis_name(graph, node_axis(node, ATTR_axis)), AXIS_LANE) == 0;
    bool tokens = in->dtype == DTYPE_I32 && (lane || cuts_sequence(graph, node)); /* and labels */
    int at = tokens || require_float(node, 0, diag) ? find_own_axis(graph, node, diag) : -1;
    if (at < 0) return false;
    bool drops = !node_attr(node, ATTR_to);
    if (drops != !node_attr(node, ATTR_count)) {
        diag_error(diag, node->loc, "narrow: 'count' is the size of the axis 'to': both or none");
        return false;
    }
    int64_t count = node_int(node, ATTR_count, 1);
    if (!drops && !check_new_axis(graph, node, 0, at, diag)) return false;
    if (!check_range(graph, node, in->axes[at], count, in->dims[at], diag)) return false;
    Type out = {.dtype = in->dtype};
    for (int i = 0; i < in->rank; i++) {
        if (i == at && drops) continue;
        out.axes[out.rank] = i == at ? parts_to(node) : in->axes[i];
        out.dims[out.rank++] = i == at ? count : in->dims[i];
    }
    node->types[0] = out;
    return set_length(graph, node, false, diag);
}

/* Adds an axis at position `at`. */
static Type with_axis(const Type *type, int at, int axis, int64_t size) {
    Type out = {.dtype = type->dtype, .rank = type->rank + 1};
    for (int i = 0; i < out.rank; i++) {
        int from = i < at ? i : i - 1;
        out.axes[i] = i == at ? axis : type->axes[from];
        out.dims[i] = i == at ? size : type->dims[from];
    }
    return out;
}

bool infer_pad(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    bool adds = !node_attr(node, ATTR_axis);
    int64_t size = node_int(node, ATTR_count, 0), at = node_int(node, ATTR_at, -1);
    if (!require_float(node, 0, diag)) return false;
    if (adds ? at < 0 || at > in->rank || in->rank == MAX_RANK : at != -1) {
        diag_error(diag, node->loc,
                   "pad: needs 'axis', which becomes 'to', or 'at', where 'to' is added: one of "
                   "them, and at most %d axes",
                   MAX_RANK);
        return false;
    }
    if (!adds) at = find_own_axis(graph, node, diag);
    if (at < 0 || !check_new_axis(graph, node, 0, adds ? -1 : (int)at, diag)) return false;
    int64_t count = adds ? 1 : in->dims[at];
    if (!check_range(graph, node, parts_to(node), count, size, diag)) return false;
    Type out = *in;
    if (adds) {
        out = with_axis(in, (int)at, parts_to(node), size);
    } else {
        out.axes[at] = parts_to(node);
        out.dims[at] = size;
    }
    node->types[0] = out;
    return true;
}

/* Has operand k one axis of 'over', where the first has it, and otherwise the first one's axes? */
static bool check_joined(const Graph *graph, const Node *node, int k, int at, Diag *diag) {
    const Type *first = value_type(node->inputs[0]), *type = value_type(node->inputs[k]);
    bool fits = parts_joined(node, type) == at && at >= 0 && type->rank == first->rank &&
                type->dtype == first->dtype;
    for (int i = 0; fits && i < first->rank; i++) {
        fits = i == at || (type->axes[i] == first->axes[i] && type->dims[i] == first->dims[i]);
    }
    if (fits) return check_own_axis(graph, node, type->axes[at], diag);
    StrBuf text = strbuf_create();
    type_print(&text, &graph->axes, type, NULL);
    diag_error(diag, node->loc,
               "concat: operand %d is %s: each must have one axis of 'over', all in the same "
               "place, and the others as the first has them",
               k + 1, text.text);
    strbuf_destroy(&text);
    diag_note(diag, node->inputs[k].node->loc, "made here");
    if (k) diag_note(diag, node->inputs[0].node->loc, "the first operand made here");
    return false;
}

bool infer_concat(Graph *graph, Node *node, Diag *diag) {
    Type out = *value_type(node->inputs[0]);
    int at = parts_joined(node, &out);
    int64_t size = 0;
    for (int k = 0; k < node->n_inputs; k++) {
        if (!require_float(node, k, diag) || !check_joined(graph, node, k, at, diag)) return false;
        if (!check_new_axis(graph, node, k, at, diag)) return false;
        size += value_type(node->inputs[k])->dims[at];
    }
    out.axes[at] = parts_to(node);
    out.dims[at] = size;
    node->types[0] = out;
    return true;
}

bool infer_shift(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    double value = node_float(node, ATTR_value, 0);
    int at = find_own_axis(graph, node, diag);
    if (at < 0) return false;
    if (node_int(node, ATTR_by, 0) <= -in->dims[at] || node_int(node, ATTR_by, 0) >= in->dims[at]) {
        diag_error(diag, node->loc,
                   "shift: by %" PRId64 " nothing of axis '%s', which is %" PRId64
                   ", would be left",
                   node_int(node, ATTR_by, 0), axis_name(graph, in->axes[at]), in->dims[at]);
        return fail_made_here(node, 0, diag);
    }
    bool whole = fabs(value) <= INT32_MAX && value == floor(value);
    if (value != 0 && (in->dtype != DTYPE_I32 || !whole)) {
        diag_error(diag, node->loc, "shift: 'value' must be 0%s",
                   in->dtype == DTYPE_I32 ? " or a whole number" : " unless the operand is i32");
        return fail_made_here(node, 0, diag);
    }
    node->types[0] = *in;
    return true;
}

bool infer_stack(Graph *graph, Node *node, Diag *diag) {
    const Type *first = value_type(node->inputs[0]);
    int64_t count = node_int(node, ATTR_count, 0);
    for (int k = 0; k < node->n_inputs; k++) {
        if (!require_float(node, k, diag) || !check_new_axis(graph, node, k, -1, diag))
            return false;
        if (type_equal(value_type(node->inputs[k]), first)) continue;
        diag_error(diag, node->loc, "stack: operand %d has another type than the first", k + 1);
        return fail_made_here(node, k, diag);
    }
    if (count < node->n_inputs || first->rank == MAX_RANK) {
        diag_error(diag, node->loc,
                   "stack: 'count' must be at least the number of operands, and the result have at "
                   "most %d axes",
                   MAX_RANK);
        return false;
    }
    node->types[0] = with_axis(first, 0, parts_to(node), count);
    return set_length(graph, node, true, diag);
}

bool infer_rename(Graph *graph, Node *node, Diag *diag) {
    int at = find_own_axis(graph, node, diag);
    if (at < 0 || !check_new_axis(graph, node, 0, at, diag)) return false;
    node->types[0] = *value_type(node->inputs[0]);
    node->types[0].axes[at] = parts_to(node);
    return true;
}

/* The operand's place of the first axis of 'over', if both stand side by side; -1: they do not. */
static int regrouped_place(const Node *node, const Type *in) {
    const Attr *over = node_attr(node, ATTR_over);
    int at = over && over->axes.count > 0 ? type_find_axis(in, over->axes.items[0]) : -1;
    if (at < 0 || over->axes.count == 1) return at;
    bool beside = at + 1 < in->rank && in->axes[at + 1] == over->axes.items[1];
    return beside ? at : -1;
}

/* Of an axis two, or of two one. Which of these are divided nobody could say. */
bool infer_regroup(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    const Attr *over = node_attr(node, ATTR_over), *to = node_attr(node, ATTR_to);
    int n_over = over ? over->axes.count : 0, n_to = to ? to->axes.count : 0;
    int64_t count = node_int(node, ATTR_count, 0);
    if (n_over + n_to != 3 || n_over < 1 || n_to < 1 ||
        (n_to == 2 ? count < 1 : node_attr(node, ATTR_count) != NULL) ||
        (n_to == 2 && to->axes.items[0] == to->axes.items[1]) ||
        in->rank + n_to - n_over > MAX_RANK) {
        diag_error(
            diag, node->loc,
            "regroup: makes two axes 'to', the second 'count' long, of one in 'over', or one "
            "of two; values have at most %d axes",
            MAX_RANK);
        return false;
    }
    int at = regrouped_place(node, in);
    if (at < 0 || (n_to == 2 && in->dims[at] % count != 0)) {
        if (at < 0) {
            diag_error(diag, node->loc,
                       "regroup: the operand has not the axes of 'over', side by side");
        } else {
            diag_error(diag, node->loc,
                       "regroup: axis '%s' is %" PRId64 ", no multiple of 'count', %" PRId64,
                       axis_name(graph, in->axes[at]), in->dims[at], count);
        }
        return fail_made_here(node, 0, diag);
    }
    Type out = {.dtype = in->dtype};
    for (int i = 0; i < in->rank; i++) {
        if (i >= at && i < at + n_over) continue;
        if (node_over(node, ATTR_to, in->axes[i])) {
            diag_error(diag, node->loc, "regroup: the result would have axis '%s' twice",
                       axis_name(graph, in->axes[i]));
            return fail_made_here(node, 0, diag);
        }
    }
    for (int i = 0; i < n_over; i++) {
        if (!check_own_axis(graph, node, over->axes.items[i], diag)) return false;
    }
    for (int i = 0; i < at; i++) {
        out.axes[out.rank] = in->axes[i];
        out.dims[out.rank++] = in->dims[i];
    }
    for (int i = 0; i < n_to; i++) {
        if (!check_own_axis(graph, node, to->axes.items[i], diag)) return false;
        out.axes[out.rank] = to->axes.items[i];
        out.dims[out.rank++] = n_to == 1 ? in->dims[at] * in->dims[at + 1]
                               : i == 0  ? in->dims[at] / count
                                         : count;
    }
    for (int i = at + n_over; i < in->rank; i++) {
        out.axes[out.rank] = in->axes[i];
        out.dims[out.rank++] = in->dims[i];
    }
    node->types[0] = out;
    return true;
}

/* That a rank has whole pairs is seen where micro-batches are known: planner.c and the binders. */
bool infer_of_pairs(Graph *graph, Node *node, Diag *diag) {
    int axis = node_axis(node, ATTR_axis);
    int64_t from = node_int(node, ATTR_from, -1), into = node_int(node, ATTR_into, -1);
    if (type_find_axis(value_type(node->inputs[0]), axis) < 0 ||
        strcmp(axis_name(graph, axis), "batch") != 0) {
        diag_error(diag, node->loc, "of_pairs: works along axis 'batch' of an operand that has it");
        return fail_made_here(node, 0, diag);
    }
    if (from < 0 || from > 1 || into < 0 || into > 1) {
        diag_error(diag, node->loc, "of_pairs: 'from' and 'into' must be 0 or 1");
        return false;
    }
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

bool graph_has_pairs(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == OP_OF_PAIRS) return true;
    }
    return false;
}

/* Elements [first, first + dims) of `value` along `to`, as what `like` has at `at`. */
static Value part_like(GradContext *ctx, Value value, int to, int64_t first, const Type *like,
                       int at) {
    Attr attrs[4] = {attr_axis(ATTR_axis, to), attr_axes(ATTR_to, &like->axes[at], 1),
                     attr_int(ATTR_first, first), attr_int(ATTR_count, like->dims[at])};
    return grad_build(ctx, OP_NARROW, &value, 1, attrs, 4);
}

void grad_narrow(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    const Type *in = value_type(node->inputs[0]);
    int at = type_find_axis(in, node_axis(node, ATTR_axis)), to = parts_to(node);
    Attr attrs[4] = {to >= 0 ? attr_axis(ATTR_axis, to) : attr_int(ATTR_at, at),
                     attr_axes(ATTR_to, &in->axes[at], 1),
                     attr_int(ATTR_first, node_int(node, ATTR_first, 0)),
                     attr_int(ATTR_count, in->dims[at])};
    dins[0] = grad_build(ctx, OP_PAD, douts, 1, attrs, 4);
}

void grad_pad(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    const Type *in = value_type(node->inputs[0]);
    int64_t first = node_int(node, ATTR_first, 0);
    int at = type_find_axis(in, node_axis(node, ATTR_axis)), to = parts_to(node);
    if (at >= 0) {
        dins[0] = part_like(ctx, douts[0], to, first, in, at);
        return;
    }
    Attr attrs[2] = {attr_axis(ATTR_axis, to), attr_int(ATTR_first, first)};
    dins[0] = grad_build(ctx, OP_NARROW, douts, 1, attrs, 2);
}

void grad_concat(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    int64_t first = 0;
    for (int k = 0; k < node->n_inputs; k++) {
        const Type *in = value_type(node->inputs[k]);
        int at = parts_joined(node, in);
        dins[k] = part_like(ctx, douts[0], parts_to(node), first, in, at);
        first += in->dims[at];
    }
}

void grad_shift(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Attr attrs[2] = {attr_axis(ATTR_axis, node_axis(node, ATTR_axis)),
                     attr_int(ATTR_by, -node_int(node, ATTR_by, 0))};
    dins[0] = grad_build(ctx, OP_SHIFT, douts, 1, attrs, 2);
}

void grad_rename(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    int axis = node_axis(node, ATTR_axis);
    Attr attrs[2] = {attr_axis(ATTR_axis, parts_to(node)), attr_axes(ATTR_to, &axis, 1)};
    dins[0] = grad_build(ctx, OP_RENAME, douts, 1, attrs, 2);
}

void grad_regroup(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    const Type *in = value_type(node->inputs[0]);
    const Attr *over = node_attr(node, ATTR_over), *to = node_attr(node, ATTR_to);
    Attr attrs[3] = {attr_axes(ATTR_over, to->axes.items, to->axes.count),
                     attr_axes(ATTR_to, over->axes.items, over->axes.count)};
    bool parts = over->axes.count == 2;
    if (parts) {
        attrs[2] = attr_int(ATTR_count, in->dims[type_find_axis(in, over->axes.items[1])]);
    }
    dins[0] = grad_build(ctx, OP_REGROUP, douts, 1, attrs, parts ? 3 : 2);
}

void grad_of_pairs(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Attr attrs[3] = {attr_axis(ATTR_axis, node_axis(node, ATTR_axis)),
                     attr_int(ATTR_from, node_int(node, ATTR_into, 0)),
                     attr_int(ATTR_into, node_int(node, ATTR_from, 0))};
    dins[0] = grad_build(ctx, OP_OF_PAIRS, douts, 1, attrs, 3);
}

/* Elements after, and before, the axis at `at`. */
static int64_t product(const Type *type, int from, int end) {
    int64_t size = 1;
    for (int i = from; i < end; i++) size *= type->dims[i];
    return size;
}

/* Of an operand and the result of local shapes, along axes at `in_at` and `out_at`; -1: there is no
 * such axis, one element. */
static PartMove move_between(const Type *in, const Type *out, int in_at, int out_at) {
    int at = in_at >= 0 ? in_at : out_at;
    return (PartMove){.outer = product(out, 0, at),
                      .inner = product(out, out_at >= 0 ? out_at + 1 : at, out->rank),
                      .n_in = in_at >= 0 ? in->dims[in_at] : 1,
                      .n_out = out_at >= 0 ? out->dims[out_at] : 1};
}

int parts_moves(const Node *node, const Type *inputs, const Type *out, PartMove *moves) {
    const Type *in = &inputs[0];
    int axis = type_find_axis(in, node_axis(node, ATTR_axis)),
        to = type_find_axis(out, parts_to(node));
    int64_t first = node_int(node, ATTR_first, 0), by = node_int(node, ATTR_by, 0), end = 0;
    if (node->op == OP_CONCAT) {
        for (int k = 0; k < node->n_inputs; k++) {
            moves[k] = move_between(&inputs[k], out, to, to);
            moves[k].to = end;
            moves[k].count = moves[k].n_in = inputs[k].dims[to];
            end += moves[k].count;
        }
        return node->n_inputs;
    }
    if (node->op == OP_OF_PAIRS) {
        moves[0] = (PartMove){.outer = product(in, 0, axis + 1) / 2,
                              .n_in = 2,
                              .n_out = 2,
                              .inner = product(in, axis + 1, in->rank),
                              .from = node_int(node, ATTR_from, 0),
                              .to = node_int(node, ATTR_into, 0),
                              .count = 1,
                              .fills = true};
        return 1;
    }
    if (node->op == OP_REGROUP) {
        int at = regrouped_place(node, in);
        int64_t inner = product(in, at, in->rank);
        moves[0] = (PartMove){
            .outer = product(in, 0, at), .n_in = 1, .n_out = 1, .inner = inner, .count = 1};
        return 1;
    }
    moves[0] = move_between(in, out, axis, node->op == OP_SHIFT ? axis : to);
    PartMove *move = &moves[0];
    move->fills = node->op == OP_PAD || node->op == OP_SHIFT;
    move->count = move->n_in < move->n_out ? move->n_in : move->n_out;
    switch (node->op) {
    case OP_NARROW: move->from = first; break;
    case OP_PAD: move->to = first; break;
    case OP_RENAME: break;
    default: /* shift */
        move->from = by > 0 ? by : 0;
        move->to = by < 0 ? -by : 0;
        move->count -= move->from + move->to;
        move->fill = (int32_t)node_float(node, ATTR_value, 0);
    }
    return 1;
}
