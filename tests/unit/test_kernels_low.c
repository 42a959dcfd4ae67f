/* Kernels on bf16 and f16: rounding itself, products (oneDNN's and widened block by block), and
 * every kernel on sizes past its tiles against the same kernel on f32 operands of the same values.
 *
 * Would catch: truncation for rounding, a NaN that becomes infinite, a sum that is kept in bf16, a
 * block or tile border, a result left unwritten, an operand widened from the wrong place.
 */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/attention.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/embedding.h"
#include "runtime/cpu/gemm_widened.h"
#include "runtime/cpu/norm.h"
#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/reduce.h"
#include "runtime/cpu/rotary.h"
#include "runtime/cpu/softmax.h"
#include "runtime/cpu/tiles.h"
#include "runtime/shard.h"
#include "tests/unit/kernel_check.h"

static DType low; /* what is tested */

/* The most by which rounding to it moves x: half of what neighbours are apart. */
static double rounding(double x) {
    return low == DTYPE_F16 ? ldexp(fabs(x), -11) + 0x1p-24 : ldexp(fabs(x), -8);
}

/* An array of 16-bit numbers and the same as f32. */
typedef struct Pair {
    int64_t n;
    uint16_t *low;
    float *wide;
} Pair;

static Pair new_pair(int64_t n) {
    Pair pair = {n, kc_alloc((size_t)n * sizeof(uint16_t)), kc_random(n)};
    vec_low_store(low, pair.wide, pair.low, n);
    vec_low_load(low, pair.low, pair.wide, n);
    return pair;
}

/* For results: starts as not-a-number, so that what is not written is found. */
static Pair new_result(int64_t n) {
    Pair pair = new_pair(n);
    memset(pair.low, 0xff, (size_t)n * sizeof(uint16_t));
    memset(pair.wide, 0xff, (size_t)n * sizeof(float));
    return pair;
}

static void free_pair(Pair *pair) {
    free(pair->low), free(pair->wide);
}

/* The results in 16 bits are the f32 ones rounded, within f32's error. */
static bool is_rounded(const Pair *pair) {
    for (int64_t i = 0; i < pair->n; i++) {
        double got = (double)vec_get(pair->low, low, i), wide = (double)pair->wide[i];
        if (!(fabs(got - wide) <= rounding(wide) + 2e-6)) return false;
    }
    return true;
}

static void check_bf16_rounding(void) {
    check_begin("bf16: rounding to nearest even; every one stays itself");
    for (uint32_t bits = 0; bits < 1 << 16; bits++) {
        float exact = vec_bf16_widen((uint16_t)bits), middle, above, below;
        if (isnan(exact)) {
            CHECK(isnan(vec_bf16_widen(vec_bf16_round(exact))), "NaN %04x", bits);
            continue;
        }
        CHECK(vec_bf16_round(exact) == bits, "%04x becomes %04x", bits, vec_bf16_round(exact));
        if (isinf(exact)) continue;
        uint32_t wide = bits << 16 | 0x8000; /* half-way to the next larger magnitude */
        memcpy(&middle, &wide, 4);
        wide++;
        memcpy(&above, &wide, 4);
        wide -= 2;
        memcpy(&below, &wide, 4);
        uint16_t even = (uint16_t)(bits & 1 ? bits + 1 : bits);
        CHECK(vec_bf16_round(middle) == even, "tie after %04x", bits);
        CHECK(vec_bf16_round(above) == bits + 1, "above the tie after %04x", bits);
        CHECK(vec_bf16_round(below) == bits, "below the tie after %04x", bits);
    }
    float nan_tail;
    uint32_t quiet = 0x7f800001; /* a NaN only in the lower half */
    memcpy(&nan_tail, &quiet, 4);
    CHECK(isnan(vec_bf16_widen(vec_bf16_round(nan_tail))), "NaN became infinite");
    check_end();
}

enum { N_HALVES = 1 << 16, F16_INFINITY = 0x7c00 };

/* By f16's definition. */
static double f16_value(uint32_t bits) {
    const int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 0x3ff);
    double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31) size = fraction ? (double)NAN : (double)INFINITY;
    return bits & 0x8000 ? -size : size;
}

