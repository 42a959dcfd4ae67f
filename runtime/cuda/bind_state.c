/* CUDA binders of linear attention and convolutions. How work is cut follows from sizes and dtypes
 * alone, so that results and workspace are the same on every device. */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/bind_chunk.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/workspace.h"

/* Linear attention */

/* The kernels for keys up to a number, and what their blocks are made of. */
typedef struct LinearAttentionKernels {
    int keys;
    KernelId forward, reverse, again;
    int tile, warp_columns;
    int forward_floats, reverse_floats, again_floats; /* of shared memory */
} LinearAttentionKernels;

/* Operands and results of columns, and sums over them: v, o and errors; v, do, du and dk's; v, do,
 * du and those of dq and dk. `more`: shared memory besides. */
#define KERNELS_FOR(name, keys, more)                                                              \
    {                                                                                              \
        keys, KERNEL_##name##_##keys, KERNEL_##name##_reverse_##keys,                              \
            KERNEL_##name##_again_##keys, LINEAR_ATTENTION_TILE(keys),                             \
            LINEAR_ATTENTION_WARP_COLUMNS(keys), LINEAR_ATTENTION_SHARED(keys, 1, 2, 0) + (more),  \
            LINEAR_ATTENTION_SHARED(keys, 2, 1, 1) + (more),                                       \
            LINEAR_ATTENTION_SHARED(keys, 3, 0, 2) + (more)                                        \
    }
#define WITH_HEADS_DECAYS(keys) KERNELS_FOR(linear_attention, keys, 0)
#define WITH_KEYS_DECAYS(keys)                                                                     \
    KERNELS_FOR(linear_attention_keys, keys, LINEAR_ATTENTION_KEY_DECAYS(keys))
static const LinearAttentionKernels KERNELS_BY_KEYS[2][5] = {
    {WITH_HEADS_DECAYS(16), WITH_HEADS_DECAYS(32), WITH_HEADS_DECAYS(64), WITH_HEADS_DECAYS(128),
     WITH_HEADS_DECAYS(256)},
    {WITH_KEYS_DECAYS(16), WITH_KEYS_DECAYS(32), WITH_KEYS_DECAYS(64), WITH_KEYS_DECAYS(128),
     WITH_KEYS_DECAYS(256)}};

_Static_assert((int)CONVOLVE_TAPS >= (int)CONVOLVE_MOST_TAPS && ATTENTION_LONGEST_HEAD <= 256,
               "what the kernels have room for");

static const LinearAttentionKernels *kernels_for(int64_t keys, bool by_keys) {
    const LinearAttentionKernels *kernels = KERNELS_BY_KEYS[by_keys];
    while (kernels->keys < keys) kernels++;
    return kernels;
}

static LinearAttentionSizes linear_attention_sizes(const Type *inputs) {
    const Type *q = &inputs[0], *v = &inputs[2];
    int64_t keys = q->dims[q->rank - 1], values = v->dims[v->rank - 1];
    int tile = LINEAR_ATTENTION_TILE(keys), whole = 16 / dtype_bytes(q->dtype);
    return (LinearAttentionSizes){.seq = (int32_t)q->dims[1],
                                  .groups = q->rank == 4 ? (int32_t)q->dims[2] : 1,
                                  .heads = v->rank > q->rank ? (int32_t)v->dims[v->rank - 2] : 1,
                                  .keys = (int32_t)keys,
                                  .values = (int32_t)values,
                                  .tiles = (int32_t)divide_up(values, tile),
                                  .dtype = (int32_t)q->dtype,
                                  .vectors = keys % whole == 0 && values % whole == 0};
}

static LinearAttentionSizes bind_sizes(const Binding *b) {
    LinearAttentionSizes sizes = linear_attention_sizes(b->in_local);
    int decay = linear_attention_decay(b->node->op), write = linear_attention_write(b->node);
    sizes.scale = (float)node_float(b->node, ATTR_scale, 1);
    sizes.q = b->in[0];
    sizes.k = b->in[1];
    sizes.decay = b->in[decay];
    sizes.write = write >= 0 ? b->in[write] : NULL;
    return sizes;
}

/* A block for each tile of each head. */
static int64_t count_blocks(const LinearAttentionSizes *s, int64_t batch) {
    return batch * s->groups * s->heads * s->tiles;
}

/* Warps that have columns of the widest tile. */
static int count_threads(const LinearAttentionSizes *s) {
    const LinearAttentionKernels *kernels = kernels_for(s->keys, false);
    int columns = s->values < kernels->tile ? s->values : kernels->tile;
    return 32 * (int)divide_up(columns, kernels->warp_columns);
}

