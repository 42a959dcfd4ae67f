/* Linear attention and convolutions in float64, as the papers' recurrences have them. The gradient
 * is that of the recurrence, step by step, with all states kept: not the sums that the kernels use.
 */
#include "tests/support/reference_eval.h"

#include <math.h>
#include <string.h>

/* One head: its state before any position, after decay and after writing, [keys][values] each. */
typedef struct Head {
    const RefCall *call;
    Point at;
    int seq, head, value;
    int64_t n, keys, values;
    double scale;
} Head;

static double read_at(const Head *h, int input, int64_t t, int axis, int64_t i) {
    Point point = h->at;
    point.at[h->seq] = t;
    if (axis >= 0) point.at[axis] = i;
    return ref_read(h->call, input, &point);
}

static double *out_at(const Head *h, int output, int64_t t, int axis, int64_t i) {
    Point point = h->at;
    point.at[h->seq] = t;
    if (axis >= 0) point.at[axis] = i;
    return &h->call->out[output][point_offset(&point, &h->call->node->types[output])];
}

static Head head_of(const RefCall *call) {
    const Type *q = ref_type(call, 0), *v = ref_type(call, 2);
    return (Head){.call = call,
                  .seq = node_axis(call->node, ATTR_seq),
                  .head = node_axis(call->node, ATTR_head),
                  .value = v->axes[v->rank - 1],
                  .n = q->dims[1],
                  .keys = q->dims[q->rank - 1],
                  .values = v->dims[v->rank - 1],
                  .scale = node_float(call->node, ATTR_scale, 1)};
}

/* Points that number the heads: all axes of the values but positions and the last. */
static Type heads_type(const RefCall *call) {
    Type all = ref_without(ref_type(call, 2), node_axis(call->node, ATTR_seq));
    all.rank--;
    return all;
}

static double write_at(const Head *h, int64_t t) {
    int write = linear_attention_write(h->call->node);
    return write < 0 ? 1 : read_at(h, write, t, -1, 0);
}

/* Of a key's row of the state: all have the same where decays have no axis of keys. */
static double decay_at(const Head *h, int64_t t, int64_t key) {
    return exp(read_at(h, linear_attention_decay(h->call->node->op), t, h->head, key));
}

/* From the state at hand on, at the positions of a sequence that goes on if there are `places`. */
static void run_head(const Head *h, double *state, int places) {
    bool delta = linear_attention_write(h->call->node) >= 0;
    bool keeps = delta && h->call->node->op == OP_LINEAR_ATTENTION;
    for (int64_t t = 0; t < h->n; t++) {
        double place = places < 0 ? 1 : read_at(h, places, t, -1, 0);
        if (place < 0) break;
        if (place == 0) memset(state, 0, sizeof(double) * (size_t)(h->keys * h->values));
        for (int64_t i = 0; i < h->keys * h->values; i++) state[i] *= decay_at(h, t, i / h->values);
        for (int64_t j = 0; j < h->values; j++) {
            double error = read_at(h, 2, t, h->value, j), sum = 0;
            for (int64_t i = 0; delta && i < h->keys; i++) {
                error -= read_at(h, 1, t, h->head, i) * state[i * h->values + j];
            }
            if (delta) {
                error = reference_rounded(h->call->node->types[0].dtype, error);
                if (keeps) *out_at(h, 1, t, h->value, j) = error;
            }
            for (int64_t i = 0; i < h->keys; i++) {
                state[i * h->values + j] += read_at(h, 1, t, h->head, i) * write_at(h, t) * error;
                sum += read_at(h, 0, t, h->head, i) * state[i * h->values + j];
            }
            *out_at(h, 0, t, h->value, j) = h->scale * sum;
        }
    }
}

void reference_linear_attention(const RefCall *call) {
    Head h = head_of(call);
    Type heads = heads_type(call);
    double *state = ARENA_ARRAY(call->ref->arena, double, h.keys *h.values);
    do {
        memset(state, 0, sizeof(double) * (size_t)(h.keys * h.values));
        run_head(&h, state, -1);
    } while (point_next(&h.at, &heads));
}

