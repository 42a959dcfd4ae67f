/* CUDA binders of decoding: caches, attention to them, layers that go on from a state. How work is
 * cut follows from shapes and dtypes alone, so that results and workspace are the same on every
 * device; how many positions there are is known only when a kernel runs. */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/group_division.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/workspace.h"

#include <math.h>

/* Caches */

/* Kernels that move units of 2, 4 or 16 bytes. */
typedef struct MoveKernels {
    KernelId by_2, by_4, by_16;
} MoveKernels;

/* The widest units that a row of so many bytes is made of. */
static KernelId choose_units(const MoveKernels *kernels, int64_t bytes, int64_t *out_width) {
    int unit = bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : 2;
    *out_width = bytes / unit;
    return unit == 16 ? kernels->by_16 : unit == 4 ? kernels->by_4 : kernels->by_2;
}

static Grid grid_for(int64_t threads) {
    return (Grid){threads ? cuda_blocks(threads, CACHE_THREADS) : 0, 1, 1};
}

bool cuda_bind_cache_append(Binding *b) {
    static const MoveKernels KERNELS_OF = {KERNEL_cache_append_2, KERNEL_cache_append_4,
                                           KERNEL_cache_append_16};
    const Type *cache = &b->in_local[0], *x = &b->in_local[1];
    CacheAppendArgs args = {.n = x->dims[0] * x->dims[1],
                            .seq = x->dims[1],
                            .sequences = cache->dims[0],
                            .context = cache->dims[1],
                            .rows = b->in[2],
                            .places = b->in[3],
                            .x = b->in[1],
                            .cache = b->out[0]};
    KernelId kernel =
        choose_units(&KERNELS_OF, bind_stride(x, 1) * dtype_bytes(x->dtype), &args.width);
    return cuda_push_launch(b, kernel, grid_for(args.n * args.width), CACHE_THREADS, 0, &args,
                            sizeof(args));
}

bool cuda_bind_cache_read(Binding *b) {
    static const MoveKernels KERNELS_OF = {KERNEL_cache_read_2, KERNEL_cache_read_4,
                                           KERNEL_cache_read_16};
    const Type *cache = &b->in_local[0], *places = &b->in_local[2];
    CacheReadArgs args = {.n = places->dims[0] * places->dims[1],
                          .seq = places->dims[1],
                          .sequences = cache->dims[0],
                          .context = cache->dims[1],
                          .rows = b->in[1],
                          .places = b->in[2],
                          .cache = b->in[0],
                          .out = b->out[0]};
    KernelId kernel =
        choose_units(&KERNELS_OF, bind_stride(cache, 1) * dtype_bytes(cache->dtype), &args.width);
    return cuda_push_launch(b, kernel, grid_for(args.n * args.width), CACHE_THREADS, 0, &args,
                            sizeof(args));
}

bool cuda_bind_select_row(Binding *b) {
    static const MoveKernels KERNELS_OF = {KERNEL_select_row_2, KERNEL_select_row_4,
                                           KERNEL_select_row_16};
    const Type *x = &b->in_local[0];
    SelectRowArgs args = {.batch = x->dims[0],
                          .seq = x->dims[1],
                          .numbers = b->in[1],
                          .x = b->in[0],
                          .out = b->out[0]};
    KernelId kernel =
        choose_units(&KERNELS_OF, bind_stride(x, 1) * dtype_bytes(x->dtype), &args.width);
    return cuda_push_launch(b, kernel, grid_for(args.batch * args.width), CACHE_THREADS, 0, &args,
                            sizeof(args));
}

/* Attention */

/* Kernels on tensor cores, for heads up to `head` of `dtype` and values up to `values`; up to
 * EVEN_HEAD both are of one size, as their tiles are. */
typedef struct CacheKernels {
    DType dtype;
    int head, values, keys, threads;
    KernelId attend;
} CacheKernels;
enum { EVEN_HEAD = 128 };
#define CACHE_KERNELS(TYPE, suffix, head_, values_, keys_, threads_)                               \
    {                                                                                              \
        .dtype = TYPE, .head = head_, .values = values_, .keys = keys_, .threads = threads_,       \
        .attend = KERNEL_cache_attention_##head_##_##suffix                                        \
    }
