#ifdef HAVE_CUDA

/* cuBLASLt: descriptors, and products by plain loops with sums in f32. */
#include "runtime/cpu/vec_low.h"

#include "runtime/cpu/quantize.h"
#include "runtime/cuda/driver/gemm.h"
#include "tests/support/fake_internal.h"
#include "tests/support/reference_eval.h"

#include <stdlib.h>
#include <string.h>

typedef struct Handle {
    FakeObject object;
} Handle;

typedef struct Desc {
    FakeObject object;
    cublasComputeType_t compute;
    cublasOperation_t op[2];
    uint32_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld, bias_stride;
    const float *scales[2]; /* of A and B */
    int32_t modes[2];
    bool loaded; /* a product has run with it */
} Desc;

/* The bits that epilogues are put together from. */
enum { HAS_BIAS = 4, HAS_GELU = 32, HAS_DGELU = 64, HAS_AUX = 128, HAS_BGRADA = 256 };

typedef struct Layout {
    FakeObject object;
    FakeMatrix matrix;
} Layout;

typedef struct Preference {
    FakeObject object;
    size_t workspace_bytes;
} Preference;

enum { ALGORITHM = 0x464c474f, N_ALGORITHMS = 2 };

static size_t version(void) {
    return CUBLAS_VERSION;
}

static const char *status_string(cublasStatus_t status) {
    static __thread char text[64];
    snprintf(text, sizeof(text), "the fake's status %d", (int)status);
    return text;
}

static cublasStatus_t create(cublasLtHandle_t *out) {
    *out = fake_new(FAKE_IS_BLAS, sizeof(Handle));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t end(const void *handle, FakeKind kind, const char *function) {
    return fake_end(handle, kind, function) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t destroy(cublasLtHandle_t handle) {
    return end(handle, FAKE_IS_BLAS, "cublasLtDestroy");
}

static cublasStatus_t desc_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                  cudaDataType_t scale) {
    if (scale != CUDA_R_32F ||
        (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    Desc *desc = fake_new(FAKE_IS_DESC, sizeof(*desc));
    desc->compute = compute;
    desc->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    desc->modes[0] = desc->modes[1] = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    *out = (cublasLtMatmulDesc_t)desc;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_destroy(cublasLtMatmulDesc_t desc) {
    return end(desc, FAKE_IS_DESC, "cublasLtMatmulDescDestroy");
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes) {
    Desc *d = fake_get(desc, FAKE_IS_DESC, "cublasLtMatmulDescSetAttribute");
    if (!d) return CUBLAS_STATUS_INVALID_VALUE;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        void *to;
        size_t bytes;
    } known[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &d->op[0], sizeof(d->op[0])},
        {CUBLASLT_MATMUL_DESC_TRANSB, &d->op[1], sizeof(d->op[1])},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue, sizeof(d->epilogue)},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d->bias, sizeof(d->bias)},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &d->aux, sizeof(d->aux)},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &d->aux_ld, sizeof(d->aux_ld)},
        {CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &d->bias_stride, sizeof(d->bias_stride)},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &d->scales[0], sizeof(d->scales[0])},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &d->scales[1], sizeof(d->scales[1])},
        {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &d->modes[0], sizeof(d->modes[0])},
        {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &d->modes[1], sizeof(d->modes[1])},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].attribute != attribute) continue;
        if (bytes != known[i].bytes) return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(known[i].to, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    fake_defect("cublasLtMatmulDescSetAttribute: attribute %d is not imitated", attribute);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                    uint64_t columns, int64_t ld) {
    if (type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F && type != CUDA_R_8F_E4M3)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!rows || !columns || ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    Layout *layout = fake_new(FAKE_IS_LAYOUT, sizeof(*layout));
    layout->matrix = (FakeMatrix){.type = (int)type,
                                  .rows = (int64_t)rows,
                                  .columns = (int64_t)columns,
                                  .ld = ld,
                                  .batch = 1};
    *out = (cublasLtMatrixLayout_t)layout;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout) {
    return end(layout, FAKE_IS_LAYOUT, "cublasLtMatrixLayoutDestroy");
}

