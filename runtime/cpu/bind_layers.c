/* Products, reductions, layout changes and the layers with kernels of their own. */
#include "runtime/cpu/attention.h"
#include "runtime/cpu/bind.h"
#include "runtime/cpu/divergence.h"
#include "runtime/cpu/documents.h"
#include "runtime/cpu/embedding.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/gemm_widened.h"
#include "runtime/cpu/norm.h"
#include "runtime/cpu/reduce.h"
#include "runtime/cpu/rotary.h"
#include "runtime/cpu/row_product.h"
#include "runtime/cpu/softmax.h"
#include "runtime/cpu/stored.h"

typedef struct MatmulArgs {
    MatmulLayout layout;
    const float *a, *b;
    float beta, *out;
} MatmulArgs;

static bool run_matmul(const void *args) {
    const MatmulArgs *p = args;
    const MatmulLayout *l = &p->layout;
    int64_t lda = l->transpose_a ? l->m : l->k, ldb = l->transpose_b ? l->k : l->n;
    if (l->batch == 1) {
        return gemm_f32(l->transpose_a, l->transpose_b, l->m, l->n, l->k, 1, p->a, lda, p->b, ldb,
                        p->beta, p->out, l->n);
    }
    return gemm_f32_batched(l->transpose_a, l->transpose_b, l->m, l->n, l->k, 1, p->a, lda,
                            l->m * l->k, p->b, ldb, l->k * l->n, p->beta, p->out, l->n, l->m * l->n,
                            l->batch);
}

typedef struct RowProductArgs {
    RowProduct product;
    const void *a, *b;
    void *out;
} RowProductArgs;

static bool run_row_product(const void *args) {
    const RowProductArgs *p = args;
    row_product(&p->product, p->a, p->b, p->out);
    return true;
}

/* Many products of next to nothing are for small_product.h. By the sizes of B alone: then rows have
 * the same bits whatever is beside them, as row_product's have. */
static bool is_small(const RowProduct *p) {
    enum { MOST_SUMS = 8, MOST_ELEMENTS = 4096 };
    const bool dots = p->tb || p->n == 1; /* B is rows */
    return p->batch > 1 && p->dtype == DTYPE_F32 && p->out_dtype == DTYPE_F32 &&
           (dots ? p->n : p->k) <= MOST_SUMS && p->n * p->k <= MOST_ELEMENTS;
}

/* Is it a product of a few rows? Then *out does it. Those that add to what is there are gradients.
 */
static bool bind_row_product(Binding *b, CpuCall *out) {
    MatmulLayout layout;
    if (matmul_accumulator(b->node) >= 0 ||
        !matmul_layout(b->node, &b->in_local[0], &b->in_local[1], &layout))
        return false;
    RowProduct product = {.batch = layout.batch,
                          .m = layout.m,
                          .n = layout.n,
                          .k = layout.k,
                          .tb = layout.transpose_b,
                          .dtype = b->in_local[0].dtype,
                          .out_dtype = b->out_local[0].dtype};
    /* A column is a row where there is one, of A and of B. */
    if (product.n == 1) product.tb = true;
    if ((layout.transpose_a && layout.m > 1) || !row_product_does(&product)) return false;
    if (is_small(&product)) return false;
    RowProductArgs *args = ARENA_NEW(b->arena, RowProductArgs);
    *args = (RowProductArgs){product, b->in[0], b->in[1], b->out[0]};
    *out = (CpuCall){run_row_product, args};
    return true;
}

typedef struct LowMatmulArgs {
    const GemmPlan *plan;
    const uint16_t *a, *b;
    void *out, *workspace;
} LowMatmulArgs;

static bool run_low_matmul(const void *args) {
    const LowMatmulArgs *p = args;
    return gemm_run_low(p->plan, p->a, p->b, p->out, p->workspace);
}

