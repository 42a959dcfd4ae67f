/* Short convolutions along a sequence, each channel by itself (Fu et al. 2023, H3; Mamba's and
 * Gated DeltaNet's): y[t] = sum over n of w[last - n] x[t - n], the last weight being the
 * position's own, as PyTorch's conv1d has them, with zeros before the sequence. Where an operand
 * says how far each position is from the beginning of its document, what comes before that counts
 * as zeros, too. */
#include "ir/ops/decode.h"

enum { INPUT, WEIGHTS, GRADIENT };

static bool fail_operand(const Node *node, int input, Diag *diag, const char *what) {
    diag_error(diag, node->loc, "%s: operand %d %s", OPS[node->op].name, input + 1, what);
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

int convolve_places(const Node *node) {
    int fewest = node->op == OP_CONVOLVE         ? 2
                 : node->op == OP_CONVOLVE_GRAD  ? 3
                 : node->op == OP_CACHE_CONVOLVE ? 5
                                                 : node->n_inputs;
    return node->n_inputs > fewest ? fewest : -1;
}

/* [batch, seq] of x */
static bool check_places(const Node *node, Diag *diag) {
    int at = convolve_places(node);
    if (at < 0) return true;
    Type want = type_with_dtype(value_type(node->inputs[INPUT]), DTYPE_I32);
    want.rank = 2;
    return type_equal(value_type(node->inputs[at]), &want) ||
           fail_operand(node, at, diag, "must be places in documents, i32[batch, seq]");
}

/* x [batch, seq, channels...], w [axis, channels...] */
static bool check_convolve(const Node *node, Diag *diag) {
    const int weights = node->op == OP_CACHE_CONVOLVE ? WEIGHTS + 1 : WEIGHTS;
    const Type *x = value_type(node->inputs[INPUT]), *w = value_type(node->inputs[weights]);
    if (!dtype_is_float(x->dtype) || x->rank < 3 || x->axes[1] != node_axis(node, ATTR_seq)) {
        return fail_operand(node, INPUT, diag, "must be f32, bf16 or f16[batch, seq, channels...]");
    }
    bool fits = w->dtype == DTYPE_F32 && w->rank == x->rank - 1 &&
                w->axes[0] == node_axis(node, ATTR_axis) && w->dims[0] <= CONVOLVE_MOST_TAPS;
    for (int i = 1; fits && i < w->rank; i++) {
        fits = w->axes[i] == x->axes[i + 1] && w->dims[i] == x->dims[i + 1];
    }
    if (!fits) {
        return fail_operand(node, weights, diag,
                            "must be f32[axis, channels...], with the channels of operand 1 and an "
                            "axis of at most 8");
    }
    return check_places(node, diag);
}

bool infer_convolve(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    if (!check_convolve(node, diag)) return false;
    node->types[0] = *value_type(node->inputs[INPUT]);
    return true;
}

/* x, [sequences, before, channels...], w, rows, places, perhaps places in documents -> like x, and
 * the last positions, one less than taps */
bool infer_cache_convolve(Graph *graph, Node *node, Diag *diag) {
    enum { CACHE = 1, CACHED_WEIGHTS, ROWS, PLACES };
    (void)graph;
    if (!check_convolve(node, diag)) return false;
    const Type *x = value_type(node->inputs[INPUT]), *cache = value_type(node->inputs[CACHE]);
    int64_t taps = value_type(node->inputs[CACHED_WEIGHTS])->dims[0];
    bool fits = cache->dtype == x->dtype && cache->rank == x->rank && cache->dims[1] == taps - 1;
    for (int i = 2; fits && i < x->rank; i++) {
        fits = cache->axes[i] == x->axes[i] && cache->dims[i] == x->dims[i];
    }
    if (!fits) {
        return fail_operand(
            node, CACHE, diag,
            "must be [sequences, before, channels...], one position less than taps");
    }
    if (!decode_check_numbers(node, ROWS, x, 1, diag)) return false;
    if (!decode_check_numbers(node, PLACES, x, 2, diag)) return false;
    node->types[0] = *x;
    node->types[1] = *cache;
    return true;
}

/* x, w, dy, perhaps places -> dx, dw */
bool infer_convolve_grad(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    if (!check_convolve(node, diag)) return false;
    if (!type_equal(value_type(node->inputs[GRADIENT]), value_type(node->inputs[INPUT]))) {
        return fail_operand(node, GRADIENT, diag, "must be like operand 1");
    }
    node->types[0] = *value_type(node->inputs[INPUT]);
    node->types[1] = *value_type(node->inputs[WEIGHTS]);
    return true;
}

void grad_convolve(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    int places = convolve_places(node);
    Value inputs[4] = {node->inputs[INPUT], node->inputs[WEIGHTS], douts[0]};
    if (places >= 0) inputs[3] = node->inputs[places];
    Value grad =
        grad_build(ctx, OP_CONVOLVE_GRAD, inputs, places >= 0 ? 4 : 3, node->attrs, node->n_attrs);
    for (int i = 0; i < 2; i++) dins[i] = node_value(grad.node, i);
}

static double count_taps(const Type *x, const Type *weights) {
    return 2 * (double)type_elements(x) * (double)weights->dims[0];
}

double flops_convolve(const Node *node, const Type *inputs, const Type *outputs) {
    (void)outputs;
    int weights = node->op == OP_CACHE_CONVOLVE ? WEIGHTS + 1 : WEIGHTS;
    return count_taps(&inputs[INPUT], &inputs[weights]);
}

double flops_convolve_grad(const Node *node, const Type *inputs, const Type *outputs) {
    (void)node, (void)outputs;
    return 2 * count_taps(&inputs[INPUT], &inputs[WEIGHTS]);
}
