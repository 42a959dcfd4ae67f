/* attention.c against the whole [seq, seq] softmax in f64, and its gradient against the analytic
 * formula in f64: grouped queries, heads and sequences that fill no tile, values' heads of another
 * size, causal and not, with windows, within documents. */
#include "runtime/cpu/attention.h"
#include "tests/unit/kernel_check.h"

typedef struct Data {
    float *q, *k, *v, *o, *lse, *largest, *d_o, *dq, *dk, *dv;
    int64_t n_q, n_k, n_v, n_o, n_rows;
} Data;

static int64_t values_of(const AttentionShape *s) {
    return s->values ? s->values : s->head;
}

static Data make_data(const AttentionShape *s) {
    Data d = {.n_rows = s->batch * s->seq * s->kv_heads * s->group};
    d.n_q = d.n_rows * s->head;
    d.n_k = s->batch * s->seq * s->kv_heads * s->head;
    d.n_v = s->batch * s->seq * s->kv_heads * values_of(s);
    d.n_o = d.n_rows * values_of(s);
    d.q = kc_random(d.n_q), d.k = kc_random(d.n_k), d.v = kc_random(d.n_v);
    d.d_o = kc_random(d.n_o);
    d.o = kc_zeros(d.n_o), d.lse = kc_zeros(d.n_rows), d.largest = kc_zeros(d.n_rows);
    d.dq = kc_zeros(d.n_q), d.dk = kc_random(d.n_k), d.dv = kc_random(d.n_v);
    return d;
}

static void free_data(Data *d) {
    free(d->q), free(d->k), free(d->v), free(d->o), free(d->lse), free(d->largest);
    free(d->d_o), free(d->dq), free(d->dk), free(d->dv);
}

typedef struct Reference {
    double *o, *lse, *dq, *dk, *dv, *largest;
} Reference;

/* One query row against all keys of its head. */
static void reference_row(const AttentionShape *s, const Data *d, Reference *r, int64_t b,
                          int64_t pos, int64_t h, int64_t g) {
    const int64_t row = ((b * s->seq + pos) * s->kv_heads + h) * s->group + g, head = s->head;
    const int64_t values = values_of(s);
    const int64_t window = s->window ? s->window : s->seq;
    const int64_t start = s->starts ? s->starts[b * s->seq + pos] : 0;
    const int64_t near = pos < window ? 0 : pos - window + 1, from = near > start ? near : start;
    const int64_t end = s->ends ? s->ends[b * s->seq + pos] : s->seq;
    int64_t n_keys = s->causal ? pos + 1 : pos + window;
    if (n_keys > end) n_keys = end;
    double *p = kc_zeros64(n_keys), *dp = kc_zeros64(n_keys), *left = kc_zeros64(n_keys);
    double top = -INFINITY, sum = 0, delta = 0;
    for (int64_t j = from; j < n_keys; j++) {
        const int64_t key = (b * s->seq + j) * s->kv_heads + h;
        for (int64_t e = 0; e < head; e++)
            p[j] += (double)s->scale * (double)d->q[row * head + e] * (double)d->k[key * head + e];
        for (int64_t e = 0; e < values; e++)
            dp[j] += (double)d->d_o[row * values + e] * (double)d->v[key * values + e];
        left[j] = 1;
        if (s->softcap > 0) {
            const double t = tanh(p[j] / (double)s->softcap);
            p[j] = (double)s->softcap * t;
            left[j] = 1 - t * t;
        }
        top = fmax(top, p[j]);
    }
    for (int64_t j = from; j < n_keys; j++) sum += exp(p[j] - top);
    r->lse[row] = top + log(sum);
    r->largest[row] = top;
    for (int64_t j = from; j < n_keys; j++) {
        p[j] = exp(p[j] - r->lse[row]);
        delta += p[j] * dp[j];
    }
    for (int64_t j = from; j < n_keys; j++) {
        const int64_t key = (b * s->seq + j) * s->kv_heads + h;
        const double ds = p[j] * (dp[j] - delta) * (double)s->scale * left[j];
        for (int64_t e = 0; e < values; e++) {
            r->o[row * values + e] += p[j] * (double)d->v[key * values + e];
            r->dv[key * values + e] += p[j] * (double)d->d_o[row * values + e];
        }
        for (int64_t e = 0; e < head; e++) {
            r->dq[row * head + e] += ds * (double)d->k[key * head + e];
            r->dk[key * head + e] += ds * (double)d->q[row * head + e];
        }
    }
    free(p), free(dp), free(left);
}

