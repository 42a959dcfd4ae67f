#include "runtime/cuda/driver/gemm.h"

#include "runtime/cuda/epilogue.h"

#include <string.h>

enum { MOST_CANDIDATES = 8 };

/* What makes two products the same to cuBLASLt. */
typedef struct GemmKey {
    MatmulLayout layout;
    DType in_dtype, out_dtype;
    bool accumulate, bias, aux;
    EpilogueKind epilogue;
} GemmKey;

struct GemmEntry {
    GemmKey key;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d; /* of the column-major problem: a is our B */
    cublasStatus_t status;          /* of preparing it */
    int n_candidates, chosen;
    cublasLtMatmulHeuristicResult_t candidates[MOST_CANDIDATES];
};

GemmTable *gemm_table_create(const CudaDevice *device, bool tf32, int64_t workspace_bytes,
                             Arena *arena) {
    GemmTable *table = ARENA_NEW(arena, GemmTable);
    *table = (GemmTable){
        .device = device, .arena = arena, .tf32 = tf32, .workspace_bytes = workspace_bytes};
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
    return dtype == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static GemmKey key_of(const GemmCommand *command) {
    GemmKey key;
    memset(&key, 0, sizeof(key)); /* padding too: keys are compared whole */
    key.layout.batch = command->layout.batch;
    key.layout.m = command->layout.m;
    key.layout.n = command->layout.n;
    key.layout.k = command->layout.k;
    key.layout.transpose_a = command->layout.transpose_a;
    key.layout.transpose_b = command->layout.transpose_b;
    key.in_dtype = command->in_dtype;
    key.out_dtype = command->out_dtype;
    key.accumulate = command->beta != 0;
    key.bias = command->bias != NULL;
    key.aux = command->aux != NULL;
    key.epilogue = command->epilogue;
    return key;
}

/* One operand of the column-major problem: `rows` lie next to each other. */
static cublasStatus_t make_layout(const CuApi *api, cublasLtMatrixLayout_t *out, DType dtype,
                                  int64_t rows, int64_t columns, int64_t batch) {
    int32_t count = (int32_t)batch;
    int64_t stride = rows * columns;
    cublasStatus_t status = api->cublasLtMatrixLayoutCreate(out, cuda_dtype(dtype), (uint64_t)rows,
                                                            (uint64_t)columns, rows);
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
 * wants it, and aux has D's leading dimension. Bias and aux have D's dtype unless told otherwise.
 */
static cublasStatus_t describe_epilogue(const CuApi *api, const GemmEntry *entry) {
    static const uint32_t KINDS[][2] = {
        [EPILOGUE_SUM] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT},
        [EPILOGUE_GELU] = {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_AUX},
        [EPILOGUE_GELU_GRAD] = {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU},
    };
    const GemmKey *key = &entry->key;
    uint32_t kind = KINDS[key->epilogue][key->aux];
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (key->bias && key->epilogue == EPILOGUE_SUM) kind = CUBLASLT_EPILOGUE_BIAS;
    if (key->bias && key->epilogue == EPILOGUE_GELU) kind |= CUBLASLT_EPILOGUE_BIAS;
    if (kind == CUBLASLT_EPILOGUE_DEFAULT) return status;
    status = api->cublasLtMatmulDescSetAttribute(entry->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                 &kind, sizeof(kind));
    if (status != CUBLAS_STATUS_SUCCESS || !key->aux) return status;
    return api->cublasLtMatmulDescSetAttribute(entry->operation,
                                               CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key->layout.n,
                                               sizeof(key->layout.n));
}

/* The heuristic, too, looks at the addresses: at their alignment. */
static cublasStatus_t set_pointers(const CuApi *api, const GemmEntry *entry,
                                   const GemmCommand *command) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (command->bias) {
        status =
            api->cublasLtMatmulDescSetAttribute(entry->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &command->bias, sizeof(command->bias));
    }
    if (command->aux && status == CUBLAS_STATUS_SUCCESS) {
        status = api->cublasLtMatmulDescSetAttribute(entry->operation,
                                                     CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                     &command->aux, sizeof(command->aux));
    }
    return status;
}

static cublasStatus_t describe(const GemmTable *table, GemmEntry *entry) {
    const CuApi *api = table->device->api;
    const MatmulLayout *l = &entry->key.layout;
    bool tf32 = table->tf32 && entry->key.in_dtype == DTYPE_F32;
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
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = make_layout(api, &entry->a, entry->key.in_dtype, l->transpose_b ? l->k : l->n,
                             l->transpose_b ? l->n : l->k, l->batch);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = make_layout(api, &entry->b, entry->key.in_dtype, l->transpose_a ? l->m : l->k,
                             l->transpose_a ? l->k : l->m, l->batch);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = make_layout(api, &entry->d, entry->key.out_dtype, l->n, l->m, l->batch);
    }
    if (status == CUBLAS_STATUS_SUCCESS) status = describe_epilogue(api, entry);
    return status;
}

static cublasStatus_t find_algorithms(const GemmTable *table, GemmEntry *entry) {
    const CuApi *api = table->device->api;
    cublasLtMatmulPreference_t preference = NULL;
    size_t workspace = (size_t)table->workspace_bytes;
    cublasStatus_t status = api->cublasLtMatmulPreferenceCreate(&preference);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    status = api->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = api->cublasLtMatmulAlgoGetHeuristic(
            table->device->blas, entry->operation, entry->a, entry->b, entry->d, entry->d,
            preference, MOST_CANDIDATES, entry->candidates, &entry->n_candidates);
    }
    api->cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && entry->n_candidates == 0) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return status;
}

