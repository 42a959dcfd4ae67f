/* group_sums: of a sum's terms, those that are partial over t are added up first, for one message
 * to complete them all: x + attention + mlp of a parallel block (GPT-J, PaLM), and the gradients
 * that come back through several products of one value. So are, with --zero 2 and 3, the shares of
 * one weight's gradient that one block makes (--expert-parts): one message over d brings them home.
 */
#include "planner/passes/pass.h"

#include "planner/plan/zero.h"

typedef struct Grouper {
    PassContext *ctx;
    Graph *out;
    ValueMap map;
    Graph meshed; /* the old graph as propagate_sharding will see it */
    const int *uses;
    bool *grouped,
        *dropped; /* of the old graph's nodes: sums that are made anew, and their parts */
    bool *joined; /* accumulations whose share a later one adds with its own */
} Grouper;

/* The terms of one sum, in the order they were written, and the sums that are parts of it. */
typedef struct Terms {
    Value *values, *left; /* `left`: to be looked at, the next one last */
    bool *partial;
    int *parts;
    int n, n_partial, n_parts;
} Terms;

static bool is_used_once(const Grouper *g, Value value) {
    return g->uses[value.node->id * MAX_OUTPUTS + value.output] == 1;
}

/* A sum that only `root` reads, and that can as well be made there. */
static bool is_part_of(const Grouper *g, Value value, const Node *root) {
    const Node *node = value.node;
    return node->op == OP_ADD && is_used_once(g, value) && node->phase == root->phase &&
           node->block == root->block && node->chunk == root->chunk &&
           type_equal(&node->types[0], &root->types[0]);
}

static bool is_partial(const Grouper *g, Value value) {
    const Node *node = value.node;
    if ((OPS[node->op].flags & (LEAF | LINEAR)) || !is_used_once(g, value)) return false;
    ShardingRule rule = sharding_rule(&g->meshed, node, g->uses, false, false, g->ctx->arena);
    const Sharding *result = &rule.outputs[value.output];
    return result->partial >> MESH_T & 1 && result->reduce == REDUCE_SUM;
}

static void collect(const Grouper *g, const Node *root, Terms *terms) {
    int n_left = 0;
    terms->n = terms->n_partial = terms->n_parts = 0;
    for (int i = root->n_inputs - 1; i >= 0; i--) terms->left[n_left++] = root->inputs[i];
    while (n_left > 0) {
        Value term = terms->left[--n_left];
        const Node *node = term.node;
        if (is_part_of(g, term, root)) {
            terms->parts[terms->n_parts++] = node->id;
            for (int i = node->n_inputs - 1; i >= 0; i--) terms->left[n_left++] = node->inputs[i];
            continue;
        }
        bool partial = type_equal(value_type(term), &root->types[0]) && is_partial(g, term);
        terms->values[terms->n] = term;
        terms->partial[terms->n++] = partial;
        terms->n_partial += partial;
    }
}

/* Partial terms first, then the others. */
static bool add_up(Grouper *g, const Node *root, const Terms *terms) {
    Value sum = {0};
    for (int partial = 1; partial >= 0; partial--) {
        for (int i = 0; i < terms->n; i++) {
            if (terms->partial[i] != partial) continue;
            Value term = *value_map_at(&g->map, terms->values[i]);
            if (!sum.node) {
                sum = term;
                continue;
            }
            Node *node = pass_build(g->ctx, g->out, OP_ADD, root, root->phase, (Value[]){sum, term},
                                    2, NULL, 0);
            if (!node) return false;
            sum = node_value(node, 0);
        }
    }
    *value_map_at(&g->map, node_value((Node *)root, 0)) = sum;
    return true;
}