static void check_shape(const AttentionShape *s) {
    Data d = make_data(s);
    Reference r = {kc_zeros64(d.n_o), kc_zeros64(d.n_rows), kc_zeros64(d.n_q),
                   kc_zeros64(d.n_k), kc_zeros64(d.n_v),    kc_zeros64(d.n_rows)};
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t pos = 0; pos < s->seq; pos++)
            for (int64_t h = 0; h < s->kv_heads; h++)
                for (int64_t g = 0; g < s->group; g++) reference_row(s, &d, &r, b, pos, h, g);
    CHECK(attention_forward(s, d.q, d.k, d.v, d.o, d.lse, d.largest), "head refused");
    CHECK(attention_backward(s, d.q, d.k, d.v, d.o, d.lse, d.d_o, d.dq, d.dk, d.dv, NULL),
          "refused");
#define WHAT "b%d s%d kv%d g%d h%d v%d w%d"
#define SIZES                                                                                      \
    (int)s->batch, (int)s->seq, (int)s->kv_heads, (int)s->group, (int)s->head, (int)values_of(s),  \
        (int)s->window
    CHECK_NEAR(d.o, r.o, d.n_o, 1.0, 3e-6, WHAT, SIZES);
    CHECK_NEAR(d.lse, r.lse, d.n_rows, 1.0, 3e-6, WHAT, SIZES);
    CHECK_NEAR(d.largest, r.largest, d.n_rows, 1.0, 3e-6, WHAT, SIZES);
    CHECK_NEAR(d.dq, r.dq, d.n_q, fmax(1.0, (double)s->scale), 1e-5, WHAT, SIZES);
    /* dk and dv sum over seq * group rows. */
    const double many = sqrt((double)(s->seq * s->group));
    CHECK_NEAR(d.dk, r.dk, d.n_k, many, 5e-6, WHAT, SIZES);
    CHECK_NEAR(d.dv, r.dv, d.n_v, many, 5e-6, WHAT, SIZES);
    free(r.o), free(r.lse), free(r.dq), free(r.dk), free(r.dv), free(r.largest);
    free_data(&d);
}

/* Documents of about `length` positions, other ones in each batch row; their ends, if not causal.
 */
static void check_documents(AttentionShape s, int length) {
    const int64_t n = s.batch * s.seq;
    int32_t *starts = calloc((size_t)n, sizeof(*starts)), *ends = calloc((size_t)n, sizeof(*ends));
    for (int64_t i = 0; i < n; i++) {
        const int64_t pos = i % s.seq;
        bool begins = (i * 7919 + 31) % length == 0;
        starts[i] = pos == 0 ? 0 : begins ? (int32_t)pos : starts[i - 1];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        const int64_t next = i % s.seq + 1;
        ends[i] = next == s.seq || starts[i + 1] == next ? (int32_t)next : ends[i + 1];
    }
    s.starts = starts;
    s.ends = s.causal ? NULL : ends;
    check_shape(&s);
    free(starts), free(ends);
}

/* What no documents begin like: results are numbers, and a first position still sees itself only.
 */
static void check_wrong_documents(bool causal) {
    enum { SEQ = 150 };
    AttentionShape s = {1, SEQ, 1,   2,    8,    causal, 0.3f, DTYPE_F32, 0,
                        0, 0,   {0}, NULL, NULL, 0,      {0},  {0},       false};
    const int64_t wrong[] = {-1, INT32_MIN, INT32_MAX, SEQ, 100};
    int32_t starts[SEQ], ends[SEQ];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int pos = 0; pos < SEQ; pos++) {
            starts[pos] = pos % 3 ? (int32_t)wrong[i] : 149 - pos;
            ends[pos] = pos == 0 ? 1 : (int32_t)wrong[(i + (size_t)pos) % 5];
        }
        s.starts = starts;
        s.ends = causal ? NULL : ends;
        Data d = make_data(&s);
        attention_forward(&s, d.q, d.k, d.v, d.o, d.lse, NULL);
        attention_backward(&s, d.q, d.k, d.v, d.o, d.lse, d.d_o, d.dq, d.dk, d.dv, NULL);
        for (int64_t k = 0; k < d.n_q; k++) {
            CHECK(isfinite(d.o[k]) && isfinite(d.dq[k]), "row %d", (int)k / 16);
        }
        for (int64_t k = 0; k < d.n_k; k++) {
            CHECK(isfinite(d.dk[k]) && isfinite(d.dv[k]), "key %d", (int)k / 8);
        }
        CHECK(memcmp(d.o, d.v, 8 * sizeof(float)) == 0, "the first position");
        free_data(&d);
    }
}