#define CACHE_SET(TYPE, suffix)                                                                    \
    CACHE_KERNELS(TYPE, suffix, 32, 32, CACHE_ATTENTION_KEYS, 128),                                \
        CACHE_KERNELS(TYPE, suffix, 64, 64, CACHE_ATTENTION_KEYS, 128),                            \
        CACHE_KERNELS(TYPE, suffix, 128, 128, CACHE_ATTENTION_KEYS, 128),                          \
        CACHE_KERNELS(TYPE, suffix, 192, 128, CACHE_ATTENTION_WIDE_KEYS, 128),                     \
        CACHE_KERNELS(TYPE, suffix, 256, 256, CACHE_ATTENTION_WIDE_KEYS, 256)
static const CacheKernels TENSOR[] = {CACHE_SET(DTYPE_BF16, bf16), CACHE_SET(DTYPE_F16, f16)};
enum { N_TENSOR = sizeof(TENSOR) / sizeof(TENSOR[0]) };

/* One attention: its shape and how it is cut. */
typedef struct CacheShape {
    DType dtype;
    int64_t batch, seq, kv_heads, group, head, values, context;
    KernelId attend;
    int threads, shared_bytes;
    int64_t tiles, splits; /* of rows and of keys */
} CacheShape;

/* Tensor cores take rows of whole 16 bytes; their running maximum is of unscaled scores, which a
 * negative scale would turn into a minimum. NULL: there are none for it. */
static const CacheKernels *find_tensor(const CacheShape *s, double scale) {
    if (s->head % 8 || s->values % 8 || !(scale > 0)) return NULL;
    for (int i = 0; i < N_TENSOR; i++) {
        const CacheKernels *t = &TENSOR[i];
        bool within = s->head <= t->head && s->values <= t->values;
        bool alike = s->head == s->values || t->head > EVEN_HEAD;
        if (s->dtype == t->dtype && within && alike) return t;
    }
    return NULL;
}

/* Blocks for two of each of an H100's processors: at the end of a context each has a run of keys
 * that is long beside what joining it costs. */
static int64_t count_splits(const CacheShape *s, int keys) {
    enum { ENOUGH_BLOCKS = 264, MOST = 128 };
    int64_t blocks = s->batch * s->kv_heads * s->tiles, most = divide_up(s->context, keys);
    int64_t splits = blocks ? divide_up(ENOUGH_BLOCKS, blocks) : 1;
    if (most > MOST) most = MOST;
    return splits > most ? most : splits;
}

static CacheShape cache_shape(const Node *node, const Type *inputs) {
    static const KernelsByDtype ANY = KERNELS_BY_DTYPE(cache_attention_any);
    const Type *q = &inputs[0], *k = &inputs[1], *v = &inputs[2];
    const bool shared = k->rank == 3; /* by all heads, a group of one key/value head */
    CacheShape s = {.dtype = q->dtype,
                    .batch = q->dims[0],
                    .seq = q->dims[1],
                    .kv_heads = shared ? 1 : q->dims[2],
                    .group = shared         ? q->dims[2]
                             : q->rank == 5 ? q->dims[3]
                                            : 1,
                    .head = q->dims[q->rank - 1],
                    .values = v->dims[v->rank - 1],
                    .context = k->dims[1]};
    const CacheKernels *tensor = find_tensor(&s, node_float(node, ATTR_scale, 1));
    int rows = tensor ? tensor->threads / 2 : CACHE_ANY_ROWS;
    int keys = tensor ? tensor->keys : CACHE_ANY_KEYS;
    s.tiles = divide_up(s.seq * s.group, rows);
    s.splits = count_splits(&s, keys);
    s.threads = tensor ? tensor->threads : CACHE_ANY_THREADS;
    s.attend = tensor ? tensor->attend : kernel_for_dtype(&ANY, s.dtype);
    if (tensor) {
        s.shared_bytes = 2 * (rows * tensor->head + 2 * keys * (tensor->head + tensor->values));
    } else {
        s.shared_bytes = 4 * ((rows + keys) * ((int)s.head | 1) + rows * (keys + 1));
    }
    return s;
}

