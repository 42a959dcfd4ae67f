/* Biases by relative position, as T5's published code has them: the bucket of every pair anew. */
#include "tests/support/reference_eval.h"

#include <math.h>
#include <stdlib.h>

/* T5's _relative_position_bucket (Raffel et al. 2020): ahead is key - query. In integers: bucket k
 * of n begins at exact (distance / exact)^((k - exact) / (n - exact)). */
static int bucket_of(int64_t ahead, bool causal, int count, int64_t distance) {
    int n = causal ? count : count / 2, exact = n / 2, before = !causal && ahead > 0 ? n : 0;
    int64_t far = causal ? (ahead < 0 ? -ahead : 0) : llabs(ahead);
    if (far < exact) return before + (int)far;
    double share = log((double)far / exact) / log((double)distance / exact);
    int bucket = exact + (int)floor(share * (n - exact) + 1e-9);
    return before + (bucket < n ? bucket : n - 1);
}

static int bucket_at(const Node *node, const Point *point, int count) {
    int64_t ahead = point->at[node_axis(node, ATTR_keys)] - point->at[node_axis(node, ATTR_seq)];
    return bucket_of(ahead, node_int(node, ATTR_causal, 0), count,
                     node_int(node, ATTR_distance, 0));
}

static bool is_hidden(const Node *node, const Point *point) {
    return node_int(node, ATTR_causal, 0) &&
           point->at[node_axis(node, ATTR_keys)] > point->at[node_axis(node, ATTR_seq)];
}

void reference_relative_bias(const RefCall *call) {
    const Node *node = call->node;
    const Type *table = ref_type(call, 1);
    int64_t n = 0;
    Point point = {{0}};
    do {
        Point row = point;
        row.at[table->axes[0]] = bucket_at(node, &point, (int)table->dims[0]);
        call->out[0][n++] =
            is_hidden(node, &point) ? -1e30 : ref_read(call, 0, &point) + ref_read(call, 1, &row);
    } while (point_next(&point, &node->types[0]));
}

void reference_relative_bias_grad(const RefCall *call) {
    const Node *node = call->node;
    const Type *out = &node->types[0];
    Point point = {{0}};
    for (int64_t i = 0; i < type_elements(out); i++) call->out[0][i] = 0;
    do {
        Point row = point;
        row.at[out->axes[0]] = bucket_at(node, &point, (int)out->dims[0]);
        if (is_hidden(node, &point)) continue;
        call->out[0][point_offset(&row, out)] += ref_read(call, 0, &point);
    } while (point_next(&point, ref_type(call, 0)));
}
