/* float64 reference of contractions, layers and losses: the formulas, summed plainly. */
#include "tests/support/reference_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The axes of `type` that the node sums over. */
static Type summed_axes(const Node *node, const Type *type) {
    Type sum = *type;
    for (int i = 0; i < type->rank; i++) {
        if (!node_over(node, ATTR_over, type->axes[i])) sum = ref_without(&sum, type->axes[i]);
    }
    return sum;
}

/* Elements between neighbours along the axis; 0: there is none. */
static int64_t stride_along(const Type *type, int axis) {
    int64_t stride = 1;
    for (int i = type->rank - 1; i >= 0; i--) {
        if (type->axes[i] == axis) return stride;
        stride *= type->dims[i];
    }
    return 0;
}

/* With `to` each operand's axes that stay have names of the result's, in order: a point of each. */
static void renamed_matmul(const RefCall *call) {
    const Node *node = call->node;
    const Type *type = &node->types[0];
    const Attr *shared = node_attr(node, ATTR_shared); /* come first, and keep their names */
    Type over = summed_axes(node, ref_type(call, 0));
    Point point = {{0}}, sum_point = {{0}};
    do {
        double sum = 0;
        do {
            double factor[2];
            for (int i = 0, k = shared ? shared->axes.count : 0; i < 2; i++) {
                Point own = sum_point;
                for (int j = 0; j < ref_type(call, i)->rank; j++) {
                    int axis = ref_type(call, i)->axes[j];
                    if (node_over(node, ATTR_over, axis)) continue;
                    bool stays = node_over(node, ATTR_shared, axis);
                    own.at[axis] = point.at[stays ? axis : type->axes[k++]];
                }
                factor[i] = ref_read(call, i, &own);
            }
            sum += factor[0] * factor[1];
        } while (point_next(&sum_point, &over));
        call->out[0][point_offset(&point, type)] = sum;
    } while (point_next(&point, type));
}

/* Operand `input` in plain numbers: of fp8 with scales (operands 2 and 3) the numbers meant. */
static const double *factors_of(const RefCall *call, int input) {
    if (call->node->n_inputs <= 3) return call->in[input];
    double *wide = ARENA_ARRAY(call->ref->arena, double, type_elements(ref_type(call, input)));
    reference_widened(call, input, input + 2, wide);
    return wide;
}

/* An accumulator is the last operand: the third, or with scales the fifth. */
void reference_matmul(const RefCall *call) {
    if (node_attr(call->node, ATTR_to)) {
        renamed_matmul(call);
        return;
    }
    const Type *type = &call->node->types[0], *types[] = {ref_type(call, 0), ref_type(call, 1)};
    const double *factors[] = {factors_of(call, 0), factors_of(call, 1)};
    const int last = call->node->n_inputs - 1;
    const bool add = last % 2 == 0 && !call->ref->overwrite;
    Type over = summed_axes(call->node, types[0]);
    int axis = over.rank ? over.axes[over.rank - 1] : -1; /* the innermost; none: outer products */
    int64_t n = over.rank ? over.dims[over.rank - 1] : 1;
    int64_t strides[] = {stride_along(types[0], axis), stride_along(types[1], axis)};
    Type other = ref_without(&over, axis);
    Point point = {{0}};
    do {
        double sum = add ? ref_read(call, last, &point) : 0;
        do {
            const double *a = &factors[0][point_offset(&point, types[0])];
            const double *b = &factors[1][point_offset(&point, types[1])];
            for (int64_t k = 0; k < n; k++) sum += a[k * strides[0]] * b[k * strides[1]];
        } while (point_next(&point, &other));
        call->out[0][point_offset(&point, type)] = sum;
    } while (point_next(&point, type));
}

void reference_reduce_sum(const RefCall *call) {
    Type over = summed_axes(call->node, ref_type(call, 0));
    Point point = {{0}};
    do {
        double sum = 0;
        do {
            sum += ref_read(call, 0, &point);
        } while (point_next(&point, &over));
        call->out[0][point_offset(&point, &call->node->types[0])] = sum;
    } while (point_next(&point, &call->node->types[0]));
}

