#include "runtime/cuda/driver/gemm.h"

#include "runtime/cuda/epilogue.h"

#include <stdio.h>
#include <string.h>

enum { MOST_CANDIDATES = 16 };

struct GemmEntry {
    PlanAlgo product; /* what makes two products the same to cuBLASLt; its bytes are not used */
    EpilogueKind epilogue;
    int64_t b_row; /* 0: packed */
    GemmStrides apart;
    bool bias, aux;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d; /* of the column-major problem: a is our B */
    cublasStatus_t status;          /* of preparing it */
    bool used, stored;              /* asked for by a list; has the plan's algorithm */
    int n_candidates, chosen;
    cublasLtMatmulHeuristicResult_t candidates[MOST_CANDIDATES];
};

GemmTable *gemm_table_create(const CudaDevice *device, bool tf32, int64_t workspace_bytes,
                             Arena *arena) {
    GemmTable *table = ARENA_NEW(arena, GemmTable);
    int64_t usable = workspace_bytes - (WORKSPACE_ALIGN - ALIGN_BYTES);
    *table = (GemmTable){
        .device = device, .arena = arena, .tf32 = tf32, .workspace_bytes = usable > 0 ? usable : 0};
    return table;
}

void gemm_table_destroy(GemmTable *table) {
    if (!table) return;
    const CuApi *api = table->device->api;
    for (int i = 0; i < table->count; i++) {
        GemmEntry *entry = table->entries[i];
        if (entry->operation) api->cublasLtMatmulDescDestroy(entry->operation);
        if (entry->a) api->cublasLtMatrixLayoutDestroy(entry->a);
        if (entry->b) api->cublasLtMatrixLayoutDestroy(entry->b);
        if (entry->d) api->cublasLtMatrixLayoutDestroy(entry->d);
    }
    table->count = 0;
}

static cudaDataType_t cuda_dtype(DType dtype) {
    static const cudaDataType_t TYPES[N_DTYPES] = {[DTYPE_F32] = CUDA_R_32F,
                                                   [DTYPE_I32] = CUDA_R_32I,
                                                   [DTYPE_BF16] = CUDA_R_16BF,
                                                   [DTYPE_F16] = CUDA_R_16F,
                                                   [DTYPE_FP8] = CUDA_R_8F_E4M3};
    return TYPES[dtype];
}

/* One operand of the column-major problem: `rows` lie next to each other, columns `pitch` elements
 * apart, the matrices of a batch `stride`. */
static cublasStatus_t make_layout(const CuApi *api, cublasLtMatrixLayout_t *out, DType dtype,
                                  int64_t rows, int64_t columns, int64_t pitch, int64_t batch,
                                  int64_t stride) {
    int32_t count = (int32_t)batch;
    cublasStatus_t status = api->cublasLtMatrixLayoutCreate(out, cuda_dtype(dtype), (uint64_t)rows,
                                                            (uint64_t)columns, pitch);
    if (status == CUBLAS_STATUS_SUCCESS && batch > 1) {
        status = api->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                       &count, sizeof(count));
    }
    if (status == CUBLAS_STATUS_SUCCESS && batch > 1) {
        status = api->cublasLtMatrixLayoutSetAttribute(
            *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride));
    }
    return status;
}

/* Column-major, our columns are rows: the bias is one element for each of D's rows, as cuBLASLt
 * wants it, and aux has D's leading dimension. Bias, its gradient and aux have D's dtype unless
 * told otherwise. */
static cublasStatus_t describe_epilogue(const CuApi *api, const GemmEntry *entry) {
    static const uint32_t KINDS[][2] = {
        [EPILOGUE_SUM] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT},
        [EPILOGUE_GELU] = {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_AUX},
        [EPILOGUE_GELU_GRAD] = {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU},
        [EPILOGUE_BIAS_GRAD] = {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADA},
    };
    uint32_t kind = KINDS[entry->epilogue][entry->aux];
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (entry->bias && entry->epilogue == EPILOGUE_SUM) kind = CUBLASLT_EPILOGUE_BIAS;
    if (entry->bias && entry->epilogue == EPILOGUE_GELU) kind |= CUBLASLT_EPILOGUE_BIAS;
    if (kind == CUBLASLT_EPILOGUE_DEFAULT) return status;
    status = api->cublasLtMatmulDescSetAttribute(entry->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                 &kind, sizeof(kind));
    if (status != CUBLAS_STATUS_SUCCESS || !entry->aux) return status;
    const int64_t *n = &entry->product.layout.n;
    return api->cublasLtMatmulDescSetAttribute(entry->operation,
                                               CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, n, sizeof(*n));
}

