/* Memory that kernels use within one call, beside values: at the end of a rank's scratch. */
#include "ir/message_group.h"
#include "ir/op.h"
#include "ir/ops/rotary.h"
#include "planner/plan/plan.h"

#include <string.h>

static int64_t align(int64_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static Type local_type(const Graph *graph, Value value) {
    return type_local(value_type(value), value_sharding(value), &graph->mesh);
}

static int64_t local_bytes(const Graph *graph, Value value) {
    return type_local_bytes(value_type(value), value_sharding(value), &graph->mesh);
}

/* cuBLASLt's own advice for Hopper is 32 MiB; small products split their sums into fewer parts. */
static int64_t product_bytes(const Graph *graph, const Node *node) {
    enum { MOST = 32 << 20, PARTS = 16 };
    Type out = local_type(graph, node_value((Node *)node, 0));
    int64_t bytes = PARTS * type_elements(&out) * dtype_bytes(DTYPE_F32);
    return bytes < MOST ? bytes : MOST;
}

/* Packed or unpacked on one side, but where neither axis is the first, or c deals one out, on both.
 */
static int64_t exchange_parts(const Graph *graph, const Node *node, bool deals) {
    Type local = local_type(graph, node->inputs[0]);
    int i = type_find_axis(&local, node_axis(node, ATTR_axis));
    int k = type_find_axis(&local, node_attr(node, ATTR_over)->axes.items[0]);
    int64_t outer = 1;
    for (int first = i < k ? i : k; first > 0; first--) outer *= local.dims[first - 1];
    return outer > 1 || deals ? 2 : 1;
}

/* Do the members' parts lie in the whole one after the other? */
static bool lies_in_parts(const Graph *graph, const Node *node, int mesh) {
    bool gathers = node->op == OP_ALL_GATHER;
    Value divided = gathers ? node->inputs[0] : node_value((Node *)node, 0);
    Value whole = gathers ? node_value((Node *)node, 0) : node->inputs[0];
    Type part = local_type(graph, divided), all = local_type(graph, whole);
    int at = type_find_axis(&all, node_axis(node, ATTR_axis));
    if (at < 0 || mesh_deals(mesh)) return false;
    for (int i = 0; i < at; i++) {
        if (all.dims[i] != 1) return false;
    }
    return mesh_size(&graph->mesh, mesh) * part.dims[at] == all.dims[at];
}

/* NCCL joins whole buffers, member after member: along another axis than the first, or where the
 * last members hold padding, they are put together from a buffer of all parts. A sum of
 * exponentials is no operation of NCCL's: all parts are gathered. */
static int64_t message_bytes(const Graph *graph, const Node *node) {
    const char *name = node_string(node, ATTR_mesh);
    int axis = mesh_axis_find(name, (int)strlen(name));
    int64_t n = axis < 0 ? 1 : mesh_size(&graph->mesh, axis);
    bool lse = value_sharding(node->inputs[0])->reduce == REDUCE_LSE;
    bool moves = node->op == OP_ALL_GATHER || node->op == OP_REDUCE_SCATTER;
    if (moves && !lse && lies_in_parts(graph, node, axis)) return 0;
    switch (node->op) {
    case OP_ALL_GATHER: return n * local_bytes(graph, node->inputs[0]);
    case OP_REDUCE_SCATTER:
        return n * local_bytes(graph, lse ? node->inputs[0] : node_value((Node *)node, 0));
    case OP_ALL_TO_ALL:
        return exchange_parts(graph, node, mesh_deals(axis)) * local_bytes(graph, node->inputs[0]);
    case OP_ALL_REDUCE: return lse ? n * local_bytes(graph, node->inputs[0]) : 0;
    default: return 0;
    }
}

WorkspacePart node_workspace_part(const Node *node) {
    static const WorkspacePart PARTS[N_MESH_GROUPS] = {
        [MESH_T] = WORKSPACE_TENSOR, [MESH_C] = WORKSPACE_TENSOR, [MESH_E] = WORKSPACE_EXPERT,
        [MESH_D] = WORKSPACE_DATA,   [MESH_DC] = WORKSPACE_DATA,  [MESH_DE] = WORKSPACE_DATA,
        [MESH_DEC] = WORKSPACE_DATA, [MESH_R] = WORKSPACE_DATA,   [MESH_P] = WORKSPACE_PIPELINE,
        [MESH_H] = WORKSPACE_TENSOR,
    };
    if (!(OPS[node->op].flags & COLLECTIVE)) return WORKSPACE_COMPUTE;
    const char *name = node_string(node, ATTR_mesh);
    int axis = mesh_axis_find(name, (int)strlen(name));
    return axis < 0 ? WORKSPACE_PIPELINE : PARTS[axis];
}

static int64_t node_bytes(const Graph *graph, const Node *node, bool cuda) {
    Type inputs[8], outputs[MAX_OUTPUTS];
    int64_t cpu_bytes, cuda_bytes;
    if (node->n_inputs < 1 || node->n_inputs > 8) return 0;
    for (int i = 0; i < node->n_inputs; i++) inputs[i] = local_type(graph, node->inputs[i]);
    for (int o = 0; o < node->n_outputs; o++) {
        outputs[o] = local_type(graph, node_value((Node *)node, o));
    }
    cpu_bytes = op_workspace_bytes(node, inputs);
    if (!cuda) return cpu_bytes;
    if (OPS[node->op].flags & COLLECTIVE) return message_bytes(graph, node);
    /* A plan for GPUs also runs on CPUs. */
    cuda_bytes = node->op == OP_MATMUL ? product_bytes(graph, node)
                                       : op_cuda_workspace_bytes(node, inputs, outputs);
    return cuda_bytes > cpu_bytes ? cuda_bytes : cpu_bytes;
}

/* The product with weights that reads a value, or what rotary makes of it, as its left operand;
 * NULL: there is none. */
static const Node *find_product(const Graph *graph, Value value) {
    for (int n = value.node->id + 1; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_MATMUL && value_equal(rotary_source(node->inputs[0]), value))
            return node;
    }
    return NULL;
}