/* A NaN of all bits, a GPU's, in a key is one in what all rows that see it get. */
static void check_nan(void) {
    AttentionShape s = {.batch = 1, .seq = 40, .kv_heads = 1, .group = 1, .head = 8, .scale = 1};
    Data d = make_data(&s);
    const uint32_t bits = 0x7fffffff;
    s.causal = true;
    memcpy(&d.k[30 * 8], &bits, sizeof bits);
    attention_forward(&s, d.q, d.k, d.v, d.o, d.lse, NULL);
    attention_backward(&s, d.q, d.k, d.v, d.o, d.lse, d.d_o, d.dq, d.dk, d.dv, NULL);
    for (int i = 0; i < 40 * 8; i++) {
        CHECK(isnan(d.o[i]) == (i >= 30 * 8), "row %d: %g", i / 8, (double)d.o[i]);
        CHECK(i < 30 * 8 || isnan(d.dq[i]), "gradient of row %d: %g", i / 8, (double)d.dq[i]);
    }
    free_data(&d);
}

/* What is no number shows where another document's blocks were looked at: the first of three, or,
 * not causal, the last. */
static void check_far_documents(bool causal) {
    enum { SEQ = 600, LENGTH = 200, EACH = LENGTH * 8 };
    AttentionShape s = {1, SEQ, 1,   1,    8,    causal, 0.3f, DTYPE_F32, 0,
                        0, 0,   {0}, NULL, NULL, 0,      {0},  {0},       false};
    int32_t starts[SEQ], ends[SEQ];
    const int64_t spoilt = causal ? 0 : 2 * EACH, from = causal ? 2 * EACH : 0;
    for (int pos = 0; pos < SEQ; pos++) {
        starts[pos] = pos / LENGTH * LENGTH;
        ends[pos] = starts[pos] + LENGTH;
    }
    s.starts = starts;
    s.ends = causal ? NULL : ends;
    Data d = make_data(&s);
    for (int64_t i = spoilt; i < spoilt + EACH; i++) d.k[i] = d.v[i] = NAN;
    attention_forward(&s, d.q, d.k, d.v, d.o, d.lse, NULL);
    attention_backward(&s, d.q, d.k, d.v, d.o, d.lse, d.d_o, d.dq, d.dk, d.dv, NULL);
    for (int64_t i = from; i < from + EACH; i++) {
        CHECK(isfinite(d.o[i]) && isfinite(d.dq[i]), "row %d", (int)i / 8);
        CHECK(isfinite(d.dk[i]) && isfinite(d.dv[i]), "key %d", (int)i / 8);
    }
    free_data(&d);
}

/* The same bits by a task for each head, and by parts of heads where there are more threads. */
static void check_threads_of(AttentionShape s) {
    int32_t starts[2 * 150];
    for (int i = 0; i < 2 * 150; i++) starts[i] = i % 150 < 33 ? 0 : i % 150 < 100 ? 33 : 100;
    if (s.starts) s.starts = starts;
    Data d = make_data(&s);
    omp_set_num_threads(1);
    attention_forward(&s, d.q, d.k, d.v, d.o, d.lse, NULL);
    attention_backward(&s, d.q, d.k, d.v, d.o, d.lse, d.d_o, d.dq, d.dk, d.dv, NULL);
    float *o = kc_copy(d.o, d.n_q), *dq = kc_copy(d.dq, d.n_q), *dk = kc_copy(d.dk, d.n_k);
    float *dv = kc_copy(d.dv, d.n_k);
    for (int threads = 3; threads <= 9; threads += 6) {
        omp_set_num_threads(threads);
        memset(d.dq, 0xff, (size_t)d.n_q * sizeof *d.dq);
        memset(d.dk, 0xff, (size_t)d.n_k * sizeof *d.dk);
        memset(d.dv, 0xff, (size_t)d.n_v * sizeof *d.dv);
        attention_forward(&s, d.q, d.k, d.v, d.o, d.lse, NULL);
        attention_backward(&s, d.q, d.k, d.v, d.o, d.lse, d.d_o, d.dq, d.dk, d.dv, NULL);
        CHECK(kc_same_bits(o, d.o, d.n_q), "%d threads: o differs", threads);
        CHECK(kc_same_bits(dq, d.dq, d.n_q), "%d threads: dq differs", threads);
        CHECK(kc_same_bits(dk, d.dk, d.n_k), "%d threads: dk differs", threads);
        CHECK(kc_same_bits(dv, d.dv, d.n_k), "%d threads: dv differs", threads);
    }
    omp_set_num_threads(2);
    free(o), free(dq), free(dk), free(dv);
    free_data(&d);
}

