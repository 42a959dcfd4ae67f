/* part_slots: with --expert-parts, the slots of a mixture's experts in so many runs, each with
 * messages and products of its own.
 *
 *   route(slots=S) -> dispatch -> products -> combine
 *   becomes, for each run of about S / parts slots,
 *   route(slots=S/parts, first, count=S) -> dispatch -> products -> combine, and the sum of these
 *
 * Where e divides the experts, hide_messages then puts the messages of one run beside the products
 * of another: but for the first run's way there and the last one's way back all are hidden. Who
 * goes where stays the same to the bit, and so does every row; what is added up of several runs (a
 * token's choices, gradients of weights and of tokens) is added in another order.
 * A weight's gradient is added up once more for each run: what that costs, prices say.
 */
#include "planner/passes/pass.h"

typedef struct Parter {
    PassContext *ctx;
    const Graph *in;
    Graph *out;
    int n_parts;
    int *route_of;  /* by id: of what lies along a route's slots that route's id, else -1 */
    ValueMap *maps; /* [n_parts]; the first is everybody's */
} Parter;

/* Where run k begins: they are as even as they can be. */
static int64_t run_start(const Parter *p, const Node *route, int k) {
    return node_int(route, ATTR_slots, 0) * k / p->n_parts;
}

static bool add_route_part(Parter *p, const Node *route, int k) {
    int64_t slots = node_int(route, ATTR_slots, 0), first = run_start(p, route, k);
    const Attr attrs[5] = {*node_attr(route, ATTR_to), *node_attr(route, ATTR_experts),
                           attr_int(ATTR_slots, run_start(p, route, k + 1) - first),
                           attr_int(ATTR_first, first), attr_int(ATTR_count, slots)};
    Value chosen = *value_map_at(&p->maps[0], route->inputs[0]);
    Node *part = pass_build(p->ctx, p->out, OP_ROUTE, route, route->phase, &chosen, 1, attrs, 5);
    if (part) value_map_set_node(&p->maps[k], route, part);
    return part != NULL;
}

/* The node for run k: what lies along the slots is that run's, all else is shared. */
static Node *add_part(Parter *p, const Node *node, int k) {
    for (int i = 0; k > 0 && i < node->n_inputs; i++) {
        Value in = node->inputs[i];
        if (p->route_of[in.node->id] < 0)
            *value_map_at(&p->maps[k], in) = *value_map_at(&p->maps[0], in);
    }
    return value_map_copy(&p->maps[k], node, p->out, p->ctx->diag);
}

static bool add_combined(Parter *p, const Node *combine) {
    Value sum = NO_VALUE;
    for (int k = 0; k < p->n_parts; k++) {
        Node *part = add_part(p, combine, k);
        if (!part) return false;
        Value terms[2] = {sum, node_value(part, 0)};
        Node *all =
            k == 0 ? part
                   : pass_build(p->ctx, p->out, OP_ADD, combine, combine->phase, terms, 2, NULL, 0);
        if (!all) return false;
        sum = node_value(all, 0);
    }
    *value_map_at(&p->maps[0], node_value((Node *)combine, 0)) = sum;
    return true;
}

static bool refuse(const Parter *p, const Node *node, const char *what) {
    diag_error(p->ctx->diag, node->loc, "--expert-parts %d: %s", p->n_parts, what);
    return false;
}

/* Fills route_of. Whatever reads a route's tables or rows has rows itself, but for combine. */
static bool find_rows(const Parter *p) {
    for (int n = 0; n < p->in->n_nodes; n++) {
        const Node *node = p->in->nodes[n];
        p->route_of[n] = -1;
        for (int i = 0; i < node->n_inputs; i++) {
            Value in = node->inputs[i];
            bool whole = in.node->op == OP_COMBINE || (in.node->op == OP_ROUTE && in.output == 2);
            if (p->route_of[in.node->id] >= 0 && !whole) p->route_of[n] = p->route_of[in.node->id];
        }
        if (node->op == OP_ROUTE) {
            p->route_of[n] = n;
            if (node_attr(node, ATTR_first))
                return refuse(p, node, "the route's slots are in parts already");
            if (node_int(node, ATTR_slots, 0) < p->n_parts)
                return refuse(p, node, "an expert has too few slots for so many parts");
        }
        if (p->route_of[n] < 0 || node->op == OP_ROUTE || node->op == OP_COMBINE) continue;
        int slot = p->in->nodes[p->route_of[n]]->types[1].axes[2];
        for (int o = 0; o < node->n_outputs; o++) {
            if (type_find_axis(&node->types[o], slot) < 0)
                return refuse(p, node, "what is made of experts' rows here needs all of them");
        }
        if (node->n_outputs == 0)
            return refuse(p, node, "what is made of experts' rows here needs all of them");
    }
    for (int n = 0; n < p->in->n_nodes; n++) {
        if (p->in->nodes[n]->op == OP_COMBINE) p->route_of[n] = -1; /* its result is everybody's */
    }
    return true;
}

Graph *pass_part_slots(const Graph *in, PassContext *ctx) {
    bool alone = ctx->options.parts_if_divided && ctx->options.mesh.size[MESH_E] == 1;
    if (ctx->options.expert_parts < 2 || alone) return (Graph *)in;
    Parter p = {.ctx = ctx,
                .in = in,
                .out = graph_create_like(in, ctx->arena),
                .n_parts = ctx->options.expert_parts,
                .route_of = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 1),
                .maps = ARENA_ARRAY(ctx->arena, ValueMap, ctx->options.expert_parts)};
    for (int k = 0; k < p.n_parts; k++) p.maps[k] = value_map_create(in, ctx->arena);
    if (!find_rows(&p)) return NULL;
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        bool fine = true;
        if (node->op == OP_COMBINE) {
            fine = add_combined(&p, node);
        } else if (p.route_of[n] < 0) {
            fine = value_map_copy(&p.maps[0], node, p.out, ctx->diag) != NULL;
        } else {
            for (int k = 0; fine && k < p.n_parts; k++) {
                fine = node->op == OP_ROUTE ? add_route_part(&p, node, k)
                                            : add_part(&p, node, k) != NULL;
            }
        }
        if (!fine) return NULL;
    }
    return p.out;
}
