/* Where the processor has tiles (AMX), products use them (tile_product.h), of f32 too. Else, f32:
 * dnnl_sgemm is near the machine's peak except where B is stored transposed and k is long: there it
 * reaches 300-450 GF/s where a matmul primitive reaches 430-490 (two Zen 5 cores, GPT-2 124M's
 * shapes). Those products use primitives, prepared once per shape and kept. bf16: primitives where
 * the CPU has its instructions, prepared when a node is bound. f16: oneDNN 2 has none. */
#include "runtime/cpu/gemm.h"

#include "runtime/cpu/gemm_widened.h"
#include "runtime/cpu/small_product.h"
#include "runtime/cpu/tile_product.h"
#include "runtime/cpu/tiles.h"

#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A prepared primitive with the memory objects of one execution: two threads cannot share it, so an
 * entry is taken while it runs, and a second thread prepares its own for the same shape. */
typedef struct PreparedProduct {
    int64_t m, n, k, lda, ldb, ldc;
    int n_threads; /* it keeps those that it was made with */
    float beta;
    bool used, busy;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
    dnnl_stream_t stream;
} PreparedProduct;

#define CACHE_SLOTS 512 /* shapes of a model times ranks in the process; full: dnnl_sgemm */

static struct {
    pthread_mutex_t lock;
    dnnl_engine_t engine;
    PreparedProduct slots[CACHE_SLOTS];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* oneDNN 2's products of bf16 for AMX run tile instructions without a tile configuration, which are
 * illegal then (seen with 2.6.3; their issue 1661 has it in 2.7.3). AVX-512 is used instead, and
 * with any version where tiles.h is told to leave AMX alone; that has to be said before the
 * library's first use. */
#if defined(__x86_64__)
__attribute__((constructor)) static void avoid_amx(void) {
    if (getenv("ONEDNN_MAX_CPU_ISA") || getenv("DNNL_MAX_CPU_ISA")) return;
    if (dnnl_version()->major < 3 || tiles_unwanted())
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}
#endif

static _Thread_local dnnl_status_t last_status;

#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_ != dnnl_success) return status_;                                               \
    } while (0)

/* [batch,] rows, columns; a batch's matrices lie one after the other. */
static dnnl_status_t create_desc(dnnl_memory_desc_t *out_desc, dnnl_data_type_t type, int64_t batch,
                                 int64_t rows, int64_t columns, int64_t row_stride,
                                 int64_t column_stride) {
    dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    dnnl_dims_t many = {batch, rows, columns};
    dnnl_dims_t many_strides = {rows * columns, row_stride, column_stride};
    bool one = batch == 1;
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(out_desc, one ? 2 : 3, one ? dims : many, type,
                                                one ? strides : many_strides);
#else
    return dnnl_memory_desc_init_by_strides(out_desc, one ? 2 : 3, one ? dims : many, type,
                                            one ? strides : many_strides);
#endif
}

static dnnl_status_t create_memory(dnnl_memory_t *out_memory, dnnl_memory_desc_t *desc) {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_create(out_memory, *desc, cache.engine, DNNL_MEMORY_NONE);
#else
    return dnnl_memory_create(out_memory, desc, cache.engine, DNNL_MEMORY_NONE);
#endif
}

static dnnl_status_t create_primitive(PreparedProduct *p, dnnl_memory_desc_t desc[3]) {
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success && p->beta != 0) {
        status = dnnl_post_ops_create(&post);
#if DNNL_VERSION_MAJOR >= 3
        if (status == dnnl_success)
            status = dnnl_post_ops_append_sum(post, p->beta, 0, dnnl_data_type_undef);
#else
        if (status == dnnl_success) status = dnnl_post_ops_append_sum(post, p->beta);
#endif
        if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, post);
    }
#if DNNL_VERSION_MAJOR >= 3
    if (status == dnnl_success)
        status = dnnl_matmul_primitive_desc_create(&pd, cache.engine, desc[0], desc[1], NULL,
                                                   desc[2], attr);
#else
    dnnl_matmul_desc_t op;
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&op, &desc[0], &desc[1], NULL, &desc[2]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&pd, &op, attr, cache.engine, NULL);
#endif
    if (status == dnnl_success) status = dnnl_primitive_create(&p->primitive, pd);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (post) dnnl_post_ops_destroy(post);
    return status;
}

static void destroy_product(PreparedProduct *p) {
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->a) dnnl_memory_destroy(p->a);
    if (p->b) dnnl_memory_destroy(p->b);
    if (p->c) dnnl_memory_destroy(p->c);
    if (p->stream) dnnl_stream_destroy(p->stream);
    *p = (PreparedProduct){0};
}

