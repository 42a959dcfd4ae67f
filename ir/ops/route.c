/* Sparse mixtures of experts: choosing experts, routing tokens to them, moving rows there and back.
 *
 *   scores [batch, seq, routes] -- top --> chosen i32[batch, seq, choice], the best first
 *   chosen -- route --> slots i32[batch, seq, choice]: expert x capacity + place, -1: dropped
 *                       tokens i32[experts, batch, slot]: position x choices + choice, -1: empty
 *                       slots may be a run of all that an expert has: `first` on, of `count`
 *                       counts f32[batch, routes]: choices that fell on each expert, dropped or not
 *   x [batch, seq, model] -- dispatch --> [experts, batch, slot, model]
 *   h [experts, batch, slot, model], gates [batch, seq, choice] -- combine --> [batch, seq, model]
 *
 * Capacity is per sequence (groups of GShard, Lepikhin et al. 2020, section 2.2) and goes to who
 * comes first along the sequence, then to the better choice: what is dropped depends on no later
 * token, no other sequence and no layout. `experts` may be divided over ranks: each keeps the
 * tokens of its own, and combine's result is a partial sum.
 */
#include "ir/ops/route.h"

#include <inttypes.h>

bool op_routes(OpKind op) {
    return op == OP_TOP || op == OP_TAKE || op == OP_PUT || op == OP_ROUTE || op == OP_DISPATCH ||
           op == OP_COMBINE || op == OP_SLOT_DOT;
}

/* The operand with choices along its last axis, or -1. */
static int choices_operand(OpKind op) {
    switch (op) {
    case OP_TAKE:
    case OP_PUT:
    case OP_DISPATCH:
    case OP_COMBINE:
    case OP_SLOT_DOT: return 1;
    case OP_ROUTE: return 0;
    default: return -1;
    }
}

static bool moves_rows(OpKind op) {
    return op == OP_DISPATCH || op == OP_COMBINE || op == OP_SLOT_DOT;
}

bool route_needs_whole(const Node *node, int axis) {
    int operand = choices_operand(node->op);
    if (operand >= 0) {
        const Type *choices = value_type(node->inputs[operand]);
        int at = type_find_axis(choices, axis);
        if (at == choices->rank - 1) return true;
        if ((moves_rows(node->op) || node->op == OP_ROUTE) && at == 1) return true;
    }
    if (moves_rows(node->op)) {
        const Type *tokens = value_type(node->inputs[2]);
        return type_find_axis(tokens, axis) == 2;
    }
    const Attr *to = node_attr(node, ATTR_to);
    if (node->op == OP_ROUTE) return axis == to->axes.items[1] || axis == to->axes.items[2];
    return axis == node_axis(node, ATTR_axis) || node_over(node, ATTR_to, axis);
}