/* y = (x - mean) inv_std gain + bias per row; results y, mean, inv_std. */
void reference_layernorm(const RefCall *call) {
    int axis = node_axis(call->node, ATTR_axis);
    const Type *x = ref_type(call, 0);
    Type rows = ref_without(x, axis), row = ref_only(x, axis);
    double width = (double)row.dims[0];
    Point p = {{0}};
    do {
        double mean = 0, variance = 0;
        int64_t at = point_offset(&p, &rows);
        do mean += ref_read(call, 0, &p) / width;
        while (point_next(&p, &row));
        do variance += pow(ref_read(call, 0, &p) - mean, 2) / width;
        while (point_next(&p, &row));
        call->out[1][at] = mean;
        call->out[2][at] = 1 / sqrt(variance + node_float(call->node, ATTR_eps, 0));
        do {
            call->out[0][point_offset(&p, x)] =
                (ref_read(call, 0, &p) - mean) * call->out[2][at] * ref_read(call, 1, &p) +
                ref_read(call, 2, &p);
        } while (point_next(&p, &row));
    } while (point_next(&p, &rows));
}

/* x, gain, mean, inv_std, dy. With n = (x - mean) inv_std and g = dy gain:
 * dx = inv_std (g - mean(g) - n mean(g n)), dgain = sum dy n, dbias = sum dy. */
void reference_layernorm_grad(const RefCall *call) {
    int axis = node_axis(call->node, ATTR_axis);
    const Type *x = ref_type(call, 0);
    Type rows = ref_without(x, axis), row = ref_only(x, axis);
    double width = (double)row.dims[0];
    Point p = {{0}};
    memset(call->out[1], 0, sizeof(double) * (size_t)row.dims[0]);
    memset(call->out[2], 0, sizeof(double) * (size_t)row.dims[0]);
    do {
        double mean = ref_read(call, 2, &p), inv_std = ref_read(call, 3, &p);
        double mean_g = 0, mean_gn = 0;
        do {
            double normal = (ref_read(call, 0, &p) - mean) * inv_std, dy = ref_read(call, 4, &p);
            mean_g += dy * ref_read(call, 1, &p) / width;
            mean_gn += dy * ref_read(call, 1, &p) * normal / width;
            call->out[1][p.at[axis]] += dy * normal;
            call->out[2][p.at[axis]] += dy;
        } while (point_next(&p, &row));
        do {
            double normal = (ref_read(call, 0, &p) - mean) * inv_std;
            double g = ref_read(call, 4, &p) * ref_read(call, 1, &p);
            call->out[0][point_offset(&p, x)] = inv_std * (g - mean_g - normal * mean_gn);
        } while (point_next(&p, &row));
    } while (point_next(&p, &rows));
}

/* y = x inv_rms gain; results y, inv_rms. */
void reference_rmsnorm(const RefCall *call) {
    int axis = node_axis(call->node, ATTR_axis);
    const Type *x = ref_type(call, 0);
    Type rows = ref_without(x, axis), row = ref_only(x, axis);
    Point p = {{0}};
    do {
        double mean_square = 0;
        do mean_square += pow(ref_read(call, 0, &p), 2) / (double)row.dims[0];
        while (point_next(&p, &row));
        double inv_rms = 1 / sqrt(mean_square + node_float(call->node, ATTR_eps, 0));
        call->out[1][point_offset(&p, &rows)] = inv_rms;
        do {
            call->out[0][point_offset(&p, x)] =
                ref_read(call, 0, &p) * inv_rms * ref_read(call, 1, &p);
        } while (point_next(&p, &row));
    } while (point_next(&p, &rows));
}

