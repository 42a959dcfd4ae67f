#include "frontend/lua/lua_product.h"

#include "ir/op.h"

static bool fits(Attr *over, const Type *a, const Type *b) {
    Node product = {.op = OP_MATMUL, .attrs = over, .n_attrs = 1};
    MatmulLayout layout;
    return matmul_layout(&product, a, b, &layout);
}

static bool is_summed(const Attr *over, int axis) {
    for (int i = 0; i < over->axes.count; i++) {
        if (over->axes.items[i] == axis) return true;
    }
    return false;
}

/* Can it be a product at all, in any order of axes? */
static bool is_product(const Attr *over, const Type *a, const Type *b) {
    for (int i = 0; i < over->axes.count; i++) {
        int axis = over->axes.items[i];
        if (type_find_axis(a, axis) < 0 || type_find_axis(b, axis) < 0) return false;
    }
    for (int i = 0; i < a->rank; i++) {
        int at = type_find_axis(b, a->axes[i]);
        if (at >= 0 && a->dims[i] != b->dims[at]) return false;
    }
    return true;
}

static void add_axis(Type *type, const Type *from, int axis) {
    type->axes[type->rank] = axis;
    type->dims[type->rank++] = from->dims[type_find_axis(from, axis)];
}

/* `type` as (shared, free, summed): shared axes as in `left`, free ones as they were, summed ones as
 * in `over`. The result's axes are then what they would have been. */
static Type arranged(const Attr *over, const Type *type, const Type *left, const Type *right) {
    const Type *other = type == left ? right : left;
    Type out = {.dtype = type->dtype};
    for (int i = 0; i < left->rank; i++) {
        int axis = left->axes[i];
        if (!is_summed(over, axis) && type_find_axis(right, axis) >= 0) add_axis(&out, type, axis);
    }
    for (int i = 0; i < type->rank; i++) {
        int axis = type->axes[i];
        if (type_find_axis(other, axis) < 0) add_axis(&out, type, axis);
    }
    for (int i = 0; i < over->axes.count; i++) add_axis(&out, type, over->axes.items[i]);
    return out;
}

/* Summed axes in the order in which `type` has them. */
static Attr over_as_in(const Attr *over, const Type *type) {
    int axes[MAX_RANK], n_axes = 0;
    for (int i = 0; i < type->rank; i++) {
        if (is_summed(over, type->axes[i])) axes[n_axes++] = type->axes[i];
    }
    return attr_axes(ATTR_over, axes, n_axes);
}

static Value transpose(lua_State *lua, Value value, const Type *to) {
    Attr attr = attr_axes(ATTR_to, to->axes, to->rank);
    Node *node = script_add_node(
        lua, (NodeSpec){
                 .op = OP_TRANSPOSE, .inputs = &value, .n_inputs = 1, .attrs = &attr, .n_attrs = 1});
    return node_value(node, 0);
}

void script_arrange_product(lua_State *lua, Value operands[2], Attr *attrs, int n_attrs) {
    Attr *over = NULL;
    for (int i = 0; i < n_attrs; i++) {
        if (attrs[i].key == ATTR_over) over = &attrs[i];
    }
    const Type *a = value_type(operands[0]), *b = value_type(operands[1]);
    if (!over || !is_product(over, a, b) || fits(over, a, b)) return;
    *over = over_as_in(over, type_elements(a) >= type_elements(b) ? a : b);
    if (fits(over, a, b)) return;
    Type left = arranged(over, a, a, b), right = arranged(over, b, a, b);
    bool right_will_do = fits(over, a, &right), left_will_do = fits(over, &left, b);
    if (!right_will_do) operands[0] = transpose(lua, operands[0], &left);
    if (right_will_do || !left_will_do) operands[1] = transpose(lua, operands[1], &right);
}
