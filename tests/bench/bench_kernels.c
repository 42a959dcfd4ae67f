/* Speed of every CPU kernel at GPT-2 124M's shapes, next to what the machine gives at best: the
 * rate of a large matrix product and the bandwidth of memcpy (read + written bytes). The best of
 * several runs each. Threads: OMP_NUM_THREADS.   Usage: bench_kernels [name part] */
#include "runtime/cpu/attention.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/embedding.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/norm.h"
#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/philox.h"
#include "runtime/cpu/reduce.h"
#include "runtime/cpu/rotary.h"
#include "runtime/cpu/softmax.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *filter = "";
static double peak_gflops, peak_gbps;

static float *make(int64_t n) {
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    if (!x) exit(2);
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7919) % 2003 - 1001) * 1e-3f;
    return x;
}

/* Best seconds of `call`, run for at least a quarter of a second. */
#define BEST(out, call)                                                                            \
    do {                                                                                           \
        double begin_ = omp_get_wtime(), best_ = 1e9;                                              \
        for (int r_ = 0; r_ < 4 || omp_get_wtime() - begin_ < 0.25; r_++) {                        \
            double t_ = omp_get_wtime();                                                           \
            call;                                                                                  \
            t_ = omp_get_wtime() - t_;                                                             \
            best_ = t_ < best_ ? t_ : best_;                                                       \
        }                                                                                          \
        (out) = best_;                                                                             \
    } while (0)

static void report_flops(const char *name, double flops, double seconds) {
    printf("%-44s %9.3f ms %8.1f GF/s  %3.0f%% of sgemm\n", name, seconds * 1e3,
           flops / seconds * 1e-9, 100 * flops / seconds * 1e-9 / peak_gflops);
}

static void report_bytes(const char *name, double bytes, double seconds) {
    printf("%-44s %9.3f ms %8.1f GB/s  %3.0f%% of memcpy\n", name, seconds * 1e3,
           bytes / seconds * 1e-9, 100 * bytes / seconds * 1e-9 / peak_gbps);
}

#define BENCH_FLOPS(name, flops, call)                                                             \
    do {                                                                                           \
        double s_;                                                                                 \
        if (!strstr((name), filter)) break;                                                        \
        BEST(s_, call);                                                                            \
        report_flops((name), (flops), s_);                                                         \
    } while (0)
#define BENCH_BYTES(name, bytes, call)                                                             \
    do {                                                                                           \
        double s_;                                                                                 \
        if (!strstr((name), filter)) break;                                                        \
        BEST(s_, call);                                                                            \
        report_bytes((name), (bytes), s_);                                                         \
    } while (0)

static void measure_machine(void) {
    const int64_t n = 2048, bytes = (int64_t)256 << 20;
    float *a = make(n * n), *b = make(n * n), *c = make(n * n), *x = make(bytes / 4);
    float *y = make(bytes / 4);
    double s;
    BEST(s, gemm_f32(false, false, n, n, n, 1, a, n, b, n, 0, c, n));
    peak_gflops = 2e-9 * (double)(n * n * n) / s;
    const int64_t piece = (int64_t)1 << 16; /* floats: each thread copies its own pieces */
#pragma omp parallel
#pragma omp single
    printf("threads %d\n", omp_get_num_threads());
    double begin = omp_get_wtime(), best = 1e9;
    for (int r = 0; r < 4 || omp_get_wtime() - begin < 0.5; r++) {
        double t = omp_get_wtime();
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < bytes / 4; i += piece)
            memcpy(y + i, x + i, (size_t)piece * sizeof *x);
        t = omp_get_wtime() - t;
        best = t < best ? t : best;
    }
    peak_gbps = 2e-9 * (double)bytes / best;
    char version[64];
    gemm_library_version(version, sizeof version);
    printf("machine: sgemm 2048 %.1f GF/s (%s), memcpy %.1f GB/s\n", peak_gflops, version,
           peak_gbps);
    free(a), free(b), free(c), free(x), free(y);
}