/* What is their A is our B. */
static cublasStatus_t set_scales(const CuApi *api, const GemmEntry *entry,
                                 const GemmCommand *command) {
    if (!command->scales_a.at) return CUBLAS_STATUS_SUCCESS;
    cublasStatus_t status =
        api->cublasLtMatmulDescSetAttribute(entry->operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                            &command->scales_b.at, sizeof(command->scales_b.at));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return api->cublasLtMatmulDescSetAttribute(entry->operation,
                                               CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                               &command->scales_a.at, sizeof(command->scales_a.at));
}

static cublasStatus_t set_pointers(const CuApi *api, const GemmEntry *entry,
                                   const GemmCommand *command) {
    cublasStatus_t status = set_scales(api, entry, command);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const void *bias = command->bias_grad ? command->bias_grad : command->bias;
    if (bias) {
        status = api->cublasLtMatmulDescSetAttribute(
            entry->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    }
    if (command->aux && status == CUBLAS_STATUS_SUCCESS) {
        status = api->cublasLtMatmulDescSetAttribute(entry->operation,
                                                     CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                     &command->aux, sizeof(command->aux));
    }
    return status;
}

/* cuBLASLt has these modes from 12.9 on, for sm_90, but not tiles times tiles. Sums are promoted to
 * f32 outside of the tensor cores: CUBLASLT_MATMUL_DESC_FAST_ACCUM stays 0, as PyTorch and
 * Transformer Engine have it for such scales. */
static cublasStatus_t describe_scales(const CuApi *api, const GemmEntry *entry) {
    static const int32_t MODES[N_SCALE_FORMS] = {
        [SCALES_OF_ROWS] = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
        [SCALES_OF_TILES] = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F};
    const PlanAlgo *p = &entry->product;
    if (p->in_dtype != DTYPE_FP8) return CUBLAS_STATUS_SUCCESS;
    const int32_t *mode = &MODES[p->tiles >> 1 & 1]; /* our B's */
    cublasStatus_t status = api->cublasLtMatmulDescSetAttribute(
        entry->operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode, sizeof(*mode));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    mode = &MODES[p->tiles & 1];
    return api->cublasLtMatmulDescSetAttribute(entry->operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                                               mode, sizeof(*mode));
}

/* Of a joined product's bias; else it is one for all. */
static cublasStatus_t describe_bias(const CuApi *api, const GemmEntry *entry) {
    const int64_t *stride = &entry->apart.bias;
    if (!entry->bias || !entry->product.shared) return CUBLAS_STATUS_SUCCESS;
    return api->cublasLtMatmulDescSetAttribute(
        entry->operation, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, stride, sizeof(*stride));
}

/* The three layouts. A is our B. */
static cublasStatus_t describe_operands(const CuApi *api, GemmEntry *entry) {
    const PlanAlgo *p = &entry->product;
    const MatmulLayout *l = &p->layout;
    int64_t rows[2] = {l->transpose_b ? l->k : l->n, l->transpose_a ? l->m : l->k};
    int64_t columns[2] = {l->transpose_b ? l->n : l->k, l->transpose_a ? l->k : l->m};
    int64_t a_stride = p->shared ? entry->apart.b : l->k * l->n;
    int64_t b_stride = p->shared ? 0 : l->m * l->k;
    int64_t d_stride = p->shared ? entry->apart.d : l->m * l->n;
    cublasStatus_t status = make_layout(api, &entry->a, p->in_dtype, rows[0], columns[0],
                                        entry->b_row ? entry->b_row : rows[0], l->batch, a_stride);
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = make_layout(api, &entry->b, p->in_dtype, rows[1], columns[1], rows[1], l->batch,
                             b_stride);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = make_layout(api, &entry->d, p->out_dtype, l->n, l->m, l->n, l->batch, d_stride);
    }
    return status;
}

