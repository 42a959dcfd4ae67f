#include "ir/ops/round_blocks.h"

#include <string.h>

const char *const ROUND_FORM_NAMES[N_ROUND_FORMS] = {
    [ROUND_Q4_0] = "q4_0", [ROUND_Q8_0] = "q8_0", [ROUND_F16] = "f16"};

RoundForm round_form_find(const char *name) {
    int i = 0;
    while (i < N_ROUND_FORMS && strcmp(ROUND_FORM_NAMES[i], name) != 0) i++;
    return (RoundForm)i;
}

bool node_is_rounded(const Node *node) {
    return node_attr(node, ATTR_blocks) != NULL;
}

bool node_rounds_alike(const Node *a, const Node *b) {
    const Attr *x = node_attr(a, ATTR_along), *y = node_attr(b, ATTR_along);
    if (!node_is_rounded(a) || !node_is_rounded(b)) return node_is_rounded(a) == node_is_rounded(b);
    bool alike = strcmp(node_string(a, ATTR_blocks), node_string(b, ATTR_blocks)) == 0 &&
                 x->axes.count == y->axes.count;
    for (int i = 0; alike && i < x->axes.count; i++) alike = x->axes.items[i] == y->axes.items[i];
    return alike;
}

const char *graph_rounded_form(const Graph *graph) {
    const char *found = NULL;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_PARAM || !node_is_rounded(node)) continue;
        found = node_string(node, ATTR_blocks);
        if (strcmp(found, ROUND_FORM_NAMES[ROUND_F16]) != 0) return found;
    }
    return found;
}

void round_attrs(const Node *param, DType dtype, Attr out[N_ROUND_ATTRS]) {
    out[0] = *node_attr(param, ATTR_blocks);
    out[1] = *node_attr(param, ATTR_along);
    out[2] = attr_string(ATTR_dtype, dtype_name(dtype));
}

bool round_keeps_blocks(const Node *node, const Sharding *sharding, const Mesh *mesh) {
    const Type *type = &node->types[0];
    const Attr *along = node_attr(node, ATTR_along);
    int64_t inner = 1; /* numbers of a row within one index of the axis */
    if (strcmp(node_string(node, ATTR_blocks), ROUND_FORM_NAMES[ROUND_F16]) == 0) return true;
    for (int i = along->axes.count - 1; i >= 0; i--) {
        int at = type_find_axis(type, along->axes.items[i]);
        int by = sharding->mesh[at];
        int64_t whole = type->dims[at] * inner;
        if (mesh_size(mesh, by) > 1) {
            if (mesh_deals(by)) return false;
            if (type_share(type, at, by, mesh) * inner % ROUND_BLOCK != 0) return false;
            if (i > 0 && whole % ROUND_BLOCK != 0) return false;
        }
        inner = whole;
    }
    return true;
}

RoundLayout round_layout(const Node *node, const Type *local) {
    RoundLayout l = {.length = 1, .n_rows = 1};
    const Attr *along = node_attr(node, ATTR_along);
    int64_t strides[MAX_RANK], stride = 1;
    for (int i = local->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= local->dims[i];
    }
    for (int i = 0; i < along->axes.count; i++) {
        int at = type_find_axis(local, along->axes.items[i]);
        l.row_dims[l.n_row] = local->dims[at];
        l.row_strides[l.n_row++] = strides[at];
        l.length *= local->dims[at];
    }
    for (int i = 0; i < local->rank; i++) {
        if (node_over(node, ATTR_along, local->axes[i])) continue;
        l.other_dims[l.n_other] = local->dims[i];
        l.other_strides[l.n_other++] = strides[i];
        l.n_rows *= local->dims[i];
    }
    return l;
}

int64_t round_place(int n, const int64_t *dims, const int64_t *strides, int64_t i) {
    int64_t at = 0;
    for (int d = n - 1; d >= 0 && i > 0; d--) {
        at += i % dims[d] * strides[d];
        i /= dims[d];
    }
    return at;
}

static bool fail(const Node *node, const char *why, Diag *diag) {
    diag_error(diag, node->loc, "%s: %s", OPS[node->op].name, why);
    if (node->n_inputs) diag_note(diag, node->inputs[0].node->loc, "made here");
    return false;
}

/* Are the attributes that say how `type` is rounded what they have to be? */
static const char *find_wrong(const Node *node, const Type *type) {
    const Attr *along = node_attr(node, ATTR_along);
    const RoundForm form = round_form_find(node_string(node, ATTR_blocks));
    int64_t length = 1;
    if (form == N_ROUND_FORMS) return "blocks are q4_0, q8_0 or f16";
    if (!along || along->axes.count < 1) return "blocks without 'along', which says their rows";
    if (!dtype_is_float(type->dtype)) return "blocks are made of floating point";
    for (int i = 0; i < along->axes.count; i++) {
        int at = type_find_axis(type, along->axes.items[i]);
        if (at < 0) return "'along' names an axis that is not there";
        for (int k = 0; k < i; k++) {
            if (along->axes.items[k] == along->axes.items[i]) return "'along' names an axis twice";
        }
        length *= type->dims[at];
    }
    bool whole = form == ROUND_F16 || length % ROUND_BLOCK == 0;
    return whole ? NULL : "rows along 'along' are no whole blocks of 32";
}

bool round_check_leaf(const Node *leaf, Diag *diag) {
    bool any = node_is_rounded(leaf) || node_attr(leaf, ATTR_along);
    const char *wrong = any ? find_wrong(leaf, &leaf->types[0]) : NULL;
    return !wrong || fail(leaf, wrong, diag);
}

/* x f32 -> what a file in such blocks would say, as dtype; over the copy, if that is an operand */
bool infer_round_blocks(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    const char *name = node_string(node, ATTR_dtype), *wrong = find_wrong(node, in);
    int dtype = dtype_find(name, (int)strlen(name));
    (void)graph;
    if (wrong) return fail(node, wrong, diag);
    if (in->dtype != DTYPE_F32) return fail(node, "takes a parameter in f32", diag);
    if (dtype < 0 || !dtype_is_float((DType)dtype)) {
        return fail(node, "dtype is f32, bf16 or f16", diag);
    }
    node->types[0] = type_with_dtype(in, (DType)dtype);
    if (node->n_inputs > 1 && !type_equal(value_type(node->inputs[1]), &node->types[0])) {
        return fail(node, "the copy that it writes over has another type", diag);
    }
    return true;
}