static void check_threads(void) {
    static const int32_t some[1];
    AttentionShape s = {.batch = 2, .seq = 150, .kv_heads = 2, .group = 3, .head = 24};
    s.scale = 0.2f;
    check_threads_of(s);
    s.causal = true;
    check_threads_of(s);
    s.starts = some; /* documents */
    check_threads_of(s);
    s.window = 40, s.starts = NULL, s.softcap = 3;
    check_threads_of(s);
}

/* All keys of a row count alike, and values are one: results are how much is kept. By step, row and
 * head they differ, and their mean over all is 1 within five of its standard deviations; that of
 * the gradient of values, the same sums over rows, too. */
static void check_drop(double p) {
    enum { STEPS = 40, SEQ = 50, HEADS = 3 };
    const uint32_t threshold = (uint32_t)round(p * 65536);
    AttentionShape s = {.batch = 2, .seq = SEQ, .kv_heads = HEADS, .group = 1, .head = 1};
    s.drop = (AttentionDrop){.threshold = threshold,
                             .factor = 65536.0f / (float)(65536 - threshold),
                             .batch = 8 * HEADS * SEQ,
                             .position = 8 * HEADS,
                             .head = 8,
                             .member = 8};
    Data d = make_data(&s);
    double sum = 0, sum_dv = 0, squares = 0, same = 0, *last = kc_zeros64(d.n_o);
    for (int64_t i = 0; i < d.n_v; i++) d.v[i] = 1;
    for (int64_t i = 0; i < d.n_o; i++) d.d_o[i] = 1;
    for (uint64_t step = 0; step < STEPS; step++) {
        s.random = (PhiloxStream){.seed = 5, .step = step, .key = 77};
        CHECK(attention_forward(&s, d.q, d.k, d.v, d.o, d.lse, NULL), "refused");
        CHECK(attention_backward(&s, d.q, d.k, d.v, d.o, d.lse, d.d_o, d.dq, d.dk, d.dv, NULL),
              "refused");
        for (int64_t i = 0; i < d.n_o; i++) {
            sum += (double)d.o[i];
            squares += (double)d.o[i] * (double)d.o[i];
            same += fabs(last[i] - (double)d.o[i]) < 1e-6;
            last[i] = (double)d.o[i];
        }
        for (int64_t i = 0; i < d.n_v; i++) sum_dv += (double)d.dv[i];
    }
    const double n = (double)(STEPS * d.n_o), spread = p / (1 - p) / SEQ; /* a row's variance */
    const double mean = sum / n, variance = squares / n - mean * mean;
    CHECK(fabs(mean - 1) < 5 * sqrt(spread / n), "p %g: mean %.6f", p, mean);
    CHECK(fabs(sum_dv / n - mean) < 1e-5, "p %g: mean %.6f, dv's %.6f", p, mean, sum_dv / n);
    CHECK(fabs(variance / spread - 1) < 0.05, "p %g: variance %g, not %g", p, variance, spread);
    CHECK(same < 0.2 * n, "p %g: %g of %g rows stay as they are", p, same, n);
    free(last);
    free_data(&d);
}