static void check_f16_widening(void) {
    uint16_t *halves = kc_alloc(N_HALVES * sizeof(uint16_t));
    float *wide = kc_zeros(N_HALVES), *portable = kc_zeros(N_HALVES);
    for (uint32_t i = 0; i < N_HALVES; i++) halves[i] = (uint16_t)i;
    for (uint32_t i = 0; i < N_HALVES; i++) portable[i] = vec_f16_widen((uint16_t)i);
    check_begin("f16: widening is exact");
    vec_f16_load(halves, wide, N_HALVES);
    CHECK(kc_same_bits(wide, portable, N_HALVES), "instructions and integers differ");
    for (uint32_t i = 0; i < N_HALVES; i++) {
        const double expected = f16_value(i), x = (double)portable[i];
        const bool sign = i & 0x8000;
        CHECK(isnan(expected) ? vec_bits(portable[i]) & 0x400000 && isnan(x) : x == expected,
              "%04x is %a", i, x);
        CHECK((signbit(x) != 0) == sign, "%04x: sign", i);
        const uint32_t quiet = isnan(expected) ? i | 0x200 : i;
        CHECK(vec_f16_round(portable[i]) == quiet, "%04x becomes %04x", i,
              vec_f16_round(portable[i]));
    }
    check_end();
    free(halves), free(wide), free(portable);
}

static void expect_half(float x, uint32_t expected) {
    CHECK(vec_f16_round(x) == expected, "%a becomes %04x, not %04x", (double)x, vec_f16_round(x),
          expected);
}

/* Every border between two neighbours, the last one to infinity: half-way and just beside. */
static void check_f16_rounding(void) {
    enum { N_RANDOM = 1 << 19, N_BORDERS = 2 * F16_INFINITY, N = 3 * N_BORDERS + N_RANDOM + 13 };
    float *x = kc_zeros(N);
    uint16_t *rounded = kc_alloc(N * sizeof(uint16_t));
    int64_t n = 0, differ = 0;
    check_begin("f16: rounding to nearest even");
    for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000)
        for (uint32_t half = sign; half < sign + F16_INFINITY; half++) {
            const double above = half + 1 == sign + F16_INFINITY ? 65536 : f16_value(half + 1);
            const float middle = (float)((f16_value(half) + copysign(above, f16_value(half))) / 2);
            x[n] = nextafterf(middle, 0);
            expect_half(x[n++], half);
            x[n] = middle;
            expect_half(x[n++], half & 1 ? half + 1 : half);
            x[n] = nextafterf(middle, 2 * middle);
            expect_half(x[n++], half + 1);
        }
    for (uint64_t state = 2026; n < N; n++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[n] = vec_from_bits((uint32_t)(state >> 32)); /* NaN and infinities among them */
    }
    vec_f16_store(x, rounded, N);
    for (int64_t i = 0; i < N; i++) differ += rounded[i] != vec_f16_round(x[i]);
    CHECK(differ == 0, "instructions and integers differ on %d numbers", (int)differ);
    expect_half(INFINITY, 0x7c00);
    expect_half(-3e38f, 0xfc00);
    expect_half(1e-30f, 0);
    expect_half(vec_from_bits(0x7f800001), 0x7e00); /* a NaN only in what is cut off */
    expect_half(vec_from_bits(0xffa00000), 0xff00);
    check_end();
    free(x), free(rounded);
}

/* Whole vectors and what is left: each length, nothing past its end. */
static void check_lengths(void) {
    enum { MOST = 70 };
    check_begin("every length is widened and rounded, and no more");
    for (int64_t n = 0; n < MOST; n++) {
        Pair x = new_pair(MOST);
        float wide[MOST];
        uint16_t back[MOST];
        memset(wide, 0, sizeof wide), memset(back, 0, sizeof back);
        vec_low_load(low, x.low, wide, n);
        vec_low_store(low, x.wide, back, n);
        CHECK(kc_same_bits(wide, x.wide, n) && memcmp(back, x.low, (size_t)n * 2) == 0, "%d",
              (int)n);
        for (int64_t i = n; i < MOST; i++) CHECK(wide[i] == 0 && back[i] == 0, "past %d", (int)n);
        free_pair(&x);
    }
    check_end();
}

