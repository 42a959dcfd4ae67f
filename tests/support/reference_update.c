/* float64 reference of what an update does: norms, clipping, averages, optimizers. */
#include "tests/support/reference_eval.h"

#include <math.h>

void reference_sumsq(const RefCall *call) {
    double sum = 0;
    for (int64_t i = 0; i < type_elements(ref_type(call, 0)); i++) {
        sum += call->in[0][i] * call->in[0][i];
    }
    call->out[0][0] = sum;
}

/* min(1, max_norm / (norm + 1e-6)) of the squared norm; no clipping where max_norm is 0. With a
 * loss scale the norm bears it, and so does what the factor is for. */
void reference_clip_scale(const RefCall *call) {
    double scale = call->node->n_inputs > 1 ? call->in[1][0] : 1;
    double norm = sqrt(call->in[0][0]) / scale, most = node_float(call->node, ATTR_max_norm, 0);
    double factor = most > 0 ? fmin(1, most / (norm + 1e-6)) : 1;
    call->out[0][0] = isfinite(norm) ? factor / scale : NAN;
    if (call->node->n_outputs > 1) call->out[1][0] = norm * norm;
}

/* factor, squared norm, the most that it may be */
void reference_skip_spike(const RefCall *call) {
    const double norm = call->in[1][0], most = call->in[2][0];
    const bool spike = most < 0 || (isfinite(norm) && norm > most);
    call->out[0][0] = spike ? INFINITY : call->in[0][0];
}

/* average, p, scale, update: all is forgotten at the first update, half at the tenth at the
 * earliest. */
void reference_ema(const RefCall *call) {
    double update = call->in[3][0], decay = node_float(call->node, ATTR_decay, 0);
    double keep = update <= 1 ? 0 : fmin(decay, (update - 1) / (update + 8));
    for (int64_t i = 0; i < type_elements(&call->node->types[0]); i++) {
        double before = call->in[0][i], now = keep * before + (1 - keep) * call->in[1][i];
        call->out[0][i] = isfinite(call->in[2][0]) ? now : before;
    }
}

/* factor, scale, finite steps, updates -> the last three */
void reference_loss_scale(const RefCall *call) {
    double interval = (double)node_int(call->node, ATTR_interval, 0);
    double scale = call->in[1][0], steps = call->in[2][0] + 1, updates = call->in[3][0] + 1;
    bool finite = isfinite(call->in[0][0]), grows = finite && interval > 0 && steps >= interval;
    if (grows) scale = fmin(2 * scale, 4294967296.0);
    if (!finite && interval > 0) scale = fmax(scale / 2, 1);
    call->out[0][0] = scale;
    call->out[1][0] = finite && !grows ? steps : 0;
    call->out[2][0] = finite ? updates : call->in[3][0];
    if (!isinf(call->in[0][0])) return; /* a step left out for its norm */
    for (int i = 0; i < 3; i++) call->out[i][0] = call->in[i + 1][0];
}

/* What, rounded to nearest, an optimizer keeps of a second moment after a step. In bf16 it is
 * rounded up where its excess over the number below and the step's threshold (Murmur3's finish of
 * the step, modulo 2^16) make at least the distance of the two together. */
static double keep_square(DType dtype, double v, double step) {
    uint64_t x = (uint64_t)step & UINT32_MAX;
    int exponent;
    if (!dtype_is_low(dtype) || v == 0 || !isfinite(v)) return v;
    x = ((x ^ x >> 16) * UINT64_C(0x85ebca6b)) & UINT32_MAX;
    x = ((x ^ x >> 13) * UINT64_C(0xc2b2ae35)) & UINT32_MAX;
    x = (x ^ x >> 16) % 65536;
    frexp(v, &exponent);
    double shifted = v + ldexp((double)x / 65536 - 0.5, exponent - 8);
    return fmax(shifted, ldexp(0.5, exponent)); /* below it numbers lie closer together */
}

/* An optimizer's optional operands, behind n that it always has: factors along some of the
 * parameter's axes, in f32, and then a copy in 16 bits. */
static double rescaled(const RefCall *call, int n, int64_t i, double p) {
    const Type *param = &call->node->types[0];
    if (n == call->node->n_inputs || dtype_is_low(ref_type(call, n)->dtype)) return p;
    Point at = {{0}};
    for (int d = param->rank - 1; d >= 0; d--) {
        at.at[param->axes[d]] = i % param->dims[d];
        i /= param->dims[d];
    }
    return p * ref_read(call, n, &at);
}

