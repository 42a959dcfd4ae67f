/* Products as cuBLASLt is told them, on the fake, against float64: operands and results of every
 * dtype that the IR lets them have, transposed, with an addend and with a bias; fp8 with scales.
 *
 * Would catch: a dtype told as another, operands that are swapped or told with the wrong leading
 * dimension, a bias of another dtype than the result's, scales of the other operand or of the other
 * form, a product of fp8 that the library has not and nobody is told of; a kernel that is fastest
 * for sums with a bias but not among those that the heuristic has for them, or that does not run.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip products by cuBLASLt: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cpu/vec_low.h"

#include "runtime/cpu/quantize.h"
#include "runtime/cuda/driver/gemm.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/reference_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { M = 5, N = 8, K = 19, BYTES = 1 << 18, WORKSPACE = 1 << 16 };

typedef struct Case {
    DType in, out;
    bool transpose_a, transpose_b, addend, bias;
    int m, n, k;        /* 0: M, N and K */
    ScaleForm forms[2]; /* of fp8 */
} Case;

/* The heuristic's first algorithm for sums does not run for those with a bias. */
static bool refused;

static Case with_sizes(const Case *c) {
    Case sized = *c;
    if (!c->m) sized.m = M, sized.n = N, sized.k = K;
    return sized;
}

/* Memory of the fake's device, which is the host's. */
typedef struct Operands {
    void *a, *b, *c, *d, *bias, *scales[2], *workspace;
} Operands;

static uint64_t state = 11;

/* In [-1, 1), rounded when they are stored. */
static void fill(void *to, DType dtype, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        vec_put(to, dtype, i, (float)(int32_t)(state >> 32) * 0x1p-31f);
    }
}

/* fp8 of at most 1.875, and powers of two. */
static void fill_fp8(uint8_t *to, int n) {
    fill((void *)to, DTYPE_F32, n / (int)sizeof(float));
    for (int i = 0; i < n; i++) to[i] &= 0xbf;
}

static void fill_scales(float *to, int n) {
    fill(to, DTYPE_F32, n);
    for (int i = 0; i < n; i++) to[i] = ldexpf(1, (int)floorf(2 * to[i]));
}

static GemmCommand make_command(const Case *c, const Operands *o) {
    bool fp8 = c->in == DTYPE_FP8;
    return (GemmCommand){.layout = {.batch = 1,
                                    .m = c->m,
                                    .n = c->n,
                                    .k = c->k,
                                    .transpose_a = c->transpose_a,
                                    .transpose_b = c->transpose_b},
                         .in_dtype = c->in,
                         .out_dtype = c->out,
                         .a = o->a,
                         .b = o->b,
                         .scales_a = {fp8 ? o->scales[0] : NULL, c->forms[0]},
                         .scales_b = {fp8 ? o->scales[1] : NULL, c->forms[1]},
                         .c = c->addend ? o->c : NULL,
                         .d = o->d,
                         .beta = c->addend,
                         .bias = c->bias ? o->bias : NULL};
}

/* Number k of row `own` of one of two factors, which has `n_own` rows. */
static double factor(const Case *c, const Operands *o, int which, int own, int k) {
    int n_own = which ? c->n : c->m;
    bool k_first = which ? !c->transpose_b : c->transpose_a;
    const void *x = which ? o->b : o->a;
    int at = k_first ? k * n_own + own : own * c->k + k;
    if (c->in != DTYPE_FP8) return (double)vec_get(x, c->in, at);
    bool tiles = c->forms[which] == SCALES_OF_TILES;
    int scale = tiles ? own / 128 * (c->k / 128) + k / 128 : k / 128 * n_own + own;
    return (double)fp8_widen(((const uint8_t *)x)[at]) *
           (double)((const float *)o->scales[which])[scale];
}

static double expected_at(const Case *c, const Operands *o, int m, int n) {
    double sum = 0;
    for (int k = 0; k < c->k; k++) sum += factor(c, o, 0, m, k) * factor(c, o, 1, n, k);
    if (c->addend) sum += (double)vec_get(o->c, c->out, m * c->n + n);
    if (c->bias) sum += (double)vec_get(o->bias, c->out, n);
    return sum;
}

/* Sums in f32 of 19 products below 1, or of 512 below 4, and the rounding of the result. */
static void compare(const Case *c, const Operands *o) {
    const double sums = c->in == DTYPE_FP8 ? 1e-3 : 1e-5;
    for (int i = 0; i < c->m * c->n; i++) {
        int row = i / c->n, column = i % c->n;
        double expected = expected_at(c, o, row, column), got = (double)vec_get(o->d, c->out, i);
        double error = fabs(got - expected), allowed = sums + reference_rounding(c->out, expected);
        CHECK(error <= allowed, "row %d, column %d: %.9g instead of %.9g", row, column, got,
              expected);
    }
}

static void fill_operands(const Case *c, const Operands *o) {
    fill(o->c, c->out, c->m * c->n), fill(o->bias, c->out, c->n);
    if (c->in != DTYPE_FP8) {
        fill(o->a, c->in, c->m * c->k), fill(o->b, c->in, c->k * c->n);
        return;
    }
    fill_fp8(o->a, c->m * c->k), fill_fp8(o->b, c->k * c->n);
    for (int i = 0; i < 2; i++) fill_scales(o->scales[i], (i ? c->n : c->m) * c->k / 128);
}