static bool fail_operand(const Node *node, int input, Diag *diag, const char *what) {
    diag_error(diag, node->loc, "%s: operand %d %s", OPS[node->op].name, input + 1, what);
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

typedef enum Kind { SCORES, ROWS, NUMBERS } Kind;

static bool require(const Node *node, int input, Kind kind, Diag *diag) {
    DType dtype = value_type(node->inputs[input])->dtype;
    if (kind == SCORES && dtype != DTYPE_F32) return fail_operand(node, input, diag, "must be f32");
    if (kind == NUMBERS && dtype != DTYPE_I32) {
        return fail_operand(node, input, diag, "must be i32, as what top and route make is");
    }
    if (dtype_is_float(dtype) || kind == NUMBERS) return true;
    return fail_operand(node, input, diag, "must be f32, bf16 or f16");
}

RouteGroups route_groups(const Node *top) {
    return (RouteGroups){(int)node_int(top, ATTR_groups, 1), (int)node_int(top, ATTR_kept, 1),
                         (int)node_int(top, ATTR_best, 1)};
}

/* DeepSeek-V2 (arXiv 2405.04434, section 2.2.2) sums a group's greatest score, V3 (arXiv
 * 2412.19437, section 2.1.2) its two greatest. */
static bool check_groups(const Node *node, int64_t n, Diag *diag) {
    int64_t groups = node_int(node, ATTR_groups, 1), kept = node_int(node, ATTR_kept, 1);
    int64_t best = node_int(node, ATTR_best, 1), count = node_int(node, ATTR_count, 0);
    bool any = node_attr(node, ATTR_groups) != NULL;
    if (any != (node_attr(node, ATTR_kept) != NULL) ||
        any != (node_attr(node, ATTR_best) != NULL)) {
        diag_error(diag, node->loc, "top: groups, kept and best go together");
        return false;
    }
    if (groups < 1 || groups > ROUTE_MOST_GROUPS || n % groups != 0) {
        diag_error(diag, node->loc,
                   "top: %" PRId64 " groups of %" PRId64 " numbers: there are 1 to %d, all equal",
                   groups, n, ROUTE_MOST_GROUPS);
        return false;
    }
    if (best < 1 || best > 2 || best > n / groups) {
        diag_error(diag, node->loc,
                   "top: the best %" PRId64 " of a group of %" PRId64
                   ": one or two are summed, at most all",
                   best, n / groups);
        return false;
    }
    if (kept < 1 || kept > groups || kept * (n / groups) < count) {
        diag_error(diag, node->loc,
                   "top: cannot choose %" PRId64 " from %" PRId64 " of %" PRId64
                   " groups of %" PRId64,
                   count, kept, groups, n / groups);
        return false;
    }
    return true;
}

/* scores [rows..., axis] -> i32[rows..., to=count] */
bool infer_top(Graph *graph, Node *node, Diag *diag) {
    const Type *scores = value_type(node->inputs[0]);
    const Attr *to = node_attr(node, ATTR_to);
    int64_t count = node_int(node, ATTR_count, 0);
    if (!require(node, 0, SCORES, diag)) return false;
    if (scores->rank < 1 || scores->axes[scores->rank - 1] != node_axis(node, ATTR_axis)) {
        return fail_operand(node, 0, diag, "must have the axis to choose along as its last");
    }
    int last = scores->rank - 1;
    if (to->axes.count != 1 || type_find_axis(scores, to->axes.items[0]) >= 0) {
        diag_error(diag, node->loc, "top: 'to' must be one axis that the scores do not have");
        return false;
    }
    if (count < 1 || count > scores->dims[last]) {
        diag_error(diag, node->loc, "top: cannot choose %" PRId64 " of the %" PRId64 " along '%s'",
                   count, scores->dims[last], graph->axes.names[scores->axes[last]]);
        return false;
    }
    if (!check_groups(node, scores->dims[last], diag)) return false;
    node->types[0] = type_with_dtype(scores, DTYPE_I32);
    node->types[0].axes[last] = to->axes.items[0];
    node->types[0].dims[last] = count;
    return true;
}

/* Do the operands' axes but the last agree? */
static bool check_rows_alike(const Node *node, Diag *diag) {
    const Type *a = value_type(node->inputs[0]), *b = value_type(node->inputs[1]);
    bool alike = a->rank >= 1 && a->rank == b->rank;
    for (int i = 0; alike && i < a->rank - 1; i++) {
        alike = a->axes[i] == b->axes[i] && a->dims[i] == b->dims[i];
    }
    if (alike) return true;
    return fail_operand(node, 1, diag, "must have the first one's axes, but for the last");
}

/* x f32[rows..., axis], index i32[rows..., choice] -> f32 like index: x at each index, 0 beyond */
bool infer_take(Graph *graph, Node *node, Diag *diag) {
    const Type *x = value_type(node->inputs[0]), *index = value_type(node->inputs[1]);
    (void)graph;
    if (!require(node, 0, SCORES, diag) || !require(node, 1, NUMBERS, diag)) return false;
    if (!check_rows_alike(node, diag)) return false;
    if (x->axes[x->rank - 1] != node_axis(node, ATTR_axis)) {
        return fail_operand(node, 0, diag, "must have the axis to take from as its last");
    }
    node->types[0] = type_with_dtype(index, x->dtype);
    return true;
}

/* y f32[rows..., choice], index i32 like it -> f32[rows..., axis=count]: what each number gets */
bool infer_put(Graph *graph, Node *node, Diag *diag) {
    const Type *y = value_type(node->inputs[0]), *index = value_type(node->inputs[1]);
    int axis = node_axis(node, ATTR_axis), last = y->rank - 1;
    int64_t count = node_int(node, ATTR_count, 0);
    if (!require(node, 0, SCORES, diag) || !require(node, 1, NUMBERS, diag)) return false;
    if (y->rank < 1 || !type_same_shape(y, index)) {
        return fail_operand(node, 1, diag, "must have the first one's shape");
    }
    int at = type_find_axis(y, axis);
    if (count < 1 || (at >= 0 && at != last)) {
        diag_error(diag, node->loc,
                   "put: '%s' cannot be the result's last axis, with %" PRId64 " elements",
                   graph->axes.names[axis], count);
        return false;
    }
    node->types[0] = *y;
    node->types[0].axes[last] = axis;
    node->types[0].dims[last] = count;
    return true;
}

void grad_take(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    const Type *x = value_type(node->inputs[0]);
    Attr attrs[2] = {attr_axis(ATTR_axis, node_axis(node, ATTR_axis)),
                     attr_int(ATTR_count, x->dims[x->rank - 1])};
    dins[0] = grad_build(ctx, OP_PUT, (Value[]){douts[0], node->inputs[1]}, 2, attrs, 2);
}

void grad_put(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Attr axis = attr_axis(ATTR_axis, node_axis(node, ATTR_axis));
    dins[0] = grad_build(ctx, OP_TAKE, (Value[]){douts[0], node->inputs[1]}, 2, &axis, 1);
}

/* The run of an expert's slots that a route fills: from `first` on, of `count`. */
static bool check_run(const Node *node, int64_t slots, const Type *chosen, Diag *diag) {
    int64_t first = node_int(node, ATTR_first, 0), count = node_int(node, ATTR_count, slots);
    int64_t most = chosen->dims[1] * chosen->dims[2];
    bool both = (node_attr(node, ATTR_first) != NULL) == (node_attr(node, ATTR_count) != NULL);
    if (both && first >= 0 && count <= most && first <= count && slots <= count - first) {
        return true;
    }
    diag_error(diag, node->loc,
               "route: slots from %" PRId64 " on, %" PRId64 " of %" PRId64
               ": first and count go together, and all lie within an expert's slots",
               first, slots, count);
    return false;
}

/* Numbers of slots are i32; counts of choices are exact in f32. */
static bool check_sizes(const Node *node, int64_t experts, int64_t slots, const Type *chosen,
                        Diag *diag) {
    int64_t seq = chosen->dims[1], choices = chosen->dims[2];
    if (experts < 1 || slots < 1 || slots > seq * choices || experts > INT32_MAX / slots ||
        seq > (1 << 24) / choices) {
        diag_error(diag, node->loc,
                   "route: %" PRId64 " experts of %" PRId64 " slots for %" PRId64 " x %" PRId64
                   " choices: an expert has at least one slot, at most one for each of at most "
                   "2^24 choices",
                   experts, slots, seq, choices);
        return false;
    }
    return true;
}

bool infer_route(Graph *graph, Node *node, Diag *diag) {
    const Type *chosen = value_type(node->inputs[0]);
    const Attr *to = node_attr(node, ATTR_to);
    int64_t experts = node_int(node, ATTR_experts, 0), slots = node_int(node, ATTR_slots, 0);
    (void)graph;
    if (!require(node, 0, NUMBERS, diag)) return false;
    if (chosen->rank != 3) return fail_operand(node, 0, diag, "must be [batch, seq, choice]");
    bool fits = to->axes.count == 3;
    for (int i = 0; fits && i < 3; i++) {
        fits = type_find_axis(chosen, to->axes.items[i]) < 0;
        for (int k = 0; k < i; k++) fits &= to->axes.items[k] != to->axes.items[i];
    }
    if (!fits) {
        diag_error(diag, node->loc,
                   "route: 'to' must be three new axes: experts, an expert's slots, and experts "
                   "as they are counted");
        return false;
    }
    if (!check_sizes(node, experts, slots, chosen, diag)) return false;
    if (!check_run(node, slots, chosen, diag)) return false;
    int batch = chosen->axes[0];
    int64_t n = chosen->dims[0];
    node->types[0] = *chosen;
    node->types[1] =
        (Type){DTYPE_I32, 3, {to->axes.items[0], batch, to->axes.items[1]}, {experts, n, slots}};
    node->types[2] = (Type){DTYPE_F32, 2, {batch, to->axes.items[2]}, {n, experts}};
    return true;
}

/* Operands 1 and 2: slots i32[batch, seq, choice] and tokens i32[experts, batch, slot]. */
static bool check_tables(const Node *node, Diag *diag) {
    const Type *slots = value_type(node->inputs[1]), *tokens = value_type(node->inputs[2]);
    if (!require(node, 1, NUMBERS, diag) || !require(node, 2, NUMBERS, diag)) return false;
    if (slots->rank != 3) return fail_operand(node, 1, diag, "must be route's first result");
    bool fits = tokens->rank == 3 && tokens->axes[1] == slots->axes[0] &&
                tokens->dims[1] == slots->dims[0] && type_find_axis(slots, tokens->axes[0]) < 0 &&
                type_find_axis(slots, tokens->axes[2]) < 0;
    return fits || fail_operand(node, 2, diag, "must be route's second result, of the same route");
}

/* rows [batch, seq, model] as the tables have batch and seq */
static bool check_token_rows(const Node *node, int input, Diag *diag) {
    const Type *rows = value_type(node->inputs[input]), *slots = value_type(node->inputs[1]);
    const Type *tokens = value_type(node->inputs[2]);
    bool fits = rows->rank == 3 && type_find_axis(slots, rows->axes[2]) < 0 &&
                type_find_axis(tokens, rows->axes[2]) < 0;
    for (int i = 0; fits && i < 2; i++) {
        fits = rows->axes[i] == slots->axes[i] && rows->dims[i] == slots->dims[i];
    }
    if (!require(node, input, ROWS, diag)) return false;
    return fits || fail_operand(node, input, diag, "must be [batch, seq, model] as slots are");
}

/* rows [experts, batch, slot, model] as `tokens` is */
static bool check_slot_rows(const Node *node, int input, Diag *diag) {
    const Type *rows = value_type(node->inputs[input]), *tokens = value_type(node->inputs[2]);
    bool fits = rows->rank == 4 && type_find_axis(tokens, rows->axes[3]) < 0 &&
                type_find_axis(value_type(node->inputs[1]), rows->axes[3]) < 0;
    for (int i = 0; fits && i < 3; i++) {
        fits = rows->axes[i] == tokens->axes[i] && rows->dims[i] == tokens->dims[i];
    }
    if (!require(node, input, ROWS, diag)) return false;
    return fits || fail_operand(node, input, diag, "must be [experts, batch, slot, model]");
}

static bool check_gates(const Node *node, Diag *diag) {
    if (node->n_inputs == ROUTE_TABLES) return true;
    Type gates = type_with_dtype(value_type(node->inputs[1]), DTYPE_F32);
    if (type_equal(value_type(node->inputs[3]), &gates)) return true;
    return fail_operand(node, 3, diag, "must be f32[batch, seq, choice], a gate for each slot");
}

/* x [batch, seq, model], slots, tokens(, gates) -> [experts, batch, slot, model]: the row of each
 * slot's token (times its gate), zeros where there is none */
bool infer_dispatch(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    if (!check_tables(node, diag) || !check_token_rows(node, 0, diag)) return false;
    if (!check_gates(node, diag)) return false;
    const Type *x = value_type(node->inputs[0]);
    node->types[0] = type_with_dtype(value_type(node->inputs[2]), x->dtype);
    node->types[0].axes[3] = x->axes[2];
    node->types[0].dims[3] = x->dims[2];
    node->types[0].rank = 4;
    return true;
}

/* h [experts, batch, slot, model], slots, tokens(, gates) -> [batch, seq, model]: the sum over
 * choices, in their order, of the row of its slot (times its gate) */
bool infer_combine(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    if (!check_tables(node, diag) || !check_slot_rows(node, 0, diag)) return false;
    if (!check_gates(node, diag)) return false;
    const Type *h = value_type(node->inputs[0]);
    node->types[0] = type_with_dtype(value_type(node->inputs[1]), h->dtype);
    node->types[0].axes[2] = h->axes[3];
    node->types[0].dims[2] = h->dims[3];
    return true;
}

/* h [experts, batch, slot, model], slots, tokens, y [batch, seq, model] -> f32[batch, seq, choice]:
 * the products of each slot's row with its token's, the gradient of gates; 0 where dropped */
bool infer_slot_dot(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    if (!check_tables(node, diag) || !check_slot_rows(node, 0, diag)) return false;
    if (!check_token_rows(node, 3, diag)) return false;
    const Type *h = value_type(node->inputs[0]), *y = value_type(node->inputs[3]);
    if (h->axes[3] != y->axes[2] || h->dims[3] != y->dims[2] || h->dtype != y->dtype) {
        return fail_operand(node, 3, diag, "must have rows like the first one's");
    }
    node->types[0] = type_with_dtype(value_type(node->inputs[1]), DTYPE_F32);
    return true;
}

/* Each of the two is the other's gradient. */
static void grad_move(GradContext *ctx, const Node *node, OpKind back, const Value *douts,
                      Value *dins) {
    Value slots = node->inputs[1], tokens = node->inputs[2];
    Value operands[4] = {grad_to_dtype(ctx, douts[0], value_type(node->inputs[0])->dtype), slots,
                         tokens, node->n_inputs > ROUTE_TABLES ? node->inputs[3] : NO_VALUE};
    dins[0] = grad_build(ctx, back, operands, node->n_inputs, NULL, 0);
    if (node->n_inputs == ROUTE_TABLES) return;
    bool combines = node->op == OP_COMBINE;
    Value rows = combines ? node->inputs[0] : operands[0];
    Value beside = combines ? operands[0] : node->inputs[0];
    dins[3] = grad_build(ctx, OP_SLOT_DOT, (Value[]){rows, slots, tokens, beside}, 4, NULL, 0);
}

void grad_dispatch(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    grad_move(ctx, node, OP_COMBINE, douts, dins);
}

void grad_combine(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    grad_move(ctx, node, OP_DISPATCH, douts, dins);
}

static bool same_shape(const Node *a, const Node *b) {
    return type_equal(&a->types[1], &b->types[1]) && type_equal(&a->types[0], &b->types[0]);
}

RouteSet route_find_all(const Graph *graph, Arena *arena) {
    RouteSet set = {0};
    int capacity = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool known = node->op != OP_ROUTE;
        for (int i = 0; !known && i < set.count; i++) known = same_shape(set.nodes[i], node);
        if (!known) ARENA_PUSH(arena, set.nodes, set.count, capacity, node);
    }
    return set;
}