static bool sizes_fit(Binding *b) {
    const Type *q = &b->in_local[0], *v = &b->in_local[2];
    int64_t most = INT32_MAX / LINEAR_ATTENTION_TILE(16);
    if (q->dims[1] <= most && bind_rows(v) <= most) return true;
    return bind_fail(b, "has more positions than its CUDA kernel counts");
}

bool cuda_bind_linear_attention(Binding *b) {
    if (linear_attention_by_chunks(b->node, b->in_local)) return cuda_bind_by_chunks(b);
    LinearAttentionArgs args = {
        .sizes = bind_sizes(b), .v = b->in[2], .o = b->out[0], .errors = b->out[1]};
    const LinearAttentionKernels *kernels =
        kernels_for(args.sizes.keys, linear_attention_by_keys(b->node, b->in_local));
    Grid grid = {cuda_grid_size(count_blocks(&args.sizes, b->in_local[0].dims[0])), 1, 1};
    return sizes_fit(b) && cuda_push_launch(b, kernels->forward, grid, count_threads(&args.sizes),
                                            4 * kernels->forward_floats, &args, sizeof(args));
}

/* The gradient's workspace, in f32 numbers: where each part begins, and the end. Sums over a tile's
 * columns take a row of keys for each position and block: a part of the sequence at a time, between
 * which blocks keep their states. */
typedef struct GradWorkspace {
    int64_t batch, blocks, part; /* positions of a part */
    int64_t state, sums[2], rows, decays[2], end;
} GradWorkspace;

static GradWorkspace grad_workspace(const Node *node, const Type *inputs) {
    enum { MOST_SUMS = 32 << 20, LEAST_PART = 64, MOST_PART = 256 };
    const LinearAttentionSizes s = linear_attention_sizes(inputs);
    const bool by_keys = linear_attention_by_keys(node, inputs);
    const LinearAttentionKernels *kernels = kernels_for(s.keys, by_keys);
    const int n_sums = linear_attention_write(node) >= 0 ? 2 : 1;
    GradWorkspace w = {.batch = inputs[0].dims[0]};
    w.blocks = count_blocks(&s, w.batch);
    w.part = w.blocks ? MOST_SUMS / (w.blocks * s.keys * n_sums) / LEAST_PART * LEAST_PART : 0;
    if (w.part < LEAST_PART) w.part = LEAST_PART;
    if (w.part > MOST_PART) w.part = MOST_PART;
    if (w.part > s.seq) w.part = s.seq;
    w.sums[0] = w.part < s.seq ? w.blocks * kernels->keys * kernels->tile : 0;
    w.sums[1] = w.sums[0] + w.blocks * w.part * s.keys;
    w.rows = n_sums == 2 ? w.sums[1] + w.blocks * w.part * s.keys : w.sums[1];
    w.decays[0] = n_sums == 2 ? w.rows + type_elements(&inputs[0]) : w.rows;
    /* Both sweeps', or of keys their sum. */
    w.decays[1] = w.decays[0] + (by_keys ? 0 : w.blocks * s.seq);
    w.end = w.decays[1] + w.blocks * s.seq * (by_keys ? s.keys : 1);
    return w;
}

int64_t cuda_linear_attention_grad_workspace_bytes(const Node *node, const Type *inputs,
                                                   const Type *outputs) {
    (void)outputs;
    if (linear_attention_by_chunks(node, inputs)) return cuda_chunk_workspace_bytes(node, inputs);
    return 4 * grad_workspace(node, inputs).end;
}

int64_t cuda_linear_attention_workspace_bytes(const Node *node, const Type *inputs,
                                              const Type *outputs) {
    (void)outputs;
    return linear_attention_by_chunks(node, inputs) ? cuda_chunk_workspace_bytes(node, inputs) : 0;
}

typedef struct GradBinding {
    Binding *b;
    const LinearAttentionKernels *kernels;
    GradWorkspace w;
    float *workspace;
    LinearAttentionGradArgs args; /* but for what changes from launch to launch */
} GradBinding;

static bool push_sweep(GradBinding *g, bool again, int64_t part) {
    LinearAttentionGradArgs args = g->args;
    const int64_t seq = args.sizes.seq, last = (seq - 1) / g->w.part;
    args.first = (int32_t)(part * g->w.part);
    args.end = (int32_t)(part < last ? (part + 1) * g->w.part : seq);
    args.loads = again ? part > 0 : part < last;
    args.saves = again ? part < last : part > 0;
    args.decays = g->workspace + g->w.decays[again];
    g->args.first = args.first, g->args.end = args.end;
    Grid grid = {cuda_grid_size(g->w.blocks), 1, 1};
    int floats = again ? g->kernels->again_floats : g->kernels->reverse_floats;
    return cuda_push_launch(g->b, again ? g->kernels->again : g->kernels->reverse, grid,
                            count_threads(&args.sizes), 4 * floats, &args, sizeof(args));
}

