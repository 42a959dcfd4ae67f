/* Kernels on bf16: rounding itself, products (oneDNN's and widened block by block), and every
 * kernel on sizes past its tiles against the same kernel on f32 operands of the same values.
 *
 * Would catch: truncation for rounding, a NaN that becomes infinite, a sum that is kept in bf16, a
 * block or tile border, a result left unwritten, an operand widened from the wrong place.
 */
#include "runtime/cpu/vec.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/attention.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/embedding.h"
#include "runtime/cpu/gemm_widened.h"
#include "runtime/cpu/norm.h"
#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/reduce.h"
#include "runtime/cpu/rotary.h"
#include "runtime/cpu/softmax.h"
#include "tests/unit/kernel_check.h"

/* An array of bf16 and the same numbers as f32. */
typedef struct Pair {
    int64_t n;
    uint16_t *low;
    float *wide;
} Pair;

static Pair new_pair(int64_t n) {
    Pair pair = {n, kc_alloc((size_t)n * sizeof(uint16_t)), kc_random(n)};
    vec_bf16_store(pair.wide, pair.low, n);
    vec_bf16_load(pair.low, pair.wide, n);
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

/* The bf16 results are the f32 ones rounded: half of what neighbours are apart, and f32's error. */
static bool is_rounded(const Pair *pair) {
    for (int64_t i = 0; i < pair->n; i++) {
        double low = (double)vec_bf16_widen(pair->low[i]), wide = (double)pair->wide[i];
        if (!(fabs(low - wide) <= ldexp(fabs(wide), -8) + 2e-6)) return false;
    }
    return true;
}

static void check_rounding(void) {
    check_begin("rounding to nearest even; every bf16 stays itself");
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
    void *out = s->out_low ? kc_alloc((size_t)n_out * 2) : (void *)kc_copy(c, n_out);
    reference_product(s, a.wide, b.wide, c, want);
    if (!s->accumulate) memset(out, 0xff, (size_t)n_out * (s->out_low ? 2 : 4));
    const GemmPlan *plan = gemm_plan_bf16(plans, s);
    CHECK(plan && plan == gemm_plan_bf16(plans, s), "%s", gemm_status_text());
    for (int run = 0; plan && run < (s->accumulate ? 1 : 2); run++)
        CHECK(gemm_run_bf16(plan, a.low, b.low, out, workspace), "%s", gemm_status_text());
    double worst = 0;
    for (int64_t i = 0; i < n_out; i++) {
        double x = (double)vec_get(out, s->out_low, i);
        double allowed =
            (s->out_low ? ldexp(fabs(want[i]), -8) : 0) + 2e-6 * (1 + sqrt((double)s->k));
        double error = fabs(x - want[i]) / allowed;
        if (!(error <= worst)) worst = error;
    }
    CHECK(worst <= 1, "ta%d tb%d %dx%dx%d batch %d: %.3g of what rounding explains", s->ta, s->tb,
          (int)s->m, (int)s->n, (int)s->k, (int)s->batch, worst);
    free_pair(&a), free_pair(&b);
    free(c), free(want), free(workspace), free(out);
}

static void check_products(const char *name) {
    static const int64_t SIZES[][4] = {
        {1, 1, 1, 1},   {1, 3, 5, 7},    {1, 17, 31, 33},  {4, 5, 6, 9},      {1, 1, 300, 70},
        {1, 64, 1, 48}, {1, 64, 96, 32}, {1, 521, 30, 77}, {1, 33, 515, 260}, {2, 20, 24, 530}};
    GemmPlans *plans = gemm_plans_create();
    check_begin(name);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int form = 0; form < 12; form++) {
            GemmShape s = {.batch = 0};
            s.batch = SIZES[i][0], s.m = SIZES[i][1], s.n = SIZES[i][2], s.k = SIZES[i][3];
            s.ta = form & 1;
            s.tb = form >> 1 & 1;
            s.out_low = form >> 2 == 1;
            s.accumulate = form >> 2 == 2;
            check_product(plans, &s);
        }
    check_end();
    gemm_plans_destroy(plans);
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
        for (int low = 0; low < 2; low++) {
            void *px = low ? (void *)x.low : x.wide, *py = low ? (void *)y.low : y.wide;
            void *pdy = low ? (void *)dy.low : dy.wide, *pdx = low ? (void *)dx.low : dx.wide;
            if (rms) {
                rmsnorm_forward(low, ROWS, N, px, gain, 1e-5f, py, inv[low]);
                rmsnorm_backward(low, ROWS, N, px, gain, inv[low], pdy, pdx, dgain[low], work);
            } else {
                layernorm_forward(low, ROWS, N, px, gain, bias, 1e-5f, py, mean[low], inv[low]);
                layernorm_backward(low, ROWS, N, px, gain, mean[low], inv[low], pdy, pdx,
                                   dgain[low], dbias[low], work);
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
    const int64_t n_k = n_q / s.group, rows = n_q / s.head;
    Pair q = new_pair(n_q), k = new_pair(n_k), v = new_pair(n_k), d_o = new_pair(n_q);
    Pair o = new_result(n_q), dq = new_result(n_q), dk = new_result(n_k), dv = new_result(n_k);
    float *lse[2] = {kc_zeros(rows), kc_zeros(rows)}, *work = kc_zeros(2 * n_k);
    s.low = false;
    CHECK(attention_forward(&s, q.wide, k.wide, v.wide, o.wide, lse[0]), "refused");
    s.low = true;
    CHECK(attention_forward(&s, q.low, k.low, v.low, o.low, lse[1]), "refused");
    CHECK(is_rounded(&o), "o is not the f32 one rounded");
    CHECK(kc_same_bits(lse[0], lse[1], rows), "the log-sum-exps differ");
    CHECK(attention_backward(&s, q.low, k.low, v.low, o.low, lse[1], d_o.low, dq.low, dk.low,
                             dv.low, work),
          "refused");
    vec_bf16_load(o.low, o.wide, n_q); /* what the gradient reads is the rounded one */
    s.low = false;
    CHECK(attention_backward(&s, q.wide, k.wide, v.wide, o.wide, lse[0], d_o.wide, dq.wide, dk.wide,
                             dv.wide, NULL),
          "refused");
    CHECK(is_rounded(&dq) && is_rounded(&dk) && is_rounded(&dv),
          "a gradient is not the f32 one rounded");
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
    for (int low = 0; low < 2; low++) {
        const void *logits = low ? (void *)x.low : x.wide;
        softmax_logsumexp(low, ROWS, N, VALID, logits, lse[low]);
        softmax_pick(low, ROWS, N, VALID, OFFSET, logits, labels, picked[low]);
        softmax_cross_entropy_grad(low, ROWS, N, VALID, OFFSET, logits, labels, lse[low], dloss,
                                   low ? (void *)dx.low : dx.wide);
    }
    check_begin("log-sum-exp, pick and the gradient of cross-entropy");
    CHECK(kc_same_bits(lse[0], lse[1], ROWS), "log-sum-exp");
    CHECK(kc_same_bits(picked[0], picked[1], ROWS), "pick");
    CHECK(is_rounded(&dx), "the gradient is not the f32 one rounded");
    for (int low = 0; low < 2; low++) free(lse[low]), free(picked[low]);
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
        reduce_sum(3, dims, reduced, x.wide, false, false, sum.wide, false);
        reduce_sum(3, dims, reduced, x.low, true, false, sum.low, true);
        float *wide = kc_zeros(sum.n);
        reduce_sum(3, dims, reduced, x.low, true, false, wide, false);
        CHECK(is_rounded(&sum), "sum over %d is not the f32 one rounded", mask);
        CHECK(kc_same_bits(wide, sum.wide, sum.n), "sum over %d kept in f32 differs", mask);
        free(wide);
    }
    static const int ORDERS[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}, {2, 0, 1}};
    for (int i = 0; i < 5; i++) {
        reduce_permute(3, dims, ORDERS[i], false, x.wide, moved.wide);
        reduce_permute(3, dims, ORDERS[i], true, x.low, moved.low);
        vec_bf16_load(moved.low, sum.wide, N);
        CHECK(kc_same_bits(sum.wide, moved.wide, N), "order %d %d %d", ORDERS[i][0], ORDERS[i][1],
              ORDERS[i][2]);
    }
    check_end();
    check_begin("the first value that is not finite");
    CHECK(reduce_first_nonfinite(x.low, true, N) == -1, "finite");
    x.low[N - 2] = 0xff80; /* -infinity */
    CHECK(reduce_first_nonfinite(x.low, true, N) == N - 2, "infinity");
    x.low[9001] = 0x7fc0;
    CHECK(reduce_first_nonfinite(x.low, true, N) == 9001, "NaN");
    check_end();
    sum.n = N;
    free_pair(&x), free_pair(&sum), free_pair(&moved);
}