/* The route whose experts (and slots, if asked for) lie along axes of the type, or NULL. */
static const Node *find_route(const RouteSet *routes, const Type *type, bool with_slots) {
    for (int i = 0; i < routes->count; i++) {
        const Type *tokens = &routes->nodes[i]->types[1];
        int experts = type_find_axis(type, tokens->axes[0]);
        int slots = type_find_axis(type, tokens->axes[2]);
        if (experts < 0 || type->dims[experts] != tokens->dims[0]) continue;
        if (!with_slots || (slots >= 0 && type->dims[slots] == tokens->dims[2])) {
            return routes->nodes[i];
        }
    }
    return NULL;
}

double route_active_share(const RouteSet *routes, const Node *product) {
    if (product->op != OP_MATMUL) return 1;
    const Node *route = find_route(routes, value_type(product->inputs[0]), true);
    if (!route) route = find_route(routes, value_type(product->inputs[1]), true);
    if (!route) return 1;
    const Type *slots = &route->types[0], *tokens = &route->types[1];
    double share = (double)(slots->dims[1] * slots->dims[2]) /
                   ((double)tokens->dims[0] * (double)node_int(route, ATTR_count, tokens->dims[2]));
    return share < 1 ? share : 1;
}

double route_active_parameters(const RouteSet *routes, const Node *param) {
    double elements = (double)type_elements(&param->types[0]);
    const Node *route = find_route(routes, &param->types[0], false);
    if (!route || route->types[0].dims[2] >= route->types[1].dims[0]) return elements;
    return elements * (double)route->types[0].dims[2] / (double)route->types[1].dims[0];
}

double route_count_active(const Graph *graph) {
    Arena *arena = arena_create();
    RouteSet routes = route_find_all(graph, arena);
    double active = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op != OP_PARAM) continue;
        active += route_active_parameters(&routes, graph->nodes[n]);
    }
    arena_destroy(arena);
    return active;
}