void reference_cache_linear_attention(const RefCall *call) {
    enum { STATES = 3, ROWS, PLACES };
    Head h = head_of(call);
    Type heads = heads_type(call);
    const Type *states = ref_type(call, STATES);
    memset(call->out[0], 0, sizeof(double) * (size_t)type_elements(&call->node->types[0]));
    memcpy(call->out[1], call->in[STATES], sizeof(double) * (size_t)type_elements(states));
    do {
        Point at = h.at;
        double row = ref_read(call, ROWS, &h.at);
        if (row < 0 || row >= (double)states->dims[0]) continue;
        at.at[states->axes[0]] = (int64_t)row;
        run_head(&h, &call->out[1][point_offset(&at, states)], PLACES);
    } while (point_next(&h.at, &heads));
}

/* States after their decay, of all positions. */
static void keep_states(const Head *h, double *decayed) {
    int64_t size = h->keys * h->values;
    for (int64_t t = 0; t < h->n; t++) {
        for (int64_t i = 0; i < h->keys; i++) {
            for (int64_t j = 0; j < h->values; j++) {
                double before = 0;
                if (t > 0) {
                    before = decayed[(t - 1) * size + i * h->values + j] +
                             read_at(h, 1, t - 1, h->head, i) * write_at(h, t - 1) *
                                 read_at(h, 2, t - 1, h->value, j);
                }
                decayed[t * size + i * h->values + j] = decay_at(h, t, i) * before;
            }
        }
    }
}

/* d: the gradient of the state behind position t, then of that before it. */
static void reverse_step(const Head *h, int64_t t, const double *decayed, double *d) {
    bool delta = linear_attention_write(h->call->node) >= 0;
    for (int64_t i = 0; i < h->keys; i++) *out_at(h, 3, t, h->head, i) = 0;
    for (int64_t j = 0; j < h->values; j++) {
        double u = write_at(h, t) * read_at(h, 2, t, h->value, j), du = 0;
        double dout = h->scale * read_at(h, 3, t, h->value, j);
        for (int64_t i = 0; i < h->keys; i++) {
            double k = read_at(h, 1, t, h->head, i), *at = &d[i * h->values + j];
            *out_at(h, 0, t, h->head, i) += (decayed[i * h->values + j] + k * u) * dout;
            *at += read_at(h, 0, t, h->head, i) * dout;
            du += k * *at;
            *out_at(h, 1, t, h->head, i) += *at * u;
        }
        *out_at(h, 2, t, h->value, j) = du;
        du = reference_rounded(h->call->node->types[2].dtype, du);
        for (int64_t i = 0; i < h->keys; i++) {
            double de = delta ? write_at(h, t) * du : 0, *at = &d[i * h->values + j];
            *out_at(h, 1, t, h->head, i) -= decayed[i * h->values + j] * de;
            *at -= read_at(h, 1, t, h->head, i) * de;
            *out_at(h, 3, t, h->head, i) += *at * decayed[i * h->values + j];
            *at *= decay_at(h, t, i);
        }
    }
}

void reference_linear_attention_grad(const RefCall *call) {
    Head h = head_of(call);
    Type heads = heads_type(call);
    int64_t size = h.keys * h.values;
    double *decayed = ARENA_ARRAY(call->ref->arena, double, (h.n + 1) * size);
    double *d = decayed + h.n * size;
    for (int i = 0; i < 2; i++) {
        memset(call->out[i], 0, sizeof(double) * (size_t)type_elements(ref_type(call, i)));
    }
    do {
        keep_states(&h, decayed);
        memset(d, 0, sizeof(double) * (size_t)size);
        for (int64_t t = h.n - 1; t >= 0; t--) reverse_step(&h, t, &decayed[t * size], d);
    } while (point_next(&h.at, &heads));
}

/* How many positions before one its sum reaches. */
static int64_t reach_back(const RefCall *call, const Point *point) {
    int places = convolve_places(call->node);
    int64_t taps = ref_type(call, 1)->dims[0], t = point->at[node_axis(call->node, ATTR_seq)];
    double reach = fmin((double)(taps - 1), (double)t);
    return (int64_t)(places < 0 ? reach : fmin(reach, ref_read(call, places, point)));
}