static bool bind_low_matmul(Binding *b, CpuCall *out) {
    MatmulLayout layout;
    GemmShape shape;
    LowMatmulArgs *args = ARENA_NEW(b->arena, LowMatmulArgs);
    if (!matmul_layout(b->node, &b->in_local[0], &b->in_local[1], &layout)) {
        return bind_fail(b, "has operands whose axes are not grouped");
    }
    shape = (GemmShape){.batch = layout.batch,
                        .m = layout.m,
                        .n = layout.n,
                        .k = layout.k,
                        .ta = layout.transpose_a,
                        .tb = layout.transpose_b,
                        .dtype = b->in_local[0].dtype,
                        .out_dtype = b->out_local[0].dtype,
                        .accumulate = matmul_accumulator(b->node) >= 0 && !b->overwrite};
    if (gemm_widened_workspace_bytes(&shape) > (size_t)op_workspace_bytes(b->node, b->in_local)) {
        BUG("the plan reserves too little workspace for matmul");
    }
    if (gemm_widened_workspace_bytes(&shape) > (size_t)b->workspace_bytes)
        return bind_fail(b, "has too little workspace in this plan");
    *args = (LowMatmulArgs){gemm_plan_low(cpu_context(b)->products, &shape), b->in[0], b->in[1],
                            b->out[0], b->workspace};
    *out = (CpuCall){run_low_matmul, args};
    return args->plan || bind_fail(b, gemm_status_text());
}

typedef struct ScaledMatmulArgs {
    GemmShape shape;
    ScaledFactor a, b;
    void *out;
    float *workspace;
} ScaledMatmulArgs;

static bool run_scaled_matmul(const void *args) {
    const ScaledMatmulArgs *p = args;
    return gemm_scaled(&p->shape, &p->a, &p->b, p->out, p->workspace);
}

static bool bind_scaled_matmul(Binding *b, CpuCall *out) {
    ScaledMatmulArgs *args = ARENA_NEW(b->arena, ScaledMatmulArgs);
    ScaledFactor *factors[2] = {&args->a, &args->b};
    ScaledProduct product;
    if (!bind_scaled_product(b, &product)) return false;
    args->shape = (GemmShape){.batch = 1,
                              .m = product.layout.m,
                              .n = product.layout.n,
                              .k = product.layout.k,
                              .tb = true,
                              .dtype = DTYPE_FP8,
                              .out_dtype = b->out_local[0].dtype,
                              .accumulate = matmul_accumulator(b->node) >= 0 && !b->overwrite};
    for (int i = 0; i < 2; i++) {
        *factors[i] = (ScaledFactor){product.blocks[i], b->in[i], b->in[2 + i]};
    }
    args->out = b->out[0];
    args->workspace = b->workspace;
    *out = (CpuCall){run_scaled_matmul, args};
    return gemm_widened_workspace_bytes(&args->shape) <= (size_t)b->workspace_bytes ||
           bind_fail(b, "has too little workspace in this plan");
}

bool cpu_bind_matmul(Binding *b, CpuCall *out) {
    if (matmul_is_scaled(b->node)) return bind_scaled_matmul(b, out);
    if (bind_row_product(b, out)) return true;
    if (dtype_is_low(b->in_local[0].dtype)) return bind_low_matmul(b, out);
    MatmulArgs *args = ARENA_NEW(b->arena, MatmulArgs);
    *args = (MatmulArgs){.a = b->in[0], .b = b->in[1], .out = b->out[0]};
    args->beta = matmul_accumulator(b->node) >= 0 && !b->overwrite ? 1 : 0;
    *out = (CpuCall){run_matmul, args};
    return matmul_layout(b->node, &b->in_local[0], &b->in_local[1], &args->layout) ||
           bind_fail(b, "has operands whose axes are not grouped");
}

typedef struct LayoutArgs {
    int rank;
    int64_t dims[MAX_RANK];
    bool reduced[MAX_RANK];
    int order[MAX_RANK];
    const void *in;
    void *out;
    DType in_dtype, out_dtype;
} LayoutArgs;