/* x, gain, inv_rms, dy. dx = inv_rms (g - n mean(g n)), dgain = sum dy n. */
void reference_rmsnorm_grad(const RefCall *call) {
    int axis = node_axis(call->node, ATTR_axis);
    const Type *x = ref_type(call, 0);
    Type rows = ref_without(x, axis), row = ref_only(x, axis);
    Point p = {{0}};
    memset(call->out[1], 0, sizeof(double) * (size_t)row.dims[0]);
    do {
        double inv_rms = ref_read(call, 2, &p), mean_gn = 0;
        do {
            double normal = ref_read(call, 0, &p) * inv_rms, dy = ref_read(call, 3, &p);
            mean_gn += dy * ref_read(call, 1, &p) * normal / (double)row.dims[0];
            call->out[1][p.at[axis]] += dy * normal;
        } while (point_next(&p, &row));
        do {
            double normal = ref_read(call, 0, &p) * inv_rms;
            double g = ref_read(call, 3, &p) * ref_read(call, 1, &p);
            call->out[0][point_offset(&p, x)] = inv_rms * (g - normal * mean_gn);
        } while (point_next(&p, &row));
    } while (point_next(&p, &rows));
}

/* The frequency that `pair` has: after transformers' _compute_llama3_parameters, by wavelengths,
 * and _compute_yarn_parameters, by the pair's number. */
static double rotary_frequency(const Node *node, int64_t pair, int64_t half) {
    double f = pow(node_float(node, ATTR_base, 0), -2.0 * (double)pair / (2.0 * (double)half));
    const Attr *factors = node_attr(node, ATTR_factors);
    if (factors) { /* _compute_longrope_parameters */
        const char *at = factors->s;
        for (int64_t i = 0; i < pair; i++) at = strchr(at, ',') + 1;
        return f / strtod(at, NULL);
    }
    double factor = node_float(node, ATTR_factor, 1), context = node_float(node, ATTR_context, 0);
    double few = node_float(node, ATTR_few, 0), many = node_float(node, ATTR_many, 0);
    double wavelength = 2 * acos(-1) / f;
    if (context == 0 || (few > 0 ? wavelength > context / few : false)) return f / factor;
    if (wavelength < context / many) return f;
    double smooth = (context / wavelength - few) / (many - few);
    if (node_int(node, ATTR_ramp, 0)) {
        double base = node_float(node, ATTR_base, 0), last = 2.0 * (double)half;
        double low = last * log(context / (many * 2 * acos(-1))) / (2 * log(base));
        double high = last * log(context / (few * 2 * acos(-1))) / (2 * log(base));
        smooth = 1 - ((double)pair - low) / (high - low);
    }
    return (1 - smooth) * f / factor + smooth * f;
}

/* Pair (i, i + turned/2) turns by direction position base^(-2i/turned), stretched; what is behind
 * the turned numbers stays. */
void reference_rotary(const RefCall *call) {
    const Type *x = ref_type(call, 0);
    int seq = node_axis(call->node, ATTR_seq), head = node_axis(call->node, ATTR_head);
    int64_t turned = node_int(call->node, ATTR_turned, x->dims[type_find_axis(x, head)]);
    int64_t half = turned / 2;
    double direction = (double)node_int(call->node, ATTR_direction, 1);
    Point p = {{0}};
    do {
        Point other = p;
        if (p.at[head] >= turned) {
            call->out[0][point_offset(&p, x)] = ref_read(call, 0, &p);
            continue;
        }
        bool first = p.at[head] < half;
        int64_t pair = p.at[head] % half;
        other.at[head] = pair + (first ? half : 0);
        double place = call->node->n_inputs > 1 ? ref_read(call, 1, &p) : (double)p.at[seq];
        double angle = direction * place * rotary_frequency(call->node, pair, half);
        double turned_to = ref_read(call, 0, &p) * cos(angle) +
                           ref_read(call, 0, &other) * sin(angle) * (first ? -1 : 1);
        call->out[0][point_offset(&p, x)] = turned_to * node_float(call->node, ATTR_scale, 1);
    } while (point_next(&p, x));
}

/* A token outside the table has a row of zeros. */
void reference_embedding(const RefCall *call) {
    const Type *type = &call->node->types[0], *table = ref_type(call, 1);
    Point p = {{0}};
    do {
        double token = ref_read(call, 0, &p);
        Point row = p;
        row.at[table->axes[0]] = (int64_t)token;
        bool known = token >= 0 && token < (double)table->dims[0];
        call->out[0][point_offset(&p, type)] = known ? ref_read(call, 1, &row) : 0;
    } while (point_next(&p, type));
}

