#include "planner/cost/measured_time.h"

#include "ir/ops/route.h"
#include "ir/rule.h"

#include <math.h>

/* The longest measured, along one side. */
static double longest_side(const ShapeRates *rates, int side) {
    double longest = -INFINITY;
    for (int i = 0; i < rates->count; i++) longest = fmax(longest, rates->shapes[i].log_side[side]);
    return longest;
}

double shape_rates_at(const ShapeRates *rates, const ShapeRate *like) {
    /* Sides differ by log 4 from one measured shape to the next: near ones count alone, nearly. A
     * side beyond all measured ones is like the longest: rates rise no more. */
    const double other_layout = 1, least = 1e-3;
    double sum = 0, weights = 0, sides[3];
    for (int s = 0; s < 3; s++) sides[s] = fmin(like->log_side[s], longest_side(rates, s));
    for (int i = 0; i < rates->count; i++) {
        const ShapeRate *rate = &rates->shapes[i];
        double distance = least;
        for (int s = 0; s < 3; s++) {
            double away = rate->log_side[s] - sides[s];
            distance += away * away;
        }
        if (rate->ta != like->ta) distance += other_layout;
        if (rate->tb != like->tb) distance += other_layout;
        double weight = 1 / (distance * distance);
        sum += weight * rate->log_rate;
        weights += weight;
    }
    return rates->count ? exp(sum / weights) : 0;
}

static double product_us(const Device *device, const Node *node, const Type *inputs, bool low,
                         double flops) {
    MatmulLayout layout;
    if (!matmul_layout(node, &inputs[0], &inputs[1], &layout)) return -1;
    ShapeRate like = {
        .log_side = {log((double)layout.m), log((double)layout.n), log((double)layout.k)},
        .ta = layout.transpose_a,
        .tb = layout.transpose_b};
    double rate = shape_rates_at(&device->product_shapes[low], &like);
    return rate > 0 ? flops / rate * 1e6 : -1;
}

/* Sides: sequences times heads, positions, numbers of a head. */
static double attention_us(const Device *device, const Node *node, const Type *inputs, bool low,
                           double flops) {
    bool grad = node->op == OP_ATTENTION_GRAD;
    const ShapeRates *rates =
        grad ? &device->attention_grad_shapes[low] : &device->attention_shapes[low];
    int seq_at = type_find_axis(&inputs[0], node_axis(node, ATTR_seq));
    int head_at = type_find_axis(&inputs[0], node_axis(node, ATTR_head));
    if (seq_at < 0 || head_at < 0) return -1;
    double seq = (double)inputs[0].dims[seq_at], head = (double)inputs[0].dims[head_at];
    double heads = (double)type_elements(&inputs[0]) / (seq * head);
    double keys = (double)inputs[1].dims[seq_at]; /* more than queries where c divides these */
    ShapeRate like = {.log_side = {log(heads), log(keys), log(head)}};
    double rate = shape_rates_at(rates, &like);
    return rate > 0 ? flops / rate * 1e6 : -1;
}

/* Microseconds of `op` for so many elements; -1: not measured. A call of few takes as long as that
 * of the fewest measured. */
static double kernel_us(const Device *device, OpKind op, bool low, double elements) {
    const RateCurve *curve = &device->kernels[low][op];
    if (!curve->count && low) curve = &device->kernels[0][op];
    if (!curve->count) return -1;
    if (elements < curve->points[0].size) elements = curve->points[0].size;
    return elements / rate_curve_at(curve, elements) * 1e6;
}

/* Numbers read and written, in threes: as many as the elements of a sum that moves as many. */
static double moved_thirds(const Node *node, const Type *inputs, const Type *outputs) {
    double moved = 0, written = 0;
    for (int i = 0; i < node->n_inputs; i++) moved += (double)type_elements(&inputs[i]);
    for (int o = 0; o < node->n_outputs; o++) written += (double)type_elements(&outputs[o]);
    return (moved + written) / 3;
}