/* That of the copy; -1: there is none. */
static int copy_operand(const RefCall *call, int n) {
    int last = call->node->n_inputs - 1;
    return last >= n && dtype_is_low(ref_type(call, last)->dtype) ? last : -1;
}

/* p, g, m, v, scale, lr, step and perhaps factors and a copy of p; a scale that is not finite
 * changes nothing. */
void reference_adamw(const RefCall *call) {
    const DType state = value_type(call->node->inputs[3])->dtype;
    const Node *node = call->node;
    double b1 = node_float(node, ATTR_beta1, 0), b2 = node_float(node, ATTR_beta2, 0);
    double eps = node_float(node, ATTR_eps, 0), decay = node_float(node, ATTR_weight_decay, 0);
    double scale = call->in[4][0], step = call->in[6][0];
    double rate = call->in[5][0] * node_float(node, ATTR_lr_scale, 1);
    for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
        double p = call->in[0][i], m = call->in[2][i], v = call->in[3][i];
        if (isfinite(scale)) {
            double g = call->in[1][i] * scale;
            m = b1 * m + (1 - b1) * g;
            v = b2 * v + (1 - b2) * g * g;
            double m_hat = m / (1 - pow(b1, step)), v_hat = v / (1 - pow(b2, step));
            p = p - rate * decay * p - rate * m_hat / (sqrt(v_hat) + eps);
            p = rescaled(call, 7, i, p);
        }
        call->out[0][i] = p;
        call->out[1][i] = m;
        call->out[2][i] = isfinite(scale) ? keep_square(state, v, step) : v;
        const int copy = copy_operand(call, 7);
        if (copy >= 0) call->out[3][i] = isfinite(scale) ? p : call->in[copy][i];
    }
}

void reference_finish_rule(const RefCall *call, int n_states) {
    const Node *node = call->node;
    const int64_t squares = node_int(node, ATTR_squares, 0);
    const int scale = 2 + n_states, n_always = scale + 3, copy = copy_operand(call, n_always);
    const bool changes = isfinite(call->in[scale][0]);
    for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
        double *p = &call->out[0][i];
        *p = changes ? rescaled(call, n_always, i, *p) : call->in[0][i];
        for (int k = 0; k < n_states; k++) {
            double *state = &call->out[1 + k][i];
            const DType dtype = value_type(node->inputs[2 + k])->dtype;
            if (!changes) *state = call->in[2 + k][i];
            if (changes && squares >> k & 1)
                *state = keep_square(dtype, *state, call->in[scale + 2][0]);
        }
        if (copy >= 0) call->out[1 + n_states][i] = changes ? *p : call->in[copy][i];
    }
}

/* p, g, buffer, scale, lr and perhaps factors and a copy of p. */
void reference_sgd(const RefCall *call) {
    const Node *node = call->node;
    double momentum = node_float(node, ATTR_momentum, 0);
    double decay = node_float(node, ATTR_weight_decay, 0);
    double scale = call->in[3][0];
    double rate = call->in[4][0] * node_float(node, ATTR_lr_scale, 1);
    for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
        double p = call->in[0][i], buffer = call->in[2][i];
        if (isfinite(scale)) {
            double g = call->in[1][i] * scale + decay * p;
            /* Without momentum the buffer is not kept. */
            if (momentum != 0) buffer = momentum * buffer + g;
            p -= rate * (momentum != 0 ? buffer : g);
            p = rescaled(call, 5, i, p);
        }
        call->out[0][i] = p;
        call->out[1][i] = buffer;
        const int copy = copy_operand(call, 5);
        if (copy >= 0) call->out[2][i] = isfinite(scale) ? p : call->in[copy][i];
    }
}

/* p, g, m, scale, lr and perhaps factors and a copy of p. */
void reference_lion(const RefCall *call) {
    const Node *node = call->node;
    double b1 = node_float(node, ATTR_beta1, 0), b2 = node_float(node, ATTR_beta2, 0);
    double decay = node_float(node, ATTR_weight_decay, 0), scale = call->in[3][0];
    double rate = call->in[4][0] * node_float(node, ATTR_lr_scale, 1);
    for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
        double p = call->in[0][i], m = call->in[2][i], g = call->in[1][i] * scale;
        if (isfinite(scale)) {
            double x = b1 * m + (1 - b1) * g;
            p = p - rate * (decay * p + (x > 0) - (x < 0));
            m = b2 * m + (1 - b2) * g;
            p = rescaled(call, 5, i, p);
        }
        call->out[0][i] = p;
        call->out[1][i] = m;
        const int copy = copy_operand(call, 5);
        if (copy >= 0) call->out[2][i] = isfinite(scale) ? p : call->in[copy][i];
    }
}

