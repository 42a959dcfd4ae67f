#include "runtime/cpu/relative.h"

/* The keys of [0, n_keys) that a query has in a bucket: [begin, end). */
typedef struct KeyRange {
    int64_t begin, end;
} KeyRange;

static KeyRange keys_in(const RelativePlace *place, int bucket, int64_t query) {
    int64_t first, last;
    KeyRange range = {0, 0};
    if (!relative_range(&place->buckets, bucket, &first, &last)) return range;
    range.begin = query + first > 0 ? query + first : 0;
    range.end = query + last + 1 < place->keys ? query + last + 1 : place->keys;
    if (range.end < range.begin) range.end = range.begin;
    return range;
}

void relative_bias(const RelativePlace *place, const float *scores, const float *table,
                   float *out) {
    const int64_t n_rows = place->outer * place->heads * place->seq, keys = place->keys;
#pragma omp parallel for schedule(static) if (n_rows * keys > 16384)
    for (int64_t row = 0; row < n_rows; row++) {
        const int64_t query = span_at(&place->queries, row % place->seq);
        const int64_t head = row / place->seq % place->heads;
        const float *x = scores + row * keys;
        float *y = out + row * keys;
        for (int bucket = 0; bucket < place->count; bucket++) {
            const float bias = table[bucket * place->heads + head];
            const KeyRange range = keys_in(place, bucket, query);
            for (int64_t key = range.begin; key < range.end; key++) y[key] = x[key] + bias;
        }
        for (int64_t key = query + 1; place->buckets.causal && key < keys; key++) {
            y[key] = RELATIVE_HIDDEN;
        }
    }
}

void relative_bias_grad(const RelativePlace *place, const float *dout, float *dtable) {
    const int64_t n_sums = place->count * place->heads, rows_each = place->seq * place->keys;
#pragma omp parallel for schedule(dynamic) if (place->outer * place->heads * rows_each > 16384)
    for (int64_t i = 0; i < n_sums; i++) {
        const int64_t head = i % place->heads;
        double sum = 0;
        for (int64_t outer = 0; outer < place->outer; outer++) {
            const float *rows = dout + (outer * place->heads + head) * rows_each;
            for (int64_t s = 0; s < place->seq; s++) {
                const int64_t query = span_at(&place->queries, s);
                const KeyRange range = keys_in(place, (int)(i / place->heads), query);
                for (int64_t key = range.begin; key < range.end; key++) {
                    sum += rows[s * place->keys + key];
                }
            }
        }
        dtable[i] = (float)sum;
    }
}
