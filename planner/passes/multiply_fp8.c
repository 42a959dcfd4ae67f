/* multiply_fp8: for tensor cores, products whose operands both come from dequantize read what it
 * read: fp8 and scales, operands 3 and 4. What was widened for them alone is gone, and with it its
 * memory and traffic.
 *
 * Only what quantize_products has laid out for it (`last`), where a rank's parts are as cuBLASLt
 * takes them (scaled_operand_fits): everything else stays widened, in bf16, and computes the same.
 * After fold_accumulate, which knows products of two operands; before values get their memory.
 */
#include "ir/ops/quantize.h"
#include "planner/passes/pass.h"

static Type local_type(const Graph *graph, Value value) {
    return type_local(value_type(value), value_sharding(value), &graph->mesh);
}

static bool may_multiply(const Graph *graph, const Node *node) {
    Type local[2];
    MatmulLayout l;
    int n_tiles = 0;
    if (node->op != OP_MATMUL || matmul_is_scaled(node) || node_attr(node, ATTR_to)) return false;
    for (int i = 0; i < 2; i++) {
        if (node->inputs[i].node->op != OP_DEQUANTIZE) return false;
        local[i] = local_type(graph, node->inputs[i]);
    }
    if (!matmul_layout(node, &local[0], &local[1], &l)) return false;
    if (l.batch != 1 || l.transpose_a || !l.transpose_b) return false;
    for (int i = 0; i < 2; i++) {
        const Value *of = node->inputs[i].node->inputs;
        int64_t own = i ? l.n : l.m;
        ScaleForm form;
        if (!scale_form(value_type(of[0]), value_type(of[1]), &local[i], own, l.k, &form) ||
            !scaled_operand_fits(own, l.k, form)) {
            return false;
        }
        n_tiles += form == SCALES_OF_TILES;
    }
    return n_tiles < 2;
}

static Node *multiply(PassContext *ctx, Graph *out, const ValueMap *map, const Node *node) {
    Value inputs[5];
    int n = 0, at = matmul_accumulator(node);
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < 2; i++) {
            inputs[n++] = *value_map_at(map, node->inputs[i].node->inputs[part]);
        }
    }
    if (at >= 0) inputs[n++] = *value_map_at(map, node->inputs[at]);
    Node *product =
        pass_build(ctx, out, OP_MATMUL, node, node->phase, inputs, n, node->attrs, node->n_attrs);
    if (product) product->shardings[0] = node->shardings[0];
    return product;
}

Graph *pass_multiply_fp8(const Graph *in, PassContext *ctx) {
    if (!ctx->options.fp8_tensor_cores) return (Graph *)in;
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    int *uses = graph_count_uses(in, ctx->arena);
    bool *multiplies = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        multiplies[n] = may_multiply(in, node);
        for (int i = 0; i < 2 && multiplies[n]; i++) uses[node->inputs[i].node->id * MAX_OUTPUTS]--;
    }
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (node->op == OP_DEQUANTIZE && uses[n * MAX_OUTPUTS] == 0) continue;
        if (!multiplies[n]) {
            if (!value_map_copy(&map, node, out, ctx->diag)) return NULL;
            continue;
        }
        Node *product = multiply(ctx, out, &map, node);
        if (!product) return NULL;
        value_map_set_node(&map, node, product);
    }
    return out;
}