/* Sums of values, and beside them the largest score and the sum of weights, of each run. */
static int64_t count_partials(const CacheShape *s) {
    return s->batch * s->kv_heads * s->splits * s->seq * s->group;
}

int64_t cuda_cache_attention_workspace_bytes(const Node *node, const Type *inputs,
                                             const Type *outputs) {
    (void)outputs;
    CacheShape s = cache_shape(node, inputs);
    return 4 * count_partials(&s) * (s.values + 2);
}

/* Kernels count the numbers of a sequence's queries and keys in 32 bits. */
static bool shape_fits(Binding *b, const CacheShape *s) {
    int64_t width = s->head > s->values ? s->head : s->values;
    if (width > CACHE_ANY_HEAD) return bind_fail(b, "has a head longer than 640 on CUDA");
    if ((s->context + CACHE_ATTENTION_KEYS) * s->kv_heads * width > INT32_MAX ||
        (s->seq + CACHE_ATTENTION_KEYS) * s->kv_heads * s->group * width > INT32_MAX) {
        return bind_fail(b, "has a cache of 2^31 numbers or more a sequence, too many on CUDA");
    }
    if (s->batch * s->kv_heads * s->seq * s->group <= INT32_MAX) return true;
    return bind_fail(b, "has 2^31 rows or more, too many on CUDA");
}

static CacheAttentionArgs attention_args(const Binding *b, const CacheShape *s) {
    const float scale = (float)node_float(b->node, ATTR_scale, 1);
    const float softcap = (float)node_float(b->node, ATTR_softcap, 0);
    const float factor = softcap > 0 ? softcap : scale;
    CacheAttentionArgs args = {
        .sizes = {.batch = (int32_t)s->batch,
                  .seq = (int32_t)s->seq,
                  .kv_heads = (int32_t)s->kv_heads,
                  .group = (int32_t)s->group,
                  .head = (int32_t)s->head,
                  .values = (int32_t)s->values,
                  .keys = (int32_t)s->context,
                  .rows = (int32_t)(s->seq * s->group),
                  .scale = scale,
                  .cap_factor = softcap > 0 ? (float)((double)scale / (double)softcap) : 0,
                  .lse_scale = factor,
                  .scale_log2 = (float)((double)factor * M_LOG2E),
                  .tiles = (int32_t)s->tiles,
                  .starts = b->node->n_inputs > 5 ? b->in[5] : NULL},
        .sequences = (int32_t)b->in_local[1].dims[0],
        .window = (int32_t)node_int(b->node, ATTR_window, 0),
        .splits = (int32_t)s->splits,
        .rows = b->in[3],
        .places = b->in[4],
        .q = b->in[0],
        .k = b->in[1],
        .v = b->in[2],
        .statistics = b->workspace,
        .partial = (float *)b->workspace + 2 * count_partials(s),
        .o = b->out[0],
        .lse = b->out[1]};
    set_group_division(&args.sizes);
    return args;
}

bool cuda_bind_cache_attention(Binding *b) {
    static const KernelsByDtype JOIN = KERNELS_BY_DTYPE(cache_attention_join);
    enum { MOST_THREADS = 256 };
    CacheShape s = cache_shape(b->node, b->in_local);
    if (!shape_fits(b, &s)) return false;
    CacheAttentionArgs args = attention_args(b, &s);
    Grid grid = {cuda_grid_size(s.splits), cuda_grid_size(s.tiles),
                 cuda_grid_size(s.batch * s.kv_heads)};
    Grid rows = {cuda_grid_size(s.batch * s.kv_heads * s.seq * s.group), 1, 1};
    int64_t columns = divide_up(s.values, 32) * 32;
    int threads = columns < MOST_THREADS ? (int)columns : MOST_THREADS;
    return cuda_push_launch(b, s.attend, grid, s.threads, s.shared_bytes, &args, sizeof(args)) &&
           cuda_push_launch(b, kernel_for_dtype(&JOIN, s.dtype), rows, threads, 0, &args,
                            sizeof(args));
}

