/* Biases of attention scores by relative position: inference, gradient, buckets. */
#include "ir/ops/relative.h"

#include "ir/op.h"

#include <inttypes.h>
#include <math.h>

enum { MOST_DISTANCE = 1 << 20 };

/* First distance of a side's bucket k. What is an integer in exact arithmetic (8 x 16^(2/8) = 16)
 * must not become the next one by rounding. */
static int32_t bucket_begin(int side, int64_t distance, int k) {
    const int exact = side / 2;
    if (k <= exact) return k;
    double share = (double)(k - exact) / (side - exact);
    return (int32_t)ceil(exact * pow((double)distance / exact, share) - 1e-7);
}

RelativeBuckets relative_buckets(const Node *node, int64_t count) {
    RelativeBuckets buckets = {.causal = node_int(node, ATTR_causal, 0) != 0};
    buckets.n = (int32_t)(buckets.causal ? count : count / 2);
    for (int k = 0; k < buckets.n; k++) {
        buckets.from[k] = bucket_begin(buckets.n, node_int(node, ATTR_distance, 0), k);
    }
    buckets.from[buckets.n] = INT32_MAX;
    return buckets;
}

bool relative_range(const RelativeBuckets *buckets, int bucket, int64_t *out_first,
                    int64_t *out_last) {
    bool behind = bucket >= buckets->n;
    int k = behind ? bucket - buckets->n : bucket;
    int64_t nearest = buckets->from[k], farthest = (int64_t)buckets->from[k + 1] - 1;
    if (behind && nearest == 0) nearest = 1; /* a query's own position is not behind it */
    *out_first = behind ? nearest : -farthest;
    *out_last = behind ? farthest : -nearest;
    return nearest <= farthest;
}

static bool fail(const Node *node, int input, Diag *diag, const char *what) {
    diag_error(diag, node->loc, "%s: operand %d %s", OPS[node->op].name, input + 1, what);
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

/* Are the scores f32[..., seq, keys]? */
static bool check_scores(const Graph *graph, const Node *node, Diag *diag) {
    const Type *scores = value_type(node->inputs[0]);
    int seq = node_axis(node, ATTR_seq), keys = node_axis(node, ATTR_keys), rank = scores->rank;
    if (scores->dtype == DTYPE_F32 && rank >= 2 && scores->axes[rank - 2] == seq &&
        scores->axes[rank - 1] == keys) {
        return true;
    }
    diag_error(diag, node->loc, "%s: operand 1 must be f32[..., %s, %s]: queries, then keys",
               OPS[node->op].name, seq >= 0 ? graph->axes.names[seq] : "?",
               keys >= 0 ? graph->axes.names[keys] : "?");
    diag_note(diag, node->inputs[0].node->loc, "made here");
    return false;
}

static bool check_buckets(const Node *node, int64_t count, Diag *diag) {
    bool causal = node_int(node, ATTR_causal, 0) != 0;
    int64_t distance = node_int(node, ATTR_distance, 0), side = causal ? count : count / 2;
    if (count > RELATIVE_MOST_BUCKETS || side < 2 || (!causal && count % 2 != 0)) {
        diag_error(diag, node->loc,
                   "%s: %" PRId64 " buckets; there are 2 to %d where attention is causal, else an "
                   "even number from 4 to %d",
                   OPS[node->op].name, count, RELATIVE_MOST_BUCKETS, RELATIVE_MOST_BUCKETS);
        return false;
    }
    if (distance > side / 2 && distance <= MOST_DISTANCE) return true;
    diag_error(diag, node->loc,
               "%s: a distance of %" PRId64 "; with %" PRId64 " buckets it is from %" PRId64
               " to %d",
               OPS[node->op].name, distance, count, side / 2 + 1, MOST_DISTANCE);
    return false;
}

/* scores f32[..., heads..., seq, keys], table f32[buckets, heads...] -> like scores */
bool infer_relative_bias(Graph *graph, Node *node, Diag *diag) {
    const Type *scores = value_type(node->inputs[0]), *table = value_type(node->inputs[1]);
    if (!check_scores(graph, node, diag)) return false;
    int first = scores->rank - 2 - (table->rank - 1);
    bool fits = table->dtype == DTYPE_F32 && table->rank >= 1 && first >= 0;
    for (int i = 1; fits && i < table->rank; i++) {
        fits = table->axes[i] == scores->axes[first + i - 1] &&
               table->dims[i] == scores->dims[first + i - 1];
    }
    fits = fits && type_find_axis(scores, table->axes[0]) < 0;
    if (!fits) {
        return fail(node, 1, diag,
                    "must be f32: an axis of buckets, then the axes of the scores that stand "
                    "before their queries");
    }
    if (!check_buckets(node, table->dims[0], diag)) return false;
    node->types[0] = *scores;
    return true;
}

/* The gradient of the scores, as they leave -> that of the table, whose axes are `to`, summed over
 * all others. */
bool infer_relative_bias_grad(Graph *graph, Node *node, Diag *diag) {
    const Type *scores = value_type(node->inputs[0]);
    const Attr *to = node_attr(node, ATTR_to);
    int64_t count = node_int(node, ATTR_count, 0);
    if (!check_scores(graph, node, diag) || !check_buckets(node, count, diag)) return false;
    Type out = {.dtype = DTYPE_F32, .rank = to->axes.count};
    int first = scores->rank - 2 - (out.rank - 1);
    bool fits = out.rank >= 1 && first >= 0;
    for (int i = 0; fits && i < out.rank; i++) {
        out.axes[i] = to->axes.items[i];
        out.dims[i] = i ? scores->dims[first + i - 1] : count;
        fits = i ? out.axes[i] == scores->axes[first + i - 1]
                 : type_find_axis(scores, out.axes[i]) < 0;
    }
    if (!fits) return fail(node, 0, diag, "has not the axes that 'to' asks for");
    node->types[0] = out;
    return true;
}

/* Hidden scores are what they are whatever went in. */
static Value seen_only(GradContext *ctx, const Node *node, Value dout) {
    Attr limit = attr_float(ATTR_value, (double)RELATIVE_HIDDEN / 10);
    Value least = grad_build(ctx, OP_CONST, NULL, 0, &limit, 1);
    Value seen = GRAD_NODE(ctx, OP_LESS, least, node_value((Node *)node, 0));
    return GRAD_NODE(ctx, OP_MUL, dout, seen);
}

void grad_relative_bias(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    const Type *table = value_type(node->inputs[1]);
    Value dout = douts[0];
    if (node_int(node, ATTR_causal, 0)) dout = seen_only(ctx, node, dout);
    Attr attrs[6] = {attr_axes(ATTR_to, table->axes, table->rank),
                     attr_int(ATTR_count, table->dims[0]),
                     attr_axis(ATTR_seq, node_axis(node, ATTR_seq)),
                     attr_axis(ATTR_keys, node_axis(node, ATTR_keys)),
                     attr_int(ATTR_causal, node_int(node, ATTR_causal, 0)),
                     attr_int(ATTR_distance, node_int(node, ATTR_distance, 0))};
    dins[0] = dout;
    dins[1] = grad_build(ctx, OP_RELATIVE_BIAS_GRAD, &dout, 1, attrs, 6);
}