/* From the last sum to the first, so that a whole one comes before its parts. */
static void choose(Grouper *g, const Graph *in, Terms *terms) {
    bool *seen = ARENA_ARRAY(g->ctx->arena, bool, in->n_nodes + 1);
    for (int n = in->n_nodes - 1; n >= 0; n--) {
        if (in->nodes[n]->op != OP_ADD || seen[n]) continue;
        collect(g, in->nodes[n], terms);
        g->grouped[n] = terms->n > 2 && terms->n_partial > 1;
        for (int i = 0; i < terms->n_parts; i++) {
            seen[terms->parts[i]] = true;
            g->dropped[terms->parts[i]] = g->grouped[n];
        }
    }
}

/* The accumulation of another share of the same weight, of the same block and task, or NULL. */
static const Node *find_earlier(const Node *node) {
    const Node *before = node->inputs[0].node;
    bool same = node->op == OP_ACCUMULATE && before->op == OP_ACCUMULATE && node->block >= 0 &&
                before->block == node->block && before->chunk == node->chunk &&
                before->phase == node->phase;
    return same ? before : NULL;
}

/* Of accumulations of one weight after each other, only the last stays. */
static void choose_shares(Grouper *g, const Graph *in) {
    for (int n = in->n_nodes - 1; n >= 0; n--) {
        const Node *before = find_earlier(in->nodes[n]);
        if (before && is_used_once(g, node_value((Node *)before, 0))) g->joined[before->id] = true;
    }
}

/* accumulate(accumulate(kept, a), b) -> accumulate(kept, a + b), each term added where it is made.
 */
static bool add_share(Grouper *g, const Node *node) {
    const Node *before = find_earlier(node);
    Value share = *value_map_at(&g->map, node->inputs[1]);
    bool more = before && g->joined[before->id];
    if (more) {
        Value terms[2] = {*value_map_at(&g->map, node_value((Node *)before, 0)), share};
        Node *sum = pass_build(g->ctx, g->out, OP_ADD, node, node->phase, terms, 2, NULL, 0);
        if (!sum) return false;
        share = node_value(sum, 0);
    }
    Value *result = value_map_at(&g->map, node_value((Node *)node, 0));
    *result = share;
    if (g->joined[node->id]) return true;
    while (more && find_earlier(before) && g->joined[find_earlier(before)->id]) {
        before = find_earlier(before);
    }
    Value kept = *value_map_at(&g->map, (more ? before : node)->inputs[0]);
    Node *all = pass_build(g->ctx, g->out, OP_ACCUMULATE, node, node->phase, (Value[]){kept, share},
                           2, NULL, 0);
    if (all) *result = node_value(all, 0);
    return all != NULL;
}

Graph *pass_group_sums(const Graph *in, PassContext *ctx) {
    Grouper g = {.ctx = ctx,
                 .out = graph_create_like(in, ctx->arena),
                 .map = value_map_create(in, ctx->arena),
                 .meshed = *in,
                 .uses = graph_count_uses(in, ctx->arena),
                 .grouped = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1),
                 .dropped = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1),
                 .joined = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1)};
    Terms terms = {.values = ARENA_ARRAY(ctx->arena, Value, in->n_nodes + 2),
                   .left = ARENA_ARRAY(ctx->arena, Value, in->n_nodes + 2),
                   .partial = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 2),
                   .parts = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 2)};
    g.meshed.mesh = ctx->options.mesh;
    g.meshed.shared_heads = sharding_rule_shared_heads(in, &ctx->options.mesh);
    if (ctx->options.mesh.size[MESH_T] > 1) choose(&g, in, &terms);
    if (ctx->options.zero >= ZERO_GRADIENTS) choose_shares(&g, in);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (g.dropped[n]) continue;
        if (g.grouped[n]) collect(&g, node, &terms);
        bool done = g.grouped[n] ? add_up(&g, node, &terms)
                    : node->op == OP_ACCUMULATE
                        ? add_share(&g, node)
                        : value_map_copy(&g.map, node, g.out, ctx->diag) != NULL;
        if (!done) return NULL;
    }
    return g.out;
}
