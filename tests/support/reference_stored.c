/* Stored probabilities against the softmax of s, word by word, in float64 (ir/ops/stored.c). */
#include "ir/ops/stored.h"
#include "tests/support/reference_eval.h"

#include <math.h>
#include <string.h>

typedef struct StoredRow {
    double sum, tail, known, lse;
} StoredRow;

/* What is stored of the row's word, and how often it is. */
static double stored_of(const RefCall *call, Point p, int64_t word, int *out_times) {
    const Type *type = ref_type(call, 1);
    const Type row = ref_only(type, type->axes[type->rank - 1]);
    double q = 0;
    *out_times = 0;
    do {
        if (ref_read(call, 1, &p) != (double)word) continue;
        q += exp(ref_read(call, 2, &p));
        ++*out_times;
    } while (point_next(&p, &row));
    return q;
}

/* sum_k q_k log q_k, and of q_k, of the words that there are. */
static void add_stored(const RefCall *call, Point p, int64_t n, StoredRow *out) {
    const Type *type = ref_type(call, 1);
    const Type row = ref_only(type, type->axes[type->rank - 1]);
    do {
        const double word = ref_read(call, 1, &p), l = ref_read(call, 2, &p);
        if (word < 0 || word >= (double)n) continue;
        out->sum += exp(l) * l;
        out->known += exp(l);
    } while (point_next(&p, &row));
}

static StoredRow stored_row(const RefCall *call, Point p, bool finds_lse) {
    const int axis = node_axis(call->node, ATTR_axis);
    const Type row = ref_only(ref_type(call, 0), axis);
    StoredRow out = {0, 0, 0, 0};
    Point at = p;
    double total = 0;
    do total += exp(ref_read(call, 0, &at));
    while (finds_lse && point_next(&at, &row));
    out.lse = finds_lse ? log(total) : ref_read(call, 3, &p);
    add_stored(call, p, row.dims[0], &out);
    at = p;
    do {
        int times;
        const double q = stored_of(call, p, at.at[axis], &times);
        const double logp = ref_read(call, 0, &at) - out.lse;
        out.sum -= q * logp;
        if (times == 0) out.tail += exp(logp);
    } while (point_next(&at, &row));
    return out;
}

void reference_stored_rows(const RefCall *call) {
    const Type *rows = &call->node->types[0];
    Point p = {{0}};
    do {
        const StoredRow row = stored_row(call, p, false);
        const int64_t at = point_offset(&p, rows);
        call->out[0][at] = row.sum;
        call->out[1][at] = row.tail;
        call->out[2][at] = row.known;
    } while (point_next(&p, rows));
}

void reference_stored_divergence(const RefCall *call) {
    const Type *rows = &call->node->types[0];
    Point p = {{0}};
    do {
        const StoredRow row = stored_row(call, p, true);
        const int64_t at = point_offset(&p, rows);
        const double rest = stored_has_rest(call->node) ? fmax(0, 1 - row.known) : 0;
        call->out[0][at] =
            row.sum + rest * (log(rest + STORED_LEAST) - log(row.tail + STORED_LEAST));
        call->out[1][at] = row.tail;
        call->out[2][at] = row.known;
        call->out[3][at] = row.lse;
    } while (point_next(&p, rows));
}

void reference_stored_grad(const RefCall *call) {
    const Type *x = ref_type(call, 0);
    const int axis = node_axis(call->node, ATTR_axis);
    Point p = {{0}};
    do {
        int times;
        Point row = p;
        row.at[axis] = 0;
        const double q = stored_of(call, row, p.at[axis], &times);
        const double own = exp(ref_read(call, 0, &p) - ref_read(call, 3, &p));
        const double slope = own * ref_read(call, times > 0 ? 4 : 5, &p) - q;
        call->out[0][point_offset(&p, x)] = slope * ref_read(call, 6, &p);
    } while (point_next(&p, x));
}