/* What the heuristic has for sums comes first for sums with a bias, too, as far as it runs. */
static void check_candidates(const GemmEntry *entry) {
    PlanAlgo algo = gemm_entry_algo(entry);
    uint64_t number;
    int n = gemm_entry_count_candidates(entry);
    memcpy(&number, (const char *)algo.bytes + sizeof(number), sizeof(number));
    CHECK(n == (refused ? 1 : 2), "%d candidates", n);
    CHECK(number == (uint64_t)refused, "number %llu is the first", (unsigned long long)number);
}

/* `says`: what is said of a product that there is none of; NULL: it is there. */
static void check_product(const Case *given, const char *says) {
    const Case sized = with_sizes(given), *c = &sized;
    char name[160];
    Operands o;
    CudaDevice device;
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    cudaStream_t stream;
    snprintf(name, sizeof(name), "%d x %d x %d: %s%s x %s%s to %s%s%s%s%s", c->m, c->n, c->k,
             dtype_name(c->in), c->forms[0] ? " in tiles" : "", dtype_name(c->in),
             c->forms[1] ? " in tiles" : "", dtype_name(c->out),
             c->transpose_a ? ", left transposed" : "", c->transpose_b ? ", right transposed" : "",
             c->addend ? ", an addend" : "",
             refused   ? ", a bias that one refuses"
             : c->bias ? ", a bias"
                       : "");
    check_begin(name);
    const CuApi *api =
        fake_cuda_create(&(FakeOptions){.poison = true, .less_with_bias = 1 + refused});
    enum { N_PARTS = 8 };
    void **memory[N_PARTS] = {&o.a,    &o.b,         &o.c,         &o.d,
                              &o.bias, &o.scales[0], &o.scales[1], &o.workspace};
    bool fine = cuda_device_open(&device, api, 0, diag) && cuda_device_start_blas(&device, diag) &&
                api->cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
    for (int i = 0; fine && i < N_PARTS; i++) {
        fine = api->cudaMalloc(memory[i], i == N_PARTS - 1 ? WORKSPACE : BYTES) == cudaSuccess;
    }
    CHECK(fine, "%s", diag_text(diag));
    if (!fine) exit(1);
    fill_operands(c, &o);
    GemmTable *table = gemm_table_create(&device, false, WORKSPACE, arena);
    GemmCommand command = make_command(c, &o);
    const GemmEntry *entry = gemm_table_find(table, &command, diag);
    CHECK(!entry == (says != NULL), "%s", diag_text(diag));
    CHECK(!says || strstr(diag_text(diag), says), "it says: %s", diag_text(diag));
    if (entry) {
        check_candidates(entry);
        cublasStatus_t status = gemm_issue(table, entry, &command, o.workspace, stream);
        CHECK(status == CUBLAS_STATUS_SUCCESS, "status %d", (int)status);
        CHECK(api->cudaStreamSynchronize(stream) == cudaSuccess, "the stream");
        compare(c, &o);
    }
    gemm_table_destroy(table);
    for (int i = 0; i < N_PARTS; i++) api->cudaFree(*memory[i]);
    api->cudaStreamDestroy(stream);
    cuda_device_close(&device);
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
    fake_cuda_destroy();
    arena_destroy(arena);
    diag_destroy(diag);
    check_end();
}

static void check_case(const Case *c) {
    check_product(c, NULL);
}

/* As a layer has them: rows times tiles, to bf16 with a bias; rows times rows, added to f32; and
 * what there is none of. */
static void check_fp8(void) {
    static const ScaleForm ROWS = SCALES_OF_ROWS, TILES = SCALES_OF_TILES;
    const DType in = DTYPE_FP8, low = DTYPE_BF16, wide = DTYPE_F32;
    const char *none = "has no product of fp8";
    check_case(&(Case){in, low, false, true, false, true, 32, 256, 512, {ROWS, TILES}});
    check_case(&(Case){in, low, false, true, true, false, 256, 32, 512, {TILES, ROWS}});
    check_case(&(Case){in, wide, false, true, true, false, 48, 32, 384, {ROWS, ROWS}});
    check_product(&(Case){in, low, false, true, false, false, 128, 128, 512, {TILES, TILES}}, none);
    check_product(&(Case){in, low, false, true, false, false, 32, 128, 384, {ROWS, TILES}}, none);
    check_product(&(Case){in, low, false, false, false, false, 32, 128, 512, {ROWS, ROWS}}, none);
    check_product(&(Case){in, low, false, true, false, false, 8, 128, 512, {ROWS, ROWS}}, none);
}

int main(void) {
    static const DType DTYPES[][2] = {{DTYPE_F32, DTYPE_F32},
                                      {DTYPE_BF16, DTYPE_BF16},
                                      {DTYPE_BF16, DTYPE_F32},
                                      {DTYPE_F16, DTYPE_F16},
                                      {DTYPE_F16, DTYPE_F32}};
    for (size_t i = 0; i < sizeof(DTYPES) / sizeof(DTYPES[0]); i++) {
        const DType in = DTYPES[i][0], out = DTYPES[i][1];
        check_case(&(Case){.in = in, .out = out});
        check_case(&(Case){.in = in, .out = out, .transpose_a = true, .addend = true});
        check_case(&(Case){.in = in, .out = out, .transpose_b = true, .bias = true});
        refused = true;
        check_case(&(Case){.in = in, .out = out, .addend = true, .bias = true});
        refused = false;
    }
    check_fp8();
    return check_report();
}
#endif
