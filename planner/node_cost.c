#include "planner/node_cost.h"

#include "ir/op.h"
#include "planner/device_time.h"

#include <string.h>

static Type local_type(Value value, const Mesh *mesh) {
    return type_local(value_type(value), value_sharding(value), mesh);
}

static double local_bytes(Value value, const Mesh *mesh) {
    return (double)type_local_bytes(value_type(value), value_sharding(value), mesh);
}

static MathKind math_of(const Type *type) {
    return type->dtype == DTYPE_F32 ? MATH_F32 : MATH_BF16;
}

static void add_product(PhaseCost *cost, const Cluster *cluster, const Node *node,
                        const Mesh *mesh) {
    Type a = local_type(node->inputs[0], mesh), b = local_type(node->inputs[1], mesh);
    MatmulLayout layout;
    if (!matmul_layout(node, &a, &b, &layout)) return;
    MathKind math = math_of(&a);
    if (math == MATH_BF16 && cluster->software.fp8_products) math = MATH_FP8;
    ProductShape shape = {layout.batch, layout.m, layout.n, layout.k, dtype_bytes(a.dtype)};
    cost->product_us += device_product_us(&cluster->device, math, &shape);
    cost->flops +=
        2.0 * (double)layout.batch * (double)layout.m * (double)layout.n * (double)layout.k;
    cost->n_ops++;
}

/* q [batch, seq, kv_heads, (group,) head] */
static AttentionShape attention_shape(const Node *node, const Cluster *cluster, const Mesh *mesh) {
    Type q = local_type(node->inputs[0], mesh);
    int64_t group = q.rank == 5 ? q.dims[3] : 1;
    return (AttentionShape){.batch = q.dims[0],
                            .seq = q.dims[1],
                            .kv_heads = q.dims[2],
                            .heads = q.dims[2] * group,
                            .head = q.dims[q.rank - 1],
                            .causal = node_int(node, ATTR_causal, 1) != 0,
                            .dropout = cluster && cluster->software.attention_dropout,
                            .bytes_per_element = dtype_bytes(q.dtype)};
}

double attention_score_elements(const Node *node, const Mesh *mesh) {
    AttentionShape shape = attention_shape(node, NULL, mesh);
    return (double)shape.batch * (double)shape.heads * (double)shape.seq * (double)shape.seq;
}

static void add_attention(PhaseCost *cost, const Cluster *cluster, const Node *node,
                          const Mesh *mesh, bool backward) {
    AttentionShape shape = attention_shape(node, cluster, mesh);
    Type q = local_type(node->inputs[0], mesh), outputs[1];
    int n_ops = 1;
    cost->attention_us += device_attention_us(cluster, math_of(&q), &shape, backward, &n_ops);
    double flops = OPS[OP_ATTENTION].flops(node, &q, outputs);
    if (cluster->software.attention == ATTENTION_MATERIALISED && shape.causal) flops *= 2;
    bool again = cluster->software.attention == ATTENTION_BLOCKWISE; /* scores, in backward */
    cost->flops += backward ? (again ? 2.5 : 2) * flops : flops;
    cost->n_ops += n_ops;
}

static void add_collective(PhaseCost *cost, const Cluster *cluster, const Node *node,
                           const Mesh *mesh) {
    const char *axis = node_string(node, ATTR_mesh);
    int mesh_axis = mesh_axis_find(axis, (int)strlen(axis));
    if (mesh_axis != MESH_T || mesh->size[MESH_T] < 2) return;
    int t = mesh->size[MESH_T], n_devices = cluster->node.n_devices;
    CollectiveGroup group = {t, t < n_devices ? t : n_devices, 1};
    Value whole = node->op == OP_ALL_GATHER ? node_value((Node *)node, 0) : node->inputs[0];
    CollectiveKind kind = node->op == OP_ALL_GATHER       ? COLLECTIVE_ALL_GATHER
                          : node->op == OP_REDUCE_SCATTER ? COLLECTIVE_REDUCE_SCATTER
                                                          : COLLECTIVE_ALL_REDUCE;
    double bytes = local_bytes(whole, mesh);
    cost->collective_us += collective_us(cluster, kind, bytes, &group);
    cost->collective_bytes += bytes;
    cost->n_collectives++;
}

/* What a look-up or its gradient touches of the table is as much as it gives or takes. */
static double traffic_bytes(const Node *node, const Mesh *mesh) {
    double bytes = 0;
    bool lookup = node->op == OP_EMBEDDING, scatter = node->op == OP_EMBEDDING_GRAD;
    for (int i = 0; i < node->n_inputs; i++) {
        if ((lookup && i == 1) || (scatter && i != 1)) continue;
        bytes += local_bytes(node->inputs[i], mesh);
    }
    if (scatter) return 3 * bytes;
    for (int o = 0; o < node->n_outputs; o++) {
        bytes += local_bytes(node_value((Node *)node, o), mesh);
    }
    return lookup ? 2 * bytes : bytes;
}

void node_cost_add(PhaseCost *cost, const Cluster *cluster, const Node *node, const Mesh *mesh) {
    unsigned flags = OPS[node->op].flags;
    if (!(flags & KERNEL) || node->op == OP_CONST) return;
    if (flags & COLLECTIVE) {
        add_collective(cost, cluster, node, mesh);
    } else if (node->op == OP_MATMUL) {
        add_product(cost, cluster, node, mesh);
    } else if (node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) {
        add_attention(cost, cluster, node, mesh, node->op == OP_ATTENTION_GRAD);
    } else {
        cost->memory_us += device_memory_us(&cluster->device, traffic_bytes(node, mesh));
        cost->n_ops++;
    }
}

void node_cost_add_attention_again(PhaseCost *cost, const Cluster *cluster, const Node *node,
                                   const Mesh *mesh) {
    add_attention(cost, cluster, node, mesh, false);
}

void phase_cost_close(PhaseCost *cost, const ClusterSoftware *software, bool backward) {
    double op_us = backward ? software->backward_op_us : software->forward_op_us;
    double device_us =
        cost->product_us + cost->attention_us + cost->memory_us + cost->collective_us;
    double issue_us = cost->n_ops * op_us + cost->n_collectives * software->collective_op_us;
    cost->host_us = issue_us > device_us ? issue_us - device_us : 0;
    cost->us = device_us + cost->host_us;
}