/* Layers with a state */

bool cuda_bind_cache_linear_attention(Binding *b) {
    enum { STATES = 3, ROWS, PLACES };
    const Type *q = &b->in_local[0], *v = &b->in_local[2];
    const int decay = linear_attention_decay(b->node->op), write = linear_attention_write(b->node);
    const int64_t keys = q->dims[q->rank - 1], values = v->dims[v->rank - 1];
    CacheLinearAttentionArgs args = {.seq = (int32_t)q->dims[1],
                                     .groups = q->rank == 4 ? (int32_t)q->dims[2] : 1,
                                     .heads = v->rank > q->rank ? (int32_t)v->dims[v->rank - 2] : 1,
                                     .keys = (int32_t)keys,
                                     .values = (int32_t)values,
                                     .tiles = (int32_t)divide_up(values, CACHE_STATE_TILE),
                                     .sequences = (int32_t)b->in_local[STATES].dims[0],
                                     .dtype = (int32_t)q->dtype,
                                     .by_keys = linear_attention_by_keys(b->node, b->in_local),
                                     .scale = (float)node_float(b->node, ATTR_scale, 1),
                                     .q = b->in[0],
                                     .k = b->in[1],
                                     .v = b->in[2],
                                     .decay = b->in[decay],
                                     .write = write >= 0 ? b->in[write] : NULL,
                                     .rows = b->in[ROWS],
                                     .places = b->in[PLACES],
                                     .states = b->out[1],
                                     .o = b->out[0]};
    if (bind_rows(v) > INT32_MAX || q->dims[1] > INT32_MAX)
        return bind_fail(b, "has more positions than its CUDA kernel counts");
    KernelId kernel = keys <= 64    ? KERNEL_cache_linear_attention_64
                      : keys <= 128 ? KERNEL_cache_linear_attention_128
                                    : KERNEL_cache_linear_attention_256;
    Grid grid = {cuda_grid_size(q->dims[0] * args.groups * args.heads * args.tiles), 1, 1};
    return cuda_push_launch(b, kernel, grid, CACHE_STATE_TILE * CACHE_STATE_WARPS, 0, &args,
                            sizeof(args));
}

/* What has been kept is read by all new positions before it is replaced. */
bool cuda_bind_cache_convolve(Binding *b) {
    enum { X, CACHE, WEIGHTS, ROWS, PLACES, MOST_GROUPS = 32768 };
    const Type *x = &b->in_local[X];
    const int64_t rows = x->dims[0] * x->dims[1];
    const int documents = convolve_places(b->node);
    CacheConvolveArgs args = {.batch = x->dims[0],
                              .seq = x->dims[1],
                              .channels = rows ? type_elements(x) / rows : 0,
                              .sequences = b->in_local[CACHE].dims[0],
                              .taps = (int32_t)b->in_local[WEIGHTS].dims[0],
                              .dtype = (int32_t)x->dtype,
                              .rows = b->in[ROWS],
                              .places = b->in[PLACES],
                              .documents = documents >= 0 ? b->in[documents] : NULL,
                              .x = b->in[X],
                              .w = b->in[WEIGHTS],
                              .cache = b->out[1],
                              .y = b->out[0]};
    Grid grid = grid_for(args.channels), kept = grid;
    grid.y = (uint32_t)(rows < MOST_GROUPS ? rows : MOST_GROUPS);
    kept.y = (uint32_t)(args.batch < MOST_GROUPS ? args.batch : MOST_GROUPS);
    return cuda_push_launch(b, KERNEL_cache_convolve, grid, CACHE_THREADS, 0, &args,
                            sizeof(args)) &&
           cuda_push_launch(b, KERNEL_cache_convolve_keep, kept, CACHE_THREADS, 0, &args,
                            sizeof(args));
}