static void reference_product(const GemmShape *s, const float *a, const float *b, const float *c,
                              double *out) {
    for (int64_t p = 0; p < s->batch; p++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                const float *pa = a + p * s->m * s->k, *pb = b + p * s->k * s->n;
                const int64_t at = (p * s->m + i) * s->n + j;
                double sum = s->accumulate ? (double)c[at] : 0;
                for (int64_t l = 0; l < s->k; l++)
                    sum += (double)(s->ta ? pa[l * s->m + i] : pa[i * s->k + l]) *
                           (double)(s->tb ? pb[j * s->k + l] : pb[l * s->n + j]);
                out[at] = sum;
            }
}

static void check_product(GemmPlans *plans, const GemmShape *s) {
    const int64_t n_out = s->batch * s->m * s->n;
    Pair a = new_pair(s->batch * s->m * s->k), b = new_pair(s->batch * s->k * s->n);
    float *c = kc_random(n_out);
    double *want = kc_zeros64(n_out);
    void *workspace = kc_alloc(gemm_widened_workspace_bytes(s));
    const bool rounds = dtype_is_low(s->out_dtype);
    void *out = rounds ? kc_alloc((size_t)n_out * 2) : (void *)kc_copy(c, n_out);
    reference_product(s, a.wide, b.wide, c, want);
    if (!s->accumulate) memset(out, 0xff, (size_t)n_out * vec_bytes(s->out_dtype));
    const GemmPlan *plan = gemm_plan_low(plans, s);
    CHECK(plan && plan == gemm_plan_low(plans, s), "%s", gemm_status_text());
    for (int run = 0; plan && run < (s->accumulate ? 1 : 2); run++)
        CHECK(gemm_run_low(plan, a.low, b.low, out, workspace), "%s", gemm_status_text());
    double worst = 0;
    for (int64_t i = 0; i < n_out; i++) {
        double x = (double)vec_get(out, s->out_dtype, i);
        double allowed = (rounds ? rounding(want[i]) : 0) + 2e-6 * (1 + sqrt((double)s->k));
        double error = fabs(x - want[i]) / allowed;
        if (!(error <= worst)) worst = error;
    }
    CHECK(worst <= 1, "ta%d tb%d %dx%dx%d batch %d: %.3g of what rounding explains", s->ta, s->tb,
          (int)s->m, (int)s->n, (int)s->k, (int)s->batch, worst);
    free_pair(&a), free_pair(&b);
    free(c), free(want), free(workspace), free(out);
}

static void check_products(GemmPlans *plans, const char *name) {
    static const int64_t SIZES[][4] = {
        {1, 1, 1, 1},   {1, 3, 5, 7},    {1, 17, 31, 33},  {4, 5, 6, 9},      {1, 1, 300, 70},
        {1, 64, 1, 48}, {1, 64, 96, 32}, {1, 521, 30, 77}, {1, 33, 515, 260}, {2, 20, 24, 530}};
    check_begin(name);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int form = 0; form < 12; form++) {
            GemmShape s = {.batch = 0};
            s.batch = SIZES[i][0], s.m = SIZES[i][1], s.n = SIZES[i][2], s.k = SIZES[i][3];
            s.ta = form & 1;
            s.tb = form >> 1 & 1;
            s.dtype = low;
            s.out_dtype = form >> 2 == 1 ? low : DTYPE_F32;
            s.accumulate = form >> 2 == 2;
            check_product(plans, &s);
        }
    check_end();
}

