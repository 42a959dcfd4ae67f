/* simplify: dead nodes go, equal pure nodes become one, and a log-sum-exp of logits is that of
 * their cross-entropy. */
#include "planner/passes/pass.h"

#include <string.h>

static bool same_computation(const Node *a, const Node *b) {
    if (a->op != b->op || a->n_inputs != b->n_inputs || a->n_attrs != b->n_attrs) return false;
    if (a->phase != b->phase || a->block != b->block || a->chunk != b->chunk) return false;
    for (int i = 0; i < a->n_inputs; i++) {
        if (!value_equal(a->inputs[i], b->inputs[i])) return false;
    }
    for (int i = 0; i < a->n_attrs; i++) {
        if (!attr_equal(&a->attrs[i], &b->attrs[i])) return false;
    }
    return !(OPS[a->op].flags & TYPED) || type_equal(&a->types[0], &b->types[0]);
}

/* Equal for the same computation. */
static unsigned hash_computation(const Node *node) {
    unsigned hash = (unsigned)node->op * 31u + (unsigned)node->block;
    for (int i = 0; i < node->n_inputs; i++) {
        hash = hash * 1000003u + (unsigned)node->inputs[i].node->id;
    }
    for (const char *c = node_string(node, ATTR_name); *c; c++) {
        hash = hash * 31u + (unsigned char)*c;
    }
    return hash;
}

static bool *find_live(const Graph *graph, Arena *arena) {
    bool *live = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        if (OPS[node->op].flags & EFFECT) live[n] = true;
        if (!live[n]) continue;
        for (int i = 0; i < node->n_inputs; i++) live[node->inputs[i].node->id] = true;
    }
    return live;
}

typedef struct Simplifier {
    Graph *out;
    ValueMap map;
    /* Chains of nodes of the new graph by a cheap hash, newest first: ids + 1. */
    int *heads, *next, n_buckets;
    const Node **losses; /* the first cross_entropy of each value, by id * MAX_OUTPUTS + output */
    Diag *diag;
} Simplifier;

/* Copies a node, or finds what computes the same. */
static bool keep(Simplifier *s, const Node *node) {
    Node *copy = value_map_copy(&s->map, node, s->out, s->diag);
    if (!copy) return false;
    if (OPS[node->op].flags & (EFFECT | COLLECTIVE)) return true;
    int *head = &s->heads[hash_computation(copy) % (unsigned)s->n_buckets];
    for (int other = *head; other; other = s->next[other]) {
        if (!same_computation(s->out->nodes[other - 1], copy)) continue;
        value_map_set_node(&s->map, node, s->out->nodes[other - 1]);
        s->out->n_nodes--; /* the copy is the newest node: take it back */
        return true;
    }
    s->next[copy->id + 1] = *head;
    *head = copy->id + 1;
    return true;
}

static const Node **find_losses(const Graph *in, const bool *live, Arena *arena) {
    const Node **losses = ARENA_ARRAY(arena, const Node *, in->n_nodes *MAX_OUTPUTS + 1);
    for (int n = in->n_nodes - 1; n >= 0; n--) {
        const Node *node = in->nodes[n];
        if (node->op != OP_CROSS_ENTROPY || !live[n]) continue;
        losses[node->inputs[0].node->id * MAX_OUTPUTS + node->inputs[0].output] = node;
    }
    return losses;
}

/* The logits' log-sum-exp is cross_entropy's second result, so that a penalty on it costs no second
 * pass over them, nor a second gradient. False: there is none, or its labels are not there yet. */
static bool is_in_loss(const Simplifier *s, const Node *node) {
    if (node->op != OP_LOGSUMEXP) return false;
    Value logits = node->inputs[0];
    const Node *loss = s->losses[logits.node->id * MAX_OUTPUTS + logits.output];
    return loss && loss->phase == node->phase && loss->block == node->block &&
           loss->chunk == node->chunk && value_map_at(&s->map, loss->inputs[1])->node;
}

static bool take_from_loss(Simplifier *s, const Node *node) {
    Value logits = node->inputs[0];
    const Node *loss = s->losses[logits.node->id * MAX_OUTPUTS + logits.output];
    if (!keep(s, loss)) return false;
    Value lse = *value_map_at(&s->map, node_value((Node *)loss, 1));
    *value_map_at(&s->map, node_value((Node *)node, 0)) = lse;
    return true;
}

Graph *pass_simplify(const Graph *in, PassContext *ctx) {
    bool *live = find_live(in, ctx->arena);
    Simplifier s = {.out = graph_create_like(in, ctx->arena),
                    .map = value_map_create(in, ctx->arena),
                    .n_buckets = in->n_nodes + 1,
                    .heads = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 1),
                    .next = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 2),
                    .losses = find_losses(in, live, ctx->arena),
                    .diag = ctx->diag};
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (!live[n]) continue;
        if (!(is_in_loss(&s, node) ? take_from_loss(&s, node) : keep(&s, node))) return NULL;
    }
    return s.out;
}