/* Of the part that was swept last: what its blocks left in sums[which]. */
static bool push_join(GradBinding *g, int which, const float *addend, DType dtype, void *out) {
    enum { THREADS = 256 };
    const LinearAttentionSizes *s = &g->args.sizes;
    LinearAttentionJoinArgs args = {.batch = g->w.batch,
                                    .seq = s->seq,
                                    .groups = s->groups,
                                    .keys = s->keys,
                                    .parts = s->heads * s->tiles,
                                    .first = g->args.first,
                                    .end = g->args.end,
                                    .dtype = (int32_t)dtype,
                                    .sums = g->args.sums[which],
                                    .addend = addend,
                                    .out = out};
    int64_t n = g->w.batch * (args.end - args.first) * s->groups * s->keys;
    Grid grid = {cuda_blocks(n, THREADS), 1, 1};
    return cuda_push_launch(g->b, KERNEL_linear_attention_join, grid, THREADS, 0, &args,
                            sizeof(args));
}

/* Backwards: du, and dk, which with the delta rule is not whole yet. */
static bool push_reverse(GradBinding *g) {
    const LinearAttentionSizes *s = &g->args.sizes;
    DType dtype = s->write ? DTYPE_F32 : (DType)s->dtype;
    void *dk = s->write ? (void *)(g->workspace + g->w.rows) : g->b->out[1];
    for (int64_t part = (s->seq - 1) / g->w.part; part >= 0; part--) {
        if (!push_sweep(g, false, part) || !push_join(g, 0, NULL, dtype, dk)) return false;
    }
    return true;
}

static bool push_again(GradBinding *g) {
    const LinearAttentionSizes *s = &g->args.sizes;
    const float *dk = g->workspace + g->w.rows;
    for (int64_t part = 0; part * g->w.part < s->seq; part++) {
        if (!push_sweep(g, true, part) || !push_join(g, 0, NULL, (DType)s->dtype, g->b->out[0]) ||
            (s->write && !push_join(g, 1, dk, (DType)s->dtype, g->b->out[1]))) {
            return false;
        }
    }
    return true;
}

static bool push_decays(GradBinding *g) {
    const LinearAttentionSizes *s = &g->args.sizes;
    LinearAttentionDecaysArgs args = {.streams = g->w.blocks / s->tiles,
                                      .seq = s->seq,
                                      .heads = s->groups * s->heads,
                                      .tiles = s->tiles,
                                      .decay = s->decay,
                                      .reverse = g->workspace + g->w.decays[0],
                                      .again = g->workspace + g->w.decays[1],
                                      .ddecay = g->b->out[3]};
    Grid grid = {cuda_grid_size(divide_up(args.streams, LINEAR_ATTENTION_STREAMS)), 1, 1};
    return cuda_push_launch(g->b, KERNEL_linear_attention_decays, grid,
                            32 * LINEAR_ATTENTION_STREAMS, 0, &args, sizeof(args));
}