/* tokens, dy, table, optional accumulator. */
void reference_embedding_grad(const RefCall *call) {
    const Type *table = &call->node->types[0], *dy = ref_type(call, 1);
    bool add = call->node->n_inputs == 4 && !call->ref->overwrite;
    Point p = {{0}};
    do {
        call->out[0][point_offset(&p, table)] = add ? ref_read(call, 3, &p) : 0;
    } while (point_next(&p, table));
    do {
        double token = ref_read(call, 0, &p);
        Point row = p;
        row.at[table->axes[0]] = (int64_t)token;
        if (token < 0 || token >= (double)table->dims[0]) continue;
        call->out[0][point_offset(&row, table)] += ref_read(call, 1, &p);
    } while (point_next(&p, dy));
}

/* The last separator before a position ends the document before its own; where they are apart, one
 * at the position begins another. */
void reference_documents(const RefCall *call) {
    const Type *type = &call->node->types[0];
    int axis = node_axis(call->node, ATTR_axis);
    double separator = (double)node_int(call->node, ATTR_separator, 0);
    bool apart = node_int(call->node, ATTR_apart, 0);
    Point p = {{0}};
    do {
        Point before = p;
        int64_t start = p.at[axis];
        bool alone = apart && ref_read(call, 0, &p) == separator;
        for (; start > 0 && !alone; start--) {
            before.at[axis] = start - 1;
            if (ref_read(call, 0, &before) == separator) break;
        }
        call->out[0][point_offset(&p, type)] = (double)start;
        call->out[1][point_offset(&p, type)] = (double)(p.at[axis] - start);
    } while (point_next(&p, type));
}

/* The next separator, or the position's own, is the last token, or the one after it. */
void reference_document_ends(const RefCall *call) {
    const Type *type = &call->node->types[0];
    int axis = node_axis(call->node, ATTR_axis), d = type_find_axis(type, axis);
    double separator = (double)node_int(call->node, ATTR_separator, 0);
    bool apart = node_int(call->node, ATTR_apart, 0);
    Point p = {{0}};
    do {
        Point next = p;
        while (next.at[axis] < type->dims[d] && ref_read(call, 0, &next) != separator) {
            next.at[axis]++;
        }
        bool found = next.at[axis] < type->dims[d];
        bool beyond = found && (!apart || next.at[axis] == p.at[axis]);
        call->out[0][point_offset(&p, type)] = (double)(next.at[axis] + beyond);
    } while (point_next(&p, type));
}

void reference_occurrence(const RefCall *call) {
    const Type *type = &call->node->types[0];
    int axis = node_axis(call->node, ATTR_axis);
    int64_t token = node_int(call->node, ATTR_token, -1);
    Point p = {{0}};
    do {
        Point q = p;
        int64_t before = 0;
        for (q.at[axis] = 0; q.at[axis] < p.at[axis]; q.at[axis]++) {
            before += (int64_t)ref_read(call, 0, &q) == token;
        }
        bool is_one = (int64_t)ref_read(call, 0, &p) == token;
        call->out[0][point_offset(&p, type)] = is_one ? (double)before : -1;
    } while (point_next(&p, type));
}

/* The hash of ir/ngram.h, written out: tokens from the position back, then the mixing. */
void reference_ngram(const RefCall *call) {
    const Type *type = &call->node->types[0];
    int axis = node_axis(call->node, ATTR_axis);
    int64_t by = node_int(call->node, ATTR_by, 1), count = node_int(call->node, ATTR_count, 1);
    int64_t separator = node_int(call->node, ATTR_separator, -1);
    Point p = {{0}};
    do {
        Point q = p;
        uint32_t h = 0x811c9dc5u ^ (uint32_t)node_int(call->node, ATTR_seed, 0) * 0x9e3779b9u;
        for (int64_t k = 0; k < by && k <= p.at[axis]; k++) {
            q.at[axis] = p.at[axis] - k;
            int64_t token = (int64_t)ref_read(call, 0, &q);
            if (k > 0 && token == separator) break;
            h ^= (uint32_t)(token + 1);
            h *= 0x01000193u;
            h ^= h >> 15;
        }
        h ^= h >> 16;
        h *= 0x85ebca6bu;
        h ^= h >> 13;
        h *= 0xc2b2ae35u;
        h ^= h >> 16;
        call->out[0][point_offset(&p, type)] = (double)(h % (uint32_t)count);
    } while (point_next(&p, type));
}

