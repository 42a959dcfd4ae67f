/* narrow, pad, concat, shift, rename: element by element, from where each comes. */
#include "tests/support/reference_eval.h"

static int axis_to(const Node *node) {
    const Attr *to = node_attr(node, ATTR_to);
    return to ? to->axes.items[0] : -1;
}

/* Of an operand at `point` of the result, element `i` of its axis. */
static double read_at(const RefCall *call, int input, const Point *point, int axis, int64_t i) {
    Point there = *point;
    if (axis >= 0) there.at[axis] = i;
    return ref_read(call, input, &there);
}

void reference_narrow(const RefCall *call) {
    const Node *node = call->node;
    int axis = node_axis(node, ATTR_axis), to = axis_to(node);
    int64_t first = node_int(node, ATTR_first, 0), n = 0;
    Point point = {{0}};
    do {
        int64_t i = to >= 0 ? point.at[to] : 0;
        call->out[0][n++] = read_at(call, 0, &point, axis, first + i);
    } while (point_next(&point, &node->types[0]));
}

void reference_pad(const RefCall *call) {
    const Node *node = call->node;
    int axis = node_axis(node, ATTR_axis), to = axis_to(node);
    int at = axis >= 0 ? type_find_axis(ref_type(call, 0), axis) : -1;
    int64_t size = at >= 0 ? ref_type(call, 0)->dims[at] : 1, n = 0;
    Point point = {{0}};
    do {
        int64_t i = point.at[to] - node_int(node, ATTR_first, 0);
        call->out[0][n++] = i >= 0 && i < size ? read_at(call, 0, &point, axis, i) : 0;
    } while (point_next(&point, &node->types[0]));
}

void reference_concat(const RefCall *call) {
    const Node *node = call->node;
    int64_t n = 0;
    Point point = {{0}};
    do {
        int64_t i = point.at[axis_to(node)];
        int at = type_find_axis(&node->types[0], axis_to(node)), k = 0;
        while (i >= ref_type(call, k)->dims[at]) i -= ref_type(call, k++)->dims[at];
        call->out[0][n++] = read_at(call, k, &point, ref_type(call, k)->axes[at], i);
    } while (point_next(&point, &node->types[0]));
}

void reference_shift(const RefCall *call) {
    const Node *node = call->node;
    int axis = node_axis(node, ATTR_axis);
    int64_t size = node->types[0].dims[type_find_axis(&node->types[0], axis)], n = 0;
    Point point = {{0}};
    do {
        int64_t i = point.at[axis] + node_int(node, ATTR_by, 0);
        call->out[0][n++] = i >= 0 && i < size ? read_at(call, 0, &point, axis, i)
                                               : node_float(node, ATTR_value, 0);
    } while (point_next(&point, &node->types[0]));
}

void reference_stack(const RefCall *call) {
    int64_t size = type_elements(ref_type(call, 0)), all = type_elements(&call->node->types[0]);
    for (int64_t i = 0; i < all; i++) {
        call->out[0][i] = i / size < call->node->n_inputs ? call->in[i / size][i % size] : 0;
    }
}

void reference_rename(const RefCall *call) {
    const Node *node = call->node;
    int axis = node_axis(node, ATTR_axis), to = axis_to(node);
    int64_t n = 0;
    Point point = {{0}};
    do {
        call->out[0][n++] = read_at(call, 0, &point, axis, point.at[to]);
    } while (point_next(&point, &node->types[0]));
}

void reference_regroup(const RefCall *call) {
    for (int64_t i = 0; i < type_elements(&call->node->types[0]); i++) {
        call->out[0][i] = call->in[0][i];
    }
}

void reference_of_pairs(const RefCall *call) {
    const Node *node = call->node;
    int axis = node_axis(node, ATTR_axis);
    int64_t from = node_int(node, ATTR_from, 0), into = node_int(node, ATTR_into, 0), n = 0;
    Point point = {{0}};
    do {
        int64_t row = point.at[axis];
        call->out[0][n++] = row % 2 == into ? read_at(call, 0, &point, axis, row - into + from) : 0;
    } while (point_next(&point, &node->types[0]));
}