/* From descriptions of a, b and c, which it frees. */
static dnnl_status_t finish_product(PreparedProduct *p, dnnl_memory_desc_t desc[3],
                                    dnnl_status_t status) {
    if (status == dnnl_success) status = create_memory(&p->a, &desc[0]);
    if (status == dnnl_success) status = create_memory(&p->b, &desc[1]);
    if (status == dnnl_success) status = create_memory(&p->c, &desc[2]);
    if (status == dnnl_success)
        status = dnnl_stream_create(&p->stream, cache.engine, dnnl_stream_default_flags);
    if (status == dnnl_success) status = create_primitive(p, desc);
#if DNNL_VERSION_MAJOR >= 3
    for (int i = 0; i < 3; i++)
        if (desc[i]) dnnl_memory_desc_destroy(desc[i]);
#endif
    if (status != dnnl_success) destroy_product(p);
    return status;
}

static dnnl_status_t create_product(PreparedProduct *p) {
    if (!cache.engine) TRY_DNNL(dnnl_engine_create(&cache.engine, dnnl_cpu, 0));
    dnnl_memory_desc_t desc[3] = {0};
    dnnl_status_t status = create_desc(&desc[0], dnnl_f32, 1, p->m, p->k, p->lda, 1);
    if (status == dnnl_success) status = create_desc(&desc[1], dnnl_f32, 1, p->k, p->n, 1, p->ldb);
    if (status == dnnl_success) status = create_desc(&desc[2], dnnl_f32, 1, p->m, p->n, p->ldc, 1);
    return finish_product(p, desc, status);
}

static bool same_product(const PreparedProduct *p, const PreparedProduct *q) {
    return p->m == q->m && p->n == q->n && p->k == q->k && p->lda == q->lda && p->ldb == q->ldb &&
           p->ldc == q->ldc && p->beta == q->beta && p->n_threads == q->n_threads;
}

/* A prepared product of this shape that nobody runs, now the caller's. NULL: none can be had. */
static PreparedProduct *take_product(const PreparedProduct *key) {
    uint64_t hash = (uint64_t)key->m * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (uint64_t)key->n) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (uint64_t)key->k) * 0x9e3779b97f4a7c15u;
    PreparedProduct *found = NULL;
    pthread_mutex_lock(&cache.lock);
    for (int i = 0; i < CACHE_SLOTS && !found; i++) {
        PreparedProduct *p = &cache.slots[(hash >> 32) % CACHE_SLOTS];
        hash += (uint64_t)1 << 32;
        if (!p->used) {
            *p = *key;
            if (create_product(p) != dnnl_success) break;
            p->used = true;
            found = p;
        } else if (!p->busy && same_product(p, key)) {
            found = p;
        }
    }
    if (found) found->busy = true;
    pthread_mutex_unlock(&cache.lock);
    return found;
}

static void give_product(PreparedProduct *p) {
    pthread_mutex_lock(&cache.lock);
    p->busy = false;
    pthread_mutex_unlock(&cache.lock);
}

static dnnl_status_t run_product(PreparedProduct *p, const void *a, const void *b, void *c) {
    TRY_DNNL(dnnl_memory_set_data_handle(p->a, (void *)a));
    TRY_DNNL(dnnl_memory_set_data_handle(p->b, (void *)b));
    TRY_DNNL(dnnl_memory_set_data_handle(p->c, c));
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    TRY_DNNL(dnnl_primitive_execute(p->primitive, p->stream, 3, args));
    return dnnl_stream_wait(p->stream);
}

/* Where the primitive won when measured: k long, and the output not wide for its k. */
static bool prefers_primitive(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha) {
    return tb && !ta && alpha == 1.0f && m >= 16 && n >= 16 && k >= 512 && (m <= 512 || n <= k);
}

static void scale_rows(int64_t m, int64_t n, float beta, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

static bool run_tiles(const TileProduct *p, const void *a, const void *b, void *c) {
    const bool ok = tile_product(p, a, b, c);
    last_status = ok ? dnnl_success : dnnl_out_of_memory;
    return ok;
}

bool gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
              int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    last_status = dnnl_invalid_arguments;
    if (m < 0 || n < 0 || k < 0 || lda < (ta ? m : k) || ldb < (tb ? k : n) || ldc < n)
        return false;
    last_status = dnnl_success;
    if (m == 0 || n == 0) return true;
    if (k == 0 || alpha == 0) {
        if (beta != 1) scale_rows(m, n, beta, c, ldc);
        return true;
    }
    const TileProduct tiles = {.batch = 1,
                               .m = m,
                               .n = n,
                               .k = k,
                               .ta = ta,
                               .tb = tb,
                               .dtype = DTYPE_F32,
                               .out_dtype = DTYPE_F32,
                               .alpha = alpha,
                               .beta = beta,
                               .lda = lda,
                               .ldb = ldb,
                               .ldc = ldc};
    if (tile_product_does(&tiles)) return run_tiles(&tiles, a, b, c);
    if (prefers_primitive(ta, tb, m, n, k, alpha)) {
        PreparedProduct key = {
            .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc, .beta = beta};
        key.n_threads = omp_get_max_threads();
        PreparedProduct *p = take_product(&key);
        if (p) {
            last_status = run_product(p, a, b, c);
            give_product(p);
            return last_status == dnnl_success;
        }
    }
    last_status =
        dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return last_status == dnnl_success;
}