static void check_norms(void) {
    enum { ROWS = 37, N = 4501 };
    Pair x = new_pair(ROWS * N), dy = new_pair(ROWS * N);
    Pair y = new_result(ROWS * N), dx = new_result(ROWS * N);
    float *gain = kc_random(N), *bias = kc_random(N),
          *work = kc_alloc(norm_backward_workspace_bytes(ROWS, N));
    float *mean[2], *inv[2], *dgain[2], *dbias[2];
    for (int i = 0; i < 2; i++) {
        mean[i] = kc_zeros(ROWS), inv[i] = kc_zeros(ROWS);
        dgain[i] = kc_zeros(N), dbias[i] = kc_zeros(N);
    }
    for (int rms = 0; rms < 2; rms++) {
        check_begin(rms ? "rmsnorm" : "layernorm");
        for (int i = 0; i < 2; i++) {
            const DType dtype = i ? low : DTYPE_F32;
            void *px = i ? (void *)x.low : x.wide, *py = i ? (void *)y.low : y.wide;
            void *pdy = i ? (void *)dy.low : dy.wide, *pdx = i ? (void *)dx.low : dx.wide;
            if (rms) {
                rmsnorm_forward(dtype, ROWS, N, px, gain, 1e-5f, py, inv[i]);
                rmsnorm_backward(dtype, ROWS, N, px, gain, inv[i], pdy, pdx, dgain[i], work);
            } else {
                layernorm_forward(dtype, ROWS, N, px, gain, bias, 1e-5f, py, mean[i], inv[i]);
                layernorm_backward(dtype, ROWS, N, px, gain, mean[i], inv[i], pdy, pdx, dgain[i],
                                   dbias[i], work);
            }
        }
        CHECK(is_rounded(&y) && is_rounded(&dx), "y or dx is not the f32 one rounded");
        CHECK(kc_same_bits(inv[0], inv[1], ROWS) && kc_same_bits(dgain[0], dgain[1], N),
              "statistics or gradients of the gain differ");
        CHECK(kc_same_bits(dbias[0], dbias[1], N), "gradients of the bias differ");
        check_end();
    }
    for (int i = 0; i < 2; i++) free(mean[i]), free(inv[i]), free(dgain[i]), free(dbias[i]);
    free_pair(&x), free_pair(&dy), free_pair(&y), free_pair(&dx);
    free(gain), free(bias), free(work);
}

static void check_attention(AttentionShape s) {
    const int64_t n_q = s.batch * s.seq * s.kv_heads * s.group * s.head;
    const int64_t n_k = n_q / s.group, rows = n_q / s.head, values = s.values ? s.values : s.head;
    const int64_t n_o = rows * values, n_v = n_o / s.group;
    Pair q = new_pair(n_q), k = new_pair(n_k), v = new_pair(n_v), d_o = new_pair(n_o);
    Pair o = new_result(n_o), dq = new_result(n_q), dk = new_result(n_k), dv = new_result(n_v);
    float *lse[2] = {kc_zeros(rows), kc_zeros(rows)}, *work = kc_zeros(n_k + n_v);
    s.dtype = DTYPE_F32;
    CHECK(attention_forward(&s, q.wide, k.wide, v.wide, o.wide, lse[0], NULL), "refused");
    s.dtype = low;
    tiles_refuse(true); /* they round the weights */
    CHECK(attention_forward(&s, q.low, k.low, v.low, o.low, lse[1], NULL), "refused");
    CHECK(is_rounded(&o), "o is not the f32 one rounded");
    CHECK(kc_same_bits(lse[0], lse[1], rows), "the log-sum-exps differ");
    CHECK(attention_backward(&s, q.low, k.low, v.low, o.low, lse[1], d_o.low, dq.low, dk.low,
                             dv.low, work),
          "refused");
    vec_low_load(low, o.low, o.wide, n_o); /* what the gradient reads is the rounded one */
    s.dtype = DTYPE_F32;
    CHECK(attention_backward(&s, q.wide, k.wide, v.wide, o.wide, lse[0], d_o.wide, dq.wide, dk.wide,
                             dv.wide, NULL),
          "refused");
    CHECK(is_rounded(&dq) && is_rounded(&dk) && is_rounded(&dv),
          "a gradient is not the f32 one rounded");
    tiles_refuse(false);
    Pair *all[] = {&q, &k, &v, &d_o, &o, &dq, &dk, &dv};
    for (int i = 0; i < 8; i++) free_pair(all[i]);
    free(lse[0]), free(lse[1]), free(work);
}