static bool run_reduce_sum(const void *args) {
    const LayoutArgs *a = args;
    reduce_sum(a->rank, a->dims, a->reduced, a->in, a->in_dtype, false, a->out, a->out_dtype);
    return true;
}

static LayoutArgs *new_layout(Binding *b) {
    LayoutArgs *args = ARENA_NEW(b->arena, LayoutArgs);
    args->rank = b->in_local[0].rank;
    args->in = b->in[0];
    args->out = b->out[0];
    args->in_dtype = b->in_local[0].dtype;
    args->out_dtype = b->out_local[0].dtype;
    for (int i = 0; i < args->rank; i++) args->dims[i] = b->in_local[0].dims[i];
    return args;
}

bool cpu_bind_reduce_sum(Binding *b, CpuCall *out) {
    LayoutArgs *args = new_layout(b);
    for (int i = 0; i < args->rank; i++) {
        args->reduced[i] = node_over(b->node, ATTR_over, b->in_local[0].axes[i]);
    }
    *out = (CpuCall){run_reduce_sum, args};
    return true;
}

static bool run_transpose(const void *args) {
    const LayoutArgs *a = args;
    reduce_permute(a->rank, a->dims, a->order, a->in_dtype, a->in, a->out);
    return true;
}

bool cpu_bind_transpose(Binding *b, CpuCall *out) {
    LayoutArgs *args = new_layout(b);
    for (int i = 0; i < args->rank; i++) {
        args->order[i] = type_find_axis(&b->in_local[0], b->out_local[0].axes[i]);
    }
    *out = (CpuCall){run_transpose, args};
    return true;
}

typedef struct RowsArgs {
    DType dtype;
    int64_t rows, n, n_valid, offset;
    float eps;
    const void *in[5];
    void *out[3], *workspace;
} RowsArgs;

/* rows x n of operand 0, its last axis perhaps a padded shard. */
static RowsArgs *new_rows(Binding *b) {
    RowsArgs *args = ARENA_NEW(b->arena, RowsArgs);
    const Type *x = &b->in_local[0];
    int last = x->rank - 1;
    args->dtype = b->in_local[0].dtype;
    args->rows = bind_rows(x);
    args->n = x->dims[last];
    args->n_valid = bind_valid(b, bind_input_type(b, 0), bind_input_sharding(b, 0), last);
    args->offset = bind_offset(b, bind_input_type(b, 0), bind_input_sharding(b, 0), last);
    args->eps = (float)node_float(b->node, ATTR_eps, 0);
    args->workspace = b->workspace;
    for (int i = 0; i < b->node->n_inputs && i < 5; i++) args->in[i] = b->in[i];
    for (int i = 0; i < b->node->n_outputs && i < 3; i++) args->out[i] = b->out[i];
    return args;
}

static bool run_layernorm(const void *args) {
    const RowsArgs *a = args;
    layernorm_forward(a->dtype, a->rows, a->n, a->in[0], a->in[1], a->in[2], a->eps, a->out[0],
                      a->out[1], a->out[2]);
    return true;
}

bool cpu_bind_layernorm(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_layernorm, new_rows(b)};
    return true;
}

static bool run_layernorm_grad(const void *args) {
    const RowsArgs *a = args;
    layernorm_backward(a->dtype, a->rows, a->n, a->in[0], a->in[1], a->in[2], a->in[3], a->in[4],
                       a->out[0], a->out[1], a->out[2], a->workspace);
    return true;
}

static bool check_workspace(Binding *b, const RowsArgs *args) {
    if (norm_backward_workspace_bytes(args->rows, args->n) >
        (size_t)op_workspace_bytes(b->node, b->in_local)) {
        BUG("the plan reserves too little workspace for %s", OPS[b->node->op].name);
    }
    return true;
}