/* So many operations are worth a fork and join over threads. */
#define MANY_SMALL_FLOPS 2e5

/* One operand of each of a batch. */
typedef struct BatchOperand {
    const float *first;
    int64_t stride;
} BatchOperand;

/* A product as small_product has it: vectors lie as rows, whichever way they are said to, and a
 * column of C is a row, of the operands the other way round. False: it is none of these. */
static bool make_small(SmallProduct *p, BatchOperand *a, BatchOperand *b) {
    if (p->m <= 0 || p->n <= 0 || p->k <= 0 || p->lda < (p->ta ? p->m : p->k) ||
        p->ldb < (p->tb ? p->k : p->n) || p->ldc < p->n)
        return false;
    if (p->ta && p->m == 1 && p->lda == 1) p->ta = false, p->lda = p->k;
    if (!p->tb && p->n == 1 && p->ldb == 1) p->tb = true, p->ldb = p->k;
    if (p->tb && p->n == 1 && p->ldc == 1 && p->m > 1) {
        const SmallProduct was = *p;
        const BatchOperand rows = *a;
        *p = (SmallProduct){.tb = !was.ta,
                            .m = 1,
                            .n = was.m,
                            .k = was.k,
                            .alpha = was.alpha,
                            .beta = was.beta,
                            .lda = was.ldb,
                            .ldb = was.lda,
                            .ldc = was.m};
        *a = *b;
        *b = rows;
    }
    return small_product_does(p);
}

static void run_small_batch(const SmallProduct *p, BatchOperand a, BatchOperand b, float *c,
                            int64_t stride_c, int64_t batch) {
    const double flops = 2.0 * (double)batch * (double)(p->m * p->n * p->k);
    (void)flops; /* without OpenMP */
#pragma omp parallel for schedule(static) if (flops > MANY_SMALL_FLOPS)
    for (int64_t i = 0; i < batch; i++) {
        small_product(p, a.first + i * a.stride, b.first + i * b.stride, c + i * stride_c);
    }
}

/* Below this many operations a product's fork and join over threads cost more than they gain. */
#define SMALL_PRODUCT_FLOPS 4e6

bool gemm_f32_batched(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                      const float *a, int64_t lda, int64_t stride_a, const float *b, int64_t ldb,
                      int64_t stride_b, float beta, float *c, int64_t ldc, int64_t stride_c,
                      int64_t batch) {
    SmallProduct small = {ta, tb, m, n, k, alpha, beta, lda, ldb, ldc};
    BatchOperand left = {a, stride_a}, right = {b, stride_b};
    last_status = dnnl_success;
    if (batch > 1 && make_small(&small, &left, &right)) {
        run_small_batch(&small, left, right, c, stride_c, batch);
        return true;
    }
    bool parallel = batch > 1 && 2.0 * (double)m * (double)n * (double)k < SMALL_PRODUCT_FLOPS;
    (void)parallel; /* without OpenMP */
    dnnl_status_t first_failure = dnnl_success;
    /* Inside a parallel region oneDNN uses the one thread it is called on. */
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t i = 0; i < batch; i++) {
        if (gemm_f32(ta, tb, m, n, k, alpha, a + i * stride_a, lda, b + i * stride_b, ldb, beta,
                     c + i * stride_c, ldc))
            continue;
        dnnl_status_t status = last_status;
#pragma omp critical(gemm_failure)
        first_failure = status;
    }
    last_status = first_failure;
    return first_failure == dnnl_success;
}

/* --- bf16 and f16 --- */

struct GemmPlan {
    GemmPlan *next;
    GemmShape shape;
    bool tiled, native; /* on tiles; or oneDNN has a kernel for it on this CPU, and it is used */
    TileProduct tiles;
    PreparedProduct product;
};

struct GemmPlans {
    GemmPlan *first;
};

static bool refuse_native;

void gemm_refuse_native_low(bool refuse) {
    refuse_native = refuse;
}

GemmPlans *gemm_plans_create(void) {
    return calloc(1, sizeof(GemmPlans));
}