/* The direction of LAMB of element i (You et al. 2020, algorithm 2). */
static double lamb_direction(const Node *node, double p, double m, double v, double step) {
    double b1 = node_float(node, ATTR_beta1, 0), b2 = node_float(node, ATTR_beta2, 0);
    double m_hat = m / (1 - pow(b1, step)), v_hat = v / (1 - pow(b2, step));
    return m_hat / (sqrt(v_hat) + node_float(node, ATTR_eps, 0)) +
           node_float(node, ATTR_weight_decay, 0) * p;
}

/* p, m, v, scale, step, g */
void reference_lamb_moments(const RefCall *call) {
    const Node *node = call->node;
    double b1 = node_float(node, ATTR_beta1, 0), b2 = node_float(node, ATTR_beta2, 0);
    const DType state = node->types[0].dtype;
    double scale = call->in[3][0], p2 = 0, r2 = 0;
    for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
        double p = call->in[0][i], m = call->in[1][i], v = call->in[2][i];
        if (isfinite(scale)) {
            double g = call->in[5][i] * scale;
            m = b1 * m + (1 - b1) * g;
            v = keep_square(state, b2 * v + (1 - b2) * g * g, call->in[4][0]);
            double kept = reference_rounded(state, m);
            double r = lamb_direction(node, p, kept, reference_rounded(state, v), call->in[4][0]);
            p2 += p * p;
            r2 += r * r;
        }
        call->out[0][i] = m;
        call->out[1][i] = v;
    }
    call->out[2][0] = p2;
    call->out[3][0] = r2;
}

/* p, m, v, scale, lr, step, squared norms of p and the direction, and perhaps
 * factors and a copy of p. */
void reference_lamb(const RefCall *call) {
    const Node *node = call->node;
    double p2 = call->in[6][0], r2 = call->in[7][0], most = node_float(node, ATTR_trust_max, 0);
    double trust = p2 > 0 && r2 > 0 ? sqrt(p2 / r2) : 1;
    double rate = call->in[4][0] * node_float(node, ATTR_lr_scale, 1);
    bool finite = isfinite(call->in[3][0]);
    if (most > 0) trust = fmin(trust, most);
    for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
        double p = call->in[0][i];
        double r = lamb_direction(node, p, call->in[1][i], call->in[2][i], call->in[5][0]);
        const int copy = copy_operand(call, 8);
        if (finite) p = rescaled(call, 8, i, p - rate * trust * r);
        call->out[0][i] = p;
        if (copy >= 0) call->out[1][i] = finite ? p : call->in[copy][i];
    }
}

/* m, scale, g */
void reference_muon_momentum(const RefCall *call) {
    double momentum = node_float(call->node, ATTR_momentum, 0), scale = call->in[1][0];
    bool finite = isfinite(scale);
    for (int64_t i = 0; i < type_elements(&call->node->types[0]); i++) {
        double g = call->in[2][i] * scale, m = momentum * call->in[0][i] + g;
        call->out[0][i] = finite ? m : call->in[0][i];
        call->out[1][i] = finite ? g + momentum * m : 0;
    }
}

/* p, direction, scale, lr and perhaps factors and a copy of p. */
void reference_muon(const RefCall *call) {
    const Node *node = call->node;
    double decay = node_float(node, ATTR_weight_decay, 0);
    double rate = call->in[3][0] * node_float(node, ATTR_lr_scale, 1);
    bool finite = isfinite(call->in[2][0]);
    for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
        double p = call->in[0][i];
        double x = node_float(node, ATTR_scale, 0) * call->in[1][i];
        const int copy = copy_operand(call, 4);
        if (finite) p = rescaled(call, 4, i, p - rate * (decay * p + x));
        call->out[0][i] = p;
        if (copy >= 0) call->out[1][i] = finite ? p : call->in[copy][i];
    }
}

/* Has no results. */
void reference_tally(const RefCall *call) {
    (void)call;
}

/* p, tally, scale */
void reference_balance(const RefCall *call) {
    int64_t n = type_elements(&call->node->types[0]);
    double mean = 0, step = node_float(call->node, ATTR_balance, 0);
    for (int64_t i = 0; i < n; i++) mean += call->in[1][i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double over = mean - call->in[1][i];
        call->out[0][i] = call->in[0][i];
        if (isfinite(call->in[2][0])) call->out[0][i] += step * ((over > 0) - (over < 0));
    }
}