bool cpu_bind_layernorm_grad(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_layernorm_grad, new_rows(b)};
    return check_workspace(b, out->args);
}

static bool run_rmsnorm(const void *args) {
    const RowsArgs *a = args;
    rmsnorm_forward(a->dtype, a->rows, a->n, a->in[0], a->in[1], a->eps, a->out[0], a->out[1]);
    return true;
}

bool cpu_bind_rmsnorm(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_rmsnorm, new_rows(b)};
    return true;
}

static bool run_rmsnorm_grad(const void *args) {
    const RowsArgs *a = args;
    rmsnorm_backward(a->dtype, a->rows, a->n, a->in[0], a->in[1], a->in[2], a->in[3], a->out[0],
                     a->out[1], a->workspace);
    return true;
}

bool cpu_bind_rmsnorm_grad(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_rmsnorm_grad, new_rows(b)};
    return check_workspace(b, out->args);
}

static bool run_logsumexp(const void *args) {
    const RowsArgs *a = args;
    softmax_logsumexp(a->dtype, a->rows, a->n, a->n_valid, a->in[0], a->out[0]);
    return true;
}

bool cpu_bind_logsumexp(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_logsumexp, new_rows(b)};
    return true;
}

static bool run_pick(const void *args) {
    const RowsArgs *a = args;
    softmax_pick(a->dtype, a->rows, a->n, a->n_valid, a->offset, a->in[0], a->in[1], a->out[0]);
    return true;
}

bool cpu_bind_pick(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_pick, new_rows(b)};
    return true;
}

static bool run_cross_entropy_grad(const void *args) {
    const RowsArgs *a = args;
    softmax_cross_entropy_grad(a->dtype, a->rows, a->n, a->n_valid, a->offset, a->in[0], a->in[1],
                               a->in[2], a->in[3], a->in[4], a->out[0]);
    return true;
}

bool cpu_bind_cross_entropy_grad(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_cross_entropy_grad, new_rows(b)};
    return true;
}

typedef struct DivergenceCall {
    Divergence what;
    const float *needed, *dvalue; /* of the gradient */
    void *out[2];
} DivergenceCall;

static DivergenceCall *new_divergence(Binding *b) {
    const RowsArgs *rows = new_rows(b);
    DivergenceCall *call = ARENA_NEW(b->arena, DivergenceCall);
    call->what = (Divergence){.dtype = rows->dtype,
                              .rows = rows->rows,
                              .n_local = rows->n,
                              .n_valid = rows->n_valid,
                              .beta = (float)node_float(b->node, ATTR_beta, 0),
                              .s = b->in[0],
                              .t = b->in[1],
                              .lse_s = b->in[2],
                              .lse_t = b->in[3]};
    for (int i = 0; i < b->node->n_outputs; i++) call->out[i] = b->out[i];
    return call;
}

static bool run_divergence_rows(const void *args) {
    const DivergenceCall *call = args;
    divergence_rows(&call->what, call->out[0], call->out[1]);
    return true;
}

bool cpu_bind_divergence_rows(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_divergence_rows, new_divergence(b)};
    return true;
}

static bool run_divergence_grad(const void *args) {
    const DivergenceCall *call = args;
    divergence_grad(&call->what, call->needed, call->dvalue, call->out[0]);
    return true;
}

bool cpu_bind_divergence_grad(Binding *b, CpuCall *out) {
    DivergenceCall *call = new_divergence(b);
    call->needed = b->in[4];
    call->dvalue = b->in[5];
    *out = (CpuCall){run_divergence_grad, call};
    return true;
}

typedef struct StoredCall {
    Stored what;
    const float *on, *off, *dvalue; /* of the gradient */
    void *out[3];
} StoredCall;

