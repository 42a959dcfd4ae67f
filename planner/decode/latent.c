#include "planner/decode/latent.h"

#include "ir/op.h"

/* A parameter, or its copy. */
static bool is_weight(Value value) {
    const Node *node = value.node;
    return node->op == OP_PARAM || node_is_copy(node);
}

/* `made` [.., rank] times weights [rank, heads, part] along rank alone; no more than that. */
static bool is_product(Value value, int heads, int part, Value *out_latent, Value *out_weights) {
    const Node *node = value.node;
    if (node->op != OP_MATMUL || node->n_inputs != 2) return false;
    const Type *latent = value_type(node->inputs[0]), *weights = value_type(node->inputs[1]);
    const AttrKey more[] = {ATTR_to, ATTR_shared, ATTR_dtype};
    for (int i = 0; i < 3; i++) {
        if (node_attr(node, more[i])) return false;
    }
    *out_latent = node->inputs[0];
    *out_weights = node->inputs[1];
    return latent->rank == 3 && weights->rank == 3 && is_weight(node->inputs[1]) &&
           latent->dtype == weights->dtype && latent->dtype == value_type(value)->dtype &&
           weights->axes[0] == latent->axes[2] && weights->axes[1] == heads &&
           weights->axes[2] == part && node_over(node, ATTR_over, latent->axes[2]);
}

/* Both joined along their last axes, [batch, seq, heads, ..]. */
static bool is_pair(const Node *node) {
    if (node->op != OP_CONCAT || node->n_inputs != 2 || node->types[0].rank != 4) return false;
    for (int i = 0; i < 2; i++) {
        if (!node_over(node, ATTR_over, value_type(node->inputs[i])->axes[3])) return false;
    }
    return true;
}

bool find_latent_attention(const Node *node, int64_t context, LatentAttention *out) {
    const Node *q = node->inputs[0].node, *k = node->inputs[1].node;
    Value other;
    if (node->op != OP_ATTENTION || !is_pair(q) || !is_pair(k)) return false;
    const Node *all = k->inputs[1].node; /* heads */
    const Type *query = value_type(q->inputs[0]), *turned = value_type(q->inputs[1]);
    const Type *v = value_type(node->inputs[2]);
    if (all->op != OP_BROADCAST || value_type(all->inputs[0])->rank != 3) return false;
    *out = (LatentAttention){.query = q->inputs[0],
                             .query_turned = q->inputs[1],
                             .key_turned = all->inputs[0],
                             .rope = turned->axes[3]};
    const int heads = query->axes[2];
    if (!is_product(k->inputs[0], heads, query->axes[3], &out->latent, &out->key_weights) ||
        !is_product(node->inputs[2], heads, v->axes[3], &other, &out->value_weights) ||
        !value_equal(out->latent, other)) {
        return false;
    }
    const Type *latent = value_type(out->latent), *key_turned = value_type(out->key_turned);
    const int64_t rank = latent->dims[2], cached = 2 * rank + turned->dims[3];
    out->rank = latent->axes[2];
    for (int i = 0; i < 2; i++) {
        if (latent->axes[i] != query->axes[i] || key_turned->axes[i] != query->axes[i])
            return false;
    }
    return context >= LATENT_LEAST_CONTEXT * rank && key_turned->axes[2] == out->rope &&
           rank + turned->dims[3] <= ATTENTION_LONGEST_SHARED &&
           cached < query->dims[2] * (query->dims[3] + turned->dims[3] + v->dims[3]);
}
