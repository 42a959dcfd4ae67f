/* Products as cuBLASLt is told them, on the fake, against float64: operands and results of every
 * dtype that the IR lets them have, transposed, with an addend and with a bias.
 *
 * Would catch: a dtype told as another, operands that are swapped or told with the wrong leading
 * dimension, a bias of another dtype than the result's.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip products by cuBLASLt: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cpu/vec_low.h"
#include "runtime/cuda/driver/gemm.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/reference_eval.h"

#include <math.h>
#include <stdlib.h>

enum { M = 5, N = 8, K = 19, BYTES = 4096, WORKSPACE = 1 << 16 };

typedef struct Case {
    DType in, out;
    bool transpose_a, transpose_b, addend, bias;
} Case;

/* Memory of the fake's device, which is the host's. */
typedef struct Operands {
    void *a, *b, *c, *d, *bias, *workspace;
} Operands;

static uint64_t state = 11;

/* In [-1, 1), rounded when they are stored. */
static void fill(void *to, DType dtype, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        vec_put(to, dtype, i, (float)(int32_t)(state >> 32) * 0x1p-31f);
    }
}

static GemmCommand make_command(const Case *c, const Operands *o) {
    return (GemmCommand){.layout = {.batch = 1,
                                    .m = M,
                                    .n = N,
                                    .k = K,
                                    .transpose_a = c->transpose_a,
                                    .transpose_b = c->transpose_b},
                         .in_dtype = c->in,
                         .out_dtype = c->out,
                         .a = o->a,
                         .b = o->b,
                         .c = c->addend ? o->c : NULL,
                         .d = o->d,
                         .beta = c->addend,
                         .bias = c->bias ? o->bias : NULL};
}

static double expected_at(const Case *c, const Operands *o, int m, int n) {
    double sum = 0;
    for (int k = 0; k < K; k++) {
        sum += (double)vec_get(o->a, c->in, c->transpose_a ? k * M + m : m * K + k) *
               (double)vec_get(o->b, c->in, c->transpose_b ? n * K + k : k * N + n);
    }
    if (c->addend) sum += (double)vec_get(o->c, c->out, m * N + n);
    if (c->bias) sum += (double)vec_get(o->bias, c->out, n);
    return sum;
}

/* Sums of 19 products in f32, and the rounding of the result. */
static void compare(const Case *c, const Operands *o) {
    for (int i = 0; i < M * N; i++) {
        double expected = expected_at(c, o, i / N, i % N), got = (double)vec_get(o->d, c->out, i);
        double error = fabs(got - expected), allowed = 1e-5 + reference_rounding(c->out, expected);
        CHECK(error <= allowed, "row %d, column %d: %.9g instead of %.9g", i / N, i % N, got,
              expected);
    }
}

static void check_case(const Case *c) {
    char name[100];
    Operands o;
    CudaDevice device;
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    cudaStream_t stream;
    snprintf(name, sizeof(name), "%s x %s to %s%s%s%s%s", dtype_name(c->in), dtype_name(c->in),
             dtype_name(c->out), c->transpose_a ? ", left transposed" : "",
             c->transpose_b ? ", right transposed" : "", c->addend ? ", an addend" : "",
             c->bias ? ", a bias" : "");
    check_begin(name);
    const CuApi *api = fake_cuda_create(&(FakeOptions){.poison = true});
    void **memory[] = {&o.a, &o.b, &o.c, &o.d, &o.bias, &o.workspace};
    bool fine = cuda_device_open(&device, api, 0, diag) &&
                api->cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
    for (int i = 0; fine && i < 6; i++) {
        fine = api->cudaMalloc(memory[i], i == 5 ? WORKSPACE : BYTES) == cudaSuccess;
    }
    CHECK(fine, "%s", diag_text(diag));
    if (!fine) exit(1);
    fill(o.a, c->in, M * K), fill(o.b, c->in, K * N);
    fill(o.c, c->out, M * N), fill(o.bias, c->out, N);
    GemmTable *table = gemm_table_create(&device, false, WORKSPACE, arena);
    GemmCommand command = make_command(c, &o);
    const GemmEntry *entry = gemm_table_find(table, &command, diag);
    CHECK(entry, "%s", diag_text(diag));
    if (entry) {
        cublasStatus_t status = gemm_issue(table, entry, &command, o.workspace, stream);
        CHECK(status == CUBLAS_STATUS_SUCCESS, "status %d", (int)status);
        CHECK(api->cudaStreamSynchronize(stream) == cudaSuccess, "the stream");
        compare(c, &o);
    }
    gemm_table_destroy(table);
    for (int i = 0; i < 6; i++) api->cudaFree(*memory[i]);
    api->cudaStreamDestroy(stream);
    cuda_device_close(&device);
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
    fake_cuda_destroy();
    arena_destroy(arena);
    diag_destroy(diag);
    check_end();
}

int main(void) {
    static const DType DTYPES[][2] = {{DTYPE_F32, DTYPE_F32},
                                      {DTYPE_BF16, DTYPE_BF16},
                                      {DTYPE_BF16, DTYPE_F32},
                                      {DTYPE_F16, DTYPE_F16},
                                      {DTYPE_F16, DTYPE_F32}};
    for (size_t i = 0; i < sizeof(DTYPES) / sizeof(DTYPES[0]); i++) {
        const DType in = DTYPES[i][0], out = DTYPES[i][1];
        check_case(&(Case){in, out, false, false, false, false});
        check_case(&(Case){in, out, true, false, true, false});
        check_case(&(Case){in, out, false, true, false, true});
    }
    return check_report();
}
#endif