/* What a function takes beyond moving its operands and result. */
static double function_us(const Device *device, OpKind op, bool low, double elements) {
    double all = kernel_us(device, op, low, elements);
    double arrays = OPS[op].min_inputs + 1;
    double moving = kernel_us(device, OP_ADD, low, elements * arrays / 3);
    return all > moving ? all - moving : 0;
}

/* What attention draws for its probabilities: a block of random numbers is for eight of them, of
 * dropout's elements for four. */
static double draws_us(const Device *device, const Node *node, const Type *inputs) {
    if (!attention_drops(node)) return 0;
    double products = OPS[OP_ATTENTION].flops(node, inputs, NULL);
    double width = (double)(inputs[0].dims[inputs[0].rank - 1] + inputs[2].dims[3]);
    return function_us(device, OP_DROPOUT, false, products / (2 * width)) / 2;
}

static double elementwise_us(const Device *device, const Node *node, const Type *inputs,
                             const Type *outputs, bool low) {
    double us = kernel_us(device, OP_ADD, low, moved_thirds(node, inputs, outputs));
    Expr expr;
    const char *error;
    bool rule = op_rule_states(node->op) >= 0;
    if (us < 0 || (node->op != OP_FUSED && !rule)) return us;
    if (rule) {
        expr = rule_of_node(node).expr;
    } else if (!expr_parse(node_string(node, ATTR_program), node->n_inputs, &expr, &error)) {
        return -1;
    }
    double elements = (double)type_elements(&outputs[0]);
    for (int i = 0; i < expr.n_instructions; i++) {
        us += function_us(device, expr.instructions[i].op, low, elements);
    }
    return us;
}

/* The elements by which an op was measured; linear attention was without the delta rule, with as
 * many keys as MEASURED_KEYS. */
static double kernel_elements(const Node *node, const Type *inputs, const Type *outputs) {
    if (linear_attention_decay(node->op) >= 0) {
        double forward = 4 * MEASURED_KEYS, plain = node->op == OP_LINEAR_ATTENTION_GRAD ? 2.5 : 1;
        return OPS[node->op].flops(node, inputs, outputs) / (forward * plain);
    }
    if (node->op == OP_EMBEDDING) return (double)type_elements(&outputs[0]);
    if (node->op == OP_EMBEDDING_GRAD) return (double)type_elements(&inputs[1]);
    double most = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        most = fmax(most, (double)type_elements(&inputs[i]));
    }
    for (int o = 0; o < node->n_outputs; o++) {
        most = fmax(most, (double)type_elements(&outputs[o]));
    }
    return most;
}

static bool is_low(const Node *node, const Type *inputs, const Type *outputs) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (dtype_is_low(inputs[i].dtype) || inputs[i].dtype == DTYPE_FP8) return true;
    }
    return node->n_outputs > 0 && dtype_is_low(outputs[0].dtype);
}

double measured_node_us(const Device *device, const Node *node, const Type *inputs,
                        const Type *outputs, double flops) {
    bool low = is_low(node, inputs, outputs);
    bool widened = low && device->widens_f16 && inputs[0].dtype == DTYPE_F16;
    double us = -1;
    switch (node->op) {
    case OP_MATMUL: us = product_us(device, node, inputs, low && !widened, flops); break;
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD:
        us = attention_us(device, node, inputs, low, flops);
        if (us >= 0) us += draws_us(device, node, inputs);
        break;
    default:
        us = kernel_us(device, node->op, low, kernel_elements(node, inputs, outputs));
        bool simple = (OPS[node->op].flags & ELEMENTWISE_BIT) || node->op == OP_FUSED ||
                      node->op == OP_BROADCAST || node->op == OP_ADD_N || node->op == OP_SLICE ||
                      node->op == OP_EMA || op_moves_parts(node->op) || node->op == OP_OF_PAIRS ||
                      op_routes(node->op) || op_rule_states(node->op) >= 0;
        if (us < 0 && simple) us = elementwise_us(device, node, inputs, outputs, low);
        if (op_is_number(node->op) || node->op == OP_CLIP_SCALE || node->op == OP_SKIP_SPIKE ||
            node->op == OP_LOSS_SCALE) {
            us = device->call_us;
        }
    }
    return us >= 0 && us < device->call_us ? device->call_us : us;
}