int64_t program_stacked_bytes(const Graph *graph, const Node *node) {
    MatmulLayout all = {0};
    int64_t total = 0;
    if (node->op != OP_ATTENTION_GRAD) return 0;
    for (int o = 0; o < node->n_outputs; o++) {
        const Node *product = find_product(graph, node_value((Node *)node, o));
        MatmulLayout own;
        if (!product) return 0;
        Type a = local_type(graph, product->inputs[0]), b = local_type(graph, product->inputs[1]);
        if (!matmul_layout(product, &a, &b, &own) || (o > 0 && (own.m != all.m || own.n != all.n)))
            return 0;
        own.k += all.k;
        all = own;
        total += type_bytes(&b);
    }
    return matmul_sum_is_one(&all, node->types[0].dtype) ? align(total) : 0;
}

Workspace program_workspace(const Graph *graph, bool cuda) {
    Workspace workspace = {0};
    int64_t group = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        WorkspacePart part = node_workspace_part(node);
        int64_t bytes = align(node_bytes(graph, node, cuda));
        group = node_is_joined(node) ? group + bytes : bytes; /* all of a group's at once */
        if (group > workspace.bytes[part]) workspace.bytes[part] = group;
        int64_t stacked = cuda ? program_stacked_bytes(graph, node) : 0;
        if (stacked > workspace.bytes[WORKSPACE_WEIGHTS])
            workspace.bytes[WORKSPACE_WEIGHTS] = stacked;
    }
    for (int part = 0; part < N_WORKSPACE_PARTS; part++) {
        workspace.offset[part] = workspace.total;
        workspace.total += workspace.bytes[part];
    }
    return workspace;
}