static bool push_key_decays(GradBinding *g) {
    const LinearAttentionSizes *s = &g->args.sizes;
    LinearAttentionKeyDecaysArgs args = {.streams = g->w.blocks / s->tiles,
                                         .seq = s->seq,
                                         .heads = s->groups * s->heads,
                                         .keys = s->keys,
                                         .tiles = s->tiles,
                                         .decay = s->decay,
                                         .parts = g->workspace + g->w.decays[0],
                                         .ddecay = g->b->out[3]};
    Grid grid = {cuda_blocks(args.streams * s->keys, LINEAR_ATTENTION_KEY_THREADS), 1, 1};
    return cuda_push_launch(g->b, KERNEL_linear_attention_key_decays, grid,
                            LINEAR_ATTENTION_KEY_THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_linear_attention_grad(Binding *b) {
    if (linear_attention_by_chunks(b->node, b->in_local)) return cuda_bind_by_chunks(b);
    GradBinding g = {.b = b, .w = grad_workspace(b->node, b->in_local), .workspace = b->workspace};
    if (!sizes_fit(b)) return false;
    g.args =
        (LinearAttentionGradArgs){.sizes = bind_sizes(b),
                                  .v = b->in[2],
                                  .d_o = b->in[3],
                                  .du = b->out[2],
                                  .state = g.workspace + g.w.state,
                                  .sums = {g.workspace + g.w.sums[0], g.workspace + g.w.sums[1]}};
    const bool by_keys = linear_attention_by_keys(b->node, b->in_local);
    g.kernels = kernels_for(g.args.sizes.keys, by_keys);
    return push_reverse(&g) && push_again(&g) && (by_keys ? push_key_decays(&g) : push_decays(&g));
}

/* Convolutions */

typedef struct ConvolveKernels {
    KernelsByDtype any, packs;
} ConvolveKernels;

static ConvolveArgs convolve_args(const Binding *b) {
    const Type *x = &b->in_local[0];
    int places = convolve_places(b->node);
    int64_t rows = x->dims[0] * x->dims[1];
    return (ConvolveArgs){.rows = rows,
                          .seq = x->dims[1],
                          .channels = rows ? type_elements(x) / rows : 0,
                          .taps = (int32_t)b->in_local[1].dims[0],
                          .places = places >= 0 ? b->in[places] : NULL,
                          .x = b->in[0],
                          .w = b->in[1],
                          .out = b->out[0]};
}

/* A thread for each channel, or four; the groups of rows beside. */
static bool push_convolve(Binding *b, const ConvolveKernels *kernels, const ConvolveArgs *args) {
    bool packs = args->channels % CONVOLVE_PACK == 0;
    int64_t threads = packs ? args->channels / CONVOLVE_PACK : args->channels;
    int block = threads < CONVOLVE_THREADS ? (int)divide_up(threads, 32) * 32 : CONVOLVE_THREADS;
    Grid grid = {cuda_grid_size(divide_up(threads, block ? block : 32)),
                 cuda_grid_size(divide_up(args->rows, args->rows_per_group)), 1};
    return cuda_push_launch(
        b, kernel_for_dtype(packs ? &kernels->packs : &kernels->any, b->in_local[0].dtype), grid,
        block, 0, args, sizeof(*args));
}

/* As few as keep the weights in registers for a while; grids have 65535 at most. */
static int64_t forward_rows(int64_t rows) {
    enum { LEAST = 16, MOST_GROUPS = 32768 };
    int64_t per_group = divide_up(rows, MOST_GROUPS);
    return per_group < LEAST ? LEAST : per_group;
}

bool cuda_bind_convolve(Binding *b) {
    static const ConvolveKernels KERNELS_OF = {KERNELS_BY_DTYPE(convolve),
                                               KERNELS_BY_DTYPE(convolve_packs)};
    ConvolveArgs args = convolve_args(b);
    args.rows_per_group = forward_rows(args.rows);
    return push_convolve(b, &KERNELS_OF, &args);
}

/* Enough groups to fill a large device with few channels, partial sums far fewer than operands. */
static int64_t grad_rows(int64_t rows) {
    enum { LEAST = 32, MOST_GROUPS = 512 };
    int64_t per_group = divide_up(rows, MOST_GROUPS);
    return per_group < LEAST ? LEAST : per_group;
}

int64_t cuda_convolve_grad_workspace_bytes(const Node *node, const Type *inputs,
                                           const Type *outputs) {
    (void)node, (void)outputs;
    int64_t rows = inputs[0].dims[0] * inputs[0].dims[1];
    return 4 * divide_up(rows, grad_rows(rows)) * type_elements(&inputs[1]);
}

bool cuda_bind_convolve_grad(Binding *b) {
    static const ConvolveKernels KERNELS_OF = {KERNELS_BY_DTYPE(convolve_grad),
                                               KERNELS_BY_DTYPE(convolve_grad_packs)};
    ConvolveArgs args = convolve_args(b);
    int64_t width = type_elements(&b->in_local[1]);
    if (width > INT32_MAX) return bind_fail(b, "has more channels than its CUDA kernel counts");
    args.rows_per_group = grad_rows(args.rows);
    args.dy = b->in[2];
    args.partial = b->workspace;
    NormJoinArgs join = {.groups = divide_up(args.rows, args.rows_per_group),
                         .n = (int32_t)width,
                         .width = (int32_t)width,
                         .partial = b->workspace,
                         .dgain = b->out[1]};
    int64_t shares = join.groups < 32 ? join.groups : 32; /* of norm_join's warps */
    Grid grid = {cuda_grid_size(divide_up(width, 32)), 1, 1};
    return push_convolve(b, &KERNELS_OF, &args) &&
           cuda_push_launch(b, KERNEL_norm_join, grid, 32 * (int)shares, 0, &join, sizeof(join));
}