static void bench_gemm(void) {
    const int64_t shapes[][3] = {{1024, 3072, 768}, {1024, 768, 3072}, {1024, 768, 768},
                                 {256, 3072, 768},  {256, 768, 3072},  {256, 768, 768},
                                 {256, 50257, 768}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
        float *x = make(m * k), *w = make(k * n), *y = make(m * n);
        const double flops = 2.0 * (double)m * (double)n * (double)k;
        char name[64];
        snprintf(name, sizeof name, "gemm forward NN %dx%dx%d", (int)m, (int)n, (int)k);
        BENCH_FLOPS(name, flops, gemm_f32(false, false, m, n, k, 1, x, k, w, n, 0, y, n));
        snprintf(name, sizeof name, "gemm dX NT %dx%dx%d", (int)m, (int)k, (int)n);
        BENCH_FLOPS(name, flops, gemm_f32(false, true, m, k, n, 1, y, n, w, n, 0, x, k));
        snprintf(name, sizeof name, "gemm dW TN %dx%dx%d", (int)k, (int)n, (int)m);
        BENCH_FLOPS(name, flops, gemm_f32(true, false, k, n, m, 1, x, k, y, n, 0, w, n));
        free(x), free(w), free(y);
    }
}

static void bench_attention(void) {
    const AttentionShape shapes[] = {
        {4, 512, 12, 1, 64, true, 0.125f, DTYPE_F32, 0, 0, 0, {0}},
        {2, 1024, 12, 1, 64, true, 0.125f, DTYPE_F32, 0, 0, 0, {0}},
        {2, 1024, 12, 1, 64, false, 0.125f, DTYPE_F32, 0, 0, 0, {0}},
        {2, 1024, 4, 4, 128, true, 0.0883883f, DTYPE_F32, 0, 0, 0, {0}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const AttentionShape s = shapes[i];
        const int64_t rows = s.batch * s.seq * s.kv_heads * s.group, n = rows * s.head;
        float *q = make(n), *k = make(n / s.group), *v = make(n / s.group), *o = make(n);
        float *lse = make(rows), *d_o = make(n), *dq = make(n), *dk = make(n / s.group);
        float *dv = make(n / s.group);
        const double keys = s.causal ? (double)(s.seq + 1) / 2 : (double)s.seq;
        const double flops = 4.0 * (double)n * keys; /* of the keys that rows really see */
        char name[64];
        snprintf(name, sizeof name, "attention forward %s s%d h%d g%d",
                 s.causal ? "causal" : "full", (int)s.seq, (int)s.head, (int)s.group);
        BENCH_FLOPS(name, flops, attention_forward(&s, q, k, v, o, lse, NULL));
        snprintf(name, sizeof name, "attention backward %s s%d h%d g%d",
                 s.causal ? "causal" : "full", (int)s.seq, (int)s.head, (int)s.group);
        BENCH_FLOPS(name, 2.5 * flops,
                    attention_backward(&s, q, k, v, o, lse, d_o, dq, dk, dv, NULL));
        free(q), free(k), free(v), free(o), free(lse), free(d_o), free(dq), free(dk), free(dv);
    }
}

static void bench_layers(void) {
    const int64_t rows = 8192, n = 768, seq = 1024, heads = 12, head = 64;
    float *x = make(rows * n), *y = make(rows * n), *z = make(rows * n), *gain = make(n);
    float *bias = make(n), *mean = make(rows), *inv = make(rows);
    float *work = make((int64_t)norm_backward_workspace_bytes(rows, n) / 4);
    const double bytes = 4.0 * (double)(rows * n);
    BENCH_BYTES("layernorm forward", 2 * bytes,
                layernorm_forward(DTYPE_F32, rows, n, x, gain, bias, 1e-5f, y, mean, inv));
    BENCH_BYTES("layernorm backward", 3 * bytes,
                layernorm_backward(DTYPE_F32, rows, n, x, gain, mean, inv, y, z, bias, bias, work));
    BENCH_BYTES("rmsnorm forward", 2 * bytes,
                rmsnorm_forward(DTYPE_F32, rows, n, x, gain, 1e-5f, y, inv));
    BENCH_BYTES("rmsnorm backward", 3 * bytes,
                rmsnorm_backward(DTYPE_F32, rows, n, x, gain, inv, y, z, bias, work));
    BENCH_BYTES("rotary", 2 * bytes,
                rotary_apply(DTYPE_F32, rows / seq, seq, heads, head, head, &(DimSpan){0}, 10000.0,
                             NULL, 1, x, y));
    float *table = make(50257 * n);
    int32_t *tokens = (int32_t *)make(rows);
    for (int64_t i = 0; i < rows; i++) tokens[i] = (int32_t)(i * 7919 % 50257);
    BENCH_BYTES("embedding forward", 2 * bytes,
                embedding_forward(DTYPE_F32, rows, n, 50257, 0, tokens, table, y));
    BENCH_BYTES("embedding backward, accumulating", 3 * bytes,
                embedding_backward(DTYPE_F32, rows, n, 50257, 0, tokens, y, true, table));
    free(x), free(y), free(z), free(gain), free(bias), free(mean), free(inv), free(work);
    free(table), free(tokens);
}

static void bench_softmax(void) {
    const int64_t rows = 512, n = 50304, valid = 50257;
    float *x = make(rows * n), *lse = make(rows), *dloss = make(rows);
    int32_t *labels = (int32_t *)make(rows);
    for (int64_t i = 0; i < rows; i++) labels[i] = (int32_t)(i * 97);
    const double bytes = 4.0 * (double)(rows * n);
    BENCH_BYTES("logsumexp", bytes, softmax_logsumexp(DTYPE_F32, rows, n, valid, x, lse));
    for (int64_t i = 0; i < rows; i++) lse[i] = 10;
    BENCH_BYTES(
        "cross_entropy_grad in place", 2 * bytes,
        softmax_cross_entropy_grad(DTYPE_F32, rows, n, valid, 0, x, labels, lse, dloss, NULL, x));
    free(x), free(lse), free(dloss), free(labels);
}

static void bench_program(const char *name, const ElementwiseInstr *instr, int n_instr, int n_in,
                          bool bias) {
    const int64_t rows = 8192, n = 3072;
    const uint64_t seed = 1, step = 2;
    const int train = 1;
    float *in[3] = {make(rows * n), make(rows * n), make(rows * n)}, *out = make(rows * n);
    ElementwiseSpec spec = {.n_dims = 2,
                            .dims = {rows, n},
                            .n_in = n_in,
                            .in = {in[0], in[1], in[2]},
                            .in_stride = {{n, 1}, {bias ? 0 : n, 1}, {n, 1}},
                            .n_out = 1,
                            .out = {out},
                            .out_register = {instr[n_instr - 1].dst},
                            .n_instr = n_instr,
                            .instr = instr,
                            .global_stride = {(uint64_t)n, 1},
                            .seed = &seed,
                            .step = &step,
                            .train = &train};
    ElementwiseCall call;
    const char *why;
    if (!elementwise_prepare(&spec, &call, &why)) exit(2);
    BENCH_BYTES(name, 4.0 * (double)(rows * n) * (n_in + 1 - bias), elementwise_run(&call));
    free(in[0]), free(in[1]), free(in[2]), free(out);
}

static void bench_elementwise(void) {
    bench_program("elementwise add", (ElementwiseInstr[]){{.op = EW_ADD, .dst = 2, .arg = {0, 1}}},
                  1, 2, false);
    bench_program("elementwise scale",
                  (ElementwiseInstr[]){{.op = EW_SCALE, .dst = 1, .arg = {0}, .imm = 2}}, 1, 1,
                  false);
    bench_program("elementwise exp", (ElementwiseInstr[]){{.op = EW_EXP, .dst = 1, .arg = {0}}}, 1,
                  1, false);
    bench_program("elementwise gelu", (ElementwiseInstr[]){{.op = EW_GELU, .dst = 1, .arg = {0}}},
                  1, 1, false);
    bench_program("elementwise gelu_grad",
                  (ElementwiseInstr[]){{.op = EW_GELU_GRAD, .dst = 2, .arg = {0, 1}}}, 1, 2, false);
    bench_program("elementwise gelu_erf",
                  (ElementwiseInstr[]){{.op = EW_GELU_ERF, .dst = 1, .arg = {0}}}, 1, 1, false);
    bench_program("elementwise bias + gelu",
                  (ElementwiseInstr[]){{.op = EW_ADD, .dst = 2, .arg = {0, 1}},
                                       {.op = EW_GELU, .dst = 3, .arg = {2}}},
                  2, 2, true);
    bench_program("elementwise dropout",
                  (ElementwiseInstr[]){{.op = EW_DROPOUT, .dst = 1, .arg = {0}, .imm = 0.1f}}, 1, 1,
                  false);
    bench_program("elementwise bias, dropout, residual",
                  (ElementwiseInstr[]){{.op = EW_ADD, .dst = 3, .arg = {0, 1}},
                                       {.op = EW_DROPOUT, .dst = 4, .arg = {3}, .imm = 0.1f},
                                       {.op = EW_ADD, .dst = 5, .arg = {4, 2}}},
                  3, 3, true);
}

static void bench_rest(void) {
    const int64_t rows = 8192, n = 3072, total = rows * n;
    float *x = make(total), *y = make(total), *z = make(total), *w = make(total), scalar;
    const double bytes = 4.0 * (double)total;
    const int64_t dims[] = {rows, n};
    BENCH_BYTES("reduce_sum leading axis (bias gradient)", bytes,
                reduce_sum(2, dims, (bool[]){true, false}, x, DTYPE_F32, false, y, DTYPE_F32));
    BENCH_BYTES("reduce_sum trailing axis", bytes,
                reduce_sum(2, dims, (bool[]){false, true}, x, DTYPE_F32, false, y, DTYPE_F32));
    BENCH_BYTES("reduce_sum everything", bytes,
                reduce_sum(2, dims, (bool[]){true, true}, x, DTYPE_F32, false, y, DTYPE_F32));
    BENCH_BYTES("reduce_sum_squares", bytes, reduce_sum_squares(x, DTYPE_F32, total, &scalar));
    BENCH_BYTES("reduce_first_nonfinite", bytes, reduce_first_nonfinite(x, DTYPE_F32, total));
    BENCH_BYTES("permute: transpose", 2 * bytes,
                reduce_permute(2, dims, (int[]){1, 0}, DTYPE_F32, x, y));
    const int64_t heads[] = {8, 1024, 48, 64};
    BENCH_BYTES("permute: batch seq head <-> batch head seq", 2 * bytes,
                reduce_permute(4, heads, (int[]){0, 2, 1, 3}, DTYPE_F32, x, y));
    const AdamwConfig adamw = {0.9, 0.95, 1e-8, 0.1, 1, DTYPE_F32, DTYPE_F32};
    const SgdConfig sgd = {0.9, 0, 1, false, DTYPE_F32, DTYPE_F32};
    const float lr = 1e-6f, step = 10, clip = 1;
    for (int64_t i = 0; i < total; i++) w[i] = z[i] = 1e-3f;
    BENCH_BYTES("adamw", 7 * bytes,
                optimizer_adamw(&adamw, total, &lr, &step, &clip, x, y, z, w, NULL));
    const AdamwConfig low = {0.9, 0.95, 1e-8, 0.1, 1, DTYPE_F32, DTYPE_BF16};
    BENCH_BYTES(
        "adamw, states in bf16", 5 * bytes,
        optimizer_adamw(&low, total, &lr, &step, &clip, x, y, (uint16_t *)z, (uint16_t *)w, NULL));
    const AdamwConfig codes = {0.9, 0.95, 1e-8, 0.1, 1, DTYPE_F32, DTYPE_DYN8};
    memset(z, 0, (size_t)bytes), memset(w, 0, (size_t)bytes);
    BENCH_BYTES("adamw, states in 8 bits", 4 * bytes,
                optimizer_adamw(&codes, total, &lr, &step, &clip, x, y, z, w, NULL));
    memset(z, 0, (size_t)bytes);
    BENCH_BYTES("sgd with momentum", 5 * bytes,
                optimizer_sgd(&sgd, total, &lr, &clip, x, y, z, NULL));
    const PhiloxStream stream = {.seed = 1};
    const PhiloxSpace space = {.n_dims = 1, .dims = {total}, .stride = {1}};
    BENCH_BYTES("philox uniform", bytes, philox_fill_uniform(&stream, &space, 0, 1, x));
    BENCH_BYTES("philox normal", bytes, philox_fill_normal(&stream, &space, 0, 1, x));
    free(x), free(y), free(z), free(w);
}

int main(int argc, char **argv) {
    if (argc > 1) filter = argv[1];
    measure_machine();
    bench_gemm();
    bench_attention();
    bench_layers();
    bench_softmax();
    bench_elementwise();
    bench_rest();
    gemm_release_cache();
    return 0;
}