/* softmax(scale q k^T) for one query row: probabilities over positions, what a soft cap leaves of
 * scores' gradients, and the largest score; returns log-sum-exp. */
static double attention_row(const RefCall *call, const Point *query, double *out_probability,
                            double *out_slope, double *out_most) {
    int seq = node_axis(call->node, ATTR_seq), head = node_axis(call->node, ATTR_head);
    const Type *q_type = ref_type(call, 0), *k_type = ref_type(call, 1);
    int64_t size = ref_only(q_type, head).dims[0], n = k_type->dims[1], position = query->at[seq];
    int64_t q_step = stride_along(q_type, head), k_step = stride_along(k_type, head);
    int64_t window = node_int(call->node, ATTR_window, n);
    bool causal = node_int(call->node, ATTR_causal, 1);
    double cap = node_float(call->node, ATTR_softcap, 0);
    double scale = node_float(call->node, ATTR_scale, 1), most = -INFINITY, sum = 0;
    int documents = attention_documents(call->node), sinks = attention_sinks(call->node);
    int ends = attention_document_ends(call->node);
    double begin = documents < 0 ? 0 : ref_read(call, documents, query);
    double end = ends < 0 ? (double)n : ref_read(call, ends, query);
    Point first = *query;
    first.at[head] = 0;
    const double *q = &call->in[0][point_offset(&first, q_type)];
    for (int64_t s = 0; s < n; s++) {
        out_probability[s] = -INFINITY;
        if ((double)s < begin || (double)s >= end) continue;
        if ((causal && s > position) || llabs(position - s) >= window) continue;
        double score = 0;
        first.at[seq] = s;
        const double *k = &call->in[1][point_offset(&first, k_type)];
        for (int64_t i = 0; i < size; i++) score += scale * q[i * q_step] * k[i * k_step];
        out_slope[s] = cap > 0 ? 1 - pow(tanh(score / cap), 2) : 1;
        if (cap > 0) score = cap * tanh(score / cap);
        out_probability[s] = score;
        if (score > most) most = score;
    }
    if (sinks >= 0) sum = exp(ref_read(call, sinks, query) - most);
    for (int64_t s = 0; s < n; s++) sum += exp(out_probability[s] - most);
    for (int64_t s = 0; s < n; s++) {
        out_probability[s] = exp(out_probability[s] - most) / sum;
    }
    *out_most = most;
    return most + log(sum);
}

void reference_attention(const RefCall *call) {
    int seq = node_axis(call->node, ATTR_seq), head = node_axis(call->node, ATTR_head);
    const Type *q = ref_type(call, 0), *o = &call->node->types[0];
    Type rows = ref_without(q, head), row = ref_only(o, attention_value_axis(call->node));
    int64_t n = q->dims[1], step = stride_along(ref_type(call, 2), seq);
    double *probability = ARENA_ARRAY(call->ref->arena, double, 3 * n), *unused = probability + n;
    double *kept = unused + n;
    Point p = {{0}};
    do {
        for (int64_t s = 0; s < n; s++) kept[s] = ref_probability_factor(call, &rows, &p, n, s);
        double most, lse = attention_row(call, &p, probability, unused, &most);
        call->out[1][point_offset(&p, &rows)] = lse;
        if (call->node->n_outputs > 2) call->out[2][point_offset(&p, &rows)] = most;
        do {
            double sum = 0;
            Point first = p;
            first.at[seq] = 0;
            const double *v = &call->in[2][point_offset(&first, ref_type(call, 2))];
            for (int64_t s = 0; s < n; s++) {
                if (probability[s] == 0) continue; /* most are hidden */
                sum += probability[s] * kept[s] * v[s * step];
            }
            call->out[0][point_offset(&p, o)] = sum;
        } while (point_next(&p, &row));
    } while (point_next(&p, &rows));
}

/* Numbers along one axis of a value, from a point whose place on that axis is 0. */
typedef struct Line {
    double *at;
    int64_t step;
} Line;