static void check_losses(void) {
    enum { ROWS = 21, N = 1300, VALID = 1291, OFFSET = 1000 };
    Pair x = new_pair(ROWS * N), dx = new_result(ROWS * N);
    float *lse[2] = {kc_zeros(ROWS), kc_zeros(ROWS)}, *dloss = kc_random(ROWS);
    float *picked[2] = {kc_zeros(ROWS), kc_zeros(ROWS)};
    int32_t labels[ROWS];
    for (int i = 0; i < ROWS; i++) labels[i] = OFFSET - 100 + 70 * i;
    for (int i = 0; i < 2; i++) {
        const DType dtype = i ? low : DTYPE_F32;
        const void *logits = i ? (void *)x.low : x.wide;
        softmax_logsumexp(dtype, ROWS, N, VALID, logits, lse[i]);
        softmax_pick(dtype, ROWS, N, VALID, OFFSET, logits, labels, picked[i]);
        softmax_cross_entropy_grad(dtype, ROWS, N, VALID, OFFSET, logits, labels, lse[i], dloss,
                                   NULL, i ? (void *)dx.low : dx.wide);
    }
    check_begin("log-sum-exp, pick and the gradient of cross-entropy");
    CHECK(kc_same_bits(lse[0], lse[1], ROWS), "log-sum-exp");
    CHECK(kc_same_bits(picked[0], picked[1], ROWS), "pick");
    CHECK(is_rounded(&dx), "the gradient is not the f32 one rounded");
    for (int i = 0; i < 2; i++) free(lse[i]), free(picked[i]);
    free_pair(&x), free_pair(&dx), free(dloss);
    check_end();
}

static void check_layouts(void) {
    enum { A = 3, B = 70, C = 90, N = A * B * C };
    const int64_t dims[] = {A, B, C};
    Pair x = new_pair(N), sum = new_result(N), moved = new_result(N);
    check_begin("sums and permutations");
    for (int mask = 0; mask < 8; mask++) {
        const bool reduced[] = {mask & 1, mask >> 1 & 1, mask >> 2 & 1};
        sum.n = (mask & 1 ? 1 : A) * (mask & 2 ? 1 : B) * (mask & 4 ? 1 : C);
        reduce_sum(3, dims, reduced, x.wide, DTYPE_F32, false, sum.wide, DTYPE_F32);
        reduce_sum(3, dims, reduced, x.low, low, false, sum.low, low);
        float *wide = kc_zeros(sum.n);
        reduce_sum(3, dims, reduced, x.low, low, false, wide, DTYPE_F32);
        CHECK(is_rounded(&sum), "sum over %d is not the f32 one rounded", mask);
        CHECK(kc_same_bits(wide, sum.wide, sum.n), "sum over %d kept in f32 differs", mask);
        free(wide);
    }
    static const int ORDERS[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}, {2, 0, 1}};
    for (int i = 0; i < 5; i++) {
        reduce_permute(3, dims, ORDERS[i], DTYPE_F32, x.wide, moved.wide);
        reduce_permute(3, dims, ORDERS[i], low, x.low, moved.low);
        vec_low_load(low, moved.low, sum.wide, N);
        CHECK(kc_same_bits(sum.wide, moved.wide, N), "order %d %d %d", ORDERS[i][0], ORDERS[i][1],
              ORDERS[i][2]);
    }
    check_end();
    check_begin("the first value that is not finite");
    CHECK(reduce_first_nonfinite(x.low, low, N) == -1, "finite");
    vec_put(x.low, low, N - 2, -INFINITY);
    CHECK(reduce_first_nonfinite(x.low, low, N) == N - 2, "infinity");
    vec_put(x.low, low, 9001, NAN);
    CHECK(reduce_first_nonfinite(x.low, low, N) == 9001, "NaN");
    check_end();
    sum.n = N;
    free_pair(&x), free_pair(&sum), free_pair(&moved);
}

static void check_rotary(int64_t seq, int64_t head) {
    enum { INNER = 3 };
    const DimSpan place = {0, 0, 5};
    const int64_t n = 2 * seq * INNER * head;
    Pair x = new_pair(n), y = new_result(n);
    rotary_apply(DTYPE_F32, 2, seq, INNER, head, head, &place, 10000, NULL, 1, x.wide, y.wide);
    rotary_apply(low, 2, seq, INNER, head, head, &place, 10000, NULL, 1, x.low, y.low);
    CHECK(is_rounded(&y), "is not the f32 one rounded");
    rotary_apply(low, 2, seq, INNER, head, head, &place, 10000, NULL, 1, x.low, x.low);
    CHECK(memcmp(x.low, y.low, (size_t)n * sizeof(uint16_t)) == 0, "in place it differs");
    free_pair(&x), free_pair(&y);
}