static void check_rows(void) {
    enum { SEQ = 70, INNER = 3, HEAD = 66, N = 2 * SEQ * INNER * HEAD };
    Pair x = new_pair(N), y = new_result(N);
    check_begin("rotary, in place and not");
    rotary_apply(false, 2, SEQ, INNER, HEAD, 5, 10000, 1, x.wide, y.wide);
    rotary_apply(true, 2, SEQ, INNER, HEAD, 5, 10000, 1, x.low, y.low);
    CHECK(is_rounded(&y), "is not the f32 one rounded");
    rotary_apply(true, 2, SEQ, INNER, HEAD, 5, 10000, 1, x.low, x.low);
    CHECK(memcmp(x.low, y.low, N * sizeof(uint16_t)) == 0, "in place it differs");
    check_end();
    enum { TOKENS = 50, VOCAB = 40, MODEL = 300 };
    Pair table = new_pair(VOCAB * MODEL), out = new_result(TOKENS * MODEL);
    Pair dy = new_pair(TOKENS * MODEL);
    float *sums[2] = {kc_random(VOCAB * MODEL)};
    int32_t tokens[TOKENS];
    sums[1] = kc_copy(sums[0], VOCAB * MODEL);
    for (int i = 0; i < TOKENS; i++) tokens[i] = 7 * i % 60;
    check_begin("embedding");
    embedding_forward(false, TOKENS, MODEL, VOCAB, 10, tokens, table.wide, out.wide);
    embedding_forward(true, TOKENS, MODEL, VOCAB, 10, tokens, table.low, out.low);
    CHECK(is_rounded(&out), "the rows differ");
    embedding_backward(false, TOKENS, MODEL, VOCAB, 10, tokens, dy.wide, true, sums[0]);
    embedding_backward(true, TOKENS, MODEL, VOCAB, 10, tokens, dy.low, true, sums[1]);
    CHECK(kc_same_bits(sums[0], sums[1], VOCAB * MODEL), "the gradients differ");
    check_end();
    Pair *all[] = {&x, &y, &table, &out, &dy};
    for (int i = 0; i < 5; i++) free_pair(all[i]);
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
    for (int variant = 0; variant < 3; variant++) { /* f32; bf16; bf16 with out0 in x */
        bool low = variant > 0;
        ElementwiseSpec spec = {.n_dims = 2,
                                .dims = {rows, n},
                                .n_in = 2,
                                .in = {low ? (void *)x.low : x.wide, low ? (void *)b.low : b.wide},
                                .in_low = {low, low},
                                .in_stride = {{n, 1}, {0, 1}},
                                .n_out = 2,
                                .out = {variant == 2 ? x.low
                                        : low        ? (void *)y.low
                                                     : y.wide,
                                        z.wide},
                                .out_low = {low, false},
                                .out_register = {3, 4},
                                .n_instr = 3,
                                .instr = instr};
        ElementwiseCall call;
        const char *why = "";
        CHECK(elementwise_prepare(&spec, &call, &why), "%s", why);
        float *product = kc_copy(z.wide, rows * n);
        elementwise_run(&call);
        if (low) CHECK(kc_same_bits(product, z.wide, rows * n), "the f32 result differs");
        free(product);
    }
    CHECK(is_rounded(&y), "the bf16 result is not the f32 one rounded");
    CHECK(memcmp(x.low, y.low, (size_t)(rows * n) * sizeof(uint16_t)) == 0, "in place it differs");
    free_pair(&x), free_pair(&b), free_pair(&y), free_pair(&z);
}