static Line line_of(const double *value, const Type *type, const Point *point, int axis) {
    return (Line){(double *)value + point_offset(point, type), stride_along(type, axis)};
}

/* q, k, v, o, lse, do, perhaps documents and their ends -> dq, dk, dv from the softmax itself,
 * whose denominators are as lse says; o is not needed here. */
void reference_attention_grad(const RefCall *call) {
    int seq = node_axis(call->node, ATTR_seq), head = node_axis(call->node, ATTR_head);
    int value = attention_value_axis(call->node);
    const Type *q = ref_type(call, 0), *k = ref_type(call, 1), *v = ref_type(call, 2);
    Type rows = ref_without(q, head);
    int64_t n = q->dims[1];
    int64_t n_head = ref_only(q, head).dims[0], n_value = ref_only(v, value).dims[0];
    double scale = node_float(call->node, ATTR_scale, 1);
    double *probability = ARENA_ARRAY(call->ref->arena, double, 3 * n), *slope = probability + n;
    double *left = slope + n;
    Point p = {{0}};
    for (int i = 0; i < 3; i++) {
        memset(call->out[i], 0, sizeof(double) * (size_t)type_elements(ref_type(call, i)));
    }
    do {
        double mean = 0;
        Point at = p;
        Line own_q = line_of(call->in[0], q, &p, head), dq = line_of(call->out[0], q, &p, head);
        Line dy = line_of(call->in[5], ref_type(call, 5), &p, value);
        double most, own = attention_row(call, &p, probability, left, &most);
        double all = exp(own - ref_read(call, 4, &p));
        for (int64_t s = 0; s < n; s++) probability[s] *= all;
        for (at.at[seq] = 0; at.at[seq] < n; at.at[seq]++) {
            int64_t s = at.at[seq];
            slope[s] = 0;
            if (probability[s] == 0) continue;
            double kept = ref_probability_factor(call, &rows, &p, n, s);
            Line values = line_of(call->in[2], v, &at, value);
            Line dv = line_of(call->out[2], v, &at, value);
            for (int64_t i = 0; i < n_value; i++) {
                slope[s] += kept * dy.at[i * dy.step] * values.at[i * values.step];
                dv.at[i * dv.step] += kept * probability[s] * dy.at[i * dy.step];
            }
            mean += probability[s] * slope[s];
        }
        for (at.at[seq] = 0; at.at[seq] < n; at.at[seq]++) {
            int64_t s = at.at[seq];
            double dscore = scale * probability[s] * (slope[s] - mean) * left[s];
            if (probability[s] == 0) continue;
            Line keys = line_of(call->in[1], k, &at, head);
            Line dk = line_of(call->out[1], k, &at, head);
            for (int64_t i = 0; i < n_head; i++) {
                dq.at[i * dq.step] += dscore * keys.at[i * keys.step];
                dk.at[i * dk.step] += dscore * own_q.at[i * own_q.step];
            }
        }
    } while (point_next(&p, &rows));
}

static double row_logsumexp(const RefCall *call, Point p, const Type *row) {
    double most = -INFINITY, sum = 0;
    do most = fmax(most, ref_read(call, 0, &p));
    while (point_next(&p, row));
    do sum += exp(ref_read(call, 0, &p) - most);
    while (point_next(&p, row));
    return most + log(sum);
}

/* Labels outside the axis pick 0. */
static double row_pick(const RefCall *call, Point p, const Type *row) {
    double label = ref_read(call, 1, &p);
    p.at[row->axes[0]] = (int64_t)label;
    return label >= 0 && label < (double)row->dims[0] ? ref_read(call, 0, &p) : 0;
}

/* Result `output` per row: logsumexp minus picked, each if wanted. */
static void loss_rows(const RefCall *call, int output, bool lse, double sign_of_pick) {
    Type row = ref_only(ref_type(call, 0), node_axis(call->node, ATTR_axis));
    const Type *rows = &call->node->types[output];
    Point p = {{0}};
    do {
        call->out[output][point_offset(&p, rows)] =
            (lse ? row_logsumexp(call, p, &row) : 0) +
            (sign_of_pick != 0 ? sign_of_pick * row_pick(call, p, &row) : 0);
    } while (point_next(&p, rows));
}