/* The last of three shards of ten columns: two of its four exist. */
static void check_gather(void) {
    enum { ROWS = 3, LOCAL = 4, WHOLE = 10 };
    const Shard shard = {.whole = {.dtype = low, .rank = 2, .dims = {ROWS, WHOLE}},
                         .local = {.dtype = low, .rank = 2, .dims = {ROWS, LOCAL}},
                         .span = {{ROWS, 0, 0}, {LOCAL, 8, 8}},
                         .valid = {ROWS, 2}};
    Pair x = new_pair(ROWS * LOCAL);
    float whole[ROWS][WHOLE] = {{0}};
    shard_gather(&shard, x.low, whole);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < WHOLE; c++)
            CHECK(whole[r][c] == (c < 8 ? 0 : x.wide[r * LOCAL + c - 8]), "row %d column %d", r, c);
    free_pair(&x);
}

static void check_embedding(void) {
    enum { TOKENS = 50, VOCAB = 40, MODEL = 300 };
    Pair table = new_pair(VOCAB * MODEL), out = new_result(TOKENS * MODEL);
    Pair dy = new_pair(TOKENS * MODEL);
    float *sums[2] = {kc_random(VOCAB * MODEL)};
    int32_t tokens[TOKENS];
    sums[1] = kc_copy(sums[0], VOCAB * MODEL);
    for (int i = 0; i < TOKENS; i++) tokens[i] = 7 * i % 60;
    check_begin("embedding");
    embedding_forward(DTYPE_F32, TOKENS, MODEL, VOCAB, 10, tokens, table.wide, out.wide);
    embedding_forward(low, TOKENS, MODEL, VOCAB, 10, tokens, table.low, out.low);
    CHECK(is_rounded(&out), "the rows differ");
    embedding_backward(DTYPE_F32, TOKENS, MODEL, VOCAB, 10, tokens, dy.wide, true, sums[0]);
    embedding_backward(low, TOKENS, MODEL, VOCAB, 10, tokens, dy.low, true, sums[1]);
    CHECK(kc_same_bits(sums[0], sums[1], VOCAB * MODEL), "the gradients differ");
    check_end();
    free_pair(&table), free_pair(&out), free_pair(&dy);
    free(sums[0]), free(sums[1]);
}

/* out0 = gelu(x + b), out1 = x b over [rows, n], b [n]; rows long enough to be tiled one by one, or
 * not. */
static void check_elementwise(int64_t rows, int64_t n) {
    Pair x = new_pair(rows * n), b = new_pair(n), y = new_result(rows * n),
         z = new_result(rows * n);
    const ElementwiseInstr instr[] = {{.op = EW_ADD, .dst = 2, .arg = {0, 1}},
                                      {.op = EW_GELU, .dst = 3, .arg = {2}},
                                      {.op = EW_MUL, .dst = 4, .arg = {0, 1}}};
    for (int variant = 0; variant < 3; variant++) { /* f32; low; low with out0 in x */
        const bool is_low = variant > 0;
        const DType dtype = is_low ? low : DTYPE_F32;
        ElementwiseSpec spec = {
            .n_dims = 2,
            .dims = {rows, n},
            .n_in = 2,
            .in = {is_low ? (void *)x.low : x.wide, is_low ? (void *)b.low : b.wide},
            .in_dtype = {dtype, dtype},
            .in_stride = {{n, 1}, {0, 1}},
            .n_out = 2,
            .out = {variant == 2 ? x.low
                    : is_low     ? (void *)y.low
                                 : y.wide,
                    z.wide},
            .out_dtype = {dtype, DTYPE_F32},
            .out_register = {3, 4},
            .n_instr = 3,
            .instr = instr};
        ElementwiseCall call;
        const char *why = "";
        CHECK(elementwise_prepare(&spec, &call, &why), "%s", why);
        float *product = kc_copy(z.wide, rows * n);
        elementwise_run(&call);
        if (is_low) CHECK(kc_same_bits(product, z.wide, rows * n), "the f32 result differs");
        free(product);
    }
    CHECK(is_rounded(&y), "the result is not the f32 one rounded");
    CHECK(memcmp(x.low, y.low, (size_t)(rows * n) * sizeof(uint16_t)) == 0, "in place it differs");
    free_pair(&x), free_pair(&b), free_pair(&y), free_pair(&z);
}

