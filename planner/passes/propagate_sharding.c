/* propagate_sharding: sets every value's sharding, leaves by axis rules, results by their op's. */
#include "planner/passes/pass.h"

#include <inttypes.h>

static Sharding leaf_sharding(const Graph *graph, const Type *type) {
    Sharding sharding = sharding_none();
    unsigned taken = 0;
    for (int i = 0; i < type->rank; i++) {
        int mesh = sharding_rule_mesh(graph, type->axes[i]);
        if (mesh < 0 || taken >> mesh & 1) continue;
        sharding.mesh[i] = (int8_t)mesh;
        taken |= 1u << mesh;
    }
    return sharding;
}

/* The most shards, fewer than `parts`, of which none is empty. */
static int64_t most_shards(int64_t size, int parts) {
    for (int64_t n = parts - 1; n > 1; n--) {
        if ((size + n - 1) / n * (n - 1) < size) return n;
    }
    return 1;
}

/* More shards than elements would leave ranks with padding only. */
static bool check_sizes(const Graph *graph, const Node *node, int output, Diag *diag) {
    const Type *type = &node->types[output];
    const Sharding *sharding = &node->shardings[output];
    for (int i = 0; i < type->rank; i++) {
        if (sharding->mesh[i] < 0) continue;
        int parts = graph->mesh.size[sharding->mesh[i]];
        int64_t local = (type->dims[i] + parts - 1) / parts;
        if (local * (parts - 1) < type->dims[i]) continue;
        const char *mesh = mesh_axis_name(sharding->mesh[i]);
        diag_error(diag, node->loc,
                   "axis '%s' is %" PRId64 ": divided over %s=%d, the last rank would have none; "
                   "%s=%" PRId64 " would do",
                   graph->axes.names[type->axes[i]], type->dims[i], mesh, parts, mesh,
                   most_shards(type->dims[i], parts));
        return false;
    }
    return true;
}

Graph *pass_propagate_sharding(const Graph *in, PassContext *ctx) {
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    int *uses = graph_count_uses(in, ctx->arena); /* `out` numbers its nodes alike */
    out->mesh = ctx->options.mesh;
    for (int n = 0; n < in->n_nodes; n++) {
        Node *node = value_map_copy(&map, in->nodes[n], out, ctx->diag);
        if (!node) return NULL;
        if (OPS[node->op].flags & LEAF) {
            node->shardings[0] = leaf_sharding(out, &node->types[0]);
        } else {
            if (node->op == OP_ACCUMULATE && node->inputs[0].node->op == OP_ACCUMULATOR) {
                node->inputs[0].node->shardings[0] = *value_sharding(node->inputs[1]);
            }
            ShardingRule rule =
                sharding_rule(out, node, uses, ctx->options.sequence_parallel, ctx->arena);
            for (int i = 0; i < node->n_outputs; i++) node->shardings[i] = rule.outputs[i];
        }
        for (int i = 0; i < node->n_outputs; i++) {
            if (!check_sizes(out, node, i, ctx->diag)) return NULL;
        }
    }
    return check_padding(out, ctx->diag) ? out : NULL;
}