static cublasStatus_t describe(const GemmTable *table, GemmEntry *entry) {
    const CuApi *api = table->device->api;
    const MatmulLayout *l = &entry->product.layout;
    bool tf32 = table->tf32 && entry->product.in_dtype == DTYPE_F32;
    cublasOperation_t op_a = l->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_b = l->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = api->cublasLtMatmulDescCreate(
        &entry->operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = api->cublasLtMatmulDescSetAttribute(entry->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                     &op_a, sizeof(op_a));
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = api->cublasLtMatmulDescSetAttribute(entry->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                                     &op_b, sizeof(op_b));
    }
    if (status == CUBLAS_STATUS_SUCCESS) status = describe_operands(api, entry);
    if (status == CUBLAS_STATUS_SUCCESS) status = describe_epilogue(api, entry);
    if (status == CUBLAS_STATUS_SUCCESS) status = describe_bias(api, entry);
    if (status == CUBLAS_STATUS_SUCCESS) status = describe_scales(api, entry);
    return status;
}

/* Of a result that says it is none, nothing else is filled in. */
static void keep_valid(GemmEntry *entry) {
    int n = 0;
    for (int i = 0; i < entry->n_candidates; i++) {
        if (entry->candidates[i].state != CUBLAS_STATUS_SUCCESS) continue;
        entry->candidates[n++] = entry->candidates[i];
    }
    entry->n_candidates = n;
}

/* The heuristic looks at the addresses of bias and aux, at their alignment. All products of a key
 * have one algorithm, on all ranks: it is asked about the least that any of them has. */
static cublasStatus_t set_least_aligned(const CuApi *api, const GemmEntry *entry) {
    void *least = (void *)(uintptr_t)GEMM_ALIGN; /* never followed */
    bool any_bias = entry->bias || entry->epilogue == EPILOGUE_BIAS_GRAD;
    GemmCommand command = {.bias = any_bias ? least : NULL, .aux = entry->aux ? least : NULL};
    if (entry->product.in_dtype == DTYPE_FP8)
        command.scales_a.at = command.scales_b.at = (const float *)least;
    return set_pointers(api, entry, &command);
}

/* Operands are aligned less well than cuBLASLt assumes. Split sums are added up in f32 in a
 * workspace, in one order: in place, the order would be who comes first. */
static cublasStatus_t make_preference(const GemmTable *table, cublasLtMatmulPreference_t *out) {
    static const uint32_t ALIGNMENT = GEMM_ALIGN;
    static const uint32_t REDUCTION = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const CuApi *api = table->device->api;
    size_t workspace = (size_t)table->workspace_bytes;
    cublasStatus_t status = api->cublasLtMatmulPreferenceCreate(out);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const struct {
        cublasLtMatmulPreferenceAttributes_t key;
        const void *value;
        size_t bytes;
    } asked[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &REDUCTION, sizeof(REDUCTION)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &ALIGNMENT, sizeof(ALIGNMENT)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &ALIGNMENT, sizeof(ALIGNMENT)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &ALIGNMENT, sizeof(ALIGNMENT)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &ALIGNMENT, sizeof(ALIGNMENT)},
    };
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof(asked) / sizeof(asked[0]);
         i++) {
        status = api->cublasLtMatmulPreferenceSetAttribute(*out, asked[i].key, asked[i].value,
                                                           asked[i].bytes);
    }
    return status;
}

/* Adds up to `most` of the heuristic's candidates for the operation as it is described now. */
static cublasStatus_t ask_heuristic(const GemmTable *table, GemmEntry *entry,
                                    cublasLtMatmulPreference_t preference, int most) {
    int found = 0;
    cublasLtMatmulHeuristicResult_t *to = entry->candidates + entry->n_candidates;
    cublasStatus_t status = table->device->api->cublasLtMatmulAlgoGetHeuristic(
        table->device->blas, entry->operation, entry->a, entry->b, entry->d, entry->d, preference,
        most, to, &found);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    entry->n_candidates += found;
    keep_valid(entry);
    return status;
}

static bool is_candidate(const GemmEntry *entry, int before, const cublasLtMatmulAlgo_t *algo) {
    for (int i = 0; i < before; i++) {
        if (memcmp(&entry->candidates[i].algo, algo, sizeof(*algo)) == 0) return true;
    }
    return false;
}

/* For sums with a bias the heuristic leaves out kernels that add one as well as others, the best
 * for some shapes: [16384, 6400] times [6400, 1600] took 471 us instead of 526 on an H200 with
 * what it says for the sums alone. So that comes first, as far as it runs. */