static void check_copies(void) {
    enum { N = 20001 };
    float *p = kc_random(N), *g = kc_random(N), *m = kc_zeros(N), *v = kc_zeros(N);
    uint16_t *copy = kc_alloc(N * sizeof(uint16_t)), *expected = kc_alloc(N * sizeof(uint16_t));
    const float lr = 0.01f, step = 1, one = 1, bad = INFINITY;
    const AdamwConfig adamw = {0.9, 0.95, 1e-8, 0.1, 1, low, DTYPE_F32, DTYPE_F32};
    const LionConfig lion = {0.9, 0.99, 0.1, 1, low, DTYPE_F32, DTYPE_F32};
    const MuonConfig muon = {6.4, 0.1, 1, DTYPE_F32, low};
    check_begin("optimizers write the copy with the parameter, or neither");
    for (int kind = 0; kind < 5; kind++) {
        const SgdConfig sgd = {.momentum = kind == 1 ? 0.9 : 0, .lr_scale = 1, .copy_dtype = low};
        for (int finite = 0; finite < 2; finite++) {
            const float *clip = finite ? &one : &bad;
            memset(copy, 0x11, N * sizeof(uint16_t));
            if (kind == 2)
                optimizer_adamw(&adamw, N, &lr, &step, clip, g, p, m, v, copy);
            else if (kind == 3)
                optimizer_lion(&lion, N, &lr, clip, g, p, m, copy);
            else if (kind == 4)
                optimizer_muon(&muon, N, &lr, clip, g, p, copy);
            else
                optimizer_sgd(&sgd, N, &lr, clip, g, p, m, copy);
            bool fine;
            vec_low_store(low, p, expected, N);
            if (!finite) memset(expected, 0x11, N * sizeof(uint16_t));
            fine = memcmp(copy, expected, N * sizeof(uint16_t)) == 0;
            CHECK(fine, "optimizer %d, %s gradients", kind, finite ? "finite" : "infinite");
        }
    }
    check_end();
    free(p), free(g), free(m), free(v), free(copy), free(expected);
}

static void check_kernels(void) {
    printf("%s\n", dtype_name(low));
    check_lengths();
    check_norms();
    check_begin("attention and its gradient");
    check_attention((AttentionShape){
        1, 1, 1, 1, 1, true, 1.0f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false});
    check_attention((AttentionShape){
        2, 150, 2, 3, 24, true, 0.2f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false});
    check_attention((AttentionShape){
        1, 130, 1, 1, 65, false, 0.125f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 0, {0}, {0}, false});
    check_attention((AttentionShape){
        1, 190, 2, 2, 20, true, 0.2f, DTYPE_F32, 75, 2.0f, 0, {0}, NULL, NULL, 0, {0}, {0}, false});
    check_attention((AttentionShape){
        2, 150, 2, 2, 24, true, 0.2f, DTYPE_F32, 0, 0, 0, {0}, NULL, NULL, 17, {0}, {0}, false});
    check_end();
    check_losses();
    check_layouts();
    check_begin("rotary, in place and not");
    check_rotary(70, 66);
    check_rotary(3, 520);
    check_embedding();
    check_begin("a shard is gathered as f32");
    check_gather();
    check_begin("elementwise programs");
    check_elementwise(5, 3001);
    check_elementwise(700, 37);
    check_elementwise(1, 1);
    check_end();
    check_copies();
}

/* Plans of the same sizes lie together. */
static void check_all_products(void) {
    GemmPlans *plans = gemm_plans_create(), *widened = gemm_plans_create();
    low = DTYPE_BF16;
    check_products(plans, "products of bf16, by oneDNN where it has a kernel");
    gemm_refuse_native_low(true);
    check_products(widened, "products of bf16, widened block by block");
    gemm_refuse_native_low(false);
    low = DTYPE_F16;
    check_products(plans, "products of f16, widened block by block");
    gemm_plans_destroy(plans), gemm_plans_destroy(widened);
    gemm_release_cache();
}

int main(void) {
    check_bf16_rounding();
    check_f16_widening();
    check_f16_rounding();
    low = DTYPE_BF16;
    check_kernels();
    low = DTYPE_F16;
    check_kernels();
    check_all_products();
    return check_report();
}
