/* float64 reference of decoding's ops. */
#include "tests/support/reference_eval.h"

#include <math.h>
#include <string.h>

/* The cache's place that `point` of the rows goes to; false: there is none. */
static bool cache_point(const RefCall *call, int cache, int rows, const Point *point, Point *out) {
    const Type *type = ref_type(call, cache);
    double row = ref_read(call, rows, point), place = ref_read(call, rows + 1, point);
    *out = *point;
    if (row < 0 || row >= (double)type->dims[0] || place < 0 || place >= (double)type->dims[1]) {
        return false;
    }
    out->at[type->axes[0]] = (int64_t)row;
    out->at[type->axes[1]] = (int64_t)place;
    return true;
}

void reference_cache_append(const RefCall *call) {
    const Type *cache = ref_type(call, 0), *x = ref_type(call, 1);
    Point p = {{0}}, to;
    memcpy(call->out[0], call->in[0], sizeof(double) * (size_t)type_elements(cache));
    do {
        if (!cache_point(call, 0, 2, &p, &to)) continue;
        call->out[0][point_offset(&to, cache)] = ref_read(call, 1, &p);
    } while (point_next(&p, x));
}

void reference_cache_read(const RefCall *call) {
    const Type *out = &call->node->types[0];
    Point p = {{0}}, from;
    do {
        const bool there = cache_point(call, 0, 1, &p, &from);
        call->out[0][point_offset(&p, out)] = there ? ref_read(call, 0, &from) : 0;
    } while (point_next(&p, out));
}

/* softmax over the positions of the cache that the query at `p` sees, times values. */
static void attend(const RefCall *call, const Point *p, const Type *row, const Type *values,
                   double *scores) {
    const Type *cache = ref_type(call, 1);
    int64_t window = node_int(call->node, ATTR_window, cache->dims[1]);
    double cap = node_float(call->node, ATTR_softcap, 0), most = -INFINITY, sum = 0;
    Point at;
    bool known = cache_point(call, 1, 3, p, &at);
    int64_t place = known ? at.at[cache->axes[1]] : -1, first = place - window + 1;
    if (first < 0) first = 0;
    if (known && call->node->n_inputs > 5 && ref_read(call, 5, p) > (double)first) {
        first = (int64_t)fmin(ref_read(call, 5, p), (double)place);
    }
    Point d = *p;
    for (int64_t s = first; s <= place; s++) {
        scores[s] = 0;
        do {
            Point key = d;
            key.at[cache->axes[0]] = at.at[cache->axes[0]];
            key.at[cache->axes[1]] = s;
            scores[s] += node_float(call->node, ATTR_scale, 1) * ref_read(call, 0, &d) *
                         ref_read(call, 1, &key);
        } while (point_next(&d, row));
        if (cap > 0) scores[s] = cap * tanh(scores[s] / cap);
        most = fmax(most, scores[s]);
    }
    for (int64_t s = first; s <= place; s++) sum += scores[s] = exp(scores[s] - most);
    call->out[1][point_offset(p, &call->node->types[1])] = known ? most + log(sum) : 0;
    do {
        double value = 0;
        for (int64_t s = first; s <= place; s++) {
            Point key = d;
            key.at[cache->axes[0]] = at.at[cache->axes[0]];
            key.at[cache->axes[1]] = s;
            value += scores[s] / sum * ref_read(call, 2, &key);
        }
        call->out[0][point_offset(&d, &call->node->types[0])] = value;
    } while (point_next(&d, values));
}

void reference_cache_attention(const RefCall *call) {
    int head = node_axis(call->node, ATTR_head);
    const Type *q = ref_type(call, 0);
    Type rows = ref_without(q, head), row = ref_only(q, head);
    const Type *v = ref_type(call, 2);
    Type values = ref_only(v, v->axes[v->rank - 1]);
    double *scores = ARENA_ARRAY(call->ref->arena, double, ref_type(call, 1)->dims[1]);
    Point p = {{0}};
    do attend(call, &p, &row, &values, scores);
    while (point_next(&p, &rows));
}

void reference_select_row(const RefCall *call) {
    const Type *x = ref_type(call, 0), *out = &call->node->types[0];
    Point p = {{0}};
    do {
        Point from = p;
        double number = ref_read(call, 1, &p);
        bool known = number >= 0 && number < (double)x->dims[1];
        from.at[x->axes[1]] = known ? (int64_t)number : 0;
        call->out[0][point_offset(&p, out)] = known ? ref_read(call, 0, &from) : 0;
    } while (point_next(&p, out));
}
