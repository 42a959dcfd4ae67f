/* simplify: dead nodes go, and equal pure nodes become one. */
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

Graph *pass_simplify(const Graph *in, PassContext *ctx) {
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    bool *live = find_live(in, ctx->arena);
    int n_buckets = in->n_nodes + 1;
    /* Chains of candidates by a cheap hash, newest first. */
    int *heads = ARENA_ARRAY(ctx->arena, int, n_buckets);
    int *next = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 2);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (!live[n]) continue;
        Node *copy = value_map_copy(&map, node, out, ctx->diag);
        if (!copy) return NULL;
        if (OPS[node->op].flags & (EFFECT | COLLECTIVE)) continue;
        int *head = &heads[hash_computation(copy) % (unsigned)n_buckets];
        for (int other = *head; other; other = next[other]) {
            if (!same_computation(out->nodes[other - 1], copy)) continue;
            value_map_set_node(&map, node, out->nodes[other - 1]);
            out->n_nodes--; /* the copy is the newest node: take it back */
            copy = NULL;
            break;
        }
        if (!copy) continue;
        next[copy->id + 1] = *head;
        *head = copy->id + 1;
    }
    return out;
}