static StoredCall *new_stored(Binding *b) {
    const RowsArgs *rows = new_rows(b);
    const Type *words = &b->in_local[1];
    StoredCall *call = ARENA_NEW(b->arena, StoredCall);
    call->what = (Stored){.dtype = rows->dtype,
                          .rows = rows->rows,
                          .n_local = rows->n,
                          .n_valid = rows->n_valid,
                          .offset = rows->offset,
                          .n_words = words->dims[words->rank - 1],
                          .s = b->in[0],
                          .words = b->in[1],
                          .logprobs = b->in[2],
                          .lse = b->in[3]};
    for (int i = 0; i < b->node->n_outputs; i++) call->out[i] = b->out[i];
    return call;
}

static bool run_stored_rows(const void *args) {
    const StoredCall *call = args;
    stored_rows(&call->what, call->out[0], call->out[1], call->out[2]);
    return true;
}

bool cpu_bind_stored_rows(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_stored_rows, new_stored(b)};
    return true;
}

static bool run_stored_grad(const void *args) {
    const StoredCall *call = args;
    stored_grad(&call->what, call->on, call->off, call->dvalue, call->out[0]);
    return true;
}

bool cpu_bind_stored_grad(Binding *b, CpuCall *out) {
    StoredCall *call = new_stored(b);
    call->on = b->in[4];
    call->off = b->in[5];
    call->dvalue = b->in[6];
    *out = (CpuCall){run_stored_grad, call};
    return true;
}

typedef struct RotaryArgs {
    DType dtype;
    int64_t outer, seq, inner, head, stride; /* head: of what turns */
    DimSpan place;
    const int32_t *places; /* NULL: as `place` has them */
    double base;
    RotaryScaling scaling;
    int direction;
    const void *in;
    void *out;
} RotaryArgs;

static bool run_rotary(const void *args) {
    const RotaryArgs *a = args;
    if (a->places) {
        rotary_apply_at(a->dtype, a->outer, a->seq, a->inner, a->head, a->stride, a->places,
                        a->base, &a->scaling, a->direction, a->in, a->out);
        return true;
    }
    rotary_apply(a->dtype, a->outer, a->seq, a->inner, a->head, a->stride, &a->place, a->base,
                 &a->scaling, a->direction, a->in, a->out);
    return true;
}

bool cpu_bind_rotary(Binding *b, CpuCall *out) {
    RotaryArgs *args = ARENA_NEW(b->arena, RotaryArgs);
    const Type *x = &b->in_local[0];
    int seq = type_find_axis(x, node_axis(b->node, ATTR_seq));
    *args = (RotaryArgs){
        .dtype = b->in_local[0].dtype, .outer = 1, .inner = 1, .in = b->in[0], .out = b->out[0]};
    for (int i = 0; i < x->rank - 1; i++) {
        if (i < seq) args->outer *= x->dims[i];
        if (i > seq) args->inner *= x->dims[i];
    }
    args->seq = x->dims[seq];
    args->stride = x->dims[x->rank - 1];
    args->head = rotary_turned(b->node, args->stride);
    args->place = bind_span(b, bind_input_type(b, 0), bind_input_sharding(b, 0), seq);
    args->places = b->node->n_inputs > 1 ? b->in[1] : NULL;
    args->base = node_float(b->node, ATTR_base, 10000);
    args->scaling = rotary_scaling(b->node);
    args->direction = (int)node_int(b->node, ATTR_direction, 1);
    *out = (CpuCall){run_rotary, args};
    return true;
}

typedef struct EmbeddingArgs {
    int64_t n, model, vocab_local, vocab_offset;
    const int32_t *tokens;
    const void *in;
    void *out;
    DType dtype;
    bool accumulate;
} EmbeddingArgs;

static EmbeddingArgs *new_embedding(Binding *b, const Type *table, const Sharding *sharding,
                                    const Type *local) {
    EmbeddingArgs *args = ARENA_NEW(b->arena, EmbeddingArgs);
    args->n = type_elements(&b->in_local[0]);
    args->model = local->dims[1];
    args->vocab_local = local->dims[0];
    args->vocab_offset = bind_offset(b, table, sharding, 0);
    args->tokens = b->in[0];
    args->in = b->in[1];
    args->dtype = b->in_local[1].dtype;
    args->out = b->out[0];
    return args;
}