static void check_copies(void) {
    enum { N = 20001 };
    float *p = kc_random(N), *g = kc_random(N), *m = kc_zeros(N), *v = kc_zeros(N);
    uint16_t *copy = kc_alloc(N * sizeof(uint16_t));
    const float lr = 0.01f, step = 1, bad = INFINITY;
    const AdamwConfig adamw = {0.9, 0.95, 1e-8, 0.1};
    check_begin("optimizers write the copy with the parameter, or neither");
    for (int kind = 0; kind < 3; kind++) {
        const SgdConfig sgd = {.momentum = kind == 1 ? 0.9 : 0};
        for (int finite = 0; finite < 2; finite++) {
            const float *clip = finite ? NULL : &bad;
            memset(copy, 0x11, N * sizeof(uint16_t));
            if (kind == 2)
                optimizer_adamw(&adamw, N, &lr, &step, clip, g, p, m, v, copy);
            else
                optimizer_sgd(&sgd, N, &lr, clip, g, p, m, copy);
            bool fine = true;
            for (int i = 0; i < N; i++) {
                fine &= copy[i] == (finite ? vec_bf16_round(p[i]) : 0x1111);
            }
            CHECK(fine, "optimizer %d, %s gradients", kind, finite ? "finite" : "infinite");
        }
    }
    check_end();
    free(p), free(g), free(m), free(v), free(copy);
}

int main(void) {
    check_rounding();
    check_products("products, by oneDNN where it has a kernel");
    gemm_refuse_native_bf16(true);
    check_products("products, widened block by block");
    gemm_refuse_native_bf16(false);
    check_norms();
    check_begin("attention and its gradient");
    check_attention((AttentionShape){1, 1, 1, 1, 1, true, 1.0f, false});
    check_attention((AttentionShape){2, 150, 2, 3, 24, true, 0.2f, false});
    check_attention((AttentionShape){1, 130, 1, 1, 65, false, 0.125f, false});
    check_end();
    check_losses();
    check_layouts();
    check_rows();
    check_begin("elementwise programs");
    check_elementwise(5, 3001);
    check_elementwise(700, 37);
    check_elementwise(1, 1);
    check_end();
    check_copies();
    gemm_release_cache();
    return check_report();
}