static const GemmEntry *find_or_make(GemmTable *table, const GemmCommand *command) {
    GemmKey key = key_of(command);
    for (int i = 0; i < table->count; i++) {
        if (memcmp(&table->entries[i]->key, &key, sizeof(key)) == 0) return table->entries[i];
    }
    GemmEntry *entry = ARENA_NEW(table->arena, GemmEntry);
    entry->key = key;
    ARENA_PUSH(table->arena, table->entries, table->count, table->capacity, entry);
    cublasStatus_t status = describe(table, entry);
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = set_pointers(table->device->api, entry, command);
    }
    if (status == CUBLAS_STATUS_SUCCESS) status = find_algorithms(table, entry);
    entry->status = status;
    return entry;
}

const GemmEntry *gemm_table_find(GemmTable *table, const GemmCommand *command, Diag *diag) {
    const GemmEntry *entry = find_or_make(table, command);
    const MatmulLayout *l = &entry->key.layout;
    if (entry->status == CUBLAS_STATUS_SUCCESS) return entry;
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

cublasStatus_t gemm_issue(const GemmTable *table, const GemmEntry *entry,
                          const GemmCommand *command, void *workspace, cudaStream_t stream) {
    const float alpha = 1;
    cublasStatus_t status = set_pointers(table->device->api, entry, command);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return table->device->api->cublasLtMatmul(
        table->device->blas, entry->operation, &alpha, command->b, entry->a, command->a, entry->b,
        &command->beta, command->c ? command->c : command->d, entry->d, command->d, entry->d,
        &entry->candidates[entry->chosen].algo, workspace, (size_t)table->workspace_bytes, stream);
}

static int64_t operand_bytes(int64_t rows, int64_t columns, int64_t batch, DType dtype) {
    return (rows * columns * batch * dtype_bytes(dtype) + ALIGN_BYTES - 1) / ALIGN_BYTES *
           ALIGN_BYTES;
}

/* Microseconds of one candidate, the best of three; negative: it does not run. */
static double time_candidate(const GemmTable *table, GemmEntry *entry, const GemmCommand *command,
                             void *workspace, cudaStream_t stream, cudaEvent_t events[2]) {
    const CuApi *api = table->device->api;
    double best = -1;
    for (int repeat = 0; repeat < 4; repeat++) {
        float milliseconds;
        if (api->cudaEventRecord(events[0], stream) != cudaSuccess ||
            gemm_issue(table, entry, command, workspace, stream) != CUBLAS_STATUS_SUCCESS ||
            api->cudaEventRecord(events[1], stream) != cudaSuccess ||
            api->cudaEventSynchronize(events[1]) != cudaSuccess ||
            api->cudaEventElapsedTime(&milliseconds, events[0], events[1]) != cudaSuccess) {
            return -1;
        }
        double us = 1e3 * (double)milliseconds;
        if (repeat > 0 && (best < 0 || us < best)) best = us; /* the first one warms up */
    }
    return best;
}

bool gemm_table_tune(GemmTable *table, void *scratch, int64_t scratch_bytes, void *workspace,
                     cudaStream_t stream, Diag *diag) {
    const CuApi *api = table->device->api;
    cudaEvent_t events[2] = {NULL, NULL};
    if (!cuda_check(api, api->cudaEventCreateWithFlags(&events[0], cudaEventDefault), diag,
                    "making an event") ||
        !cuda_check(api, api->cudaEventCreateWithFlags(&events[1], cudaEventDefault), diag,
                    "making an event")) {
        return false;
    }
    for (int i = 0; i < table->count; i++) {
        GemmEntry *entry = table->entries[i];
        const MatmulLayout *l = &entry->key.layout;
        int64_t a = operand_bytes(l->m, l->k, l->batch, entry->key.in_dtype);
        int64_t b = operand_bytes(l->k, l->n, l->batch, entry->key.in_dtype);
        int64_t d = operand_bytes(l->m, l->n, l->batch, entry->key.out_dtype);
        int64_t bias = operand_bytes(1, l->n, 1, entry->key.out_dtype);
        double best = -1;
        /* The heuristic's first choice stays. */
        if (entry->status != CUBLAS_STATUS_SUCCESS || a + b + 2 * d + bias > scratch_bytes)
            continue;
        unsigned char *at = scratch;
        GemmCommand command = {.layout = *l,
                               .in_dtype = entry->key.in_dtype,
                               .out_dtype = entry->key.out_dtype,
                               .a = at,
                               .b = at + a,
                               .d = at + a + b,
                               .beta = entry->key.accumulate ? 1 : 0,
                               .epilogue = entry->key.epilogue,
                               .aux = entry->key.aux ? at + a + b + d : NULL,
                               .bias = entry->key.bias ? at + a + b + 2 * d : NULL};
        int chosen = 0;
        for (int c = 0; c < entry->n_candidates; c++) {
            entry->chosen = c;
            double us = time_candidate(table, entry, &command, workspace, stream, events);
            if (us < 0 || (best >= 0 && us >= best)) continue;
            best = us;
            chosen = c;
        }
        entry->chosen = chosen;
    }
    api->cudaEventDestroy(events[0]);
    api->cudaEventDestroy(events[1]);
    return true;
}