static cublasStatus_t ask_without_bias(const GemmTable *table, GemmEntry *entry,
                                       cublasLtMatmulPreference_t preference) {
    static const uint32_t PLAIN = CUBLASLT_EPILOGUE_DEFAULT;
    const CuApi *api = table->device->api;
    int n_kept = 0;
    cublasStatus_t status = api->cublasLtMatmulDescSetAttribute(
        entry->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &PLAIN, sizeof(PLAIN));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (ask_heuristic(table, entry, preference, MOST_CANDIDATES / 2) != CUBLAS_STATUS_SUCCESS)
        entry->n_candidates = 0;
    status = describe_epilogue(api, entry);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < entry->n_candidates; i++) {
        cublasLtMatmulHeuristicResult_t result = entry->candidates[i];
        cublasStatus_t runs =
            api->cublasLtMatmulAlgoCheck(table->device->blas, entry->operation, entry->a, entry->b,
                                         entry->d, entry->d, &entry->candidates[i].algo, &result);
        bool fits = result.workspaceSize <= (size_t)table->workspace_bytes;
        if (runs == CUBLAS_STATUS_SUCCESS && fits)
            entry->candidates[n_kept++] = entry->candidates[i];
    }
    entry->n_candidates = n_kept;
    return status;
}

static cublasStatus_t find_algorithms(const GemmTable *table, GemmEntry *entry) {
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = make_preference(table, &preference);
    if (status == CUBLAS_STATUS_SUCCESS && entry->bias && entry->epilogue == EPILOGUE_SUM)
        status = ask_without_bias(table, entry, preference);
    int n_plain = entry->n_candidates, n = n_plain;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = ask_heuristic(table, entry, preference, MOST_CANDIDATES - n_plain);
    if (preference) table->device->api->cublasLtMatmulPreferenceDestroy(preference);
    if (n_plain > 0 && status == CUBLAS_STATUS_NOT_SUPPORTED) status = CUBLAS_STATUS_SUCCESS;
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    for (int i = n_plain; i < entry->n_candidates; i++) {
        if (!is_candidate(entry, n_plain, &entry->candidates[i].algo))
            entry->candidates[n++] = entry->candidates[i];
    }
    entry->n_candidates = n;
    return n > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool gemm_device_matches(const CudaDevice *device, const PlanDevice *stored) {
    return stored->name && strcmp(stored->name, device->name) == 0 &&
           strcmp(stored->arch, device->arch) == 0 &&
           stored->library_version == (int64_t)device->api->cublasLtGetVersion();
}

void gemm_table_use(GemmTable *table, const PlanDevice *stored) {
    table->stored = gemm_device_matches(table->device, stored) ? stored : NULL;
}

/* Takes the stored algorithm; false: there is none that runs here. */
static bool take_stored(GemmTable *table, GemmEntry *entry) {
    const MatmulLayout *l = &entry->product.layout;
    const PlanAlgo *stored = table->stored ? plan_find_algo(table->stored, &entry->product) : NULL;
    if (!stored) return false;
    cublasLtMatmulHeuristicResult_t *result = &entry->candidates[0];
    _Static_assert(sizeof(result->algo) == sizeof(stored->bytes), "a plan keeps so many bytes");
    memcpy(&result->algo, stored->bytes, sizeof(result->algo));
    cublasStatus_t status = table->device->api->cublasLtMatmulAlgoCheck(
        table->device->blas, entry->operation, entry->a, entry->b, entry->d, entry->d,
        &result->algo, result); /* leaves algo as it is */
    if (status == CUBLAS_STATUS_SUCCESS &&
        result->workspaceSize <= (size_t)table->workspace_bytes) {
        entry->n_candidates = 1;
        entry->stored = true;
        return true;
    }
    if (!table->refused) {
        fprintf(stderr,
                "cuBLASLt refuses an algorithm of the plan, for %lld x %lld x %lld (%s): its own "
                "choice is used; run perilune tune again\n",
                (long long)l->m, (long long)l->n, (long long)l->k,
                status == CUBLAS_STATUS_SUCCESS
                    ? "it needs more workspace"
                    : table->device->api->cublasLtGetStatusString(status));
    }
    table->refused = true;
    return false;
}

static GemmEntry *find_or_make(GemmTable *table, const GemmCommand *command) {
    PlanAlgo product = gemm_product(command);
    for (int i = 0; i < table->count; i++) {
        GemmEntry *known = table->entries[i];
        if (plan_algo_same_product(&known->product, &product) && known->b_row == command->b_row &&
            gemm_strides_equal(&known->apart, &command->apart)) {
            return known;
        }
    }
    GemmEntry *entry = ARENA_NEW(table->arena, GemmEntry);
    *entry = (GemmEntry){.product = product,
                         .epilogue = command->epilogue,
                         .b_row = command->b_row,
                         .apart = command->apart,
                         .bias = command->bias != NULL,
                         .aux = command->aux != NULL};
    ARENA_PUSH(table->arena, table->entries, table->count, table->capacity, entry);
    cublasStatus_t status = describe(table, entry);
    if (status == CUBLAS_STATUS_SUCCESS) status = set_least_aligned(table->device->api, entry);
    entry->status = status;
    if (status == CUBLAS_STATUS_SUCCESS && take_stored(table, entry)) return entry;
    if (status == CUBLAS_STATUS_SUCCESS) status = find_algorithms(table, entry);
    entry->status = status;
    return entry;
}

static void report_fp8(const GemmTable *table, const GemmEntry *entry, Diag *diag) {
    const MatmulLayout *l = &entry->product.layout;
    const CuApi *api = table->device->api;
    size_t version = api->cublasLtGetVersion();
    diag_error(
        diag, NO_LOC,
        "cuBLASLt %zu.%zu has no product of fp8 [%lld, %lld, %lld] with scales of blocks for "
        "%s, %s (%s); sm_90 has them from 12.9 on: plan with --fp8-products widened",
        version / 10000, version / 100 % 100, (long long)l->m, (long long)l->n, (long long)l->k,
        table->device->name, table->device->arch, api->cublasLtGetStatusString(entry->status));
}

GemmEntry *gemm_table_find(GemmTable *table, const GemmCommand *command, Diag *diag) {
    GemmEntry *entry = find_or_make(table, command);
    const MatmulLayout *l = &entry->product.layout;
    if (entry->status == CUBLAS_STATUS_SUCCESS) {
        if (!entry->used) table->n_used++, table->n_stored += entry->stored;
        entry->used = true;
        return entry;
    }
    if (command->in_dtype == DTYPE_FP8) {
        report_fp8(table, entry, diag);
        return NULL;
    }
    diag_error(diag, NO_LOC,
               "cuBLASLt: no algorithm for a product of %lld x [%lld, %lld, %lld]%s: %s",
               (long long)l->batch, (long long)l->m, (long long)l->n, (long long)l->k,
               epilogue_name(command, table->arena),
               table->device->api->cublasLtGetStatusString(entry->status));
    return NULL;
}

bool gemm_table_supports(GemmTable *table, const GemmCommand *command) {
    return find_or_make(table, command)->status == CUBLAS_STATUS_SUCCESS;
}

bool gemm_table_joins(GemmTable *table, const GemmCommand *one, const GemmCommand *joined) {
    return gemm_device_joins(table->stored, one, joined) && gemm_table_supports(table, joined);
}

bool gemm_table_sums_bias(GemmTable *table, const GemmCommand *command) {
    PlanAlgo product = gemm_product(command);
    return table->stored && plan_find_algo(table->stored, &product) &&
           gemm_table_supports(table, command);
}

cublasStatus_t gemm_issue(const GemmTable *table, const GemmEntry *entry,
                          const GemmCommand *command, void *workspace, cudaStream_t stream) {
    const float alpha = 1;
    uintptr_t aligned =
        ((uintptr_t)workspace + WORKSPACE_ALIGN - 1) & ~(uintptr_t)(WORKSPACE_ALIGN - 1);
    cublasStatus_t status = set_pointers(table->device->api, entry, command);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return table->device->api->cublasLtMatmul(
        table->device->blas, entry->operation, &alpha, command->b, entry->a, command->a, entry->b,
        &command->beta, command->c ? command->c : command->d, entry->d, command->d, entry->d,
        &entry->candidates[entry->chosen].algo, (void *)aligned, (size_t)table->workspace_bytes,
        stream);
}

int gemm_entry_count_candidates(const GemmEntry *entry) {
    return entry->n_candidates;
}

void gemm_entry_choose(GemmEntry *entry, int candidate) {
    entry->chosen = candidate;
}

PlanAlgo gemm_entry_algo(const GemmEntry *entry) {
    PlanAlgo algo = entry->product;
    memcpy(algo.bytes, &entry->candidates[entry->chosen].algo, sizeof(algo.bytes));
    return algo;
}