static bool run_embedding(const void *args) {
    const EmbeddingArgs *a = args;
    embedding_forward(a->dtype, a->n, a->model, a->vocab_local, a->vocab_offset, a->tokens, a->in,
                      a->out);
    return true;
}

bool cpu_bind_embedding(Binding *b, CpuCall *out) {
    const EmbeddingArgs *args =
        new_embedding(b, bind_input_type(b, 1), bind_input_sharding(b, 1), &b->in_local[1]);
    *out = (CpuCall){run_embedding, args};
    return true;
}

static bool run_embedding_grad(const void *args) {
    const EmbeddingArgs *a = args;
    embedding_backward(a->dtype, a->n, a->model, a->vocab_local, a->vocab_offset, a->tokens, a->in,
                       a->accumulate, a->out);
    return true;
}

bool cpu_bind_embedding_grad(Binding *b, CpuCall *out) {
    EmbeddingArgs *args =
        new_embedding(b, &b->node->types[0], &b->node->shardings[0], &b->out_local[0]);
    args->accumulate = b->node->n_inputs == 4 && !b->overwrite;
    *out = (CpuCall){run_embedding_grad, args};
    return true;
}

typedef struct DocumentsArgs {
    DocumentsShape shape;
    NgramRule ngram;
    const int32_t *tokens;
    int32_t *out[2];
} DocumentsArgs;

static const DocumentsArgs *new_documents(Binding *b) {
    DocumentsArgs *args = ARENA_NEW(b->arena, DocumentsArgs);
    const Type *tokens = &b->in_local[0];
    int last = tokens->rank - 1;
    args->shape =
        (DocumentsShape){.rows = bind_rows(tokens),
                         .n = tokens->dims[last],
                         .kept = b->out_local[0].dims[last],
                         .place = bind_span(b, &b->node->types[0], &b->node->shardings[0], last),
                         .separator = documents_token(b->node),
                         .apart = node_int(b->node, ATTR_apart, 0) != 0};
    args->ngram = (NgramRule){.by = (int32_t)node_int(b->node, ATTR_by, 1),
                              .count = (int32_t)node_int(b->node, ATTR_count, 1),
                              .seed = (uint32_t)node_int(b->node, ATTR_seed, 0)};
    args->tokens = b->in[0];
    for (int o = 0; o < b->node->n_outputs; o++) args->out[o] = b->out[o];
    return args;
}

static bool run_documents(const void *args) {
    const DocumentsArgs *a = args;
    documents_find(&a->shape, a->tokens, a->out[0], a->out[1]);
    return true;
}

bool cpu_bind_documents(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_documents, new_documents(b)};
    return bind_whole_documents(b);
}

static bool run_document_ends(const void *args) {
    const DocumentsArgs *a = args;
    documents_find_ends(&a->shape, a->tokens, a->out[0]);
    return true;
}

bool cpu_bind_document_ends(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_document_ends, new_documents(b)};
    return bind_whole_documents(b);
}

static bool run_ngram(const void *args) {
    const DocumentsArgs *a = args;
    documents_hash(&a->shape, &a->ngram, a->tokens, a->out[0]);
    return true;
}

bool cpu_bind_ngram(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_ngram, new_documents(b)};
    return bind_whole_documents(b);
}

static bool run_occurrence(const void *args) {
    const DocumentsArgs *a = args;
    documents_count(&a->shape, a->tokens, a->out[0]);
    return true;
}

bool cpu_bind_occurrence(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_occurrence, new_documents(b)};
    return bind_whole_documents(b);
}

typedef struct AttentionArgs {
    AttentionShape shape;
    const void *in[8];
    void *out[3], *workspace;
    int64_t heads; /* of the group, that are no padding */
    const StepState *state;
} AttentionArgs;