void gemm_plans_destroy(GemmPlans *plans) {
    for (GemmPlan *plan = plans ? plans->first : NULL, *next; plan; plan = next) {
        next = plan->next;
        destroy_product(&plan->product);
        free(plan);
    }
    free(plans);
}

static dnnl_status_t prepare_native(GemmPlan *plan) {
    const GemmShape *s = &plan->shape;
    const dnnl_data_type_t out = dtype_is_low(s->out_dtype) ? dnnl_bf16 : dnnl_f32;
    if (refuse_native || s->dtype != DTYPE_BF16) return dnnl_unimplemented;
    plan->product.beta = s->accumulate ? 1 : 0;
    pthread_mutex_lock(&cache.lock);
    dnnl_status_t status = dnnl_success;
    if (!cache.engine) status = dnnl_engine_create(&cache.engine, dnnl_cpu, 0);
    pthread_mutex_unlock(&cache.lock);
    dnnl_memory_desc_t desc[3] = {0};
    if (status == dnnl_success)
        status = create_desc(&desc[0], dnnl_bf16, s->batch, s->m, s->k, s->ta ? 1 : s->k,
                             s->ta ? s->m : 1);
    if (status == dnnl_success)
        status = create_desc(&desc[1], dnnl_bf16, s->batch, s->k, s->n, s->tb ? 1 : s->n,
                             s->tb ? s->k : 1);
    if (status == dnnl_success) status = create_desc(&desc[2], out, s->batch, s->m, s->n, s->n, 1);
    return finish_product(&plan->product, desc, status);
}

static bool same_shape(const GemmShape *a, const GemmShape *b) {
    return a->batch == b->batch && a->m == b->m && a->n == b->n && a->k == b->k && a->ta == b->ta &&
           a->tb == b->tb && a->dtype == b->dtype && a->out_dtype == b->out_dtype &&
           a->accumulate == b->accumulate;
}

static TileProduct tiles_of(const GemmShape *s) {
    return (TileProduct){.batch = s->batch,
                         .m = s->m,
                         .n = s->n,
                         .k = s->k,
                         .ta = s->ta,
                         .tb = s->tb,
                         .dtype = s->dtype,
                         .out_dtype = s->out_dtype,
                         .alpha = 1,
                         .beta = s->accumulate ? 1 : 0,
                         .lda = s->ta ? s->m : s->k,
                         .ldb = s->tb ? s->k : s->n,
                         .ldc = s->n,
                         .stride_a = s->m * s->k,
                         .stride_b = s->k * s->n,
                         .stride_c = s->m * s->n};
}

const GemmPlan *gemm_plan_low(GemmPlans *plans, const GemmShape *shape) {
    GemmPlan *plan = plans->first;
    while (plan && !same_shape(&plan->shape, shape)) plan = plan->next;
    if (plan) return plan;
    plan = calloc(1, sizeof *plan);
    last_status = dnnl_out_of_memory;
    if (!plan) return NULL;
    plan->shape = *shape;
    plan->tiles = tiles_of(shape);
    plan->tiled = !refuse_native && tile_product_does(&plan->tiles);
    last_status = plan->tiled ? dnnl_success : prepare_native(plan);
    plan->native = !plan->tiled && last_status == dnnl_success;
    if (last_status != dnnl_success && last_status != dnnl_unimplemented) {
        free(plan);
        return NULL;
    }
    plan->next = plans->first;
    plans->first = plan;
    return plan;
}

bool gemm_run_low(const GemmPlan *plan, const uint16_t *a, const uint16_t *b, void *c,
                  void *workspace) {
    if (plan->tiled) return run_tiles(&plan->tiles, a, b, c);
    if (!plan->native) return gemm_widened(&plan->shape, a, b, c, workspace);
    last_status = run_product((PreparedProduct *)&plan->product, a, b, c);
    return last_status == dnnl_success;
}

const char *gemm_status_text(void) {
    switch (last_status) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory for the operands of a matrix product";
    case dnnl_invalid_arguments: return "oneDNN: invalid sizes or leading dimensions";
    case dnnl_unimplemented: return "oneDNN: not implemented on this machine";
    case dnnl_runtime_error: return "oneDNN: failed while running";
    default: return "oneDNN: unexpected status";
    }
}

void gemm_library_version(char *out_text, size_t size_bytes) {
    const dnnl_version_t *version = dnnl_version();
    snprintf(out_text, size_bytes, "oneDNN %d.%d.%d", version->major, version->minor,
             version->patch);
}

void gemm_release_cache(void) {
    pthread_mutex_lock(&cache.lock);
    for (int i = 0; i < CACHE_SLOTS; i++) destroy_product(&cache.slots[i]);
    pthread_mutex_unlock(&cache.lock);
}