void reference_convolve(const RefCall *call) {
    int seq = node_axis(call->node, ATTR_seq), axis = node_axis(call->node, ATTR_axis);
    int64_t last = ref_type(call, 1)->dims[0] - 1;
    Point p = {{0}};
    do {
        double sum = 0;
        for (int64_t n = 0; n <= reach_back(call, &p); n++) {
            Point from = p;
            from.at[seq] -= n;
            from.at[axis] = last - n;
            sum += ref_read(call, 0, &from) * ref_read(call, 1, &from);
        }
        call->out[0][point_offset(&p, &call->node->types[0])] = sum;
    } while (point_next(&p, &call->node->types[0]));
}

void reference_convolve_grad(const RefCall *call) {
    int seq = node_axis(call->node, ATTR_seq), axis = node_axis(call->node, ATTR_axis);
    int64_t last = ref_type(call, 1)->dims[0] - 1;
    const Type *x = &call->node->types[0], *w = &call->node->types[1];
    Point p = {{0}};
    memset(call->out[0], 0, sizeof(double) * (size_t)type_elements(x));
    memset(call->out[1], 0, sizeof(double) * (size_t)type_elements(w));
    do {
        for (int64_t n = 0; n <= reach_back(call, &p); n++) {
            Point from = p;
            from.at[seq] -= n;
            from.at[axis] = last - n;
            double dy = ref_read(call, 2, &p);
            call->out[0][point_offset(&from, x)] += dy * ref_read(call, 1, &from);
            call->out[1][point_offset(&from, w)] += dy * ref_read(call, 0, &from);
        }
    } while (point_next(&p, x));
}

/* The new position t of a row, or before them, of what its cache has. */
static double read_stream(const RefCall *call, Point p, int64_t t, double row) {
    const Type *cache = ref_type(call, 1);
    p.at[node_axis(call->node, ATTR_seq)] = t;
    if (t >= 0) return ref_read(call, 0, &p);
    p.at[cache->axes[0]] = (int64_t)row;
    p.at[cache->axes[1]] = cache->dims[1] + t;
    return ref_read(call, 1, &p);
}

/* How many of a row's positions are some. */
static int64_t count_positions(const RefCall *call, Point p) {
    int seq = node_axis(call->node, ATTR_seq);
    int64_t n = ref_type(call, 0)->dims[1], t = 0;
    for (; t < n; t++) {
        p.at[seq] = t;
        if (ref_read(call, 4, &p) < 0) break;
    }
    return t;
}

void reference_cache_convolve(const RefCall *call) {
    enum { WEIGHTS = 2, ROWS, PLACES };
    int seq = node_axis(call->node, ATTR_seq), axis = node_axis(call->node, ATTR_axis);
    int documents = convolve_places(call->node);
    const Type *x = ref_type(call, 0), *cache = ref_type(call, 1);
    int64_t last = cache->dims[1];
    Point p = {{0}};
    memcpy(call->out[1], call->in[1], sizeof(double) * (size_t)type_elements(cache));
    do {
        double row = ref_read(call, ROWS, &p), sum = 0;
        int64_t t = p.at[seq], n = count_positions(call, p);
        bool known = row >= 0 && row < (double)cache->dims[0];
        double reach = known && t < n ? fmin((double)last, ref_read(call, PLACES, &p)) : -1;
        if (documents >= 0) reach = fmin(reach, ref_read(call, documents, &p));
        for (int64_t back = 0; (double)back <= reach; back++) {
            Point w = p;
            w.at[axis] = last - back;
            sum += ref_read(call, WEIGHTS, &w) * read_stream(call, p, t - back, row);
        }
        call->out[0][point_offset(&p, x)] = sum;
        for (int64_t i = 0; known && t == 0 && i < last; i++) {
            Point to = p;
            to.at[cache->axes[0]] = (int64_t)row;
            to.at[cache->axes[1]] = i;
            call->out[1][point_offset(&to, cache)] = read_stream(call, p, n - last + i, row);
        }
    } while (point_next(&p, x));
}