static cublasStatus_t layout_set(cublasLtMatrixLayout_t layout,
                                 cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                 size_t bytes) {
    Layout *l = fake_get(layout, FAKE_IS_LAYOUT, "cublasLtMatrixLayoutSetAttribute");
    if (!l) return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(int32_t)) {
        int32_t count;
        memcpy(&count, value, sizeof(count));
        l->matrix.batch = count;
        return CUBLAS_STATUS_SUCCESS;
    }
    if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(int64_t)) {
        memcpy(&l->matrix.stride, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    fake_defect("cublasLtMatrixLayoutSetAttribute: attribute %d of %zu bytes is not imitated",
                attribute, bytes);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *out) {
    *out = (cublasLtMatmulPreference_t)fake_new(FAKE_IS_PREFERENCE, sizeof(Preference));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference) {
    return end(preference, FAKE_IS_PREFERENCE, "cublasLtMatmulPreferenceDestroy");
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t attribute,
                                     const void *value, size_t bytes) {
    Preference *p = fake_get(preference, FAKE_IS_PREFERENCE, "cublasLtMatmulPreferenceSet");
    if (!p) return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof(size_t)) {
        memcpy(&p->workspace_bytes, value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* What cuBLASLt's documentation of 13.1 asks of products of fp8 with scales of blocks on sm_90: A
 * transposed and B not, whole 16 bytes, scales at multiples of 16 bytes, rows of those of tiles in
 * fours, one operand at most with them; D bf16, f16 or f32, its bias in 16 bits, no batch that it
 * would speak of; and no epilogue that Transformer Engine does not use with it. */
static bool fits_fp8(const Desc *desc, const FakeMatrix *a, const FakeMatrix *b,
                     const FakeMatrix *d) {
    const int32_t rows = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    const int32_t tiles = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    if (fake->options.no_fp8 || desc->op[0] != CUBLAS_OP_T || desc->op[1] != CUBLAS_OP_N) {
        return false;
    }
    if (a->rows % 128 || a->columns % 16 || b->columns % 16 || a->ld % 16 || b->ld % 16) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (desc->modes[i] != rows && desc->modes[i] != tiles) return false;
        if (desc->modes[i] == tiles && a->rows / 128 % 4) return false;
        if (!desc->scales[i] || (uintptr_t)desc->scales[i] % 16) return false;
    }
    if (desc->modes[0] == tiles && desc->modes[1] == tiles) return false;
    bool plain =
        desc->epilogue == CUBLASLT_EPILOGUE_DEFAULT || desc->epilogue == CUBLASLT_EPILOGUE_BIAS;
    bool wide_bias = desc->epilogue & HAS_BIAS && d->type == CUDA_R_32F;
    return plain && !wide_bias && d->batch == 1 && d->type != CUDA_R_8F_E4M3 &&
           d->type != CUDA_R_16F;
}

/* Do the operands fit each other? */
static bool fits(const Desc *desc, const FakeMatrix *a, const FakeMatrix *b, const FakeMatrix *c,
                 const FakeMatrix *d) {
    bool ta = desc->op[0] == CUBLAS_OP_T, tb = desc->op[1] == CUBLAS_OP_T;
    int64_t m = ta ? a->columns : a->rows, k = ta ? a->rows : a->columns;
    int64_t n = tb ? b->rows : b->columns, kb = tb ? b->columns : b->rows;
    if (m != d->rows || n != d->columns || k != kb) return false;
    if (memcmp(c, d, sizeof(*c)) != 0) return false;
    if (a->batch != d->batch || b->batch != d->batch || a->type != b->type) return false;
    if (a->type == CUDA_R_8F_E4M3 && !fits_fp8(desc, a, b, d)) return false;
    if (a->type != CUDA_R_8F_E4M3 && d->type != CUDA_R_32F && d->type != a->type) return false;
    if (desc->epilogue & HAS_BIAS && !desc->bias) return false;
    /* By cuBLASLt's own messages: BGRADA wants A as it is, and no other epilogue. */
    if (desc->epilogue & HAS_BGRADA &&
        (ta || !desc->bias || d->batch != 1 || desc->epilogue != CUBLASLT_EPILOGUE_BGRADA)) {
        return false;
    }
    if (desc->epilogue & HAS_AUX &&
        (!desc->aux || desc->aux_ld % 8 || desc->aux_ld < d->rows || d->batch != 1)) {
        return false;
    }
    return desc->compute == CUBLAS_COMPUTE_32F || a->type == CUDA_R_32F;
}

static bool is_missing(const Desc *desc) {
    return fake->options.no_epilogues && desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t *results, int *out_count) {
    const char *function = "cublasLtMatmulAlgoGetHeuristic";
    const Desc *operation = fake_get(desc, FAKE_IS_DESC, function);
    const Layout *la = fake_get(a, FAKE_IS_LAYOUT, function);
    const Layout *lb = fake_get(b, FAKE_IS_LAYOUT, function);
    const Layout *lc = fake_get(c, FAKE_IS_LAYOUT, function);
    const Layout *ld = fake_get(d, FAKE_IS_LAYOUT, function);
    const Preference *p = fake_get(preference, FAKE_IS_PREFERENCE, function);
    *out_count = 0;
    if (!fake_get(handle, FAKE_IS_BLAS, function) || !operation || !la || !lb || !lc || !ld || !p) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!fits(operation, &la->matrix, &lb->matrix, &lc->matrix, &ld->matrix)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (is_missing(operation)) return CUBLAS_STATUS_NOT_SUPPORTED;
    /* One algorithm for all products of a kind, so it may count on no more than arenas give. */
    if ((uintptr_t)operation->bias % (2 * GEMM_ALIGN) == 0 && operation->bias) {
        fake_defect("%s: asked about a bias that is aligned better than others are", function);
    }
    /* The first one is none, as its state says. */
    memset(results, 0xff, sizeof(*results));
    results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
    *out_count = 1;
    /* As cuBLASLt 13.1 does, it leaves out one for sums with a bias that runs for them, too. */
    bool less = fake->options.less_with_bias && operation->epilogue == CUBLASLT_EPILOGUE_BIAS;
    for (int i = less; i < N_ALGORITHMS && *out_count < wanted; i++) {
        cublasLtMatmulHeuristicResult_t *result = &results[(*out_count)++];
        memset(result, 0, sizeof(*result));
        result->algo.data[0] = ALGORITHM;
        result->algo.data[1] = (uint64_t)i;
        result->workspaceSize = p->workspace_bytes;
        result->state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static bool runs_without_bias(const Desc *desc, const cublasLtMatmulAlgo_t *algo) {
    return fake->options.less_with_bias > 1 && algo->data[1] == 0 &&
           desc->epilogue == CUBLASLT_EPILOGUE_BIAS;
}

/* What a plan has kept is any bytes. */
static cublasStatus_t check(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algo,
                            cublasLtMatmulHeuristicResult_t *result) {
    const char *function = "cublasLtMatmulAlgoCheck";
    const Desc *operation = fake_get(desc, FAKE_IS_DESC, function);
    const Layout *la = fake_get(a, FAKE_IS_LAYOUT, function);
    const Layout *lb = fake_get(b, FAKE_IS_LAYOUT, function);
    const Layout *lc = fake_get(c, FAKE_IS_LAYOUT, function);
    const Layout *ld = fake_get(d, FAKE_IS_LAYOUT, function);
    if (!fake_get(handle, FAKE_IS_BLAS, function) || !operation || !la || !lb || !lc || !ld) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (algo->data[0] != ALGORITHM || algo->data[1] >= N_ALGORITHMS ||
        !fits(operation, &la->matrix, &lb->matrix, &lc->matrix, &ld->matrix)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (is_missing(operation)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (runs_without_bias(operation, algo)) return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = 0;
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

/* Products */

static int64_t element_bytes(const FakeMatrix *matrix) {
    return matrix->type == CUDA_R_32F ? 4 : matrix->type == CUDA_R_8F_E4M3 ? 1 : 2;
}

static int64_t matrix_bytes(const FakeMatrix *matrix) {
    return ((matrix->batch - 1) * matrix->stride + (matrix->columns - 1) * matrix->ld +
            matrix->rows) *
           element_bytes(matrix);
}

static bool is_on_device(const FakeMatrix *matrix, const void *at) {
    return fake_memory_has(at, matrix_bytes(matrix), true);
}

static bool are_apart(const void *a, const FakeMatrix *a_matrix, const void *b,
                      const FakeMatrix *b_matrix) {
    return (const char *)a + matrix_bytes(a_matrix) <= (const char *)b ||
           (const char *)b + matrix_bytes(b_matrix) <= (const char *)a;
}

static int64_t count_scales(const FakeMatrix *matrix, int mode) {
    bool tiles = mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    return matrix->rows / 128 * (tiles ? (matrix->columns + 127) / 128 : matrix->columns);
}

static bool scales_are_safe(const FakeProduct *p) {
    const float *scales[2] = {p->scales_a, p->scales_b};
    const FakeMatrix *of[2] = {&p->a, &p->b};
    for (int i = 0; i < 2; i++) {
        FakeMatrix matrix = {CUDA_R_32F, count_scales(of[i], p->modes[i]), 1, 1, 1, 0};
        if (!scales[i]) continue;
        if (!is_on_device(&matrix, scales[i]) || !are_apart(p->to, &p->d, scales[i], &matrix)) {
            return false;
        }
    }
    return true;
}

/* What is written lies apart from what is read, but for C, which may be D. */
static bool is_safe(const FakeProduct *p) {
    FakeMatrix bias = p->d, aux = p->d;
    bias.columns = 1;
    bias.stride = p->bias_stride;
    aux.ld = p->aux_ld;
    if (!are_apart(p->to, &p->d, p->from_a, &p->a) || !scales_are_safe(p)) return false;
    if (!are_apart(p->to, &p->d, p->from_b, &p->b)) return false;
    if (p->from_c != p->to && !are_apart(p->to, &p->d, p->from_c, &p->d)) return false;
    if (p->bias && (!fake_memory_has(p->bias, matrix_bytes(&bias), true) ||
                    !are_apart(p->to, &p->d, p->bias, &bias))) {
        return false;
    }
    if (p->bias_grad && (!fake_memory_has(p->bias_grad, matrix_bytes(&bias), true) ||
                         !are_apart(p->to, &p->d, p->bias_grad, &bias) ||
                         !are_apart(p->from_a, &p->a, p->bias_grad, &bias) ||
                         !are_apart(p->from_b, &p->b, p->bias_grad, &bias))) {
        return false;
    }
    if (!p->aux) return true;
    return is_on_device(&aux, p->aux) && are_apart(p->to, &p->d, p->aux, &aux) &&
           are_apart(p->aux, &aux, p->from_a, &p->a) && are_apart(p->aux, &aux, p->from_b, &p->b) &&
           (!p->bias || are_apart(p->aux, &aux, p->bias, &bias));
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                             const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                             cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                             cublasLtMatrixLayout_t c_layout, void *d,
                             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                             void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    const char *function = "cublasLtMatmul";
    Desc *operation = fake_get(desc, FAKE_IS_DESC, function);
    const Layout *la = fake_get(a_layout, FAKE_IS_LAYOUT, function);
    const Layout *lb = fake_get(b_layout, FAKE_IS_LAYOUT, function);
    const Layout *lc = fake_get(c_layout, FAKE_IS_LAYOUT, function);
    const Layout *ld = fake_get(d_layout, FAKE_IS_LAYOUT, function);
    if (!fake_get(handle, FAKE_IS_BLAS, function) || !operation || !la || !lb || !lc || !ld ||
        !algo || algo->data[0] != ALGORITHM || runs_without_bias(operation, algo) ||
        !fits(operation, &la->matrix, &lb->matrix, &lc->matrix, &ld->matrix)) {
        fake_defect("%s: operands that do not fit each other", function);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!is_on_device(&la->matrix, a) || !is_on_device(&lb->matrix, b) ||
        !is_on_device(&ld->matrix, c) || !is_on_device(&ld->matrix, d) ||
        (workspace_bytes && !fake_memory_has(workspace, (int64_t)workspace_bytes, true))) {
        fake_defect("%s: operands that are not all in one allocation each", function);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (workspace_bytes && (uintptr_t)workspace % 256) {
        fake_defect("%s: a workspace that is not a multiple of 256 bytes", function);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    FakeNode node = {.kind = FAKE_GEMM,
                     .product = {.transpose_a = operation->op[0] == CUBLAS_OP_T,
                                 .transpose_b = operation->op[1] == CUBLAS_OP_T,
                                 .alpha = *(const float *)alpha,
                                 .beta = *(const float *)beta,
                                 .a = la->matrix,
                                 .b = lb->matrix,
                                 .d = ld->matrix,
                                 .from_a = a,
                                 .from_b = b,
                                 .to = d,
                                 .from_c = c,
                                 .epilogue = (int)operation->epilogue,
                                 .aux_ld = operation->aux_ld,
                                 .bias_stride = operation->bias_stride,
                                 .workspace = workspace,
                                 .workspace_bytes = workspace_bytes,
                                 .algorithm = (int)algo->data[1]}};
    if (la->matrix.type == CUDA_R_8F_E4M3) {
        node.product.scales_a = operation->scales[0];
        node.product.scales_b = operation->scales[1];
        memcpy(node.product.modes, operation->modes, sizeof(operation->modes));
    }
    if (operation->epilogue & HAS_BIAS) node.product.bias = operation->bias;
    if (operation->epilogue & HAS_BGRADA) node.product.bias_grad = (void *)operation->bias;
    if (operation->epilogue & HAS_AUX) node.product.aux = operation->aux;
    if (!is_safe(&node.product)) {
        fake_defect("%s: writes what it reads", function);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    fake_check_loaded(stream, &operation->loaded, function);
    return fake_issue(&node, stream, function) ? CUBLAS_STATUS_EXECUTION_FAILED
                                               : CUBLAS_STATUS_SUCCESS;
}

static DType dtype_of(const FakeMatrix *matrix) {
    return matrix->type == CUDA_R_32F   ? DTYPE_F32
           : matrix->type == CUDA_R_16F ? DTYPE_F16
                                        : DTYPE_BF16;
}

static float fp8_numbers[256];

__attribute__((constructor)) static void find_numbers(void) {
    for (int code = 0; code < 256; code++) fp8_numbers[code] = fp8_widen((uint8_t)code);
}

static float read_element(const FakeMatrix *matrix, const void *from, int64_t i) {
    if (matrix->type == CUDA_R_8F_E4M3) return fp8_numbers[((const uint8_t *)from)[i]];
    return vec_get(from, dtype_of(matrix), i);
}

static void write_element(const FakeMatrix *matrix, void *to, int64_t i, float x) {
    vec_put(to, dtype_of(matrix), i, x);
}

/* The library may write anything to its workspace: two products at once that share one would
 * spoil each other, and so would a kernel's results kept there. */
static void spoil(const FakeProduct *product) {
    enum { SOME = 4096 };
    size_t bytes = product->workspace_bytes < SOME ? product->workspace_bytes : SOME;
    if (bytes) memset(product->workspace, 0xff, bytes);
}

/* The epilogue: what element [row, column] of D becomes. Sums are not rounded before. */
static float finish(const FakeProduct *p, int64_t batch, int64_t row, int64_t column, float sum) {
    int64_t aux = column * p->aux_ld + row;
    if (p->bias) sum += read_element(&p->d, p->bias, batch * p->bias_stride + row);
    if (p->epilogue & HAS_DGELU) {
        return sum * (float)reference_gelu_slope(read_element(&p->d, p->aux, aux));
    }
    if (!(p->epilogue & HAS_GELU)) return sum;
    if (p->aux) write_element(&p->d, p->aux, aux, sum);
    return (float)reference_gelu_value(sum);
}

/* BGRADA: for each row of A, the sum over k. */
static void sum_rows(const FakeProduct *p) {
    for (int64_t row = 0; row < p->a.rows; row++) {
        float sum = 0;
        for (int64_t i = 0; i < p->a.columns; i++) {
            sum += read_element(&p->a, p->from_a, i * p->a.ld + row);
        }
        write_element(&p->d, p->bias_grad, row, sum);
    }
}

/* Of number i along k of a column, K-major or the other way as its mode has it ("Scaling factors
 * layouts"). */
static float scale_at(const FakeMatrix *matrix, const float *scales, int mode, int64_t column,
                      int64_t i) {
    if (!scales) return 1;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) {
        return scales[column / 128 * (matrix->rows / 128) + i / 128];
    }
    return scales[i / 128 * matrix->columns + column];
}

/* One operand of one product, in plain numbers [k, n] with n own rows of A or columns of B; its
 * scales apart, as each product of two numbers is multiplied by both. */
static void widen(const FakeMatrix *matrix, const void *from, int64_t first, const float *scales,
                  int mode, bool k_is_inner, int64_t k, int64_t n, float *out, float *out_scales) {
    for (int64_t own = 0; own < n; own++) {
        for (int64_t i = 0; i < k; i++) {
            int64_t at = first + (k_is_inner ? own * matrix->ld + i : i * matrix->ld + own);
            out[i * n + own] = read_element(matrix, from, at);
            if (scales) out_scales[i * n + own] = scale_at(matrix, scales, mode, own, i);
        }
    }
}

/* A column of D: for each row the sum over k in ascending order. Sanitizers would look at every
 * number of what fake_run_product has just made, and take most of a test's time. */
__attribute__((no_sanitize("address", "undefined"))) static void
sum_column(const FakeProduct *p, int64_t column, int64_t k, const float *a, const float *b,
           const float *scales_a, const float *scales_b, float *sums) {
    const int64_t rows = p->d.rows, columns = p->d.columns;
    memset(sums, 0, sizeof(float) * (size_t)rows);
    for (int64_t i = 0; i < k; i++) {
        float factor = b[i * columns + column], scale = 1;
        if (!p->scales_a) {
#pragma omp simd
            for (int64_t row = 0; row < rows; row++) sums[row] += factor * a[i * rows + row];
            continue;
        }
        if (p->scales_b) scale = scales_b[i * columns + column];
#pragma omp simd
        for (int64_t row = 0; row < rows; row++) {
            sums[row] += factor * (scales_a[i * rows + row] * scale) * a[i * rows + row];
        }
    }
}

bool fake_run_product(const FakeProduct *p) {
    const int64_t k = p->transpose_a ? p->a.rows : p->a.columns;
    const int64_t rows = p->d.rows, columns = p->d.columns;
    float *a = malloc(sizeof(float) * (size_t)(2 * k * rows + 2 * k * columns + rows));
    if (!a) return false;
    float *b = a + k * rows, *scales_a = b + k * columns, *scales_b = scales_a + k * rows;
    float *sums = scales_b + k * columns;
    spoil(p);
    if (p->bias_grad) sum_rows(p);
    for (int64_t batch = 0; batch < p->d.batch; batch++) {
        widen(&p->a, p->from_a, batch * p->a.stride, p->scales_a, p->modes[0], p->transpose_a, k,
              rows, a, scales_a);
        widen(&p->b, p->from_b, batch * p->b.stride, p->scales_b, p->modes[1], !p->transpose_b, k,
              columns, b, scales_b);
        for (int64_t column = 0; column < columns; column++) {
            sum_column(p, column, k, a, b, scales_a, scales_b, sums);
            for (int64_t row = 0; row < rows; row++) {
                int64_t d = batch * p->d.stride + column * p->d.ld + row;
                float sum = sums[row] * p->alpha;
                if (p->beta != 0) sum += p->beta * read_element(&p->d, p->from_c, d);
                write_element(&p->d, p->to, d, finish(p, batch, row, column, sum));
            }
        }
    }
    free(a);
    return true;
}

void fake_fill_blas(CuApi *api) {
    api->cublasLtGetVersion = version;
    api->cublasLtGetStatusString = status_string;
    api->cublasLtCreate = create;
    api->cublasLtDestroy = destroy;
    api->cublasLtMatmul = matmul;
    api->cublasLtMatmulDescCreate = desc_create;
    api->cublasLtMatmulDescDestroy = desc_destroy;
    api->cublasLtMatmulDescSetAttribute = desc_set;
    api->cublasLtMatrixLayoutCreate = layout_create;
    api->cublasLtMatrixLayoutDestroy = layout_destroy;
    api->cublasLtMatrixLayoutSetAttribute = layout_set;
    api->cublasLtMatmulPreferenceCreate = preference_create;
    api->cublasLtMatmulPreferenceDestroy = preference_destroy;
    api->cublasLtMatmulPreferenceSetAttribute = preference_set;
    api->cublasLtMatmulAlgoGetHeuristic = heuristic;
    api->cublasLtMatmulAlgoCheck = check;
}

#endif