int main(void) {
    /* The last: windows of one key, shorter and longer than tiles and blocks, and of all but one.
     */
    const AttentionShape shapes[] = {
        {1, 1, 1, 1, 1, true, 1.0f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 64, 1, 1, 64, true, 0.125f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {2, 37, 3, 1, 20, true, 0.3f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 130, 2, 1, 64, false, 0.125f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {2, 70, 1, 3, 17, true, 0.25f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 67, 2, 5, 33, false, 0.2f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 129, 1, 2, 80, true, 0.1f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 65, 1, 1, 256, true, 0.0625f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 20, 1, 100, 8, true, 0.35f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 200, 1, 1, 4, true, 40.0f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {2, 70, 1, 3, 17, true, 0.25f, DTYPE_F32, 1, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 200, 2, 1, 16, true, 0.3f, DTYPE_F32, 5, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 300, 1, 2, 8, true, 1.0f, DTYPE_F32, 64, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 333, 1, 1, 20, true, 0.2f, DTYPE_F32, 130, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 130, 1, 1, 8, true, 0.3f, DTYPE_F32, 129, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 200, 2, 1, 8, false, 0.3f, DTYPE_F32, 1, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 260, 1, 1, 24, false, 0.2f, DTYPE_F32, 40, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {2, 90, 1, 5, 9, false, 0.3f, DTYPE_F32, 89, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 130, 2, 3, 24, true, 3.0f, DTYPE_F32, 0, 2.0f, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1,
         150,
         1,
         1,
         16,
         false,
         0.25f,
         DTYPE_F32,
         40,
         50.0f,
         0,
         {0},
         NULL,
         NULL,
         0,
         {0},
         {0},
         false},
        {2, 130, 2, 1, 24, true, 0.2f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 16, {0}, {0}, false},
        {1, 70, 2, 3, 8, false, 0.3f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 33, {0}, {0}, false},
        {1,
         67,
         1,
         2,
         192,
         true,
         0.07f,
         DTYPE_F32,
         40,
         2.0f,
         0,
         {0},
         NULL,
         NULL,
         128,
         {0},
         {0},
         false},
        {1, 65, 1, 1, 1, true, 1.0f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 256, {0}, {0}, false}};
    check_begin("attention and its gradient equal the f64 formulas");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(&shapes[i]);
    check_begin("attention within documents equals the f64 formulas");
    check_documents(
        (AttentionShape){
            2, 37, 3, 1, 20, true, 0.3f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        5);
    check_documents(
        (AttentionShape){
            2, 300, 1, 3, 17, true, 0.25f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        70);
    check_documents((AttentionShape){1,
                                     333,
                                     2,
                                     1,
                                     20,
                                     true,
                                     0.2f,
                                     DTYPE_F32,
                                     50,
                                     2.0f,
                                     0,
                                     {0},
                                     NULL,
                                     NULL,
                                     0,
                                     {0},
                                     {0},
                                     false},
                    90);
    check_documents(
        (AttentionShape){
            1, 90, 1, 2, 8, true, 0.3f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        1);
    static const AttentionShape both[] = {
        {2, 37, 3, 1, 20, false, 0.3f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {2, 300, 1, 3, 17, false, 0.25f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1,
         333,
         2,
         1,
         20,
         false,
         0.2f,
         DTYPE_F32,
         50,
         2.0f,
         0,
         {0},
         NULL,
         NULL,
         24,
         {0},
         {0},
         false},
        {1, 90, 1, 2, 8, false, 0.3f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false},
        {1, 400, 1, 1, 16, false, 0.3f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false}};
    const int lengths[] = {5, 70, 90, 1, 150};
    check_begin("so it does where it is not causal");
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) check_documents(both[i], lengths[i]);
    check_begin("wrong places of documents give numbers");
    check_wrong_documents(true);
    check_wrong_documents(false);
    check_begin("other documents' blocks are left out");
    check_far_documents(true);
    check_far_documents(false);
    check_begin("what is no number stays none");
    check_nan();
    check_begin("dropout keeps so many probabilities, and the mean of results over steps");
    check_drop(0.1);
    check_drop(0.5);
    check_begin("results do not depend on the number of threads");
    check_threads();
    check_begin("no positions: nothing to do; too long a head: refused");
    const AttentionShape none = {2, 0, 1,   1,    8,    true, 1.0f, DTYPE_F32, 0,
                                 0, 0, {0}, NULL, NULL, 0,    {0},  {0},       false},
                         wide = {1, 1, 1,   1,    641,  true, 1.0f, DTYPE_F32, 0,
                                 0, 0, {0}, NULL, NULL, 0,    {0},  {0},       false},
                         deep = {1, 1, 1,   1,    8,    true, 1.0f, DTYPE_F32, 0,
                                 0, 0, {0}, NULL, NULL, 641,  {0},  {0},       false};
    CHECK(attention_forward(&none, NULL, NULL, NULL, NULL, NULL, NULL), "empty refused");
    CHECK(!attention_forward(&wide, NULL, NULL, NULL, NULL, NULL, NULL), "head of 641 accepted");
    CHECK(!attention_forward(&deep, NULL, NULL, NULL, NULL, NULL, NULL), "values of 641 accepted");
    return check_report();
}