static AttentionArgs *new_attention(Binding *b) {
    AttentionArgs *args = ARENA_NEW(b->arena, AttentionArgs);
    const Type *q = &b->in_local[0];
    args->shape =
        (AttentionShape){.batch = q->dims[0],
                         .seq = q->dims[1],
                         .kv_heads = q->dims[2],
                         .group = q->rank == 5 ? q->dims[3] : 1,
                         .head = q->dims[q->rank - 1],
                         .keys = b->in_local[1].dims[1],
                         .place = bind_span(b, bind_input_type(b, 0), bind_input_sharding(b, 0), 1),
                         .dtype = b->in_local[0].dtype,
                         .causal = node_int(b->node, ATTR_causal, 1) != 0,
                         .scale = (float)node_float(b->node, ATTR_scale, 1),
                         .window = node_int(b->node, ATTR_window, 0),
                         .softcap = (float)node_float(b->node, ATTR_softcap, 0),
                         .values = b->in_local[2].dims[3],
                         .drop = bind_drop(b)};
    args->state = cpu_context(b)->state;
    args->workspace = b->workspace;
    args->heads =
        q->rank == 5 ? bind_valid(b, bind_input_type(b, 0), bind_input_sharding(b, 0), 3) : 1;
    for (int i = 0; i < b->node->n_inputs; i++) args->in[i] = b->in[i];
    for (int i = 0; i < b->node->n_outputs; i++) args->out[i] = b->out[i];
    return args;
}

/* x [batch, seq, kv_heads, group, ..], of so many bytes a head: what padding's queries, which are
 * zero, see of keys that are not. */
static void zero_padding(const AttentionArgs *a, void *x, int64_t head_bytes) {
    const AttentionShape *s = &a->shape;
    const int64_t width = s->group * head_bytes, kept = a->heads * head_bytes;
    for (int64_t i = 0; kept < width && i < s->batch * s->seq * s->kv_heads; i++) {
        memset((char *)x + i * width + kept, 0, (size_t)(width - kept));
    }
}

static AttentionShape shape_of_step(const AttentionArgs *a) {
    AttentionShape shape = a->shape;
    if (!shape.drop.threshold) return shape;
    if (!a->state->train) shape.drop.threshold = 0;
    shape.random =
        (PhiloxStream){.seed = a->state->seed, .step = a->state->step, .key = shape.drop.stream};
    return shape;
}

static bool run_attention(const void *args) {
    const AttentionArgs *a = args;
    const AttentionShape shape = shape_of_step(a);
    if (!attention_forward(&shape, a->in[0], a->in[1], a->in[2], a->out[0], a->out[1], a->out[2])) {
        return false;
    }
    if (a->out[2]) zero_padding(a, a->out[2], (int64_t)sizeof(float));
    zero_padding(a, a->out[0], a->shape.values * dtype_bytes(a->shape.dtype));
    zero_padding(a, a->out[1], (int64_t)sizeof(float));
    return true;
}

bool cpu_bind_attention(Binding *b, CpuCall *out) {
    AttentionArgs *args = new_attention(b);
    *out = (CpuCall){run_attention, args};
    return bind_starts(b, &args->shape.starts, &args->shape.ends);
}

static bool run_attention_grad(const void *args) {
    const AttentionArgs *a = args;
    const AttentionShape shape = shape_of_step(a);
    return attention_backward(&shape, a->in[0], a->in[1], a->in[2], a->in[3], a->in[4], a->in[5],
                              a->out[0], a->out[1], a->out[2], a->workspace);
}

bool cpu_bind_attention_grad(Binding *b, CpuCall *out) {
    AttentionArgs *args = new_attention(b);
    *out = (CpuCall){run_attention_grad, args};
    return bind_starts(b, &args->shape.starts, &args->shape.ends);
}
