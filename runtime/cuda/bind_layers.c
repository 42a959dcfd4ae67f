/* CUDA binders of norms, losses, rotary and embedding. How work is cut follows from sizes and
 * dtypes alone, so that results and workspace are the same on every device. */
#include "ir/ops/rotary.h"
#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/workspace.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Enough threads for `items` in one turn, in whole warps. */
static int threads_for(int64_t items, int most) {
    int64_t threads = divide_up(items, 32) * 32;
    return threads < 32 ? 32 : threads < most ? (int)threads : most;
}

static Grid grid_of(int64_t x, int64_t y) {
    return (Grid){cuda_grid_size(x), cuda_grid_size(y), 1};
}

/* Elements of 16 bytes. */
static int vector_elements(const Type *type) {
    return 16 / dtype_bytes(type->dtype);
}

/* Kernels count a row's elements, and norms' gradients twice as many sums, in an int. */
static bool row_fits(Binding *b) {
    const Type *x = &b->in_local[0];
    if (x->dims[x->rank - 1] <= 1 << 30) return true;
    return bind_fail(b, "has rows too wide for its CUDA kernel");
}

/* Norms */

typedef struct NormKernels {
    KernelsByDtype warp, block, any;
    KernelsByDtype grad_narrow, grad_rows, grad_columns, grad_any;
} NormKernels;
#define NORM(name)                                                                                 \
    {                                                                                              \
        KERNELS_BY_DTYPE(name##_warp), KERNELS_BY_DTYPE(name##_block),                             \
            KERNELS_BY_DTYPE(name##_any), KERNELS_BY_DTYPE(name##_grad_narrow),                    \
            KERNELS_BY_DTYPE(name##_grad_rows), KERNELS_BY_DTYPE(name##_grad_columns),             \
            KERNELS_BY_DTYPE(name##_grad_any)                                                      \
    }
static const NormKernels LAYERNORM = NORM(layernorm), RMSNORM = NORM(rmsnorm);

/* Of norm.cu and norm_grad.cu: how many vectors of a row a thread holds. */
enum { NORM_PACKS = 4, GRAD_PACKS = 2 };
enum { NORM_ANY_THREADS = 256, NORM_BLOCK_THREADS = 1024, NORM_GRAD_THREADS = 512 };

static bool push_norm(Binding *b, const NormKernels *kernels, NormArgs *args) {
    const Type *x = &b->in_local[0];
    int v = vector_elements(x), rows_per_block = 4;
    int64_t n = x->dims[x->rank - 1];
    args->rows = bind_rows(x);
    args->n = (int32_t)n;
    args->eps = (float)node_float(b->node, ATTR_eps, 0);
    args->x = b->in[0];
    args->gain = b->in[1];
    args->y = b->out[0];
    if (!row_fits(b)) return false;
    if (n % v == 0 && n <= 32 * NORM_PACKS * v) {
        return cuda_push_launch(b, kernel_for_dtype(&kernels->warp, x->dtype),
                                grid_of(divide_up(args->rows, rows_per_block), 1),
                                32 * rows_per_block, 0, args, sizeof(*args));
    }
    if (n % v == 0 && n <= NORM_BLOCK_THREADS * NORM_PACKS * v) {
        int threads = threads_for(divide_up(n, NORM_PACKS * v), NORM_BLOCK_THREADS);
        return cuda_push_launch(b, kernel_for_dtype(&kernels->block, x->dtype),
                                grid_of(args->rows, 1), threads, 0, args, sizeof(*args));
    }
    return cuda_push_launch(b, kernel_for_dtype(&kernels->any, x->dtype), grid_of(args->rows, 1),
                            threads_for(n, NORM_ANY_THREADS), 0, args, sizeof(*args));
}

bool cuda_bind_layernorm(Binding *b) {
    NormArgs args = {.bias = b->in[2], .mean = b->out[1], .inv = b->out[2]};
    return push_norm(b, &LAYERNORM, &args);
}

bool cuda_bind_rmsnorm(Binding *b) {
    NormArgs args = {.inv = b->out[1]};
    return push_norm(b, &RMSNORM, &args);
}

/* One vector a thread for rows of these; else two, as far as they go. */
static bool is_narrow(int64_t n, int v) {
    return n <= NORM_GRAD_NARROW_THREADS * v;
}

/* Of norm_grad_rows, whose threads hold a row between them; 0: rows are no whole vectors, or too
 * wide.
 */
static int norm_grad_threads(int64_t n, int v) {
    if (n % v || n > NORM_GRAD_THREADS * GRAD_PACKS * v) return 0;
    return threads_for(divide_up(n, (is_narrow(n, v) ? 1 : GRAD_PACKS) * v), NORM_GRAD_THREADS);
}

/* As many groups as norm_grad_rows' blocks run at once on an H200: with a few more all would wait
 * for a second round there, and a block walks for long. (On an A100 with its 108 processors some
 * do.) Else enough groups to fill a large device, but partial sums of a few megabytes at most. */
static int64_t norm_rows_per_group(int64_t rows, int64_t n, int v) {
    enum { MOST_GROUPS = 2048, LEAST_GROUPS = 128, LEAST_ROWS = 8, MOST_PARTIAL = 1 << 20 };
    enum { PROCESSORS = 132, WARPS_AT_ONCE = 16 }; /* of up to 128 registers a thread, or 80 */
    enum { NARROW_WARPS_AT_ONCE = 24 };
    int64_t groups = MOST_PARTIAL / n;
    if (groups > MOST_GROUPS) groups = MOST_GROUPS;
    if (groups < LEAST_GROUPS) groups = LEAST_GROUPS;
    int threads = norm_grad_threads(n, v);
    int warps = is_narrow(n, v) ? NARROW_WARPS_AT_ONCE : WARPS_AT_ONCE;
    if (threads) groups = PROCESSORS * (warps / (threads / 32));
    int64_t per_group = divide_up(rows, groups);
    return per_group < LEAST_ROWS ? LEAST_ROWS : per_group;
}

int64_t cuda_norm_grad_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs) {
    int64_t n = inputs[0].dims[inputs[0].rank - 1], rows = bind_rows(&inputs[0]);
    int64_t sums = node->n_outputs == 3 ? 3 : 1; /* gain; of layernorm bias, and dx (norm_sum.h) */
    (void)outputs;
    return divide_up(rows, norm_rows_per_group(rows, n, vector_elements(&inputs[0]))) * sums * n *
           4;
}

/* Vectors that fit take one pass; else columns come first, since dx may lie where dy is. */
static bool push_norm_grad(Binding *b, const NormKernels *kernels, NormGradArgs *args) {
    const Type *x = &b->in_local[0];
    int v = vector_elements(x);
    int64_t n = x->dims[x->rank - 1], sums = b->node->n_outputs - 1;
    args->rows = bind_rows(x);
    args->rows_per_group = norm_rows_per_group(args->rows, n, v);
    args->n = (int32_t)n;
    args->x = b->in[0];
    args->gain = b->in[1];
    args->dx = b->out[0];
    args->partial = b->workspace;
    if (!row_fits(b)) return false;
    NormJoinArgs join = {.groups = divide_up(args->rows, args->rows_per_group),
                         .n = args->n,
                         .width = (int32_t)(sums * n),
                         .partial = b->workspace,
                         .dgain = b->out[1],
                         .dbias = sums == 2 ? b->out[2] : NULL};
    int threads = norm_grad_threads(n, v);
    bool good;
    if (threads) {
        const KernelsByDtype *rows = is_narrow(n, v) ? &kernels->grad_narrow : &kernels->grad_rows;
        good = cuda_push_launch(b, kernel_for_dtype(rows, x->dtype), grid_of(join.groups, 1),
                                threads, 0, args, sizeof(*args));
    } else {
        enum { COLUMNS = 128 };
        good = cuda_push_launch(b, kernel_for_dtype(&kernels->grad_columns, x->dtype),
                                grid_of(divide_up(n, COLUMNS), join.groups), COLUMNS, 0, args,
                                sizeof(*args)) &&
               cuda_push_launch(b, kernel_for_dtype(&kernels->grad_any, x->dtype),
                                grid_of(args->rows, 1), threads_for(n, NORM_ANY_THREADS), 0, args,
                                sizeof(*args));
    }
    return good && cuda_push_launch(b, KERNEL_norm_join,
                                    grid_of(divide_up(join.width, NORM_JOIN_COLUMNS), 1),
                                    threads_for(32 * join.groups, 1024), 0, &join, sizeof(join));
}

bool cuda_bind_layernorm_grad(Binding *b) {
    NormGradArgs args = {.mean = b->in[2], .inv = b->in[3], .dy = b->in[4]};
    return push_norm_grad(b, &LAYERNORM, &args);
}

bool cuda_bind_rmsnorm_grad(Binding *b) {
    NormGradArgs args = {.inv = b->in[2], .dy = b->in[3]};
    return push_norm_grad(b, &RMSNORM, &args);
}

/* Losses */

/* rows x n of operand 0, its last axis perhaps a padded shard. */
static SoftmaxArgs softmax_args(const Binding *b) {
    const Type *x = &b->in_local[0];
    int last = x->rank - 1;
    return (SoftmaxArgs){
        .rows = bind_rows(x),
        .n_local = (int32_t)x->dims[last],
        .n_valid = (int32_t)bind_valid(b, bind_input_type(b, 0), bind_input_sharding(b, 0), last),
        .offset = bind_offset(b, bind_input_type(b, 0), bind_input_sharding(b, 0), last),
        .x = b->in[0],
        .out = b->out[0],
    };
}

static bool push_softmax_rows(Binding *b, const KernelsByDtype *kernels, const SoftmaxArgs *args) {
    const Type *x = &b->in_local[0];
    int threads = threads_for(divide_up(args->n_local, vector_elements(x)), CROSS_ENTROPY_THREADS);
    return cuda_push_launch(b, kernel_for_dtype(kernels, x->dtype), grid_of(args->rows, 1), threads,
                            0, args, sizeof(*args));
}

bool cuda_bind_logsumexp(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(logsumexp);
    if (!row_fits(b)) return false;
    SoftmaxArgs args = softmax_args(b);
    return push_softmax_rows(b, &KERNELS_OF, &args);
}

bool cuda_bind_pick(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(pick);
    if (!row_fits(b)) return false;
    SoftmaxArgs args = softmax_args(b);
    args.index = b->in[1];
    return cuda_push_launch(b, kernel_for_dtype(&KERNELS_OF, b->in_local[0].dtype),
                            grid_of(divide_up(args.rows, 128), 1), 128, 0, &args, sizeof(args));
}

bool cuda_bind_cross_entropy_grad(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(cross_entropy_grad);
    if (!row_fits(b)) return false;
    SoftmaxArgs args = softmax_args(b);
    args.index = b->in[1];
    args.lse = b->in[2];
    args.dloss = b->in[3];
    if (b->node->n_inputs > 4) args.dlse = b->in[4];
    return push_softmax_rows(b, &KERNELS_OF, &args);
}

static bool push_divergence(Binding *b, const KernelsByDtype *kernels, DivergenceArgs args) {
    const SoftmaxArgs rows = softmax_args(b);
    if (!row_fits(b)) return false;
    args.rows = rows.rows;
    args.n_local = rows.n_local;
    args.n_valid = rows.n_valid;
    args.beta = (float)node_float(b->node, ATTR_beta, 0);
    args.s = b->in[0];
    args.t = b->in[1];
    args.lse_s = b->in[2];
    args.lse_t = b->in[3];
    return cuda_push_launch(b, kernel_for_dtype(kernels, b->in_local[0].dtype),
                            grid_of(args.rows, 1), threads_for(args.n_local, CROSS_ENTROPY_THREADS),
                            0, &args, sizeof(args));
}

bool cuda_bind_divergence_rows(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(divergence_rows);
    return push_divergence(b, &KERNELS_OF,
                           (DivergenceArgs){.value = b->out[0], .needed = b->out[1]});
}

bool cuda_bind_divergence_grad(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(divergence_grad);
    return push_divergence(
        b, &KERNELS_OF,
        (DivergenceArgs){.whole_needed = b->in[4], .dvalue = b->in[5], .out = b->out[0]});
}

static bool push_stored(Binding *b, const KernelsByDtype *kernels, StoredArgs args) {
    const SoftmaxArgs rows = softmax_args(b);
    const Type *words = &b->in_local[1];
    if (!row_fits(b)) return false;
    args.rows = rows.rows;
    args.offset = rows.offset;
    args.n_local = rows.n_local;
    args.n_valid = rows.n_valid;
    args.n_words = (int32_t)words->dims[words->rank - 1];
    args.s = b->in[0];
    args.words = b->in[1];
    args.logprobs = b->in[2];
    args.lse = b->in[3];
    return cuda_push_launch(b, kernel_for_dtype(kernels, b->in_local[0].dtype),
                            grid_of(args.rows, 1), threads_for(args.n_local, CROSS_ENTROPY_THREADS),
                            0, &args, sizeof(args));
}

bool cuda_bind_stored_rows(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(stored_rows);
    return push_stored(b, &KERNELS_OF,
                       (StoredArgs){.sum = b->out[0], .tail = b->out[1], .known = b->out[2]});
}

bool cuda_bind_stored_grad(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(stored_grad);
    return push_stored(
        b, &KERNELS_OF,
        (StoredArgs){.on = b->in[4], .off = b->in[5], .dvalue = b->in[6], .out = b->out[0]});
}

/* Documents */

static DocumentsArgs documents_args(const Binding *b) {
    const Type *tokens = &b->in_local[0];
    int last = tokens->rank - 1;
    int64_t kept = b->out_local[0].dims[last];
    DimSpan place = bind_span(b, &b->node->types[0], &b->node->shardings[0], last);
    return (DocumentsArgs){.rows = bind_rows(tokens),
                           .n = (int32_t)tokens->dims[last],
                           .kept = (int32_t)kept,
                           .split = (int32_t)(place.split < kept ? place.split : kept),
                           .first = (int32_t)place.first,
                           .second = (int32_t)place.second,
                           .separator = documents_token(b->node),
                           .apart = node_int(b->node, ATTR_apart, 0) != 0,
                           .by = (int32_t)node_int(b->node, ATTR_by, 1),
                           .count = (int32_t)node_int(b->node, ATTR_count, 1),
                           .seed = (uint32_t)node_int(b->node, ATTR_seed, 0),
                           .tokens = b->in[0]};
}

static bool push_documents(Binding *b, KernelId kernel, const DocumentsArgs *args,
                           int64_t n_blocks) {
    Grid grid = {cuda_grid_size(n_blocks), 1, 1};
    return bind_whole_documents(b) &&
           cuda_push_launch(b, kernel, grid, DOCUMENTS_THREADS, 0, args, sizeof(*args));
}

bool cuda_bind_documents(Binding *b) {
    DocumentsArgs args = documents_args(b);
    args.starts = b->out[0];
    args.places = b->out[1];
    return push_documents(b, KERNEL_documents, &args, args.rows);
}

bool cuda_bind_document_ends(Binding *b) {
    DocumentsArgs args = documents_args(b);
    args.ends = b->out[0];
    return push_documents(b, KERNEL_document_ends, &args, args.rows);
}

bool cuda_bind_ngram(Binding *b) {
    DocumentsArgs args = documents_args(b);
    args.hashes = b->out[0];
    int64_t n = args.rows * args.kept;
    return push_documents(b, KERNEL_ngram, &args, (n + DOCUMENTS_THREADS - 1) / DOCUMENTS_THREADS);
}

bool cuda_bind_occurrence(Binding *b) {
    DocumentsArgs args = documents_args(b);
    args.numbers = b->out[0];
    return push_documents(b, KERNEL_occurrence, &args, args.rows);
}

/* Rotary */

bool cuda_rotary_launch(const RotaryArgs *args, DType dtype, LaunchCommand *out) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(rotary);
    enum { ENOUGH_BLOCKS = 2048, MOST_HEAD = 8192, MOST = 256 };
    const int64_t pack = 16 / dtype_bytes(dtype), half = args->turned / 2;
    const int64_t pairs = args->inner * args->head / 2;
    /* Places differ from sequence to sequence. */
    int64_t shares = args->places ? args->batch : divide_up(ENOUGH_BLOCKS, args->seq);
    bool vectors = half % pack == 0 && args->head % pack == 0;
    /* As many threads as have as much to do each. */
    int64_t items = vectors ? divide_up(pairs, pack) : pairs, rounds = divide_up(items, MOST);
    if (args->head > MOST_HEAD || pairs > INT32_MAX) return false;
    *out = (LaunchCommand){.kernel = kernel_for_dtype(&KERNELS_OF, dtype),
                           .grid = grid_of(args->seq, shares < args->batch ? shares : args->batch),
                           .threads = threads_for(rounds ? divide_up(items, rounds) : 1, MOST),
                           .shared_bytes = (int)(half * (int64_t)sizeof(float[2])),
                           .args = args,
                           .args_bytes = sizeof(*args)};
    return true;
}

bool cuda_bind_rotary(Binding *b) {
    const Type *x = &b->in_local[0];
    int seq = type_find_axis(x, node_axis(b->node, ATTR_seq));
    RotaryArgs args = {.batch = 1,
                       .inner = 1,
                       .places = b->node->n_inputs > 1 ? b->in[1] : NULL,
                       .x = b->in[0],
                       .y = b->out[0]};
    for (int i = 0; i < x->rank - 1; i++) {
        if (i < seq) args.batch *= x->dims[i];
        if (i > seq) args.inner *= x->dims[i];
    }
    const int64_t head = x->dims[x->rank - 1], turned = rotary_turned(b->node, head);
    args.seq = x->dims[seq];
    args.row = args.inner * head;
    args.head = (int32_t)head;
    args.turned = (int32_t)turned;
    DimSpan span = bind_span(b, bind_input_type(b, 0), bind_input_sharding(b, 0), seq);
    args.split = span.split;
    args.first = span.first;
    args.second = span.second;
    args.log2_step = -2 * log2(node_float(b->node, ATTR_base, 10000)) / (double)turned;
    const RotaryScaling scaling = rotary_scaling(b->node);
    args.factor = scaling.factor;
    args.few = scaling.few;
    args.many = scaling.many;
    args.context = scaling.context;
    args.ramp = scaling.ramp;
    args.scale = (float)scaling.scale;
    args.n_factors = scaling.n_factors;
    static_assert(sizeof(args.factors) == sizeof(scaling.factors), "as many in both");
    memcpy(args.factors, scaling.factors, sizeof(args.factors));
    args.direction = node_int(b->node, ATTR_direction, 1) < 0 ? -1 : 1;
    LaunchCommand launch;
    if (head > INT32_MAX || !cuda_rotary_launch(&args, x->dtype, &launch))
        return bind_fail(b, "has heads too large for its CUDA kernel");
    return cuda_push_launch(b, launch.kernel, launch.grid, launch.threads, launch.shared_bytes,
                            &args, sizeof(args));
}

/* Embedding */

bool cuda_bind_embedding(Binding *b) {
    enum { WARPS = 8 };
    const Type *table = &b->in_local[1];
    EmbeddingArgs args = {
        .n = type_elements(&b->in_local[0]),
        .row_bytes = table->dims[1] * dtype_bytes(table->dtype),
        .vocab_local = table->dims[0],
        .vocab_offset = bind_offset(b, bind_input_type(b, 1), bind_input_sharding(b, 1), 0),
        .tokens = b->in[0],
        .table = b->in[1],
        .out = b->out[0],
    };
    return cuda_push_launch(b, KERNEL_embedding_rows, grid_of(divide_up(args.n, WARPS), 1),
                            32 * WARPS, 0, &args, sizeof(args));
}

/* The gradient's workspace: sorted places and rows, their count, the chunks' partial sums. Chunks
 * are few enough for these to take some megabytes, and at least as long as pays. */
typedef struct EmbeddingWorkspace {
    int64_t chunk, n_chunks;
    int64_t order, rows, count, partial, bytes; /* offsets, and the end */
} EmbeddingWorkspace;

static EmbeddingWorkspace embedding_workspace(int64_t n, int64_t model) {
    enum { LEAST_CHUNK = 32, MOST_CHUNKS = 512, ALIGN = 64 };
    int64_t chunk = divide_up(divide_up(n, MOST_CHUNKS), 4) * 4;
    EmbeddingWorkspace w = {.chunk = chunk < LEAST_CHUNK ? LEAST_CHUNK : chunk};
    w.n_chunks = divide_up(n, w.chunk);
    w.rows = divide_up(n * 4, ALIGN) * ALIGN;
    w.count = 2 * w.rows;
    w.partial = w.count + ALIGN;
    w.bytes = w.partial + w.n_chunks * 2 * model * 4;
    return w;
}

int64_t cuda_embedding_grad_workspace_bytes(const Node *node, const Type *inputs,
                                            const Type *outputs) {
    (void)node;
    return embedding_workspace(type_elements(&inputs[0]), outputs[0].dims[1]).bytes;
}

static bool push_embedding_sort(Binding *b, const EmbeddingWorkspace *w) {
    enum { LEAST_ROWS = 64, ENOUGH_BLOCKS = 256 };
    const Type *table = &b->out_local[0];
    char *workspace = b->workspace;
    int64_t block_rows = divide_up(table->dims[0], ENOUGH_BLOCKS);
    if (block_rows < LEAST_ROWS) block_rows = LEAST_ROWS;
    if (block_rows > EMBEDDING_SORT_ROWS) block_rows = EMBEDDING_SORT_ROWS;
    EmbeddingSortArgs args = {
        .n = type_elements(&b->in_local[0]),
        .vocab_local = table->dims[0],
        .vocab_offset = bind_offset(b, &b->node->types[0], &b->node->shardings[0], 0),
        .block_rows = (int32_t)block_rows,
        .tokens = b->in[0],
        .order = (int32_t *)(workspace + w->order),
        .rows = (int32_t *)(workspace + w->rows),
        .count = (int32_t *)(workspace + w->count),
    };
    if (args.n > INT32_MAX || args.vocab_local > INT32_MAX) {
        return bind_fail(b, "has more tokens or rows than its CUDA kernel can sort");
    }
    return cuda_push_launch(b, KERNEL_embedding_sort,
                            grid_of(divide_up(args.vocab_local, block_rows), 1),
                            EMBEDDING_SORT_THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_embedding_grad(Binding *b) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(embedding_sum);
    enum { COLUMNS = 128 }; /* threads */
    const Type *table = &b->out_local[0], *dy = &b->in_local[1];
    int64_t model = table->dims[1];
    int v = model % vector_elements(dy) == 0 ? vector_elements(dy) : 1;
    EmbeddingWorkspace w = embedding_workspace(type_elements(&b->in_local[0]), model);
    char *workspace = b->workspace;
    EmbeddingSumArgs args = {
        .model = model,
        .chunk = (int32_t)w.chunk,
        .accumulate = b->node->n_inputs == 4 && !b->overwrite,
        .order = (int32_t *)(workspace + w.order),
        .rows = (int32_t *)(workspace + w.rows),
        .count = (int32_t *)(workspace + w.count),
        .dy = b->in[1],
        .partial = (float *)(workspace + w.partial),
        .dtable = b->out[0],
    };
    if (!args.accumulate && !cuda_push_fill(b, b->out[0], 0, type_elements(table) * 4)) {
        return false;
    }
    return push_embedding_sort(b, &w) &&
           cuda_push_launch(b, kernel_for_dtype(&KERNELS_OF, dy->dtype),
                            grid_of(w.n_chunks, divide_up(model, COLUMNS * v)), COLUMNS, 0, &args,
                            sizeof(args)) &&
           cuda_push_launch(b, KERNEL_embedding_join,
                            grid_of(w.n_chunks, divide_up(model, COLUMNS)), COLUMNS, 0, &args,
                            sizeof(args));
}