void reference_logsumexp(const RefCall *call) {
    loss_rows(call, 0, true, 0);
}

void reference_pick(const RefCall *call) {
    loss_rows(call, 0, false, 1);
}

void reference_cross_entropy(const RefCall *call) {
    loss_rows(call, 0, true, -1);
    loss_rows(call, 1, true, 0);
}

void reference_cross_entropy_grad(const RefCall *call) {
    const Type *x = ref_type(call, 0);
    int axis = node_axis(call->node, ATTR_axis);
    Point p = {{0}};
    do {
        bool label = (double)p.at[axis] == ref_read(call, 1, &p);
        double dloss = ref_read(call, 3, &p);
        double dlse = call->node->n_inputs > 4 ? ref_read(call, 4, &p) : 0;
        call->out[0][point_offset(&p, x)] =
            exp(ref_read(call, 0, &p) - ref_read(call, 2, &p)) * (dloss + dlse) - label * dloss;
    } while (point_next(&p, x));
}

/* One row of operands `s` and 1 - s: the divergence and what its gradient needs. */
typedef struct DivergedRow {
    double value, needed, lse[2];
} DivergedRow;

static double logsumexp_of(const RefCall *call, int operand, Point p, const Type *row) {
    double most = -INFINITY, sum = 0;
    Point first = p;
    do most = fmax(most, ref_read(call, operand, &p));
    while (point_next(&p, row));
    p = first;
    do sum += exp(ref_read(call, operand, &p) - most);
    while (point_next(&p, row));
    return most + log(sum);
}

static DivergedRow diverge(const RefCall *call, Point p, const Type *row, const double lse[2]) {
    const double beta = node_float(call->node, ATTR_beta, 0);
    DivergedRow out = {0, 0, {lse[0], lse[1]}};
    do {
        double a = ref_read(call, 0, &p) - lse[0], b = ref_read(call, 1, &p) - lse[1];
        double m = beta == 0 ? a : beta == 1 ? b : log(beta * exp(b) + (1 - beta) * exp(a));
        double from_t = exp(b) * (b - m), from_s = exp(a) * (a - m);
        out.value += beta == 0 ? from_t : beta == 1 ? from_s : beta * from_t + (1 - beta) * from_s;
        out.needed += from_s;
    } while (point_next(&p, row));
    return out;
}

static void put_rows(const RefCall *call, bool finds_lse) {
    Type row = ref_only(ref_type(call, 0), node_axis(call->node, ATTR_axis));
    const Type *rows = &call->node->types[0];
    Point p = {{0}};
    do {
        double lse[2];
        for (int i = 0; i < 2; i++) {
            lse[i] = finds_lse ? logsumexp_of(call, i, p, &row) : ref_read(call, 2 + i, &p);
        }
        const DivergedRow out = diverge(call, p, &row, lse);
        const int64_t at = point_offset(&p, rows);
        call->out[0][at] = out.value;
        call->out[1][at] = out.needed;
        for (int i = 0; finds_lse && i < 2; i++) call->out[2 + i][at] = lse[i];
    } while (point_next(&p, rows));
}

void reference_divergence(const RefCall *call) {
    put_rows(call, true);
}

void reference_divergence_rows(const RefCall *call) {
    put_rows(call, false);
}

void reference_divergence_grad(const RefCall *call) {
    const Type *x = ref_type(call, 0);
    const double beta = node_float(call->node, ATTR_beta, 0);
    Point p = {{0}};
    do {
        double a = ref_read(call, 0, &p) - ref_read(call, 2, &p);
        double b = ref_read(call, 1, &p) - ref_read(call, 3, &p);
        double m = beta == 1 ? b : log(beta * exp(b) + (1 - beta) * exp(a));
        double slope = beta == 0 ? exp(a) - exp(b) : exp(a) * (a - m - ref_read(call, 4, &p));
        if (beta > 0 && beta < 1) slope *= 1 - beta;
        call->out[0][point_offset(&p, x)] = slope * ref_read(call, 5, &p);
    } while (point_next(&p, x));
}
